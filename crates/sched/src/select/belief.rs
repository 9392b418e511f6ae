//! Estimates of the score of each algorithm.
//!
//! *Problem*: one window says little. The same algorithm gives 10% more or less in the next one, and after a change
//! programs and disks need time to reach their rate. A selector that follows the last window changes for nothing.
//! *Idea*: the logarithm of an algorithm's score is a number known up to a standard deviation. Before any measurement
//! it is known relative to the others, from measurements elsewhere (the prior). Each measured window adds information:
//! windows of one turn less than windows of several, old ones less than recent ones. All algorithms share one unknown,
//! the speed of device and programs, so a window of one updates the estimates of all. Means and deviations give the
//! expected gain and loss of a trial. *Source*: Bayesian optimisation with independent normal beliefs (expected
//! improvement); the model is Penstock's.
use crate::Nanos;
use std::collections::VecDeque;

/// Standard deviation of the logarithm of one window's score within a turn.
const WINDOW: f64 = 0.10;
/// Standard deviation of a turn's mean from the algorithm's long-term score.
const TURN: f64 = 0.08;
/// For each second since a measurement its standard deviation grows by this.
const DRIFT: f64 = 0.005;
/// Windows of a turn that count; older ones fade.
const RECENT: f64 = 20.0;

/// What is known before any measurement: a logarithm relative to the others', and its standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prior {
    pub(super) mean: f64,
    pub(super) doubt: f64,
}

/// A logarithm and its variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

impl Estimate {
    /// How much higher this is than the other, by `z` standard deviations below or above the mean.
    pub(super) fn over(&self, other: &Estimate, z: f64) -> f64 {
        self.mean - other.mean + z * self.deviation(other)
    }

    /// Expected improvement over the other and a margin.
    pub(super) fn improvement(&self, other: &Estimate, margin: f64) -> f64 {
        let deviation = self.deviation(other).max(1e-9);
        let z = (self.mean - other.mean - margin) / deviation;
        let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
        // The normal distribution function, to 1%.
        let below = 1.0 / (1.0 + (-1.702 * z).exp());
        deviation * (density + z * below).max(0.0)
    }

    fn deviation(&self, other: &Estimate) -> f64 {
        (self.variance + other.variance).sqrt()
    }
}

/// Consecutive windows of one algorithm.
#[derive(Debug)]
struct Turn {
    last: Nanos,
    windows: f64,
    sum: f64,
}

/// The estimates of all algorithms.
#[derive(Debug)]
pub(super) struct Beliefs {
    priors: Vec<Prior>,
    /// The turns of each algorithm.
    arms: Vec<VecDeque<Turn>>,
    /// Most turns kept of each.
    turns: usize,
    /// Turns older than this do not count.
    memory: Nanos,
}

impl Beliefs {
    pub(super) fn new(priors: Vec<Prior>, turns: usize, memory: Nanos) -> Beliefs {
        let arms = priors.iter().map(|_| VecDeque::new()).collect();
        Beliefs {
            priors,
            arms,
            turns: turns.max(1),
            memory,
        }
    }

    /// Replaces the priors.
    pub(super) fn expect(&mut self, priors: Vec<Prior>) {
        self.priors = priors;
    }

    /// Standard deviation of an algorithm's prior.
    pub(super) fn doubt(&self, which: usize) -> f64 {
        self.priors[which].doubt
    }

    /// The algorithm's turn begins.
    pub(super) fn begin(&mut self, which: usize) {
        let turns = &mut self.arms[which];
        turns.retain(|t| t.windows > 0.0);
        if turns.len() >= self.turns {
            turns.pop_front();
        }
        turns.push_back(Turn {
            last: 0,
            windows: 0.0,
            sum: 0.0,
        });
    }

    /// Adds the score of a window of the current turn.
    pub(super) fn add(&mut self, which: usize, now: Nanos, score: f64) {
        if self.arms[which].is_empty() {
            self.begin(which);
        }
        if let Some(turn) = self.arms[which].back_mut() {
            if turn.windows >= RECENT {
                turn.sum *= (RECENT - 1.0) / RECENT;
                turn.windows = RECENT - 1.0;
            }
            turn.last = now;
            turn.windows += 1.0;
            turn.sum += score.ln();
        }
    }

    /// Forgets the measurements of one algorithm, or of all.
    pub(super) fn forget(&mut self, which: Option<usize>) {
        for (i, arm) in self.arms.iter_mut().enumerate() {
            if which.is_none_or(|w| w == i) {
                arm.clear();
            }
        }
    }

    /// Mean logarithm of an algorithm's measured scores, and its variance.
    fn measured(&self, which: usize, now: Nanos) -> Option<Estimate> {
        let counts = |t: &&Turn| t.windows > 0.0 && t.last + self.memory >= now;
        let (mut sum, mut weights, mut last) = (0.0, 0.0, 0);
        for turn in self.arms[which].iter().filter(counts) {
            let weight = 1.0 / (TURN * TURN + WINDOW * WINDOW / turn.windows);
            sum += weight * turn.sum / turn.windows;
            weights += weight;
            last = last.max(turn.last);
        }
        let age = now.saturating_sub(last) as f64 / 1e9;
        let drift = DRIFT * age;
        (weights > 0.0).then(|| Estimate {
            mean: sum / weights,
            variance: 1.0 / weights + drift * drift,
        })
    }

    /// Mean measured score of an algorithm.
    pub(super) fn score(&self, which: usize, now: Nanos) -> Option<f64> {
        self.measured(which, now).map(|m| m.mean.exp())
    }

    /// The estimate of each algorithm; logarithms relative to an unknown as long as nothing has been measured.
    pub(super) fn estimates(&self, now: Nanos) -> Vec<Estimate> {
        let measured: Vec<_> = (0..self.arms.len())
            .map(|i| self.measured(i, now))
            .collect();
        // The common speed: how far measurements exceed the priors.
        let (mut sum, mut weights) = (0.0, 0.0);
        for (prior, found) in self.priors.iter().zip(&measured) {
            if let Some(found) = found {
                let weight = 1.0 / (prior.doubt * prior.doubt + found.variance);
                sum += weight * (found.mean - prior.mean);
                weights += weight;
            }
        }
        let (scale, spread) = if weights > 0.0 {
            (sum / weights, 1.0 / weights)
        } else {
            (0.0, 0.0)
        };
        let combine = |(prior, found): (&Prior, &Option<Estimate>)| {
            let foretold = Estimate {
                mean: scale + prior.mean,
                variance: prior.doubt * prior.doubt + spread,
            };
            let Some(found) = found else { return foretold };
            let (a, b) = (1.0 / foretold.variance, 1.0 / found.variance);
            Estimate {
                mean: (a * foretold.mean + b * found.mean) / (a + b),
                variance: 1.0 / (a + b),
            }
        };
        self.priors.iter().zip(&measured).map(combine).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn beliefs(means: [f64; 3], doubt: f64) -> Beliefs {
        let priors = means.map(|mean| Prior { mean, doubt });
        Beliefs::new(priors.to_vec(), 4, 100 * SECOND)
    }

    #[test]
    fn one_window_moves_all_and_is_trusted_more_the_more_there_are() {
        let mut b = beliefs([0.0, -0.5, -1.0], 0.2);
        b.add(0, SECOND, 100.0);
        let all = b.estimates(SECOND);
        assert!((all[0].mean - 100f64.ln()).abs() < 0.01);
        assert!((all[1].mean - all[0].mean + 0.5).abs() < 0.01);
        assert!(all[1].variance > all[0].variance);
        for _ in 0..4 {
            b.add(0, SECOND, 100.0);
        }
        let more = b.estimates(SECOND);
        assert!(more[0].variance < all[0].variance);
        assert_eq!(b.score(1, SECOND), None);
        // Where measurements contradict the priors, measurements win.
        b.add(1, SECOND, 200.0);
        let all = b.estimates(SECOND);
        assert!(all[1].mean > all[0].mean && all[2].mean < all[0].mean);
    }

    #[test]
    fn what_was_seen_long_ago_is_less_sure_and_then_forgotten() {
        let mut b = beliefs([0.0; 3], 0.4);
        b.add(0, 0, 100.0);
        b.add(1, 50 * SECOND, 100.0);
        let all = b.estimates(60 * SECOND);
        assert!(all[0].variance > all[1].variance && all[1].variance < all[2].variance);
        assert_eq!(b.score(0, 101 * SECOND), None, "too old");
        b.forget(Some(1));
        assert!(b.score(0, 60 * SECOND).is_some() && b.score(1, 60 * SECOND).is_none());
        b.forget(None);
        assert_eq!(b.score(0, 60 * SECOND), None);
        // Turns without a window leave nothing behind, and long turns follow recent windows.
        for _ in 0..100 {
            b.begin(0);
        }
        for i in 0..200 {
            b.add(0, 0, if i < 100 { 100.0 } else { 200.0 });
        }
        assert!((b.score(0, 0).unwrap() - 200.0).abs() < 2.0);
    }

    #[test]
    fn improvements_are_what_the_normal_distribution_says() {
        let at = |mean, variance| Estimate { mean, variance };
        let known = at(0.0, 0.0);
        assert!((at(0.0, 1.0).improvement(&known, 0.0) - 0.399).abs() < 0.01);
        assert!((at(1.0, 1.0).improvement(&known, 0.0) - 1.083).abs() < 0.01);
        assert!(at(-3.0, 1.0).improvement(&known, 0.0) < 0.01);
        assert!((at(0.5, 1e-12).improvement(&known, 0.1) - 0.4).abs() < 0.01);
        assert!((at(1.0, 4.0).over(&known, -1.0) + 1.0).abs() < 1e-9);
    }
}
