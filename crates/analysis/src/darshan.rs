//! A genuine Darshan log, version 3.41, for darshan-parser, PyDarshan and Drishti.
//!
//! Modules: POSIX, MPI-IO, STDIO with their counters, DXT_POSIX and DXT_MPIIO with single accesses, HEATMAP. Records are by rank and
//! file. Calls of the client library stand as POSIX where a process recorded no POSIX calls: they are its file system calls.
//! Layout: include/darshan-log-format.h and the header of each module of Darshan 3.5. Regions are zlib streams of stored blocks.
use crate::trace::{Part, Trace};
use crate::{Error, Notes};
use penstock_base::finalise;
use penstock_trace::{Layer, NO_RANK, OperationKind, Record};
use std::collections::{BTreeMap, HashMap};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// Single accesses that a log holds at most, each of the two modules.
const MOST_SEGMENTS: usize = 4 << 20;
/// Files of a process, and names, that a log holds at most.
const MOST_FILES: usize = 1 << 20;
/// Bins of a heat map.
const BINS: usize = 200;

// Numbers of modules, and the versions written.
const POSIX: usize = 1;
const MPIIO: usize = 2;
const STDIO: usize = 9;
const DXT_POSIX: usize = 10;
const DXT_MPIIO: usize = 11;
const HEATMAP: usize = 15;
const VERSIONS: [(usize, u32); 6] = [
    (POSIX, 4),
    (MPIIO, 3),
    (STDIO, 2),
    (DXT_POSIX, 1),
    (DXT_MPIIO, 2),
    (HEATMAP, 1),
];
/// Numbers by which readers know the heat maps.
const HEATMAPS: [(Api, u64, &str); 3] = [
    (Api::Posix, 16_592_106_915_301_738_621, "heatmap:POSIX"),
    (Api::MpiIo, 3_668_870_418_325_792_824, "heatmap:MPIIO"),
    (Api::Stdio, 3_989_511_027_826_779_520, "heatmap:STDIO"),
];

const HEADER: u64 = 1328;
const MODULES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Api {
    Posix,
    MpiIo,
    Stdio,
}

/// Counts of the four values that come most often.
#[derive(Default)]
struct Common(HashMap<i64, i64>);

impl Common {
    fn add(&mut self, value: i64) {
        if self.0.len() < 1024 || self.0.contains_key(&value) {
            *self.0.entry(value).or_default() += 1;
        }
    }

    /// Values and their counts; 0 where there are fewer.
    fn four(&self) -> ([i64; 4], [i64; 4]) {
        let mut all: Vec<(i64, i64)> = self.0.iter().map(|(v, n)| (*n, *v)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let (mut values, mut counts) = ([0; 4], [0; 4]);
        for (i, (count, value)) in all.into_iter().take(4).enumerate() {
            (values[i], counts[i]) = (value, count);
        }
        (values, counts)
    }
}

/// Reads, or writes, of a file by a process.
#[derive(Default)]
struct Side {
    calls: i64,
    collective: i64,
    split: i64,
    nonblocking: i64,
    bytes: i64,
    max_byte: i64,
    consecutive: i64,
    sequential: i64,
    sizes: [i64; 10],
    first: Option<u64>,
    last: u64,
    time: u64,
    longest: u64,
    longest_size: i64,
    end: Option<u64>,
}

#[derive(Default)]
struct File {
    reads: Side,
    writes: Side,
    opens: i64,
    collective_opens: i64,
    seeks: i64,
    stats: i64,
    syncs: i64,
    data_syncs: i64,
    maps: i64,
    views: i64,
    switches: i64,
    last_was: Option<OperationKind>,
    unaligned: i64,
    strides: Common,
    sizes: Common,
    open: Option<(u64, u64)>,
    close: Option<(u64, u64)>,
    meta: u64,
    segments: Vec<(bool, i64, i64, u64, u64)>,
}

/// Upper limits of the classes of sizes.
const CLASSES: [u64; 9] = [
    100,
    1 << 10,
    10 << 10,
    100 << 10,
    1 << 20,
    4 << 20,
    10 << 20,
    100 << 20,
    1 << 30,
];
const BLOCK: u64 = 4096;

impl File {
    fn add(&mut self, record: &Record, room: &mut usize) {
        let kind = record.operation.kind();
        let name = record.operation.known_name().unwrap_or_default();
        let (begin, end) = (record.begin, record.end());
        match kind {
            OperationKind::Read | OperationKind::Write => {
                if self.last_was.is_some_and(|last| last != kind) {
                    self.switches += 1;
                }
                self.last_was = Some(kind);
                let is_write = kind == OperationKind::Write;
                if *room > 0 {
                    *room -= 1;
                    self.segments.push((
                        is_write,
                        record.offset as i64,
                        record.bytes as i64,
                        begin,
                        end,
                    ));
                }
                self.unaligned += i64::from(!record.offset.is_multiple_of(BLOCK));
                self.sizes.add(record.bytes as i64);
                let side = if is_write {
                    &mut self.writes
                } else {
                    &mut self.reads
                };
                if let Some(last) = side.end {
                    side.consecutive += i64::from(record.offset == last);
                    side.sequential += i64::from(record.offset >= last);
                    let stride = record.offset.wrapping_sub(last) as i64;
                    if stride != 0 {
                        self.strides.add(stride);
                    }
                }
                let stop = record.offset.saturating_add(record.bytes);
                side.end = Some(stop);
                side.calls += 1;
                let (is_split, is_nonblocking) = (
                    name.ends_with("_begin") || name.ends_with("_end"),
                    name.contains("File_i"),
                );
                side.split += i64::from(is_split);
                side.nonblocking += i64::from(is_nonblocking);
                side.collective += i64::from(
                    !is_split
                        && !is_nonblocking
                        && (name.contains("_all") || name.contains("ordered")),
                );
                side.bytes = side.bytes.saturating_add(record.bytes as i64);
                side.max_byte = side.max_byte.max(stop.saturating_sub(1) as i64);
                side.sizes[CLASSES.partition_point(|limit| *limit < record.bytes)] += 1;
                side.first = Some(side.first.map_or(begin, |f| f.min(begin)));
                side.last = side.last.max(end);
                side.time += record.duration;
                if record.duration >= side.longest {
                    side.longest = record.duration;
                    side.longest_size = record.bytes as i64;
                }
            }
            OperationKind::Open => {
                self.opens += 1;
                self.collective_opens += i64::from(name == "MPI_File_open");
                widen(&mut self.open, begin, end);
                self.meta += record.duration;
            }
            OperationKind::Close => {
                widen(&mut self.close, begin, end);
                self.meta += record.duration;
            }
            OperationKind::Flush => {
                match name {
                    "fdatasync" => self.data_syncs += 1,
                    _ => self.syncs += 1,
                }
                // Darshan counts them as writing.
                self.writes.time += record.duration;
            }
            OperationKind::Other => {
                self.seeks += i64::from(name.contains("seek"));
                self.stats += i64::from(name.contains("stat"));
                self.maps += i64::from(name.starts_with("mmap"));
                self.views += i64::from(name == "MPI_File_set_view");
                self.meta += record.duration;
            }
        }
    }
}

fn widen(span: &mut Option<(u64, u64)>, begin: u64, end: u64) {
    let (first, last) = span.unwrap_or((begin, end));
    *span = Some((first.min(begin), last.max(end)));
}

/// Bins of a process.
#[derive(Default)]
struct Heat {
    read: Vec<i64>,
    written: Vec<i64>,
}

/// What one process did.
struct Process {
    rank: i64,
    host: String,
    files: BTreeMap<(Api, u64), File>,
    heat: BTreeMap<Api, Heat>,
    names: HashMap<u64, String>,
    cut: bool,
    files_cut: bool,
    wholes: u64,
}

fn api_of(layer: Layer, has_posix: bool) -> Option<Api> {
    match layer {
        Layer::MpiIo => Some(Api::MpiIo),
        Layer::Stdio => Some(Api::Stdio),
        Layer::Posix => Some(Api::Posix),
        Layer::Client if !has_posix => Some(Api::Posix),
        _ => None,
    }
}

/// The number of a file.
fn number_of(path: &str) -> u64 {
    path.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            finalise(hash ^ u64::from(byte))
        })
        .max(1)
}

/// Writes the log to a new file. Returns how many records of calls are in it, and what it lacks.
pub fn darshan(trace: &Trace, path: &Path) -> Result<(u64, Notes), Error> {
    let mut notes = Notes::default();
    let bounds = trace
        .parts
        .iter()
        .filter(|p| !p.is_server())
        .flat_map(|part| {
            let shifted = |at: u64| at.saturating_add_signed(part.shift);
            part.stream
                .blocks()
                .iter()
                .map(move |b| (shifted(b.begin), shifted(b.end)))
        });
    let (first, last) = bounds.fold((u64::MAX, 0), |(f, l), (b, e)| (f.min(b), l.max(e)));
    if last == 0 {
        return Err(Error::Question(format!(
            "{} holds no calls of a program: a Darshan log is about those",
            trace.path.display()
        )));
    }
    let clients = trace.parts.iter().filter(|p| !p.is_server()).count().max(1);
    let width = ((last - first) / BINS as u64 + 1).max(1);
    let answers = trace.each(
        |part| !part.is_server(),
        |part, blocks| {
            let mut process = Process::new(part);
            let has_posix = part.stream.blocks().iter().any(|b| b.has(Layer::Posix));
            let mut room = [MOST_SEGMENTS / clients; 3];
            blocks.records(|record, _| {
                if let Some(api) = api_of(record.layer, has_posix) {
                    process.take(part, record, api, first, width, &mut room);
                }
            });
            process.cut = room.iter().take(2).any(|left| *left == 0);
            Ok(process)
        },
    )?;
    let mut processes = answers.take(&mut notes);
    for (place, process) in processes.iter_mut().enumerate() {
        if process.rank == i64::from(NO_RANK) {
            process.rank = place as i64;
        }
    }
    let calls = processes.iter().map(|p| p.wholes).sum();
    write(trace, path, &processes, (first, last, width), &mut notes)?;
    Ok((calls, notes))
}

impl Process {
    fn new(part: &Part) -> Process {
        Process {
            rank: part.rank.into(),
            host: part.stream.head().host.clone(),
            files: BTreeMap::new(),
            heat: BTreeMap::new(),
            names: HashMap::new(),
            cut: false,
            files_cut: false,
            wholes: 0,
        }
    }

    fn take(
        &mut self,
        part: &Part,
        record: &Record,
        api: Api,
        first: u64,
        width: u64,
        room: &mut [usize; 3],
    ) {
        let file = part.file(record.file);
        let number = if file.is_empty() { 1 } else { number_of(file) };
        if !self.files.contains_key(&(api, number)) && self.files.len() >= MOST_FILES {
            self.files_cut = true;
            return;
        }
        self.names.entry(number).or_insert_with(|| {
            let name = if file.is_empty() { "<unknown>" } else { file };
            name.to_owned()
        });
        self.wholes += 1;
        self.files
            .entry((api, number))
            .or_default()
            .add(record, &mut room[api as usize]);
        let kind = record.operation.kind();
        if matches!(kind, OperationKind::Read | OperationKind::Write) {
            let heat = self.heat.entry(api).or_default();
            let bins = if kind == OperationKind::Read {
                &mut heat.read
            } else {
                &mut heat.written
            };
            bins.resize(BINS, 0);
            let bin = ((record.begin.saturating_sub(first) / width) as usize).min(BINS - 1);
            bins[bin] = bins[bin].saturating_add(record.bytes as i64);
        }
    }
}

fn write(
    trace: &Trace,
    path: &Path,
    processes: &[Process],
    (first, last, width): (u64, u64, u64),
    notes: &mut Notes,
) -> Result<(), Error> {
    let io = |source| Error::Io {
        doing: "write",
        path: path.to_owned(),
        source,
    };
    let mut out = crate::make(path)?;
    out.seek(SeekFrom::Start(HEADER)).map_err(io)?;
    let mut at = HEADER;
    let mut region = |bytes: &[u8]| -> std::io::Result<(u64, u64)> {
        let packed = zlib(bytes);
        out.write_all(&packed)?;
        let place = (at, packed.len() as u64);
        at += packed.len() as u64;
        Ok(place)
    };
    region(&job(trace, processes.len(), first, last)).map_err(io)?;
    let names = region(&names(processes)).map_err(io)?;
    let mut partial = 0u64;
    if processes.iter().any(|p| p.cut) {
        partial |= 1 << DXT_POSIX | 1 << DXT_MPIIO;
        notes.add(format!("single accesses beyond {MOST_SEGMENTS} are left out of DXT, which is flagged as partial"));
    }
    if processes.iter().any(|p| p.files_cut) || trace.dropped > 0 {
        partial |= 1 << POSIX | 1 << MPIIO | 1 << STDIO;
        notes.add("records are missing: the modules are flagged as partial".into());
    }
    let mut map = [(0u64, 0u64); MODULES];
    for (module, body) in [
        (POSIX, counters(processes, Api::Posix, first)),
        (MPIIO, counters(processes, Api::MpiIo, first)),
        (STDIO, counters(processes, Api::Stdio, first)),
        (DXT_POSIX, segments(processes, Api::Posix, first)),
        (DXT_MPIIO, segments(processes, Api::MpiIo, first)),
        (HEATMAP, heat(processes, width)),
    ] {
        // A module without records has no place in a log.
        if !body.is_empty() {
            map[module] = region(&body).map_err(io)?;
        } else {
            partial &= !(1 << module);
        }
    }
    let mut header = b"3.41\0\0\0\0".to_vec();
    header.extend(6_567_223u64.to_le_bytes());
    header.extend(0u64.to_le_bytes());
    header.extend(partial.to_le_bytes());
    for (offset, length) in std::iter::once(names).chain(map) {
        header.extend(offset.to_le_bytes());
        header.extend(length.to_le_bytes());
    }
    for (module, (_, length)) in map.iter().enumerate().take(MODULES) {
        let version = VERSIONS.iter().find(|v| v.0 == module && *length > 0);
        header.extend(version.map_or(0, |v| v.1).to_le_bytes());
    }
    out.seek(SeekFrom::Start(0)).map_err(io)?;
    out.write_all(&header).map_err(io)?;
    notes.add("HDF5, PnetCDF and servers have no part in the log: `penstock trace export --parquet` has them".into());
    Ok(())
}

/// The job's record, the command line, and one mount.
fn job(trace: &Trace, processes: usize, first: u64, last: u64) -> Vec<u8> {
    let head = trace
        .parts
        .iter()
        .find(|p| !p.is_server())
        .map(|p| p.stream.head());
    let (user, id, command) = head.map_or(("", "", ""), |h| {
        (h.user.as_str(), h.job.as_str(), h.command.as_str())
    });
    let (began, ended) = (
        trace.began.saturating_add(first),
        trace.began.saturating_add(last),
    );
    let mut out = Vec::new();
    for value in [
        user.parse::<i64>().unwrap_or(0),
        (began / 1_000_000_000) as i64,
        (began % 1_000_000_000) as i64,
        (ended / 1_000_000_000) as i64,
        (ended % 1_000_000_000) as i64,
        processes as i64,
        id.split('.').next().unwrap_or("").parse().unwrap_or(0),
    ] {
        out.extend(value.to_le_bytes());
    }
    let start = out.len();
    out.extend(b"lib_ver=3.5.0\n");
    out.resize(start + 1024, 0);
    let command: String = command
        .chars()
        .filter(|c| *c != '\n' && *c != '\0')
        .take(1500)
        .collect();
    out.extend(
        if command.is_empty() {
            "unknown"
        } else {
            &command
        }
        .as_bytes(),
    );
    out.extend(b"\nunknown\t/\0");
    out
}

/// A name for every record.
fn names(processes: &[Process]) -> Vec<u8> {
    let mut names: BTreeMap<u64, &str> = BTreeMap::new();
    for process in processes {
        names.extend(
            process
                .names
                .iter()
                .map(|(number, name)| (*number, name.as_str())),
        );
        names.extend(
            HEATMAPS
                .iter()
                .filter(|h| process.heat.contains_key(&h.0))
                .map(|h| (h.1, h.2)),
        );
    }
    let mut out = Vec::new();
    for (number, name) in names {
        out.extend(number.to_le_bytes());
        out.extend(name.bytes().filter(|b| *b != 0));
        out.push(0);
    }
    out
}

fn seconds(at: Option<u64>, first: u64) -> f64 {
    // 0 means that it never happened.
    at.map_or(0.0, |at| (at.saturating_sub(first) as f64 / 1e9).max(1e-9))
}

/// Records of a module, by rank and file.
fn counters(processes: &[Process], api: Api, first: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for process in processes {
        for ((_, number), file) in process.files.iter().filter(|((a, _), _)| *a == api) {
            out.extend(number.to_le_bytes());
            out.extend(process.rank.to_le_bytes());
            let (whole, real) = match api {
                Api::Posix => (posix(file), times(file, first)),
                Api::MpiIo => (mpiio(file), times(file, first)),
                Api::Stdio => (stdio(file), stdio_times(file, first)),
            };
            out.extend(whole.iter().flat_map(|n| n.to_le_bytes()));
            out.extend(real.iter().flat_map(|x| x.to_le_bytes()));
        }
    }
    out
}

/// The 69 counters of POSIX.
fn posix(f: &File) -> Vec<i64> {
    let (r, w) = (&f.reads, &f.writes);
    let mut all = vec![
        f.opens,
        0,
        0,
        r.calls,
        w.calls,
        f.seeks,
        f.stats,
        f.maps,
        f.syncs,
        f.data_syncs,
        0,
        0,
        0,
        0,
        r.bytes,
        w.bytes,
        r.max_byte,
        w.max_byte,
        r.consecutive,
        w.consecutive,
        r.sequential,
        w.sequential,
        f.switches,
        0,
        8,
        f.unaligned,
        BLOCK as i64,
        r.longest_size,
        w.longest_size,
    ];
    all.extend(r.sizes);
    all.extend(w.sizes);
    for (values, counts) in [f.strides.four(), f.sizes.four()] {
        all.extend(values);
        all.extend(counts);
    }
    all.extend([0; 4]);
    all
}

/// The 51 counters of MPI-IO.
fn mpiio(f: &File) -> Vec<i64> {
    let (r, w) = (&f.reads, &f.writes);
    let alone = |s: &Side| s.calls - s.collective - s.split - s.nonblocking;
    let mut all = vec![
        f.opens - f.collective_opens,
        f.collective_opens,
        alone(r),
        alone(w),
        r.collective,
        w.collective,
        r.split,
        w.split,
        r.nonblocking,
        w.nonblocking,
        f.syncs,
        0,
        f.views,
        0,
        r.bytes,
        w.bytes,
        f.switches,
        r.longest_size,
        w.longest_size,
    ];
    all.extend(r.sizes);
    all.extend(w.sizes);
    let (values, counts) = f.sizes.four();
    all.extend(values);
    all.extend(counts);
    all.extend([0; 4]);
    all
}

/// The 14 counters of STDIO.
fn stdio(f: &File) -> Vec<i64> {
    let (r, w) = (&f.reads, &f.writes);
    vec![
        f.opens, 0, r.calls, w.calls, f.seeks, f.syncs, w.bytes, r.bytes, r.max_byte, w.max_byte,
        0, 0, 0, 0,
    ]
}

/// The 17 times of POSIX and MPI-IO.
fn times(f: &File, first: u64) -> Vec<f64> {
    let s = |at| seconds(at, first);
    let last = |side: &Side| side.first.map(|_| side.last);
    let (r, w) = (&f.reads, &f.writes);
    let span = |ns: u64| ns as f64 / 1e9;
    let mut all = vec![
        s(f.open.map(|o| o.0)),
        s(r.first),
        s(w.first),
        s(f.close.map(|c| c.0)),
        s(f.open.map(|o| o.1)),
        s(last(r)),
        s(last(w)),
        s(f.close.map(|c| c.1)),
        span(r.time),
        span(w.time),
        span(f.meta),
        span(r.longest),
        span(w.longest),
    ];
    all.resize(17, 0.0);
    all
}

/// The 15 times of STDIO.
fn stdio_times(f: &File, first: u64) -> Vec<f64> {
    let s = |at| seconds(at, first);
    let last = |side: &Side| side.first.map(|_| side.last);
    let (r, w) = (&f.reads, &f.writes);
    let span = |ns: u64| ns as f64 / 1e9;
    let mut all = vec![
        span(f.meta),
        span(w.time),
        span(r.time),
        s(f.open.map(|o| o.0)),
        s(f.close.map(|c| c.0)),
        s(w.first),
        s(r.first),
        s(f.open.map(|o| o.1)),
        s(f.close.map(|c| c.1)),
        s(last(w)),
        s(last(r)),
    ];
    all.resize(15, 0.0);
    all
}

/// Records of DXT: writes, then reads.
fn segments(processes: &[Process], api: Api, first: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for process in processes {
        for ((_, number), file) in process
            .files
            .iter()
            .filter(|((a, _), f)| *a == api && !f.segments.is_empty())
        {
            out.extend(number.to_le_bytes());
            out.extend(process.rank.to_le_bytes());
            out.extend(0u64.to_le_bytes());
            let mut host = [0u8; 64];
            let length = process.host.len().min(63);
            host[..length].copy_from_slice(&process.host.as_bytes()[..length]);
            out.extend(host);
            let writes = file.segments.iter().filter(|s| s.0);
            let reads = file.segments.iter().filter(|s| !s.0);
            out.extend((writes.clone().count() as u64).to_le_bytes());
            out.extend((reads.clone().count() as u64).to_le_bytes());
            for (_, offset, bytes, begin, end) in writes.chain(reads) {
                out.extend(offset.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                out.extend(seconds(Some(*begin), first).to_le_bytes());
                out.extend(seconds(Some(*end), first).to_le_bytes());
            }
        }
    }
    out
}

fn heat(processes: &[Process], width: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (api, number, _) in HEATMAPS {
        for process in processes {
            // All of an interface's maps have as many bins; a process without accesses has empty ones.
            if !processes.iter().any(|p| p.heat.contains_key(&api)) {
                continue;
            }
            let nothing = Heat::default();
            let heat = process.heat.get(&api).unwrap_or(&nothing);
            out.extend(number.to_le_bytes());
            out.extend(process.rank.to_le_bytes());
            out.extend((width as f64 / 1e9).to_le_bytes());
            out.extend((BINS as u64).to_le_bytes());
            // The pointers of Darshan's structure stand in the log.
            out.extend([0; 16]);
            for bins in [&heat.written, &heat.read] {
                let mut bins = bins.clone();
                bins.resize(BINS, 0);
                out.extend(bins.iter().flat_map(|n| n.to_le_bytes()));
            }
        }
    }
    out
}

/// A zlib stream of stored blocks.
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(0xffff).peekable();
    if bytes.is_empty() {
        out.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for chunk in bytes.chunks(5552) {
        for byte in chunk {
            a += u32::from(*byte);
            b += a;
        }
        a %= 65521;
        b %= 65521;
    }
    out.extend((b << 16 | a).to_be_bytes());
    out
}
