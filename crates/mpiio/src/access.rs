//! One access: its memory, and counts of what was done.
use penstock_base::Op;
use penstock_datatype::{Pattern, Source, Target};

/// The memory side of an access.
pub(crate) enum Buffer<'b, 'a> {
    /// A read puts its bytes here.
    Into(&'b mut Target<'a>),
    /// A write takes its bytes here.
    From(&'b mut Source<'a>),
}

impl Buffer<'_, '_> {
    pub(crate) fn direction(&self) -> Op {
        match self {
            Buffer::Into(_) => Op::Read,
            Buffer::From(_) => Op::Write,
        }
    }
    pub(crate) fn pattern(&self) -> &Pattern {
        match self {
            Buffer::Into(target) => target.pattern(),
            Buffer::From(source) => source.pattern(),
        }
    }
}

/// Counts of an access, in the terms of DT table I.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// File system operations. A read-modify-write of a sieve buffer is one.
    pub operations: u64,
    /// File bytes that the operations covered, wanted or not.
    pub accessed: u64,
    /// Bytes sent to other ranks.
    pub resent: u64,
    /// Bytes read only to be written back (data-sieving writes).
    pub reread: u64,
    /// Largest operation's bytes.
    pub largest: u64,
}
