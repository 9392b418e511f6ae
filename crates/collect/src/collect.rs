//! The loop: maps new rings, empties all of them, ends the parts of processes that have ended.
use crate::part::Part;
use crate::ring::Ring;
use crate::session::{Session, own_directory};
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags, fallocate, open};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::thread::futex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Rings are emptied at least so often.
const INTERVAL: Duration = Duration::from_millis(100);
/// What was taken is in the file after so long.
const FLUSH: Duration = Duration::from_millis(500);
/// Without `until`: how long the next process may take to come, and the first one.
const LINGER: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_secs(10);
/// Processes that are collected at once.
const PARTS: usize = 65_536;

/// What to collect.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the trace goes: an absolute path, as its processes have it in their environment.
    pub directory: PathBuf,
    /// Largest size of all parts together, bytes; then nothing more is recorded.
    pub limit: u64,
    /// Name of this host and of the user, for the heads of parts.
    pub host: String,
    /// See `host`.
    pub user: String,
    /// Go on until told, also while no process is there.
    pub until_told: bool,
}

/// What was collected.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Processes.
    pub parts: u64,
    /// Records that were written.
    pub records: u64,
    /// Records that are missing: rings were full.
    pub dropped: u64,
    /// Bytes of all parts.
    pub bytes: u64,
    /// The size limit was reached, and recording ended.
    pub limited: bool,
    /// Why a part ends early, the first time.
    pub failed: Option<String>,
}

/// Collects one trace on this host.
#[derive(Debug)]
pub struct Collector {
    options: Options,
    session: Session,
    bell: &'static AtomicU32,
    parts: Vec<Part>,
    summary: Summary,
    /// Bytes of parts that have ended.
    ended: u64,
}

impl Collector {
    /// Takes the right to collect. [`Error::Busy`]: another one does.
    pub fn start(options: Options) -> Result<Collector> {
        own_directory(&options.directory)?;
        let session = Session::of(&options.directory)?;
        let bell = bell(&session.directory().join("bell"))?;
        Ok(Collector {
            options,
            session,
            bell,
            parts: Vec::new(),
            summary: Summary::default(),
            ended: 0,
        })
    }

    /// Collects until all processes have ended and, with `until_told`, `told` is true. `hurry`: ends at once with what is there.
    pub fn run(mut self, told: &AtomicBool, hurry: &AtomicBool) -> Summary {
        let begun = Instant::now();
        let mut flushed = begun;
        let mut alone_since = begun;
        let mut seen_any = false;
        loop {
            let bell = self.bell.load(Ordering::Acquire);
            self.adopt();
            let now = Instant::now();
            self.take(now);
            if now - flushed >= FLUSH {
                flushed = now;
                self.flush();
            }
            self.reap(now);
            if hurry.load(Ordering::Relaxed) {
                break;
            }
            if self.parts.is_empty() {
                let patience = if seen_any { LINGER } else { FIRST };
                let over = if self.options.until_told {
                    told.load(Ordering::Relaxed)
                } else {
                    now - alone_since > patience
                };
                if over {
                    // Whoever makes a ring after this finds nobody collecting, and starts a collector.
                    self.session.release();
                    if self.session.rings().is_empty()
                        || self.session.take(&self.options.directory).is_err()
                    {
                        break;
                    }
                }
            } else {
                seen_any = true;
                alone_since = now;
            }
            self.wait(bell);
        }
        let now = Instant::now();
        for part in std::mem::take(&mut self.parts) {
            self.end(part, now);
        }
        self.summary
    }

    /// Waits for a ring that is half full, or the interval.
    fn wait(&self, seen: u32) {
        let time = futex::Timespec {
            tv_sec: 0,
            tv_nsec: INTERVAL.as_nanos() as _,
        };
        let _ = futex::wait(self.bell, futex::Flags::empty(), seen, Some(&time));
    }

    /// Takes new rings. Their names go at once: nothing stays behind.
    fn adopt(&mut self) {
        for path in self.session.rings() {
            match Ring::open(&path) {
                Ok(Some(ring)) if self.parts.len() < PARTS => {
                    let _ = std::fs::remove_file(&path);
                    self.begin(ring);
                }
                Ok(Some(_)) => {}
                // Not filled in yet; what stays so is nobody's.
                Ok(None) => remove_stale(&path),
                Err(e) => log::warn!("{e}"),
            }
        }
    }

    fn begin(&mut self, ring: Ring) {
        if self.summary.limited || self.summary.failed.is_some() {
            ring.stop();
        }
        let Options {
            directory,
            host,
            user,
            ..
        } = &self.options;
        match Part::begin(ring, directory, host, user) {
            Ok(part) => {
                self.summary.parts += 1;
                self.parts.push(part);
            }
            Err(e) => self.fail(e.to_string()),
        }
    }

    fn take(&mut self, now: Instant) {
        let mut failed = None;
        for part in &mut self.parts {
            if let Err(e) = part.take(now) {
                part.give_up();
                failed.get_or_insert(e.to_string());
            }
        }
        if let Some(why) = failed {
            self.fail(why);
        }
        let bytes: u64 = self.ended + self.parts.iter().map(Part::bytes).sum::<u64>();
        if bytes > self.options.limit && !self.summary.limited {
            self.summary.limited = true;
            let why = format!("ended at the size limit of {} bytes", self.options.limit);
            for part in &mut self.parts {
                let _ = part.stop(&why);
            }
        }
    }

    fn flush(&mut self) {
        let mut failed = None;
        for part in &mut self.parts {
            if let Err(e) = part.flush() {
                part.give_up();
                failed.get_or_insert(e.to_string());
            }
        }
        if let Some(why) = failed {
            self.fail(why);
        }
    }

    /// Recording ends everywhere; programs go on.
    fn fail(&mut self, why: String) {
        if self.summary.failed.is_none() {
            log::error!("tracing has ended: {why}");
            self.summary.failed = Some(why);
            for part in &mut self.parts {
                let _ = part.stop("ended: the trace could not be written");
            }
        }
    }

    /// Ends the parts of processes that have ended, or run another program since.
    fn reap(&mut self, now: Instant) {
        let mut latest: HashMap<(u32, u64), u64> = HashMap::new();
        for part in &self.parts {
            let (process, began) = part.identity();
            let entry = latest.entry(process).or_default();
            *entry = (*entry).max(began);
        }
        let over = |part: &Part| {
            let (process, began) = part.identity();
            latest[&process] > began || !part.runs()
        };
        let (ended, go_on) = std::mem::take(&mut self.parts).into_iter().partition(over);
        self.parts = go_on;
        for part in ended {
            self.end(part, now);
        }
    }

    fn end(&mut self, part: Part, now: Instant) {
        match part.finish(now) {
            Ok(counts) => {
                self.summary.records += counts.records;
                self.summary.dropped += counts.dropped;
                self.summary.bytes += counts.bytes;
                self.ended += counts.bytes;
            }
            Err(e) => self.fail(e.to_string()),
        }
    }
}

/// The word that processes change when their ring is half full.
fn bell(path: &Path) -> Result<&'static AtomicU32> {
    const LENGTH: usize = 4096;
    let io = |source: rustix::io::Errno| Error::Io {
        doing: "map",
        path: path.to_owned(),
        source: source.into(),
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(io)?;
    fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LENGTH as u64).map_err(io)?;
    // SAFETY: a new mapping of a file that has that length. It is never taken away.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            LENGTH,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
    };
    let base = base.map_err(io)?;
    // SAFETY: mapped above for the rest of the process's life, aligned, and only accessed atomically.
    Ok(unsafe { AtomicU32::from_ptr(base.cast()) })
}

/// A ring that was never filled in: its process was killed.
fn remove_stale(path: &Path) {
    let age = path.metadata().and_then(|m| m.modified());
    if age.is_ok_and(|at| at.elapsed().is_ok_and(|e| e > FIRST)) {
        let _ = std::fs::remove_file(path);
    }
}
