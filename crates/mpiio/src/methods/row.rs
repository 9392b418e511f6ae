//! The row of a method in the table.
use super::cost::{RankAccess, Surroundings, Terms};
use super::domains::Seat;
use super::plan::{Alone, Plan};
use crate::access::Tally;
use crate::model;
use penstock_base::Op;

/// A method, as the rest of the crate knows it.
pub(crate) struct Row {
    /// Its name in hints, environment and statistics.
    pub name: &'static str,
    /// Its summary in one line, for `--help` and docs/use/hints.md.
    pub summary: &'static str,
    /// Hints that ask for it or exclude it under `auto`, in accesses without exchange: for reads and writes.
    pub toggles: Option<[&'static str; 2]>,
    /// The hint for its buffer size.
    pub buffer: Option<BufferHint>,
    /// Whether [`super::auto`] estimates it unasked.
    pub offered: fn(Op, &Surroundings) -> bool,
    /// When that is, in words.
    pub offered_when: &'static str,
    /// DT table I: operations and bytes accessed, from the statistics of an access and the buffer's size.
    pub counts: fn(&model::AccessSummary, u64) -> (u64, u64),
    /// Bytes of a region that it accessed, from its counts and the wanted shape.
    pub region: fn(&Tally, &model::AccessSummary) -> u64,
    /// How it performs an access.
    pub work: Work,
}

/// The hint for a method's buffer size.
pub(crate) struct BufferHint {
    /// For reads and writes; equal keys are one hint for both.
    pub keys: [&'static str; 2],
    /// Bytes.
    pub default: u64,
    /// The owner of the buffer, for docs/use/hints.md.
    pub meaning: &'static str,
}

/// How a method performs an access, its requirements, and the seconds that [`super::auto`] expects.
pub(crate) enum Work {
    /// Each rank independently.
    Alone {
        /// Whether it takes range locks, so that it cannot be used where the whole access is locked.
        locks: bool,
        /// Seconds of one rank.
        cost: fn(&Terms<'_>, &RankAccess) -> f64,
        /// The plan of an access.
        plan: fn(&Alone) -> Box<dyn Plan>,
    },
    /// All ranks of a collective call, by messages.
    Exchange {
        /// Only for files that are striped over data servers.
        striped: bool,
        /// Seconds of all ranks, whose shapes together have this extent.
        cost: fn(&Terms<'_>, &[RankAccess], f64) -> f64,
        /// The plan of this rank.
        plan: fn(Seat) -> Box<dyn Plan>,
    },
    /// All ranks of a collective call, through shared memory. Every rank owns a part.
    SharedMemory {
        /// As for an exchange by messages.
        cost: fn(&Terms<'_>, &[RankAccess], f64) -> f64,
        /// As for an exchange by messages.
        plan: fn(Seat) -> Box<dyn Plan>,
    },
}
