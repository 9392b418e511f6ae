//! Waiting requests by address, with merging; the common part of the elevators that sort.

use super::Unit;
use crate::{Nanos, Op, Request};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Sorted {
    by_address: BTreeMap<(u64, u64), Unit>,
    by_arrival: BTreeMap<(Nanos, u64), (u64, u64)>,
    next: u64,
}

impl Sorted {
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn add(&mut self, unit: Unit) {
        let key = (unit.address, self.next);
        self.by_arrival.insert((unit.arrived, self.next), key);
        self.by_address.insert(key, unit);
        self.next += 1;
    }

    pub(super) fn merge(&mut self, request: &Request, most: u64) -> bool {
        let (start, end) = (request.address, request.address + request.bytes);
        let fits = |u: &Unit| u.op == request.op && u.bytes + request.bytes <= most;
        // Behind the nearest one before it, or in front of one that begins at its end.
        let before = self.by_address.range_mut(..(start, 0)).next_back();
        if let Some((_, unit)) = before
            && unit.address + unit.bytes == start
            && fits(unit)
        {
            unit.bytes += request.bytes;
            unit.parts.push(request.id);
            return true;
        }
        let after = self.by_address.range((end, 0)..=(end, u64::MAX)).next();
        let Some((&key, unit)) = after else {
            return false;
        };
        if !fits(unit) {
            return false;
        }
        let Some(mut unit) = self.by_address.remove(&key) else {
            return false;
        };
        unit.address = start;
        unit.bytes += request.bytes;
        unit.parts.push(request.id);
        self.by_arrival
            .insert((unit.arrived, key.1), (start, key.1));
        self.by_address.insert((start, key.1), unit);
        true
    }

    pub(super) fn oldest(&self) -> Option<(Nanos, u64)> {
        let (&(arrived, _), &(address, _)) = self.by_arrival.first_key_value()?;
        Some((arrived, address))
    }

    /// The first at or behind `address`, or the lowest one.
    pub(super) fn take_from(&mut self, address: u64) -> Option<Unit> {
        let key = self.by_address.range((address, 0)..).next();
        let key = key
            .or_else(|| self.by_address.first_key_value())
            .map(|(k, _)| *k)?;
        self.take(key)
    }

    /// The first at or behind `address`.
    pub(super) fn take_behind(&mut self, address: u64) -> Option<Unit> {
        let key = self
            .by_address
            .range((address, 0)..)
            .next()
            .map(|(k, _)| *k)?;
        self.take(key)
    }

    pub(super) fn take_oldest(&mut self) -> Option<Unit> {
        let key = *self.by_arrival.first_key_value()?.1;
        self.take(key)
    }

    fn take(&mut self, key: (u64, u64)) -> Option<Unit> {
        let unit = self.by_address.remove(&key)?;
        self.by_arrival.remove(&(unit.arrived, key.1));
        Some(unit)
    }
}

/// Requests of both kinds.
#[derive(Default)]
pub(super) struct Both {
    reads: Sorted,
    writes: Sorted,
}

impl Both {
    pub(super) fn of(&mut self, op: Op) -> &mut Sorted {
        match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
}
