//! Flash at block level: latency, bandwidth, parallelism, asymmetry, and stalls by garbage collection.
//!
//! The device has a number of units that work in parallel (channels with their chips). Addresses are interleaved over
//! them in parts of `interleave` bytes. A read occupies its unit for the page read and then the bus. A write crosses
//! the bus into the buffer and is then done, while its unit programs. A full buffer delays writes: sustained writes run
//! at the rate of programming. Sequential reads are prefetched. Small sequential writes that follow each other on one
//! unit wait for it, while random ones find an idle unit. Devices with a coarse interleave therefore write randomly
//! faster.
//!
//! Collection: with write amplification A, each programmed page leaves work behind. For random writes that is (A −
//! 1)·(tR + tPROG) + A·tBERS / pages per block on average, with A = a / (a + W₀(−a·e^(−a))) and a = 1 +
//! over-provisioning. For sequential ones it is tBERS / pages. The work is done in stalls of one block each, once the
//! spare area is used up.

use crate::pending::Pending;
use crate::{Completion, Device, Nanos, Op, Request, span};
use std::collections::VecDeque;

/// Parameters of a flash device.
#[derive(Debug, Clone)]
pub struct SsdOptions {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Units that work in parallel.
    pub units: usize,
    /// Bytes of one unit before the next one's.
    pub interleave: u64,
    /// Bytes of a page.
    pub page: u64,
    /// Pages of an erase block.
    pub block_pages: u64,
    /// Time to read a page.
    pub read: Nanos,
    /// Time to program a page.
    pub program: Nanos,
    /// Time to erase a block.
    pub erase: Nanos,
    /// Controller time of each command; commands overlap.
    pub overhead: Nanos,
    /// Bytes per second to the host.
    pub read_bus: u64,
    /// Bytes per second from the host.
    pub write_bus: u64,
    /// Bytes of writes that the buffer holds.
    pub buffer: u64,
    /// Bytes fetched ahead of a sequential read.
    pub prefetch: u64,
    /// Spare share of the flash, for example 0.07.
    pub over_provisioning: f64,
    /// Host bytes written before collection begins; 0 for a device long in use.
    pub fresh: u64,
}

#[derive(Clone, Default)]
struct Unit {
    free: Nanos,
    /// Work of collection that is due.
    debt: Nanos,
    last_page: Option<u64>,
}

/// One flash device.
pub struct Ssd {
    options: SsdOptions,
    amplification: f64,
    units: Vec<Unit>,
    bus_free: Nanos,
    /// When the programs of buffered pages end, in order of arrival at their units.
    buffered: VecDeque<Nanos>,
    read_end: u64,
    /// Prefetched pages: the first page, and when each is available.
    ahead: VecDeque<(u64, Nanos)>,
    written: u64,
    stalls: u64,
    pending: Pending,
    position: u64,
}

/// Write amplification of greedy collection under uniform random writes, with `spare` as a share of the capacity.
pub fn write_amplification(spare: f64) -> f64 {
    let a = 1.0 + spare.max(1e-6);
    // W₀ on (−1/e, 0) by Newton's method from above.
    let x = -a * (-a).exp();
    let mut w = -0.9f64;
    if x > -0.1 {
        w = x;
    }
    for _ in 0..200 {
        let e = w.exp();
        let step = (w * e - x) / (e * (w + 1.0)).max(1e-12);
        w = (w - step).clamp(-0.999_999_9, 0.0);
        if step.abs() < 1e-13 {
            break;
        }
    }
    a / (a + w)
}

impl Ssd {
    /// An idle device.
    pub fn new(mut options: SsdOptions) -> Ssd {
        options.units = options.units.clamp(1, 1 << 16);
        options.page = options.page.max(512);
        options.interleave = options.interleave.max(options.page);
        options.block_pages = options.block_pages.max(1);
        options.capacity = options.capacity.max(options.page);
        Ssd {
            amplification: write_amplification(options.over_provisioning),
            units: vec![Unit::default(); options.units],
            options,
            bus_free: 0,
            buffered: VecDeque::new(),
            read_end: u64::MAX,
            ahead: VecDeque::new(),
            written: 0,
            stalls: 0,
            pending: Pending::default(),
            position: 0,
        }
    }

    /// How often a unit stalled for collection.
    pub fn stalls(&self) -> u64 {
        self.stalls
    }

    fn unit_of(&self, page: u64) -> usize {
        (page * self.options.page / self.options.interleave % self.units.len() as u64) as usize
    }

    fn fetch(&mut self, now: Nanos, page: u64) -> Nanos {
        let read = self.options.read;
        let unit = self.unit_of(page);
        let unit = &mut self.units[unit];
        unit.free = unit.free.max(now) + read;
        unit.free
    }

    fn read(&mut self, now: Nanos, request: &Request) -> Nanos {
        let o = &self.options;
        let (page, prefetch, bus) = (o.page, o.prefetch / o.page, o.read_bus);
        let begin = now + o.overhead;
        let sequential = request.address == self.read_end;
        if !sequential {
            self.ahead.clear();
        }
        self.read_end = request.address + request.bytes;
        let (first, last) = (
            request.address / page,
            (self.read_end.max(request.address + 1) - 1) / page,
        );
        let mut at = begin;
        for p in first..=last {
            while self.ahead.front().is_some_and(|a| a.0 < p) {
                self.ahead.pop_front();
            }
            let ready = match self.ahead.front() {
                Some(&(there, ready)) if there == p => ready,
                _ => {
                    let ready = self.fetch(begin, p);
                    self.ahead.clear();
                    self.ahead.push_front((p, ready));
                    ready
                }
            };
            at = at.max(ready);
        }
        if sequential {
            let from = self.ahead.back().map_or(last + 1, |a| a.0 + 1);
            for p in from..(last + 1 + prefetch).min(self.options.capacity / page) {
                let ready = self.fetch(begin, p);
                self.ahead.push_back((p, ready));
            }
        }
        // Pages cross the bus while later ones are read; the last one crosses after its read.
        self.bus_free = self.bus_free.max(begin) + span(request.bytes, bus);
        (at + span(page.min(request.bytes), bus)).max(self.bus_free)
    }

    fn write(&mut self, now: Nanos, request: &Request) -> Nanos {
        let o = self.options.clone();
        let begin = now + o.overhead;
        self.bus_free = self.bus_free.max(begin) + span(request.bytes, o.write_bus);
        let mut at = self.bus_free;
        let room = (o.buffer / o.page).max(1) as usize;
        let last = (request.address + request.bytes.max(1) - 1) / o.page;
        for p in request.address / o.page..=last {
            while self.buffered.front().is_some_and(|t| *t <= at) {
                self.buffered.pop_front();
            }
            if self.buffered.len() >= room
                && let Some(freed) = self.buffered.pop_front()
            {
                at = at.max(freed);
            }
            self.written += o.page;
            let aged = self.written > o.fresh;
            let unit = self.unit_of(p);
            let unit = &mut self.units[unit];
            // A buffer shared by few pages does not help a unit that gets the next request at once.
            unit.free = unit.free.max(at) + o.program;
            let sequential = unit
                .last_page
                .is_some_and(|l| p > l && p - l <= 2 * o.block_pages);
            unit.last_page = Some(p);
            if aged {
                let erase = o.erase as f64 / o.block_pages as f64;
                unit.debt += if sequential {
                    erase as Nanos
                } else {
                    let copies = (self.amplification - 1.0) * (o.read + o.program) as f64;
                    (copies + self.amplification * erase) as Nanos
                };
                let share = (self.amplification - 1.0) / self.amplification;
                let copies = share * o.block_pages as f64 * (o.read + o.program) as f64;
                let stall = if sequential { 0 } else { copies as Nanos } + o.erase;
                if unit.debt >= stall {
                    unit.debt -= stall;
                    unit.free += stall;
                    self.stalls += 1;
                }
            }
            let end = unit.free;
            let place = self.buffered.partition_point(|t| *t <= end);
            self.buffered.insert(place, end);
        }
        at
    }
}

impl Device for Ssd {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.position = request.address;
        let at = match request.op {
            Op::Read => self.read(now, &request),
            Op::Write => self.write(now, &request),
        };
        self.pending.push(at, request.id);
    }

    fn flush(&mut self, now: Nanos, id: u64) {
        let last = self.buffered.back().copied().unwrap_or(0);
        let at = now.max(last) + self.options.overhead;
        self.pending.push(at, id);
    }

    fn wake(&self) -> Option<Nanos> {
        self.pending.next()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.pending.drain(now, done);
    }

    fn capacity(&self) -> u64 {
        self.options.capacity
    }

    fn head(&self) -> Option<u64> {
        Some(self.position)
    }
}
