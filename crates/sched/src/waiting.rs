//! When a queue waits for more requests instead of being served (TS 3.1.1; Lebre et al. 2006).
//!
//! *Shift phenomenon*: processes that read one file in turn drift apart, and a request is served before the one that
//! precedes it in the file. After serving r, if r starts before what was served last and no shift is pending, the
//! request at r's end is expected next. One that lies further on waits for it, 1350 µs in the source. *Better
//! aggregation*: the next request lies at or beyond the end of the last one served, which joined more requests than
//! this one. It then waits for more, 900 µs in the source. *Prediction*: a trace of an earlier run predicts that more
//! of the same aggregation will come ([`Company`]). Each of the first two happens at most once per decision; a
//! predictor limits its own waits. A queue that waits is left out of the choice and so never delays others.
use crate::Nanos;
use crate::history::{History, NOWHERE};
use crate::ranks::Ranks;
use crate::table::{Table, Virtual, Waited};

/// Longest waits: shift, larger aggregation.
pub(crate) type Waits = [Nanos; 2];

/// The predictor's answer: how long a virtual request with this arrival time and these parts should wait.
pub type Company<'a> = dyn FnMut(Nanos, &mut dyn Iterator<Item = u64>) -> Nanos + 'a;

/// Queues that wait, each until its own time.
#[derive(Debug)]
pub(crate) struct Waiting {
    longest: Waits,
    until: Ranks,
}

impl Waiting {
    pub(crate) fn new(longest: Waits) -> Waiting {
        Waiting {
            longest,
            until: Ranks::default(),
        }
    }

    /// Ends the wait of a queue whose time is over, and returns it.
    pub(crate) fn over(&mut self, now: Nanos) -> Option<usize> {
        let (until, queue) = self.until.first()?;
        if until > now {
            return None;
        }
        self.until.remove(queue);
        Some(queue)
    }

    /// Makes the queue wait if its next virtual request should wait instead of being served. Returns whether it waits.
    pub(crate) fn begin(
        &mut self,
        table: &mut Table,
        next: usize,
        now: Nanos,
        company: &mut Company<'_>,
    ) -> bool {
        let v = &table.virtuals[next];
        let queue = v.queue;
        let history = &mut table.queues[queue].history;
        let mut until = history.hold(v, self.longest, now, &mut table.waited);
        if until.is_none() {
            let wait = company(v.arrived, &mut table.ids(next));
            if wait > 0 {
                table.waited[2] += 1;
                until = Some(now.saturating_add(wait));
            }
        }
        if let Some(until) = until {
            self.until.set(queue, until);
        }
        until.is_some()
    }

    /// Ends the queue's wait, if there is one.
    pub(crate) fn end(&mut self, queue: usize) {
        self.until.remove(queue);
    }

    pub(crate) fn has(&self, queue: usize) -> bool {
        self.until.has(queue)
    }

    /// When the first wait ends.
    pub(crate) fn first(&self) -> Option<Nanos> {
        self.until.first().map(|first| first.0)
    }
}

impl History {
    /// Until when the queue should wait rather than serve `next`.
    fn hold(
        &mut self,
        next: &Virtual,
        waits: Waits,
        now: Nanos,
        waited: &mut Waited,
    ) -> Option<Nanos> {
        let reasons = [
            next.offset > self.shift,
            next.offset >= self.last_end && next.parts < self.last_parts,
        ];
        for kind in 0..2 {
            if !reasons[kind] || waits[kind] == 0 {
                continue;
            }
            if self.until[kind] == 0 {
                waited[kind] += 1;
                self.until[kind] = now.saturating_add(waits[kind]);
            }
            if now < self.until[kind] {
                return Some(self.until[kind]);
            }
        }
        None
    }

    /// Records that this one is being served.
    pub(crate) fn serve(&mut self, v: &Virtual) {
        let pending = self.shift != NOWHERE;
        let fell_behind = self.last_parts > 0 && v.offset < self.last_start;
        self.shift = if !pending && fell_behind {
            v.end
        } else {
            NOWHERE
        };
        self.last_start = v.offset;
        self.last_end = v.end;
        self.last_parts = v.parts;
        self.until = [0; 2];
    }
}
