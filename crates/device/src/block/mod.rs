//! The kernel's block queue in front of a device: merging, an elevator, and a bound on what the device has at once.
//!
//! Requests that touch one waiting request of the same kind join it, up to `merge` bytes. The elevator sees at most
//! `queue` requests (the sources use 128 and 8192; CFQ bounds each process instead). Later ones wait outside in order
//! of arrival. At most `depth` requests are at the device. With `slots`, at most that many requests of all processes
//! are in the elevator or at the device. Each holds one of the kernel's request structures until it is answered.

mod cfq;
mod deadline;
mod noop;
mod sorted;

use crate::{Completion, Device, Nanos, Op, Request};
use sorted::Both;
use std::collections::{HashMap, VecDeque};

/// Which elevator orders the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elevator {
    /// Order of arrival.
    Noop,
    /// Ascending in batches, with a deadline for each request.
    Deadline,
    /// One queue per process, time slices, anticipation.
    Cfq,
}

/// Parameters of a block queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockQueueOptions {
    /// The elevator.
    pub elevator: Elevator,
    /// Requests that the elevator sees; per process under CFQ.
    pub queue: usize,
    /// Requests of all processes in the elevator and at the device; `None` for no bound besides the two.
    pub slots: Option<usize>,
    /// Requests at the device at once.
    pub depth: usize,
    /// Largest request that merging makes, in bytes.
    pub merge: u64,
    /// CFQ: how long to wait for the process's next request; 0 for no anticipation.
    pub idle: Nanos,
    /// CFQ: the slice of one process.
    pub slice: Nanos,
}

impl Default for BlockQueueOptions {
    fn default() -> BlockQueueOptions {
        BlockQueueOptions {
            elevator: Elevator::Cfq,
            queue: 128,
            slots: None,
            depth: 32,
            merge: 512 << 10,
            idle: 8_000_000,
            slice: 100_000_000,
        }
    }
}

/// One or more adjacent requests as the device sees them.
#[derive(Debug, Clone)]
struct Unit {
    op: Op,
    address: u64,
    bytes: u64,
    process: u32,
    arrived: Nanos,
    parts: Vec<u64>,
}

/// What an elevator says when asked for the next request.
enum Choice {
    Dispatch(Unit),
    /// Nothing before this time, unless a request arrives.
    Wait(Nanos),
    Empty,
}

/// The policy of a queue. Times are passed in.
trait Order: Send {
    /// Whether the elevator takes another request of this process; the bound on all processes is checked elsewhere.
    fn room(&self, _process: u32) -> bool {
        true
    }
    /// Where requests of this process wait.
    fn waiting(&mut self, process: u32) -> &mut Both;
    /// Joins the request to a waiting one if it touches it.
    fn merge(&mut self, request: &Request, most: u64) -> bool {
        let waiting = self.waiting(request.process);
        waiting.of(request.op).merge(request, most)
    }
    fn add(&mut self, unit: Unit) {
        self.waiting(unit.process).of(unit.op).add(unit);
    }
    fn next(&mut self, now: Nanos) -> Choice;
    /// A request of `process` has been completed.
    fn completed(&mut self, _now: Nanos, _process: u32) {}
}

/// The queue and the device behind it.
pub struct BlockQueue<D> {
    options: BlockQueueOptions,
    order: Box<dyn Order>,
    /// Requests in it.
    inside: usize,
    outside: VecDeque<Request>,
    device: D,
    at_device: HashMap<u64, Unit>,
    next_id: u64,
    /// Writes not yet completed, and flushes that wait for those before them.
    writes: u64,
    flushes: VecDeque<u64>,
    flushing: HashMap<u64, u64>,
    timer: Option<Nanos>,
    merged: u64,
    scratch: Vec<Completion>,
}

impl<D: Device> BlockQueue<D> {
    /// A queue in front of `device`.
    pub fn new(options: BlockQueueOptions, device: D) -> BlockQueue<D> {
        let queue = options.queue.max(1);
        let order: Box<dyn Order> = match options.elevator {
            Elevator::Noop => Box::<noop::Noop>::default(),
            Elevator::Deadline => Box::<deadline::Deadline>::default(),
            Elevator::Cfq => Box::new(cfq::Cfq::new(queue, options.slice, options.idle)),
        };
        BlockQueue {
            options,
            order,
            inside: 0,
            outside: VecDeque::new(),
            device,
            at_device: HashMap::new(),
            next_id: 0,
            writes: 0,
            flushes: VecDeque::new(),
            flushing: HashMap::new(),
            timer: None,
            merged: 0,
            scratch: Vec::new(),
        }
    }

    /// Requests that joined another one.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    fn full(&self) -> bool {
        let bound = match self.options.elevator {
            Elevator::Noop | Elevator::Deadline => self.options.queue.max(1),
            Elevator::Cfq => usize::MAX,
        };
        let slots = self.options.slots.unwrap_or(usize::MAX).max(1);
        self.inside >= bound || self.inside + self.at_device.len() >= slots
    }

    fn enter(&mut self, now: Nanos, request: Request) {
        if self.order.merge(&request, self.options.merge) {
            self.merged += 1;
            return;
        }
        self.inside += 1;
        self.order.add(Unit {
            op: request.op,
            address: request.address,
            bytes: request.bytes,
            process: request.process,
            arrived: now,
            parts: vec![request.id],
        });
    }

    fn pump(&mut self, now: Nanos) {
        self.timer = None;
        while self.at_device.len() < self.options.depth.max(1) {
            match self.order.next(now) {
                Choice::Dispatch(unit) => {
                    let id = self.next_id;
                    self.next_id += 1;
                    let request = Request {
                        id,
                        op: unit.op,
                        address: unit.address,
                        bytes: unit.bytes,
                        process: unit.process,
                    };
                    self.inside -= 1;
                    self.at_device.insert(id, unit);
                    self.device.submit(now, request);
                    self.admit(now);
                }
                Choice::Wait(until) => {
                    self.timer = Some(until);
                    break;
                }
                Choice::Empty => break,
            }
        }
        if self.writes == 0 {
            for id in std::mem::take(&mut self.flushes) {
                let own = self.next_id;
                self.next_id += 1;
                self.flushing.insert(own, id);
                self.device.flush(now, own);
            }
        }
    }

    fn admit(&mut self, now: Nanos) {
        let mut i = 0;
        // One full process does not hold up the others; the search is bounded.
        while i < self.outside.len().min(1024) && !self.full() {
            if !self.order.room(self.outside[i].process) {
                i += 1;
            } else if let Some(request) = self.outside.remove(i) {
                self.enter(now, request);
            }
        }
    }
}

impl<D: Device> Device for BlockQueue<D> {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.writes += u64::from(request.op == Op::Write);
        self.outside.push_back(request);
        self.admit(now);
        self.pump(now);
    }

    fn flush(&mut self, now: Nanos, id: u64) {
        self.flushes.push_back(id);
        self.pump(now);
    }

    fn wake(&self) -> Option<Nanos> {
        let timer = self
            .timer
            .filter(|_| self.at_device.len() < self.options.depth.max(1));
        [timer, self.device.wake()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        // Event by event: requests that one completion admits reach the device before the next completion.
        while let Some(at) = self.wake()
            && at <= now
        {
            let mut back = std::mem::take(&mut self.scratch);
            back.clear();
            self.device.advance(at, &mut back);
            for completion in &back {
                if let Some(id) = self.flushing.remove(&completion.id) {
                    done.push(Completion { id, ..*completion });
                } else if let Some(unit) = self.at_device.remove(&completion.id) {
                    let n = unit.parts.len() as u64;
                    self.writes -= if unit.op == Op::Write { n } else { 0 };
                    self.order.completed(completion.at, unit.process);
                    done.extend(
                        unit.parts
                            .iter()
                            .map(|&id| Completion { id, ..*completion }),
                    );
                }
            }
            self.scratch = back;
            self.admit(at);
            self.pump(at);
            // A timer that is due and changes nothing must not be asked again.
            if self.timer.is_some_and(|t| t <= at) && self.device.wake().is_none_or(|w| w > at) {
                self.timer = None;
            }
        }
    }

    fn trim(&mut self, now: Nanos, address: u64, bytes: u64) {
        self.device.trim(now, address, bytes);
    }

    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn head(&self) -> Option<u64> {
        self.device.head()
    }
}
