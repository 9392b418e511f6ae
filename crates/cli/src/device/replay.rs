//! `penstock device replay`: a block trace on a modelled device.
use super::{SHARES, shares, time};
use crate::error::{CliError, Result};
use crate::out;
use crate::size::{bytes, count};
use clap::Args;
use penstock_device::nand::figure::quantile;
use penstock_device::nand::{Nand, Spent};
use penstock_device::{DeviceKind, Model, replay};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Replay a block trace on a modelled device, each request at its time.
///
/// A line of the trace is `arrival device first-sector sectors type`, as MQSim has it. That is nanoseconds, a number
/// that is ignored, 512-byte sectors, and 0 for a write or 1 for a read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock device replay nand tpcc.trace
  penstock device replay nand,collect=both,state=steady tpcc.trace --json")]
pub struct ReplayArgs {
    /// NAME[,OPTION=VALUE]...; `penstock device models` lists them.
    model: String,
    /// The trace.
    trace: PathBuf,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub fn replay(args: &ReplayArgs) -> Result<()> {
    let model = Model::parse(&args.model).map_err(CliError::new)?;
    let file = File::open(&args.trace).map_err(|e| CliError::io("open", &args.trace, e))?;
    let requests = replay::parse(BufReader::new(file))
        .map_err(|e| CliError::new(format!("{}: {e}", args.trace.display())))?;
    let (run, counters) = match &model.kind {
        DeviceKind::Nand(options) => {
            let mut nand = Nand::new((**options).clone()).map_err(CliError::new)?;
            let run = replay::replay(&mut nand, &requests);
            (run, Some(nand.counters()))
        }
        _ => (replay::replay(&mut *model.build(), &requests), None),
    };
    let mut times = run.latencies;
    times.sort_unstable();
    let m = run.measured;
    if m.requests < requests.len() as u64 {
        return Err(CliError::new("the model did not answer all requests"));
    }
    let mean = times.iter().sum::<u64>() as f64 / times.len().max(1) as f64;
    let parts = |spent: &Spent| {
        let parts = spent.parts().into_iter();
        parts
            .map(|(n, t)| (n.to_string(), json!(t)))
            .collect::<serde_json::Map<_, _>>()
    };
    if args.json {
        out::print_json(&json!({
            "model": args.model, "requests": m.requests, "bytes": m.bytes, "elapsed_ns": m.elapsed, "mean_ns": mean,
            "p50_ns": quantile(&times, 0.5), "p99_ns": quantile(&times, 0.99), "max_ns": times.last(),
            "page_time_ns": counters.map(|c| parts(&c.spent)),
            "write_amplification": counters.map(|c| c.write_amplification()),
        }));
        return Ok(());
    }
    out::line(format_args!(
        "{} requests, {} in {}: mean {}, p50 {}, p99 {}, longest {}",
        count(m.requests),
        bytes(m.bytes),
        time(m.elapsed as f64),
        time(mean),
        time(quantile(&times, 0.5) as f64),
        time(quantile(&times, 0.99) as f64),
        time(times.last().copied().unwrap_or(0) as f64),
    ));
    if let Some(counters) = counters {
        out::line("where the time of pages went:");
        out::print(&out::table(
            &SHARES,
            &[0, 1, 2, 3, 4],
            vec![shares(&counters.spent)],
        ));
        out::line(format_args!(
            "{} pages read, {} programmed, {} copied, {} blocks erased; write amplification {:.2}",
            count(counters.reads),
            count(counters.writes),
            count(counters.copies),
            count(counters.erases),
            counters.write_amplification()
        ));
    }
    Ok(())
}
