//! What a die and a channel are doing, and the pages that wait for them.
use super::plane::Plane;
use crate::Nanos;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageOperation {
    Read,
    Write,
    /// A partial page write: the page is read, changed and programmed.
    Modify,
    Copy,
    Erase,
}

/// One page of a request.
#[derive(Clone, Copy)]
pub(super) struct Transaction {
    pub(super) owner: u32,
    pub(super) page: u32,
    pub(super) plane: u32,
    /// Bytes that cross the channel.
    pub(super) bytes: u32,
    pub(super) kind: PageOperation,
    pub(super) arrived: Nanos,
    /// Time that its die had spent on collection when the page was queued.
    pub(super) collected: Nanos,
    pub(super) order: u64,
}

/// What a die is doing.
pub(super) struct Command {
    pub(super) kind: PageOperation,
    pub(super) pages: Vec<Transaction>,
    pub(super) since: Nanos,
    pub(super) bytes: u32,
    /// Array times.
    pub(super) read: Nanos,
    pub(super) program: Nanos,
    /// Its stage is over and the next resource is busy.
    pub(super) waits: bool,
    /// The array has read; the program follows.
    pub(super) second: bool,
}

pub(super) struct Die {
    pub(super) channel: u32,
    pub(super) way: u32,
    pub(super) planes: Vec<Plane>,
    pub(super) reads: VecDeque<Transaction>,
    pub(super) writes: VecDeque<Transaction>,
    /// Reads that passed the first waiting write.
    pub(super) passed: u32,
    pub(super) array: Option<Command>,
    pub(super) moving: Option<Command>,
    pub(super) collected: Nanos,
    pub(super) collecting: Option<Nanos>,
}

impl Die {
    pub(super) fn collected_at(&self, now: Nanos) -> Nanos {
        self.collected + self.collecting.map_or(0, |since| now - since)
    }

    pub(super) fn idle(&self) -> bool {
        self.array.is_none() && self.moving.is_none()
    }
}

#[derive(Default)]
pub(super) struct Channel {
    pub(super) waiting: VecDeque<u32>,
    pub(super) busy: Option<u32>,
}
