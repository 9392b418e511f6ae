//! What the table says of a method.
use super::cost::{RankAccess, Surroundings, Terms};
use super::domains::Seat;
use super::plan::{Alone, Plan};
use crate::access::Tally;
use crate::model;
use penstock_base::Op;

/// A method, as everything outside its file knows it.
pub(crate) struct Row {
    /// Its name in hints, environment and statistics.
    pub name: &'static str,
    /// Its operations, in a line for `--help` and docs/use/hints.md.
    pub summary: &'static str,
    /// Hints that ask for it or rule it out under `auto`, in accesses without exchange: of reads and of writes.
    pub toggles: Option<[&'static str; 2]>,
    /// The hint that sizes its buffer.
    pub buffer: Option<BufferHint>,
    /// Whether [`super::auto`] estimates it unasked.
    pub offered: fn(Op, &Surroundings) -> bool,
    /// When that is, in words.
    pub offered_when: &'static str,
    /// DT table I: operations and bytes accessed, from the statistics of an access and the buffer's size.
    pub counts: fn(&model::AccessSummary, u64) -> (u64, u64),
    /// Bytes of a region that it accessed, from what it did and what was wanted.
    pub region: fn(&Tally, &model::AccessSummary) -> u64,
    /// How it performs an access.
    pub work: Work,
}

/// The hint that sizes a method's buffer.
pub(crate) struct BufferHint {
    /// Of reads and of writes; the same key twice is one hint for both.
    pub keys: [&'static str; 2],
    /// Bytes.
    pub default: u64,
    /// Whose buffer, for docs/use/hints.md.
    pub meaning: &'static str,
}

/// How a method performs an access, what it needs for that, and the seconds that [`super::auto`] expects it to take.
pub(crate) enum Work {
    /// Each rank by itself.
    Alone {
        /// It takes range locks, so it cannot work where the whole access is locked.
        locks: bool,
        /// Seconds of one rank.
        cost: fn(&Terms<'_>, &RankAccess) -> f64,
        /// The steps of an access.
        plan: fn(&Alone) -> Box<dyn Plan>,
    },
    /// All ranks of a collective call, by messages.
    Exchange {
        /// Only for files that are striped over data servers.
        striped: bool,
        /// Seconds of all ranks, whose shapes together have this extent.
        cost: fn(&Terms<'_>, &[RankAccess], f64) -> f64,
        /// The steps of this rank.
        plan: fn(Seat) -> Box<dyn Plan>,
    },
    /// All ranks of a collective call, through memory that they share. Every rank owns a part.
    SharedMemory {
        /// As of an exchange by messages.
        cost: fn(&Terms<'_>, &[RankAccess], f64) -> f64,
        /// As of an exchange by messages.
        plan: fn(Seat) -> Box<dyn Plan>,
    },
}
