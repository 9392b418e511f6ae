//! The queue with the least of something first, and of it the lowest offset: what SJF and SRTF share.
use super::{Choice, Policy, move_to, ranked};
use crate::set::OrderedSet;
use crate::table::{Queue, Table};
use crate::{Nanos, Options};

/// See the module's text.
pub(super) struct Shortest {
    rank: fn(&Queue) -> u64,
    bound: Option<Nanos>,
    queues: [OrderedSet; 1],
}

impl Shortest {
    pub(super) fn new(options: &Options, rank: fn(&Queue) -> u64) -> Shortest {
        Shortest {
            rank,
            bound: options.starvation_bound,
            queues: Default::default(),
        }
    }

    fn refresh(&mut self, table: &mut Table, queue: u32) {
        let q = &mut table.queues[queue];
        let to = (q.queued > 0).then(|| (0, ranked((self.rank)(q), queue)));
        move_to(&mut self.queues, &mut q.place, to);
    }
}

impl Policy for Shortest {
    fn add(&mut self, table: &mut Table, entry: u32) {
        let at = table.aggregate(entry).at;
        self.refresh(table, table.virtuals[at].queue);
    }

    fn next(&mut self, table: &mut Table, now: Nanos) -> Choice {
        let shortest = || {
            self.queues[0]
                .first()
                .and_then(|key| table.head(key as u32))
        };
        let Some(at) = table.overdue(now, self.bound).or_else(shortest) else {
            return Choice::Nothing;
        };
        let queue = table.virtuals[at].queue;
        table.take(at, now);
        self.refresh(table, queue);
        Choice::Serve(at)
    }
}
