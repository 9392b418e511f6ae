//! Writing traces.
//!
//! A [`Writer`] writes events one after the other. A [`Recorder`] lets the threads of a server record without ever
//! waiting for a disk: events go to a buffer of fixed size, a thread of its own writes them. When the buffer is full,
//! the file has reached its bound or cannot be written, events are dropped and counted; the server goes on.
use crate::error::{Error, Result};
use crate::event::Event;
use crate::format::{self, BLOCK_EVENTS, Header};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a trace holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that were written.
    pub events: u64,
    /// Events that were not.
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
    /// Makes the file, or replaces it.
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

    /// Writes what is pending as a block. On an error the pending events are gone.
    pub fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.encoded.clear();
        format::encode_block(&self.pending, &mut self.encoded);
        let count = self.pending.len() as u64;
        self.pending.clear();
        let block = std::mem::take(&mut self.encoded);
        let result = self.append(&block);
        self.encoded = block;
        result?;
        self.written.events += count;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.file.write_all(bytes);
        if result.is_err() {
            // No half block before later ones.
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

/// Bounds of a [`Recorder`].
#[derive(Debug, Clone, Copy)]
pub struct RecorderOptions {
    /// Events that may wait for the disk. There are two buffers of this size.
    pub buffer: usize,
    /// Largest file, bytes.
    pub file: u64,
    /// Events wait at most so long before they are written.
    pub interval: Duration,
}

impl Default for RecorderOptions {
    /// 64 Ki events (3.5 MiB a buffer), 1 GiB, one second.
    fn default() -> RecorderOptions {
        RecorderOptions {
            buffer: 64 << 10,
            file: 1 << 30,
            interval: Duration::from_secs(1),
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    options: RecorderOptions,
}

#[derive(Debug)]
struct State {
    events: Vec<Event>,
    recorded: u64,
    dropped: u64,
    ending: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Whatever a panic left: a list of events is always usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's text. Ends its trace when dropped.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Summary>>>,
}

impl Recorder {
    /// Makes the file and starts the thread that writes it.
    pub fn start(path: &Path, header: &Header, options: RecorderOptions) -> Result<Recorder> {
        if options.buffer == 0 {
            return Err(Error::Invalid("a recorder with room for no event".into()));
        }
        let writer = Writer::create(path, header)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                events: Vec::with_capacity(options.buffer),
                recorded: 0,
                dropped: 0,
                ending: false,
            }),
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

    /// Records an event, or counts it as dropped. Holds a lock for a few nanoseconds; never waits for the disk.
    pub fn record(&self, event: Event) {
        let mut state = self.shared.state();
        if state.events.len() == self.shared.options.buffer {
            state.dropped += 1;
            return;
        }
        state.events.push(event);
        state.recorded += 1;
        if state.events.len() == self.shared.options.buffer.div_ceil(2) {
            self.shared.wake.notify_one();
        }
    }

    /// Events recorded and events dropped so far.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.shared.state();
        (state.recorded, state.dropped)
    }

    /// Writes what was recorded and ends the trace.
    pub fn finish(mut self) -> Result<Summary> {
        self.end().unwrap_or(Ok(Summary::default()))
    }

    fn end(&mut self) -> Option<Result<Summary>> {
        let thread = self.thread.take()?;
        self.shared.state().ending = true;
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
    let mut batch: Vec<Event> = Vec::with_capacity(shared.options.buffer);
    let mut failed = false;
    loop {
        let ending = {
            let mut state = shared.state();
            if state.events.len() < shared.options.buffer.div_ceil(2) && !state.ending {
                state = shared
                    .wake
                    .wait_timeout(state, shared.options.interval)
                    .map_or_else(|e| e.into_inner().0, |(state, _)| state);
            }
            std::mem::swap(&mut state.events, &mut batch);
            state.ending
        };
        // Threads record in the order of the lock, not of their clocks.
        batch.sort_unstable();
        let before = writer.written.events;
        let result = write_batch(&mut writer, &batch, shared.options.file);
        let lost = batch.len() as u64 - (writer.written.events - before);
        if lost > 0 {
            shared.state().dropped += lost;
        }
        if let Err(error) = result
            && !failed
        {
            failed = true;
            log::warn!("events are dropped: {error}");
        }
        batch.clear();
        if ending {
            let dropped = shared.state().dropped;
            return writer.finish(dropped);
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
        for event in chunk {
            writer.push(*event)?;
        }
        writer.flush()?;
    }
    Ok(())
}
