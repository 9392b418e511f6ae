//! Online selection: try, measure, keep what gives most, look again now and then.
//!
//! Problem: a tree knows the devices and programs that it was learnt from, and nothing of the ones at hand.
//! Idea: time is cut into windows; each gives the running algorithm one sample of the objective. The tree's choice
//! comes first, then every other algorithm once (with the tree `own`: those that promise enough); from then on the one with the best recent samples runs. A small
//! share of the windows goes to others, those that looked good more often. Changing costs: bytes that a new algorithm
//! moved less while it settled are remembered, and a change is made only where the gain over the horizon exceeds
//! them. When the load changes (the running algorithm's own samples fall for some windows, or the situation does), old
//! samples are forgotten; when they rise, only its own. Each such fall makes the next one need three times as many
//! windows: where rates swing by themselves, trials after each swing would keep programs out of step.
//! After a change rates may rise for a second: a disk that reads ahead has to find its streams again, programs fall in step.
//! So a window in whose second half much more was moved than in its first is no sample, and the turn goes on.
//! When it pays: loads that last seconds. A trial costs its window at worst, and is given up at half of it if it goes
//! badly. Parameters: [`SelectorOptions`]. Source: TS section 6.4 leaves re-selection as future work; the shape
//! (each once, then by measured bandwidth with a floor of 3%, ten samples of 360 s) is that of AGIOS's later selector.

use super::own::{self, Row};
use super::{Situation, Tree};
use crate::{Algorithm, Nanos};
use std::collections::VecDeque;

const MILLI: Nanos = 1_000_000;
/// Programs told apart for fairness; more count as one.
const PROGRAMS: usize = 1024;
/// Odd windows in a row that show another load, at first and at most.
const PATIENCE: u32 = 3;
const MAX_PATIENCE: u32 = 243;
/// After a change, windows whose second half gives so much more than the first don't count, up to so many.
const RISING: f64 = 1.08;
const SETTLE: u32 = 6;
/// Response times kept of one window.
const RESPONSES: usize = 4096;

/// What is to be best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Objective {
    /// Bytes per second.
    #[default]
    Bandwidth,
    /// Equal slowdown: Jain's index of the programs' bytes per time waited, times the bandwidth.
    Fairness,
    /// The 99th percentile of response times.
    P99,
}

impl Objective {
    /// All, with the names that users write.
    pub const ALL: [(Objective, &'static str); 3] = [
        (Objective::Bandwidth, "bandwidth"),
        (Objective::Fairness, "fairness"),
        (Objective::P99, "p99"),
    ];
}

/// The numbers of the selector.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectorOptions {
    /// What is to be best.
    pub objective: Objective,
    /// The tree that is asked first.
    pub tree: Tree,
    /// Algorithms to choose from.
    pub candidates: Vec<Algorithm>,
    /// Length of a window.
    pub window: Nanos,
    /// A window goes on until so many requests are completed, up to eight times its length.
    pub completions: u64,
    /// Share of windows that go to others than the best.
    pub explore: f64,
    /// Samples kept of each algorithm.
    pub samples: usize,
    /// Older samples don't count.
    pub memory: Nanos,
    /// A change must gain this share.
    pub margin: f64,
    /// Windows over which a change has to earn its cost.
    pub horizon: f64,
    /// With a tree that says what to expect (`own`): algorithms that promise less than this share of the best one are
    /// left to chance.
    pub worth: f64,
    /// Measurements to expect by instead of those of `own`; empty: those.
    pub experience: Vec<Row>,
    /// Of the choices among trials; the same seed and events give the same decisions.
    pub seed: u64,
}

impl Default for SelectorOptions {
    fn default() -> SelectorOptions {
        SelectorOptions {
            objective: Objective::Bandwidth,
            tree: Tree::T3,
            candidates: vec![
                Algorithm::To,
                Algorithm::ToAgg,
                Algorithm::Sjf,
                Algorithm::Mlf,
                Algorithm::Aioli,
            ],
            window: 250 * MILLI,
            completions: 64,
            explore: 0.03,
            samples: 10,
            memory: 360_000 * MILLI,
            margin: 0.03,
            horizon: 20.0,
            worth: 0.9,
            experience: Vec::new(),
            seed: 1,
        }
    }
}

impl SelectorOptions {
    fn expect(&self, situation: &Situation) -> Vec<(Algorithm, f64)> {
        let expected = match self.experience.is_empty() {
            true => self.tree.expect(situation),
            false => own::expect(self.experience.iter(), situation),
        };
        expected.map_or(Vec::new(), |all| all.to_vec())
    }

    fn choose(&self, situation: &Situation, expected: &[(Algorithm, f64)]) -> Algorithm {
        own::best(expected).unwrap_or_else(|| self.tree.choose(situation))
    }
}

/// A choice and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Nanos,
    /// What runs from now on.
    pub algorithm: Algorithm,
    /// Why.
    pub reason: String,
    /// The mean of the recent samples of each algorithm that has some, in units of the objective.
    pub scores: Vec<(Algorithm, f64)>,
}

#[derive(Debug, Default)]
struct Arm {
    samples: VecDeque<(Nanos, f64)>,
    /// Windows' worth of the objective lost by changing to it.
    cost: f64,
}

impl Arm {
    fn mean(&self, now: Nanos, memory: Nanos) -> Option<f64> {
        let recent = self.samples.iter().filter(|s| s.0 + memory >= now);
        let (sum, n) = recent.fold((0.0, 0), |(sum, n), s| (sum + s.1, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    }
}

/// What one stretch of time saw.
#[derive(Debug, Default)]
struct Stretch {
    bytes: u64,
    completions: u64,
    busy: Nanos,
    /// (program, bytes, time waited)
    programs: Vec<(u32, u64, Nanos)>,
    responses: Vec<Nanos>,
}

impl Stretch {
    fn clear(&mut self) {
        self.bytes = 0;
        self.completions = 0;
        self.busy = 0;
        self.programs.clear();
        self.responses.clear();
    }

    /// The second half had clearly more bytes per time than the first.
    fn rises(&self, half: Option<(u64, Nanos)>) -> bool {
        let Some((bytes, busy)) = half.filter(|h| self.busy > h.1) else {
            return false;
        };
        let first = bytes as f64 / busy.max(1) as f64;
        let second = (self.bytes - bytes) as f64 / (self.busy - busy) as f64;
        second > RISING * first
    }

    fn score(&mut self, objective: Objective) -> f64 {
        let rate = self.bytes as f64 * 1e9 / self.busy.max(1) as f64;
        match objective {
            Objective::Bandwidth => rate,
            Objective::Fairness => {
                let speeds = self.programs.iter().map(|p| p.1 as f64 / p.2.max(1) as f64);
                let (mut sum, mut squares) = (0.0, 0.0);
                for speed in speeds {
                    sum += speed;
                    squares += speed * speed;
                }
                let n = self.programs.len().max(1) as f64;
                rate * sum * sum / (n * squares).max(f64::MIN_POSITIVE)
            }
            Objective::P99 => {
                self.responses.sort_unstable();
                let at = (self.responses.len() * 99 / 100).min(self.responses.len().max(1) - 1);
                1e9 / self.responses.get(at).copied().unwrap_or(u64::MAX).max(1) as f64
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What was queued by the algorithm before is still being served.
    Settling,
    Measuring,
}

/// The state machine. Tell it of arrivals and completions, ask it for decisions.
#[derive(Debug)]
pub struct Selector {
    options: SelectorOptions,
    arms: Vec<Arm>,
    current: usize,
    /// The running algorithm is on trial; this one is taken to be the best.
    trial: bool,
    /// It has been looked at half-way.
    checked: bool,
    /// Bytes and busy time of the window's first half.
    half: Option<(u64, Nanos)>,
    /// Windows since the last change.
    age: u32,
    phase: Phase,
    begun: Nanos,
    stretch: Stretch,
    held: u64,
    busy_since: Option<Nanos>,
    surprises: u32,
    patience: u32,
    since_trial: f64,
    random: u64,
    switches: u64,
    windows: u64,
    situation: Option<Situation>,
    /// What each algorithm promises, relative to each other; empty: nobody knows.
    expected: Vec<(Algorithm, f64)>,
    last: Option<Decision>,
}

impl Selector {
    /// Begins at `now` with what the tree says of `situation`, or with the first candidate. No candidate: TO.
    pub fn new(now: Nanos, mut options: SelectorOptions, situation: Option<Situation>) -> Selector {
        if options.candidates.is_empty() {
            options.candidates.push(Algorithm::To);
        }
        let expected = situation.map_or(Vec::new(), |s| options.expect(&s));
        let prior = situation.map(|s| options.choose(&s, &expected));
        let current = prior.and_then(|p| options.candidates.iter().position(|c| *c == p));
        let arms = options.candidates.iter().map(|_| Arm::default()).collect();
        let mut selector = Selector {
            random: options.seed | 1,
            options,
            arms,
            current: current.unwrap_or(0),
            trial: false,
            checked: false,
            half: None,
            age: 0,
            phase: Phase::Measuring,
            begun: now,
            stretch: Stretch::default(),
            held: 0,
            busy_since: None,
            surprises: 0,
            patience: PATIENCE,
            since_trial: 0.0,
            switches: 0,
            windows: 0,
            situation,
            expected,
            last: None,
        };
        let reason = match (situation, current) {
            (Some(s), Some(_)) => format!("{} says so for {s}", selector.options.tree.name()),
            _ => "first to be tried".to_owned(),
        };
        selector.last = Some(selector.decision(now, reason));
        selector
    }

    /// What runs.
    pub fn algorithm(&self) -> Algorithm {
        self.options.candidates[self.current]
    }

    /// The last decision.
    pub fn last(&self) -> Option<&Decision> {
        self.last.as_ref()
    }

    /// Changes made so far.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Windows that have been measured so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// It has tried everything and keeps what is best: another selector may try something now.
    pub fn is_resting(&self) -> bool {
        self.untried(self.begun).is_none() && !self.trial && self.phase == Phase::Measuring
    }

    /// Goes on after a time in which others tried something: what it has begun to measure says nothing.
    pub fn resume(&mut self, now: Nanos) {
        self.restart(now, Phase::Measuring);
    }

    /// What is to be best.
    pub fn objective(&self) -> Objective {
        self.options.objective
    }

    /// Another objective from now on: what was measured means nothing to it.
    pub fn set_objective(&mut self, now: Nanos, objective: Objective) {
        if objective != self.options.objective {
            self.options.objective = objective;
            self.patience = PATIENCE;
            self.forget(now);
        }
    }

    /// What the load looks like now. When the tree's answer to it changes, that runs, and all is tried anew.
    pub fn observe(&mut self, now: Nanos, situation: Situation) -> Option<Decision> {
        let expected = self.options.expect(&situation);
        let choice = self.options.choose(&situation, &expected);
        let changed = self
            .situation
            .is_none_or(|old| self.options.choose(&old, &self.expected) != choice);
        self.situation = Some(situation);
        self.expected = expected;
        if !changed {
            return None;
        }
        self.patience = PATIENCE;
        self.forget(now);
        let to = self.options.candidates.iter().position(|c| *c == choice)?;
        let reason = format!("{} says so for {situation}", self.options.tree.name());
        if to == self.current {
            self.last = Some(self.decision(now, reason));
            return None;
        }
        self.change(now, to, false, reason)
    }

    /// The mean of the recent samples of each algorithm that has some, in units of the objective.
    pub fn scores(&self, now: Nanos) -> Vec<(Algorithm, f64)> {
        let arms = self.arms.iter().zip(&self.options.candidates);
        arms.filter_map(|(arm, a)| Some((*a, arm.mean(now, self.options.memory)?)))
            .collect()
    }

    /// A request has come.
    pub fn arrived(&mut self, now: Nanos) {
        self.held += 1;
        self.busy_since.get_or_insert(now);
    }

    /// A request of `program` is done, `response` after it came.
    pub fn completed(&mut self, now: Nanos, program: u32, bytes: u64, response: Nanos) {
        self.held = self.held.saturating_sub(1);
        let s = &mut self.stretch;
        s.bytes += bytes;
        s.completions += 1;
        if s.responses.len() < RESPONSES {
            s.responses.push(response);
        }
        match s.programs.iter().position(|p| p.0 == program) {
            Some(i) => {
                let p = &mut s.programs[i];
                p.1 += bytes;
                p.2 += response;
            }
            None if s.programs.len() < PROGRAMS => s.programs.push((program, bytes, response)),
            None => {}
        }
        if self.held == 0 {
            self.account(now);
            self.busy_since = None;
        }
    }

    fn account(&mut self, now: Nanos) {
        if let Some(since) = &mut self.busy_since {
            self.stretch.busy += now.saturating_sub(*since);
            *since = now;
        }
    }

    /// When [`Self::decide`] is to be asked next at the latest.
    pub fn due(&self) -> Nanos {
        let part = if self.phase == Phase::Settling { 4 } else { 1 };
        self.begun + self.options.window / part
    }

    /// A decision, when a window has ended and something else is to run. Ask after completions.
    pub fn decide(&mut self, now: Nanos) -> Option<Decision> {
        self.account(now);
        let (window, completions) = (self.options.window, self.options.completions);
        let elapsed = now.saturating_sub(self.begun);
        match self.phase {
            Phase::Settling => {
                if elapsed * 4 >= window {
                    self.settle(now);
                }
                return None;
            }
            Phase::Measuring
                if self.trial
                    && !self.checked
                    && elapsed * 2 >= window
                    && self.stretch.completions * 4 >= completions =>
            {
                // A trial that goes badly is given up early. Looked at once: a percentile costs a sort.
                self.checked = true;
                let best = self.best(now).map_or(0.0, |b| b.1);
                if self.stretch.score(self.options.objective) < 0.7 * best {
                    return self.end_window(now);
                }
            }
            Phase::Measuring => {}
        }
        if self.half.is_none() && elapsed * 2 >= window {
            self.half = Some((self.stretch.bytes, self.stretch.busy));
        }
        let enough = self.stretch.completions >= completions || elapsed >= 8 * window;
        if self.stretch.completions == 0 {
            // Nothing was asked for: nothing is learnt.
            if elapsed >= window && self.held == 0 {
                self.restart(now, Phase::Measuring);
            }
            return None;
        }
        if elapsed < window || !enough {
            return None;
        }
        self.end_window(now)
    }

    fn settle(&mut self, now: Nanos) {
        // What was moved less than expected while settling is the cost of the change, in windows.
        if let Some(mean) = self.arms[self.current].mean(now, self.options.memory) {
            let score = self.stretch.score(self.options.objective);
            let lost = (1.0 - score / mean.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) / 4.0;
            let arm = &mut self.arms[self.current];
            arm.cost = (arm.cost + lost) / 2.0;
        }
        self.restart(now, Phase::Measuring);
    }

    fn end_window(&mut self, now: Nanos) -> Option<Decision> {
        self.windows += 1;
        self.age += 1;
        if self.age < SETTLE && self.stretch.rises(self.half) {
            self.restart(now, Phase::Measuring);
            return None;
        }
        self.age = SETTLE;
        let score = self.stretch.score(self.options.objective);
        let before = self.arms[self.current].mean(now, self.options.memory);
        let arm = &mut self.arms[self.current];
        if arm.samples.len() >= self.options.samples.max(1) {
            arm.samples.pop_front();
        }
        arm.samples.push_back((now, score));
        self.restart(now, Phase::Measuring);
        if let Some(mean) = before.filter(|_| !self.trial) {
            let odd = score < 0.6 * mean || score > 1.7 * mean;
            self.surprises = if odd { self.surprises + 1 } else { 0 };
            if self.surprises >= self.patience {
                if score > mean {
                    self.surprises = 0;
                    self.arms[self.current].samples.clear();
                } else {
                    self.patience = (self.patience * 3).min(MAX_PATIENCE);
                    self.forget(now);
                }
                self.arms[self.current].samples.push_back((now, score));
            }
        }
        if let Some(next) = self.untried(now) {
            return self.change(now, next, true, "not tried yet".to_owned());
        }
        let (best, top) = self.best(now)?;
        let own = self.arms[self.current].mean(now, self.options.memory)?;
        let gain = top / own.max(f64::MIN_POSITIVE) - 1.0;
        if best != self.current {
            let cost = self.arms[best].cost / self.options.horizon.max(1.0);
            // After a trial one goes back unless the trial was as good.
            if gain > self.options.margin + cost || self.trial && gain > 0.0 {
                let reason = format!("{:.0}% better over recent windows", gain * 100.0);
                return self.change(now, best, false, reason);
            }
        }
        self.trial = false;
        self.since_trial += self.options.explore;
        if self.since_trial >= 1.0 && self.arms.len() > 1 {
            self.since_trial = 0.0;
            let next = self.draw(now, top)?;
            return self.change(now, next, true, "tried again".to_owned());
        }
        None
    }

    /// Another algorithm for a trial, the more likely the better it looked; hopeless ones are left out mostly.
    fn draw(&mut self, now: Nanos, top: f64) -> Option<usize> {
        let memory = self.options.memory;
        let weight = |arm: &Arm| {
            let share = arm.mean(now, memory).unwrap_or(top) / top.max(f64::MIN_POSITIVE);
            (share * share * share * share).max(0.01)
        };
        let others = (0..self.arms.len()).filter(|i| *i != self.current);
        let total: f64 = others.clone().map(|i| weight(&self.arms[i])).sum();
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let mut point = (self.random >> 11) as f64 / (1u64 << 53) as f64 * total;
        let mut last = None;
        for i in others {
            last = Some(i);
            point -= weight(&self.arms[i]);
            if point <= 0.0 {
                break;
            }
        }
        last
    }

    /// An algorithm without a sample that promises enough; the most promising one.
    fn untried(&self, now: Nanos) -> Option<usize> {
        let promise = |i: usize| {
            let found = self
                .expected
                .iter()
                .find(|e| e.0 == self.options.candidates[i]);
            found.map_or(1.0, |e| e.1)
        };
        let top = self.expected.iter().map(|e| e.1).fold(0.0, f64::max);
        let untried = (0..self.arms.len()).filter(|i| {
            let unknown = self.arms[*i].mean(now, self.options.memory).is_none();
            unknown && promise(*i) >= self.options.worth * top
        });
        untried.max_by(|a, b| promise(*a).total_cmp(&promise(*b)).then(b.cmp(a)))
    }

    fn best(&self, now: Nanos) -> Option<(usize, f64)> {
        let means = self.arms.iter().enumerate();
        let means = means.filter_map(|(i, a)| Some((i, a.mean(now, self.options.memory)?)));
        means.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    }

    fn change(&mut self, now: Nanos, to: usize, trial: bool, reason: String) -> Option<Decision> {
        self.trial = trial;
        if to == self.current {
            return None;
        }
        self.current = to;
        self.age = 0;
        self.switches += 1;
        self.restart(now, Phase::Settling);
        let decision = self.decision(now, reason);
        self.last = Some(decision.clone());
        Some(decision)
    }

    fn decision(&self, now: Nanos, reason: String) -> Decision {
        Decision {
            at: now,
            algorithm: self.algorithm(),
            reason,
            scores: self.scores(now),
        }
    }

    fn forget(&mut self, now: Nanos) {
        for arm in &mut self.arms {
            arm.samples.clear();
        }
        self.surprises = 0;
        self.trial = false;
        self.restart(now, Phase::Measuring);
    }

    fn restart(&mut self, now: Nanos, phase: Phase) {
        self.account(now);
        self.stretch.clear();
        self.checked = false;
        self.half = None;
        self.begun = now;
        self.phase = phase;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives a selector for `windows` × 250 ms; `rate` gives the requests per window of an algorithm.
    fn drive(
        selector: &mut Selector,
        from: u64,
        windows: u64,
        rate: impl Fn(Algorithm) -> u64,
    ) -> Vec<Algorithm> {
        let mut now = from;
        let end = from + windows * 250 * MILLI;
        let mut ran = Vec::new();
        while now < end {
            let gap = 250 * MILLI / rate(selector.algorithm());
            selector.arrived(now);
            now += gap;
            selector.completed(now, 1, 65_536, gap);
            selector.decide(now);
            ran.push(selector.algorithm());
        }
        ran
    }

    fn situation() -> Situation {
        Situation {
            op: crate::Op::Write,
            files: 1,
            bytes_per_file: 0,
            contiguous: true,
            large: true,
            ratio: 21.0,
            memory: 0,
        }
    }

    #[test]
    fn finds_the_best_keeps_it_and_follows_a_change() {
        let mut s = Selector::new(0, SelectorOptions::default(), Some(situation()));
        assert_eq!(s.algorithm(), Algorithm::Aioli);
        assert!(
            s.last()
                .unwrap()
                .reason
                .contains("t3 says so for write, 1 file")
        );
        let sjf = |a| if a == Algorithm::Sjf { 300 } else { 100 };
        drive(&mut s, 0, 10, sjf);
        assert_eq!(s.algorithm(), Algorithm::Sjf);
        let ran = drive(&mut s, 10_000 * MILLI, 200, sjf);
        let share = ran.iter().filter(|a| **a == Algorithm::Sjf).count() as f64 / ran.len() as f64;
        assert!(share > 0.95, "{share}");
        assert!(share < 1.0, "it looks around");
        let toagg = |a| if a == Algorithm::ToAgg { 300 } else { 80 };
        let ran = drive(&mut s, 70_000 * MILLI, 60, toagg);
        let late = &ran[ran.len() / 2..];
        let share =
            late.iter().filter(|a| **a == Algorithm::ToAgg).count() as f64 / late.len() as f64;
        assert!(share > 0.9, "{share}");
        let last = s.last().unwrap();
        assert!(
            !last.reason.is_empty() && last.scores.len() == 5,
            "{last:?}"
        );
    }

    #[test]
    fn falls_that_come_again_and_again_are_trusted_less_and_rises_forget_nothing_of_others() {
        let mut s = Selector::new(0, SelectorOptions::default(), None);
        let even = |_| 200;
        drive(&mut s, 0, 10, even);
        let mut now = 2_500 * MILLI;
        let mut swing = |s: &mut Selector, rate: u64| {
            let before = s.switches();
            drive(s, now, 8, |_| rate);
            now += 2_000 * MILLI;
            s.switches() - before
        };
        let first = swing(&mut s, 80);
        assert!(first >= 4, "a fall: all are tried anew, {first} changes");
        let up = swing(&mut s, 200);
        assert!(up <= 2, "a rise: {up} changes");
        let again = swing(&mut s, 80);
        assert!(again <= 2, "the same fall again: {again} changes");
    }

    #[test]
    fn small_differences_change_nothing_for_long() {
        let mut s = Selector::new(0, SelectorOptions::default(), None);
        drive(
            &mut s,
            0,
            500,
            |a| if a == Algorithm::Mlf { 101 } else { 100 },
        );
        // Five trials at first, then 3% of the windows and the way back.
        assert!(s.switches() < 45, "{}", s.switches());
    }

    #[test]
    fn objectives_prefer_what_they_name() {
        let mut fair = Stretch {
            bytes: 200,
            busy: 10,
            ..Stretch::default()
        };
        fair.programs = vec![(1, 100, 50), (2, 100, 50)];
        fair.responses = vec![5; 100];
        let mut unfair = Stretch {
            bytes: 220,
            busy: 10,
            ..Stretch::default()
        };
        unfair.programs = vec![(1, 210, 50), (2, 10, 50)];
        unfair.responses = vec![1; 90];
        unfair.responses.extend([50; 10]);
        assert!(fair.score(Objective::Bandwidth) < unfair.score(Objective::Bandwidth));
        assert!(fair.score(Objective::Fairness) > unfair.score(Objective::Fairness));
        assert!(fair.score(Objective::P99) > unfair.score(Objective::P99));
    }

    #[test]
    fn an_algorithm_that_needs_a_second_to_get_going_is_not_given_up() {
        let mut s = Selector::new(0, SelectorOptions::default(), Some(situation()));
        let (mut now, mut since, mut runs) = (0, 0, s.algorithm());
        let mut late = [0; 2];
        while now < 20_000 * MILLI {
            if s.algorithm() != runs {
                (runs, since) = (s.algorithm(), now);
            }
            // To begins at a third of its rate and has it after 1.2 s.
            let part = ((now - since) as f64 / 1.2e9).min(1.0);
            let rate = match runs {
                Algorithm::To => 100.0 + 200.0 * part,
                _ => 150.0,
            };
            let gap = (250.0 * MILLI as f64 / rate) as Nanos;
            s.arrived(now);
            now += gap;
            s.completed(now, 1, 65_536, gap);
            s.decide(now);
            if now > 5_000 * MILLI {
                late[usize::from(runs == Algorithm::To)] += gap / MILLI;
            }
        }
        assert!(late[1] > 4 * late[0], "{late:?}");
    }

    #[test]
    fn idle_time_is_no_sample() {
        let mut s = Selector::new(0, SelectorOptions::default(), None);
        for i in 0..1000 {
            assert!(s.decide(i * 100 * MILLI).is_none());
        }
        assert_eq!(s.switches(), 0);
        s.set_objective(0, Objective::P99);
        assert_eq!(s.objective(), Objective::P99);
    }
}
