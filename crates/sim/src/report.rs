//! Reports of runs: totals, programs, distributions, and data for plots.
use penstock_base::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run. Equal scenarios give byte-identical reports.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The scenario's.
    pub name: String,
    /// When the last program ended, in virtual nanoseconds.
    pub makespan: Nanos,
    /// Bytes that programs requested.
    pub bytes: u64,
    /// Bytes that the operations covered, requested or not.
    pub accessed: u64,
    /// Bytes that ranks exchanged.
    pub resent: u64,
    /// Requested bytes per second of makespan; with a measured part, bytes per second of that part.
    pub throughput: f64,
    /// File system operations.
    pub operations: u64,
    /// Requests to data servers.
    pub requests: u64,
    /// Decisions of the servers' schedulers.
    pub decisions: u64,
    /// How often a server chose another algorithm by itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub choices: u64,
    /// Waits for predicted requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub predicted_waits: u64,
    /// Requests of the servers to their devices.
    pub device_requests: u64,
    /// Bytes of these requests.
    pub device_bytes: u64,
    /// Mean distance between consecutive requests to a device, in bytes.
    pub seek_distance: f64,
    /// Median duration of an operation, nanoseconds.
    pub latency_p50: Nanos,
    /// 99th percentile of the duration of an operation, nanoseconds.
    pub latency_p99: Nanos,
    /// Jain's index of the servers' bytes: 1 if all moved the same, 1/n if one moved all.
    pub balance: f64,
    /// Events of the simulation.
    pub events: u64,
    /// Each program instance.
    pub programs: Vec<ProgramReport>,
    /// Bytes that programs read or wrote, over time.
    #[serde(skip)]
    pub timeline: Timeline,
    /// Head position of the first server's device, over time.
    #[serde(skip)]
    pub head: Vec<(Nanos, u64)>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One program instance.
#[derive(Debug, Clone, Serialize)]
pub struct ProgramReport {
    /// The benchmark.
    pub benchmark: String,
    /// Which of the scenario's programs.
    pub program: usize,
    /// Which instance of it.
    pub instance: u32,
    /// When it started, virtual nanoseconds.
    pub start: Nanos,
    /// When it ended, virtual nanoseconds.
    pub end: Nanos,
    /// Bytes it requested.
    pub bytes: u64,
    /// Bytes per second from start to end.
    pub throughput: f64,
    /// Share of its ranks' time spent in I/O.
    pub io_share: f64,
    /// What the orchestrator did for it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestrated: Option<Orchestrated>,
}

/// What the orchestrator did for a program.
#[derive(Debug, Clone, Serialize)]
pub struct Orchestrated {
    /// Share of the windows in which it had a slice of its own, of those in which it was judged.
    pub eligible: f64,
    /// Share of its own slices in the time of all slices.
    pub time: f64,
    /// Windows of each verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
}

/// Bytes over time, in at most [`Timeline::MOST`] equal steps; when the run is longer, steps are doubled.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// Length of a step.
    pub step: Nanos,
    /// Bytes in each step.
    pub bytes: Vec<u64>,
    /// The time from which bytes are counted, and their number.
    pub(crate) from: Nanos,
    pub(crate) counted: u64,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            step: 1_000_000,
            bytes: Vec::new(),
            from: 0,
            counted: 0,
        }
    }
}

impl Timeline {
    /// Most steps.
    pub const MOST: usize = 1024;

    pub(crate) fn add(&mut self, at: Nanos, bytes: u64) {
        while at / self.step >= Self::MOST as u64 {
            self.step *= 2;
            let halved = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.bytes = halved;
        }
        let place = (at / self.step) as usize;
        if self.bytes.len() <= place {
            self.bytes.resize(place + 1, 0);
        }
        self.bytes[place] += bytes;
        if at >= self.from {
            self.counted += bytes;
        }
    }
}

/// Samples of a position: when there are too many, every other one is dropped and the sampling rate halves.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    every: u64,
    seen: u64,
    pub kept: Vec<(Nanos, u64)>,
}

impl Samples {
    const MOST: usize = 20_000;

    pub(crate) fn new() -> Samples {
        Samples {
            every: 1,
            seen: 0,
            kept: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, at: Nanos, value: u64) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() >= Self::MOST {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            self.kept.push((at, value));
        }
        self.seen += 1;
    }
}

/// A histogram of times whose buckets grow by a 16th.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    all: u64,
}

impl Latencies {
    const PARTS: u32 = 4;

    pub(crate) fn new() -> Latencies {
        Latencies {
            buckets: vec![0; 64 << Self::PARTS],
            all: 0,
        }
    }

    fn bucket(time: Nanos) -> usize {
        let time = time.max(1 << Self::PARTS);
        let power = time.ilog2();
        let part = (time >> (power - Self::PARTS)) & ((1 << Self::PARTS) - 1);
        ((u64::from(power) << Self::PARTS) | part) as usize
    }

    pub(crate) fn add(&mut self, time: Nanos) {
        self.buckets[Self::bucket(time)] += 1;
        self.all += 1;
    }

    /// The lower edge of the bucket below which `share` of all times are.
    pub(crate) fn quantile(&self, share: f64) -> Nanos {
        let wanted = (self.all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted && seen > 0 {
                let (power, part) = (
                    (i >> Self::PARTS) as u32,
                    i as u64 & ((1 << Self::PARTS) - 1),
                );
                return (1u64 << power) + (part << power.saturating_sub(Self::PARTS));
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_and_lose_nothing() {
        let mut line = Timeline::default();
        for i in 0..5000u64 {
            line.add(i * 1_000_000, 3);
        }
        assert!(line.bytes.len() <= Timeline::MOST);
        assert_eq!(line.bytes.iter().sum::<u64>(), 15_000);
    }

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let mut all = Latencies::new();
        for i in 1..=1000u64 {
            all.add(i * 1000);
        }
        for (share, exact) in [(0.5, 500_000.0), (0.99, 990_000.0)] {
            let got = all.quantile(share) as f64;
            assert!((got / exact - 1.0).abs() < 0.07, "{share}: {got}");
        }
    }

    #[test]
    fn samples_stay_few() {
        let mut samples = Samples::new();
        for i in 0..1_000_000 {
            samples.add(i, i);
        }
        assert!(samples.kept.len() <= 20_000 && samples.kept.len() > 5_000);
    }
}
