//! Completions whose time is already known.

use crate::{Completion, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of completions by time; equal times in the order in which they were added.
#[derive(Default)]
pub(crate) struct Pending {
    heap: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    decided: u64,
}

impl Pending {
    pub(crate) fn push(&mut self, at: Nanos, id: u64) {
        self.heap.push(Reverse((at, self.decided, id)));
        self.decided += 1;
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn drain(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(Reverse((at, _, id))) = self.heap.peek().copied()
            && at <= now
        {
            self.heap.pop();
            done.push(Completion { id, at });
        }
    }
}
