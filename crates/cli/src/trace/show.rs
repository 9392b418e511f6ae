//! `penstock trace show`: what the trace of a data server holds.
use super::{COLUMNS, told};
use crate::error::Result;
use crate::{out, size};
use clap::Args;
use penstock_trace::{Event, Kind, Op, Reader};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what a trace holds: a summary, or every event.
///
/// A damaged or unfinished trace is shown up to the damage; the exit code is then 1.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The trace.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Every event, as CSV with a header line (for pandas, DuckDB, spreadsheets).
    #[arg(long)]
    csv: bool,
    /// For programs: the summary as one object.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
}

pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    let mut reader = Reader::open(&args.trace).map_err(|e| told(&e))?;
    let mut totals = Totals::default();
    let mut events = Vec::new();
    if args.csv {
        out::print(&format!("{COLUMNS}\n"));
    }
    let error = loop {
        events.clear();
        match reader.next_block(&mut events) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(e) if e.leaves_a_part() => break Some(e),
            Err(e) => return Err(told(&e)),
        }
        for e in &events {
            totals.add(e);
        }
        if args.csv && !print_csv(&events) {
            return Ok(ExitCode::SUCCESS);
        }
    };
    let (header, end) = (*reader.header(), reader.summary());
    if args.json {
        out::print_json(&json!({
            "trace": args.trace, "server": header.server, "servers": header.servers, "unit": header.unit,
            "began_ns": header.began, "repetitions": header.repetitions, "events": totals.events,
            "dropped": end.map(|e| e.dropped), "arrivals": totals.arrivals, "dispatches": totals.dispatches,
            "completions": totals.completions, "read_bytes": totals.bytes[0], "write_bytes": totals.bytes[1],
            "files": totals.files.len(), "programs": totals.programs.len(), "last_ns": totals.last,
            "whole": error.is_none(), "error": error.as_ref().map(ToString::to_string),
        }));
    } else if !args.csv {
        let row = |name: &str, value: String| vec![name.to_string(), value];
        let mut rows = vec![
            row(
                "data server",
                format!("{} of {}", header.server, header.servers),
            ),
            row("stripe unit", size::bytes(header.unit)),
            row("repetitions", header.repetitions.to_string()),
            row("time", size::duration(totals.last as f64 / 1e9)),
            row("arrivals", size::count(totals.arrivals)),
            row("dispatches", size::count(totals.dispatches)),
            row("completions", size::count(totals.completions)),
            row("read", size::bytes(totals.bytes[0])),
            row("written", size::bytes(totals.bytes[1])),
            row("files", size::count(totals.files.len() as u64)),
            row("programs", size::count(totals.programs.len() as u64)),
        ];
        if let Some(end) = end {
            rows.push(row("dropped events", size::count(end.dropped)));
            rows.push(row("size", size::bytes(end.bytes)));
        }
        out::print(&out::table(
            &["trace", &args.trace.display().to_string()],
            &[],
            rows,
        ));
    }
    match error {
        None => Ok(ExitCode::SUCCESS),
        Some(e) => {
            out::note(e);
            Ok(ExitCode::FAILURE)
        }
    }
}

#[derive(Default)]
struct Totals {
    events: u64,
    arrivals: u64,
    dispatches: u64,
    completions: u64,
    bytes: [u64; 2],
    files: std::collections::HashSet<u64>,
    programs: std::collections::HashSet<u64>,
    last: u64,
}

impl Totals {
    fn add(&mut self, e: &Event) {
        self.events += 1;
        self.last = self.last.max(e.at);
        match e.kind {
            Kind::Arrival => {
                self.arrivals += 1;
                let sum = &mut self.bytes[usize::from(e.op == Op::Write)];
                *sum = sum.saturating_add(e.bytes);
                self.files.insert(e.file);
                self.programs.insert(e.program);
            }
            Kind::Dispatch => self.dispatches += 1,
            Kind::Completion => self.completions += 1,
        }
    }
}

/// False: nobody reads any more.
fn print_csv(events: &[Event]) -> bool {
    let mut text = String::with_capacity(events.len() * 80);
    for e in events {
        text.push_str(&format!(
            "{},{},{},{},{},{},{},{},{},{},{}\n",
            e.at,
            e.request,
            e.kind.name(),
            e.op.name(),
            e.file,
            e.offset,
            e.bytes,
            e.program,
            e.rank,
            e.mpi_call,
            e.client_call
        ));
    }
    std::io::stdout().lock().write_all(text.as_bytes()).is_ok()
}
