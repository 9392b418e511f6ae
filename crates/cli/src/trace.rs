//! `penstock trace`: look at traces, merge repetitions, predict aggregations, detect access patterns, generate runs.
use crate::error::{CliError, Result};
use crate::out;
use crate::settings;
use crate::size::{self, Size};
use clap::{Args, Subcommand};
use penstock_sched::learn::{
    self, AccessPattern, Cost, FEATURES, FileVerdict, Limits, Look, Predictor, Scenario, Tree,
};
use penstock_trace::{Error, Event, Header, Kind, Op, Reader, Writer};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look at request traces of data servers, and learn from them.
///
/// `penstock up DIR --trace TRACES` and `penstock run --trace TRACES` make each data server write what it serves to a
/// file of its own in TRACES; `penstock trace generate` makes traces of known programs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace show run1/data-0.trace              what it holds, in a few lines
  penstock trace show --csv run1/data-0.trace > t.csv
  penstock trace merge run1/data-0.trace run2/data-0.trace -o expected.trace
  penstock trace predict expected.trace              which aggregations will come
  penstock trace detect run1/data-0.trace            the access pattern of each file
  penstock trace generate --pattern strided_small -o generated
  penstock trace convert old/data-0.trace new/data-0.trace")]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Show(ShowArgs),
    Merge(MergeArgs),
    Predict(PredictArgs),
    Detect(DetectArgs),
    Generate(GenerateArgs),
    Convert(ConvertArgs),
}

/// Show what a trace holds: a summary, or every event.
///
/// A damaged or unfinished trace is shown up to the damage; the exit code is then 1.
#[derive(Debug, Args)]
struct ShowArgs {
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

/// Write a trace of format 1 or 2 anew in today's format.
///
/// What is readable of a damaged or unfinished trace is converted; the exit code is then 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace convert old/data-0.trace new/data-0.trace")]
struct ConvertArgs {
    /// The old trace. It stays.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Where to write the new one; nothing may be there.
    #[arg(value_name = "NEW")]
    new: PathBuf,
}

/// Merge traces of repetitions of one program into what it can be expected to do.
///
/// Requests with the same file, operation, offset and bytes that arrive within 10% of the same time are one; its
/// arrival is their average. All traces must come from the same data server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace merge run*/data-0.trace -o expected.trace
  penstock trace merge --min-seen 3 run*/data-0.trace -o expected.trace    leave out what 2 runs or fewer did")]
struct MergeArgs {
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

/// Predict which requests can be aggregated when the traced program runs again.
///
/// Two contiguous requests aggregate if serving them together saves more time than the second one comes later. The part
/// of that wait that other requests fill does not count. Device times come from a profile, or are those of a disk.
#[derive(Debug, Args)]
struct PredictArgs {
    /// A trace, best a merged one.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Device times: what `penstock profile --json` printed [default: 4 ms and 120 MB/s].
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// Detect the access pattern of each file: contiguous, strided or random, in small or large requests; or unlike anything known.
#[derive(Debug, Args)]
struct DetectArgs {
    /// Traces; each is looked at alone. A FILE.csv has what `penstock trace show --csv` prints, also of other servers.
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Another decision tree than the delivered one (python/learn/patterns.py makes them).
    #[arg(long, value_name = "FILE")]
    tree: Option<PathBuf>,
    /// Stripe unit, if not the one in the trace.
    #[arg(long, value_name = "SIZE")]
    unit: Option<Size>,
    /// Write the figures of every window, and the pattern that each alone seems to have, to a CSV file, to learn a tree from.
    #[arg(long, value_name = "FILE")]
    windows: Option<PathBuf>,
    /// For programs: one object per file and operation.
    #[arg(long)]
    json: bool,
}

/// Generate what four data servers see of programs with a known access pattern.
///
/// Either traces of one run (-o), or training data for the detection from all 144 cases of the cross-product (--training).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace generate --pattern strided_large --processes 32 -o run1
  penstock trace generate --training windows.csv --runs 20 --seed 1")]
struct GenerateArgs {
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
    /// Everything random follows from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn patterns() -> clap::builder::PossibleValuesParser {
    AccessPattern::ALL.map(AccessPattern::name).to_vec().into()
}

/// Runs `penstock trace`.
pub fn trace(args: &TraceArgs) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match &args.command {
        TraceCommand::Show(args) => show(args),
        TraceCommand::Merge(args) => merge(args).map(done),
        TraceCommand::Predict(args) => predict(args).map(done),
        TraceCommand::Detect(args) => detect(args).map(done),
        TraceCommand::Generate(args) => generate(args).map(done),
        TraceCommand::Convert(args) => convert(args),
    }
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

/// The columns of a trace in CSV.
const COLUMNS: &str = "at_ns,request,kind,op,file,offset,bytes,program,rank,mpi_call,client_call";

/// Stripe unit of a trace that does not record one.
const UNIT: u64 = 64 << 10;

/// Reads a trace as `show --csv` prints it, as that of server 0 of 1.
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

fn show(args: &ShowArgs) -> Result<ExitCode> {
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

/// False if the reader has exited.
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

fn convert(args: &ConvertArgs) -> Result<ExitCode> {
    let (written, damage) = penstock_trace::convert(&args.old, &args.new).map_err(|e| told(&e))?;
    out::print(&format!(
        "{}: {} records, {}\n",
        args.new.display(),
        size::count(written.events),
        size::bytes(written.bytes)
    ));
    Ok(match damage {
        None => ExitCode::SUCCESS,
        Some(e) => {
            out::note(e);
            ExitCode::FAILURE
        }
    })
}

fn merge(args: &MergeArgs) -> Result<()> {
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

fn predict(args: &PredictArgs) -> Result<()> {
    let (_, events) = whole(&args.trace)?;
    let cost = match &args.profile {
        Some(path) => cost_of(path)?,
        None => Cost::default(),
    };
    let predictor = Predictor::new(&events, cost, Limits::default()).map_err(CliError::new)?;
    let s = predictor.statistics();
    if args.json {
        out::print_json(&json!({
            "requests": s.predicted, "aggregations": s.aggregations, "mean_aggregation": s.mean_aggregation,
            "alpha": s.alpha,
        }));
    } else {
        out::print(&format!(
            "{} requests, {} predicted aggregations, {:.2} requests on average; {:.0}% of waiting time is of use\n",
            size::count(s.predicted),
            size::count(s.aggregations),
            s.mean_aggregation,
            s.alpha * 100.0
        ));
    }
    Ok(())
}

/// The device cost from a profile.
fn cost_of(path: &Path) -> Result<Cost> {
    let profile = settings::profile_in(path)?;
    let wrong = |why: String| settings::no_profile(path, &why);
    let times = settings::times_of(&profile).map_err(wrong)?;
    let curves = times.trim_start_matches("times=");
    curves
        .parse()
        .map_err(|e: penstock_sched::Error| wrong(e.to_string()))
}

fn detect(args: &DetectArgs) -> Result<()> {
    let tree = match &args.tree {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| CliError::io("read", path, e))?;
            Tree::from_json(&text).map_err(|e| CliError::new(format!("{}: {e}", path.display())))?
        }
        None => Tree::builtin().map_err(CliError::new)?,
    };
    let mut windows = match &args.windows {
        Some(path) => Some(Windows::create(path)?),
        None => None,
    };
    for path in &args.traces {
        let (header, events) = whole(path)?;
        let unit = args.unit.map_or(header.unit, |u| u.0);
        if let Some(windows) = &mut windows {
            for look in learn::looks(&events, unit) {
                windows.add(header.server, &look, tree.classify(&look.features).0)?;
            }
        }
        let (files, all) = learn::detect(&events, &tree, unit);
        let name = |p: Option<AccessPattern>| p.map(AccessPattern::name);
        if args.json {
            for f in &files {
                out::print_json(&json!({
                    "trace": path, "file": f.file, "op": f.op.name(), "requests": f.requests, "bytes": f.bytes,
                    "pattern": name(f.pattern), "share": f.share,
                }));
            }
            out::print_json(&json!({"trace": path, "majority": name(all)}));
            continue;
        }
        let row = |f: &FileVerdict| {
            vec![
                f.file.to_string(),
                f.op.name().into(),
                size::count(f.requests),
                size::bytes(f.bytes),
                name(f.pattern).unwrap_or("too few requests").into(),
                if f.pattern.is_some() {
                    format!("{:.0}%", f.share * 100.0)
                } else {
                    "-".into()
                },
            ]
        };
        let header = ["file", "op", "requests", "bytes", "pattern", "sure"];
        out::print(&out::table(
            &header,
            &[0, 2, 3, 5],
            files.iter().map(row).collect(),
        ));
        out::print(&format!(
            "{}: most requests are {}\n",
            path.display(),
            name(all).unwrap_or("too few to tell")
        ));
    }
    windows.map_or(Ok(()), Windows::finish)
}

/// A CSV file of windows.
struct Windows<'a> {
    path: &'a Path,
    file: std::io::BufWriter<std::fs::File>,
}

impl<'a> Windows<'a> {
    fn create(path: &'a Path) -> Result<Windows<'a>> {
        let file = std::fs::File::create(path).map_err(|e| CliError::io("write", path, e))?;
        let mut windows = Windows {
            path,
            file: std::io::BufWriter::new(file),
        };
        let head = format!("server,file,op,requests,detected,{}", FEATURES.join(","));
        windows.line(&head)?;
        Ok(windows)
    }

    fn add(&mut self, server: u32, look: &Look, detected: AccessPattern) -> Result<()> {
        let (file, op, requests) = (look.file, look.op.name(), look.requests);
        let (detected, figures) = (detected.name(), figures(look));
        self.line(&format!(
            "{server},{file},{op},{requests},{detected},{figures}"
        ))
    }

    fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.file, "{text}").map_err(|e| CliError::io("write", self.path, e))
    }

    fn finish(mut self) -> Result<()> {
        let flushed = self.file.flush();
        flushed.map_err(|e| CliError::io("write", self.path, e))
    }
}

/// Data servers of a generated run, as an embedded file system has.
const SERVERS: u64 = 4;

fn generate(args: &GenerateArgs) -> Result<()> {
    if let Some(path) = &args.training {
        return training(args, path);
    }
    let Some(dir) = &args.output else {
        return Err(CliError::new("neither -o nor --training is given"));
    };
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

/// The figures of a window, as columns.
fn figures(look: &Look) -> String {
    let features: Vec<String> = look.features.iter().map(ToString::to_string).collect();
    features.join(",")
}

/// Windows taken from one run, so that runs with many files do not dominate.
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
