//! Characterises a device: a grid of loads, then time, idle periods, TRIM and mixtures.
//!
//! The suite measures, in this order:
//!
//! 1. sequential and random reads and writes over sizes and depths;
//! 2. sequential reads before and after random writes, and random writes over time;
//! 3. random writes before and after an idle period;
//! 4. random writes with and without TRIM;
//! 5. mixtures of reads and writes.
//!
//! The findings stand beside those of Jung and Kandemir (SIGMETRICS 2013), as IT 6 summarises them.
//!
//! A subject is a model on virtual time ([`ModelSubject`]), or a directory with direct I/O ([`FileSubject`]).

mod file;
mod model;

pub use file::FileSubject;
pub use model::ModelSubject;

use crate::Nanos;
use crate::nand::figure::quantile;
use crate::nand::{Counters, Wear};
use crate::profile::ProfileError;

/// One load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Percent of requests that read.
    pub reads: u64,
    /// At random multiples of the size, or sequential.
    pub random: bool,
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests under way at a time (queue depth).
    pub depth: u64,
    /// Percent of the file that is accessed, from its beginning.
    pub part: u64,
}

/// When a load ends: at the first bound that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Requests.
    pub requests: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Time.
    pub time: Nanos,
}

/// The result of one load.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Bytes of all requests.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Nanos,
    /// Time of each request.
    pub latencies: Vec<Nanos>,
}

/// What is characterised.
pub trait Subject {
    /// What it is, for people.
    fn describe(&self) -> String;
    /// Whether it may be written.
    fn writable(&self) -> bool;
    /// Bytes that are accessed.
    fn span(&self) -> u64;
    /// Makes those bytes exist, by writing them where needed. `go_on` is called with the bytes that exist so far; when
    /// it returns false, preparation stops.
    fn prepare(&mut self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), ProfileError>;
    /// Runs a load.
    fn run(&mut self, load: &Load, bound: &Bound, seed: u64) -> Result<Sample, ProfileError>;
    /// Lets time pass.
    fn rest(&mut self, time: Nanos);
    /// Trims a range and returns how long that took; `None` where trimming is not supported.
    fn trim(&mut self, at: u64, bytes: u64) -> Result<Option<Nanos>, ProfileError>;
    /// What a NAND model counted.
    fn counters(&self) -> Option<(Counters, Wear)> {
        None
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of a request.
    pub sizes: Vec<u64>,
    /// Requests under way at a time (queue depths).
    pub depths: Vec<u64>,
    /// Bound of each load.
    pub bound: Bound,
    /// Windows of random writes.
    pub windows: u64,
    /// Length of the idle period.
    pub idle: Nanos,
    /// Choice of offsets.
    pub seed: u64,
}

/// Largest queue depth.
pub const MOST_DEPTH: u64 = 256;
/// Largest request.
pub const MOST_BYTES: u64 = 64 << 20;

impl Options {
    /// Refuses options that the subject cannot be measured with.
    pub fn check(&self, subject: &dyn Subject, alignment: u64) -> Result<(), ProfileError> {
        let wrong = |why: String| Err(ProfileError::Options(why));
        if self.sizes.is_empty() || self.depths.is_empty() {
            return wrong(
                "no request size or no depth: write --sizes 4KiB,64KiB --depths 1,8".into(),
            );
        }
        for size in &self.sizes {
            if *size == 0 || size % alignment != 0 || *size > MOST_BYTES {
                return wrong(format!(
                    "requests of {size} bytes: write multiples of {alignment} up to {MOST_BYTES}"
                ));
            }
            if *size > subject.span() / 8 {
                return wrong(format!(
                    "requests of {size} bytes in a space of {}: choose a larger --space, or smaller --sizes",
                    subject.span()
                ));
            }
        }
        if let Some(depth) = self.depths.iter().find(|d| !(1..=MOST_DEPTH).contains(*d)) {
            return wrong(format!("a depth of {depth}: write 1 to {MOST_DEPTH}"));
        }
        if self.windows == 0 || self.windows > 1_000 {
            return wrong(format!("{} windows: write 1 to 1000", self.windows));
        }
        Ok(())
    }

    /// Loads of the whole suite, for those who plan its time.
    pub fn loads(&self) -> u64 {
        (self.sizes.len() * self.depths.len()) as u64 * 4
            + self.windows
            + 2
            + 2
            + 2
            + MIXTURES.len() as u64
    }
}

/// Percent of reads in mixtures.
const MIXTURES: [u64; 5] = [100, 75, 50, 25, 0];

/// The part of the suite that a row belongs to, as listed in the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Sequential and random, read and write, sizes and depths.
    Grid,
    /// Random writes, window after window.
    OverTime,
    /// Sequential reads before and after random writes.
    Aged,
    /// Random writes before and after an idle period.
    Idle,
    /// Random writes without and with TRIM.
    Trim,
    /// Reads and writes together.
    Mixed,
}

impl Part {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Grid => "grid",
            Part::OverTime => "over time",
            Part::Aged => "sequential read",
            Part::Idle => "idle",
            Part::Trim => "TRIM",
            Part::Mixed => "mixed",
        }
    }
}

/// One measured load.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where it belongs.
    pub part: Part,
    /// What distinguishes it within its part.
    pub what: String,
    /// The load.
    pub load: Load,
    /// Requests done.
    pub requests: u64,
    /// Bytes per second.
    pub rate: f64,
    /// Mean time of a request, nanoseconds.
    pub mean: f64,
    /// Half of the requests took no longer.
    pub p50: Nanos,
    /// 99% took no longer.
    pub p99: Nanos,
    /// The longest.
    pub worst: Nanos,
}

impl Row {
    /// Requests per second.
    pub fn iops(&self) -> f64 {
        self.rate / self.load.bytes as f64
    }
}

/// A finding, as a share: −0.4 is 40% less.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What is compared.
    pub what: &'static str,
    /// Measured here; `None` where it was not measured.
    pub ours: Option<f64>,
    /// What the source says.
    pub published: &'static str,
}

/// The results of the suite.
#[derive(Debug, Clone)]
pub struct Characteristics {
    /// What was characterised.
    pub subject: String,
    /// Bytes that were accessed.
    pub span: u64,
    /// All loads.
    pub rows: Vec<Row>,
    /// What follows from them.
    pub findings: Vec<Finding>,
    /// Whether the last five windows of random writes differ by less than a fifth from their mean.
    pub steady: Option<bool>,
    /// How long TRIM of half of the space took.
    pub trim_took: Option<Nanos>,
    /// What a NAND model counted.
    pub counters: Option<(Counters, Wear)>,
}

/// Runs the suite. `go_on` is called with the loads done and the loads in all; when it returns false, the suite stops.
pub fn characterise(
    subject: &mut dyn Subject,
    options: &Options,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Characteristics, ProfileError> {
    let total = options.loads();
    subject.prepare(&mut |_| go_on(0, total))?;
    let mut suite = Suite {
        rows: Vec::new(),
        options,
        go_on,
        total,
    };
    let writable = subject.writable();
    let both: &[u64] = if writable { &[100, 0] } else { &[100] };
    for reads in both {
        for random in [false, true] {
            for bytes in &options.sizes {
                for depth in &options.depths {
                    let load = Load {
                        reads: *reads,
                        random,
                        bytes: *bytes,
                        depth: *depth,
                        part: 100,
                    };
                    suite.run(subject, Part::Grid, String::new(), load)?;
                }
            }
        }
    }
    let small = options.sizes.iter().copied().min().unwrap_or(4096);
    let large = options.sizes.iter().copied().max().unwrap_or(4096);
    let deep = options.depths.iter().copied().max().unwrap_or(1);
    let load = |reads, random, bytes, depth, part| Load {
        reads,
        random,
        bytes,
        depth,
        part,
    };
    let mut trim_took = None;
    if writable {
        let read = load(100, false, large, 1, 100);
        let write = load(0, true, small, deep, 100);
        suite.run(subject, Part::Aged, "before random writes".into(), read)?;
        for window in 1..=options.windows {
            suite.run(subject, Part::OverTime, format!("window {window}"), write)?;
        }
        suite.run(subject, Part::Aged, "after random writes".into(), read)?;
        suite.run(subject, Part::Idle, "before".into(), write)?;
        subject.rest(options.idle);
        suite.run(subject, Part::Idle, "after".into(), write)?;
        for percent in MIXTURES {
            let mixed = load(percent, true, small, deep, 100);
            suite.run(subject, Part::Mixed, format!("{percent}% reads"), mixed)?;
        }
        let half = load(0, true, small, deep, 50);
        suite.run(subject, Part::Trim, "without".into(), half)?;
        trim_took = subject.trim(subject.span() / 2, subject.span() / 2)?;
        if trim_took.is_some() {
            suite.run(subject, Part::Trim, "with".into(), half)?;
        }
    }
    let rows = suite.rows;
    Ok(Characteristics {
        subject: subject.describe(),
        span: subject.span(),
        findings: findings(&rows),
        steady: steady(&rows),
        trim_took,
        counters: subject.counters(),
        rows,
    })
}

struct Suite<'a> {
    rows: Vec<Row>,
    options: &'a Options,
    go_on: &'a mut dyn FnMut(u64, u64) -> bool,
    total: u64,
}

impl Suite<'_> {
    fn run(
        &mut self,
        subject: &mut dyn Subject,
        part: Part,
        what: String,
        load: Load,
    ) -> Result<(), ProfileError> {
        let seed = self.options.seed + self.rows.len() as u64;
        let mut sample = subject.run(&load, &self.options.bound, seed)?;
        sample.latencies.sort_unstable();
        let times = &sample.latencies;
        let requests = times.len() as u64;
        self.rows.push(Row {
            part,
            what,
            load,
            requests,
            rate: sample.bytes as f64 * 1e9 / sample.elapsed.max(1) as f64,
            mean: times.iter().sum::<Nanos>() as f64 / requests.max(1) as f64,
            p50: quantile(times, 0.5),
            p99: quantile(times, 0.99),
            worst: times.last().copied().unwrap_or(0),
        });
        if (self.go_on)(self.rows.len() as u64, self.total) {
            Ok(())
        } else {
            Err(ProfileError::Stopped)
        }
    }
}

/// How much higher the throughput of one kind of load is than that of the other: mean over sizes and depths, as a
/// share.
fn compared(rows: &[Row], ours: (u64, bool), other: (u64, bool)) -> Option<f64> {
    let grid = || rows.iter().filter(|r| r.part == Part::Grid);
    let ratios: Vec<f64> = grid()
        .filter(|r| (r.load.reads, r.load.random) == ours)
        .filter_map(|r| {
            let same = |o: &&Row| {
                (o.load.reads, o.load.random) == other
                    && (o.load.bytes, o.load.depth) == (r.load.bytes, r.load.depth)
            };
            Some(r.rate / grid().find(same)?.rate - 1.0)
        })
        .filter(|r| r.is_finite())
        .collect();
    (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

/// Relative change of a value from the first row of a part to the second.
fn changed(rows: &[Row], part: Part, of: impl Fn(&Row) -> f64) -> Option<f64> {
    let mut rows = rows.iter().filter(|r| r.part == part);
    let (first, second) = (of(rows.next()?), of(rows.next()?));
    (first > 0.0).then(|| second / first - 1.0)
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let finding = |what, ours, published| Finding {
        what,
        ours,
        published,
    };
    let first = rows.iter().find(|r| r.part == Part::OverTime);
    let last = rows.iter().rev().find(|r| r.part == Part::OverTime);
    let worn = first.zip(last).map(|(a, b)| b.rate / a.rate - 1.0);
    vec![
        finding(
            "random reads against sequential reads",
            compared(rows, (100, true), (100, false)),
            "-40%",
        ),
        finding(
            "random reads against random writes",
            compared(rows, (100, true), (0, true)),
            "-39%",
        ),
        finding(
            "sequential reads after random writes",
            changed(rows, Part::Aged, |r| r.rate),
            "significantly worse",
        ),
        finding("random writes, last window against first", worn, "worse"),
        finding(
            "random writes after an idle period",
            changed(rows, Part::Idle, |r| r.rate),
            "gains, with limits",
        ),
        finding(
            "their 99th percentile after an idle period",
            changed(rows, Part::Idle, |r| r.p99 as f64),
            "gains, with limits",
        ),
        finding(
            "random writes with TRIM",
            changed(rows, Part::Trim, |r| r.rate),
            "gains, with hidden costs",
        ),
    ]
}

fn steady(rows: &[Row]) -> Option<bool> {
    let rates: Vec<f64> = rows
        .iter()
        .filter(|r| r.part == Part::OverTime)
        .map(|r| r.rate)
        .collect();
    let last = rates.get(rates.len().checked_sub(5)?..)?;
    let mean = last.iter().sum::<f64>() / 5.0;
    Some(last.iter().all(|r| (r / mean - 1.0).abs() < 0.2))
}
