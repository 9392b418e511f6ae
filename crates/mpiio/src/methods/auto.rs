//! # auto: the cheapest method by a cost model
//!
//! **Problem.** Which method is best differs by orders of magnitude from access to access, and the hints that choose
//! it are many.
//! **Idea.** Estimate the time of each candidate from statistics that the patterns give in closed form and from a few
//! measured costs, take the smallest, and learn from how long it really took.
//!
//! The candidates are the methods of the table, each by descriptors and by requests; each method's file has its
//! estimate ([`super::cost`] has what all are made from) and says when it is offered unasked.
//! Each estimate is multiplied by what was learnt, the running mean of measured over estimated time of that candidate
//! in this process, between 1/4 and 4. In a collective call rank 0's means and the costs that it measured count for
//! all, so that all ranks choose alike.
//! One range of the file to or from one stretch of memory by descriptors is not estimated: see [`crate::lean`].
//! **When it pays.** It is the default.
//! **Hint.** `penstock_method=auto`; the choice is in `penstock_method_chosen` and `penstock_method_reason`. ROMIO's hints narrow the candidates: see [`crate::hints`].
//! **Source.** The statistics are those of DT section IV; the costs are ours.
use super::Method;
use super::cost::{Costs, Place, Shape, Terms};
use super::row::Work;
use crate::hints::{Hints, Toggle};
use penstock_base::Op;

/// Its name in hints, environment and statistics.
pub(crate) const NAME: &str = "auto";
/// What it does, in a line.
pub(crate) const SUMMARY: &str = "the cheapest of these by a cost model";

/// One way to perform an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub method: Method,
    /// By descriptors in place of requests.
    pub shortcut: bool,
}

impl Candidate {
    pub(crate) const COUNT: usize = 2 * Method::COUNT;

    /// Its place in [`Ratios`].
    pub(crate) fn index(self) -> usize {
        2 * self.method.index() + usize::from(self.shortcut)
    }
}

/// Measured over estimated time, by candidate.
pub(crate) type Ratios = [f32; Candidate::COUNT];

/// What was learnt about the estimates, by direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Learnt([Ratios; 2]);

impl Default for Learnt {
    fn default() -> Learnt {
        Learnt([[UNKNOWN; Candidate::COUNT]; 2])
    }
}

/// The ratio of a candidate that nothing was learnt about.
pub(crate) const UNKNOWN: f32 = 1.0;
/// Share of the newest measurement in the running mean: when it is faster than expected, and when it is slower. Slow
/// ones are often somebody else's doing: a first touch, a busy moment.
const FASTER: f32 = 0.5;
const SLOWER: f32 = 0.1;
/// Bounds of what is learnt.
const RATIO: std::ops::RangeInclusive<f32> = 0.25..=4.0;

/// A ratio within bounds.
pub(crate) fn bounded(ratio: f32) -> f32 {
    ratio.clamp(*RATIO.start(), *RATIO.end())
}

impl Learnt {
    /// Takes in how long an access took that was estimated, without the learnt ratio, to take `estimate` seconds.
    pub(crate) fn learn(
        &mut self,
        direction: Op,
        candidate: Candidate,
        estimate: f64,
        seconds: f64,
    ) {
        if estimate <= 0.0 || seconds <= 0.0 {
            return;
        }
        let measured = bounded((seconds / estimate) as f32);
        let ratio = &mut self.0[direction as usize][candidate.index()];
        let new = if measured < *ratio { FASTER } else { SLOWER };
        *ratio = bounded(*ratio * (1.0 - new) + measured * new);
    }

    /// The ratios of one direction.
    pub(crate) fn ratios(&self, direction: Op) -> &Ratios {
        &self.0[direction as usize]
    }
}

/// What was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub candidate: Candidate,
    /// Estimated seconds, without and with what was learnt.
    pub estimate: f64,
    pub expected: f64,
    /// The next best and its expected seconds.
    pub next: Option<(Candidate, f64)>,
    /// The whole call's bytes, file regions and extent, for the reason.
    pub bytes: f64,
    pub regions: f64,
    pub extent: f64,
}

impl Choice {
    /// A sentence for people.
    pub(crate) fn reason(&self) -> String {
        let name = |c: Candidate| {
            let way = if c.shortcut { " by descriptors" } else { "" };
            format!("{}{way}", c.method.name())
        };
        let next = match self.next {
            Some((c, seconds)) => format!(", next {} {:.0} us", name(c), seconds * 1e6),
            None => String::new(),
        };
        format!(
            "{:.0} B in {:.0} regions, density {:.2}: {} {:.0} us{next}",
            self.bytes,
            self.regions,
            (self.bytes / self.extent.max(1.0)).min(9.99),
            name(self.candidate),
            self.expected * 1e6,
        )
    }
}

/// An access to choose for.
pub(crate) struct Access<'a> {
    pub direction: Op,
    /// One shape for a rank on its own, all ranks' for a collective call.
    pub shapes: &'a [Shape],
    /// From the first to the last byte of all of them.
    pub extent: f64,
    pub collective: bool,
}

/// Whether a method is a candidate: the hints leave it, and it is offered or asked for.
fn is_candidate(hints: &Hints, method: Method, access: &Access<'_>, place: &Place) -> bool {
    let direction = access.direction;
    let exchange = if access.collective {
        hints.cb[direction as usize]
    } else {
        Toggle::Disable
    };
    let left = if method.is_collective() {
        exchange != Toggle::Disable
    } else {
        exchange != Toggle::Enable && hints.leave(method, direction)
    };
    left && ((method.row().offered)(direction, place)
        || hints.toggle(method, direction) == Toggle::Enable)
}

/// Seconds that `method` takes for all ranks.
fn estimate(method: Method, terms: &Terms<'_>, of: &Access<'_>) -> f64 {
    match &method.row().work {
        Work::Alone { cost, .. } => {
            let (mut all, mut longest) = (0.0, 0.0_f64);
            for shape in of.shapes.iter().filter(|s| s.bytes > 0.0) {
                let one = cost(terms, shape);
                all += one;
                longest = longest.max(one);
            }
            terms.place.shared_out(all).max(longest)
        }
        Work::Exchange { cost, .. } | Work::SharedMemory { cost, .. } => {
            cost(terms, of.shapes, of.extent)
        }
    }
}

/// Picks a candidate for an access.
pub(crate) fn choose(
    costs: &Costs,
    ratios: &Ratios,
    hints: &Hints,
    access: &Access<'_>,
    place: &Place,
) -> Choice {
    let Access {
        direction, shapes, ..
    } = *access;
    let mut best: Option<(Candidate, f64, f64)> = None;
    let mut next: Option<(Candidate, f64)> = None;
    // Among equals, as accesses of nothing are, datatype is taken.
    let others = Method::ALL.into_iter().filter(|m| *m != Method::DATATYPE);
    let methods = std::iter::once(Method::DATATYPE).chain(others);
    for method in methods.filter(|m| is_candidate(hints, *m, access, place)) {
        for shortcut in [true, false] {
            if shortcut && (!place.shortcut || hints.shortcut == Toggle::Disable) {
                continue;
            }
            let candidate = Candidate { method, shortcut };
            let terms = Terms {
                costs,
                direction,
                place,
                shortcut,
                buffer: hints.buffer(method, direction) as f64,
            };
            let estimate = estimate(method, &terms, access);
            let expected = estimate * f64::from(ratios[candidate.index()]);
            match best {
                Some((_, _, least)) if expected >= least => {
                    if next.is_none_or(|(_, second)| expected < second) {
                        next = Some((candidate, expected));
                    }
                }
                _ => {
                    next = best.map(|(c, _, seconds)| (c, seconds));
                    best = Some((candidate, estimate, expected));
                }
            }
        }
    }
    // Contradicting hints leave nothing: datatype does everything.
    let (candidate, estimate, expected) = best.unwrap_or((
        Candidate {
            method: Method::DATATYPE,
            shortcut: place.shortcut && hints.shortcut != Toggle::Disable,
        },
        0.0,
        0.0,
    ));
    Choice {
        candidate,
        estimate,
        expected,
        next,
        bytes: shapes.iter().map(|s| s.bytes).sum(),
        regions: shapes.iter().map(|s| s.file_regions).sum(),
        extent: access.extent,
    }
}
