//! Access patterns per file: online over a sliding window, and from traces.
//!
//! Online, a file's pattern is that of its last [`WINDOW`] requests. In a trace it is the pattern of most windows, each
//! weighted with its requests. A single answer for all files is a vote of the files, weighted with their requests.
use super::features::{Features, MIN_WINDOW, WINDOW, Window};
use super::pattern::{AccessPattern, Tree};
use penstock_base::{Nanos, Op};
use penstock_trace::{Event, Kind};
use std::collections::BTreeMap;

/// Bounds of a [`Detector`].
#[derive(Debug, Clone, Copy)]
pub struct DetectorLimits {
    /// Most files that are tracked; each takes up to 6 KiB. At the limit, the least recently used half is dropped.
    pub files: usize,
    /// Requests between two classifications of a file.
    pub every: u32,
}

impl Default for DetectorLimits {
    fn default() -> DetectorLimits {
        DetectorLimits {
            files: 1024,
            every: 32,
        }
    }
}

/// The pattern of one file and operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileVerdict {
    /// The file.
    pub file: u64,
    /// The operation.
    pub op: Op,
    /// Its requests.
    pub requests: u64,
    /// Its bytes.
    pub bytes: u64,
    /// `None`: too few requests for a classification.
    pub pattern: Option<AccessPattern>,
    /// Confidence, 0 to 1.
    pub share: f64,
}

impl FileVerdict {
    /// A file without a classification.
    fn new(file: u64, op: Op) -> FileVerdict {
        FileVerdict {
            file,
            op,
            requests: 0,
            bytes: 0,
            pattern: None,
            share: 0.0,
        }
    }
}

#[derive(Debug)]
struct Followed {
    window: Window,
    last: Nanos,
    since: u32,
    verdict: FileVerdict,
}

/// Detects the patterns of files online. A plain state machine: time is passed in.
#[derive(Debug)]
pub struct Detector {
    tree: Tree,
    unit: u64,
    limits: DetectorLimits,
    files: BTreeMap<(u64, Op), Followed>,
}

impl Detector {
    /// A detector for data servers with this stripe unit.
    pub fn new(tree: Tree, unit: u64, limits: DetectorLimits) -> Detector {
        Detector {
            tree,
            unit,
            limits,
            files: BTreeMap::new(),
        }
    }

    /// A request arrives.
    pub fn arrived(&mut self, now: Nanos, file: u64, op: Op, offset: u64, bytes: u64) {
        if !self.files.contains_key(&(file, op)) && self.files.len() >= self.limits.files.max(1) {
            self.make_room();
        }
        let followed = self.files.entry((file, op)).or_insert_with(|| Followed {
            window: Window::default(),
            last: now,
            since: 0,
            verdict: FileVerdict::new(file, op),
        });
        followed.window.push(now, offset, bytes);
        followed.last = now;
        followed.since += 1;
        followed.verdict.requests += 1;
        followed.verdict.bytes = followed.verdict.bytes.saturating_add(bytes);
        let first = followed.verdict.pattern.is_none() && followed.window.len() >= MIN_WINDOW;
        if first || followed.since >= self.limits.every {
            followed.since = 0;
            if let Some(features) = followed.window.features(self.unit) {
                let (pattern, share) = self.tree.classify(&features);
                followed.verdict.pattern = Some(pattern);
                followed.verdict.share = share;
            }
        }
    }

    fn make_room(&mut self) {
        let mut uses: Vec<Nanos> = self.files.values().map(|f| f.last).collect();
        let middle = uses.len() / 2;
        let (_, &mut median, _) = uses.select_nth_unstable(middle);
        self.files.retain(|_, f| f.last > median);
    }

    /// The current pattern of a file.
    pub fn pattern(&self, file: u64, op: Op) -> Option<AccessPattern> {
        self.files.get(&(file, op))?.verdict.pattern
    }

    /// All tracked files.
    pub fn verdicts(&self) -> impl Iterator<Item = FileVerdict> {
        self.files.values().map(|f| f.verdict)
    }

    /// The pattern of most requests of this operation; `None` if no file has one.
    pub fn majority(&self, op: Op) -> Option<AccessPattern> {
        majority(self.verdicts().filter(|v| v.op == op))
    }
}

/// Files vote with their requests.
pub(crate) fn majority(verdicts: impl Iterator<Item = FileVerdict>) -> Option<AccessPattern> {
    let mut votes: BTreeMap<AccessPattern, u64> = BTreeMap::new();
    for verdict in verdicts {
        if let Some(pattern) = verdict.pattern {
            *votes.entry(pattern).or_default() += verdict.requests;
        }
    }
    // The order of patterns breaks ties, so that equal inputs have equal answers.
    let best = votes.into_iter().max_by_key(|(p, n)| (*n, *p))?;
    Some(best.0)
}

/// A full window of a trace, or the rest of one, for one file and operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// The file.
    pub file: u64,
    /// The operation.
    pub op: Op,
    /// Requests of the window.
    pub requests: usize,
    /// Its features.
    pub features: Features,
}

/// The windows of a trace, without overlap, in the order in which they fill. After them come, by file and operation,
/// incomplete windows of at least [`MIN_WINDOW`] requests.
pub fn looks(events: &[Event], unit: u64) -> Vec<Look> {
    let mut all = Vec::new();
    let mut look = |(file, op): (u64, Op), window: &mut Window| {
        if let Some(features) = window.features(unit) {
            all.push(Look {
                file,
                op,
                requests: window.len(),
                features,
            });
        }
        window.clear();
    };
    let mut open: BTreeMap<(u64, Op), Window> = BTreeMap::new();
    for event in events.iter().filter(|e| e.kind == Kind::Arrival) {
        let window = open.entry((event.file, event.op)).or_default();
        window.push(event.at, event.offset, event.bytes);
        if window.len() == WINDOW {
            look((event.file, event.op), window);
        }
    }
    let mut rest: Vec<_> = open.into_iter().collect();
    rest.sort_by_key(|(key, _)| *key);
    for (key, mut window) in rest {
        look(key, &mut window);
    }
    all
}

/// The patterns of all files of a trace by file and operation, and the pattern of most requests.
pub fn detect(
    events: &[Event],
    tree: &Tree,
    unit: u64,
) -> (Vec<FileVerdict>, Option<AccessPattern>) {
    let mut files: BTreeMap<(u64, Op), FileVerdict> = BTreeMap::new();
    for event in events.iter().filter(|e| e.kind == Kind::Arrival) {
        let verdict = files
            .entry((event.file, event.op))
            .or_insert_with(|| FileVerdict::new(event.file, event.op));
        verdict.requests += 1;
        verdict.bytes = verdict.bytes.saturating_add(event.bytes);
    }
    /// Requests and confidence by pattern.
    type Votes = BTreeMap<AccessPattern, (u64, f64)>;
    let mut votes: BTreeMap<(u64, Op), Votes> = BTreeMap::new();
    for look in looks(events, unit) {
        let (pattern, share) = tree.classify(&look.features);
        let votes = votes.entry((look.file, look.op)).or_default();
        let vote = votes.entry(pattern).or_default();
        vote.0 += look.requests as u64;
        vote.1 += share * look.requests as f64;
    }
    for (key, votes) in votes {
        let total: u64 = votes.values().map(|v| v.0).sum();
        let best = votes.iter().max_by_key(|(p, v)| (v.0, **p));
        if let (Some((pattern, (_, sure))), Some(verdict)) = (best, files.get_mut(&key)) {
            verdict.pattern = Some(*pattern);
            verdict.share = sure / total as f64;
        }
    }
    let verdicts: Vec<FileVerdict> = files.into_values().collect();
    let all = majority(verdicts.iter().copied());
    (verdicts, all)
}

#[cfg(test)]
mod tests {
    use super::super::generate::{Scenario, generate};
    use super::super::pattern::Order;
    use super::*;

    fn tree() -> Tree {
        Tree::builtin().unwrap()
    }

    #[test]
    fn patterns_are_told_from_traces_and_online() {
        let mut right = (0, 0, 0);
        for scenario in Scenario::all().filter(|s| s.processes == 16) {
            let run = generate(&scenario, 4711, None);
            let trace = run.servers.iter().max_by_key(|s| s.len()).unwrap();
            let (_, whole) = detect(trace, &tree(), run.unit);
            let mut online = Detector::new(tree(), run.unit, DetectorLimits::default());
            for e in trace {
                online.arrived(e.at, e.file, e.op, e.offset, e.bytes);
            }
            right.0 += u32::from(whole == Some(scenario.pattern));
            right.1 += u32::from(online.majority(scenario.op) == Some(scenario.pattern));
            right.2 += 1;
        }
        assert!(right.0 * 100 >= right.2 * 93, "{right:?}");
        assert!(right.1 * 100 >= right.2 * 93, "{right:?}");
    }

    #[test]
    fn what_one_process_writes_from_end_to_end_is_contiguous() {
        for size in [4096, 16384, 60000, 1 << 18] {
            for (gap, order) in [(1, Order::Contiguous), (4, Order::Strided)] {
                let mut online = Detector::new(tree(), 65536, DetectorLimits::default());
                for i in 0..2000 {
                    online.arrived(i * 1_000_000, 1, Op::Write, i * gap * size, size);
                    let told = online.pattern(1, Op::Write);
                    assert!(
                        told.is_none_or(|p| p.order() == order),
                        "{size} {gap} after {i}: {told:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_nobody_has_taught_is_unknown() {
        type Offset<'a> = &'a mut dyn FnMut(u64, &mut penstock_base::Random) -> u64;
        let mut random = penstock_base::Random::new(8);
        let mut told = |offset: Offset<'_>| {
            let mut online = Detector::new(tree(), 65536, DetectorLimits::default());
            for i in 0..2000 {
                let at = offset(i, &mut random);
                online.arrived(i * 1_000_000, 1, Op::Write, at, 8192);
            }
            online.pattern(1, Op::Write)
        };
        let cases: [(&str, Offset<'_>); 4] = [
            ("from end to begin", &mut |i, _| (5000 - i) * 8192),
            ("one place over and over", &mut |_, _| 8192),
            ("four places in turn", &mut |i, _| i % 4 * 1_000_000),
            ("laps of a hundred", &mut |i, _| i % 100 * 8192),
        ];
        for (name, offset) in cases {
            assert_eq!(told(offset), Some(AccessPattern::Unknown), "{name}");
        }
    }

    #[test]
    fn every_request_of_a_trace_is_in_one_window() {
        let scenario = Scenario::all().nth(40).unwrap();
        let run = generate(&scenario, 3, None);
        for trace in &run.servers {
            let looks = looks(trace, run.unit);
            let (verdicts, _) = detect(trace, &tree(), run.unit);
            for verdict in verdicts {
                let seen: usize = looks
                    .iter()
                    .filter(|l| (l.file, l.op) == (verdict.file, verdict.op))
                    .map(|l| l.requests)
                    .sum();
                let left = verdict.requests as usize - seen;
                assert!(left < MIN_WINDOW, "{verdict:?} {seen}");
                assert_eq!(verdict.pattern.is_some(), seen > 0);
            }
            assert!(looks.iter().all(|l| l.requests <= WINDOW));
        }
    }

    #[test]
    fn few_requests_have_no_pattern() {
        let mut online = Detector::new(tree(), 65536, DetectorLimits::default());
        for i in 0..15 {
            online.arrived(i, 1, Op::Read, i * 4096, 4096);
        }
        assert_eq!(online.pattern(1, Op::Read), None);
        online.arrived(15, 1, Op::Read, 15 * 4096, 4096);
        assert!(online.pattern(1, Op::Read).is_some());
        assert_eq!(online.pattern(1, Op::Write), None);
        assert_eq!(online.majority(Op::Write), None);
    }

    #[test]
    fn files_are_bounded_and_the_unused_go_first() {
        let limits = DetectorLimits {
            files: 100,
            every: 32,
        };
        let mut online = Detector::new(tree(), 65536, limits);
        for i in 0..10_000 {
            online.arrived(i, i, Op::Read, 0, 4096);
            assert!(online.verdicts().count() <= 100);
        }
        assert!(online.verdicts().any(|v| v.file == 9_999));
        assert!(online.verdicts().all(|v| v.file > 9_800));
    }
}
