//! # auto: the cheapest method by a cost model
//!
//! **Problem.** Which method is best differs by orders of magnitude from access to access, and the hints that choose it
//! are many. **Idea.** Estimate the time of each candidate from closed-form statistics of the patterns and from a few
//! measured costs. Take the smallest, and learn from the time it really took.
//!
//! The candidates are the methods of the table, each by descriptors and by requests. Each method's file has its
//! estimate ([`super::cost`] has their common inputs) and says when it is offered unasked. Each estimate is multiplied
//! by what was learnt: the running geometric mean of measured over estimated time of that candidate in this process.
//! Only this rank's own work is measured. Waiting for other ranks counts as in the model; otherwise a rank that comes
//! late would make methods look slow in which ranks meet. A candidate without measurements is assumed to be as far off
//! as measured ones, of the same transport if there are any. On a busy machine all take longer. In a collective call
//! rank 0's means and measured costs are used by all, so that all ranks choose the same. Estimates that differ by less
//! than 15% tie, and the candidate measured last stays. Accesses without exchange need no meeting, but all ranks must
//! know that. After each choice of such a candidate the next accesses are made without one ([`MeetingSkips`]), at most 15. An
//! access of one file range and one memory range by descriptors is not estimated: see [`crate::fast_path`]. **When it
//! pays.** It is the default. **Hint.** `penstock_method=auto`; the choice is in `penstock_method_chosen` and
//! `penstock_method_reason`. ROMIO's hints narrow the candidates: see [`crate::hints`]. **Source.** The statistics are
//! those of DT section IV; the costs are Penstock's.
use super::Method;
use super::cost::{Costs, RankAccess, Surroundings, Terms};
use super::row::Work;
use crate::hints::{Hints, Toggle};
use penstock_base::Op;

/// Its name in hints, environment and statistics.
pub(crate) const NAME: &str = "auto";
/// Its summary in one line.
pub(crate) const SUMMARY: &str = "the cheapest of these by a cost model";

/// A way to perform an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub method: Method,
    /// Whether it uses descriptors instead of requests.
    pub shortcut: bool,
}

impl Candidate {
    pub(crate) const COUNT: usize = 2 * Method::COUNT;

    /// The candidate with this index in [`Ratios`].
    pub(crate) fn from_index(index: usize) -> Option<Candidate> {
        let method = *Method::ALL.get(index / 2)?;
        let shortcut = index % 2 == 1;
        Some(Candidate { method, shortcut })
    }

    /// Its index in [`Ratios`].
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

/// The ratio of a candidate without measurements.
pub(crate) const UNKNOWN: f32 = 1.0;
/// Weight of the newest measurement in the running mean: if it is faster than expected, and if it is slower. Slow ones
/// often have other causes: a first touch, a busy moment.
const FASTER: f32 = 0.5;
const SLOWER: f32 = 0.1;
/// Bounds of the learnt ratios.
const RATIO: std::ops::RangeInclusive<f32> = 1.0 / 64.0..=64.0;
/// Estimates tie if their quotient is less than this.
const TIE: f64 = 1.15;
/// Most consecutive collective accesses without a meeting.
const MOST_QUIET: u8 = 15;

/// A ratio within bounds.
pub(crate) fn bounded(ratio: f32) -> f32 {
    ratio.clamp(*RATIO.start(), *RATIO.end())
}

impl Learnt {
    /// Learns from the time of an access whose estimate, without the learnt ratio, was `estimate` seconds.
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
        *ratio = bounded(*ratio * (measured / *ratio).powf(new));
    }

    /// The ratios of one direction.
    pub(crate) fn ratios(&self, direction: Op) -> &Ratios {
        &self.0[direction as usize]
    }
}

/// The expected ratio of a candidate: its own, else the geometric mean of those by the same transport, else of all.
fn ratio(ratios: &Ratios, candidate: Candidate) -> f64 {
    let own = ratios[candidate.index()];
    if own != UNKNOWN {
        return own.into();
    }
    let mean = |counts: &dyn Fn(Candidate) -> bool| {
        let all = (0..ratios.len()).filter_map(Candidate::from_index);
        let known = all.filter(|c| ratios[c.index()] != UNKNOWN && counts(*c));
        let (sum, count) = known.fold((0.0, 0), |(sum, count), c| {
            (sum + f64::from(ratios[c.index()]).ln(), count + 1)
        });
        (count > 0).then(|| (sum / f64::from(count)).exp())
    };
    mean(&|c| c.shortcut == candidate.shortcut)
        .or_else(|| mean(&|_| true))
        .unwrap_or(1.0)
}

/// What all ranks know about accesses of one direction since the view was set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MeetingSkips {
    /// The candidates of the last collective and the last independent access that `auto` decided.
    pub incumbents: [Option<Candidate>; 2],
    planned: Option<Planned>,
    /// Collective accesses still to be made without a meeting.
    quiet: u8,
    /// The number that rank 0 will propose next.
    proposal: u8,
}

/// How collective accesses continue without a meeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    pub choice: Choice,
    /// Bytes of this rank's access for which it was chosen.
    bytes: u64,
    regions: u64,
}

impl Planned {
    /// Whether an access resembles the one for which it was chosen.
    pub(crate) fn fits(&self, bytes: u64, regions: u64) -> bool {
        let near = |a: u64, b: u64| a <= b.saturating_mul(2) && b <= a.saturating_mul(2);
        near(self.bytes, bytes) && near(self.regions, regions)
    }
}

impl MeetingSkips {
    /// How many accesses rank 0 proposes without a meeting, if a candidate without exchange is chosen.
    pub(crate) fn proposal(&self) -> u8 {
        self.proposal.max(1)
    }

    /// Records a choice for all ranks, with this rank's bytes and regions, and the number that rank 0 proposed.
    pub(crate) fn chose(&mut self, choice: Choice, (bytes, regions): (u64, u64), proposal: u8) {
        self.incumbents[1] = Some(choice.candidate);
        let exchanges = choice.candidate.method.is_collective();
        self.planned = (!exchanges).then_some(Planned {
            choice,
            bytes,
            regions,
        });
        (self.quiet, self.proposal) = if exchanges {
            (0, 1)
        } else {
            (
                proposal.min(MOST_QUIET),
                (2 * proposal.min(MOST_QUIET) + 1).min(MOST_QUIET),
            )
        };
    }

    /// The plan for the next collective access if it is made without a meeting.
    pub(crate) fn next_quiet(&mut self) -> Option<Planned> {
        self.quiet = self.quiet.checked_sub(1)?;
        self.planned
    }
}

/// A choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub candidate: Candidate,
    /// Estimated seconds, without and with the learnt ratio.
    pub estimate: f64,
    pub expected: f64,
    /// Estimated seconds of the part that this rank measures.
    pub own: f64,
    /// The second best candidate and its expected seconds.
    pub next: Option<(Candidate, f64)>,
    /// The whole call's bytes, file regions and extent, for the reason.
    pub bytes: f64,
    pub regions: f64,
    pub extent: f64,
}

impl Choice {
    /// A sentence for the hint `penstock_method_reason`.
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

/// An access for which a method is chosen.
pub(crate) struct Access<'a> {
    pub direction: Op,
    /// One shape for an independent access, those of all ranks for a collective one.
    pub shapes: &'a [RankAccess],
    /// Extent from the first to the last byte of all of them.
    pub extent: f64,
    pub collective: bool,
    /// Index of this rank's shape.
    pub mine: usize,
    /// The candidate of the last access.
    pub incumbent: Option<Candidate>,
}

/// Whether a method is a candidate: hints allow it, and it is offered or asked for.
fn is_candidate(hints: &Hints, method: Method, access: &Access<'_>, place: &Surroundings) -> bool {
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

/// Seconds of `method` for all ranks, and of the part that this rank measures.
fn estimate(method: Method, terms: &Terms<'_>, of: &Access<'_>) -> (f64, f64) {
    match &method.row().work {
        Work::Alone { cost, .. } => {
            let (mut all, mut longest) = (0.0, 0.0_f64);
            for shape in of.shapes.iter().filter(|s| s.bytes > 0.0) {
                let one = cost(terms, shape);
                all += one;
                longest = longest.max(one);
            }
            // All ranks work at once, on processors that they share.
            let mine = of.shapes.get(of.mine).filter(|s| s.bytes > 0.0);
            let mine = mine.map_or(0.0, |shape| cost(terms, shape));
            let own = terms.place.shared_out(mine * terms.place.ranks);
            (terms.place.shared_out(all).max(longest), own)
        }
        Work::Exchange { cost, .. } | Work::SharedMemory { cost, .. } => {
            let all = cost(terms, of.shapes, of.extent);
            (all, all)
        }
    }
}

/// Chooses a candidate for an access.
pub(crate) fn choose(
    costs: &Costs,
    ratios: &Ratios,
    hints: &Hints,
    access: &Access<'_>,
    place: &Surroundings,
) -> Choice {
    let Access {
        direction, shapes, ..
    } = *access;
    let mut found: Vec<Choice> = Vec::with_capacity(Candidate::COUNT);
    let bare = Choice {
        candidate: Candidate {
            method: Method::DATATYPE,
            shortcut: place.shortcut && hints.shortcut != Toggle::Disable,
        },
        estimate: 0.0,
        expected: 0.0,
        own: 0.0,
        next: None,
        bytes: shapes.iter().map(|s| s.bytes).sum(),
        regions: shapes.iter().map(|s| s.file_regions).sum(),
        extent: access.extent,
    };
    // On a tie, as for empty accesses, datatype is chosen.
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
            let (estimate, own) = estimate(method, &terms, access);
            found.push(Choice {
                candidate,
                estimate,
                expected: estimate * ratio(ratios, candidate),
                own,
                ..bare
            });
        }
    }
    found.sort_by(|a, b| a.expected.total_cmp(&b.expected));
    // Contradictory hints exclude everything: datatype supports all accesses.
    let Some(best) = found.first() else {
        return bare;
    };
    let least = best.expected;
    let stays = |c: &Choice| Some(c.candidate) == access.incumbent && c.expected <= least * TIE;
    let chosen = found.iter().position(stays).unwrap_or(0);
    let chosen = found.remove(chosen);
    let next = found.first().map(|c| (c.candidate, c.expected));
    Choice { next, ..chosen }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: RankAccess = RankAccess {
        bytes: 1e6,
        file_regions: 100.0,
        memory_regions: 1.0,
        extent: 4e6,
    };

    fn chosen(ratios: &Ratios, incumbent: Option<Candidate>) -> Choice {
        let place = Surroundings {
            ranks: 4.0,
            processors: 2.0,
            one_node: true,
            shortcut: true,
            servers: true,
        };
        let access = Access {
            direction: Op::Write,
            shapes: &[SHAPE; 4],
            extent: 4e6,
            collective: true,
            mine: 0,
            incumbent,
        };
        choose(
            &Costs::default(),
            ratios,
            &Hints::default(),
            &access,
            &place,
        )
    }

    /// Many small regions written by one rank: descriptors where they are spread over a mapping, otherwise a server
    /// steps through them.
    #[test]
    fn small_regions_go_by_descriptors_where_they_lie_close_together() {
        let place = Surroundings {
            ranks: 1.0,
            processors: 2.0,
            one_node: true,
            shortcut: true,
            servers: true,
        };
        let regions = 65_536.0;
        for (distance, shortcut) in [(512.0, true), (1024.0, true), (4096.0, false)] {
            let extent = regions * distance;
            let shape = RankAccess {
                bytes: regions * 256.0,
                file_regions: regions,
                memory_regions: 1.0,
                extent,
            };
            let access = Access {
                direction: Op::Write,
                shapes: &[shape],
                extent,
                collective: false,
                mine: 0,
                incumbent: None,
            };
            let ratios = [UNKNOWN; Candidate::COUNT];
            let hints = Hints::default();
            let choice = choose(&Costs::default(), &ratios, &hints, &access, &place);
            let method = Method::DATATYPE;
            let expected = Candidate { method, shortcut };
            assert_eq!(choice.candidate, expected, "{distance}");
        }
    }

    #[test]
    fn estimates_that_tie_stay_with_what_was_measured() {
        let mut ratios = [UNKNOWN; Candidate::COUNT];
        let best = chosen(&ratios, None);
        let (next, seconds) = best.next.unwrap();
        // The second best is as good as the best, then slightly worse, then much worse.
        for (worse, stays) in [(1.01, true), (1.1, true), (1.3, false)] {
            ratios[best.candidate.index()] = 2.0;
            ratios[next.index()] = (2.0 * worse * best.estimate / seconds) as f32;
            assert_eq!(chosen(&ratios, None).candidate, best.candidate);
            let with = chosen(&ratios, Some(next));
            assert_eq!(with.candidate == next, stays, "{worse}");
            assert!(with.next.is_some_and(|(other, _)| other != with.candidate));
        }
    }

    #[test]
    fn what_was_never_measured_is_as_far_off_as_the_rest() {
        let mut ratios = [UNKNOWN; Candidate::COUNT];
        let best = chosen(&ratios, None).candidate;
        // A busy machine: measured times are 20 times the estimates.
        ratios[best.index()] = 20.0;
        let still = chosen(&ratios, Some(best));
        assert_eq!(still.candidate, best);
        assert!((still.expected / still.estimate - 20.0).abs() < 1e-3);
        let other = Candidate {
            shortcut: !best.shortcut,
            ..best
        };
        assert!((ratio(&ratios, other) - 20.0).abs() < 1e-3);
        // Measurements of the same transport have priority.
        ratios[other.index()] = 2.0;
        let alike = Candidate {
            method: Method::LIST,
            ..other
        };
        assert!((ratio(&ratios, alike) - 2.0).abs() < 1e-6);
        assert!((0..Candidate::COUNT).all(|i| Candidate::from_index(i).unwrap().index() == i));
        assert_eq!(Candidate::from_index(Candidate::COUNT), None);
    }

    #[test]
    fn ratios_follow_measurements_and_do_not_stay_at_a_bound() {
        let mut learnt = Learnt::default();
        let candidate = Candidate::from_index(0).unwrap();
        let ratio = |learnt: &Learnt| learnt.ratios(Op::Read)[0];
        for _ in 0..200 {
            learnt.learn(Op::Read, candidate, 1.0, 30.0);
        }
        assert!((ratio(&learnt) - 30.0).abs() < 1.0);
        for _ in 0..20 {
            learnt.learn(Op::Read, candidate, 1.0, 0.05);
        }
        assert!((ratio(&learnt) - 0.05).abs() < 0.001);
        for _ in 0..2000 {
            learnt.learn(Op::Read, candidate, 1.0, 1e9);
        }
        assert!((ratio(&learnt) - RATIO.end()).abs() < 0.001);
    }

    #[test]
    fn a_choice_without_exchange_holds_for_more_and_more_accesses() {
        let mut habit = MeetingSkips::default();
        let choice = |method: Method| Choice {
            candidate: Candidate {
                method,
                shortcut: true,
            },
            ..chosen(&[UNKNOWN; Candidate::COUNT], None)
        };
        let quiet = |habit: &mut MeetingSkips| {
            let mut count = 0;
            while let Some(planned) = habit.next_quiet() {
                assert!(planned.fits(1000, 10) && planned.fits(500, 20) && !planned.fits(499, 10));
                count += 1;
            }
            count
        };
        assert_eq!(quiet(&mut habit), 0);
        for expected in [1, 3, 7, 15, 15] {
            let proposal = habit.proposal();
            habit.chose(choice(Method::DATATYPE), (1000, 10), proposal);
            assert_eq!(quiet(&mut habit), expected);
        }
        let proposal = habit.proposal();
        habit.chose(choice(Method::TWO_PHASE), (1000, 10), proposal);
        assert_eq!((quiet(&mut habit), habit.proposal()), (0, 1));
        // Another rank's proposal is bounded.
        habit.chose(choice(Method::DATATYPE), (1000, 10), 255);
        assert_eq!(quiet(&mut habit), 15);
    }
}
