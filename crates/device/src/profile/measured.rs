//! The results of passes over a target: mean times of an access, and their precision.
use super::Interval;
use crate::{Nanos, Op};
use std::collections::BTreeMap;

/// A mean is known well enough when its relative standard error is at most this.
pub(crate) const PRECISION: f64 = 0.03;
/// Ratios from which on a scatter can be computed.
const LEAST_ROUNDS: usize = 3;

/// One of the four tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// Read or write.
    pub op: Op,
    /// Random offsets, not one after the other.
    pub random: bool,
}

impl Test {
    /// All tests, or those that only read.
    pub fn all(writes: bool) -> Vec<Test> {
        let ops = if writes {
            &[Op::Write, Op::Read][..]
        } else {
            &[Op::Read]
        };
        ops.iter()
            .flat_map(|&op| [false, true].map(|random| Test { op, random }))
            .collect()
    }

    /// `sequential_read`, `random_write` …
    pub fn name(self) -> &'static str {
        match (self.random, self.op) {
            (false, Op::Read) => "sequential_read",
            (false, Op::Write) => "sequential_write",
            (true, Op::Read) => "random_read",
            (true, Op::Write) => "random_write",
        }
    }
}

/// What passes have shown.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// For each operation and size, the mean time of an access in nanoseconds, pass by pass: (sequential, random).
    passes: BTreeMap<(Op, u64), Vec<[f64; 2]>>,
    /// Time spent measuring.
    pub(crate) elapsed: Nanos,
}

impl Measured {
    pub(crate) fn add(&mut self, op: Op, size: u64, means: [f64; 2]) {
        self.passes.entry((op, size)).or_default().push(means);
    }

    fn ratios(of: &[[f64; 2]]) -> Vec<f64> {
        of.iter().map(|[s, r]| r / s.max(1.0)).collect()
    }

    /// The ratio of this size is known to [`PRECISION`].
    pub(crate) fn is_known(&self, op: Op, size: u64) -> bool {
        let ratios = self.passes.get(&(op, size)).map(|of| Self::ratios(of));
        ratios.is_some_and(|r| r.len() >= LEAST_ROUNDS && Spread::of(&r).is_narrow())
    }

    /// Whether writes were measured.
    pub(crate) fn writes(&self) -> bool {
        self.passes.keys().any(|(op, _)| *op == Op::Write)
    }

    /// Time of one access in nanoseconds, by size: the median of the sequential passes. For random ones, that median
    /// times the median of the ratios. A disturbance of a sequential pass mostly hits the random pass after it too, and
    /// cancels out of their ratio.
    pub(crate) fn of(&self, test: Test) -> Vec<(u64, f64)> {
        let of_op = self.passes.iter().filter(|((op, _), _)| *op == test.op);
        let time = |of: &[[f64; 2]]| {
            let sequential = median(&mut of.iter().map(|m| m[0]).collect::<Vec<_>>());
            if test.random {
                sequential.max(1.0) * median(&mut Self::ratios(of))
            } else {
                sequential
            }
        };
        of_op.map(|((_, size), of)| (*size, time(of))).collect()
    }

    /// The half width of the 95% confidence interval of an operation's ratios, relative, as the median over sizes.
    /// `None` if sizes were measured once only.
    pub(crate) fn interval(&self, op: Op) -> Option<f64> {
        let of_op = self.passes.iter().filter(|((o, _), _)| *o == op);
        let known = of_op.filter_map(|(_, of)| Spread::of(&Self::ratios(of)).interval());
        let mut known: Vec<f64> = known.collect();
        known.sort_by(f64::total_cmp);
        known.get(known.len() / 2).copied()
    }

    /// Median relative difference between the ratios of the first and the last pass. `None` if there was one pass.
    pub(crate) fn repeat(&self) -> Option<f64> {
        let apart = self.passes.values().filter_map(|of| {
            let ratios = Self::ratios(of);
            let (first, rest) = ratios.split_first()?;
            Some((first / rest.last()? - 1.0).abs())
        });
        let mut apart: Vec<f64> = apart.collect();
        apart.sort_by(f64::total_cmp);
        apart.get(apart.len() / 2).copied()
    }
}

/// Every size of all intervals once.
pub(crate) fn all_sizes(intervals: &[Interval]) -> Vec<u64> {
    let mut sizes: Vec<u64> = intervals.iter().flat_map(Interval::sizes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Count, sum and sum of squares of values.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    pub(crate) n: f64,
    pub(crate) sum: f64,
    squares: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        let mut spread = Spread::default();
        values.iter().for_each(|v| spread.add(*v));
        spread
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.n += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.n.max(1.0)
    }

    /// Relative standard error of the mean; `None` for fewer than two values.
    fn error(&self) -> Option<f64> {
        if self.n < 2.0 {
            return None;
        }
        let mean = self.mean();
        let variance = (self.squares / self.n - mean * mean).max(0.0) / (self.n - 1.0);
        Some(variance.sqrt() / mean.max(f64::MIN_POSITIVE))
    }

    /// Their mean is known to [`PRECISION`].
    pub(crate) fn is_narrow(&self) -> bool {
        self.error().is_some_and(|error| error <= PRECISION)
    }

    /// Half width of the 95% confidence interval of the mean, relative (Student's t).
    fn interval(&self) -> Option<f64> {
        const T: [f64; 8] = [12.7, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31];
        let t = T.get((self.n as usize).checked_sub(2)?).unwrap_or(&2.0);
        Some(t * self.error()?)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreeing_values_are_known_and_others_are_not() {
        assert!(Spread::of(&[100.0, 103.0]).is_narrow());
        assert!(!Spread::of(&[100.0, 110.0]).is_narrow());
        assert!(!Spread::of(&[100.0]).is_narrow());
        assert!(Spread::of(&[90.0, 110.0].repeat(8)).is_narrow());
        // Three values with a standard deviation of 10: 4.3 * 10 / sqrt 3.
        let interval = Spread::of(&[90.0, 100.0, 110.0]).interval().unwrap();
        assert!((interval - 0.248).abs() < 1e-3, "{interval}");
        assert_eq!(Spread::of(&[1.0]).interval(), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
