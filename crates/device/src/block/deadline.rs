//! Deadline: ascending addresses in batches of 16, reads before writes, and a deadline for each request.
//!
//! A read is due after 500 ms, a write after 5 s: a batch begins at the oldest request when that is overdue. Writes are
//! passed over by at most two batches of reads. The figures are the Linux kernel's defaults.

use super::{Choice, Order, Unit, sorted::Both};
use crate::{Nanos, Op};

const READ_DUE: Nanos = 500_000_000;
const WRITE_DUE: Nanos = 5_000_000_000;
const BATCH: u32 = 16;
const STARVED: u32 = 2;

#[derive(Default)]
pub(super) struct Deadline {
    waiting: Both,
    position: u64,
    batch: Option<(Op, u32)>,
    starved: u32,
}

impl Deadline {
    fn serve(&mut self, unit: Unit) -> Choice {
        self.position = unit.address + unit.bytes;
        Choice::Dispatch(unit)
    }
}

impl Order for Deadline {
    fn waiting(&mut self, _process: u32) -> &mut Both {
        &mut self.waiting
    }

    fn next(&mut self, now: Nanos) -> Choice {
        if let Some((op, left)) = self.batch.take()
            && left > 0
            && let Some(unit) = self.waiting.of(op).take_behind(self.position)
        {
            self.batch = Some((op, left - 1));
            return self.serve(unit);
        }
        let reads = self.waiting.of(Op::Read).len();
        let writes = self.waiting.of(Op::Write).len();
        let op = if reads > 0 && (writes == 0 || self.starved < STARVED) {
            self.starved += u32::from(writes > 0);
            Op::Read
        } else if writes > 0 {
            self.starved = 0;
            Op::Write
        } else {
            return Choice::Empty;
        };
        let due = if op == Op::Read { READ_DUE } else { WRITE_DUE };
        let position = self.position;
        let waiting = self.waiting.of(op);
        let overdue = waiting
            .oldest()
            .is_some_and(|(arrived, _)| arrived + due <= now);
        let unit = if overdue {
            waiting.take_oldest()
        } else {
            waiting.take_from(position)
        };
        match unit {
            Some(unit) => {
                self.batch = Some((op, BATCH - 1));
                self.serve(unit)
            }
            None => Choice::Empty,
        }
    }
}
