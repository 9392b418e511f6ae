//! Factors of MLF and aIOLi.
//!
//! *Problem*: each visit of a queue doubles the factor of all its requests, and visits are many more than requests served.
//! *Idea*: a virtual request keeps its factor and the number of visits at which that was right, and is brought up to date when it is
//! looked at; the visit that will let it through is computed. So no visit touches requests. *Parameter*: the quantum, given by
//! the algorithm. *Source*: TS sections 3.1.1 and 3.1.2.
use super::{NONE, Table};

impl Table {
    /// How often a queue has been looked at.
    pub(crate) fn visits(&self, queue: usize) -> u64 {
        match queue {
            NONE => 0,
            _ => {
                let queue = &self.queues[queue];
                queue.visits + self.lanes[usize::from(queue.lane)].scans
            }
        }
    }

    /// Brings a virtual request's factor up to date: every visit doubles it, a part's first visit makes it 1.
    pub(crate) fn age(&mut self, at: usize) {
        let visits = self.visits(self.virtuals[at].queue);
        let v = &mut self.virtuals[at];
        let passed = visits - v.visits;
        if passed == 0 {
            return;
        }
        let once = v.factor.saturating_mul(2).saturating_add(v.fresh.into());
        let doublings = (passed - 1).min(63) as u32;
        v.factor = if once.leading_zeros() >= doublings {
            once << doublings
        } else {
            u64::MAX
        };
        v.fresh = 0;
        v.visits = visits;
    }

    /// As it was brought up to date last.
    pub(crate) fn factor(&self, at: usize) -> u64 {
        self.virtuals[at].factor
    }

    /// At which visit the factor will let the virtual request through: factor × quantum ≥ its bytes.
    pub(crate) fn ripe_at(&self, at: usize, quantum: u64) -> u64 {
        let v = &self.virtuals[at];
        let needed = v.bytes.div_ceil(quantum);
        if v.factor >= needed {
            return v.visits;
        }
        let mut factor = v.factor.saturating_mul(2).saturating_add(v.fresh.into());
        let mut visits = v.visits + 1;
        while factor < needed {
            factor = factor.saturating_mul(2);
            visits += 1;
        }
        visits
    }
}
