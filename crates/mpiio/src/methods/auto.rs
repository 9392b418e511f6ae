//! # auto: the cheapest method by a cost model
//!
//! **Problem.** Which method is best differs by orders of magnitude from access to access, and the hints that choose
//! it are many.
//! **Idea.** Estimate the time of each candidate from statistics that the patterns give in closed form and from a few
//! measured costs, take the smallest, and learn from how long it really took.
//!
//! Statistics of an access: bytes n, contiguous regions in the file (also cut at stripe units, where each piece of a
//! stripe is an operation of its own on a server's object) and in memory, extent e of each rank, aggregate extent, sum
//! of all ranks' bytes. Density is n / e; ranks interleave when their extents overlap. Costs of the deployment: one
//! [`Costs`]. Work of the ranks of a node is divided by its processors, since ranks may outnumber them.
//!
//! | candidate | time of one rank |
//! | --- | --- |
//! | datatype, requests | request + n · request byte + regions · server's region |
//! | datatype, shortcut | regions · call + n · byte + memory regions · piece |
//! | the same, reads of dense small regions | regions · 5 pieces + n · byte + memory regions · piece |
//! | sieve, reads | e · byte + n · copy + regions · piece, by requests or shortcut |
//! | node-exchange | aggregate extent / ranks · byte + n · copy + regions · piece + rounds · barrier |
//! | two-phase | the same with messages in place of copies |
//! | posix, list | never below datatype: posix when there is one region, list not at all |
//!
//! Sieved writes are not a candidate: they read first and lock out other writers.
//! Each estimate is multiplied by what was learnt, the running mean of measured over estimated time of that candidate
//! in this process, between 1/4 and 4. In a collective call rank 0's costs and means count for all, so that all ranks
//! choose alike.
//! One range of the file to or from one stretch of memory by descriptors is not estimated: see [`crate::lean`].
//! **When it pays.** It is the default.
//! **Hint.** `penstock_method=auto`; the choice is in `penstock_method_chosen` and `penstock_method_reason`. ROMIO's hints narrow the candidates: see [`crate::hints`].
//! **Source.** The statistics are those of DT section IV; the costs are ours.
use super::Method;
use crate::access::Direction;
use crate::hints::{Hints, Toggle};
use serde::{Deserialize, Serialize};

/// One way to perform an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub method: Method,
    /// By descriptors in place of requests.
    pub shortcut: bool,
}

impl Candidate {
    const COUNT: usize = 2 * Method::ALL.len();
    fn index(self) -> usize {
        2 * self.method as usize + usize::from(self.shortcut)
    }
}

/// Statistics of one rank's access.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Shape {
    pub bytes: f64,
    /// Regions in the file, cut at stripe units.
    pub file_regions: f64,
    pub memory_regions: f64,
    pub extent: f64,
}

/// Where the access happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub ranks: f64,
    /// Processors that the ranks of this node share.
    pub processors: f64,
    pub one_node: bool,
    /// Descriptors may be used.
    pub shortcut: bool,
    /// There are servers, so that requests are a candidate; in direct mode every access is a system call.
    pub servers: bool,
    pub exchange_buffer: f64,
    pub cb_buffer: f64,
    pub sieve_buffer: f64,
}

/// Costs of this deployment, seconds, as [`crate::probe`] measures them. The defaults are of a current server processor,
/// with client and server on one host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// A request's round trip to a server.
    pub request: f64,
    /// A byte through requests.
    pub request_byte: [f64; 2],
    /// A region at a server.
    pub server_region: f64,
    /// A system call on a descriptor; writers of one file wait for each other.
    pub call: [f64; 2],
    /// A byte through a descriptor.
    pub call_byte: [f64; 2],
    /// A byte copied in memory.
    pub copy_byte: f64,
    /// A piece of memory copied.
    pub piece: f64,
    /// A byte sent to another rank and received.
    pub message_byte: f64,
    /// A barrier or an agreement of all ranks.
    pub barrier: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            request: 60e-6,
            request_byte: [0.35e-9, 0.6e-9],
            server_region: 0.5e-6,
            call: [0.6e-6, 3e-6],
            call_byte: [0.12e-9, 0.25e-9],
            copy_byte: 0.06e-9,
            piece: 6e-9,
            message_byte: 0.4e-9,
            barrier: 30e-6,
        }
    }
}

/// Costs and what was learnt about the estimates made with them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Learnt {
    pub costs: Costs,
    /// Measured over estimated time, by direction and candidate.
    ratio: [[f32; Candidate::COUNT]; 2],
}

impl Default for Learnt {
    fn default() -> Learnt {
        Learnt {
            costs: Costs::default(),
            ratio: [[1.0; Candidate::COUNT]; 2],
        }
    }
}

/// Share of the newest measurement in the running mean: when it is faster than expected, and when it is slower. Slow
/// ones are often somebody else's doing: a first touch, a busy moment.
const FASTER: f32 = 0.5;
const SLOWER: f32 = 0.1;
/// Bounds of what is learnt.
const RATIO: std::ops::RangeInclusive<f32> = 0.25..=4.0;

impl Learnt {
    /// Takes in how long an access took that was estimated, without the learnt ratio, to take `estimate` seconds.
    pub(crate) fn learn(
        &mut self,
        direction: Direction,
        candidate: Candidate,
        estimate: f64,
        seconds: f64,
    ) {
        if estimate <= 0.0 || seconds <= 0.0 {
            return;
        }
        let measured = (seconds / estimate) as f32;
        let ratio = &mut self.ratio[direction.index()][candidate.index()];
        let measured = measured.clamp(*RATIO.start(), *RATIO.end());
        let new = if measured < *ratio { FASTER } else { SLOWER };
        *ratio = *ratio * (1.0 - new) + measured * new;
    }

    /// The ratios of one direction, to tell other ranks.
    pub(crate) fn ratios(&self, direction: Direction) -> [f32; Candidate::COUNT] {
        self.ratio[direction.index()]
    }

    /// With another rank's ratios.
    pub(crate) fn with_ratios(mut self, direction: Direction, ratios: &[f32]) -> Learnt {
        for (mine, theirs) in self.ratio[direction.index()].iter_mut().zip(ratios) {
            if RATIO.contains(theirs) {
                *mine = *theirs;
            }
        }
        self
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

/// Which candidates the hints leave.
fn allowed(hints: &Hints, direction: Direction, candidate: Candidate, collective: bool) -> bool {
    let d = direction.index();
    match hints.shortcut {
        Toggle::Disable if candidate.shortcut => return false,
        _ => {}
    }
    let wanted = |toggle: Toggle, is: bool| match toggle {
        Toggle::Automatic => true,
        Toggle::Enable => is,
        Toggle::Disable => !is,
    };
    let exchange = candidate.method.is_collective();
    if collective && !wanted(hints.cb[d], exchange) {
        return false;
    }
    if exchange {
        return collective;
    }
    wanted(hints.ds[d], candidate.method == Method::Sieve)
        && wanted(hints.dtype[d], candidate.method == Method::Datatype)
        && wanted(hints.listio[d], candidate.method == Method::List)
        && wanted(hints.posix[d], candidate.method == Method::Posix)
}

/// Reads of smaller regions, closer together, come out of a mapping.
const MAPPED_REGION: f64 = 32e3;
const MAPPED_DISTANCE: f64 = 16e3;
/// Such a region costs as much as so many pieces of memory: it is looked up, and its page's address is not at hand.
const MAPPED_PIECES: f64 = 5.0;

/// Time of one rank that works alone.
fn alone(
    costs: &Costs,
    direction: Direction,
    candidate: Candidate,
    shape: &Shape,
    place: &Place,
) -> f64 {
    let d = direction.index();
    let regions = shape.file_regions.max(shape.memory_regions);
    let by_call = candidate.shortcut || !place.servers;
    if shape.bytes == 0.0 {
        return 0.0;
    }
    // Dense small pieces are copied out of a mapping, without calls (`penstock_store::Mapped`).
    let mapped = direction == Direction::Read
        && candidate.shortcut
        && shape.bytes < MAPPED_REGION * shape.file_regions
        && shape.extent <= MAPPED_DISTANCE * shape.file_regions;
    match candidate.method {
        Method::Datatype if mapped => {
            shape.file_regions * MAPPED_PIECES * costs.piece
                + shape.bytes * costs.call_byte[d]
                + shape.memory_regions * costs.piece
        }
        Method::Datatype if by_call => {
            shape.file_regions * costs.call[d]
                + shape.bytes * costs.call_byte[d]
                + shape.memory_regions * costs.piece
        }
        Method::Datatype => {
            costs.request
                + shape.bytes * costs.request_byte[d]
                + shape.file_regions * costs.server_region
                + shape.memory_regions * costs.piece
        }
        Method::Posix if by_call => regions * costs.call[d] + shape.bytes * costs.call_byte[d],
        Method::Posix => {
            // Many in flight: a round trip once, then what a request costs its two ends.
            costs.request + regions * costs.request / 4.0 + shape.bytes * costs.request_byte[d]
        }
        Method::List => {
            let lists = (regions / 64.0).ceil();
            let regions = regions * (costs.server_region + 4.0 * costs.piece);
            costs.request
                + lists * costs.request / 4.0
                + regions
                + shape.bytes * costs.request_byte[d]
        }
        Method::Sieve => {
            let (call, byte) = if by_call {
                (costs.call[d], costs.call_byte[d])
            } else {
                (costs.request, costs.request_byte[d])
            };
            let rewrite = match direction {
                Direction::Read => 1.0,
                // Reads first, and keeps all other writers out meanwhile.
                Direction::Write => 2.0 * place.ranks,
            };
            (shape.extent / place.sieve_buffer).ceil() * call
                + rewrite * shape.extent * byte
                + shape.bytes * costs.copy_byte
                + regions * costs.piece
        }
        Method::TwoPhase | Method::NodeExchange => f64::INFINITY,
    }
}

/// Time of an exchange of all ranks, each a part of the aggregate extent.
fn together(
    costs: &Costs,
    direction: Direction,
    candidate: Candidate,
    shapes: &[Shape],
    aggregate_extent: f64,
    place: &Place,
) -> f64 {
    let d = direction.index();
    let by_call = candidate.shortcut || !place.servers;
    let byte = if by_call {
        costs.call_byte[d]
    } else {
        costs.request_byte[d]
    };
    let bytes: f64 = shapes.iter().map(|s| s.bytes).sum();
    let regions: f64 = shapes
        .iter()
        .map(|s| s.file_regions.max(s.memory_regions))
        .sum();
    // Empty windows are skipped: no more is touched than a window for each region.
    let window = if candidate.method == Method::NodeExchange {
        place.exchange_buffer
    } else {
        place.cb_buffer
    };
    let touched = aggregate_extent.min(regions * window);
    let file = match direction {
        Direction::Read => touched,
        Direction::Write => bytes.min(touched),
    };
    // Windows with holes are written as each rank's pieces.
    let holes = match direction {
        Direction::Write if bytes < 0.999 * touched => {
            let each = if by_call {
                costs.call[d]
            } else {
                costs.server_region
            };
            regions * each
        }
        _ => 0.0,
    };
    let rounds = (touched / (place.ranks * window)).ceil().max(1.0);
    let mut work = file * byte + holes + regions * costs.piece + bytes * costs.copy_byte;
    let mut sync = rounds * costs.barrier;
    if candidate.method == Method::TwoPhase {
        work += bytes * costs.message_byte + regions * costs.piece;
        sync *= 2.0;
    } else {
        // Coverage is marked, piece by piece.
        work += if direction == Direction::Write {
            regions * costs.piece
        } else {
            0.0
        };
    }
    let call = if by_call {
        costs.call[d]
    } else {
        costs.request
    };
    work / place.processors.min(place.ranks).max(1.0) + sync + rounds * call
}

/// Picks a candidate for an access that `shapes` describe: one shape for a rank on its own, all ranks' for a collective
/// call.
pub(crate) fn choose(
    learnt: &Learnt,
    hints: &Hints,
    direction: Direction,
    shapes: &[Shape],
    aggregate_extent: f64,
    collective: bool,
    place: &Place,
) -> Choice {
    let mut best: Option<(Candidate, f64, f64)> = None;
    let mut next: Option<(Candidate, f64)> = None;
    let ratios = &learnt.ratio[direction.index()];
    let methods = [
        Method::Datatype,
        Method::Sieve,
        Method::NodeExchange,
        Method::TwoPhase,
        Method::Posix,
        Method::List,
    ];
    for method in methods {
        for shortcut in [true, false] {
            let candidate = Candidate { method, shortcut };
            if shortcut && !place.shortcut
                || !allowed(hints, direction, candidate, collective)
                || !offered(hints, direction, candidate, place)
            {
                continue;
            }
            let estimate = if method.is_collective() {
                together(
                    &learnt.costs,
                    direction,
                    candidate,
                    shapes,
                    aggregate_extent,
                    place,
                )
            } else {
                let each = |s| alone(&learnt.costs, direction, candidate, s, place);
                let all: f64 = shapes.iter().map(each).sum();
                let longest = shapes.iter().map(each).fold(0.0, f64::max);
                (all / place.processors.min(place.ranks).max(1.0)).max(longest)
            };
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
            method: Method::Datatype,
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
        extent: aggregate_extent,
    }
}

/// Which candidates exist here, and are worth an estimate unless a hint asks for them.
fn offered(hints: &Hints, direction: Direction, candidate: Candidate, place: &Place) -> bool {
    let d = direction.index();
    match candidate.method {
        Method::NodeExchange => place.one_node && place.ranks > 1.0,
        Method::TwoPhase => place.ranks > 1.0 && !place.one_node,
        Method::Sieve => direction == Direction::Read || hints.ds[d] == Toggle::Enable,
        Method::Posix => hints.posix[d] == Toggle::Enable,
        Method::List => hints.listio[d] == Toggle::Enable,
        Method::Datatype => true,
    }
}
