//! One pass over all records for the pictures: time in bins, the longest calls, a sample of accesses, who waits for whom.
//!
//! Memory has a limit whatever the trace: bins for at most [`ROWS`] rows, [`CALLS`] calls, [`POINTS`] accesses of each of
//! [`FILES`] files. Which accesses are in the sample follows from their numbers alone, so a page is the same each time.
use super::bins::{Axis, BINS, Bins};
use super::rows::{self, ProcessRow, ServerRow};
use crate::busy::Busy;
use crate::summary::Summary;
use crate::trace::{Part, Trace};
use crate::{Error, Notes};
use penstock_trace::{Layer, Operation, OperationKind, Parent, Record};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::{Mutex, PoisonError};

/// The longest calls of programs.
pub(super) const CALLS: usize = 20_000;
/// Files whose accesses are shown: those with the most bytes.
pub(super) const FILES: usize = 16;
/// Accesses of a file.
pub(super) const POINTS: usize = 2_000;
/// Collective calls of an operation on a file that are compared between ranks, and such pairs of operation and file.
const MEETINGS: usize = 4_096;
const MEETING_KEYS: usize = 256;
/// An access is small below this: one MiB, as Drishti has it (`THRESHOLD_SMALL_BYTES`).
pub(super) const SMALL: u64 = 1 << 20;
/// Bytes that an access is aligned to where the trace names no stripe unit: a page.
const PAGE: u64 = 4096;

/// What a call does, as the timeline colours it.
pub(super) const KINDS: [&str; 4] = ["read", "write", "flush", "other"];

/// Its place in [`KINDS`].
pub(super) fn kind(operation: Operation) -> usize {
    match operation.kind() {
        OperationKind::Read => 0,
        OperationKind::Write => 1,
        OperationKind::Flush => 2,
        OperationKind::Open | OperationKind::Close | OperationKind::Other => 3,
    }
}

pub(super) fn moves_bytes(operation: Operation) -> bool {
    matches!(operation.kind(), OperationKind::Read | OperationKind::Write)
}

/// All ranks of a file's communicator make this call together.
pub(super) fn is_collective(operation: Operation) -> bool {
    let name = operation.known_name().unwrap_or("");
    name.starts_with("MPI_File_")
        && ["_all", "_all_begin", "_ordered", "_ordered_begin"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// A call of a program, or an access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    /// What it is ordered by: duration of calls, a hash of accesses.
    pub rank: u64,
    /// Its part's place.
    pub part: usize,
    pub record: Record,
}

/// Accesses of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileSeen {
    pub path: String,
    pub bytes: u64,
    pub accesses: u64,
    pub small: u64,
    pub unaligned: u64,
    /// In the order of their begins.
    pub points: Vec<Seen>,
    sample: BinaryHeap<Seen>,
}

/// Ranks that make a collective call together.
#[derive(Debug, Clone, Copy, Default)]
struct Meeting {
    ranks: u64,
    begins: u128,
    durations: u64,
    last: (u64, u32),
}

/// What ranks wait for each other.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting {
    /// Collective calls that several ranks made.
    pub calls: u64,
    /// Nanoseconds that ranks were in them.
    pub inside: u64,
    /// Of these, until the last rank had come.
    pub waited: u64,
    /// Nanoseconds waited for, and times that it was last, by program and rank.
    pub for_rank: BTreeMap<(u64, u32), (u64, u64)>,
}

/// A server's queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queueing {
    pub server: u32,
    /// Nanoseconds in which something was in the queue or in the store.
    pub active: u64,
    /// Of these, with nothing in the store.
    pub idle: u64,
    pub queued: u64,
}

/// All that one pass gives.
#[derive(Debug)]
pub(super) struct Pictures {
    pub axis: Axis,
    pub processes: Vec<ProcessRow>,
    /// Row of each part of a client.
    pub row_of: HashMap<usize, usize>,
    pub servers: Vec<ServerRow>,
    /// Row of each server.
    pub server_row: BTreeMap<u32, usize>,
    /// Calls of programs.
    pub calls_made: u64,
    /// The longest, longest first.
    pub calls: Vec<Seen>,
    /// The layer whose accesses `files` has.
    pub access: Layer,
    pub files: Vec<FileSeen>,
    /// Accesses to any file: all, small ones, those not aligned; nanoseconds of small ones and of all.
    pub accesses: u64,
    pub small: u64,
    pub unaligned: u64,
    pub small_time: u64,
    pub unaligned_time: u64,
    pub access_time: u64,
    /// What accesses are aligned to, bytes.
    pub unit: u64,
    pub waiting: Waiting,
    pub queues: Vec<Queueing>,
    /// What could not be read.
    pub notes: Notes,
    meetings: HashMap<(u64, String, u16), Vec<Meeting>>,
    longest: BinaryHeap<Reverse<Seen>>,
}

/// The layer whose accesses say what reached the files: the lowest that speaks of offsets in files.
fn access_layer(summary: &Summary) -> Layer {
    let has = |layer: Layer| {
        let mut cells = summary.cells.iter();
        cells.any(|c| {
            c.group.layer() == layer && moves_bytes(c.group.operation()) && c.figures.bytes > 0
        })
    };
    let order = [
        Layer::Client,
        Layer::Posix,
        Layer::MpiIo,
        Layer::Stdio,
        Layer::Hdf5,
        Layer::Pnetcdf,
        Layer::Netcdf,
    ];
    order.into_iter().find(|l| has(*l)).unwrap_or(Layer::Server)
}

/// The path of a file, or a name in its place, as the summary has it.
fn file_name(part: &Part, number: u32) -> String {
    match part.file(number) {
        "" => format!("file {number} of {}", part.name()),
        path => path.to_owned(),
    }
}

/// Files by bytes of the access layer, largest first.
fn largest_files(summary: &Summary, access: Layer) -> Vec<String> {
    let mut bytes: HashMap<u32, u64> = HashMap::new();
    for cell in &summary.cells {
        let group = &cell.group;
        if group.layer() == access && moves_bytes(group.operation()) && group.file != 0 {
            let sum = bytes.entry(group.file).or_default();
            *sum = sum.saturating_add(cell.figures.bytes);
        }
    }
    bytes.remove(&crate::summary::OTHER_FILES);
    let mut files: Vec<(u64, &str)> = bytes
        .into_iter()
        .map(|(file, bytes)| (bytes, summary.file(file)))
        .collect();
    files.sort_by_key(|(bytes, path)| (Reverse(*bytes), *path));
    files.truncate(FILES);
    files.into_iter().map(|(_, path)| path.to_owned()).collect()
}

/// What one part adds.
struct Share<'a> {
    part: &'a Part,
    axis: Axis,
    access: Layer,
    kinds: [Bins; 4],
    made: u64,
    longest: BinaryHeap<Reverse<Seen>>,
    most_calls: usize,
    /// Place among the files that are shown, by the part's number.
    shown: HashMap<u32, usize>,
    files: Vec<FileSeen>,
    unit: u64,
    accesses: [u64; 6],
    collective: HashMap<u16, bool>,
    meetings: HashMap<(u32, u16), Vec<(u64, u64)>>,
    rows: BTreeMap<usize, (Bins, Bins, Vec<u64>)>,
    work: Layer,
    stored: Busy,
    either: Busy,
    queued: u64,
}

impl<'a> Share<'a> {
    /// Servers name files by number where the trace has no names.
    fn take_unnamed(&mut self, files: &HashMap<&str, usize>) {
        let part = self.part;
        for (path, place) in files {
            let number = path.strip_prefix("file ").and_then(|rest| {
                let (number, name) = rest.split_once(" of ")?;
                (name == part.name()).then(|| number.parse().ok()).flatten()
            });
            if let Some(number) = number
                && part.file(number).is_empty()
            {
                self.shown.insert(number, *place);
            }
        }
    }

    fn record(&mut self, pictures: &Rows<'_>, record: &Record) {
        if self.part.is_server() {
            self.at_server(pictures, record);
        } else {
            self.at_client(pictures, record);
        }
        if record.layer == self.access && moves_bytes(record.operation) {
            self.accessed(record);
        }
    }

    fn at_client(&mut self, pictures: &Rows<'_>, record: &Record) {
        if record.parent == Parent::None {
            self.made += 1;
            self.kinds[kind(record.operation)].add(&self.axis, record.begin, record.end());
            let seen = Seen {
                rank: record.duration,
                part: self.part.index,
                record: *record,
            };
            keep_longest(&mut self.longest, seen, self.most_calls);
        }
        match record.layer {
            Layer::MpiIo => {
                let collective = self.collective.entry(record.operation.0);
                if *collective.or_insert_with(|| is_collective(record.operation)) {
                    let calls = self.meetings.len();
                    let key = (record.file, record.operation.0);
                    if calls < MEETING_KEYS || self.meetings.contains_key(&key) {
                        let list = self.meetings.entry(key).or_default();
                        if list.len() < MEETINGS {
                            list.push((record.begin, record.duration));
                        }
                    }
                }
            }
            Layer::Request => {
                if let Some(row) = pictures.row_without_part(record.server) {
                    let row = self.row(row);
                    row.0.add(&pictures.axis, record.begin, record.end());
                    let bin = &mut row.2[pictures.axis.bin(record.begin)];
                    *bin = bin.saturating_add(record.bytes);
                }
            }
            _ => {}
        }
    }

    fn row(&mut self, row: usize) -> &mut (Bins, Bins, Vec<u64>) {
        let new = || (Bins::default(), Bins::default(), vec![0; BINS]);
        self.rows.entry(row).or_insert_with(new)
    }

    fn at_server(&mut self, pictures: &Rows<'_>, record: &Record) {
        let (begin, end) = (record.begin, record.end());
        let Some(server) = self.part.server else {
            return;
        };
        let Some(&row) = pictures.server_row.get(&server) else {
            return;
        };
        if record.layer == self.work {
            let axis = self.axis;
            let row = self.row(row);
            row.0.add(&axis, begin, end);
            let bin = &mut row.2[axis.bin(begin)];
            *bin = bin.saturating_add(record.bytes);
        }
        match record.layer {
            Layer::Store => {
                self.stored.add(begin, end);
                self.either.add(begin, end);
            }
            Layer::Queue => {
                let axis = self.axis;
                self.row(row).1.add(&axis, begin, end);
                self.queued += 1;
                self.either.add(begin, end);
            }
            _ => {}
        }
    }

    fn accessed(&mut self, record: &Record) {
        let small = record.bytes < SMALL;
        let unaligned = !record.offset.is_multiple_of(self.unit);
        self.accesses[0] += 1;
        self.accesses[1] += u64::from(small);
        self.accesses[2] += u64::from(unaligned);
        for (place, counts) in [(3, small), (4, unaligned), (5, true)] {
            if counts {
                self.accesses[place] = self.accesses[place].saturating_add(record.duration);
            }
        }
        let Some(&place) = self.shown.get(&record.file) else {
            return;
        };
        let file = &mut self.files[place];
        file.accesses += 1;
        file.bytes = file.bytes.saturating_add(record.bytes);
        file.small += u64::from(small);
        file.unaligned += u64::from(unaligned);
        let seen = Seen {
            rank: penstock_base::finalise(record.id ^ (self.part.index as u64) << 40),
            part: self.part.index,
            record: *record,
        };
        keep_lowest(&mut file.sample, seen);
    }
}

fn keep_longest(heap: &mut BinaryHeap<Reverse<Seen>>, seen: Seen, most: usize) {
    if heap.len() < most {
        heap.push(Reverse(seen));
    } else if let Some(mut least) = heap.peek_mut()
        && least.0 < seen
    {
        *least = Reverse(seen);
    }
}

fn keep_lowest(heap: &mut BinaryHeap<Seen>, seen: Seen) {
    if heap.len() < POINTS {
        heap.push(seen);
    } else if let Some(mut most) = heap.peek_mut()
        && seen < *most
    {
        *most = seen;
    }
}

/// What parts look up while they are read.
struct Rows<'a> {
    axis: Axis,
    server_row: BTreeMap<u32, usize>,
    without_part: Vec<bool>,
    files: HashMap<&'a str, usize>,
}

impl Rows<'_> {
    fn row_without_part(&self, server: u32) -> Option<usize> {
        let row = *self.server_row.get(&server)?;
        self.without_part[row].then_some(row)
    }
}

/// Reads all records once.
pub(super) fn draw(trace: &Trace, summary: &Summary) -> Result<Pictures, Error> {
    let axis = Axis::of(trace);
    let access = access_layer(summary);
    let paths = largest_files(summary, access);
    let (processes, row_of) = rows::of_processes(trace);
    let (servers, server_row) = rows::of_servers(trace, summary);
    let rows = Rows {
        axis,
        without_part: servers.iter().map(|row| row.from == "requests").collect(),
        server_row: server_row.clone(),
        files: paths
            .iter()
            .enumerate()
            .map(|(i, p)| (p.as_str(), i))
            .collect(),
    };
    let units = trace.parts.iter().map(|p| p.stream.head().unit);
    let unit = units.max().filter(|u| *u > 0).unwrap_or(PAGE);
    let pictures = Mutex::new(Pictures {
        axis,
        processes,
        row_of,
        servers,
        server_row,
        calls_made: 0,
        calls: Vec::new(),
        access,
        files: paths
            .iter()
            .map(|path| FileSeen {
                path: path.clone(),
                ..FileSeen::default()
            })
            .collect(),
        accesses: 0,
        small: 0,
        unaligned: 0,
        small_time: 0,
        unaligned_time: 0,
        access_time: 0,
        unit,
        waiting: Waiting::default(),
        queues: Vec::new(),
        notes: Notes::default(),
        meetings: HashMap::new(),
        longest: BinaryHeap::new(),
    });
    let answers = trace.each(
        |_| true,
        |part, blocks| {
            let shown = part.stream.files().filter_map(|(number, _)| {
                let place = rows.files.get(file_name(part, number).as_str())?;
                Some((number, *place))
            });
            let has_device = summary
                .servers
                .iter()
                .any(|s| Some(s.server) == part.server && s.has_device);
            let mut share = Share {
                part,
                axis,
                access,
                kinds: Default::default(),
                made: 0,
                longest: BinaryHeap::new(),
                most_calls: CALLS,
                shown: shown.collect(),
                files: vec![FileSeen::default(); paths.len()],
                unit,
                accesses: [0; 6],
                collective: HashMap::new(),
                meetings: HashMap::new(),
                rows: BTreeMap::new(),
                work: if has_device {
                    Layer::Device
                } else {
                    Layer::Store
                },
                stored: Busy::default(),
                either: Busy::default(),
                queued: 0,
            };
            share.take_unnamed(&rows.files);
            blocks.records(|record, _| share.record(&rows, record));
            let mut all = pictures.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(share);
            Ok(())
        },
    )?;
    let mut pictures = pictures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    answers.take(&mut pictures.notes);
    pictures.end();
    Ok(pictures)
}

impl Pictures {
    fn add(&mut self, share: Share<'_>) {
        let part = share.part;
        if let Some(&row) = self.row_of.get(&part.index) {
            for (mine, theirs) in self.processes[row].kinds.iter_mut().zip(&share.kinds) {
                mine.merge(theirs);
            }
        }
        for (row, (busy, queue, bytes)) in &share.rows {
            let mine = &mut self.servers[*row];
            mine.busy.merge(busy);
            mine.queue.merge(queue);
            for (mine, theirs) in mine.bytes.iter_mut().zip(bytes) {
                *mine = mine.saturating_add(*theirs);
            }
        }
        self.calls_made += share.made;
        for Reverse(seen) in share.longest {
            keep_longest(&mut self.longest, seen, CALLS);
        }
        for (mine, theirs) in self.files.iter_mut().zip(share.files) {
            mine.accesses += theirs.accesses;
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
            mine.small += theirs.small;
            mine.unaligned += theirs.unaligned;
            theirs
                .sample
                .into_iter()
                .for_each(|s| keep_lowest(&mut mine.sample, s));
        }
        let [all, small, unaligned, small_time, unaligned_time, time] = share.accesses;
        self.accesses += all;
        self.small += small;
        self.unaligned += unaligned;
        self.small_time = self.small_time.saturating_add(small_time);
        self.unaligned_time = self.unaligned_time.saturating_add(unaligned_time);
        self.access_time = self.access_time.saturating_add(time);
        for ((file, operation), calls) in share.meetings {
            let key = (part.program, file_name(part, file), operation);
            if self.meetings.len() >= MEETING_KEYS && !self.meetings.contains_key(&key) {
                continue;
            }
            let meetings = self.meetings.entry(key).or_default();
            if meetings.len() < calls.len() {
                meetings.resize(calls.len(), Meeting::default());
            }
            for (meeting, (begin, duration)) in meetings.iter_mut().zip(calls) {
                meeting.ranks += 1;
                meeting.begins += u128::from(begin);
                meeting.durations = meeting.durations.saturating_add(duration);
                meeting.last = meeting.last.max((begin, part.rank));
            }
        }
        if let Some(server) = part.server
            && share.queued > 0
        {
            let active = share.either.length();
            self.queues.push(Queueing {
                server,
                active,
                idle: active.saturating_sub(share.stored.length()),
                queued: share.queued,
            });
        }
    }

    fn end(&mut self) {
        let mut calls: Vec<Seen> = self.longest.drain().map(|r| r.0).collect();
        calls.sort_unstable_by(|a, b| b.cmp(a));
        self.calls = calls;
        for file in &mut self.files {
            file.points = file.sample.drain().collect();
            file.points
                .sort_unstable_by_key(|p| (p.record.begin, p.part, p.record.id));
        }
        self.queues.sort_by_key(|q| q.server);
        for ((program, ..), meetings) in self.meetings.drain() {
            for meeting in meetings.iter().filter(|m| m.ranks > 1) {
                let together = u128::from(meeting.last.0) * u128::from(meeting.ranks);
                let waited = together.saturating_sub(meeting.begins);
                // A call that ended before the last rank came did not wait for it.
                let waited = u64::try_from(waited)
                    .unwrap_or(u64::MAX)
                    .min(meeting.durations);
                let waiting = &mut self.waiting;
                waiting.calls += 1;
                waiting.inside = waiting.inside.saturating_add(meeting.durations);
                waiting.waited = waiting.waited.saturating_add(waited);
                let rank = waiting
                    .for_rank
                    .entry((program, meeting.last.1))
                    .or_default();
                rank.0 = rank.0.saturating_add(waited);
                rank.1 += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collective_calls_are_known_by_name() {
        let collective = |name| is_collective(Operation::from_name(name).unwrap());
        assert!(collective("MPI_File_write_at_all"));
        assert!(collective("MPI_File_read_ordered_begin"));
        assert!(!collective("MPI_File_write_at"));
        assert!(!collective("MPI_File_write_at_all_end"));
        assert!(!collective("write"));
    }
}
