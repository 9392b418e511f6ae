//! Chooses the algorithm of each file when the server chooses itself: `sched=tree` and `sched=online`.
//!
//! *Problem*: no algorithm is best for all programs and devices, nor for all files of a server. *Idea*: files are
//! classified by operation and pattern ([`Sampler`]), and each class has a choice of its own. Files whose choices
//! differ are in different groups of the scheduler ([`Groups`]), which share the server by bytes. The choice of the
//! class with most requests also holds for files that are not classified yet. `tree` asks a selection tree for each
//! class, and moves a file once [`AGREE`] consecutive samples agree. `online` gives each class a [`Selector`] that
//! begins with the tree's answer, tries others and measures. They measure the whole server, one selector after the
//! other, so that each trial has one cause. *Parameters*: [`Choosing`]. *Source*: TS chapter 6; choices by file are
//! Penstock's.
//!
//! A plain state machine under the queue's mutex. It takes a few hundred nanoseconds per request, and samples every 100
//! ms.
use super::sampler::{Class, ClassKey, FileView, Sampler, View};
use super::{Objective, Selector, SelectorOptions, Situation, Tree};
use crate::learn::{AccessPattern, MIN_WINDOW, Order};
use crate::settings::Settings;
use crate::{Algorithm, Error, Groups, Nanos, Op, Request, ServerInfo};
use std::collections::BTreeMap;

/// Time between samples.
const PERIOD: Nanos = 100_000_000;
/// Consecutive samples that must agree.
const AGREE: u32 = 2;
/// Percentage of recent requests that a class needs for trials of its own.
const WORTH: u32 = 5;
/// The algorithm until enough requests have been seen.
const FIRST: Algorithm = Algorithm::To;

/// Who chooses the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The user.
    #[default]
    Fixed,
    /// A selection tree.
    Tree,
    /// The online selector.
    Online,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Fixed, Mode::Tree, Mode::Online];

    /// The name that users write after `sched=`.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Mode::Fixed => None,
            Mode::Tree => Some("tree"),
            Mode::Online => Some("online"),
        }
    }
}

/// How to choose the algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choosing {
    /// Who chooses.
    pub mode: Mode,
    /// Which tree is asked.
    pub tree: Tree,
    /// What `online` measures.
    pub objective: Objective,
    /// Sequential / random throughput of the device, for reads and writes. 1: no difference, as on memory and flash.
    pub ratio: [f64; 2],
}

impl Default for Choosing {
    fn default() -> Choosing {
        Choosing {
            mode: Mode::Fixed,
            tree: Tree::default(),
            objective: Objective::Bandwidth,
            ratio: [1.0, 1.0],
        }
    }
}

/// Chooses the algorithm of each file of a data server from its requests and from measurements.
#[derive(Debug)]
pub struct Chooser {
    choosing: Choosing,
    sampler: Sampler,
    look_at: Nanos,
    view: View,
    /// The groups in force.
    groups: Groups,
    since: Nanos,
    changes: u64,
    reason: String,
    /// What the last sample proposes for files in general, and how many consecutive samples proposed it.
    proposed: Option<(Option<Algorithm>, u32)>,
    /// `tree`: the algorithm of each file, and how many consecutive samples disagreed with it.
    placed: BTreeMap<(u64, Op), (Algorithm, u32)>,
    /// `online`: one selector per class; a single one for all until there are classes.
    trials: Vec<Trial>,
    /// The selector whose turn it is to try and measure.
    trying: usize,
    /// Requests that have arrived and are not served yet.
    held: usize,
    /// Its window count when its turn began.
    turn_from: u64,
}

/// The selector of one class.
#[derive(Debug)]
struct Trial {
    kind: Option<ClassKey>,
    selector: Selector,
}

impl Chooser {
    /// The chooser of a data server with these settings (`sched=online`, …), starting at `now` with `held` requests.
    /// `None` if the settings name an algorithm.
    pub fn of(
        settings: &[String],
        now: Nanos,
        site: ServerInfo,
        held: usize,
    ) -> Result<Option<Chooser>, Error> {
        let choosing = Settings::default().with(settings)?.choosing;
        if choosing.mode == Mode::Fixed {
            return Ok(None);
        }
        Chooser::new(now, choosing, site, held).map(Some)
    }

    /// The settings that it was made from, for [`Chooser::of`].
    pub fn settings(&self) -> [String; 4] {
        let Choosing {
            mode,
            tree,
            objective,
            ratio: [read, write],
        } = self.choosing;
        let objective = Objective::ALL.iter().find(|(o, _)| *o == objective);
        [
            format!("sched={}", mode.name().unwrap_or("noop")),
            format!("tree={}", tree.name()),
            format!("objective={}", objective.map_or("bandwidth", |o| o.1)),
            format!("ratio={read}:{write}"),
        ]
    }

    /// A chooser that starts at `now` with `held` requests in the queue.
    pub fn new(
        now: Nanos,
        choosing: Choosing,
        site: ServerInfo,
        held: usize,
    ) -> Result<Chooser, Error> {
        let mut chooser = Chooser {
            sampler: Sampler::new(site, choosing.ratio)?,
            choosing,
            look_at: now,
            view: View::default(),
            groups: Groups::all(FIRST),
            since: now,
            changes: 0,
            reason: format!("until {MIN_WINDOW} requests have been seen"),
            proposed: None,
            placed: BTreeMap::new(),
            trials: Vec::new(),
            trying: 0,
            held,
            turn_from: 0,
        };
        if choosing.mode == Mode::Online {
            let selector = chooser.selector(now, None);
            chooser.groups.algorithm = selector.algorithm();
            chooser.trials.push(Trial {
                kind: None,
                selector,
            });
        }
        Ok(chooser)
    }

    fn selector(&self, now: Nanos, situation: Option<Situation>) -> Selector {
        let options = SelectorOptions {
            objective: self.choosing.objective,
            tree: self.choosing.tree,
            ..SelectorOptions::default()
        };
        let mut selector = Selector::new(now, options, situation);
        (0..self.held).for_each(|_| selector.arrived(now));
        selector
    }

    /// Its configuration.
    pub fn choosing(&self) -> &Choosing {
        &self.choosing
    }

    /// The last sample.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Files of the last sample, those with the most requests first.
    pub fn busiest(&self) -> Vec<&FileView> {
        let mut busiest: Vec<_> = self.view.seen.iter().collect();
        busiest.sort_by_key(|f| (std::cmp::Reverse(f.requests), f.file));
        busiest
    }

    /// The reason for the current choice.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Number of changes so far, and the time of the last.
    pub fn changes(&self) -> (u64, Nanos) {
        (self.changes, self.since)
    }

    /// `online`: the score of each algorithm in the objective's unit: bytes/s, Jain's index, or ns.
    pub fn scores(&self, now: Nanos) -> Vec<(Algorithm, f64)> {
        let unit = |score: f64| match self.choosing.objective {
            Objective::P99 => 1e9 / score.max(f64::MIN_POSITIVE),
            _ => score,
        };
        let trial = self.trials.get(self.trying);
        let scores = trial.map_or(Vec::new(), |t| t.selector.scores(now));
        scores.into_iter().map(|(a, s)| (a, unit(s))).collect()
    }

    /// The groups in force.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Counts a request that has arrived.
    pub fn arrived(&mut self, now: Nanos, request: &Request) {
        self.sampler.arrived(now, request);
        self.held += 1;
        for trial in &mut self.trials {
            trial.selector.arrived(now);
        }
    }

    /// Counts a request that has been served, `response` after its arrival.
    pub fn completed(&mut self, now: Nanos, request: &Request, response: Nanos) {
        let Request { program, bytes, .. } = *request;
        self.held = self.held.saturating_sub(1);
        for trial in &mut self.trials {
            trial.selector.completed(now, program, bytes, response);
        }
    }

    /// The new groups, if they change now.
    pub fn decide(&mut self, now: Nanos) -> Option<Groups> {
        let view = if now >= self.look_at {
            self.sampler.sample(now, self.choosing.tree)
        } else {
            None
        };
        let looked = view.is_some();
        if let Some(view) = view {
            self.look_at = now + PERIOD;
            self.view = view;
        }
        let groups = match self.choosing.mode {
            Mode::Online => self.measured(now, looked),
            _ if looked => self.told(),
            _ => None,
        }?;
        if groups == self.groups {
            return None;
        }
        self.groups = groups.clone();
        self.since = now;
        self.changes += 1;
        Some(groups)
    }

    /// `tree`: the new groups, once consecutive samples agree.
    fn told(&mut self) -> Option<Groups> {
        let mut votes: Vec<(Option<Algorithm>, u32)> = Vec::new();
        for class in &self.view.classes {
            match votes.iter_mut().find(|v| v.0 == class.choice) {
                Some(vote) => vote.1 += class.requests,
                None => votes.push((class.choice, class.requests)),
            }
        }
        let present = votes.iter().find(|v| v.0 == Some(self.groups.algorithm));
        let present = present.copied();
        let (mut winner, mut share) = votes.into_iter().rev().max_by_key(|v| v.1)?;
        if let Some((runs, votes)) = present
            && votes * 2 > share
        {
            // This one is for unclassified files; the others are decided one by one below.
            (winner, share) = (runs, votes);
        }
        let looks = match self.proposed {
            Some((before, looks)) if before == winner => looks.saturating_add(1),
            Some(_) => 1,
            // The first answer is taken at once.
            None => AGREE,
        };
        self.proposed = Some((winner, looks));
        let mut all = self.groups.algorithm;
        if looks >= AGREE {
            all = winner.unwrap_or(all);
            let classes = self.view.classes.iter().filter(|c| c.choice == winner);
            let situation = classes.max_by_key(|c| c.requests)?.situation;
            let per_cent = u64::from(share) * 100 / u64::from(self.view.requests.max(1));
            let (tree, class) = (self.choosing.tree.name(), self.class_text(&situation));
            let says = match winner {
                Some(_) => "says so for",
                None => "knows no answer, so nothing changes, for",
            };
            self.reason = format!("{tree} {says} {class} ({per_cent}% of recent requests)");
        }
        // Files that are no longer seen are forgotten.
        let before = std::mem::take(&mut self.placed);
        let mut changed = all != self.groups.algorithm;
        for f in &self.view.seen {
            let known = before.get(&(f.file, f.op)).copied();
            let (mut runs, mut looks) = known.unwrap_or((self.groups.of(f.file, f.op), 0));
            let wanted = match f.pattern {
                // A file with an unknown pattern stays under its algorithm.
                Some(_) => self.view.classes[f.class].choice.unwrap_or(runs),
                None => all,
            };
            looks = if wanted == runs { 0 } else { looks + 1 };
            if looks >= AGREE
                || wanted == all && all != self.groups.algorithm
                || f.pattern.is_none()
            {
                (runs, looks) = (wanted, 0);
            }
            changed |= runs != self.groups.of(f.file, f.op);
            self.placed.insert((f.file, f.op), (runs, looks));
        }
        changed.then(|| {
            let placed = self.placed.iter().map(|(at, (runs, _))| (*at, *runs));
            grouped(all, placed)
        })
    }

    /// `online`: the new groups by the selectors of the classes.
    fn measured(&mut self, now: Nanos, looked: bool) -> Option<Groups> {
        let mut changed = false;
        if looked {
            changed = self.follow_classes(now);
        }
        if self.is_strange() {
            // Measurements of unknown patterns teach nothing.
            self.trials[self.trying].selector.resume(now);
            return changed.then(|| self.groups_of_trials());
        }
        let several = self.trials.len() > 1;
        let selector = &mut self.trials[self.trying].selector;
        changed |= selector.decide(now).is_some();
        // Its reason can change although its choice does not.
        if let Some(last) = selector.last()
            && !self.view.classes.is_empty()
        {
            self.reason.clone_from(&last.reason);
        }
        if several && selector.is_resting() && selector.windows() > self.turn_from {
            self.turn((self.trying + 1) % self.trials.len(), now);
        }
        // The sample may also contain files that are new in their class.
        (changed || looked).then(|| self.groups_of_trials())
    }

    /// The groups by the selectors of the classes; a file with an unknown pattern stays under its algorithm.
    fn groups_of_trials(&self) -> Groups {
        let of = |kind: ClassKey| self.trials.iter().find(|t| t.kind == Some(kind));
        let all = self.trials[0].selector.algorithm();
        let files = self.view.seen.iter().map(|f| {
            let class = &self.view.classes[f.class];
            let trial = f.pattern.and_then(|_| of(class.kind()));
            let runs = match (trial, f.pattern) {
                (Some(trial), _) => trial.selector.algorithm(),
                (None, Some(AccessPattern::Unknown)) => self.groups.of(f.file, f.op),
                (None, _) => all,
            };
            ((f.file, f.op), runs)
        });
        grouped(all, files)
    }

    /// Whether nearly all recent requests have an unknown pattern.
    fn is_strange(&self) -> bool {
        let known = self.view.classes.iter().filter(|c| is_known(c));
        let requests: u32 = known.map(|c| c.requests).sum();
        self.view.requests > 0 && requests * 100 < self.view.requests * WORTH
    }

    /// Gives the turn to another class.
    fn turn(&mut self, to: usize, now: Nanos) {
        self.trying = to;
        let selector = &mut self.trials[to].selector;
        selector.resume(now);
        self.turn_from = selector.windows();
    }

    /// Makes a selector for each class with enough requests; the most common class comes first and stands for all
    /// others. Returns true if an algorithm changes.
    fn follow_classes(&mut self, now: Nanos) -> bool {
        let mut classes: Vec<&Class> = self.view.classes.iter().filter(|c| is_known(c)).collect();
        classes.sort_by_key(|c| std::cmp::Reverse(c.requests));
        let worth = |c: &&Class| c.requests * 100 >= self.view.requests * WORTH;
        let kept: Vec<(ClassKey, Situation)> = classes
            .into_iter()
            .filter(worth)
            .map(|c| (c.kind(), c.situation))
            .collect();
        let Some((first, _)) = kept.first() else {
            return false;
        };
        let mut changed = false;
        if self.trials.len() == 1 && !kept.iter().any(|k| Some(k.0) == self.trials[0].kind) {
            // The existing selector takes over the most common class.
            self.trials[0].kind = Some(*first);
        }
        let current = self.trials[self.trying].kind;
        self.trials
            .retain(|t| kept.iter().any(|k| Some(k.0) == t.kind));
        for (kind, situation) in &kept {
            let known = self.trials.iter_mut().find(|t| t.kind == Some(*kind));
            match known {
                Some(trial) => changed |= trial.selector.observe(now, *situation).is_some(),
                None => {
                    let selector = self.selector(now, Some(*situation));
                    self.trials.push(Trial {
                        kind: Some(*kind),
                        selector,
                    });
                    changed = true;
                }
            }
        }
        // The class that stands for all others keeps that role until another class is twice as common.
        let requests = |kind: Option<ClassKey>| {
            let classes = &self.view.classes;
            let class = classes.iter().find(|c| Some(c.kind()) == kind);
            class.map_or(0, |c| c.requests)
        };
        let first = self.trials.first().map_or(0, |t| requests(t.kind));
        let common = (0..self.trials.len())
            .rev()
            .max_by_key(|i| requests(self.trials[*i].kind));
        if let Some(common) = common
            && requests(self.trials[common].kind) >= 2 * first
        {
            self.trials.swap(0, common);
        }
        let still = self.trials.iter().position(|t| t.kind == current);
        match still {
            Some(still) => self.trying = still,
            None => self.turn(0, now),
        }
        changed
    }

    fn class_text(&self, situation: &Situation) -> String {
        match self.choosing.tree {
            Tree::T1 => format!(
                "{situation}, {} per file, {} of memory",
                mebibytes(situation.bytes_per_file),
                mebibytes(situation.memory)
            ),
            Tree::T2 => format!(
                "{situation}, {} per file",
                mebibytes(situation.bytes_per_file)
            ),
            Tree::T3 | Tree::T4 | Tree::Own => situation.to_string(),
        }
    }
}

fn is_known(class: &Class) -> bool {
    class.situation.order != Order::Unknown
}

/// Groups of files whose algorithm differs from that of all others.
fn grouped(all: Algorithm, files: impl Iterator<Item = ((u64, Op), Algorithm)>) -> Groups {
    Groups {
        algorithm: all,
        files: files.filter(|(_, runs)| *runs != all).collect(),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::super::sampler::{HORIZON, RECENT};
    use super::*;

    const MILLI: Nanos = 1_000_000;
    const SITE: ServerInfo = ServerInfo {
        server: 0,
        servers: 1,
        unit: 64 << 10,
        memory: 8 << 30,
        threads: u32::MAX,
    };

    fn chooser(choosing: Choosing) -> Chooser {
        Chooser::new(0, choosing, SITE, 0).unwrap()
    }

    fn disk(mode: Mode) -> Choosing {
        Choosing {
            mode,
            tree: Tree::T3,
            ratio: [40.68, 21.29],
            ..Choosing::default()
        }
    }

    /// Sends `n` requests one after the other, 1 ms each; `make` gives file, operation, offset and bytes.
    fn drive(
        chooser: &mut Chooser,
        now: &mut Nanos,
        n: u64,
        make: impl Fn(u64) -> (u64, Op, u64, u64),
    ) -> Vec<Algorithm> {
        let mut ran: Vec<Groups> = Vec::new();
        for i in 0..n {
            let (file, op, offset, bytes) = make(i);
            let request = Request {
                id: i,
                file,
                op,
                offset,
                bytes,
                program: 1,
                process: 0,
            };
            chooser.arrived(*now, &request);
            ran.extend(chooser.decide(*now));
            *now += MILLI;
            chooser.completed(*now, &request, MILLI);
            ran.extend(chooser.decide(*now));
        }
        let mut ran: Vec<Algorithm> = ran.into_iter().map(|g| g.algorithm).collect();
        ran.dedup();
        ran
    }

    #[test]
    fn the_tree_follows_what_programs_do() {
        let mut c = chooser(disk(Mode::Tree));
        let mut now = 0;
        assert_eq!(c.groups().algorithm, Algorithm::To);
        let large = |i| (1, Op::Write, i << 18, 1 << 18);
        assert_eq!(
            drive(&mut c, &mut now, 10, large),
            [],
            "too little is known"
        );
        assert_eq!(drive(&mut c, &mut now, 600, large), [Algorithm::Aioli]);
        let reason = c.reason();
        assert!(
            reason.starts_with("t3 says so for write, 1 file, contiguous large, ratio 21.29")
                && reason.contains("100%"),
            "{reason}"
        );
        assert_eq!((c.view().files, c.changes().0), (1, 1));
        let [class] = &c.view().classes[..] else {
            panic!("{:?}", c.view());
        };
        assert_eq!(class.situation.request_bytes, 1 << 18);
        // Many files that are read: T3 has another answer, which is taken once they are most of the window.
        let read = |i: u64| (100 + i % 20, Op::Read, (i / 20) << 12, 1 << 12);
        let ran = drive(&mut c, &mut now, 2000, read);
        assert_eq!(ran.last(), Some(&Algorithm::Sjf));
        assert!(ran.len() <= 3, "{ran:?}");
        // An old window does not count.
        now += 2 * HORIZON;
        assert_eq!(drive(&mut c, &mut now, 10, large), []);
        assert_eq!(c.groups().algorithm, Algorithm::Sjf);
    }

    #[test]
    fn files_with_different_patterns_have_an_answer_each() {
        let mut c = chooser(disk(Mode::Tree));
        let mut now = 0;
        // One file in large requests, and one in small requests three times as often.
        drive(&mut c, &mut now, 1200, |i| match i % 4 {
            0 => (1, Op::Write, (i / 4) << 18, 1 << 18),
            _ => (2, Op::Read, (i - i / 4) << 12, 1 << 12),
        });
        let view = c.view();
        assert_eq!((view.files, view.requests), (2, RECENT as u32));
        assert_eq!(view.classes.len(), 2, "{view:?}");
        let class = |op| view.classes.iter().find(|c| c.situation.op == op).unwrap();
        let (read, write) = (class(Op::Read), class(Op::Write));
        assert!(write.situation.large && !read.situation.large);
        assert_eq!(write.requests * 3, read.requests);
        assert_eq!(read.choice, Some(c.groups().algorithm), "the most requests");
        assert_ne!(read.choice, write.choice);
        let of = |file, op| c.groups().of(file, op);
        assert_eq!(Some(of(1, Op::Write)), write.choice, "its own");
        assert_eq!(Some(of(2, Op::Read)), read.choice);
        let busiest = c.busiest();
        let files: Vec<(u64, Op)> = busiest.iter().map(|f| (f.file, f.op)).collect();
        assert_eq!(files, [(2, Op::Read), (1, Op::Write)]);
        assert!(busiest.iter().all(|f| f.pattern.is_some()));
    }

    #[test]
    fn online_begins_with_the_tree_tries_and_measures() {
        let mut c = chooser(disk(Mode::Online));
        let mut now = 0;
        let ran = drive(&mut c, &mut now, 6000, |i| (1, Op::Write, i << 18, 1 << 18));
        assert_eq!(ran[0], Algorithm::Aioli);
        for tried in [Algorithm::ToAgg, Algorithm::Sjf, Algorithm::Mlf] {
            assert!(ran.contains(&tried), "{ran:?}");
        }
        let scores = c.scores(now);
        assert_eq!(scores.len(), 5);
        assert!(c.changes().0 >= 4 && !c.reason().is_empty());
        // All gave 256 KiB per ms.
        let rate = 262_144_000.0;
        assert!(scores.iter().all(|s| (s.1 / rate - 1.0).abs() < 0.01));
    }

    #[test]
    fn online_measures_each_class_and_leaves_files_alone_that_do_not_change() {
        let mut c = chooser(disk(Mode::Online));
        let mut now = 0;
        // Small reads are faster under MLF, large writes under SJF.
        let mut ran = Vec::new();
        for i in 0..60_000u64 {
            let (file, op, offset, bytes) = match i % 2 {
                0 => (1, Op::Write, (i / 2) << 18, 1 << 18),
                _ => (2, Op::Read, (i / 2) << 12, 1 << 12),
            };
            let request = Request {
                id: i,
                file,
                op,
                offset,
                bytes,
                program: 1,
                process: 0,
            };
            c.arrived(now, &request);
            ran.extend(c.decide(now));
            let best = match op {
                Op::Read => Algorithm::Mlf,
                Op::Write => Algorithm::Sjf,
            };
            now += if c.groups().of(file, op) == best {
                MILLI / 2
            } else {
                MILLI
            };
            c.completed(now, &request, MILLI);
            ran.extend(c.decide(now));
        }
        let of = |file, op| c.groups().of(file, op);
        assert_eq!(of(1, Op::Write), Algorithm::Sjf, "{:?}", c.view());
        assert_eq!(of(2, Op::Read), Algorithm::Mlf, "{:?}", c.view());
        assert_eq!(c.trials.len(), 2);
        assert!(ran.len() < 60, "{} changes in {now} ns", ran.len());
    }

    #[test]
    fn a_file_moves_when_two_looks_agree_and_files_of_equal_weight_do_not_swing() {
        let mut c = chooser(disk(Mode::Tree));
        let mut now = 0;
        let ran = drive(&mut c, &mut now, 4000, |i| match i % 2 {
            0 => (1, Op::Write, (i / 2) << 18, 1 << 18),
            _ => (2, Op::Read, (i / 2) << 12, 1 << 12),
        });
        assert!(ran.len() <= 2, "{ran:?}");
        let changes = c.changes().0;
        assert!(changes <= 3, "{changes}");
        let before = c.groups().of(2, Op::Read);
        assert_ne!(before, c.groups().of(1, Op::Write));
        // The reads stop and resume in as many files: their class alone gets another answer.
        drive(&mut c, &mut now, 4000, |i| match i % 2 {
            0 => (1, Op::Write, (4000 + i / 2) << 18, 1 << 18),
            _ => (100 + i / 2 % 20, Op::Read, (i / 40) << 12, 1 << 12),
        });
        for file in c.busiest() {
            let class = &c.view().classes[file.class];
            assert_eq!(
                Some(c.groups().of(file.file, file.op)),
                class.choice,
                "{file:?}"
            );
        }
    }

    /// Offsets in random order, of 2^14 places (splitmix).
    fn anywhere(i: u64) -> u64 {
        let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 50) << 13
    }

    #[test]
    fn random_accesses_change_nothing_in_a_tree_and_are_measured_online() {
        let random = |i| (1, Op::Read, anywhere(i), 1 << 13);
        let mut now = 0;
        let mut c = chooser(disk(Mode::Tree));
        assert_eq!(drive(&mut c, &mut now, 2000, random), []);
        assert_eq!(c.busiest()[0].pattern, Some(AccessPattern::RandomSmall));
        assert!(
            c.reason()
                .contains("nothing changes, for read, 1 file, random small"),
            "{}",
            c.reason()
        );
        let mut c = chooser(disk(Mode::Online));
        let ran = drive(&mut c, &mut now, 20_000, random);
        assert!(ran.contains(&Algorithm::Sjf), "{ran:?}");
    }

    #[test]
    fn what_is_unlike_anything_known_changes_nothing() {
        for mode in [Mode::Tree, Mode::Online] {
            let mut c = chooser(disk(mode));
            let mut now = 0;
            // A known pattern first, so that a choice is made; then the same four places repeatedly, backwards.
            drive(&mut c, &mut now, 1000, |i| (1, Op::Write, i << 18, 1 << 18));
            let before = c.groups().clone();
            let ran = drive(&mut c, &mut now, 600, |i| {
                (2, Op::Write, (3 - i % 4) << 13, 1 << 13)
            });
            let settled = c.groups().clone();
            assert_eq!(
                c.busiest()[0].pattern,
                Some(AccessPattern::Unknown),
                "{:?}",
                c.view()
            );
            let later = drive(&mut c, &mut now, 6000, |i| {
                (2, Op::Write, (3 - i % 4) << 13, 1 << 13)
            });
            assert_eq!(
                *c.groups(),
                settled,
                "{mode:?} {before:?} {ran:?} {later:?}"
            );
        }
    }

    #[test]
    fn equal_events_have_equal_decisions_and_few_requests_none() {
        let run = |mode| {
            let mut c = chooser(disk(mode));
            let mut now = 0;
            let ran = drive(&mut c, &mut now, 3000, |i| {
                (i % 7, Op::Read, i << 13, 1 << 13)
            });
            (ran, c.reason().to_owned(), c.changes(), c.scores(now))
        };
        for mode in [Mode::Tree, Mode::Online] {
            assert_eq!(run(mode), run(mode));
        }
        for mode in [Mode::Tree, Mode::Online] {
            let c = chooser(disk(mode));
            let again = Chooser::of(&c.settings(), 0, SITE, 0).unwrap().unwrap();
            assert_eq!(again.choosing(), c.choosing());
        }
        assert!(
            Chooser::of(&["sched=mlf".into()], 0, SITE, 0)
                .unwrap()
                .is_none()
        );
        assert!(Chooser::of(&["sched=oak".into()], 0, SITE, 0).is_err());
        let mut c = chooser(disk(Mode::Tree));
        assert_eq!(drive(&mut c, &mut 0, 15, |i| (1, Op::Read, i, 1)), []);
        assert!(c.reason().contains("16 requests"));
    }
}
