//! A file in a directory as a subject: unnamed, with direct I/O and one thread per request under way.

use super::{Bound, Load, Sample, Subject};
use crate::profile::{FileTarget, ProfileError, Target};
use crate::{Nanos, Op, random_addresses};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A file to characterise, on the real clock. The file is gone when the process ends, however it ends.
pub struct FileSubject {
    target: FileTarget,
    space: u64,
}

impl FileSubject {
    /// `space` bytes in a directory, or of an existing file, which is only read.
    pub fn new(target: FileTarget, space: u64) -> FileSubject {
        FileSubject { target, space }
    }
}

impl Subject for FileSubject {
    fn describe(&self) -> String {
        self.target.describe()
    }

    fn writable(&self) -> bool {
        self.target.writable()
    }

    fn span(&self) -> u64 {
        self.space
    }

    fn prepare(&mut self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), ProfileError> {
        self.target.prepare(self.space, go_on)
    }

    fn run(&mut self, load: &Load, bound: &Bound, seed: u64) -> Result<Sample, ProfileError> {
        let span = (self.space / 100 * load.part).max(load.bytes) / load.bytes * load.bytes;
        let (begun, until) = (Instant::now(), Duration::from_nanos(bound.time));
        let begin = span / load.bytes;
        let next = AtomicU64::new(0);
        let failed = AtomicBool::new(false);
        let result = Mutex::new((Vec::<Nanos>::new(), None));
        let count = bound.requests.min((bound.bytes / load.bytes).max(64));
        std::thread::scope(|scope| {
            for thread in 0..load.depth {
                let (next, failed, result) = (&next, &failed, &result);
                let target = self.target.another();
                scope.spawn(move || {
                    let mut address = random_addresses(seed ^ (thread << 32), span, load.bytes);
                    let mut choice = random_addresses(seed ^ (thread << 33) ^ 0x55, 100, 1);
                    let mut times = Vec::new();
                    let mut error = None;
                    match target {
                        Ok(mut target) => loop {
                            let i = next.fetch_add(1, Relaxed);
                            if i >= count || begun.elapsed() > until || failed.load(Relaxed) {
                                break;
                            }
                            let op = if choice() < load.reads {
                                Op::Read
                            } else {
                                Op::Write
                            };
                            let at = if load.random {
                                address()
                            } else {
                                i % begin * load.bytes
                            };
                            match target.access(op, at, load.bytes) {
                                Ok(took) => times.push(took),
                                Err(e) => {
                                    error = Some(e);
                                    break;
                                }
                            }
                        },
                        Err(e) => error = Some(e),
                    }
                    failed.fetch_or(error.is_some(), Relaxed);
                    let mut all = result.lock().unwrap_or_else(|p| p.into_inner());
                    all.0.append(&mut times);
                    all.1 = all.1.take().or(error);
                });
            }
        });
        let elapsed = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let (latencies, error) = result.into_inner().unwrap_or_else(|p| p.into_inner());
        match error {
            Some(e) => Err(e),
            None => Ok(Sample {
                bytes: latencies.len() as u64 * load.bytes,
                elapsed,
                latencies,
            }),
        }
    }

    fn rest(&mut self, time: Nanos) {
        std::thread::sleep(Duration::from_nanos(time));
    }

    fn trim(&mut self, at: u64, bytes: u64) -> Result<Option<Nanos>, ProfileError> {
        self.target.punch(at, bytes)
    }
}
