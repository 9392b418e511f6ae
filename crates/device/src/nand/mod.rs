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
//! figure.rs    the figures of docs/understand/flash.md
//! ```

mod blocks;
pub mod figure;
mod geometry;
mod log_map;
mod options;
mod page_map;
mod rram;
mod spent;
mod steady;

pub use geometry::{AllocationOrder, Level, MOST_PAGES, NandError, NandGeometry};
pub use options::{Collect, Condition, Ftl, Multiplane, NandOptions, NandTiming, Victim};
pub use rram::Slabs;
pub use spent::{Counters, Spent, Wear};

use crate::pending::Pending;
use crate::{Completion, Device, Nanos, Op, Request, span};
use log_map::LogMap;
use page_map::PageMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Entries of a queue that are searched for pages of other planes.
const PARTNERS: usize = 16;

/// The map of one plane.
enum Plane {
    Page(PageMap),
    Log(LogMap),
    /// Written in place: a slot is a page.
    InPlace {
        pages: u32,
    },
}

impl Plane {
    /// The page of its block where a logical page lies.
    fn find(&self, page: u32) -> Option<u32> {
        let blocks = match self {
            Plane::Page(map) => &map.blocks,
            Plane::Log(map) => &map.blocks,
            Plane::InPlace { pages } => return Some(page % pages),
        };
        Some(blocks.find(page)? % blocks.pages)
    }

    /// Counts a read of the page: reads disturb its block.
    fn disturb(&mut self, page: u32) {
        let blocks = match self {
            Plane::Page(map) => &mut map.blocks,
            Plane::Log(map) => &mut map.blocks,
            Plane::InPlace { .. } => return,
        };
        if let Some(slot) = blocks.find(page) {
            let reads = &mut blocks.reads[(slot / blocks.pages) as usize];
            *reads = reads.saturating_add(1);
        }
    }

    fn written(&self, page: u32) -> bool {
        match self {
            Plane::Page(map) => map.blocks.find(page).is_some(),
            Plane::Log(map) => map.blocks.find(page).is_some(),
            Plane::InPlace { .. } => true,
        }
    }

    /// The page within its block that a write gets; `None` if it must wait for collection.
    fn next(&self, page: u32) -> Option<u32> {
        match self {
            Plane::Page(map) => (!map.blocked()).then(|| map.next()),
            Plane::Log(map) => map.next(page),
            Plane::InPlace { pages } => Some(page % pages),
        }
    }

    fn write(&mut self, page: u32) {
        match self {
            Plane::Page(map) => map.write(page),
            Plane::Log(map) => map.write(page),
            Plane::InPlace { .. } => {}
        }
    }

    fn trim(&mut self, page: u32) {
        match self {
            Plane::Page(map) => map.trim(page),
            Plane::Log(map) => map.trim(page),
            Plane::InPlace { .. } => {}
        }
    }

    fn busy(&self) -> bool {
        match self {
            Plane::Page(map) => map.busy(),
            Plane::Log(map) => map.busy(),
            Plane::InPlace { .. } => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageOperation {
    Read,
    Write,
    /// A partial page write: the page is read, changed and programmed.
    Modify,
    Copy,
    Erase,
}

/// One page of a request.
#[derive(Clone, Copy)]
struct Transaction {
    owner: u32,
    page: u32,
    plane: u32,
    /// Bytes that cross the channel.
    bytes: u32,
    kind: PageOperation,
    arrived: Nanos,
    /// Time that its die had spent on collection when the page was queued.
    collected: Nanos,
    order: u64,
}

/// What a die is doing.
struct Command {
    kind: PageOperation,
    pages: Vec<Transaction>,
    since: Nanos,
    bytes: u32,
    /// Array times.
    read: Nanos,
    program: Nanos,
    /// Its stage is over and the next resource is busy.
    waits: bool,
    /// The array has read; the program follows.
    second: bool,
}

struct Die {
    channel: u32,
    way: u32,
    planes: Vec<Plane>,
    reads: VecDeque<Transaction>,
    writes: VecDeque<Transaction>,
    /// Reads that passed the first waiting write.
    passed: u32,
    array: Option<Command>,
    moving: Option<Command>,
    collected: Nanos,
    collecting: Option<Nanos>,
}

impl Die {
    fn collected_at(&self, now: Nanos) -> Nanos {
        self.collected + self.collecting.map_or(0, |since| now - since)
    }

    fn idle(&self) -> bool {
        self.array.is_none() && self.moving.is_none()
    }
}

#[derive(Default)]
struct Channel {
    waiting: VecDeque<u32>,
    busy: Option<u32>,
}

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

    /// Logical pages of a request and the bytes of each that it covers.
    fn pages(&self, request: &Request) -> impl Iterator<Item = (u64, u32)> + use<> {
        let page = u64::from(self.options.geometry.page);
        let capacity = self.capacity();
        let start = request.address.min(capacity - 1);
        let end = start.saturating_add(request.bytes.max(1)).min(capacity);
        (start / page..=(end - 1) / page).map(move |p| {
            let from = start.max(p * page);
            (p, (end.min((p + 1) * page) - from) as u32)
        })
    }

    fn enqueue(&mut self, now: Nanos, owner: u32, page: u64, bytes: u32, kind: PageOperation) {
        let planes = self.places.len() as u64;
        let (die, plane) = self.places[(page % planes) as usize];
        self.order += 1;
        let d = &mut self.dies[die as usize];
        let transaction = Transaction {
            owner,
            page: (page / planes) as u32,
            plane,
            bytes,
            kind,
            arrived: now,
            collected: d.collected_at(now),
            order: self.order,
        };
        match kind {
            PageOperation::Read => d.reads.push_back(transaction),
            _ => d.writes.push_back(transaction),
        }
        self.active += 1;
        self.idle_since = None;
        self.idle = Idle::No;
    }

    fn place_of(&self, page: u64) -> (usize, usize, u32) {
        let planes = self.places.len() as u64;
        let (die, plane) = self.places[(page % planes) as usize];
        (die as usize, plane as usize, (page / planes) as u32)
    }

    fn is_written(&self, page: u64) -> bool {
        let (die, plane, page) = self.place_of(page);
        self.dies[die].planes[plane].written(page)
    }

    fn kick(&mut self, now: Nanos, page: u64) {
        self.dispatch(self.place_of(page).0, now);
    }

    fn read(&mut self, now: Nanos, request: &Request) {
        let page_bytes = u64::from(self.options.geometry.page);
        let window = self.options.read_ahead / page_bytes;
        let sequential = request.address == self.read_end;
        self.read_end = request.address.saturating_add(request.bytes);
        if !sequential {
            self.ahead.clear();
        }
        self.link_out = self.link_out.max(now) + span(request.bytes, self.options.link);
        let owner = self.own(
            Owner::Host {
                id: request.id,
                op: Op::Read,
                bytes: request.bytes,
                link: self.link_out,
                epoch: 0,
            },
            1,
        );
        let mut last = 0;
        let pages: Vec<(u64, u32)> = self.pages(request).collect();
        for (page, bytes) in &pages {
            last = *page;
            while self.ahead.front().is_some_and(|a| a.0 < *page) {
                self.ahead.pop_front();
            }
            match self.ahead.front().copied() {
                Some((there, coming)) if there == *page => {
                    self.counters.ahead += 1;
                    if let Some(coming) = coming
                        && let Owner::Ahead { waiters } = &mut self.slots[coming as usize].owner
                    {
                        waiters.push(owner);
                        self.slots[owner as usize].left += 1;
                    }
                }
                _ if self.is_written(*page) => {
                    self.slots[owner as usize].left += 1;
                    self.enqueue(now, owner, *page, *bytes, PageOperation::Read);
                }
                // Never written: the controller answers without an array access.
                _ => self.counters.unmapped += 1,
            }
        }
        let mut wanted = Vec::new();
        if sequential && window > 0 {
            let from = self.ahead.back().map_or(last + 1, |a| a.0 + 1);
            let to = (last + 1 + window).min(self.capacity() / page_bytes);
            for page in from..to {
                if !self.is_written(page) {
                    break;
                }
                let owner = self.own(
                    Owner::Ahead {
                        waiters: Vec::new(),
                    },
                    1,
                );
                self.ahead.push_back((page, Some(owner)));
                self.enqueue(now, owner, page, page_bytes as u32, PageOperation::Read);
                wanted.push(page);
            }
        }
        for page in pages.iter().map(|p| p.0).chain(wanted) {
            self.kick(now, page);
        }
        self.done_one(owner, now);
    }

    fn write(&mut self, now: Nanos, request: Request) {
        self.link_in = self.link_in.max(now) + span(request.bytes, self.options.link);
        // The read-ahead of these bytes is stale; a sequential read continues without it.
        self.ahead.clear();
        if self.options.buffer == 0 {
            self.program(now, &request, self.link_in, false);
            return;
        }
        self.waiting.push_back((request, now));
        self.admit(now);
    }

    /// Admits writes to the buffer while there is room; a write larger than the buffer is admitted when the buffer is
    /// empty.
    fn admit(&mut self, now: Nanos) {
        while let Some((request, arrived)) = self.waiting.front().copied()
            && (self.buffered == 0 || self.buffered + request.bytes <= self.options.buffer)
        {
            self.waiting.pop_front();
            let count = self.pages(&request).count() as u64;
            self.counters.spent.queue += (now - arrived) * count;
            let at = now.max(self.link_in) + self.options.overhead + self.options.lookup;
            self.pending.push(at, request.id);
            self.program(now, &request, now, true);
        }
    }

    fn program(&mut self, now: Nanos, request: &Request, link: Nanos, buffered: bool) {
        let epoch = self.first_epoch + self.epochs.len() as u64 - 1;
        if let Some(last) = self.epochs.back_mut() {
            last.0 += 1;
        }
        let owner = if buffered {
            Owner::Buffered { epoch }
        } else {
            Owner::Host {
                id: request.id,
                op: Op::Write,
                bytes: request.bytes,
                link,
                epoch,
            }
        };
        let owner = self.own(owner, 1);
        let whole = self.options.geometry.page;
        let in_place = self.options.ftl == Ftl::InPlace;
        let pages: Vec<(u64, u32)> = self.pages(request).collect();
        for (page, bytes) in &pages {
            let kind = if *bytes < whole && !in_place && self.is_written(*page) {
                PageOperation::Modify
            } else {
                PageOperation::Write
            };
            self.slots[owner as usize].left += 1;
            if buffered {
                self.buffered += u64::from(*bytes);
            }
            self.enqueue(now, owner, *page, *bytes, kind);
        }
        for (page, _) in pages {
            self.kick(now, page);
        }
        self.done_one(owner, now);
    }

    /// Counts one page of the owner, or its submission, as done.
    fn done_one(&mut self, owner: u32, now: Nanos) {
        let slot = &mut self.slots[owner as usize];
        slot.left -= 1;
        if slot.left > 0 {
            return;
        }
        let done = std::mem::replace(&mut slot.owner, Owner::Free);
        self.unused.push(owner);
        match done {
            Owner::Free => {}
            Owner::Host {
                id,
                op,
                bytes,
                link,
                epoch,
            } => {
                let o = &self.options;
                let last = match op {
                    Op::Read => now + span(bytes.min(o.geometry.page.into()), o.link),
                    Op::Write => now,
                };
                self.pending
                    .push(last.max(link) + o.overhead + o.lookup, id);
                if op == Op::Write {
                    self.end_write(epoch, now);
                }
            }
            Owner::Buffered { epoch } => self.end_write(epoch, now),
            Owner::Ahead { waiters } => {
                if let Some(page) = self.ahead.iter_mut().find(|a| a.1 == Some(owner)) {
                    page.1 = None;
                }
                for waiter in waiters {
                    self.done_one(waiter, now);
                }
            }
        }
    }

    fn end_write(&mut self, epoch: u64, now: Nanos) {
        if let Some(span) = self.epochs.get_mut((epoch - self.first_epoch) as usize) {
            span.0 -= 1;
        }
        self.end_flushes(now);
    }

    fn end_flushes(&mut self, now: Nanos) {
        while let Some((0, Some(id))) = self.epochs.front().copied() {
            self.epochs.pop_front();
            self.first_epoch += 1;
            self.pending.push(now + self.options.overhead, id);
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

    fn start_array(&mut self, die: usize, mut command: Command, takes: Nanos, now: Nanos) {
        command.since = now;
        command.waits = false;
        self.counters.array_busy += takes;
        self.dies[die].array = Some(command);
        self.events.push(Reverse((now + takes, die as u32)));
    }

    fn start_moving(&mut self, die: usize, mut command: Command, now: Nanos) {
        command.since = now;
        command.waits = false;
        let d = &mut self.dies[die];
        let channel = d.channel as usize;
        d.moving = Some(command);
        if self.channels[channel].busy.is_some() {
            self.channels[channel].waiting.push_back(die as u32);
        } else {
            self.carry(channel, die, now);
        }
    }

    fn carry(&mut self, channel: usize, die: usize, now: Nanos) {
        let bytes = self.dies[die].moving.as_ref().map_or(0, |c| c.bytes);
        let takes = span(bytes.into(), self.options.timing.channel);
        self.counters.channel_busy += takes;
        self.channels[channel].busy = Some(die as u32);
        self.events
            .push(Reverse((now + takes, (self.dies.len() + channel) as u32)));
    }

    fn array_done(&mut self, die: usize, now: Nanos) {
        let Some(mut command) = self.dies[die].array.take() else {
            return;
        };
        match command.kind {
            PageOperation::Read => {
                let pages = command.pages.len() as u64;
                self.counters.spent.array += (now - command.since) * pages;
                if self.dies[die].moving.is_none() {
                    self.start_moving(die, command, now);
                } else {
                    command.waits = true;
                    command.since = now;
                    self.dies[die].array = Some(command);
                }
            }
            PageOperation::Copy | PageOperation::Modify if !command.second => {
                if command.kind == PageOperation::Modify {
                    self.counters.spent.array += now - command.since;
                }
                command.second = true;
                self.start_moving(die, command, now);
            }
            PageOperation::Write | PageOperation::Modify => {
                let pages = command.pages.len() as u64;
                self.counters.spent.array += (now - command.since) * pages;
                self.finish(command, now);
                if let Some(next) = self.dies[die].moving.take_if(|m| m.waits) {
                    // Waited for the array since its bytes arrived.
                    let pages = next.pages.len() as u64;
                    self.counters.spent.array += (now - next.since) * pages;
                    let takes = next.program;
                    self.start_array(die, next, takes, now);
                }
            }
            PageOperation::Copy | PageOperation::Erase => {
                let d = &mut self.dies[die];
                if let Some(since) = d.collecting.take() {
                    d.collected += now - since;
                    self.counters.collecting += now - since;
                }
                self.lists.push(command.pages);
            }
        }
        self.after(die, now);
    }

    fn channel_done(&mut self, channel: usize, now: Nanos) {
        let Some(die) = self.channels[channel].busy.take() else {
            return;
        };
        let die = die as usize;
        if let Some(mut command) = self.dies[die].moving.take() {
            let host = command.kind != PageOperation::Copy;
            if host {
                let pages = command.pages.len() as u64;
                self.counters.spent.channel += (now - command.since) * pages;
            }
            match command.kind {
                PageOperation::Read => {
                    self.finish(command, now);
                    if let Some(next) = self.dies[die].array.take_if(|a| a.waits) {
                        // Waited for the register since the array read it.
                        let pages = next.pages.len() as u64;
                        self.counters.spent.channel += (now - next.since) * pages;
                        self.start_moving(die, next, now);
                    }
                }
                _ if self.dies[die].array.is_none() => {
                    let takes = command.program;
                    self.start_array(die, command, takes, now);
                }
                _ => {
                    command.waits = true;
                    command.since = now;
                    self.dies[die].moving = Some(command);
                }
            }
        }
        if self.channels[channel].busy.is_none()
            && let Some(next) = self.channels[channel].waiting.pop_front()
        {
            self.carry(channel, next as usize, now);
        }
        self.after(die, now);
    }

    /// A stage of the die is over: this die, or others of its way, may begin the next command.
    fn after(&mut self, die: usize, now: Nanos) {
        if self.options.interleave {
            self.dispatch(die, now);
            return;
        }
        let way = self.dies[die].way as usize;
        if !self.dies[die].idle() {
            self.dispatch(die, now);
            return;
        }
        self.ways[way] = None;
        let dies = self.options.geometry.dies as usize;
        let first = die / dies * dies;
        for i in 1..=dies {
            self.dispatch(first + (die - first + i) % dies, now);
        }
    }

    /// Starts what the die can begin now.
    fn dispatch(&mut self, die: usize, now: Nanos) {
        loop {
            let d = &self.dies[die];
            let idle = d.idle();
            if !idle && !self.options.cache {
                return;
            }
            let way = d.way as usize;
            if !self.options.interleave && self.ways[way].is_some_and(|w| w as usize != die) {
                return;
            }
            let first = self.options.collect == Collect::Demand || self.options.ftl != Ftl::Page;
            if first && let Some(plane) = d.planes.iter().position(Plane::busy) {
                if !idle || !self.step(die, plane, now) {
                    return;
                }
                continue;
            }
            let read = match (d.reads.front(), d.writes.front()) {
                (None, None) => {
                    if !idle || !self.spare_time(die, now) {
                        return;
                    }
                    continue;
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(r), Some(w)) => r.order < w.order || d.passed < self.options.reads_first,
            };
            let began = if read {
                self.begin_read(die, now)
            } else {
                self.begin_write(die, now)
            };
            if !began {
                return;
            }
        }
    }

    /// Collects while nothing waits for the die; returns whether a step began.
    fn spare_time(&mut self, die: usize, now: Nanos) -> bool {
        if self.options.ftl != Ftl::Page {
            return false;
        }
        let any_gap = matches!(self.options.collect, Collect::Preempt | Collect::Advanced);
        let short = matches!(self.options.collect, Collect::Delayed | Collect::Both);
        let long = matches!(self.options.collect, Collect::Advanced | Collect::Both);
        let wanted = match self.idle {
            Idle::Long if long => self.ahead_room.max(self.soft_room),
            Idle::Long | Idle::Short if short => self.soft_room,
            _ if any_gap => self.soft_room,
            _ => return false,
        };
        let due = self.dies[die].planes.iter().position(|plane| match plane {
            Plane::Page(map) => map.busy() || map.room() <= wanted,
            _ => false,
        });
        due.is_some_and(|plane| self.step(die, plane, now))
    }

    /// Begins a step of collection on an idle die; false if there is none.
    fn step(&mut self, die: usize, plane: usize, now: Nanos) -> bool {
        let done = match &mut self.dies[die].planes[plane] {
            Plane::Page(map) => map.step(),
            Plane::Log(map) => map.step(),
            Plane::InPlace { .. } => None,
        };
        let Some(copy) = done else { return false };
        let timing = &self.options.timing;
        let mut command = Command {
            kind: PageOperation::Erase,
            pages: self.lists.pop().unwrap_or_default(),
            since: now,
            bytes: 0,
            read: timing.command + timing.erase,
            program: 0,
            waits: false,
            second: false,
        };
        if copy {
            self.counters.copies += 1;
            command.kind = PageOperation::Copy;
            command.bytes = 2 * self.options.geometry.page;
            command.read = timing.command + self.mean_read;
            command.program = self.mean_program;
        } else {
            self.counters.erases += 1;
        }
        self.dies[die].collecting = Some(now);
        self.occupy(die);
        let takes = command.read;
        self.start_array(die, command, takes, now);
        true
    }

    fn occupy(&mut self, die: usize) {
        if !self.options.interleave {
            let way = self.dies[die].way as usize;
            self.ways[way] = Some(die as u32);
        }
    }

    /// Charges the page's time in the queue, of which collection of its die took a part.
    fn leave_queue(&mut self, page: &Transaction, die: usize, now: Nanos) {
        let waited = now - page.arrived;
        let collected = self.dies[die].collected_at(now) - page.collected;
        let collected = collected.min(waited);
        let spent = &mut self.counters.spent;
        spent.collection += collected;
        spent.queue += waited - collected;
        spent.map += self.options.lookup;
        spent.pages += 1;
    }

    fn begin_read(&mut self, die: usize, now: Nanos) -> bool {
        let d = &mut self.dies[die];
        if d.array.is_some()
            || d.moving
                .as_ref()
                .is_some_and(|m| m.kind != PageOperation::Read)
        {
            return false;
        }
        let Some(first) = d.reads.pop_front() else {
            return false;
        };
        if d.writes.front().is_some_and(|w| w.order < first.order) {
            d.passed += 1;
        }
        let mut pages = self.lists.pop().unwrap_or_default();
        // A page that was trimmed meanwhile is read with the time of a block's first page.
        let number = d.planes[first.plane as usize].find(first.page).unwrap_or(0);
        pages.push(first);
        let multiplane = self.options.multiplane;
        if multiplane != Multiplane::Off {
            let mut taken = 1u32 << first.plane;
            let mut i = 0;
            while i < d.reads.len().min(PARTNERS) && pages.len() < d.planes.len() {
                let other = d.reads[i];
                let same = |plane: &Plane| {
                    multiplane == Multiplane::Any || plane.find(other.page) == Some(number)
                };
                if taken >> other.plane & 1 == 0 && same(&d.planes[other.plane as usize]) {
                    taken |= 1 << other.plane;
                    d.reads.remove(i);
                    pages.push(other);
                } else {
                    i += 1;
                }
            }
        }
        for page in &pages {
            d.planes[page.plane as usize].disturb(page.page);
        }
        let bytes: u32 = pages.iter().map(|p| p.bytes).sum();
        let takes = self.array_read(number, pages.iter().map(|p| p.bytes).max().unwrap_or(0));
        self.counters.reads += pages.len() as u64;
        self.counters.multiplane += u64::from(pages.len() > 1);
        for page in &pages {
            self.leave_queue(page, die, now);
        }
        self.occupy(die);
        let command = Command {
            kind: PageOperation::Read,
            pages,
            since: now,
            bytes,
            read: takes,
            program: 0,
            waits: false,
            second: false,
        };
        self.start_array(die, command, takes, now);
        true
    }

    fn begin_write(&mut self, die: usize, now: Nanos) -> bool {
        let d = &mut self.dies[die];
        let Some(first) = d.writes.front().copied() else {
            return false;
        };
        let writing = |c: &Command| c.kind == PageOperation::Write;
        let free = match first.kind {
            PageOperation::Modify => d.idle(),
            _ => d.moving.is_none() && d.array.as_ref().is_none_or(writing),
        };
        if !free {
            return false;
        }
        let plane = first.plane as usize;
        let Some(number) = d.planes[plane].next(first.page) else {
            if !d.idle() {
                return false;
            }
            if let Plane::Log(map) = &mut d.planes[plane] {
                map.begin(first.page);
            }
            return self.step(die, plane, now);
        };
        d.writes.pop_front();
        d.passed = 0;
        d.planes[plane].write(first.page);
        let mut pages = self.lists.pop().unwrap_or_default();
        pages.push(first);
        let multiplane = self.options.multiplane;
        if multiplane != Multiplane::Off && first.kind == PageOperation::Write {
            let mut taken = 1u32 << first.plane;
            let mut i = 0;
            while i < d.writes.len().min(PARTNERS) && pages.len() < d.planes.len() {
                let other = d.writes[i];
                let plane = &mut d.planes[other.plane as usize];
                let fits = other.kind == PageOperation::Write
                    && taken >> other.plane & 1 == 0
                    && match plane.next(other.page) {
                        Some(n) => multiplane == Multiplane::Any || n == number,
                        None => false,
                    };
                if fits {
                    taken |= 1 << other.plane;
                    plane.write(other.page);
                    d.writes.remove(i);
                    pages.push(other);
                } else {
                    i += 1;
                }
            }
        }
        let page = self.options.geometry.page;
        let modify = first.kind == PageOperation::Modify;
        // A partial write moves the whole page over the channel, out and in.
        let bytes = if modify {
            2 * page
        } else {
            pages.iter().map(|p| p.bytes).sum()
        };
        let most = pages.iter().map(|p| p.bytes).max().unwrap_or(0);
        let command = Command {
            kind: first.kind,
            since: now,
            bytes,
            read: self.array_read(number, page),
            program: self.array_program(number, most) + self.options.timing.command,
            waits: false,
            second: false,
            pages,
        };
        self.counters.writes += command.pages.len() as u64;
        self.counters.multiplane += u64::from(command.pages.len() > 1);
        self.counters.modified += u64::from(modify);
        for i in 0..command.pages.len() {
            let page = command.pages[i];
            self.leave_queue(&page, die, now);
        }
        self.occupy(die);
        if modify {
            let takes = command.read;
            self.start_array(die, command, takes, now);
        } else {
            self.start_moving(die, command, now);
        }
        true
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
