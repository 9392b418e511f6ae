//! Statistics, for status pages and for choosing the algorithm.
use crate::table::{Map, Virtual};
use crate::{Algorithm, Nanos};

/// Most programs counted separately; later ones are counted together under [`ProgramStatistics::OTHERS`].
const MAX_PROGRAMS: usize = 256;
/// Steps of a histogram per power of two.
const STEPS: u32 = 8;

/// A histogram of durations, in steps of 1/8 of a power of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; (64 * STEPS) as usize],
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value: Nanos) {
        self.counts[Histogram::step(value)] += 1;
        self.total += 1;
    }

    fn step(value: u64) -> usize {
        if value < u64::from(STEPS) {
            return value as usize;
        }
        let power = 63 - value.leading_zeros();
        let within = (value >> (power - 3)) as u32 & (STEPS - 1);
        ((power - 2) * STEPS + within) as usize
    }

    /// The smallest duration of a step.
    fn value(step: usize) -> u64 {
        let step = step as u64;
        let steps = u64::from(STEPS);
        if step < steps {
            return step;
        }
        (steps + step % steps) << (step / steps - 1)
    }

    /// Durations counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The duration that this percentage does not exceed, to 1/8; 0 if nothing was counted.
    pub fn percentile(&self, per_cent: f64) -> Nanos {
        let wanted = ((self.total as f64 * per_cent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Histogram::value(step);
            }
        }
        0
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }
}

/// One program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProgramStatistics {
    /// Its number.
    pub program: u64,
    /// Requests completed.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Its share of all bytes, 0 to 1.
    pub share: f64,
    /// Times from arrival to completion.
    pub response: Histogram,
}

impl ProgramStatistics {
    /// Number of all programs beyond those counted separately.
    pub const OTHERS: u64 = u64::MAX;
}

/// Counts since the start or the last reset, and present state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statistics {
    /// The algorithm in use.
    pub algorithm: Algorithm,
    /// Requests waiting now.
    pub queued: u64,
    /// Virtual requests waiting now.
    pub queued_virtual: u64,
    /// Requests being served now.
    pub serving: u64,
    /// Most requests that waited at once.
    pub peak_queued: u64,
    /// Requests added.
    pub arrived: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests refused because of a limit or an invalid value.
    pub refused: u64,
    /// Virtual requests dispatched.
    pub decisions: u64,
    /// Bytes dispatched.
    pub bytes: u64,
    /// Dispatched virtual requests by parts: 1, 2, 3–4, 5–8, …; the last counts all that are larger.
    pub aggregations: [u64; 9],
    /// Parts of the largest virtual request.
    pub largest_aggregation: u32,
    /// Waits for a shifted request.
    pub shift_waits: u64,
    /// Waits for a larger aggregation.
    pub aggregation_waits: u64,
    /// Waits for a predicted aggregation.
    pub predicted_waits: u64,
    /// Requests held back because an earlier one conflicts.
    pub conflicts: u64,
    /// Calls with a time before that of the call before; they count as made at that time.
    pub clock_steps: u64,
    /// Time between arrival and dispatch, per request.
    pub waiting: Histogram,
    /// Programs, by number; at most 256, and the others together.
    pub programs: Vec<ProgramStatistics>,
}

impl Statistics {
    /// Mean parts per virtual request.
    pub fn mean_aggregation(&self) -> f64 {
        match self.decisions {
            0 => 0.0,
            n => self.waiting.count() as f64 / n as f64,
        }
    }
}

/// Collects the statistics.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) counts: Statistics,
    by_program: Map<u64, usize>,
    /// The program of the last completion, and its index: the next completion is likely to be of the same program.
    last: Option<(u64, usize)>,
}

impl Recorder {
    pub(crate) fn dispatched(&mut self, v: &Virtual) {
        let counts = &mut self.counts;
        counts.decisions += 1;
        counts.bytes += v.bytes;
        let size = (32 - (v.parts - 1).leading_zeros()) as usize;
        counts.aggregations[size.min(8)] += 1;
        counts.largest_aggregation = counts.largest_aggregation.max(v.parts);
    }

    pub(crate) fn completed(&mut self, program: u64, bytes: u64, response: Nanos) {
        self.counts.completed += 1;
        let at = match self.last {
            Some((last, at)) if last == program => at,
            _ => self.find(program),
        };
        self.last = Some((program, at));
        let program = &mut self.counts.programs[at];
        program.requests += 1;
        program.bytes += bytes;
        program.response.record(response);
    }

    /// The index under which a program is counted.
    fn find(&mut self, program: u64) -> usize {
        let programs = &mut self.counts.programs;
        let next = programs.len();
        let at = *self.by_program.entry(program).or_insert_with(|| {
            let (at, program) = match next {
                MAX_PROGRAMS => (next, ProgramStatistics::OTHERS),
                0..MAX_PROGRAMS => (next, program),
                _ => (MAX_PROGRAMS, program),
            };
            if at == next {
                programs.push(ProgramStatistics {
                    program,
                    ..ProgramStatistics::default()
                });
            }
            at
        });
        if self.by_program.len() > 4 * MAX_PROGRAMS {
            // Programs counted together are looked up again.
            self.by_program.retain(|_, at| *at < MAX_PROGRAMS);
        }
        at
    }

    pub(crate) fn reset(&mut self) {
        let mut waiting = std::mem::take(&mut self.counts.waiting);
        waiting.clear();
        self.by_program.clear();
        self.last = None;
        self.counts = Statistics {
            waiting,
            ..Statistics::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_an_eighth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(99.0), 0);
        for value in 1..=1000u64 {
            histogram.record(value * 1000);
        }
        for (p, exact) in [(50.0, 500_000f64), (99.0, 990_000.0), (100.0, 1e6)] {
            let got = histogram.percentile(p) as f64;
            assert!(got <= exact && got >= exact * 0.875, "{p}: {got}");
        }
        histogram.record(u64::MAX);
        assert_eq!(histogram.count(), 1001);
        for value in [0, 1, 7, 8, 9, 15, 16, 1 << 40, u64::MAX] {
            let low = Histogram::value(Histogram::step(value));
            assert!(low <= value && value - low <= value / 8, "{value} {low}");
        }
    }

    #[test]
    fn programs_beyond_the_limit_are_counted_together() {
        let mut recorder = Recorder::default();
        for program in 0..5000 {
            recorder.completed(program, 10, 1);
        }
        recorder.completed(3, 10, 1);
        let programs = &recorder.counts.programs;
        assert_eq!(programs.len(), 257);
        assert_eq!(programs[3].requests, 2);
        assert_eq!(programs[256].program, ProgramStatistics::OTHERS);
        assert_eq!(programs.iter().map(|p| p.requests).sum::<u64>(), 5001);
    }
}
