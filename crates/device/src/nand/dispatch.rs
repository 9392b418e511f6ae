//! What a die begins next: collection, a read or a write, and which planes join it.
use super::die::{Command, PageOperation, Transaction};
use super::plane::Plane;
use super::{Collect, Ftl, Idle, Multiplane, Nand, PARTNERS};
use crate::Nanos;

impl Nand {
    /// Starts what the die can begin now.
    pub(super) fn dispatch(&mut self, die: usize, now: Nanos) {
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
    pub(super) fn spare_time(&mut self, die: usize, now: Nanos) -> bool {
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
    pub(super) fn step(&mut self, die: usize, plane: usize, now: Nanos) -> bool {
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

    pub(super) fn occupy(&mut self, die: usize) {
        if !self.options.interleave {
            let way = self.dies[die].way as usize;
            self.ways[way] = Some(die as u32);
        }
    }

    /// Charges the page's time in the queue, of which collection of its die took a part.
    pub(super) fn leave_queue(&mut self, page: &Transaction, die: usize, now: Nanos) {
        let waited = now - page.arrived;
        let collected = self.dies[die].collected_at(now) - page.collected;
        let collected = collected.min(waited);
        let spent = &mut self.counters.spent;
        spent.collection += collected;
        spent.queue += waited - collected;
        spent.map += self.options.lookup;
        spent.pages += 1;
    }

    pub(super) fn begin_read(&mut self, die: usize, now: Nanos) -> bool {
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

    pub(super) fn begin_write(&mut self, die: usize, now: Nanos) -> bool {
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
