//! `penstock trace generate`: traces of programs with a known access pattern.
use super::{figures, told};
use crate::error::{CliError, Result};
use crate::{out, size};
use clap::Args;
use penstock_analysis::{Irregular, Plan};
use penstock_sched::learn::{self, AccessPattern, FEATURES, Scenario};
use penstock_trace::{Header, Op, Writer};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Generate what four data servers see of programs with a known access pattern.
///
/// Either traces of one run (-o), or training data for the detection from all 144 cases of the cross-product (--training).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace generate --pattern strided_large --processes 32 -o run1
  penstock trace generate --stack --irregular --calls 1000 -o stack2
  penstock trace generate --training windows.csv --runs 20 --seed 1")]
pub struct GenerateArgs {
    /// Access pattern.
    #[arg(long, value_name = "PATTERN", default_value = "contiguous_small", value_parser = patterns())]
    pattern: String,
    /// Operation.
    #[arg(long, value_name = "OP", default_value = "write", value_parser = ["read", "write"])]
    op: String,
    /// Processes of a program.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// Programs that run at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    programs: u32,
    /// A file per process instead of one per program.
    #[arg(long)]
    many_files: bool,
    /// Directory for data-0.trace to data-3.trace.
    #[arg(short, long, value_name = "DIR", required_unless_present = "training")]
    output: Option<PathBuf>,
    /// Write labelled windows of all cases to this CSV file.
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    training: Option<PathBuf>,
    /// Runs of each case, with --training.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "training")]
    runs: u32,
    /// Whole streams of processes and servers, with every layer, in place of what servers see.
    #[arg(long, conflicts_with_all = ["training", "pattern", "op", "programs", "many_files"])]
    stack: bool,
    /// Calls of each process, with --stack.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "stack", value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// Calls of HDF5 and MPI-IO at random, with --stack.
    #[arg(long, requires = "stack")]
    irregular: bool,
    /// The same for every second process, with --stack.
    #[arg(long, requires = "stack", conflicts_with = "irregular")]
    half_irregular: bool,
    /// Everything random follows from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn patterns() -> clap::builder::PossibleValuesParser {
    AccessPattern::ALL.map(AccessPattern::name).to_vec().into()
}

/// Data servers of a generated run, as an embedded file system has.
const SERVERS: u64 = 4;

pub fn generate(args: &GenerateArgs) -> Result<()> {
    if let Some(path) = &args.training {
        return training(args, path);
    }
    let Some(dir) = &args.output else {
        return Err(CliError::new("neither -o nor --training is given"));
    };
    if args.stack {
        return stack(args, dir);
    }
    let pattern = AccessPattern::ALL
        .into_iter()
        .find(|p| p.name() == args.pattern);
    let scenario = Scenario {
        op: if args.op == "read" {
            Op::Read
        } else {
            Op::Write
        },
        many_files: args.many_files,
        pattern: pattern.unwrap_or(AccessPattern::ContiguousSmall),
        processes: args.processes,
        programs: args.programs,
    };
    let run = learn::generate(&scenario, args.seed, Some(SERVERS));
    std::fs::create_dir_all(dir).map_err(|e| CliError::io("make", dir, e))?;
    for (server, events) in run.servers.iter().enumerate() {
        let path = dir.join(format!("data-{server}.trace"));
        let header = Header {
            server: server as u32,
            servers: run.servers.len() as u32,
            unit: run.unit,
            began: 0,
            repetitions: 1,
        };
        let mut writer = Writer::create(&path, &header).map_err(|e| told(&e))?;
        for event in events {
            writer.push(*event).map_err(|e| told(&e))?;
        }
        writer.finish(0).map_err(|e| told(&e))?;
        out::print(&format!(
            "{}: {} requests\n",
            path.display(),
            size::count(events.len() as u64)
        ));
    }
    Ok(())
}

/// A trace with streams of processes.
fn stack(args: &GenerateArgs, dir: &Path) -> Result<()> {
    let plan = Plan {
        seed: args.seed,
        ranks: args.processes,
        servers: SERVERS as u32,
        calls: args.calls,
        irregular: match (args.irregular, args.half_irregular) {
            (true, _) => Irregular::All,
            (false, true) => Irregular::Half,
            (false, false) => Irregular::None,
        },
    };
    let made = penstock_analysis::write(&plan, dir).map_err(|e| told(&e))?;
    out::line(format_args!(
        "{}: {} records of {} processes and {SERVERS} servers",
        dir.display(),
        size::count(made),
        args.processes
    ));
    Ok(())
}

/// Windows taken from one run, so that runs with many files don't outweigh others.
const WINDOWS_PER_RUN: usize = 24;

fn training(args: &GenerateArgs, path: &Path) -> Result<()> {
    let write = |e| CliError::io("write", path, e);
    let file = std::fs::File::create(path).map_err(write)?;
    let mut file = std::io::BufWriter::new(file);
    let columns = "run,op,many_files,pattern,processes,programs,server,file,requests";
    writeln!(file, "{columns},{}", FEATURES.join(",")).map_err(write)?;
    let (mut runs, mut windows) = (0u64, 0u64);
    for repetition in 0..u64::from(args.runs) {
        for scenario in Scenario::all() {
            let seed = args.seed.wrapping_mul(1_000_003).wrapping_add(runs);
            let run = learn::generate(&scenario, seed, None);
            for e in run.examples(seed ^ repetition, WINDOWS_PER_RUN) {
                writeln!(
                    file,
                    "{runs},{},{},{},{},{},{},{},{},{}",
                    scenario.op.name(),
                    u8::from(scenario.many_files),
                    scenario.pattern.name(),
                    scenario.processes,
                    scenario.programs,
                    e.server,
                    e.look.file,
                    e.look.requests,
                    figures(&e.look)
                )
                .map_err(write)?;
                windows += 1;
            }
            runs += 1;
        }
    }
    file.flush().map_err(write)?;
    out::print(&format!(
        "{}: {} windows of {} runs\n",
        path.display(),
        size::count(windows),
        size::count(runs)
    ));
    Ok(())
}
