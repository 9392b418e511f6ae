//! `penstock trace`: look at traces, ask them where the time went, learn from them, hand them to other tools.
//!
//! ```text
//! question.rs   what questions share                       answer.rs     tables, JSON, CSV
//! overview.rs breakdown.rs list.rs stats.rs throughput.rs servers.rs pattern.rs energy.rs files.rs lines.rs phases.rs
//! follow.rs diff.rs check.rs                               questions to whole traces, a file each
//! export.rs sql.rs anonymise.rs                            for other tools, in SQL, without names
//! show.rs merge.rs predict.rs detect.rs generate.rs        traces of single data servers, a file each
//! ```
mod anonymise;
#[macro_use]
mod answer;
mod breakdown;
mod check;
mod convert;
mod detect;
mod diff;
mod energy;
mod export;
mod files;
mod follow;
mod generate;
mod lines;
mod list;
mod merge;
mod overview;
mod pattern;
mod phases;
mod predict;
mod question;
mod servers;
mod show;
mod sql;
mod stats;
mod throughput;

pub use question::{asked, open};

use crate::error::{CliError, Result};
use clap::{Args, Subcommand};
use penstock_sched::learn::Look;
use penstock_trace::{Error, Event, Header, Kind, Op};
use std::path::Path;
use std::process::ExitCode;

/// Look at traces: where the time went, who reached whom; learn from them; hand them to other tools.
///
/// A trace is a directory that `penstock run --trace DIR` or `penstock up --trace DIR` writes. `show`, `merge`, `predict` and
/// `detect` take the file of a single data server in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace generate --stack --processes 4 -o stack         a trace to try these on
  penstock trace overview stack                                  what it holds, the share of the run in I/O
  penstock trace breakdown stack                                 where the time went, layer by layer
  penstock trace list stack                                      the longest calls, with their keys
  penstock trace follow stack 0/1                                one call, down to the devices
  penstock trace generate --pattern strided_small -o generated
  penstock trace show generated/data-0.trace                     one data server's trace, in a few lines
  penstock trace merge generated/data-0.trace -o expected.trace
  penstock trace predict expected.trace                          which aggregations will come
  penstock trace detect generated/data-0.trace                   the access pattern of each file
  penstock trace convert old/data-0.trace new/data-0.trace       a trace of an older format")]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Overview(overview::OverviewArgs),
    Breakdown(breakdown::BreakdownArgs),
    Follow(follow::FollowArgs),
    List(list::ListArgs),
    Stats(stats::StatsArgs),
    Throughput(throughput::ThroughputArgs),
    Servers(servers::ServersArgs),
    Pattern(pattern::PatternArgs),
    Energy(energy::EnergyArgs),
    Files(files::FilesArgs),
    Lines(lines::LinesArgs),
    Phases(phases::PhasesArgs),
    Diff(diff::DiffArgs),
    Check(check::CheckArgs),
    Sql(sql::SqlArgs),
    Export(export::ExportArgs),
    Anonymise(anonymise::AnonymiseArgs),
    Show(show::ShowArgs),
    Merge(merge::MergeArgs),
    Predict(predict::PredictArgs),
    Detect(detect::DetectArgs),
    Generate(generate::GenerateArgs),
    Convert(convert::ConvertArgs),
}

/// Runs `penstock trace`.
pub fn trace(args: &TraceArgs) -> Result<ExitCode> {
    match &args.command {
        TraceCommand::Check(args) => return check::check(args),
        TraceCommand::Convert(args) => return convert::convert(args),
        TraceCommand::Show(args) => return show::show(args),
        TraceCommand::Overview(args) => overview::overview(args),
        TraceCommand::Breakdown(args) => breakdown::breakdown(args),
        TraceCommand::Follow(args) => follow::follow(args),
        TraceCommand::List(args) => list::list(args),
        TraceCommand::Stats(args) => stats::stats(args),
        TraceCommand::Throughput(args) => throughput::throughput(args),
        TraceCommand::Servers(args) => servers::servers(args),
        TraceCommand::Pattern(args) => pattern::pattern(args),
        TraceCommand::Energy(args) => energy::energy(args),
        TraceCommand::Files(args) => files::files(args),
        TraceCommand::Lines(args) => lines::lines(args),
        TraceCommand::Phases(args) => phases::phases(args),
        TraceCommand::Diff(args) => diff::diff(args),
        TraceCommand::Sql(args) => sql::sql(args),
        TraceCommand::Export(args) => export::export(args),
        TraceCommand::Anonymise(args) => anonymise::anonymise(args),
        TraceCommand::Merge(args) => merge::merge(args),
        TraceCommand::Predict(args) => predict::predict(args),
        TraceCommand::Detect(args) => detect::detect(args),
        TraceCommand::Generate(args) => generate::generate(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn told(error: &Error) -> CliError {
    let error_text = CliError::new(error);
    match error {
        Error::Truncated { .. } | Error::Damaged { .. } => error_text.next(
            "`penstock trace show` shows the readable part, `penstock trace merge --partial` takes it",
        ),
        _ => error_text,
    }
}

/// The columns of a trace as CSV.
const COLUMNS: &str = "at_ns,request,kind,op,file,offset,bytes,program,rank,mpi_call,client_call";

/// Stripe unit of a trace that does not say its own.
const UNIT: u64 = 64 << 10;

/// A trace as `show --csv` prints it: of server 0 of 1.
fn from_csv(path: &Path) -> Result<(Header, Vec<Event>)> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::io("read", path, e))?;
    let mut lines = text.lines();
    let wrong = |why: String| {
        CliError::new(format!("{} is no trace as CSV: {why}", path.display()))
            .next(format!("its first line has to be {COLUMNS}"))
    };
    if lines.next() != Some(COLUMNS) {
        return Err(wrong("its first line names other columns".into()));
    }
    let events = lines
        .enumerate()
        .map(|(i, line)| event_of(line).ok_or_else(|| wrong(format!("line {} is {line:?}", i + 2))))
        .collect::<Result<_>>()?;
    let header = Header {
        server: 0,
        servers: 1,
        unit: UNIT,
        began: 0,
        repetitions: 1,
    };
    Ok((header, events))
}

fn event_of(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(',').collect();
    let [
        at,
        request,
        kind,
        op,
        file,
        offset,
        bytes,
        program,
        rank,
        mpi,
        client,
    ] = words[..]
    else {
        return None;
    };
    let kinds = [Kind::Arrival, Kind::Dispatch, Kind::Completion];
    Some(Event {
        at: at.parse().ok()?,
        request: request.parse().ok()?,
        kind: kinds.into_iter().find(|k| k.name() == kind)?,
        op: [Op::Read, Op::Write].into_iter().find(|o| o.name() == op)?,
        file: file.parse().ok()?,
        offset: offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
        program: program.parse().ok()?,
        rank: rank.parse().ok()?,
        mpi_call: mpi.parse().ok()?,
        client_call: client.parse().ok()?,
    })
}

/// The whole trace, or an error.
fn whole(path: &Path) -> Result<(Header, Vec<Event>)> {
    if path.extension().is_some_and(|e| e == "csv") {
        return from_csv(path);
    }
    match penstock_trace::read_all(path) {
        Ok((header, events, None)) => Ok((header, events)),
        Ok((_, _, Some(error))) | Err(error) => Err(told(&error)),
    }
}

/// The figures of a window, as columns.
fn figures(look: &Look) -> String {
    let features: Vec<String> = look.features.iter().map(ToString::to_string).collect();
    features.join(",")
}
