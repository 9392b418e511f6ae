//! Writes traces.
//!
//! A [`Writer`] writes events one after the other. With a [`Recorder`], the threads of a server record without ever
//! waiting for a disk, and rarely for each other. Events go to one of [`SHARDS`] buffers of fixed size, each with its
//! own lock. A thread takes whole buffers, sorts their events by time and writes them. When a buffer is full, or the
//! file has reached its limit or cannot be written, events are dropped and counted. The server continues.
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::{self, BLOCK_EVENTS, Header};
use penstock_base::Nanos;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Buffers of a recorder.
const SHARDS: usize = 8;
/// Events are held back for this time, because an earlier one may still be recorded.
const LATE: Nanos = 10_000_000;

/// The counts of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that were written.
    pub events: u64,
    /// Events that were dropped.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes a trace file, block by block.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    pending: Vec<Event>,
    encoded: Vec<u8>,
    written: Summary,
}

impl Writer {
    /// Creates the file, or replaces it.
    pub fn create(path: &Path, header: &Header) -> Result<Writer> {
        let io = |source| Error::Io {
            doing: "write",
            path: path.to_owned(),
            source,
        };
        let mut file = File::create(path).map_err(io)?;
        let head = header.encode();
        file.write_all(&head).map_err(io)?;
        Ok(Writer {
            file,
            path: path.to_owned(),
            pending: Vec::with_capacity(BLOCK_EVENTS),
            encoded: Vec::new(),
            written: Summary {
                bytes: head.len() as u64,
                ..Summary::default()
            },
        })
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) -> Result<()> {
        self.pending.push(event);
        match self.pending.len() {
            BLOCK_EVENTS => self.flush(),
            _ => Ok(()),
        }
    }

    /// Writes the pending events as a block. On an error the pending events are lost.
    pub fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let result = self.write_block(&pending);
        self.pending = pending;
        self.pending.clear();
        result
    }

    fn write_block(&mut self, events: &[Event]) -> Result<()> {
        self.encoded.clear();
        format::encode_block(events, &mut self.encoded);
        let block = std::mem::take(&mut self.encoded);
        let result = self.append(&block);
        self.encoded = block;
        result?;
        self.written.events += events.len() as u64;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.file.write_all(bytes);
        if result.is_err() {
            // An incomplete block must not stay before later ones.
            let _ = self.file.set_len(self.written.bytes);
            let _ =
                std::io::Seek::seek(&mut self.file, std::io::SeekFrom::Start(self.written.bytes));
        }
        result.map_err(|source| Error::Io {
            doing: "write",
            path: self.path.clone(),
            source,
        })?;
        self.written.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Ends the trace; `dropped` events are missing in it.
    pub fn finish(mut self, dropped: u64) -> Result<Summary> {
        self.flush()?;
        self.written.dropped = dropped;
        self.append(&format::encode_end(self.written.events, dropped))?;
        Ok(self.written)
    }
}

/// Limits of a [`Recorder`].
#[derive(Debug, Clone, Copy)]
pub struct RecorderOptions {
    /// The most events that may wait for the disk, in all buffers together. As many more may be being written.
    pub buffer: usize,
    /// Largest file, bytes.
    pub file: u64,
    /// The longest time until an event is written.
    pub interval: Duration,
}

impl Default for RecorderOptions {
    /// 128 Ki events (9 MiB), 1 GiB, one second.
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
    events: Vec<Event>,
    recorded: u64,
    dropped: u64,
}

impl Shard {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        // After a panic of another thread the list of events is still usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Shared {
    shards: [Shard; SHARDS],
    /// The most events of one buffer.
    room: usize,
    /// Events that the writing thread dropped.
    unwritten: AtomicU64,
    /// Requests to the writing thread.
    ask: Mutex<Ask>,
    wake: Condvar,
    options: RecorderOptions,
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
    /// Creates the file and starts the thread that writes it.
    pub fn start(path: &Path, header: &Header, options: RecorderOptions) -> Result<Recorder> {
        if options.buffer == 0 {
            return Err(Error::Invalid("a recorder with room for no event".into()));
        }
        let writer = Writer::create(path, header)?;
        let shared = Arc::new(Shared {
            shards: Default::default(),
            room: options.buffer.div_ceil(SHARDS),
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

    /// Records events of one request, or counts them as dropped. Threads that pass different values of `who` rarely
    /// wait for each other, and then for a few nanoseconds. Never waits for the disk.
    pub fn record(&self, who: usize, events: &[Event]) {
        let shared = &*self.shared;
        let mut buffer = shared.shards[who % SHARDS].buffer();
        let before = buffer.events.len();
        let taken = events.len().min(shared.room - before);
        buffer.events.extend_from_slice(&events[..taken]);
        buffer.recorded += taken as u64;
        buffer.dropped += (events.len() - taken) as u64;
        let half = shared.room.div_ceil(2);
        if before < half && buffer.events.len() >= half {
            drop(buffer);
            shared.ask().hurry = true;
            shared.wake.notify_one();
        }
    }

    /// Events recorded and events dropped so far.
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

fn write_all(shared: &Shared, mut writer: Writer) -> Result<Summary> {
    let mut taken = Vec::new();
    let mut batch: Vec<Event> = Vec::new();
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
            // Buffers are swapped and reused: nothing is allocated under the lock once all have grown.
            std::mem::swap(&mut shard.buffer().events, &mut taken);
            batch.append(&mut taken);
        }
        // Each buffer is nearly in order. Other buffers may hold earlier events, which come with the next round.
        batch.sort_by_key(|e| (e.at, e.request, e.kind));
        let last = batch.last().map_or(0, |e| e.at);
        let ripe = if ending {
            batch.len()
        } else {
            batch.partition_point(|e| e.at + LATE <= last || e.at <= before_last)
        };
        before_last = last.max(before_last);
        let before = writer.written.events;
        let result = write_batch(&mut writer, &batch[..ripe], shared.options.file);
        let lost = ripe as u64 - (writer.written.events - before);
        shared.unwritten.fetch_add(lost, Relaxed);
        if let Err(error) = result
            && !failed
        {
            failed = true;
            log::warn!("events are dropped: {error}");
        }
        batch.drain(..ripe);
        if ending {
            return writer.finish(shared.counts().1);
        }
    }
}

fn write_batch(writer: &mut Writer, batch: &[Event], bound: u64) -> Result<()> {
    for chunk in batch.chunks(BLOCK_EVENTS) {
        if writer.written.bytes >= bound {
            return Err(Error::Invalid(format!(
                "{} has reached its bound of {bound} bytes",
                writer.path.display()
            )));
        }
        writer.write_block(chunk)?;
    }
    Ok(())
}
