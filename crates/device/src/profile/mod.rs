//! Profiles of storage devices: how much faster sequential access is than random access (docs/administer/profiling.md).
//!
//! Problem: scheduling and staging depend on the sequential-to-random ratio of the device, for each operation and
//! request size. Measuring all sizes takes hours or days. Idea (SeRRa): access time is nearly linear in the size within
//! an interval. A few sizes of each interval are measured, always including its ends, and a line is fitted. Beyond the
//! source: a pass over a size stops after a sample instead of covering the whole file. Lines have no negative time at
//! size 0, and the curve over all intervals never decreases.
//!
//! When it pays: always, unless a device's times jump within an interval; smaller intervals help then.
//!
//! Parameters: see [`Options`]. What is measured comes through [`Target`]: a file with direct I/O ([`FileTarget`]), or a
//! model on its own time ([`ModelTarget`]). Source: Boito 2015, chapter 5.
mod file;
mod fit;
mod measure;
mod measured;
mod model;
mod report;

pub use file::FileTarget;
pub use measure::{Progress, Step, profile};
pub use measured::Test;
pub use model::ModelTarget;
pub use report::{Curve, Deviation, Fitted, Profile, Ratio, RatioSummary, Times};

use crate::{Nanos, Op};
use std::fmt;

/// Bytes of one access while a target is filled.
const CHUNK: u64 = 1 << 20;

/// Something that can be profiled. One access at a time.
pub trait Target {
    /// What it is, for people.
    fn describe(&self) -> String;

    /// May be written; if not, only reads are measured.
    fn writable(&self) -> bool;

    /// Offsets and lengths of accesses must be multiples of this, bytes.
    fn alignment(&self) -> u64;

    /// Makes the first `bytes` ready to be accessed; `done` is called with the bytes that are ready and returns false
    /// to stop.
    fn prepare(
        &mut self,
        bytes: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ProfileError>;

    /// Accesses `bytes` at `offset` and says how long that took.
    fn access(&mut self, op: Op, offset: u64, bytes: u64) -> Result<Nanos, ProfileError>;

    /// Writes the first `bytes` by accesses; an implementation of [`Target::prepare`].
    fn fill(&mut self, bytes: u64, done: &mut dyn FnMut(u64) -> bool) -> Result<(), ProfileError> {
        let mut at = 0;
        while at < bytes {
            let piece = CHUNK.min(bytes - at);
            self.access(Op::Write, at, piece)?;
            at += piece;
            if !done(at) {
                return Err(ProfileError::Stopped);
            }
        }
        Ok(())
    }
}

/// Why a profile failed.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Options that contradict each other or the target.
    #[error("{0}")]
    Options(String),
    /// The system returned an error.
    #[error("cannot {doing} {what}: {source}{}", advice(.source))]
    Io {
        /// `read`, `write` …
        doing: &'static str,
        /// Which file.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The target has too little room.
    #[error(
        "{what} has {free} bytes free; a file of {wanted} bytes would leave too little: choose a smaller one with --file-size"
    )]
    Space {
        /// Which directory.
        what: String,
        /// Bytes that are free.
        free: u64,
        /// Bytes that the file needs.
        wanted: u64,
    },
    /// The caller stopped it; nothing is left behind.
    #[error("stopped before the profile was complete; all files were removed")]
    Stopped,
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            " (this file system has no direct I/O for it; --buffered measures through the page cache)"
        }
        std::io::ErrorKind::StorageFull => " (choose a smaller --file-size)",
        _ => "",
    }
}

/// Request sizes from one end to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Smallest size, bytes.
    pub from: u64,
    /// Largest size, bytes.
    pub to: u64,
    /// Distance of two sizes, bytes.
    pub step: u64,
}

impl Interval {
    /// All its sizes, ascending; its ends always.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = (self.from..self.to)
            .step_by(usize::try_from(self.step).unwrap_or(usize::MAX).max(1))
            .collect();
        sizes.push(self.to);
        sizes
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}/{}", self.from, self.to, self.step)
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of the file that is accessed.
    pub file: u64,
    /// Request sizes, intervals ascending.
    pub intervals: Vec<Interval>,
    /// Sizes measured in each interval, the ends included.
    pub points: usize,
    /// Passes over each size where all are measured; their median counts.
    pub repetitions: usize,
    /// The time budget of the estimate: one part in so many of the forecast for all sizes. Each of its sizes is
    /// measured once. More passes follow while there is time and ratios are not known to 3%, at most 8 in all.
    pub part: u64,
    /// Accesses after which a pass ends; it ends earlier when the mean of random ones is known to 3%.
    pub accesses: u64,
    /// Bytes after which a pass ends, but not before 8 accesses.
    pub sample: u64,
    /// Bytes written before a pass of writes is measured: they fill the device's cache.
    pub warm_up: u64,
    /// Also measure every size by passes over the whole file, and report the error of the estimate.
    pub full: bool,
    /// Choice of sizes and of random offsets.
    pub seed: u64,
}

impl Default for Options {
    /// The source's intervals: 8 to 64 KiB by 8 KiB, 64 KiB to 4 MiB by 32 KiB. 256 MiB, 3 points, 3 passes, 1/100 of the time.
    fn default() -> Options {
        Options {
            file: 256 << 20,
            intervals: vec![
                Interval {
                    from: 8 << 10,
                    to: 64 << 10,
                    step: 8 << 10,
                },
                Interval {
                    from: 64 << 10,
                    to: 4 << 20,
                    step: 32 << 10,
                },
            ],
            points: 3,
            repetitions: 3,
            part: 100,
            accesses: 96,
            sample: 32 << 20,
            warm_up: 8 << 20,
            full: false,
            seed: 1,
        }
    }
}

/// Sizes over all intervals at most.
const MAX_SIZES: u64 = 10_000;
/// Passes of one size at most.
const MAX_REPETITIONS: usize = 1_000;
/// Accesses of the largest size that the file must hold.
const LEAST_ACCESSES: u64 = 4;

impl Options {
    /// Checks the options; the error says which one cannot be used.
    pub fn check(&self, alignment: u64) -> Result<(), ProfileError> {
        let wrong = |why: String| Err(ProfileError::Options(why));
        if self.intervals.is_empty() {
            return wrong("no interval of request sizes: write --interval 8KiB-64KiB/8KiB".into());
        }
        let mut total = 0;
        for interval in &self.intervals {
            let Interval { from, to, step } = *interval;
            if from == 0 || from >= to || step == 0 {
                return wrong(format!(
                    "interval {interval}: write FROM-TO/STEP with FROM below TO, none of them 0"
                ));
            }
            total += (to - from).div_ceil(step) + 1;
            if [from, to, step].iter().any(|n| n % alignment != 0) {
                return wrong(format!(
                    "interval {interval}: with direct I/O all sizes are multiples of {alignment}"
                ));
            }
        }
        if self.intervals.windows(2).any(|w| w[0].to > w[1].from) {
            return wrong("intervals overlap or don't ascend".into());
        }
        if total > MAX_SIZES {
            return wrong(format!(
                "{total} request sizes, at most {MAX_SIZES}: choose larger steps"
            ));
        }
        let largest = self.intervals.iter().map(|i| i.to).max().unwrap_or(0);
        if self.file / LEAST_ACCESSES < largest {
            return wrong(format!(
                "a file of {} bytes has less than {LEAST_ACCESSES} requests of {largest} bytes: choose a larger --file-size, or \
                 smaller intervals",
                self.file
            ));
        }
        let counts = [
            ("points", self.points, 2, MAX_SIZES as usize),
            ("repetitions", self.repetitions, 1, MAX_REPETITIONS),
        ];
        for (name, n, low, high) in counts {
            if n < low || n > high {
                return wrong(format!("{n} {name}: between {low} and {high} are possible"));
            }
        }
        if self.accesses == 0 {
            return wrong("a pass needs at least one access".into());
        }
        if self.part == 0 {
            return wrong("--part 0: write 100 for one hundredth of the time of all sizes".into());
        }
        Ok(())
    }
}
