//! Online selection: begin with the predicted best, measure, and change only for what is significantly better.
//!
//! Problem: a tree knows the devices and programs that it was learnt from, not the ones at hand. Idea: time is cut into
//! windows; each gives the running algorithm one sample of the objective. The tree's choice runs first. The estimate of
//! each algorithm is a mean and a deviation ([`Beliefs`]). Another one is tried when its expected gain over the horizon
//! exceeds the expected loss of the trial. It stays only when the gain exceeds chance, compared window by window;
//! undecided trials get more windows. A trial that finds nothing is not repeated for some time, twice as long after
//! each. Algorithms without an expected gain are also tried, after twice that time. The loss of trials is paid from a
//! budget: at first a number of windows' worth, then a small share. TO is the baseline: as long as it could well be
//! better than what runs, it is tried before all others. An algorithm that falls below it is replaced by it. When the
//! load changes, measurements are forgotten. That is the case when the situation changes, or when the running
//! algorithm's own samples fall for some windows. When its samples rise, only its own measurements are forgotten. Each
//! such fall makes the next one need three times as many windows. Where rates oscillate by themselves, trials after
//! each swing would keep programs out of step. After a change, rates may rise for a second: a disk that reads ahead has
//! to find its streams again, and programs fall into step. So a window in whose second half much more was moved than in
//! its first is no sample, and the turn continues. When it pays: loads that last seconds. Parameters:
//! [`SelectorOptions`]. Source: TS section 6.4 leaves re-selection as future work. The numbers of samples and the share
//! come from AGIOS's later selector. It tried each algorithm once, then chose by measured bandwidth with a floor of 3%,
//! ten samples of 360 s.

use super::belief::{Beliefs, Estimate, Prior};
use super::objective::{Mark, Objective, Stretch};
use super::own;
use super::{Situation, Tree};
use crate::{Algorithm, Nanos};

const MILLI: Nanos = 1_000_000;
/// Outlying windows in a row that indicate another load, at first and at most.
const PATIENCE: u32 = 3;
const MAX_PATIENCE: u32 = 243;
/// Idle gaps count as busy time when they are at most this part of a window.
const GAPS: Nanos = 4;
/// After a change, up to this many windows do not count if they rise.
const SETTLE: u32 = 6;
/// For a tree that gives only its choice: how much less the others are expected to give, and the standard deviation of
/// that.
const OTHERS: f64 = 0.15;
const DOUBT: f64 = 0.6;
/// Standard deviations by which a difference must exceed chance.
const SURE: f64 = 1.3;
/// Most windows of a trial, and of one that does not look better.
const LONGEST: u32 = 4;
const SHORTEST: u32 = 2;
/// Windows that a trial takes, and windows' worth that a change loses, until measured.
const TRIAL: f64 = 1.5;
const CHANGE: f64 = 0.1;
/// Windows until a trial that found nothing may be repeated, and the most doublings of it.
const REST: u64 = 32;
const DOUBLINGS: u32 = 8;
/// Windows' worth that trials may lose before they have gained anything, and the most at once.
const ALLOWANCE: f64 = 4.0;
/// TO is tried if it could be this much better than what runs; always where the prior's deviation exceeds this.
const BASELINE: f64 = 0.1;

/// Parameters of the selector.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectorOptions {
    /// What to maximise.
    pub objective: Objective,
    /// The tree that gives the first choice.
    pub tree: Tree,
    /// Algorithms to choose from.
    pub candidates: Vec<Algorithm>,
    /// Length of a window.
    pub window: Nanos,
    /// A window continues until this many requests are completed, up to eight times its length.
    pub completions: u64,
    /// Share of the objective that trials may lose.
    pub explore: f64,
    /// Turns kept of each algorithm.
    pub samples: usize,
    /// Older samples don't count.
    pub memory: Nanos,
    /// Relative gain that a change must bring.
    pub margin: f64,
    /// Windows over which a trial must earn its cost.
    pub horizon: f64,
}

impl Default for SelectorOptions {
    fn default() -> SelectorOptions {
        SelectorOptions {
            objective: Objective::Bandwidth,
            tree: Tree::default(),
            candidates: own::ALGORITHMS.to_vec(),
            window: 250 * MILLI,
            completions: 64,
            explore: 0.03,
            samples: 10,
            memory: 360_000 * MILLI,
            margin: 0.03,
            horizon: 40.0,
        }
    }
}

impl SelectorOptions {
    fn choose(&self, situation: &Situation) -> Option<Algorithm> {
        let expected = self.tree.expect(situation);
        expected.map_or_else(|| self.tree.choose(situation), |e| Some(e.best()))
    }

    /// The prior of each candidate.
    fn priors(&self, situation: Option<&Situation>) -> Vec<Prior> {
        let choice = situation.and_then(|s| self.choose(s));
        // Measurements elsewhere are rates.
        let expected = situation
            .filter(|_| self.objective == Objective::Bandwidth)
            .and_then(|s| self.tree.expect(s));
        let of = |candidate: &Algorithm| match &expected {
            Some(e) => Prior {
                mean: e.trust * e.of(*candidate).unwrap_or(0.5).max(0.01).ln(),
                doubt: e.doubt,
            },
            None => Prior {
                mean: if choice.is_none_or(|c| c == *candidate) {
                    0.0
                } else {
                    -OTHERS
                },
                doubt: DOUBT,
            },
        };
        self.candidates.iter().map(of).collect()
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
    /// Mean of the recent samples of each algorithm that has some, in the objective's unit.
    pub scores: Vec<(Algorithm, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Requests that were queued under the previous algorithm are still being served.
    Settling,
    Measuring,
}

/// The running algorithm is on trial.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The algorithm that runs outside the trial.
    kept: usize,
    /// Windows that have been measured.
    windows: u32,
}

/// What earlier trials of an algorithm have brought.
#[derive(Debug, Default)]
struct Past {
    /// Windows' worth lost until it reached its rate.
    cost: Option<f64>,
    /// Consecutive trials that found nothing.
    vain: u32,
    /// End of the last trial, or the start.
    looked: Nanos,
}

impl Past {
    /// Whether it may be tried if a gain is expected.
    fn may_be_tried(&self, now: Nanos, window: Nanos) -> bool {
        self.vain == 0 || now >= self.looked + ((REST * window) << (self.vain - 1))
    }

    /// Whether it has not been tried for so long that it is due, whatever is expected.
    fn is_overdue(&self, now: Nanos, window: Nanos) -> bool {
        now >= self.looked + ((2 * REST * window) << self.vain)
    }
}

/// The online selector as a state machine. Its input is arrivals and completions, its output decisions.
#[derive(Debug)]
pub struct Selector {
    options: SelectorOptions,
    beliefs: Beliefs,
    past: Vec<Past>,
    /// Windows' worth that the last change has lost so far.
    lost: f64,
    current: usize,
    trial: Option<Trial>,
    /// Budget of trials, in windows' worth.
    allowance: f64,
    /// The trial has been checked half-way.
    checked: bool,
    /// Marks at the window's first quarter and half.
    quarter: Option<Mark>,
    half: Option<Mark>,
    /// Windows since the last change.
    age: u32,
    phase: Phase,
    begun: Nanos,
    stretch: Stretch,
    held: u64,
    busy_since: Option<Nanos>,
    idle_since: Nanos,
    surprises: u32,
    patience: u32,
    switches: u64,
    windows: u64,
    situation: Option<Situation>,
    last: Option<Decision>,
}

impl Selector {
    /// Starts at `now` with the tree's choice for `situation`, or with the first candidate. Without candidates: TO.
    pub fn new(now: Nanos, mut options: SelectorOptions, situation: Option<Situation>) -> Selector {
        if options.candidates.is_empty() {
            options.candidates.push(Algorithm::To);
        }
        let choice = situation.and_then(|s| options.choose(&s));
        let current = choice.and_then(|c| position(&options.candidates, c));
        let priors = options.priors(situation.as_ref());
        let mut selector = Selector {
            beliefs: Beliefs::new(priors, options.samples, options.memory),
            past: options
                .candidates
                .iter()
                .map(|_| Past {
                    looked: now,
                    ..Past::default()
                })
                .collect(),
            lost: 0.0,
            options,
            current: current.unwrap_or(0),
            trial: None,
            allowance: ALLOWANCE,
            checked: false,
            quarter: None,
            half: None,
            age: 0,
            phase: Phase::Measuring,
            begun: now,
            stretch: Stretch::default(),
            held: 0,
            busy_since: None,
            idle_since: now,
            surprises: 0,
            patience: PATIENCE,
            switches: 0,
            windows: 0,
            situation,
            last: None,
        };
        let reason = match (situation, current) {
            (Some(s), Some(_)) => format!("{} says so for {s}", selector.options.tree.name()),
            _ => "first to be tried".to_owned(),
        };
        selector.last = Some(selector.decision(now, reason));
        selector
    }

    /// The algorithm in force.
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

    /// Windows measured so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Nothing is worth a trial now: another selector may have its turn.
    pub fn is_resting(&self) -> bool {
        let calm = self.trial.is_none() && self.phase == Phase::Measuring;
        calm && self.worth_a_trial(self.begun).is_none()
    }

    /// Resumes after another selector's turn: the window that it had begun is discarded.
    pub fn resume(&mut self, now: Nanos) {
        self.restart(now, Phase::Measuring);
    }

    /// The objective.
    pub fn objective(&self) -> Objective {
        self.options.objective
    }

    /// Changes the objective and forgets all measurements.
    pub fn set_objective(&mut self, now: Nanos, objective: Objective) {
        if objective != self.options.objective {
            self.options.objective = objective;
            self.patience = PATIENCE;
            let priors = self.options.priors(self.situation.as_ref());
            self.beliefs.expect(priors);
            self.forget(now);
        }
    }

    /// Updates the situation. When the tree's choice for it changes, that runs and all measurements are forgotten.
    pub fn observe(&mut self, now: Nanos, situation: Situation) -> Option<Decision> {
        let choice = self.options.choose(&situation);
        let before = self.situation.map(|old| self.options.choose(&old));
        if self.situation != Some(situation) {
            let priors = self.options.priors(Some(&situation));
            self.beliefs.expect(priors);
            self.situation = Some(situation);
        }
        if before == Some(choice) {
            return None;
        }
        self.patience = PATIENCE;
        self.forget(now);
        // In a situation that no tree knows, the current algorithm stays until another one is measured to be better.
        let to = position(&self.options.candidates, choice?)?;
        let reason = format!("{} says so for {situation}", self.options.tree.name());
        if to == self.current {
            self.last = Some(self.decision(now, reason));
            return None;
        }
        self.change(now, to, reason)
    }

    /// Mean of the recent samples of each algorithm that has some, in the objective's unit.
    pub fn scores(&self, now: Nanos) -> Vec<(Algorithm, f64)> {
        let all = self.options.candidates.iter().enumerate();
        all.filter_map(|(i, a)| Some((*a, self.beliefs.score(i, now)?)))
            .collect()
    }

    /// Counts a request that has arrived.
    pub fn arrived(&mut self, now: Nanos) {
        if self.held == 0 {
            // Short gaps are caused by the algorithm: programs wait for requests that it has delayed elsewhere. Long
            // ones are the load's.
            let gap = now.saturating_sub(self.idle_since.max(self.begun));
            if gap * GAPS <= self.options.window {
                self.stretch.busy(gap);
            }
        }
        self.held += 1;
        self.busy_since.get_or_insert(now);
    }

    /// Counts a completed request of `program`, `response` after its arrival.
    pub fn completed(&mut self, now: Nanos, program: u64, bytes: u64, response: Nanos) {
        self.held = self.held.saturating_sub(1);
        self.stretch.completed(program, bytes, response);
        if self.held == 0 {
            self.account(now);
            self.busy_since = None;
            self.idle_since = now;
        }
    }

    fn account(&mut self, now: Nanos) {
        if let Some(since) = &mut self.busy_since {
            self.stretch.busy(now.saturating_sub(*since));
            *since = now;
        }
    }

    /// When [`Self::decide`] must be called next at the latest.
    pub fn due(&self) -> Nanos {
        let part = if self.phase == Phase::Settling { 4 } else { 1 };
        self.begun + self.options.window / part
    }

    /// The decision, if a window has ended and another algorithm is to run. Call it after completions.
    pub fn decide(&mut self, now: Nanos) -> Option<Decision> {
        self.account(now);
        let (window, completions) = (self.options.window, self.options.completions);
        let elapsed = now.saturating_sub(self.begun);
        if self.phase == Phase::Settling {
            if elapsed * 4 >= window {
                self.settle(now);
            }
            return None;
        }
        if self.quarter.is_none() && elapsed * 4 >= window {
            self.quarter = Some(self.stretch.mark());
        }
        if self.half.is_none() && elapsed * 2 >= window {
            self.half = Some(self.stretch.mark());
        }
        if elapsed * 2 >= window
            && !self.checked
            && self.stretch.completions * 4 >= completions
            && let Some(trial) = self.trial
        {
            // A trial that goes badly is ended early. Checked once, because a percentile costs a sort.
            self.checked = true;
            let kept = self.beliefs.score(trial.kept, now).unwrap_or(0.0);
            let score = self.stretch.score(self.options.objective);
            if score < 0.7 * kept && !self.stretch.rises(self.quarter) {
                return self.end_window(now);
            }
        }
        if self.stretch.completions == 0 {
            // No requests: nothing is measured.
            if elapsed >= window && self.held == 0 {
                self.restart(now, Phase::Measuring);
            }
            return None;
        }
        let enough = self.stretch.completions >= completions || elapsed >= 8 * window;
        if elapsed >= window && enough {
            self.end_window(now)
        } else {
            None
        }
    }

    fn settle(&mut self, now: Nanos) {
        let score = self.stretch.score(self.options.objective);
        self.lost += self.shortfall(now, score) / 4.0;
        self.restart(now, Phase::Measuring);
    }

    /// How far a score falls short of the running algorithm's usual one, as a share.
    fn shortfall(&self, now: Nanos, score: f64) -> f64 {
        let usual = self.beliefs.score(self.current, now);
        usual.map_or(0.0, |usual| (1.0 - score / usual).clamp(0.0, 1.0))
    }

    fn end_window(&mut self, now: Nanos) -> Option<Decision> {
        self.windows += 1;
        self.age += 1;
        let length = now.saturating_sub(self.begun) as f64 / self.options.window.max(1) as f64;
        let rising = self.age < SETTLE && self.stretch.rises(self.half);
        let score = self.stretch.score(self.options.objective);
        match self.trial {
            Some(trial) => {
                let kept = self.beliefs.score(trial.kept, now).unwrap_or(0.0);
                let lost = 1.0 - score / kept.max(f64::MIN_POSITIVE);
                self.allowance -= lost.clamp(0.0, 1.0) * length;
            }
            None => {
                let more = self.allowance + self.options.explore * length;
                self.allowance = more.min(ALLOWANCE);
            }
        }
        self.restart(now, Phase::Measuring);
        if rising {
            self.lost += self.shortfall(now, score) * length;
            return None;
        }
        if self.age < SETTLE {
            self.age = SETTLE;
            self.in_full_swing();
        }
        let usual = self.beliefs.score(self.current, now);
        self.beliefs.add(self.current, now, score);
        match self.trial {
            Some(trial) => return self.judge(now, trial),
            None => self.watch(now, score, usual),
        }
        let all = self.beliefs.estimates(now);
        let runs = all[self.current];
        let (best, top) = best(&all);
        let cost = self.cost(best) / self.options.horizon.max(1.0);
        let (gain, sure) = (top.mean - runs.mean, top.over(&runs, -SURE));
        if best != self.current && gain > self.options.margin + cost && sure > 0.0 {
            return self.change(now, best, percent(gain, "over recent windows"));
        }
        let (next, why) = self.worth_a_trial(now)?;
        self.trial = Some(Trial {
            kept: self.current,
            windows: 0,
        });
        self.change(now, next, why.to_owned())
    }

    /// The running algorithm has reached its rate: the cost of the last change is known.
    fn in_full_swing(&mut self) {
        let past = &mut self.past[self.current];
        past.cost = Some((past.cost.unwrap_or(self.lost) + self.lost) / 2.0);
        if self.trial.is_none() {
            self.allowance -= self.lost;
        }
        self.lost = 0.0;
    }

    /// Checks by a window of the running algorithm whether the load has changed.
    fn watch(&mut self, now: Nanos, score: f64, usual: Option<f64>) {
        let Some(usual) = usual else { return };
        let odd = score < 0.6 * usual || score > 1.7 * usual;
        self.surprises = if odd { self.surprises + 1 } else { 0 };
        if self.surprises < self.patience {
            return;
        }
        self.surprises = 0;
        if score > usual {
            self.beliefs.forget(Some(self.current));
        } else {
            self.patience = (self.patience * 3).min(MAX_PATIENCE);
            self.forget(now);
        }
        self.beliefs.add(self.current, now, score);
    }

    /// Judges a trial: keep the algorithm, go back, or measure another window.
    fn judge(&mut self, now: Nanos, trial: Trial) -> Option<Decision> {
        let all = self.beliefs.estimates(now);
        let (tried, kept) = (all[self.current], all[trial.kept]);
        let margin = self.options.margin;
        let windows = trial.windows + 1;
        let gain = tried.mean - kept.mean;
        let most = if gain > 0.0 { LONGEST } else { SHORTEST };
        let last = windows >= most || self.allowance < 0.0;
        let past = &mut self.past[self.current];
        if gain > margin && (tried.over(&kept, -SURE) > 0.0 || last) {
            (past.vain, past.looked) = (0, now);
            self.trial = None;
            self.last = Some(self.decision(now, percent(gain, "in a trial")));
            return None;
        }
        if tried.over(&kept, SURE) > margin && !last {
            self.trial = Some(Trial { windows, ..trial });
            return None;
        }
        (past.vain, past.looked) = ((past.vain + 1).min(DOUBLINGS), now);
        self.trial = None;
        let reason = format!("{} showed nothing better", self.algorithm());
        self.change(now, trial.kept, reason)
    }

    /// Windows' worth that a change to it loses.
    fn cost(&self, which: usize) -> f64 {
        self.past[which].cost.unwrap_or(CHANGE)
    }

    /// The algorithm worth a trial, and why: TO while it could well be better than what runs, then the one with the
    /// largest expected gain.
    fn worth_a_trial(&self, now: Nanos) -> Option<(usize, &'static str)> {
        let all = self.beliefs.estimates(now);
        let runs = all[self.current];
        let cost = |i: usize| {
            let lost = runs.improvement(&all[i], 0.0);
            TRIAL * (1.0 - (-lost).exp()) + self.cost(i) + self.cost(self.current)
        };
        let gain = |i: usize| {
            let gain = all[i].improvement(&runs, self.options.margin);
            gain * self.options.horizon - cost(i)
        };
        let window = self.options.window;
        let affordable = |i: &usize| *i != self.current && cost(*i) <= self.allowance;
        let may = |i: &usize| affordable(i) && self.past[*i].may_be_tried(now, window);
        let baseline = position(&self.options.candidates, Algorithm::To).filter(may);
        let unsure = |to: &usize| {
            let doubted = self.beliefs.doubt(*to) > BASELINE;
            match self.beliefs.score(*to, now) {
                None if doubted => true,
                _ => all[*to].over(&runs, SURE) > BASELINE && gain(*to) > 0.0,
            }
        };
        if let Some(to) = baseline.filter(unsure) {
            return Some((to, "it is what others are compared with"));
        }
        let others = (0..all.len()).filter(may).filter(|i| gain(*i) > 0.0);
        let next = others.max_by(|a, b| gain(*a).total_cmp(&gain(*b)).then(b.cmp(a)));
        let Some(next) = next else {
            // No expected gain: explore occasionally, once the last trial is paid for.
            let mut others = (0..all.len()).filter(affordable);
            let free = self.allowance >= ALLOWANCE;
            let overdue = others.find(|i| free && self.past[*i].is_overdue(now, window));
            return overdue.map(|i| (i, "not looked at for long"));
        };
        match self.beliefs.score(next, now) {
            None => Some((next, "not tried yet")),
            Some(_) => Some((next, "tried again")),
        }
    }

    fn change(&mut self, now: Nanos, to: usize, reason: String) -> Option<Decision> {
        if to == self.current {
            return None;
        }
        self.current = to;
        self.age = 0;
        self.lost = 0.0;
        self.switches += 1;
        self.beliefs.begin(to);
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
        self.beliefs.forget(None);
        for past in &mut self.past {
            (past.vain, past.looked) = (0, now);
        }
        self.surprises = 0;
        self.trial = None;
        self.allowance = ALLOWANCE;
        self.restart(now, Phase::Measuring);
    }

    fn restart(&mut self, now: Nanos, phase: Phase) {
        self.account(now);
        self.stretch.clear();
        self.checked = false;
        self.quarter = None;
        self.half = None;
        self.begun = now;
        self.phase = phase;
    }
}

fn position(candidates: &[Algorithm], wanted: Algorithm) -> Option<usize> {
    // Without aggregation or reordering TO equals NOOP.
    let same = |a: Algorithm| {
        if a == Algorithm::Noop {
            Algorithm::To
        } else {
            a
        }
    };
    let exact = candidates.iter().position(|c| *c == wanted);
    exact.or_else(|| candidates.iter().position(|c| same(*c) == same(wanted)))
}

/// The one with the largest mean.
fn best(all: &[Estimate]) -> (usize, Estimate) {
    let none = Estimate {
        mean: f64::MIN,
        variance: 0.0,
    };
    let each = all.iter().copied().enumerate();
    each.fold(
        (0, none),
        |top, next| if next.1.mean > top.1.mean { next } else { top },
    )
}

fn percent(gain: f64, when: &str) -> String {
    format!("{:.0}% better {when}", gain.exp_m1() * 100.0)
}

#[cfg(test)]
mod tests;
