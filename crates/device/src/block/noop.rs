//! NOOP: order of arrival, with merging. For devices that order by themselves or do not care.

use super::{Choice, Order, Unit, sorted::Both};
use crate::{Nanos, Op, Request};

pub(super) struct Noop {
    waiting: Both,
    most: usize,
}

impl Noop {
    pub(super) fn new(most: usize) -> Noop {
        Noop {
            waiting: Both::default(),
            most,
        }
    }
}

impl Order for Noop {
    fn room(&self, _process: u32) -> bool {
        self.waiting.len() < self.most
    }

    fn merge(&mut self, request: &Request, most: u64) -> bool {
        self.waiting.of(request.op).merge(request, most)
    }

    fn add(&mut self, unit: Unit) {
        self.waiting.of(unit.op).add(unit);
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

    fn completed(&mut self, _now: Nanos, _process: u32) {}
}
