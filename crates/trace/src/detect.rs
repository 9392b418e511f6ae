//! Access patterns per file, online over a sliding window and from traces.
//!
//! A file's pattern online is that of its last [`WINDOW`] requests. In a trace it is the pattern of most windows, each
//! weighed with its requests. Where one answer for all files is wanted, the files vote with their requests.
use crate::event::{Event, Kind, Nanos, Op};
use crate::features::{MIN_WINDOW, WINDOW, Window};
use crate::pattern::{Pattern, Tree};
use std::collections::HashMap;

/// Bounds of a [`Detector`].
#[derive(Debug, Clone, Copy)]
pub struct DetectorLimits {
    /// Files that are followed; each takes up to 6 KiB. The half that was not used for the longest time makes room.
    pub files: usize,
    /// Requests between two looks at a window.
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
    /// `None`: too few requests to tell.
    pub pattern: Option<Pattern>,
    /// How sure that is, 0 to 1.
    pub share: f64,
}

#[derive(Debug)]
struct Followed {
    window: Window,
    last: Nanos,
    since: u32,
    verdict: FileVerdict,
}

/// Follows files online. A plain state machine: time is passed in.
#[derive(Debug)]
pub struct Detector {
    tree: Tree,
    unit: u64,
    limits: DetectorLimits,
    files: HashMap<(u64, Op), Followed>,
}

impl Detector {
    /// For data servers with this stripe unit.
    pub fn new(tree: Tree, unit: u64, limits: DetectorLimits) -> Detector {
        Detector {
            tree,
            unit,
            limits,
            files: HashMap::new(),
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
            verdict: FileVerdict {
                file,
                op,
                requests: 0,
                bytes: 0,
                pattern: None,
                share: 0.0,
            },
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

    /// The pattern of a file now.
    pub fn pattern(&self, file: u64, op: Op) -> Option<Pattern> {
        self.files.get(&(file, op))?.verdict.pattern
    }

    /// All files that are followed.
    pub fn verdicts(&self) -> impl Iterator<Item = FileVerdict> {
        self.files.values().map(|f| f.verdict)
    }

    /// The pattern of most requests of this operation; `None` if no file has one.
    pub fn majority(&self, op: Op) -> Option<Pattern> {
        majority(self.verdicts().filter(|v| v.op == op))
    }
}

/// Files vote with their requests.
pub(crate) fn majority(verdicts: impl Iterator<Item = FileVerdict>) -> Option<Pattern> {
    let mut votes: HashMap<Pattern, u64> = HashMap::new();
    for verdict in verdicts {
        if let Some(pattern) = verdict.pattern {
            *votes.entry(pattern).or_default() += verdict.requests;
        }
    }
    // The order of patterns decides a tie, so that equal inputs have equal answers.
    let best = votes.into_iter().max_by_key(|(p, n)| (*n, *p))?;
    Some(best.0)
}

/// The patterns of all files of a trace, by file and operation, and that of most requests.
pub fn detect(events: &[Event], tree: &Tree, unit: u64) -> (Vec<FileVerdict>, Option<Pattern>) {
    struct Votes {
        window: Window,
        verdict: FileVerdict,
        /// Requests and sureness by pattern.
        votes: HashMap<Pattern, (u64, f64)>,
    }
    impl Votes {
        fn look(&mut self, tree: &Tree, unit: u64) {
            if let Some(features) = self.window.features(unit) {
                let (pattern, share) = tree.classify(&features);
                let vote = self.votes.entry(pattern).or_default();
                vote.0 += self.window.len() as u64;
                vote.1 += share * self.window.len() as f64;
            }
            self.window.clear();
        }
    }
    let mut files: HashMap<(u64, Op), Votes> = HashMap::new();
    for event in events.iter().filter(|e| e.kind == Kind::Arrival) {
        let votes = files
            .entry((event.file, event.op))
            .or_insert_with(|| Votes {
                window: Window::default(),
                verdict: FileVerdict {
                    file: event.file,
                    op: event.op,
                    requests: 0,
                    bytes: 0,
                    pattern: None,
                    share: 0.0,
                },
                votes: HashMap::new(),
            });
        votes.window.push(event.at, event.offset, event.bytes);
        votes.verdict.requests += 1;
        votes.verdict.bytes = votes.verdict.bytes.saturating_add(event.bytes);
        if votes.window.len() == WINDOW {
            votes.look(tree, unit);
        }
    }
    let mut verdicts: Vec<FileVerdict> = files
        .into_values()
        .map(|mut votes| {
            votes.look(tree, unit);
            let total: u64 = votes.votes.values().map(|v| v.0).sum();
            let best = votes.votes.iter().max_by_key(|(p, v)| (v.0, **p));
            if let Some((pattern, (_, sure))) = best {
                votes.verdict.pattern = Some(*pattern);
                votes.verdict.share = sure / total as f64;
            }
            votes.verdict
        })
        .collect();
    verdicts.sort_by_key(|v| (v.file, v.op));
    let all = majority(verdicts.iter().copied());
    (verdicts, all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Scenario, generate};

    fn tree() -> Tree {
        Tree::builtin().unwrap()
    }

    #[test]
    fn patterns_are_told_from_traces_and_online() {
        let mut right = (0, 0, 0);
        for scenario in Scenario::all().filter(|s| s.processes == 16) {
            let run = generate(&scenario, 4711);
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
