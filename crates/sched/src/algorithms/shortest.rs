//! Serves the queue with the least of a given measure, lowest offset first: the common part of SJF and SRTF.
use super::{Choice, Company, Policy};
use crate::ranks::Ranks;
use crate::table::{FileQueue, Table};
use crate::{Nanos, Options};

/// Queues ordered by the measure.
pub(super) struct Shortest {
    rank: fn(&FileQueue) -> u64,
    bound: Option<Nanos>,
    queues: Ranks,
}

impl Shortest {
    pub(super) fn new(options: &Options, rank: fn(&FileQueue) -> u64) -> Shortest {
        Shortest {
            rank,
            bound: options.starvation_bound,
            queues: Ranks::default(),
        }
    }

    fn refresh(&mut self, table: &Table, queue: usize) {
        let q = &table.queues[queue];
        match q.queued {
            0 => self.queues.remove(queue),
            _ => self.queues.set(queue, (self.rank)(q)),
        }
    }
}

impl Policy for Shortest {
    fn add(&mut self, table: &mut Table, entry: usize) {
        let at = table.aggregate(entry);
        self.refresh(table, table.virtuals[at].queue);
    }

    fn next(&mut self, table: &mut Table, now: Nanos, _: &mut Company<'_>) -> Choice {
        let shortest = || table.head(self.queues.first()?.1);
        let Some(at) = table.overdue(now, self.bound).or_else(shortest) else {
            return Choice::Nothing;
        };
        let queue = table.virtuals[at].queue;
        table.take(at);
        self.refresh(table, queue);
        Choice::Serve(at)
    }
}
