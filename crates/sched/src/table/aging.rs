//! Factors of MLF and aIOLi.
//!
//! *Problem*: each visit of a queue doubles the factor of all its requests, and there are many more visits than
//! requests served. *Idea*: a virtual request stores its factor with the number of visits at which it was computed, and
//! is updated when it is used. The visit at which it becomes eligible is computed. So no visit touches requests.
//! *Parameter*: the quantum, given by the algorithm. *Source*: TS sections 3.1.1 and 3.1.2.
use super::{NONE, Table};

impl Table {
    /// How often a queue has been visited.
    pub(crate) fn visits(&self, queue: usize) -> u64 {
        match queue {
            NONE => 0,
            _ => {
                let queue = &self.queues[queue];
                queue.visits + self.lanes[usize::from(queue.lane)].scans
            }
        }
    }

    /// Updates a virtual request's factor: every visit doubles it, and a part's first visit makes it 1.
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

    /// The factor at the last update.
    pub(crate) fn factor(&self, at: usize) -> u64 {
        self.virtuals[at].factor
    }

    /// The visit at which the virtual request becomes eligible: factor × quantum ≥ its bytes.
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
