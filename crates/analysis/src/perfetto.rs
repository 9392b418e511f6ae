//! A trace for the Perfetto viewer (ui.perfetto.dev): protobuf packets, with flows from each request to its server.
//!
//! Large traces are written in shards by time, each below 1 GB and readable by itself: the viewer holds no more. A record is
//! in the shard in which it begins. Messages and field numbers: perfetto's protos/perfetto/trace (TracePacket, TrackEvent,
//! TrackDescriptor, InternedData).
use crate::trace::{Part, Trace};
use crate::{Error, Notes};
use penstock_base::finalise;
use penstock_trace::{Layer, Link, NO_RANK, Parent, Record};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Records of a shard: about 110 bytes each.
const SHARD_RECORDS: u64 = 4_000_000;
/// No shard gets larger, bytes.
const SHARD_BYTES: u64 = 1_000_000_000;
/// Most tracks of one kind of a process: slices of a track lie inside each other.
const MOST_LANES: usize = 4096;

/// Protobuf, as far as it is needed.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

// Fields of messages.
const PACKET: u32 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED: u32 = 12;
const FLAGS: u32 = 13;
const TRACK: u32 = 60;
const CLEARED: u64 = 1;
const NEEDED: u64 = 2;

/// Names that events refer to by number, anew in each shard.
#[derive(Default)]
struct Interned {
    /// By field of InternedData and name.
    numbers: HashMap<(u32, String), u64>,
    counts: HashMap<u32, u64>,
    fresh: Vec<(u32, u64, String)>,
}

const CATEGORIES: u32 = 1;
const NAMES: u32 = 2;
const ANNOTATIONS: u32 = 3;
const STRINGS: u32 = 29;

impl Interned {
    fn number(&mut self, field: u32, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(&(field, name.to_owned())) {
            return *number;
        }
        let count = self.counts.entry(field).or_default();
        *count += 1;
        self.numbers.insert((field, name.to_owned()), *count);
        self.fresh.push((field, *count, name.to_owned()));
        *count
    }
}

/// What both ends of a flow agree on, within a shard.
fn flow(program: u64, rank: u32, call: u64, server: u32, shard: usize) -> u64 {
    let mut mixed = 0;
    for part in [program, rank.into(), call, server.into(), shard as u64] {
        mixed = finalise(mixed ^ part.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    mixed.max(1)
}

fn flow_of(part: &Part, record: &Record, shard: usize) -> Option<u64> {
    match (record.layer, record.parent) {
        (Layer::Request, Parent::Here(call)) if !part.is_server() => {
            Some(flow(part.program, part.rank, call, record.server, shard))
        }
        (Layer::Server, Parent::Caller(c)) => {
            Some(flow(c.program, c.rank, c.call, record.server, shard))
        }
        _ => None,
    }
}

/// Where shards begin: so that each has about as many records.
fn shards(trace: &Trace, most: u64) -> Vec<u64> {
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for part in &trace.parts {
        let infos = part.stream.blocks().iter();
        blocks.extend(infos.map(|b| {
            (
                b.begin.saturating_add_signed(part.shift),
                u64::from(b.records),
            )
        }));
    }
    blocks.sort_unstable();
    let (mut begins, mut sum) = (vec![0], 0);
    for (begin, records) in blocks {
        if sum + records > most && begins.last() != Some(&begin) {
            begins.push(begin);
            sum = 0;
        }
        sum += records;
    }
    begins
}

fn shard_of(begins: &[u64], at: u64) -> usize {
    begins
        .partition_point(|begin| *begin <= at)
        .saturating_sub(1)
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// The shards.
    pub files: Vec<PathBuf>,
    /// Records in them.
    pub records: u64,
    /// Flows with both ends.
    pub flows: u64,
    /// What could not be read or shown.
    pub notes: Notes,
}

/// Writes `perfetto-N.pftrace` to a directory that is there. `most`: records of a shard, for tests.
pub fn perfetto(trace: &Trace, dir: &Path, most: Option<u64>) -> Result<Written, Error> {
    let begins = shards(trace, most.unwrap_or(SHARD_RECORDS));
    let mut written = Written::default();
    // Flows whose ends are both there, in one shard.
    let ends = trace.each(
        |_| true,
        |part, blocks| {
            let mut flows = Vec::new();
            blocks.some_records(
                |info| info.has(Layer::Request) || info.has(Layer::Server),
                |record, _| flows.extend(flow_of(part, record, shard_of(&begins, record.begin))),
            );
            Ok((part.is_server(), flows))
        },
    )?;
    let (mut sent, mut served) = (Vec::new(), Vec::new());
    for (is_server, flows) in ends.take(&mut written.notes) {
        if is_server { &mut served } else { &mut sent }.extend(flows);
    }
    served.sort_unstable();
    sent.retain(|flow| served.binary_search(flow).is_ok());
    drop(served);
    sent.sort_unstable();
    sent.dedup();
    written.flows = sent.len() as u64;
    for shard in 0..begins.len() {
        let path = dir.join(format!("perfetto-{shard}.pftrace"));
        let (records, notes) = one(trace, &begins, shard, &sent, &path)?;
        written.records += records;
        notes.iter().for_each(|note| written.notes.add(note.into()));
        written.files.push(path);
    }
    Ok(written)
}

fn one(
    trace: &Trace,
    begins: &[u64],
    shard: usize,
    flows: &[u64],
    path: &Path,
) -> Result<(u64, Notes), Error> {
    let io = |source| Error::Io {
        doing: "write",
        path: path.to_owned(),
        source,
    };
    let mut notes = Notes::default();
    let (from, to) = (
        begins[shard],
        begins.get(shard + 1).copied().unwrap_or(u64::MAX),
    );
    let mut file = BufWriter::with_capacity(1 << 20, crate::make(path)?);
    let (mut records, mut bytes) = (0, 0u64);
    for part in &trace.parts {
        let local = |at: u64| at.saturating_add_signed(part.shift.wrapping_neg());
        let found = trace.each(
            |p| p.index == part.index,
            |_, blocks| {
                let mut found: Vec<Record> = Vec::new();
                blocks.some_records(
                    |info| info.end >= local(from) && info.begin < local(to).max(1),
                    |record, _: &[(u32, Link)]| {
                        if (from..to).contains(&record.begin) {
                            found.push(*record);
                        }
                    },
                );
                Ok(found)
            },
        )?;
        let mut found: Vec<Record> = found.take(&mut notes).into_iter().flatten().collect();
        found.sort_by_key(|r| (r.begin, std::cmp::Reverse(r.end()), r.id));
        records += found.len() as u64;
        let mut sequence = Sequence::new(part, &mut file);
        for record in &found {
            let flow =
                flow_of(part, record, shard).filter(|flow| flows.binary_search(flow).is_ok());
            sequence.slice(record, flow).map_err(io)?;
        }
        let (size, left_out) = sequence.end().map_err(io)?;
        bytes += size;
        if left_out > 0 {
            notes.add(format!(
                "{left_out} records of {} run beside more than {MOST_LANES} others: left out",
                part.name()
            ));
        }
    }
    file.flush().map_err(io)?;
    if bytes > SHARD_BYTES {
        notes.add(format!(
            "{} has {bytes} bytes: more than the viewer may take",
            path.display()
        ));
    }
    Ok((records, notes))
}

/// The packets of one part in one shard.
struct Sequence<'a> {
    part: &'a Part,
    file: &'a mut BufWriter<File>,
    interned: Interned,
    /// By kind of track: open slices of each lane, as their ends.
    lanes: BTreeMap<(u8, u32), Vec<Vec<u64>>>,
    tracks: HashMap<((u8, u32), usize), u64>,
    begun: bool,
    bytes: u64,
    left_out: u64,
}

impl<'a> Sequence<'a> {
    fn new(part: &'a Part, file: &'a mut BufWriter<File>) -> Sequence<'a> {
        Sequence {
            part,
            file,
            interned: Interned::default(),
            lanes: BTreeMap::new(),
            tracks: HashMap::new(),
            begun: false,
            bytes: 0,
            left_out: 0,
        }
    }

    fn packet(&mut self, flags: u64, fill: impl FnOnce(&mut Message)) -> std::io::Result<()> {
        let mut packet = Message::default();
        packet.number(SEQUENCE, self.part.index as u64 + 1);
        packet.number(FLAGS, flags);
        for (field, number, name) in std::mem::take(&mut self.interned.fresh) {
            packet.message(INTERNED, |interned| {
                interned.message(field, |entry| {
                    entry.number(1, number);
                    entry.bytes(2, name.as_bytes());
                });
            });
        }
        fill(&mut packet);
        let mut outer = Message::default();
        outer.bytes(PACKET, &packet.0);
        self.bytes += outer.0.len() as u64;
        self.file.write_all(&outer.0)
    }

    fn process(&self) -> u64 {
        (self.part.index as u64 + 1) << 32
    }

    /// Describes the process once.
    fn begin(&mut self) -> std::io::Result<()> {
        self.begun = true;
        let head = self.part.stream.head();
        let name = format!("{} on {}", self.part.name(), head.host);
        // Ranks before servers, in order.
        let order = match (self.part.server, self.part.rank) {
            (Some(server), _) => (1 << 31) + u64::from(server),
            (None, NO_RANK) => 1 << 30,
            (None, rank) => rank.into(),
        };
        let (uuid, pid) = (self.process(), self.part.index as u64 + 1);
        self.packet(CLEARED, |packet| {
            packet.message(TRACK, |track| {
                track.number(1, uuid);
                track.message(3, |process| {
                    process.number(1, pid);
                    process.bytes(6, name.as_bytes());
                });
                track.number(12, order);
            });
        })
    }

    /// Which kind of track a record is on: calls of a thread lie inside each other.
    fn kind(&self, record: &Record) -> ((u8, u32), String) {
        match record.layer {
            Layer::Request if !self.part.is_server() => (
                (1, record.server),
                format!("requests to server {}", record.server),
            ),
            _ if !self.part.is_server() => {
                ((0, record.thread), format!("thread {}", record.thread))
            }
            Layer::Server => ((2, 0), "requests".into()),
            layer => ((layer as u8, 0), layer.name().into()),
        }
    }

    fn slice(&mut self, record: &Record, flow: Option<u64>) -> std::io::Result<()> {
        if !self.begun {
            self.begin()?;
        }
        let (kind, name) = self.kind(record);
        let lanes = self.lanes.entry(kind).or_default();
        // The first lane in which it lies inside what is open, or behind it.
        let mut ended = Vec::new();
        let mut place = None;
        for (lane, open) in lanes.iter_mut().enumerate() {
            while open.last().is_some_and(|end| *end <= record.begin) {
                ended.extend(open.pop().map(|end| (lane, end)));
            }
            if open.last().is_none_or(|end| *end >= record.end()) {
                open.push(record.end());
                place = Some(lane);
                break;
            }
        }
        if place.is_none() && lanes.len() < MOST_LANES {
            lanes.push(vec![record.end()]);
            place = Some(lanes.len() - 1);
        }
        for (lane, end) in ended {
            self.close(kind, lane, end)?;
        }
        let Some(lane) = place else {
            self.left_out += 1;
            return Ok(());
        };
        let track = self.track(kind, lane, &name)?;
        let category = self.interned.number(CATEGORIES, record.layer.name());
        let operation = self
            .interned
            .number(NAMES, &record.operation.name().to_string());
        let mut facts = vec![
            ("bytes", record.bytes),
            ("offset", record.offset),
            ("id", record.id),
        ];
        if record.error != 0 {
            facts.push(("error", u64::from(record.error.unsigned_abs())));
        }
        let facts: Vec<(u64, u64)> = facts
            .into_iter()
            .map(|(name, n)| (self.interned.number(ANNOTATIONS, name), n))
            .collect();
        let file = self.part.file(record.file);
        let file = (!file.is_empty()).then(|| {
            let name = self.interned.number(ANNOTATIONS, "file");
            (name, self.interned.number(STRINGS, file))
        });
        let is_end = record.layer == Layer::Server;
        self.packet(NEEDED, |packet| {
            packet.number(TIMESTAMP, record.begin);
            packet.message(TRACK_EVENT, |event| {
                event.number(9, 1);
                event.number(11, track);
                event.number(3, category);
                event.number(10, operation);
                for (name, value) in facts {
                    event.message(4, |fact| {
                        fact.number(1, name);
                        fact.number(3, value);
                    });
                }
                if let Some((name, text)) = file {
                    event.message(4, |fact| {
                        fact.number(1, name);
                        fact.number(17, text);
                    });
                }
                if let Some(flow) = flow {
                    event.fixed(if is_end { 48 } else { 47 }, flow);
                }
            });
        })
    }

    fn track(&mut self, kind: (u8, u32), lane: usize, name: &str) -> std::io::Result<u64> {
        if let Some(uuid) = self.tracks.get(&(kind, lane)) {
            return Ok(*uuid);
        }
        let uuid = self.process() + 1 + self.tracks.len() as u64;
        self.tracks.insert((kind, lane), uuid);
        let process = self.process();
        self.packet(NEEDED, |packet| {
            packet.message(TRACK, |track| {
                track.number(1, uuid);
                track.number(5, process);
                track.bytes(2, name.as_bytes());
            });
        })?;
        Ok(uuid)
    }

    fn close(&mut self, kind: (u8, u32), lane: usize, end: u64) -> std::io::Result<()> {
        let Some(&track) = self.tracks.get(&(kind, lane)) else {
            return Ok(());
        };
        self.packet(NEEDED, |packet| {
            packet.number(TIMESTAMP, end);
            packet.message(TRACK_EVENT, |event| {
                event.number(9, 2);
                event.number(11, track);
            });
        })
    }

    /// Bytes written, and records left out.
    fn end(mut self) -> std::io::Result<(u64, u64)> {
        for (kind, lanes) in std::mem::take(&mut self.lanes) {
            for (lane, open) in lanes.into_iter().enumerate() {
                for end in open.into_iter().rev() {
                    self.close(kind, lane, end)?;
                }
            }
        }
        Ok((self.bytes, self.left_out))
    }
}
