//! MLF: multilevel feedback over files.
//!
//! *Problem*: aIOLi looks at all queues for each decision and serves one request at a time. *Idea*: queues (one per
//! file and operation) are visited in turn; each visit doubles a factor of every request of the queue (0, 1, 2, 4, …;
//! a virtual request has the sum of its parts'), and the first in offset order with factor × quantum ≥ its bytes is served,
//! at most one per visit. So large requests wait a few rounds, in which they may grow. A queue may wait for better company
//! (`waiting`); it is out of the round meanwhile. *When it pays*: few files and devices with slow seeks.
//! *Parameters*: `quantum` (64 KiB), `aggregation` (200 parts), `shift_wait`, `aggregation_wait`, `starvation_bound`.
//! *Source*: TS section 3.1.2. The factor is not kept but computed from the number of visits, so that a visit costs
//! nothing per request; which requests have become large enough is read off an ordered set.
use super::{Choice, Policy, move_to, rank, ranked};
use crate::set::OrderedSet;
use crate::slab::NONE;
use crate::table::{Ring, Table, owner, place};
use crate::waiting::{Waited, Waits};
use crate::{Nanos, Options};

/// Requests whose factor lets them through, by (queue, offset).
const RIPE: u8 = 0;
/// The others, by (queue, visit that lets them through).
const UNRIPE: u8 = 1;
/// Queues that wait, by time.
const HELD: u8 = 2;

/// See the module's text.
pub(super) struct Mlf {
    quantum: u64,
    waits: Waits,
    waited: Waited,
    bound: Option<Nanos>,
    ring: Ring,
    sets: [OrderedSet; 3],
}

impl Mlf {
    pub(super) fn new(options: &Options) -> Mlf {
        Mlf {
            quantum: options.quantum,
            waits: [options.shift_wait, options.aggregation_wait],
            waited: [0; 2],
            bound: options.starvation_bound,
            ring: Ring { at: NONE },
            sets: Default::default(),
        }
    }

    fn enter(&mut self, table: &mut Table, queue: u32) {
        move_to(&mut self.sets, &mut table.queues[queue].place, None);
        if !table.queues[queue].active {
            table.queues[queue].active = true;
            table.join(&mut self.ring, queue);
        }
    }

    fn exit(&mut self, table: &mut Table, queue: u32) {
        move_to(&mut self.sets, &mut table.queues[queue].place, None);
        if table.queues[queue].active {
            table.queues[queue].active = false;
            table.leave(&mut self.ring, queue);
        }
    }

    /// Visits a queue: which of its requests is first of those that may go?
    fn visit(&mut self, table: &mut Table, queue: u32) -> Option<u32> {
        table.queues[queue].visits += 1;
        let visits = table.visits(queue);
        let from = place(queue, 0, 0);
        while !self.sets[usize::from(UNRIPE)].is_empty()
            && let Some(key) = self.sets[usize::from(UNRIPE)].first_from(from)
        {
            if owner(key) != queue || rank(key) > visits {
                break;
            }
            let v = &mut table.virtuals[key as u32];
            let to = place(queue, v.offset, key as u32);
            move_to(&mut self.sets, &mut v.place, Some((RIPE, to)));
        }
        let key = self.sets[usize::from(RIPE)].first_from(from)?;
        (owner(key) == queue).then_some(key as u32)
    }

    fn serve(&mut self, table: &mut Table, at: u32, now: Nanos) -> Choice {
        let v = &mut table.virtuals[at];
        move_to(&mut self.sets, &mut v.place, None);
        let v = *v;
        table.queues[v.queue].history.serve(&v);
        if table.queues[v.queue].queued == 1 {
            self.exit(table, v.queue);
        } else {
            self.enter(table, v.queue);
        }
        table.take(at, now);
        Choice::Serve(at)
    }
}

impl Policy for Mlf {
    fn add(&mut self, table: &mut Table, entry: u32) {
        let placed = table.aggregate(entry);
        if let Some((set, key)) = placed.gone {
            self.sets[usize::from(set)].remove(key);
        }
        let ready = table.ripe_at(placed.at, self.quantum);
        let visits = table.visits(table.virtuals[placed.at].queue);
        let v = &mut table.virtuals[placed.at];
        // A choice follows a visit: what the next one lets through need not be looked for then.
        let to = match ready <= visits + 1 {
            true => (RIPE, place(v.queue, v.offset, placed.at)),
            false => (UNRIPE, place(v.queue, ready, placed.at)),
        };
        move_to(&mut self.sets, &mut v.place, Some(to));
        let queue = v.queue;
        // A queue that waits looks again: this may be what it waits for.
        self.enter(table, queue);
    }

    fn next(&mut self, table: &mut Table, now: Nanos) -> Choice {
        let held = usize::from(HELD);
        while let Some(key) = self.sets[held].first()
            && rank(key) <= now
        {
            self.enter(table, key as u32);
        }
        if let Some(at) = table.overdue(now, self.bound) {
            return self.serve(table, at, now);
        }
        while self.ring.at != NONE {
            let queue = self.ring.at;
            self.ring.at = table.queues[queue].after;
            let Some(at) = self.visit(table, queue) else {
                continue;
            };
            let v = table.virtuals[at];
            let history = &mut table.queues[queue].history;
            let Some(until) = history.hold(&v, self.waits, now, &mut self.waited) else {
                return self.serve(table, at, now);
            };
            self.exit(table, queue);
            let to = Some((HELD, ranked(until, queue)));
            move_to(&mut self.sets, &mut table.queues[queue].place, to);
        }
        match self.sets[held].first() {
            Some(key) => Choice::Wait(rank(key)),
            None => Choice::Nothing,
        }
    }

    fn waited(&self) -> Waited {
        self.waited
    }

    fn forget_waited(&mut self) {
        self.waited = [0; 2];
    }
}
