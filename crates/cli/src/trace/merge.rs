//! `penstock trace merge`: repetitions as one trace.
use super::told;
use crate::error::{CliError, Result};
use crate::{out, size};
use clap::Args;
use penstock_sched::learn;
use penstock_trace::{Header, Writer};
use serde_json::json;
use std::path::PathBuf;

/// Merge traces of repetitions of one program into what it can be expected to do.
///
/// Requests with the same file, operation, offset and bytes that arrive within 10% of the same time are one; its
/// arrival is their average. All traces must come from the same data server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace merge run*/data-0.trace -o expected.trace
  penstock trace merge --min-seen 3 run*/data-0.trace -o expected.trace    leave out what 2 runs or fewer did")]
pub struct MergeArgs {
    /// Traces of repetitions.
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Where to write the merged trace.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Leave out requests that fewer traces have.
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_seen: u32,
    /// Use what is readable of damaged and unfinished traces.
    #[arg(long)]
    partial: bool,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub fn merge(args: &MergeArgs) -> Result<()> {
    let mut traces = Vec::new();
    let mut first: Option<Header> = None;
    let mut repetitions = 0u32;
    for path in &args.traces {
        let (header, events) = match penstock_trace::read_all(path) {
            Ok((header, events, Some(e))) if args.partial => {
                out::note(e);
                (header, events)
            }
            Ok((header, events, None)) => (header, events),
            Ok((_, _, Some(e))) | Err(e) => return Err(told(&e)),
        };
        let f = *first.get_or_insert(header);
        if (f.server, f.servers, f.unit) != (header.server, header.servers, header.unit) {
            return Err(CliError::new(format!(
                "{} is of data server {} of {} with stripe unit {}, {} of server {} of {} with {}",
                args.traces[0].display(),
                f.server,
                f.servers,
                f.unit,
                path.display(),
                header.server,
                header.servers,
                header.unit
            ))
            .next("merge the traces of each data server by themselves"));
        }
        repetitions = repetitions.saturating_add(header.repetitions);
        traces.push(events);
    }
    let Some(header) = first else {
        return Err(CliError::new("no trace to merge"));
    };
    let count = traces.len();
    let merged = learn::merge(traces, args.min_seen);
    let header = Header {
        repetitions,
        ..header
    };
    let mut writer = Writer::create(&args.output, &header).map_err(|e| told(&e))?;
    for event in &merged.events {
        writer.push(*event).map_err(|e| told(&e))?;
    }
    writer.finish(0).map_err(|e| told(&e))?;
    let requests = merged.events.len() as u64;
    if args.json {
        out::print_json(&json!({
            "output": args.output, "traces": count, "requests_read": merged.requests, "requests": requests,
            "in_all": merged.common, "in_one": merged.single,
        }));
    } else {
        out::print(&format!(
            "{}: {} requests from {} of {count} traces; {} are in all of them, {} in one only\n",
            args.output.display(),
            size::count(requests),
            size::count(merged.requests),
            size::count(merged.common),
            size::count(merged.single),
        ));
    }
    Ok(())
}
