//! When a queue waits for more instead of being served (TS 3.1.1; Lebre et al. 2006).
//!
//! *Shift phenomenon*: processes that read one file in turn drift, and a request is served before the one that
//! precedes it in the file. After serving r, if r starts before what was served last and no shift is pending, the
//! request at r's end is expected next; one that lies further on waits for it, 1350 µs in the source.
//! *Better aggregation*: the next request lies at or beyond the end of the last one served, and that one joined more
//! requests than this: it waits for company, 900 µs in the source.
//! Each of the two happens at most once for one decision. A queue that waits is out of the choice and so never delays others.
use crate::Nanos;
use crate::table::Virtual;

/// What is remembered of a queue's past for this.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct History {
    served: bool,
    last_start: u64,
    last_end: u64,
    last_parts: u32,
    /// The offset expected after a shift.
    shift: Option<u64>,
    /// Ends of the waits for this decision.
    until: [Option<Nanos>; 2],
}

/// Longest waits: shift, better aggregation.
pub(crate) type Waits = [Nanos; 2];

/// Waits begun, by reason: shift, better aggregation.
pub(crate) type Waited = [u64; 2];

impl History {
    /// Until when the queue should wait rather than serve `next`.
    pub(crate) fn hold(
        &mut self,
        next: &Virtual,
        waits: Waits,
        now: Nanos,
        waited: &mut Waited,
    ) -> Option<Nanos> {
        let reasons = [
            self.shift.is_some_and(|expected| next.offset > expected),
            self.served && next.offset >= self.last_end && next.parts < self.last_parts,
        ];
        for kind in 0..2 {
            if !reasons[kind] || waits[kind] == 0 {
                continue;
            }
            let until = *self.until[kind].get_or_insert_with(|| {
                waited[kind] += 1;
                now.saturating_add(waits[kind])
            });
            if now < until {
                return Some(until);
            }
        }
        None
    }

    /// This one is served now.
    pub(crate) fn serve(&mut self, v: &Virtual) {
        let pending = self.shift.take();
        if pending.is_none() && self.served && v.offset < self.last_start {
            self.shift = Some(v.end);
        }
        self.served = true;
        self.last_start = v.offset;
        self.last_end = v.end;
        self.last_parts = v.parts;
        self.until = [None; 2];
    }
}
