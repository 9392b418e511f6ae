//! MLF: multilevel feedback over files.
//!
//! *Problem*: aIOLi considers all queues for each decision and serves one request at a time. *Idea*: queues (one per
//! file and operation) are visited in turn. Each visit doubles a factor of every request of the queue (0, 1, 2, 4, …);
//! a virtual request has the sum of its parts' factors. The first in offset order with factor × quantum ≥ its bytes is
//! served, at most one per visit. So large requests wait a few rounds, in which they may grow. A queue may wait for a
//! larger aggregation (`waiting`); it is out of the round meanwhile. *When it pays*: few files and devices with slow
//! seeks. *Parameters*: `quantum` (64 KiB), `aggregation` (200 parts), `shift_wait`, `aggregation_wait`,
//! `starvation_bound`. *Source*: TS section 3.1.2. The factor is not stored but computed from the number of visits, so
//! that a visit costs nothing per request. An ordered set tells which requests have become eligible.
use super::{Choice, Company, Policy, Row};
use crate::ring::Ring;
use crate::table::{NONE, Table};
use crate::waiting::Waiting;
use crate::{Nanos, Options};

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "mlf",
    next: "of the next queue in turn, the first whose factor × quantum ≥ its bytes",
    aggregation: 200,
    pays: "few files, slow seeks",
    policy: |options| Box::new(Mlf::new(options)),
};

/// The algorithm's state.
pub(super) struct Mlf {
    quantum: u64,
    bound: Option<Nanos>,
    waiting: Waiting,
    ring: Ring,
}

impl Mlf {
    pub(super) fn new(options: &Options) -> Mlf {
        Mlf {
            quantum: options.quantum,
            bound: options.starvation_bound,
            waiting: Waiting::new([options.shift_wait, options.aggregation_wait]),
            ring: Ring { at: NONE },
        }
    }

    fn enter(&mut self, table: &mut Table, queue: usize) {
        if !table.queues[queue].active {
            self.waiting.end(queue);
            table.queues[queue].active = true;
            table.join(&mut self.ring, queue);
        }
    }

    fn exit(&mut self, table: &mut Table, queue: usize) {
        if table.queues[queue].active {
            table.queues[queue].active = false;
            table.leave(&mut self.ring, queue);
        }
    }

    /// Visits a queue and returns the first of its eligible requests.
    fn visit(&mut self, table: &mut Table, queue: usize) -> Option<usize> {
        table.queues[queue].visits += 1;
        let visits = table.visits(queue);
        while let Some(at) = table.due(queue, visits) {
            table.defer(at, 0);
        }
        table.head(queue)
    }

    fn serve(&mut self, table: &mut Table, at: usize) -> Choice {
        let v = &table.virtuals[at];
        let queue = v.queue;
        table.queues[queue].history.serve(v);
        // The round and the list of empty queues use the same links.
        match table.queues[queue].queued {
            1 => {
                self.waiting.end(queue);
                self.exit(table, queue);
            }
            _ => self.enter(table, queue),
        }
        table.take(at);
        Choice::Serve(at)
    }
}

impl Policy for Mlf {
    fn add(&mut self, table: &mut Table, entry: usize) {
        let at = table.aggregate(entry);
        let queue = table.virtuals[at].queue;
        // Each choice follows a visit: a request that becomes eligible at the next one counts as eligible.
        let ready = table.ripe_at(at, self.quantum);
        let next = table.visits(queue) + 1;
        table.defer(at, if ready <= next { 0 } else { ready });
        // A queue that waits is checked again: this may be the request that it waits for.
        self.enter(table, queue);
    }

    fn next(&mut self, table: &mut Table, now: Nanos, company: &mut Company<'_>) -> Choice {
        while let Some(queue) = self.waiting.over(now) {
            self.enter(table, queue);
        }
        if let Some(at) = table.overdue(now, self.bound) {
            return self.serve(table, at);
        }
        while self.ring.at != NONE {
            let queue = self.ring.at;
            self.ring.at = table.queues[queue].after;
            let Some(at) = self.visit(table, queue) else {
                continue;
            };
            if !self.waiting.begin(table, at, now, company) {
                return self.serve(table, at);
            }
            self.exit(table, queue);
        }
        Choice::none_but(&self.waiting)
    }
}
