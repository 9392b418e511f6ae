//! NOOP: order of arrival, with merging. For devices that order by themselves or do not care.

use super::{Choice, Order, sorted::Both};
use crate::{Nanos, Op};

#[derive(Default)]
pub(super) struct Noop {
    waiting: Both,
}

impl Order for Noop {
    fn waiting(&mut self, _process: u32) -> &mut Both {
        &mut self.waiting
    }

    fn next(&mut self, _now: Nanos) -> Choice {
        let read = self.waiting.of(Op::Read).oldest();
        let write = self.waiting.of(Op::Write).oldest();
        let op = match (read, write) {
            (Some(r), Some(w)) if w.0 < r.0 => Op::Write,
            (None, Some(_)) => Op::Write,
            _ => Op::Read,
        };
        match self.waiting.of(op).take_oldest() {
            Some(unit) => Choice::Dispatch(unit),
            None => Choice::Empty,
        }
    }
}
