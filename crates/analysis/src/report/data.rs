//! What the page shows, as it stands in it: JSON that web/src/data.ts describes from the other side.
//!
//! Times are nanoseconds since the first record; names stand once, in `names`, and are meant by their place there.
use super::bins::BINS;
use super::findings::{Finding, findings};
use super::methods::{MethodRow, Run};
use super::pictures::{self, CALLS, FileSeen, KINDS, Pictures};
use super::rows::ROWS;
use super::slow::{Slow, slow};
use crate::summary::Summary;
use crate::trace::{Part, Trace};
use crate::{Error, Key};
use penstock_trace::{Layer, Operation};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Most of the trace's notes.
const NOTES: usize = 60;
/// Characters of a name that are kept: its end.
const NAME: usize = 160;
/// Rows of the table of calls of programs.
const OPERATIONS: usize = 60;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    version: u32,
    /// There is a server that answers questions.
    asks: bool,
    about: About,
    /// What limits the page: drops, cuts, missing parts, lists that end.
    notes: Vec<String>,
    names: Vec<String>,
    layers: Vec<&'static str>,
    axis: Axis,
    timeline: Timeline,
    calls: Calls,
    time: Vec<TimeRow>,
    heat: Heat,
    files: Vec<File>,
    slow: Vec<Slow>,
    decisions: Vec<DecisionRow>,
    operations: Vec<OperationRow>,
    /// Which methods MPI-IO chose, and why; `null`: not known.
    methods: Option<Vec<MethodRow>>,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct About {
    penstock: &'static str,
    trace: String,
    command: String,
    job: String,
    user: String,
    hosts: String,
    /// Milliseconds since 1970.
    began: u64,
    span: u64,
    records: u64,
    dropped: u64,
    processes: usize,
    servers: usize,
    read: u64,
    written: u64,
    /// Of all processes' time, what they spent in calls that were recorded; 0 to 1.
    inside: f64,
    /// The layer whose accesses `read`, `written` and `files` are of.
    access: &'static str,
    /// What accesses are aligned to, bytes.
    unit: u64,
}

#[derive(Debug, Serialize)]
struct Axis {
    width: u64,
    bins: usize,
}

#[derive(Debug, Serialize)]
struct Timeline {
    kinds: [&'static str; 4],
    rows: Vec<TimelineRow>,
}

#[derive(Debug, Serialize)]
struct TimelineRow {
    name: String,
    processes: u64,
    /// By kind and bin: time of all processes in such calls, 255 for the whole bin.
    bins: Vec<Vec<u8>>,
}

/// Row, name of process, id, layer, name of operation, name of file, begin, duration, bytes, error, kind.
type CallRow = (
    usize,
    usize,
    u64,
    u8,
    usize,
    usize,
    u64,
    u64,
    u64,
    i32,
    usize,
);

#[derive(Debug, Serialize)]
struct Calls {
    made: u64,
    /// Longest first.
    list: Vec<CallRow>,
}

/// Exclusive nanoseconds of a row by layer.
#[derive(Debug, Serialize)]
struct TimeRow {
    name: String,
    layers: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Heat {
    rows: Vec<HeatRow>,
    /// Bytes of a bin that `bytes` has as 255.
    most_bytes: u64,
    /// Requests in the queue, on average over a bin, that `queue` has as 255.
    most_queue: f64,
}

#[derive(Debug, Serialize)]
struct HeatRow {
    name: String,
    servers: u64,
    from: &'static str,
    /// 255: busy all of the bin.
    busy: Vec<u8>,
    bytes: Vec<u8>,
    queue: Vec<u8>,
}

#[derive(Debug, Serialize)]
struct File {
    name: String,
    bytes: u64,
    accesses: u64,
    /// By begin: begin, duration, offset, bytes, 1 if written, name of process, id.
    points: Vec<(u64, u64, u64, u64, u8, usize, u64)>,
}

#[derive(Debug, Serialize)]
struct DecisionRow {
    server: String,
    reason: String,
    decisions: u64,
    bytes: u64,
    time: u64,
}

#[derive(Debug, Serialize)]
struct OperationRow {
    layer: &'static str,
    name: String,
    collective: bool,
    calls: u64,
    bytes: u64,
    errors: u64,
    /// Nanoseconds, with what is below it and without.
    time: u64,
    exclusive: u64,
    median: u64,
    most: u64,
}

/// Names that stand once.
#[derive(Debug)]
pub(super) struct Names {
    list: Vec<String>,
    places: HashMap<String, usize>,
    /// Processes of several programs are in the trace.
    pub several: bool,
}

impl Names {
    fn new(trace: &Trace) -> Names {
        Names {
            list: Vec::new(),
            places: HashMap::new(),
            several: trace.programs().len() > 1,
        }
    }

    /// Which process, or server: its part's name, with the program where there are several.
    pub fn part(&mut self, part: &Part) -> usize {
        if self.several && !part.is_server() {
            self.place(&format!("{} of program {:x}", part.name(), part.program))
        } else {
            self.place(&part.name())
        }
    }

    pub fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.list.len();
        self.list.push(short(name));
        self.places.insert(name.to_owned(), place);
        place
    }
}

/// The end of a long name.
pub(super) fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME {
        return name.to_owned();
    }
    let end = name.chars().skip(length - NAME + 1);
    std::iter::once('…').chain(end).collect()
}

/// 0 to 255 for 0 to `whole`; what is there at all is at least 1.
fn level(value: u64, whole: u64) -> u8 {
    match value {
        0 => 0,
        _ => (u128::from(value) * 255 / u128::from(whole.max(1))).clamp(1, 255) as u8,
    }
}

/// Joins what was read.
pub(super) fn data(
    trace: &Trace,
    summary: &Summary,
    pictures: Pictures,
    asks: bool,
) -> Result<Data, Error> {
    let mut names = Names::new(trace);
    let mut notes: Vec<String> = trace.notes.iter().map(str::to_owned).collect();
    notes.extend(summary.problems.iter().cloned());
    notes.extend(pictures.notes.iter().map(str::to_owned));
    let run = Run::beside(&trace.path);
    if let Some(Run { exit_code, .. }) = run
        && exit_code != 0
    {
        notes.insert(0, format!("the program ended with exit code {exit_code}"));
    }
    notes.dedup();
    let left_out = notes.len().saturating_sub(NOTES);
    notes.truncate(NOTES);
    if left_out > 0 {
        notes.push(format!(
            "{left_out} more notes: `penstock trace overview` prints all"
        ));
    }
    let notes = notes
        .iter()
        .map(|n| n.chars().take(600).collect())
        .collect();
    let findings = findings(trace, summary, &pictures);
    let calls = calls(trace, &pictures, &mut names);
    let slow = slow(trace, &pictures, &mut names)?;
    let files = files(trace, &pictures, &mut names);
    Ok(Data {
        version: 1,
        asks,
        about: about(trace, summary, &pictures),
        notes,
        layers: Layer::ALL.map(Layer::name).to_vec(),
        axis: Axis {
            width: pictures.axis.width,
            bins: BINS,
        },
        timeline: timeline(&pictures),
        calls,
        time: time(trace, summary, &pictures),
        heat: heat(&pictures),
        files,
        slow,
        decisions: decisions(summary),
        operations: operations(summary),
        methods: run.map(Run::methods),
        findings,
        names: names.list,
    })
}

fn about(trace: &Trace, summary: &Summary, pictures: &Pictures) -> About {
    let heads = || trace.parts.iter().map(|p| p.stream.head());
    // The first that says it: streams of programs come with all of them.
    let said = |what: fn(&penstock_trace::StreamHead) -> &str| {
        let clients = trace.parts.iter().filter(|p| !p.is_server());
        let mut all = clients.map(|p| p.stream.head()).chain(heads());
        all.find(|h| !what(h).is_empty())
            .map(|h| short(what(h)))
            .unwrap_or_default()
    };
    let mut hosts: Vec<&str> = heads()
        .map(|h| h.host.as_str())
        .filter(|h| !h.is_empty())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let (mut read, mut written) = (0u64, 0u64);
    for cell in &summary.cells {
        if cell.group.layer() == pictures.access {
            match cell.group.operation().kind() {
                crate::OperationKind::Read => read = read.saturating_add(cell.figures.bytes),
                crate::OperationKind::Write => written = written.saturating_add(cell.figures.bytes),
                _ => {}
            }
        }
    }
    let span = summary.span();
    let busy: f64 = summary.processes.iter().map(|p| p.busy as f64).sum();
    let whole = span as f64 * summary.processes.len() as f64;
    About {
        penstock: env!("CARGO_PKG_VERSION"),
        trace: short(&trace.path.to_string_lossy()),
        command: said(|h| &h.command),
        job: said(|h| &h.job),
        user: said(|h| &h.user),
        hosts: match hosts.len() {
            0..=4 => short(&hosts.join(", ")),
            n => short(&format!("{}, {} … ({n} hosts)", hosts[0], hosts[1])),
        },
        began: trace.began.saturating_add(pictures.axis.begin) / 1_000_000,
        span,
        records: summary.records,
        dropped: trace.dropped,
        processes: summary.processes.len(),
        servers: pictures.server_row.len(),
        read,
        written,
        inside: if whole > 0.0 {
            (busy / whole).min(1.0)
        } else {
            0.0
        },
        access: pictures.access.name(),
        unit: pictures.unit,
    }
}

fn timeline(pictures: &Pictures) -> Timeline {
    let axis = &pictures.axis;
    let rows = pictures.processes.iter().map(|row| TimelineRow {
        name: short(&row.name),
        processes: row.processes,
        bins: row
            .kinds
            .iter()
            .map(|bins| {
                let whole = axis.width.saturating_mul(row.processes);
                bins.sums(axis)
                    .into_iter()
                    .map(|ns| level(ns, whole))
                    .collect()
            })
            .collect(),
    });
    Timeline {
        kinds: KINDS,
        rows: rows.collect(),
    }
}

fn file_of(trace: &Trace, part: usize, number: u32) -> String {
    match (number, trace.parts[part].file(number)) {
        (0, _) => String::new(),
        (_, "") => format!("file {number} of {}", trace.parts[part].name()),
        (_, path) => path.to_owned(),
    }
}

/// Most names of files that calls have; further ones are `(another file)`.
const CALL_FILES: usize = 1_000;

fn calls(trace: &Trace, pictures: &Pictures, names: &mut Names) -> Calls {
    let mut files: HashMap<(usize, u32), usize> = HashMap::new();
    let mut processes: HashMap<usize, usize> = HashMap::new();
    let list = pictures.calls.iter().take(CALLS).map(|seen| {
        let r = &seen.record;
        let most = files.len() >= CALL_FILES;
        let file = *files.entry((seen.part, r.file)).or_insert_with(|| {
            if most && r.file != 0 {
                names.place("(another file)")
            } else {
                names.place(&file_of(trace, seen.part, r.file))
            }
        });
        // More processes than a page can name: the row says whose it is, nearly.
        let many = processes.len() >= CALL_FILES;
        let process = *processes.entry(seen.part).or_insert_with(|| {
            if many {
                names.place("(another process)")
            } else {
                names.part(&trace.parts[seen.part])
            }
        });
        let operation = names.place(&r.operation.name().to_string());
        (
            pictures.row_of.get(&seen.part).copied().unwrap_or(0),
            process,
            r.id,
            r.layer as u8,
            operation,
            file,
            r.begin.saturating_sub(pictures.axis.begin),
            r.duration,
            r.bytes,
            r.error,
            pictures::kind(r.operation),
        )
    });
    Calls {
        made: pictures.calls_made,
        list: list.collect(),
    }
}

/// Exclusive time: rows are those of the timeline, and one for what no process is known of.
fn time(trace: &Trace, summary: &Summary, pictures: &Pictures) -> Vec<TimeRow> {
    let mut row_of: HashMap<(u64, u32), usize> = HashMap::new();
    for part in trace.parts.iter().filter(|p| !p.is_server()) {
        if let Some(&row) = pictures.row_of.get(&part.index) {
            row_of.entry((part.program, part.rank)).or_insert(row);
        }
    }
    let nobody = pictures.processes.len().min(ROWS);
    let mut rows: Vec<TimeRow> = pictures
        .processes
        .iter()
        .map(|row| short(&row.name))
        .chain(["no recorded process".to_owned()])
        .map(|name| TimeRow {
            name,
            layers: vec![0; Layer::ALL.len()],
        })
        .collect();
    for cell in &summary.cells {
        let group = &cell.group;
        let row = row_of
            .get(&(group.program, group.rank))
            .copied()
            .unwrap_or(nobody);
        let sum = &mut rows[row].layers[group.layer() as usize];
        *sum = sum.saturating_add(cell.figures.exclusive);
    }
    if rows[nobody].layers.iter().all(|ns| *ns == 0) {
        rows.pop();
    }
    rows
}

fn heat(pictures: &Pictures) -> Heat {
    let axis = &pictures.axis;
    let rows = || pictures.servers.iter();
    let queues: Vec<Vec<u64>> = rows().map(|row| row.queue.sums(axis)).collect();
    let most_bytes = rows().flat_map(|r| &r.bytes).copied().max().unwrap_or(0);
    let most_queue = queues.iter().flatten().copied().max().unwrap_or(0);
    let rows = rows().zip(&queues).map(|(row, queue)| {
        let busy = row.busy.sums(axis);
        let levels = |values: &[u64], whole| values.iter().map(|v| level(*v, whole)).collect();
        HeatRow {
            name: row.name.clone(),
            servers: row.servers,
            from: row.from,
            busy: levels(&busy, axis.width.saturating_mul(row.servers)),
            bytes: levels(&row.bytes, most_bytes),
            queue: levels(queue, most_queue),
        }
    });
    Heat {
        rows: rows.collect(),
        most_bytes,
        most_queue: most_queue as f64 / axis.width as f64,
    }
}

fn files(trace: &Trace, pictures: &Pictures, names: &mut Names) -> Vec<File> {
    let mut processes: BTreeMap<usize, usize> = BTreeMap::new();
    let mut one = |file: &FileSeen| File {
        name: short(&file.path),
        bytes: file.bytes,
        accesses: file.accesses,
        points: file
            .points
            .iter()
            .map(|seen| {
                let r = &seen.record;
                let many = processes.len() >= CALL_FILES;
                let process = *processes.entry(seen.part).or_insert_with(|| {
                    if many {
                        names.place("(another process)")
                    } else {
                        names.part(&trace.parts[seen.part])
                    }
                });
                (
                    r.begin.saturating_sub(pictures.axis.begin),
                    r.duration,
                    r.offset,
                    r.bytes,
                    u8::from(r.operation.kind() == crate::OperationKind::Write),
                    process,
                    r.id,
                )
            })
            .collect(),
    };
    pictures.files.iter().map(&mut one).collect()
}

fn decisions(summary: &Summary) -> Vec<DecisionRow> {
    let mut rows: BTreeMap<(u32, u16), DecisionRow> = BTreeMap::new();
    for cell in summary
        .cells
        .iter()
        .filter(|c| c.group.layer() == Layer::Decision)
    {
        let group = &cell.group;
        let row = rows
            .entry((group.server, group.operation))
            .or_insert_with(|| DecisionRow {
                server: format!("server {}", group.server),
                reason: Operation(group.operation).name().to_string(),
                decisions: 0,
                bytes: 0,
                time: 0,
            });
        row.decisions += cell.figures.calls;
        row.bytes = row.bytes.saturating_add(cell.figures.bytes);
        row.time = row.time.saturating_add(cell.figures.inclusive);
    }
    rows.into_values().take(4 * ROWS).collect()
}

fn operations(summary: &Summary) -> Vec<OperationRow> {
    let key = Key::default();
    let by = summary.by(&key, |g| {
        (g.layer() <= Layer::Client).then_some((g.layer, g.operation))
    });
    let mut rows: Vec<OperationRow> = by
        .into_iter()
        .map(|((layer, operation), figures)| OperationRow {
            layer: Layer::from_number(layer).map_or("", Layer::name),
            name: Operation(operation).name().to_string(),
            collective: pictures::is_collective(Operation(operation)),
            calls: figures.calls,
            bytes: figures.bytes,
            errors: figures.errors,
            time: figures.inclusive,
            exclusive: figures.exclusive,
            median: figures.durations.quantile(0.5),
            most: figures.most,
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time));
    rows.truncate(OPERATIONS);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        let name = format!("{}/field.dat", "ä".repeat(1000));
        let kept = short(&name);
        assert_eq!(kept.chars().count(), NAME);
        assert!(kept.starts_with('…') && kept.ends_with("/field.dat"));
        assert_eq!(short("a"), "a");
    }

    #[test]
    fn levels_show_whatever_is_there() {
        assert_eq!(
            (level(0, 10), level(1, 1_000_000), level(10, 10)),
            (0, 1, 255)
        );
        assert_eq!(level(u64::MAX, 0), 255);
    }
}
