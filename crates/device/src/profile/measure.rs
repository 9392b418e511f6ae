//! Passes over a target: which sizes, which offsets, and how the times of a pass are counted.
use super::measured::{Measured, PRECISION, Spread, Test, all_sizes};
use super::report::{self, Profile};
use super::{Options, ProfileError, Target};
use crate::load::random_addresses;
use crate::{Nanos, Op};
use std::collections::{BTreeMap, BTreeSet};

/// The phase of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The file is written.
    Preparing,
    /// The sizes of the estimate are measured.
    Measuring,
    /// All sizes are measured.
    MeasuringAll,
}

/// Progress of a profile; the caller's function returns false to stop it.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The phase.
    pub step: Step,
    /// Work done in this phase.
    pub done: u64,
    /// Work of this phase in all.
    pub total: u64,
}

/// Least accesses of a pass, whatever their size.
const LEAST: u64 = 8;
/// Passes of a size in an estimate.
const MOST_ROUNDS: usize = 8;
/// The share of the allowed time that is used, because the forecast of the full measurement rests on few passes.
const SPARE: f64 = 0.9;
/// Accesses between two checks whether to stop.
const LOOK: u64 = 64;

/// Measures a target and estimates all sizes. `progress` is called after each pass and returns false to stop.
pub fn profile(
    target: &mut dyn Target,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Profile, ProfileError> {
    options.check(target.alignment())?;
    let mut tell = |step, done, total| {
        if progress(Progress { step, done, total }) {
            Ok(())
        } else {
            Err(ProfileError::Stopped)
        }
    };
    tell(Step::Preparing, 0, options.file)?;
    target.prepare(options.file, &mut |done| {
        tell(Step::Preparing, done, options.file).is_ok()
    })?;
    let sizes = chosen(options);
    let estimate = Passes {
        options,
        step: Step::Measuring,
        whole: false,
    };
    let measured = estimate.run(target, &sizes, &mut tell)?;
    let full = if options.full {
        let all: Vec<u64> = all_sizes(&options.intervals);
        let passes = Passes {
            options,
            step: Step::MeasuringAll,
            whole: true,
        };
        Some(passes.run(target, &all, &mut tell)?)
    } else {
        None
    };
    Ok(report::report(
        target.describe(),
        options,
        &measured,
        full.as_ref(),
    ))
}

/// The sizes that are measured: both ends of each interval, and others at random.
fn chosen(options: &Options) -> Vec<u64> {
    let mut sizes = Vec::new();
    for (i, interval) in options.intervals.iter().enumerate() {
        let all = interval.sizes();
        let inner = &all[1..all.len() - 1];
        sizes.extend([interval.from, interval.to]);
        // One size from each equal part of the interval, so that random choice leaves no part out.
        let wanted = (options.points - 2).min(inner.len());
        let mut random = random_addresses(options.seed.wrapping_add(i as u64), 1 << 32, 1);
        for part in 0..wanted {
            let (low, high) = (
                part * inner.len() / wanted,
                (part + 1) * inner.len() / wanted,
            );
            sizes.push(inner[low + (random() % (high - low) as u64) as usize]);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

struct Passes<'a> {
    options: &'a Options,
    step: Step,
    /// True: passes go through the whole file, as many as asked for. False: passes are samples, within the allowed
    /// time.
    whole: bool,
}

type Tell<'a> = dyn FnMut(Step, u64, u64) -> Result<(), ProfileError> + 'a;

impl Passes<'_> {
    /// Reads come first, so that they do not pay for writes that the device has still to complete. Then rounds over all
    /// sizes follow: a disturbance of some seconds hits one round, and the median drops it. The sequential and the
    /// random pass of a size follow each other, so that a longer disturbance hits both.
    fn run(
        &self,
        target: &mut dyn Target,
        sizes: &[u64],
        tell: &mut Tell,
    ) -> Result<Measured, ProfileError> {
        let tests = Test::all(target.writable());
        let rounds = if self.whole {
            self.options.repetitions
        } else {
            MOST_ROUNDS
        };
        let total = (sizes.len() * tests.len() * rounds) as u64;
        let mut done = 0;
        let mut measured = Measured::default();
        let mut allowed: Nanos = 0;
        for op in [Op::Read, Op::Write] {
            let of_op: Vec<Test> = tests.iter().copied().filter(|t| t.op == op).collect();
            if of_op.is_empty() {
                continue;
            }
            measured.elapsed = measured.elapsed.saturating_add(self.settle(target, op)?);
            let mut costs: BTreeMap<u64, Nanos> = BTreeMap::new();
            // Sizes whose writes become slower or faster once the device's cache has been filled.
            let mut lingering: BTreeSet<u64> = BTreeSet::new();
            for round in 0..rounds {
                for i in 0..sizes.len() {
                    // Each round begins at another size, because the last round may end early.
                    let size = sizes[(i + round * 2) % sizes.len()];
                    tell(self.step, done, total)?;
                    done += of_op.len() as u64;
                    let enough = match costs.get(&size) {
                        Some(cost) if !self.whole => {
                            measured.elapsed.saturating_add(*cost) > allowed
                                || measured.is_known(op, size)
                        }
                        _ => false,
                    };
                    if enough {
                        continue;
                    }
                    let seed = self.options.seed ^ size << 8 ^ round as u64;
                    let (mut means, mut cost) = ([0.0; 2], 0);
                    let long = op == Op::Write && (round == 0 || lingering.contains(&size));
                    // The order alternates: a pass leaves the device in another state than it found.
                    let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                    for test in order.map(|i| of_op[i]) {
                        let pass = self.pass(target, test, size, (seed, long), &mut || {
                            tell(self.step, done, total)
                        })?;
                        means[usize::from(test.random)] = pass.mean;
                        cost += pass.took;
                        if long && (pass.mean / pass.begin.max(1.0) - 1.0).abs() > PRECISION {
                            lingering.insert(size);
                        }
                    }
                    measured.add(op, size, means);
                    measured.elapsed = measured.elapsed.saturating_add(cost);
                    costs.insert(size, cost);
                }
                if round == 0 && !self.whole {
                    let all = self.forecast(&measured, &of_op) / self.options.part as f64;
                    allowed = allowed.saturating_add((all * SPARE) as Nanos);
                }
            }
        }
        tell(self.step, total, total)?;
        Ok(measured)
    }

    /// Forecast of the full measurement in nanoseconds: passes over the whole file, of all sizes, as many as asked for.
    fn forecast(&self, measured: &Measured, tests: &[Test]) -> f64 {
        let of_test = |test: &Test| -> f64 {
            let curve = report::curve(*test, self.options, measured, None);
            let pass = |(size, time): &(u64, f64)| {
                let warm = match test.op {
                    Op::Write => self.options.warm_up / size,
                    Op::Read => 0,
                };
                (self.options.file / size + warm) as f64 * time
            };
            curve.estimated.iter().map(pass).sum()
        };
        tests.iter().map(of_test).sum::<f64>() * self.options.repetitions as f64
    }

    /// Before reads: reads as many bytes as the device's cache holds, so that written data has left it.
    fn settle(&self, target: &mut dyn Target, op: Op) -> Result<Nanos, ProfileError> {
        let mut elapsed: Nanos = 0;
        let largest = self.options.intervals.iter().map(|i| i.to).max();
        let (Op::Read, Some(size)) = (op, largest) else {
            return Ok(0);
        };
        for i in 0..(self.options.warm_up / size).min(self.options.file / size) {
            elapsed = elapsed.saturating_add(target.access(op, i * size, size)?);
        }
        Ok(elapsed)
    }

    /// One pass; with `long` it continues until the bytes measured would fill the device's cache.
    fn pass(
        &self,
        target: &mut dyn Target,
        test: Test,
        size: u64,
        (seed, long): (u64, bool),
        tell: &mut dyn FnMut() -> Result<(), ProfileError>,
    ) -> Result<Pass, ProfileError> {
        let slots = self.options.file / size;
        let usual = if self.whole {
            slots
        } else {
            self.options
                .accesses
                .min((self.options.sample / size).max(LEAST))
                .min(slots)
        };
        let least = if long {
            (self.options.warm_up / size).min(slots)
        } else {
            0
        };
        let count = usual.max(least);
        let warm = match (test.op, self.whole) {
            (Op::Write, _) => (self.options.warm_up / size).min(slots) + 1,
            // The first access of a pass is a seek from where the last one ended, and is not counted.
            (Op::Read, false) => 1,
            (Op::Read, true) => 0,
        };
        let mut random = random_addresses(seed, slots * size, size);
        // Samples begin anywhere, because the ends of a file are no more typical than its middle.
        let begin = if self.whole { 0 } else { random() / size };
        let (mut spread, mut elapsed): (Spread, Nanos) = (Spread::default(), 0);
        let mut begin_mean = None;
        for i in 0..warm + count {
            if i % LOOK == LOOK - 1 {
                tell()?;
            }
            let offset = if test.random {
                random()
            } else {
                (begin + i) % slots * size
            };
            let took = target.access(test.op, offset, size)?;
            elapsed = elapsed.saturating_add(took);
            if i >= warm {
                spread.add(took as f64);
            }
            // Sequential accesses are fast, and their delays are rare: these passes are not cut short.
            let narrow = spread.n >= LEAST as f64 && spread.is_narrow();
            let enough = spread.n >= usual as f64 || test.random && !self.whole && narrow;
            if enough {
                begin_mean.get_or_insert(spread.mean());
                if spread.n >= least as f64 {
                    break;
                }
            }
        }
        let mean = spread.mean();
        Ok(Pass {
            mean,
            begin: begin_mean.unwrap_or(mean),
            took: elapsed,
        })
    }
}

/// The result of a pass, nanoseconds.
struct Pass {
    /// Mean time of the measured accesses.
    mean: f64,
    /// Mean of as many accesses as a usual pass has.
    begin: f64,
    /// Duration of all accesses.
    took: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_sizes() {
        let options = Options::default();
        let all = all_sizes(&options.intervals);
        assert_eq!(all.len(), 8 + 127 - 1);
        assert_eq!((all[0], all[all.len() - 1]), (8 << 10, 4 << 20));
        for seed in 0..50 {
            let sizes = chosen(&Options {
                seed,
                ..options.clone()
            });
            assert_eq!(sizes.len(), 5);
            for end in [8 << 10, 64 << 10, 4 << 20] {
                assert!(sizes.contains(&end));
            }
            assert!(sizes.iter().all(|s| all.contains(s)));
        }
        let every = chosen(&Options {
            points: 1000,
            ..options
        });
        assert_eq!(every, all);
    }
}
