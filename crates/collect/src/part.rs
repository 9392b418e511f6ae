//! One process's part of a trace: `host-PID-START.trace`.
use crate::process;
use crate::ring::{Entry, Ring};
use penstock_trace::{Clock, Layer, StreamHead, StreamWriter};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Names of a process's open files that are kept; the oldest half is forgotten beyond.
const NAMES: usize = 1 << 20;
/// How long an unfinished entry may stand before those behind it: its writer was left by a jump out of a signal handler.
const PATIENCE: Duration = Duration::from_secs(5);
/// When the code that a process has mapped is looked at again: libraries were loaded since.
const SETTLED: Duration = Duration::from_secs(1);

/// A process that is collected.
#[derive(Debug)]
pub struct Part {
    ring: Ring,
    head: StreamHead,
    writer: Option<StreamWriter>,
    /// The process's numbers of files, and the stream's.
    names: BTreeMap<u32, u32>,
    began: Instant,
    looked_again: bool,
    stuck: Option<Instant>,
}

/// What became of a part.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Records that were written.
    pub records: u64,
    /// Records that are missing.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Part {
    /// Begins a process's part in `directory`.
    pub fn begin(
        ring: Ring,
        directory: &Path,
        host: &str,
        user: &str,
    ) -> Result<Part, penstock_trace::Error> {
        let pid = ring.pid();
        let head = StreamHead {
            host: host.into(),
            pid,
            program: ring.program(),
            rank: ring.rank(),
            began: ring.began(),
            clock: Clock::default(),
            command: ring.command(),
            job: ring.job(),
            user: user.into(),
            chosen: ring.chosen(),
            modules: process::modules(pid),
            ..StreamHead::default()
        };
        let path = directory.join(format!("{host}-{pid}-{}.trace", head.began));
        let writer = StreamWriter::create(&path, &head)?;
        Ok(Part {
            ring,
            head,
            writer: Some(writer),
            names: BTreeMap::new(),
            began: Instant::now(),
            looked_again: false,
            stuck: None,
        })
    }

    /// Whether the process still runs what it ran.
    pub fn runs(&self) -> bool {
        process::runs(self.ring.pid(), self.ring.started())
    }

    /// The process and when it started its present program: later ones of the same process replace it.
    pub fn identity(&self) -> ((u32, u64), u64) {
        ((self.ring.pid(), self.ring.started()), self.head.began)
    }

    /// Takes what the ring has. An error of the file ends the part.
    pub fn take(&mut self, now: Instant) -> Result<(), penstock_trace::Error> {
        let mut result = Ok(());
        let (writer, names) = (&mut self.writer, &mut self.names);
        let stuck = self.ring.drain(|entry| {
            let Some(writer) = writer else { return };
            let pushed = match entry {
                Entry::Name(number, name) => {
                    names.insert(number, writer.name_file_of(&name));
                    if names.len() > NAMES {
                        *names = names.split_off(&number.saturating_sub(NAMES as u32 / 2));
                    }
                    Ok(())
                }
                Entry::Record(mut record) => {
                    record.file = names.get(&record.file).copied().unwrap_or(0);
                    // Layers below are not this process's to tell.
                    if record.layer > Layer::Store {
                        return;
                    }
                    writer.push(&record)
                }
            };
            if result.is_ok() {
                result = pushed;
            }
        });
        match (stuck, self.stuck) {
            (true, None) => self.stuck = Some(now),
            (true, Some(since)) if now - since > PATIENCE => {
                self.ring.skip();
                self.stuck = None;
            }
            (false, _) => self.stuck = None,
            _ => {}
        }
        result
    }

    /// Writes what is pending.
    pub fn flush(&mut self) -> Result<(), penstock_trace::Error> {
        let dropped = self.ring.dropped();
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        writer.set_dropped(dropped);
        writer.flush()?;
        if !self.looked_again && self.began.elapsed() > SETTLED {
            self.looked_again = true;
            let modules = process::modules(self.ring.pid());
            if !modules.is_empty() && modules != self.head.modules {
                self.head.modules = modules;
                writer.set_head(&self.head)?;
            }
        }
        // Known once the program has opened a file: the launcher may not have said.
        let (program, rank) = (self.ring.program(), self.ring.rank());
        if (program, rank) != (self.head.program, self.head.rank) {
            self.head.program = program;
            self.head.rank = rank;
            writer.set_head(&self.head)?;
        }
        Ok(())
    }

    /// The process records no more, and its part says why.
    pub fn stop(&mut self, why: &str) -> Result<(), penstock_trace::Error> {
        self.ring.stop();
        if !self.head.chosen.is_empty() {
            self.head.chosen.push_str("; ");
        }
        self.head.chosen.push_str(why);
        match &mut self.writer {
            Some(writer) => writer.set_head(&self.head),
            None => Ok(()),
        }
    }

    /// Nothing more is written: the file ends where it is.
    pub fn give_up(&mut self) {
        self.ring.stop();
        self.writer = None;
    }

    /// Bytes of its file.
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, |w| w.written().bytes)
    }

    /// The process has ended: takes the rest, also behind what it was killed at, and ends the file.
    pub fn finish(mut self, now: Instant) -> Result<Counts, penstock_trace::Error> {
        loop {
            self.take(now)?;
            if self.stuck.is_none() {
                break;
            }
            self.ring.skip();
            self.stuck = None;
        }
        self.flush()?;
        let dropped = self.ring.dropped();
        let Some(writer) = self.writer else {
            return Ok(Counts::default());
        };
        let summary = writer.finish(dropped)?;
        Ok(Counts {
            records: summary.events,
            dropped,
            bytes: summary.bytes,
        })
    }
}
