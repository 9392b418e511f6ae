//! A NAND device page by page: channels, ways, dies, planes, a map, and collection (docs/understand/flash.md).
//!
//! A request becomes pages; each page waits in the queue of its die. A die does one command at a time: a read is array,
//! then channel; a program is channel, then array. A copy of collection is array, channel out and in, array; an erase
//! is array only. With cache commands the next command of the same kind begins on the other half. Planes join a command
//! where multiplane commands allow it. A channel carries the bytes of one die at a time, first come first served.
//!
//! ```text
//! geometry.rs  how many of what, 24 allocation orders     options.rs  options and their text
//! page_map.rs  mapping by pages, victims, collection      blocks.rs   slots, validity, wear of a plane
//! log_map.rs   mapping by blocks with log blocks          steady.rs   the steady state in closed form
//! rram.rs      slabs, local and global bitlines           spent.rs    where time went
//! plane.rs     the map of a plane, of either kind         die.rs      commands and queues of dies and channels
//! requests.rs  pages, buffer and flushes of the host      dispatch.rs what a die begins next
//! stages.rs    arrays and channels, and what follows
//! figure.rs    the figures of docs/understand/flash.md
//! ```

mod blocks;
mod die;
mod dispatch;
pub mod figure;
mod geometry;
mod log_map;
mod options;
mod page_map;
mod plane;
mod requests;
mod rram;
mod spent;
mod stages;
mod steady;

pub use geometry::{AllocationOrder, Level, MOST_PAGES, NandError, NandGeometry};
pub use options::{Collect, Condition, Ftl, Multiplane, NandOptions, NandTiming, Victim};
pub use rram::Slabs;
pub use spent::{Counters, Spent, Wear};

use crate::pending::Pending;
use crate::{Completion, Device, Nanos, Op, Request};
use die::{Channel, Command, Die, PageOperation, Transaction};
use log_map::LogMap;
use page_map::PageMap;
use plane::Plane;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Entries of a queue that are searched for pages of other planes.
const PARTNERS: usize = 16;

/// What a page belongs to.
enum Owner {
    Free,
    Host {
        id: u64,
        op: Op,
        bytes: u64,
        /// When the link to the host has carried it.
        link: Nanos,
        epoch: u64,
    },
    /// A write that was acknowledged from the buffer.
    Buffered {
        epoch: u64,
    },
    /// Read-ahead, and the owners that wait for it.
    Ahead {
        waiters: Vec<u32>,
    },
}

struct Slot {
    owner: Owner,
    left: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Idle {
    No,
    Short,
    Long,
}

/// One device.
pub struct Nand {
    options: NandOptions,
    /// Die and plane of a page, by its number modulo the planes.
    places: Vec<(u32, u32)>,
    dies: Vec<Die>,
    channels: Vec<Channel>,
    /// The die that works on each way, where dies do not interleave.
    ways: Vec<Option<u32>>,
    events: BinaryHeap<Reverse<(Nanos, u32)>>,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    lists: Vec<Vec<Transaction>>,
    order: u64,
    /// Transactions of hosts and read-ahead under way.
    active: u64,
    idle_since: Option<Nanos>,
    idle: Idle,
    soft_room: u32,
    ahead_room: u32,
    link_in: Nanos,
    link_out: Nanos,
    buffered: u64,
    waiting: VecDeque<(Request, Nanos)>,
    read_end: u64,
    /// Pages read ahead, and the owner of each that is still being read.
    ahead: VecDeque<(u64, Option<u32>)>,
    /// Unfinished writes between flushes, and the flush that ends each span.
    epochs: VecDeque<(u64, Option<u64>)>,
    first_epoch: u64,
    pending: Pending,
    counters: Counters,
    position: u64,
    mean_read: Nanos,
    mean_program: Nanos,
}

impl Nand {
    /// A device in the condition that its options name; an error names the option that is out of bounds.
    pub fn new(options: NandOptions) -> Result<Nand, NandError> {
        options.check()?;
        let g = options.geometry;
        let logical = options.logical_pages();
        let mut seed = options.seed;
        let mut plane = || {
            seed = penstock_base::Random::mix(seed);
            match options.ftl {
                Ftl::Page => {
                    let mut map = PageMap::new(g.blocks, g.pages, logical, options.victim, seed);
                    match options.condition {
                        Condition::Fresh => {}
                        Condition::Full => map.fill_all(),
                        Condition::Steady => map.settle(seed),
                    }
                    Plane::Page(map)
                }
                Ftl::Log | Ftl::Hybrid => {
                    let shared = options.ftl == Ftl::Log;
                    let logs = options.log_blocks();
                    let mut map = LogMap::new(g.blocks, g.pages, logical / g.pages, logs, shared);
                    match options.condition {
                        Condition::Fresh => {}
                        Condition::Full => map.fill_all(),
                        Condition::Steady => map.settle(seed),
                    }
                    Plane::Log(map)
                }
                Ftl::InPlace => Plane::InPlace { pages: g.pages },
            }
        };
        let dies = (0..g.all_dies() as u32)
            .map(|die| Die {
                channel: die / (g.ways * g.dies),
                way: die / g.dies,
                planes: (0..g.planes).map(|_| plane()).collect(),
                reads: VecDeque::new(),
                writes: VecDeque::new(),
                passed: 0,
                array: None,
                moving: None,
                collected: 0,
                collecting: None,
            })
            .collect();
        let room = |share: f64| g.pages + (share * f64::from(options.spare_pages())) as u32;
        let mean = |times: &[Nanos]| times.iter().sum::<Nanos>() / times.len().max(1) as u64;
        Ok(Nand {
            places: options.order.table(&g),
            dies,
            channels: (0..g.channels).map(|_| Channel::default()).collect(),
            ways: vec![None; (g.channels * g.ways) as usize],
            events: BinaryHeap::new(),
            slots: Vec::new(),
            unused: Vec::new(),
            lists: Vec::new(),
            order: 0,
            active: 0,
            idle_since: Some(0),
            idle: Idle::No,
            soft_room: room(options.soft),
            ahead_room: room(options.ahead),
            link_in: 0,
            link_out: 0,
            buffered: 0,
            waiting: VecDeque::new(),
            read_end: u64::MAX,
            ahead: VecDeque::new(),
            epochs: VecDeque::from([(0, None)]),
            first_epoch: 0,
            pending: Pending::default(),
            counters: Counters {
                dies: g.all_dies(),
                channels: u64::from(g.channels),
                ..Counters::default()
            },
            position: 0,
            mean_read: mean(&options.timing.read),
            mean_program: mean(&options.timing.program),
            options,
        })
    }

    /// Operations so far, and where the time of pages went.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Wear and read disturb of all blocks.
    pub fn wear(&self) -> Wear {
        let mut wear = Wear::default();
        for plane in self.dies.iter().flat_map(|d| &d.planes) {
            let blocks = match plane {
                Plane::Page(map) => &map.blocks,
                Plane::Log(map) => &map.blocks,
                Plane::InPlace { .. } => continue,
            };
            wear.add(blocks, self.options.disturb_limit);
        }
        wear
    }

    /// The options that it was made with.
    pub fn options(&self) -> &NandOptions {
        &self.options
    }

    fn array_read(&self, number: u32, bytes: u32) -> Nanos {
        let timing = &self.options.timing;
        timing.command
            + match &timing.slabs {
                Some(slabs) => slabs.read_time(bytes),
                None => timing.read[number as usize % timing.read.len()],
            }
    }

    fn array_program(&self, number: u32, bytes: u32) -> Nanos {
        let timing = &self.options.timing;
        match &timing.slabs {
            Some(slabs) => slabs.write_time(bytes),
            None => timing.program[number as usize % timing.program.len()],
        }
    }

    fn own(&mut self, owner: Owner, left: u32) -> u32 {
        let slot = Slot { owner, left };
        match self.unused.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    fn finish(&mut self, command: Command, now: Nanos) {
        let mut pages = command.pages;
        for page in pages.drain(..) {
            if matches!(page.kind, PageOperation::Write | PageOperation::Modify)
                && matches!(
                    self.slots[page.owner as usize].owner,
                    Owner::Buffered { .. }
                )
            {
                self.buffered -= u64::from(page.bytes);
            }
            self.active -= 1;
            self.done_one(page.owner, now);
        }
        self.lists.push(pages);
        if !self.waiting.is_empty() {
            self.admit(now);
        }
        if self.active == 0 {
            self.rest(now);
        }
    }

    /// Nothing is under way: an idle period begins. Timers for the short and the long period are set where collection
    /// uses them.
    fn rest(&mut self, now: Nanos) {
        self.idle_since = Some(now);
        let o = &self.options;
        let source = (self.dies.len() + self.channels.len()) as u32;
        if o.ftl == Ftl::Page && matches!(o.collect, Collect::Delayed | Collect::Both) {
            self.events.push(Reverse((now + o.short_idle, source)));
        }
        if o.ftl == Ftl::Page && matches!(o.collect, Collect::Advanced | Collect::Both) {
            self.events.push(Reverse((now + o.long_idle, source)));
        }
    }

    fn run(&mut self, now: Nanos) {
        while let Some(Reverse((at, source))) = self.events.peek().copied()
            && at <= now
        {
            self.events.pop();
            let source = source as usize;
            if source < self.dies.len() {
                self.array_done(source, at);
            } else if source < self.dies.len() + self.channels.len() {
                self.channel_done(source - self.dies.len(), at);
            } else {
                self.rested(at);
            }
        }
    }

    fn rested(&mut self, now: Nanos) {
        let Some(since) = self.idle_since else { return };
        let kind = match now - since {
            rest if rest >= self.options.long_idle => Idle::Long,
            rest if rest >= self.options.short_idle => Idle::Short,
            _ => return,
        };
        if kind == self.idle {
            return;
        }
        self.idle = kind;
        for die in 0..self.dies.len() {
            self.dispatch(die, now);
        }
    }
}

impl Device for Nand {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.run(now);
        self.position = request.address;
        match request.op {
            Op::Read => self.read(now, &request),
            Op::Write => self.write(now, request),
        }
        if self.active == 0 && self.idle_since.is_none() {
            self.rest(now);
        }
    }

    fn flush(&mut self, now: Nanos, id: u64) {
        self.run(now);
        if let Some(last) = self.epochs.back_mut() {
            last.1 = Some(id);
        }
        self.epochs.push_back((0, None));
        self.end_flushes(now);
    }

    fn trim(&mut self, now: Nanos, address: u64, bytes: u64) {
        self.run(now);
        let page = u64::from(self.options.geometry.page);
        let capacity = self.capacity();
        let last = address.saturating_add(bytes).min(capacity) / page;
        // Pages that are trimmed in part stay valid.
        for page in address.div_ceil(page)..last {
            let (die, plane, page) = self.place_of(page);
            self.dies[die].planes[plane].trim(page);
            self.counters.trimmed += 1;
        }
    }

    fn wake(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, _))| *at);
        match (event, self.pending.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.run(now);
        self.pending.drain(now, done);
    }

    fn capacity(&self) -> u64 {
        self.options.capacity()
    }

    fn head(&self) -> Option<u64> {
        Some(self.position)
    }
}
