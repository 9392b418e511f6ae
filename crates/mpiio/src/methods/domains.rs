//! File domains: the part of the file that each aggregator owns in a collective call, and the windows in which it works
//! through its part. Every rank computes the same domains from the same patterns.
use super::access_sets::{AccessSets, Tuning};
use super::cost::{RankAccess, Terms};
use super::plan::Part;
use crate::joint::first_offset;
use crate::model;
use penstock_base::Op;
use penstock_datatype::Pattern;
use penstock_layout::Layout;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// Extent per wanted byte above which empty windows are skipped. Finding them costs every rank a look at every pattern,
/// which dense accesses avoid.
const SPARSE: u64 = 4;

/// Whose rules determine the windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rules {
    /// Penstock's: ranks know each other's patterns, so no messages are needed; pieces with holes between them are
    /// written as they are.
    #[default]
    Ours,
    /// ROMIO's (ad_read_coll.c, ad_write_coll.c), with which published figures were measured. Ranks send each other
    /// what they want. Windows begin at the first wanted byte of a part. A window with holes is read before it is
    /// written.
    Romio,
}

/// What all ranks of a collective access compute alike: the owners of parts, and the windows of each round. A simulator
/// of all ranks needs one instance only.
pub struct Schedule {
    /// What each rank wants of the file.
    pub patterns: Vec<Pattern>,
    /// Ranks that own parts of the file, in order of their parts.
    pub aggregators: Vec<usize>,
    /// Whose rules.
    pub rules: Rules,
    /// Where the method goes by the servers' access sets.
    pub(crate) access_sets: Option<AccessSets>,
    rounds: RefCell<Rounds>,
}

/// The rounds that were requested last.
struct Rounds {
    domains: Domains,
    /// Number of the next round.
    next: usize,
    kept: VecDeque<Windows>,
}

/// The window of each aggregator in a round; empty for those that have none.
pub type Windows = Rc<[Range<i64>]>;

/// There is a collective step between two rounds, so that no rank is further ahead of another.
const KEPT: usize = 2;

impl Schedule {
    /// Divides the extent of `patterns` among `aggregators`, at multiples of `unit`, in windows of at most `window`
    /// bytes.
    pub fn new(
        patterns: Vec<Pattern>,
        aggregators: Vec<usize>,
        window: u64,
        unit: u64,
        rules: Rules,
    ) -> Schedule {
        let mut domains = Domains::new(&patterns, aggregators.len(), window, unit);
        if rules == Rules::Romio {
            domains.cut_ends(&patterns);
        }
        Schedule {
            patterns,
            aggregators,
            rules,
            access_sets: None,
            rounds: RefCell::new(Rounds {
                domains,
                next: 0,
                kept: VecDeque::new(),
            }),
        }
    }

    /// The same for a file that is striped over servers, for methods that go by their access sets.
    #[must_use]
    pub fn striped(mut self, layout: Layout, tuning: Tuning) -> Schedule {
        self.access_sets = Some(AccessSets::new(&self.patterns, layout, tuning));
        self
    }

    /// The windows of a round; `None` after the last one.
    ///
    /// # Panics
    /// If the round is more than one behind the latest one requested.
    pub fn round(&self, number: usize) -> Option<Windows> {
        let mut rounds = self.rounds.borrow_mut();
        while rounds.next <= number {
            let windows = rounds.domains.next_windows(&self.patterns)?;
            rounds.kept.push_back(windows.into());
            rounds.next += 1;
            if rounds.kept.len() > KEPT {
                rounds.kept.pop_front();
            }
        }
        let behind = rounds.next - number;
        assert!(behind <= KEPT, "round {number} is over on all ranks");
        Some(rounds.kept[rounds.kept.len() - behind].clone())
    }

    /// What each rank wants of a window: the rank, and the part with its position in the rank's stream.
    pub(crate) fn wanted<'s>(
        &'s self,
        window: &'s Range<i64>,
    ) -> impl Iterator<Item = (usize, Part)> + 's {
        let parts = self.patterns.iter().map(|pattern| part(pattern, window));
        parts.enumerate().filter(|(_, p)| p.pattern.len > 0)
    }
}

/// A rank's view of a collective access.
#[derive(Clone)]
pub struct Seat {
    /// Reads or writes.
    pub op: Op,
    /// Which rank.
    pub rank: usize,
    /// What all ranks know.
    pub schedule: Rc<Schedule>,
}

impl Seat {
    /// This rank's window in a round, if it has one.
    pub(crate) fn window(&self, windows: &[Range<i64>]) -> Option<Range<i64>> {
        let own = self
            .schedule
            .aggregators
            .iter()
            .position(|r| *r == self.rank)?;
        Some(windows[own].clone()).filter(|window| !window.is_empty())
    }

    /// What this rank wants of each owner's window in a round, with the owner.
    pub(crate) fn parts(&self, windows: &[Range<i64>]) -> Vec<(usize, Part)> {
        let owners = self.schedule.aggregators.iter().copied();
        let parts = windows.iter().map(|window| self.part(window));
        let wanted = owners.zip(parts);
        wanted.filter(|(_, part)| part.pattern.len > 0).collect()
    }

    /// What this rank wants of a window.
    pub(crate) fn part(&self, window: &Range<i64>) -> Part {
        part(&self.schedule.patterns[self.rank], window)
    }
}

/// The file domains of a collective access, and the progress in each.
struct Domains {
    /// The rest of each aggregator's part.
    left: Vec<Range<i64>>,
    window: i64,
    sparse: bool,
}

/// First and one past the last byte that any of the patterns covers; `None` if there is none.
pub fn extent<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Option<(i64, i64)> {
    patterns
        .into_iter()
        .filter(|p| p.len > 0)
        .map(Pattern::bounds)
        .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
}

impl Domains {
    /// Divides the extent of `patterns` evenly among `aggregators`, at multiples of `unit` where the parts are larger.
    /// Windows are at most `window` bytes.
    fn new(patterns: &[Pattern], aggregators: usize, window: u64, unit: u64) -> Domains {
        let left = parts(patterns, aggregators, unit);
        let (lo, hi) = extent(patterns).unwrap_or((0, 0));
        let wanted: u64 = patterns.iter().map(|p| p.len).sum();
        Domains {
            left,
            window: i64::try_from(window).unwrap_or(i64::MAX).max(1),
            sparse: (hi - lo) as u64 / SPARSE > wanted,
        }
    }

    /// Makes each part begin and end with wanted bytes.
    fn cut_ends(&mut self, patterns: &[Pattern]) {
        for left in &mut self.left {
            let parts: Vec<Pattern> = patterns.iter().map(|p| part(p, left).pattern).collect();
            let (lo, hi) = extent(&parts).unwrap_or((left.start, left.start));
            *left = lo..hi;
        }
    }

    /// The next window of each aggregator, empty for those that have finished; `None` when all have.
    fn next_windows(&mut self, patterns: &[Pattern]) -> Option<Vec<Range<i64>>> {
        let windows: Vec<_> = self
            .left
            .iter_mut()
            .map(|left| {
                if self.sparse {
                    let next = patterns
                        .iter()
                        .filter_map(|p| first_offset(p, p.stream_at(left.start)))
                        .min();
                    left.start = next.unwrap_or(left.end).clamp(left.start, left.end);
                }
                let end = left.start.saturating_add(self.window).min(left.end);
                let window = left.start..end;
                left.start = end;
                window
            })
            .collect();
        windows.iter().any(|w| !w.is_empty()).then_some(windows)
    }
}

/// Each aggregator's part of the extent.
pub(crate) fn parts(patterns: &[Pattern], aggregators: usize, unit: u64) -> Vec<Range<i64>> {
    let (lo, hi) = extent(patterns).unwrap_or((0, 0));
    let count = aggregators.max(1) as i64;
    let even = (hi - lo).div_euclid(count) + i64::from((hi - lo) % count != 0);
    let unit = i64::try_from(unit).unwrap_or(i64::MAX);
    let align = if unit > 0 && even > unit { unit } else { 1 };
    // The i-th boundary, rounded down to a stripe unit.
    let boundary = |i: i64| match i {
        0 => lo,
        i if i == count => hi,
        i => {
            let at = lo.saturating_add(even.saturating_mul(i)).min(hi);
            (at / align * align).max(lo)
        }
    };
    (0..count).map(|i| boundary(i)..boundary(i + 1)).collect()
}

/// The part of a pattern in a window.
pub(crate) fn part(pattern: &Pattern, window: &Range<i64>) -> Part {
    if window.is_empty() || pattern.len == 0 {
        return Part {
            at: 0,
            pattern: Pattern::contiguous(window.start, 0),
        };
    }
    let at = pattern.stream_at(window.start);
    let pattern = pattern.slice(at, pattern.stream_at(window.end) - at);
    Part { at, pattern }
}

/// DT table I: an aggregator's share of the aggregate extent, one window per operation.
pub(crate) fn counts(shape: &model::AccessSummary, window: u64) -> (u64, u64) {
    let share = shape.aggregate_extent.div_ceil(shape.aggregators.max(1));
    (share.div_ceil(window), share)
}

/// Seconds of an exchange in which every rank owns a part of the aggregate extent. `own` adds the processor time of the
/// method itself, from the bytes and regions of all ranks; a round has `barriers` barriers.
pub(crate) fn cost(
    terms: &Terms<'_>,
    shapes: &[RankAccess],
    aggregate_extent: f64,
    own: impl FnOnce(f64, f64) -> f64,
    barriers: f64,
) -> f64 {
    let (costs, window) = (terms.costs, terms.buffer);
    let bytes: f64 = shapes.iter().map(|s| s.bytes).sum();
    let regions: f64 = shapes.iter().map(RankAccess::regions).sum();
    // Empty windows are skipped: at most one window per region is accessed.
    let touched = aggregate_extent.min(regions * window);
    let file = match terms.direction {
        Op::Read => touched,
        Op::Write => bytes.min(touched),
    };
    // Windows with holes are written as each rank's pieces.
    let holes = match terms.direction {
        Op::Write if bytes < 0.999 * touched => {
            let each = if terms.by_call() {
                terms.operation()
            } else {
                costs.server_region
            };
            regions * each
        }
        _ => 0.0,
    };
    let rounds = (touched / (terms.place.ranks * window)).ceil().max(1.0);
    let work = file * terms.byte() + holes + regions * costs.piece + bytes * costs.copy_byte;
    terms.place.shared_out(work + own(bytes, regions))
        + rounds * barriers * costs.barrier
        + rounds * terms.operation()
}

/// Which bytes of a window a set of parts covers.
pub(crate) struct Coverage {
    words: Vec<u64>,
}

impl Coverage {
    pub(crate) fn new() -> Coverage {
        Coverage { words: Vec::new() }
    }

    /// Whether the parts together cover every byte of `window`. Parts may overlap.
    pub(crate) fn is_full<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a Pattern> + Clone,
        window: &Range<i64>,
    ) -> bool {
        let len = (window.end - window.start) as u64;
        let bytes: u64 = parts.clone().map(|p| p.len).sum();
        if bytes < len {
            return false;
        }
        if parts.clone().any(|p| p.len == len) {
            return true; // A part never covers a byte twice.
        }
        self.words.clear();
        self.words.resize(len.div_ceil(64) as usize, 0);
        for part in parts {
            part.for_each_run(|_, run| self.mark((run.offset - window.start) as u64, run.len));
        }
        let (last, rest) = (len % 64, (len / 64) as usize);
        self.words[..rest].iter().all(|w| *w == u64::MAX)
            && (last == 0 || self.words[rest] == (1 << last) - 1)
    }

    fn mark(&mut self, start: u64, len: u64) {
        let end = start + len;
        let (first, last) = ((start / 64) as usize, ((end - 1) / 64) as usize);
        let head = u64::MAX << (start % 64);
        let tail = u64::MAX >> (63 - (end - 1) % 64);
        if first == last {
            self.words[first] |= head & tail;
        } else {
            self.words[first] |= head;
            self.words[first + 1..last].fill(u64::MAX);
            self.words[last] |= tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_datatype::Loop;

    #[test]
    fn domains_cut_the_extent_without_gap_or_overlap() {
        let patterns = [
            Pattern::contiguous(100, 1000),
            Pattern::contiguous(3000, 2001),
        ];
        for (count, window, unit) in [(1, 64, 0), (3, 1000, 64), (7, 13, 1), (5000, 1, 64)] {
            let mut domains = Domains::new(&patterns, count, window, unit);
            let mut seen = Vec::new();
            while let Some(windows) = domains.next_windows(&patterns) {
                seen.extend(windows.into_iter().filter(|w| !w.is_empty()));
            }
            seen.sort_by_key(|w| w.start);
            assert_eq!((seen[0].start, seen.last().unwrap().end), (100, 5001));
            assert!(seen.windows(2).all(|w| w[0].end == w[1].start));
        }
    }

    #[test]
    fn empty_windows_of_sparse_accesses_are_skipped() {
        let far = 1 << 50;
        let patterns = [Pattern::contiguous(0, 10), Pattern::contiguous(far, 10)];
        let mut domains = Domains::new(&patterns, 2, 1 << 20, 0);
        let windows = domains.next_windows(&patterns).unwrap();
        assert_eq!(windows[0].start, 0);
        assert_eq!(windows[1], far..far + 10);
        assert_eq!(domains.next_windows(&patterns), None);
    }

    #[test]
    fn coverage_is_exact() {
        let every_second = |disp| {
            let tile = Loop::bytes(3).resized(0, 6).unwrap();
            Pattern::new(disp, tile, 0, 99).unwrap()
        };
        let mut coverage = Coverage::new();
        let parts = [every_second(0), every_second(3)];
        assert!(coverage.is_full(parts.iter(), &(0..198)));
        assert!(!coverage.is_full(parts.iter(), &(0..199)));
        let overlap = [
            every_second(0),
            every_second(0),
            Pattern::contiguous(0, 190),
        ];
        assert!(!coverage.is_full(overlap.iter(), &(0..198)));
    }
}
