//! Recording from many threads.
//!
//! A [`Recorder`] lets threads record without ever waiting for a disk, and hardly for each other. Groups of records go to
//! one of [`SHARDS`] buffers of fixed size, each under a lock of its own. A thread takes the buffers whole, orders the groups
//! by time and writes them. When a buffer is full, the file has reached its bound or cannot be written, records are
//! dropped and counted; the program goes on.
use crate::error::{Error, Result};
use crate::record::{Link, Record, StreamHead};
use crate::stream::{FileName, MAX_FILES, StreamWriter};
use penstock_base::Nanos;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Buffers of a recorder.
const SHARDS: usize = 8;
/// Groups are held back for so long, because an earlier one may be about to be recorded.
const LATE: Nanos = 10_000_000;

/// The counts of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events or records that were written.
    pub events: u64,
    /// Events that were dropped.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Bounds of a [`Recorder`].
#[derive(Debug, Clone, Copy)]
pub struct RecorderOptions {
    /// Records that may wait for the disk, in all buffers together; as many are being written at most.
    pub buffer: usize,
    /// Largest file, bytes.
    pub file: u64,
    /// Records wait at most so long before they are written.
    pub interval: Duration,
}

impl Default for RecorderOptions {
    /// 128 Ki records (14 MiB), 1 GiB, one second.
    fn default() -> RecorderOptions {
        RecorderOptions {
            buffer: 128 << 10,
            file: 1 << 30,
            interval: Duration::from_secs(1),
        }
    }
}

/// A buffer, aligned to cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Buffer>);

#[derive(Debug, Default)]
struct Buffer {
    taken: Taken,
    recorded: u64,
    dropped: u64,
}

/// What was recorded, as it came.
#[derive(Debug, Default)]
struct Taken {
    groups: Vec<Group>,
    records: Vec<Record>,
    links: Vec<Link>,
}

/// Records that one piece of work left.
#[derive(Debug, Clone, Copy)]
struct Group {
    at: Nanos,
    /// Its file's number in the deployment; 0: the records name their files themselves.
    file: u64,
    records: u32,
    /// Of its last record.
    links: u32,
}

impl Shard {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        // Whatever a panic left: lists are always usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Shared {
    shards: [Shard; SHARDS],
    /// Records of one buffer.
    room: usize,
    /// Files that records name by number.
    names: Mutex<Names>,
    /// Dropped by the thread that writes.
    unwritten: AtomicU64,
    /// Requests to the writing thread.
    ask: Mutex<Ask>,
    wake: Condvar,
    options: RecorderOptions,
}

#[derive(Debug, Default)]
struct Names {
    last: u32,
    unwritten: Vec<FileName>,
}

#[derive(Debug, Default)]
struct Ask {
    /// A buffer is half full.
    hurry: bool,
    ending: bool,
}

impl Shared {
    fn ask(&self) -> MutexGuard<'_, Ask> {
        self.ask.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> (u64, u64) {
        let unwritten = self.unwritten.load(Relaxed);
        self.shards.iter().fold((0, unwritten), |sum, shard| {
            let buffer = shard.buffer();
            (sum.0 + buffer.recorded, sum.1 + buffer.dropped)
        })
    }
}

/// Records events from several threads into one trace. Ends its trace when dropped.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Summary>>>,
}

impl Recorder {
    /// Makes the file and starts the thread that writes it.
    pub fn start(path: &Path, head: &StreamHead, options: RecorderOptions) -> Result<Recorder> {
        if options.buffer == 0 {
            return Err(Error::Invalid("a recorder with room for no record".into()));
        }
        let writer = StreamWriter::create(path, head)?;
        let shared = Arc::new(Shared {
            shards: Default::default(),
            room: options.buffer.div_ceil(SHARDS),
            names: Mutex::default(),
            unwritten: AtomicU64::new(0),
            ask: Mutex::default(),
            wake: Condvar::new(),
            options,
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("trace".into())
            .spawn(move || write_all(&theirs, writer))
            .map_err(|source| Error::Io {
                doing: "start the thread that writes",
                path: path.to_owned(),
                source,
            })?;
        Ok(Recorder {
            shared,
            thread: Some(thread),
        })
    }

    /// Records what one piece of work left, which ended `at`, or counts it as dropped. `file`: the number in the deployment of
    /// the file of all these records, or 0. The links are those of the last record. Those who give different numbers for
    /// `who` rarely wait for each other: a few nanoseconds then. Never waits for the disk.
    pub fn record(&self, who: usize, at: Nanos, file: u64, records: &[Record], links: &[Link]) {
        let shared = &*self.shared;
        let mut buffer = shared.shards[who % SHARDS].buffer();
        let before = buffer.taken.records.len();
        if records.len() > shared.room - before
            || buffer.taken.links.len() + links.len() > shared.room
        {
            buffer.dropped += records.len() as u64;
            return;
        }
        buffer.taken.groups.push(Group {
            at,
            file,
            records: records.len() as u32,
            links: links.len() as u32,
        });
        buffer.taken.records.extend_from_slice(records);
        buffer.taken.links.extend_from_slice(links);
        buffer.recorded += records.len() as u64;
        let half = shared.room.div_ceil(2);
        if before < half && buffer.taken.records.len() >= half {
            drop(buffer);
            shared.ask().hurry = true;
            shared.wake.notify_one();
        }
    }

    /// So many more records are missing, for reasons of the caller.
    pub fn lost(&self, who: usize, records: u64) {
        if records > 0 {
            self.shared.shards[who % SHARDS].buffer().dropped += records;
        }
    }

    /// The number of another file, for records that name theirs themselves; 0: there are too many. For recorders whose records
    /// all do that.
    pub fn name(&self, file: &FileName) -> u32 {
        let mut names = self.shared.names();
        if names.last as usize >= MAX_FILES {
            return 0;
        }
        names.last += 1;
        names.unwritten.push(file.clone());
        names.last
    }

    /// Records taken and records dropped so far.
    pub fn counts(&self) -> (u64, u64) {
        self.shared.counts()
    }

    /// Writes what was recorded and ends the trace.
    pub fn finish(mut self) -> Result<Summary> {
        self.end().unwrap_or(Ok(Summary::default()))
    }

    fn end(&mut self) -> Option<Result<Summary>> {
        let thread = self.thread.take()?;
        self.shared.ask().ending = true;
        self.shared.wake.notify_one();
        Some(thread.join().unwrap_or_else(|_| {
            Err(Error::Invalid(
                "the thread that writes the trace panicked".into(),
            ))
        }))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            log::warn!("the trace is incomplete: {error}");
        }
    }
}

/// Groups that wait for their turn: with the places where their records and links begin.
#[derive(Debug, Default)]
struct Batch {
    order: Vec<(Group, usize, usize)>,
    records: Vec<Record>,
    links: Vec<Link>,
}

impl Batch {
    fn take(&mut self, taken: &mut Taken) {
        let (mut record, mut link) = (self.records.len(), self.links.len());
        for group in taken.groups.drain(..) {
            self.order.push((group, record, link));
            record += group.records as usize;
            link += group.links as usize;
        }
        self.records.append(&mut taken.records);
        self.links.append(&mut taken.links);
    }

    /// Keeps those from `ripe` on.
    fn keep_from(&mut self, ripe: usize) {
        let mut rest = Batch::default();
        for (group, record, link) in self.order.drain(ripe..) {
            let place = (group, rest.records.len(), rest.links.len());
            rest.order.push(place);
            let records = record..record + group.records as usize;
            rest.records.extend_from_slice(&self.records[records]);
            let links = link..link + group.links as usize;
            rest.links.extend_from_slice(&self.links[links]);
        }
        *self = rest;
    }
}

fn write_all(shared: &Shared, mut writer: StreamWriter) -> Result<Summary> {
    let mut taken = Taken::default();
    let mut batch = Batch::default();
    let mut failed = false;
    let mut before_last = 0;
    loop {
        let ending = {
            let mut ask = shared.ask();
            if !ask.hurry && !ask.ending {
                let waited = shared.wake.wait_timeout(ask, shared.options.interval);
                ask = waited.map_or_else(|e| e.into_inner().0, |(ask, _)| ask);
            }
            ask.hurry = false;
            ask.ending
        };
        for shard in &shared.shards {
            // Rooms are used in turn: nothing is allocated under the lock once all have grown.
            std::mem::swap(&mut shard.buffer().taken, &mut taken);
            batch.take(&mut taken);
        }
        for file in std::mem::take(&mut shared.names().unwritten) {
            writer.name_file_of(&file);
        }
        // Each buffer is nearly in order; those of others may hold earlier ones that come with the next round.
        batch
            .order
            .sort_by_key(|(group, place, _)| (group.at, *place));
        let last = batch.order.last().map_or(0, |(group, ..)| group.at);
        let ripe = if ending {
            batch.order.len()
        } else {
            let ripe = |at: Nanos| at.saturating_add(LATE) <= last || at <= before_last;
            batch.order.partition_point(|(group, ..)| ripe(group.at))
        };
        before_last = last.max(before_last);
        let wanted: u64 = batch.order[..ripe]
            .iter()
            .map(|g| u64::from(g.0.records))
            .sum();
        let before = writer.written().events;
        writer.set_dropped(shared.counts().1);
        let result = write_batch(&mut writer, &batch, ripe, shared.options.file);
        let lost = wanted - (writer.written().events - before);
        shared.unwritten.fetch_add(lost, Relaxed);
        if let Err(error) = result
            && !failed
        {
            failed = true;
            log::warn!("records of the trace are dropped: {error}");
        }
        batch.keep_from(ripe);
        if ending {
            return writer.finish(shared.counts().1);
        }
    }
}

/// Writes the first `ripe` groups.
fn write_batch(writer: &mut StreamWriter, batch: &Batch, ripe: usize, bound: u64) -> Result<()> {
    for (group, record, link) in &batch.order[..ripe] {
        if writer.written().bytes >= bound {
            return Err(Error::Invalid(format!(
                "{} has reached its bound of {bound} bytes",
                writer.path().display()
            )));
        }
        let file = match group.file {
            0 => None,
            id => Some(writer.name_file_of(&FileName {
                path: String::new(),
                id,
            })),
        };
        let records = &batch.records[*record..record + group.records as usize];
        for (i, record) in records.iter().enumerate() {
            let record = Record {
                file: file.unwrap_or(record.file),
                ..*record
            };
            let links = if i + 1 == records.len() {
                &batch.links[*link..link + group.links as usize]
            } else {
                &[]
            };
            writer.push_linked(&record, links)?;
        }
    }
    writer.flush()
}
