//! What the table says of a method.
use super::cost::{Place, Shape, Terms};
use crate::access::{Buffer, Direction, Io, Tally};
use crate::comm::Comm;
use crate::error::Result;
use crate::model;
use crate::node_memory::NodeMemory;
use penstock_datatype::Pattern;

/// A method, as everything outside its file knows it.
pub(crate) struct Row {
    /// Its name in hints, environment and statistics.
    pub name: &'static str,
    /// Its operations, in a line for `--help` and docs/hints.md.
    pub summary: &'static str,
    /// Hints that ask for it or rule it out under `auto`, in accesses without exchange: of reads and of writes.
    pub toggles: Option<[&'static str; 2]>,
    /// The hint that sizes its buffer.
    pub buffer: Option<BufferHint>,
    /// Whether [`super::auto`] estimates it unasked.
    pub offered: fn(Direction, &Place) -> bool,
    /// When that is, in words.
    pub offered_when: &'static str,
    /// DT table I: operations and bytes accessed, from the statistics of an access and the buffer's size.
    pub counts: fn(&model::Shape, u64) -> (u64, u64),
    /// Bytes of a region that it accessed, from what it did and what was wanted.
    pub region: fn(&Tally, &model::Shape) -> u64,
    /// How it performs an access.
    pub work: Work,
}

/// The hint that sizes a method's buffer.
pub(crate) struct BufferHint {
    /// Of reads and of writes; the same key twice is one hint for both.
    pub keys: [&'static str; 2],
    /// Bytes.
    pub default: u64,
    /// Whose buffer, for docs/hints.md.
    pub meaning: &'static str,
}

/// How a method performs an access, what it needs for that, and the seconds that [`super::auto`] expects it to take.
pub(crate) enum Work {
    /// Each rank by itself.
    Alone {
        /// It takes range locks, so it cannot work where the whole access is locked.
        locks: bool,
        /// Seconds of one rank.
        cost: fn(&Terms<'_>, &Shape) -> f64,
        /// Performs it; returns the stream bytes moved.
        access: fn(&mut Io<'_>, &Pattern, &mut Buffer<'_, '_>) -> Result<u64>,
    },
    /// All ranks of a collective call, by messages.
    Exchange {
        /// Seconds of all ranks, whose shapes together have this extent.
        cost: fn(&Terms<'_>, &[Shape], f64) -> f64,
        /// Performs this rank's side; returns the stream bytes moved here.
        access: fn(&mut Io<'_>, &Group<'_>, &mut Buffer<'_, '_>) -> Result<u64>,
    },
    /// All ranks of a collective call, through memory that they share.
    SharedMemory {
        /// As of an exchange by messages.
        cost: fn(&Terms<'_>, &[Shape], f64) -> f64,
        /// As of an exchange by messages.
        access: fn(&mut Io<'_>, &Group<'_>, &NodeMemory, &mut Buffer<'_, '_>) -> Result<u64>,
    },
}

/// The ranks of a collective access.
pub(crate) struct Group<'a> {
    pub comm: &'a dyn Comm,
    /// What each rank wants of the file.
    pub patterns: &'a [Pattern],
    /// Ranks that own parts of the file, in order of their parts.
    pub aggregators: &'a [usize],
    /// Most bytes of a part that are worked on at a time.
    pub window: u64,
    /// Parts begin at multiples of this many bytes.
    pub unit: u64,
}
