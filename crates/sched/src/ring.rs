//! Rounds of queues: a ring linked by the queues' `before` and `after`.
use crate::table::{FileQueue, NONE, Table};

/// A place in a list of queues linked by `before` and `after`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ring {
    /// The current position of the round.
    pub(crate) at: usize,
}

impl Table {
    /// Adds a queue with requests to a round; it is visited last.
    pub(crate) fn join(&mut self, ring: &mut Ring, queue: usize) {
        if ring.at == NONE {
            (self.queues[queue].before, self.queues[queue].after) = (queue, queue);
            ring.at = queue;
            return;
        }
        let (last, first) = (self.queues[ring.at].before, ring.at);
        (self.queues[queue].before, self.queues[queue].after) = (last, first);
        self.queues[last].after = queue;
        self.queues[first].before = queue;
    }

    /// Removes a queue from a round.
    pub(crate) fn leave(&mut self, ring: &mut Ring, queue: usize) {
        let FileQueue { before, after, .. } = self.queues[queue];
        if after == queue {
            ring.at = NONE;
            return;
        }
        self.queues[before].after = after;
        self.queues[after].before = before;
        if ring.at == queue {
            ring.at = after;
        }
    }
}
