//! RAID 0 over any devices.
//!
//! Address a lies on device (a / unit) mod n. A request touches k = min(n, ⌈S / unit⌉) devices, and the slowest one
//! determines its time. With unsynchronised spindles the expected rotational delay is turn · k / (k + 1). All bytes
//! share the bus of the controller: the sequential rate is min(n · r, bus). The bytes of one request on one device are
//! contiguous there and are one request to it.

use crate::pending::Pending;
use crate::{Completion, Device, Nanos, Op, Request, span};
use std::collections::HashMap;

/// Parameters of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaidOptions {
    /// Stripe unit in bytes.
    pub unit: u64,
    /// Bytes per second of the controller for reads.
    pub read_bus: u64,
    /// The same for writes.
    pub write_bus: u64,
    /// Controller time of each request; requests overlap.
    pub overhead: Nanos,
}

/// A request whose parts are under way.
struct UnderWay {
    id: u64,
    /// Parts that are not done.
    left: usize,
    /// Its time on the bus so far.
    carried: Nanos,
    since: Nanos,
}

/// An array.
pub struct Raid0 {
    members: Vec<Box<dyn Device>>,
    options: RaidOptions,
    bus_free: Nanos,
    /// Requests under way by the array's own numbers, because callers may reuse an identifier.
    under_way: HashMap<u64, UnderWay>,
    /// The array's request of each part; part ids are the array's own.
    parts: HashMap<u64, u64>,
    next_part: u64,
    next_request: u64,
    pending: Pending,
    scratch: Vec<Completion>,
}

impl Raid0 {
    /// Stripes over `members`. An array without members has no capacity and completes requests at once.
    pub fn new(members: Vec<Box<dyn Device>>, mut options: RaidOptions) -> Raid0 {
        options.unit = options.unit.max(512);
        Raid0 {
            members,
            options,
            bus_free: 0,
            under_way: HashMap::new(),
            parts: HashMap::new(),
            next_part: 0,
            next_request: 0,
            pending: Pending::default(),
            scratch: Vec::new(),
        }
    }

    /// The number of a request to come.
    fn number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    fn part(&mut self, of: u64) -> u64 {
        let id = self.next_part;
        self.next_part += 1;
        self.parts.insert(id, of);
        id
    }
}

impl Device for Raid0 {
    fn submit(&mut self, now: Nanos, request: Request) {
        let n = self.members.len() as u64;
        let (unit, start, end) = (
            self.options.unit,
            request.address,
            request.address + request.bytes,
        );
        // Bytes before `address` that device i holds.
        let held = |i: u64, address: u64| {
            let row = unit * n;
            let within = (address % row).saturating_sub(i * unit).min(unit);
            address / row * unit + within
        };
        let number = self.number();
        let mut pieces = 0;
        for i in 0..n {
            let (from, to) = (held(i, start), held(i, end));
            if from < to {
                let id = self.part(number);
                pieces += 1;
                let part = Request {
                    id,
                    address: from,
                    bytes: to - from,
                    ..request
                };
                self.members[i as usize].submit(now, part);
            }
        }
        if pieces == 0 {
            self.pending.push(now, request.id);
        } else {
            let bus = match request.op {
                Op::Read => self.options.read_bus,
                Op::Write => self.options.write_bus,
            };
            let under_way = UnderWay {
                id: request.id,
                left: pieces,
                carried: span(request.bytes, bus),
                since: now,
            };
            self.under_way.insert(number, under_way);
        }
    }

    fn flush(&mut self, now: Nanos, id: u64) {
        let number = self.number();
        let under_way = UnderWay {
            id,
            left: self.members.len(),
            carried: 0,
            since: now,
        };
        self.under_way.insert(number, under_way);
        for i in 0..self.members.len() {
            let part = self.part(number);
            self.members[i].flush(now, part);
        }
        if self.members.is_empty() {
            self.pending.push(now, id);
        }
    }

    fn wake(&self) -> Option<Nanos> {
        let members = self.members.iter().filter_map(|m| m.wake());
        members.chain(self.pending.next()).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        let mut parts = std::mem::take(&mut self.scratch);
        parts.clear();
        for member in &mut self.members {
            member.advance(now, &mut parts);
        }
        parts.sort_by_key(|c| (c.at, c.id));
        for part in &parts {
            let Some(of) = self.parts.remove(&part.id) else {
                continue;
            };
            let Some(request) = self.under_way.get_mut(&of) else {
                continue;
            };
            request.left -= 1;
            if request.left > 0 {
                continue;
            }
            let Some(request) = self.under_way.remove(&of) else {
                continue;
            };
            // The bus carries bytes while the members still work: only the remainder is added.
            self.bus_free = self.bus_free.max(request.since) + request.carried;
            let at = part.at.max(self.bus_free) + self.options.overhead;
            self.pending.push(at, request.id);
        }
        self.scratch = parts;
        self.pending.drain(now, done);
    }

    fn capacity(&self) -> u64 {
        let least = self.members.iter().map(|m| m.capacity()).min().unwrap_or(0);
        least / self.options.unit * self.options.unit * self.members.len() as u64
    }

    fn head(&self) -> Option<u64> {
        let n = self.members.len() as u64;
        let at = self.members.first()?.head()?;
        Some(at / self.options.unit * self.options.unit * n + at % self.options.unit)
    }
}
