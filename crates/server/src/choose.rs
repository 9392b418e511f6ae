//! Which algorithm the queue runs when it chooses itself: `sched=tree` and `sched=online`.
//!
//! *Problem*: no algorithm is best for all programs and devices. *Idea*: the last [`RECENT`] requests say what is going
//! on: operation, files, and per file and operation its pattern (`penstock_trace`'s detector). The tree is asked for each
//! pattern that is present, and the answers vote with their requests: patterns are told apart per file, and only the
//! answers meet, because one algorithm orders a server's queue. `tree` runs the winner once two looks in a row agree.
//! `online` begins with it, and then tries and measures ([`Selector`]). *Parameters*: [`Choosing`]. *Source*: TS
//! chapter 6; voting by answers instead of by patterns is ours.
//!
//! A plain state machine under the queue's mutex: a few hundred nanoseconds per request, a look every 100 ms.
use crate::error::Error;
use crate::settings::Settings;
use crate::tracing::traced;
use penstock_sched::{
    Algorithm, Nanos, Objective, Op, Request, Selector, SelectorOptions, Situation, Tree,
};
use penstock_trace::{self as trace, Detector, DetectorLimits, MIN_WINDOW, Pattern};
use penstock_wire::message::{ChoiceStatus, FileStatus, PatternStatus};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Requests that a look considers at most.
const RECENT: usize = 512;
/// Older requests don't count.
const HORIZON: Nanos = 5_000_000_000;
/// Time between looks.
const PERIOD: Nanos = 100_000_000;
/// Looks in a row that must agree.
const AGREE: u32 = 2;
/// Files followed; each takes up to 6 KiB.
const FILES: usize = 256;
/// Files that the status names.
const SHOWN: usize = 16;
/// What runs until enough has been seen.
const FIRST: Algorithm = Algorithm::To;

/// Who chooses the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// The user.
    #[default]
    Fixed,
    /// A selection tree.
    Tree,
    /// The online selector.
    Online,
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::Fixed, Mode::Tree, Mode::Online];

    /// The name that users write after `sched=`.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Mode::Fixed => None,
            Mode::Tree => Some("tree"),
            Mode::Online => Some("online"),
        }
    }
}

/// How to choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choosing {
    pub(crate) mode: Mode,
    pub(crate) tree: Tree,
    pub(crate) objective: Objective,
    /// Sequential / random throughput of the device, for reads and writes. 1: no difference, as in memory and flash.
    pub(crate) ratio: [f64; 2],
}

impl Default for Choosing {
    fn default() -> Choosing {
        Choosing {
            mode: Mode::Fixed,
            tree: Tree::T3,
            objective: Objective::Bandwidth,
            ratio: [1.0, 1.0],
        }
    }
}

/// Which algorithm a data server runs when it chooses itself: looks at each request, and measures.
#[derive(Debug)]
pub struct Chooser {
    choosing: Choosing,
    /// Requests of at least so many bytes are large.
    unit: u64,
    /// Bytes of the machine.
    memory: u64,
    detector: Detector,
    recent: VecDeque<Seen>,
    look_at: Nanos,
    algorithm: Algorithm,
    since: Nanos,
    changes: u64,
    reason: String,
    /// What the last look would run, and how many looks in a row.
    proposed: Option<(Algorithm, u32)>,
    selector: Option<Selector>,
    view: View,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Nanos,
    file: u64,
    op: Op,
    bytes: u64,
}

/// What a look saw.
#[derive(Debug, Default)]
struct View {
    files: u32,
    requests: u32,
    classes: Vec<Class>,
    /// The files with the most requests.
    busiest: Vec<FileView>,
}

/// One file and operation.
#[derive(Debug)]
struct FileView {
    file: u64,
    requests: u32,
    bytes: u64,
    /// Of the detector; a file with few requests has none yet.
    pattern: Option<Pattern>,
    /// Index of its class.
    class: usize,
}

/// Files with the same operation and pattern.
#[derive(Debug)]
struct Class {
    situation: Situation,
    files: u32,
    requests: u32,
    bytes: u64,
    choice: Algorithm,
}

impl Chooser {
    /// The chooser of a data server with these settings (`sched=online`, …), which begins at `now` with `held` requests;
    /// none if they name an algorithm. `unit`: requests of at least so many bytes are large; `memory`: of the machine.
    pub fn of(
        settings: &[String],
        now: Nanos,
        unit: u64,
        memory: u64,
        held: usize,
    ) -> Result<Option<Chooser>, Error> {
        let all = Settings::default().with(settings);
        let choosing = all.map_err(|e| Error::Setting(e.message))?.choosing;
        if choosing.mode == Mode::Fixed {
            return Ok(None);
        }
        let chooser = Chooser::new(now, choosing, unit, memory, held);
        chooser.map(Some).map_err(|e| Error::Setting(e.to_string()))
    }

    /// The settings that it comes from, for [`Chooser::of`].
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

    /// Begins at `now`, with `held` requests in the queue.
    pub(crate) fn new(
        now: Nanos,
        choosing: Choosing,
        unit: u64,
        memory: u64,
        held: usize,
    ) -> trace::Result<Chooser> {
        let limits = DetectorLimits {
            files: FILES,
            ..DetectorLimits::default()
        };
        let options = SelectorOptions {
            objective: choosing.objective,
            tree: choosing.tree,
            ..SelectorOptions::default()
        };
        let mut selector =
            (choosing.mode == Mode::Online).then(|| Selector::new(now, options, None));
        if let Some(selector) = &mut selector {
            (0..held).for_each(|_| selector.arrived(now));
        }
        Ok(Chooser {
            choosing,
            unit,
            memory,
            detector: Detector::new(trace::Tree::builtin()?, unit, limits),
            recent: VecDeque::with_capacity(RECENT),
            look_at: now,
            algorithm: selector.as_ref().map_or(FIRST, Selector::algorithm),
            since: now,
            changes: 0,
            reason: format!("until {MIN_WINDOW} requests have been seen"),
            proposed: None,
            selector,
            view: View::default(),
        })
    }

    pub(crate) fn choosing(&self) -> &Choosing {
        &self.choosing
    }

    /// What is to run.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// A request has come to the queue.
    pub fn arrived(&mut self, now: Nanos, request: &Request) {
        let Request {
            file,
            op,
            offset,
            bytes,
            ..
        } = *request;
        self.detector.arrived(now, file, traced(op), offset, bytes);
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Seen {
            at: now,
            file,
            op,
            bytes,
        });
        if let Some(selector) = &mut self.selector {
            selector.arrived(now);
        }
    }

    /// A request has been served, `response` after it came.
    pub fn completed(&mut self, now: Nanos, request: &Request, response: Nanos) {
        if let Some(selector) = &mut self.selector {
            selector.completed(now, request.program, request.bytes, response);
        }
    }

    /// Another algorithm that is to run from now on.
    pub fn decide(&mut self, now: Nanos) -> Option<Algorithm> {
        let agreed = if now >= self.look_at {
            self.look(now)
        } else {
            None
        };
        let (algorithm, reason) = match (&mut self.selector, agreed) {
            (Some(selector), agreed) => {
                let told = agreed.and_then(|(situation, _)| selector.observe(now, situation));
                let decision = told.or_else(|| selector.decide(now));
                // Its reason can change though its choice does not.
                let reason = selector.last().filter(|_| !self.view.classes.is_empty());
                if let Some(last) = reason {
                    self.reason.clone_from(&last.reason);
                }
                let decision = decision?;
                (decision.algorithm, decision.reason)
            }
            (None, Some((situation, share))) => {
                let class = self.class_text(&situation);
                let tree = self.choosing.tree.name();
                let reason = format!("{tree} says so for {class} ({share:.0}% of recent requests)");
                let choice = self.choosing.tree.choose(&situation);
                if choice == self.algorithm {
                    self.reason = reason;
                    return None;
                }
                (choice, reason)
            }
            (None, None) => return None,
        };
        self.reason = reason;
        if algorithm == self.algorithm {
            return None;
        }
        self.algorithm = algorithm;
        self.since = now;
        self.changes += 1;
        Some(algorithm)
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
            Tree::T3 | Tree::T4 => situation.to_string(),
        }
    }

    /// Looks at the recent requests. The commonest situation among those that want the winner and the winner's per
    /// cent of the votes, once enough looks agree.
    fn look(&mut self, now: Nanos) -> Option<(Situation, f64)> {
        while self.recent.front().is_some_and(|s| s.at + HORIZON < now) {
            self.recent.pop_front();
        }
        if self.recent.len() < MIN_WINDOW {
            return None;
        }
        self.look_at = now + PERIOD;
        self.view = self.see();
        let mut votes: Vec<(Algorithm, u32)> = Vec::new();
        for class in &self.view.classes {
            match votes.iter_mut().find(|v| v.0 == class.choice) {
                Some(vote) => vote.1 += class.requests,
                None => votes.push((class.choice, class.requests)),
            }
        }
        let (winner, share) = votes.into_iter().rev().max_by_key(|v| v.1)?;
        let looks = match self.proposed {
            Some((before, looks)) if before == winner => looks.saturating_add(1),
            Some(_) => 1,
            // The first answer is better than none.
            None => AGREE,
        };
        self.proposed = Some((winner, looks));
        if looks < AGREE {
            return None;
        }
        let classes = self.view.classes.iter().filter(|c| c.choice == winner);
        let situation = classes.max_by_key(|c| c.requests)?.situation;
        Some((
            situation,
            f64::from(share) * 100.0 / f64::from(self.view.requests.max(1)),
        ))
    }

    fn see(&self) -> View {
        // (requests, bytes) by file and operation
        let mut files: BTreeMap<(u64, bool), (u32, u64)> = BTreeMap::new();
        for seen in &self.recent {
            let sums = files.entry((seen.file, seen.op == Op::Write)).or_default();
            sums.0 += 1;
            sums.1 += seen.bytes;
        }
        let verdicts: HashMap<(u64, trace::Op), (Option<Pattern>, u64)> = self
            .detector
            .verdicts()
            .map(|v| ((v.file, v.op), (v.pattern, v.bytes)))
            .collect();
        let mut distinct: Vec<u64> = files.keys().map(|k| k.0).collect();
        distinct.dedup();
        let mut view = View {
            files: distinct.len() as u32,
            requests: self.recent.len() as u32,
            classes: Vec::new(),
            busiest: Vec::new(),
        };
        for ((file, write), (requests, bytes)) in files {
            let op = if write { Op::Write } else { Op::Read };
            let verdict = verdicts.get(&(file, traced(op))).copied();
            let (pattern, all_bytes) = verdict.unwrap_or((None, bytes));
            let (contiguous, large) = match pattern {
                Some(pattern) => (pattern.is_contiguous(), !pattern.is_small()),
                // Too few of them to see an order.
                None => (true, bytes / u64::from(requests) >= self.unit),
            };
            let like = |c: &&mut Class| {
                let s = &c.situation;
                (s.op, s.contiguous, s.large) == (op, contiguous, large)
            };
            let known = view.classes.iter_mut().position(|mut c| like(&mut c));
            view.busiest.push(FileView {
                file,
                requests,
                bytes,
                pattern,
                class: known.unwrap_or(view.classes.len()),
            });
            match known.map(|at| &mut view.classes[at]) {
                Some(class) => {
                    class.files += 1;
                    class.requests += requests;
                    class.bytes += bytes;
                    class.situation.bytes_per_file += all_bytes;
                }
                None => view.classes.push(Class {
                    situation: Situation {
                        op,
                        files: view.files,
                        bytes_per_file: all_bytes,
                        contiguous,
                        large,
                        ratio: self.choosing.ratio[usize::from(write)],
                        memory: self.memory,
                    },
                    files: 1,
                    requests,
                    bytes,
                    choice: FIRST,
                }),
            }
        }
        for class in &mut view.classes {
            class.situation.bytes_per_file /= u64::from(class.files);
            class.choice = self.choosing.tree.choose(&class.situation);
        }
        view.busiest
            .sort_by_key(|f| (std::cmp::Reverse(f.requests), f.file));
        view.busiest.truncate(SHOWN);
        view
    }

    /// For people and programs.
    pub(crate) fn status(&self, now: Nanos) -> ChoiceStatus {
        let milli = |ratio: f64| (ratio * 1e3).round() as u64;
        let objective = self.choosing.objective;
        let name = Objective::ALL.iter().find(|(o, _)| *o == objective);
        let scores = self.selector.as_ref().map_or(Vec::new(), |s| s.scores(now));
        let unit = |score: f64| match objective {
            Objective::P99 => 1e9 / score.max(f64::MIN_POSITIVE),
            _ => score,
        };
        ChoiceStatus {
            mode: self.choosing.mode.name().unwrap_or("fixed").into(),
            tree: self.choosing.tree.name().into(),
            objective: name.map_or("", |n| n.1).into(),
            ratio_read_milli: milli(self.choosing.ratio[0]),
            ratio_write_milli: milli(self.choosing.ratio[1]),
            changes: self.changes,
            age_ns: now.saturating_sub(self.since),
            reason: self.reason.clone(),
            requests: self.view.requests,
            files: self.view.files,
            patterns: self.view.classes.iter().map(Class::status).collect(),
            busiest: self
                .view
                .busiest
                .iter()
                .filter_map(|f| {
                    let class = self.view.classes.get(f.class)?;
                    Some(FileStatus {
                        file: f.file,
                        write: class.situation.op == Op::Write,
                        pattern: f.pattern.map_or("", Pattern::name).into(),
                        requests: f.requests,
                        request_bytes: f.bytes / u64::from(f.requests.max(1)),
                        choice: class.choice.name().into(),
                    })
                })
                .collect(),
            scores: scores
                .into_iter()
                .map(|(a, score)| (a.name().into(), unit(score).round() as u64))
                .collect(),
        }
    }
}

impl Class {
    fn status(&self) -> PatternStatus {
        let s = &self.situation;
        PatternStatus {
            write: s.op == Op::Write,
            contiguous: s.contiguous,
            large: s.large,
            files: self.files,
            requests: self.requests,
            request_bytes: self.bytes / u64::from(self.requests.max(1)),
            bytes_per_file: s.bytes_per_file,
            choice: self.choice.name().into(),
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    fn chooser(choosing: Choosing) -> Chooser {
        Chooser::new(0, choosing, 64 << 10, 8 << 30, 0).unwrap()
    }

    fn disk(mode: Mode) -> Choosing {
        Choosing {
            mode,
            ratio: [40.68, 21.29],
            ..Choosing::default()
        }
    }

    /// `n` requests one after the other, 1 ms each; where file, operation, offset and bytes are those of `make`.
    fn drive(
        chooser: &mut Chooser,
        now: &mut Nanos,
        n: u64,
        make: impl Fn(u64) -> (u64, Op, u64, u64),
    ) -> Vec<Algorithm> {
        let mut ran = Vec::new();
        for i in 0..n {
            let (file, op, offset, bytes) = make(i);
            let request = Request {
                id: i,
                file,
                op,
                offset,
                bytes,
                program: 1,
            };
            chooser.arrived(*now, &request);
            ran.extend(chooser.decide(*now));
            *now += MILLI;
            chooser.completed(*now, &request, MILLI);
            ran.extend(chooser.decide(*now));
        }
        ran
    }

    #[test]
    fn the_tree_follows_what_programs_do() {
        let mut c = chooser(disk(Mode::Tree));
        let mut now = 0;
        assert_eq!(c.algorithm(), Algorithm::To);
        let large = |i| (1, Op::Write, i << 18, 1 << 18);
        assert_eq!(
            drive(&mut c, &mut now, 10, large),
            [],
            "too little is known"
        );
        assert_eq!(drive(&mut c, &mut now, 600, large), [Algorithm::Aioli]);
        let status = c.status(now);
        assert!(
            status
                .reason
                .starts_with("t3 says so for write, 1 file, contiguous large, ratio 21.29")
                && status.reason.contains("100%"),
            "{status:?}"
        );
        assert_eq!((status.files, status.changes), (1, 1));
        assert_eq!(status.patterns.len(), 1);
        assert_eq!(status.patterns[0].request_bytes, 1 << 18);
        // Many files that are read: T3 has another answer, and it comes once they are most of the window.
        let read = |i: u64| (100 + i % 20, Op::Read, (i / 20) << 12, 1 << 12);
        let ran = drive(&mut c, &mut now, 2000, read);
        assert_eq!(ran.last(), Some(&Algorithm::Sjf));
        assert!(ran.len() <= 3, "{ran:?}");
        // An old window says nothing.
        now += 2 * HORIZON;
        assert_eq!(drive(&mut c, &mut now, 10, large), []);
        assert_eq!(c.algorithm(), Algorithm::Sjf);
    }

    #[test]
    fn files_with_different_patterns_have_an_answer_each() {
        let mut c = chooser(disk(Mode::Tree));
        let mut now = 0;
        // One file in large pieces, and one in small pieces three times as often.
        drive(&mut c, &mut now, 1200, |i| match i % 4 {
            0 => (1, Op::Write, (i / 4) << 18, 1 << 18),
            _ => (2, Op::Read, (i - i / 4) << 12, 1 << 12),
        });
        let status = c.status(now);
        assert_eq!((status.files, status.requests), (2, RECENT as u32));
        assert_eq!(status.patterns.len(), 2, "{status:?}");
        let write = status.patterns.iter().find(|p| p.write).unwrap();
        let read = status.patterns.iter().find(|p| !p.write).unwrap();
        assert!(write.large && !read.large && write.requests * 3 == read.requests);
        assert_eq!(read.choice, c.algorithm().name(), "the most requests");
        let files: Vec<(u64, bool, &str)> = status
            .busiest
            .iter()
            .map(|f| (f.file, f.write, f.choice.as_str()))
            .collect();
        let (r, w) = (read.choice.as_str(), write.choice.as_str());
        assert_eq!(files, [(2, false, r), (1, true, w)]);
        assert!(status.busiest.iter().all(|f| !f.pattern.is_empty()));
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
        let status = c.status(now);
        assert_eq!(status.scores.len(), 5);
        assert!(status.changes >= 4 && !status.reason.is_empty());
        // All gave 256 KiB per ms.
        let rate = 262_144_000.0;
        assert!(
            status
                .scores
                .iter()
                .all(|s| (s.1 as f64 / rate - 1.0).abs() < 0.01)
        );
    }

    #[test]
    fn equal_events_have_equal_decisions_and_few_requests_none() {
        let run = |mode| {
            let mut c = chooser(disk(mode));
            let mut now = 0;
            let ran = drive(&mut c, &mut now, 3000, |i| {
                (i % 7, Op::Read, i << 13, 1 << 13)
            });
            (ran, c.status(now))
        };
        for mode in [Mode::Tree, Mode::Online] {
            assert_eq!(run(mode), run(mode));
        }
        for mode in [Mode::Tree, Mode::Online] {
            let c = chooser(disk(mode));
            let again = Chooser::of(&c.settings(), 0, 1, 1, 0).unwrap().unwrap();
            assert_eq!(again.choosing(), c.choosing());
        }
        assert!(
            Chooser::of(&["sched=mlf".into()], 0, 1, 1, 0)
                .unwrap()
                .is_none()
        );
        assert!(Chooser::of(&["sched=oak".into()], 0, 1, 1, 0).is_err());
        let mut c = chooser(disk(Mode::Tree));
        assert_eq!(drive(&mut c, &mut 0, 15, |i| (1, Op::Read, i, 1)), []);
        assert!(c.status(0).reason.contains("16 requests"));
    }
}
