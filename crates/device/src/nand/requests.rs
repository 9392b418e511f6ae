//! Requests of the host: their pages, the write buffer, read-ahead, flushes.
use super::die::{PageOperation, Transaction};
use super::{Ftl, Idle, Nand, Owner};
use crate::{Device, Nanos, Op, Request, span};

impl Nand {
    /// Logical pages of a request and the bytes of each that it covers.
    pub(super) fn pages(&self, request: &Request) -> impl Iterator<Item = (u64, u32)> + use<> {
        let page = u64::from(self.options.geometry.page);
        let capacity = self.capacity();
        let start = request.address.min(capacity - 1);
        let end = start.saturating_add(request.bytes.max(1)).min(capacity);
        (start / page..=(end - 1) / page).map(move |p| {
            let from = start.max(p * page);
            (p, (end.min((p + 1) * page) - from) as u32)
        })
    }

    pub(super) fn enqueue(
        &mut self,
        now: Nanos,
        owner: u32,
        page: u64,
        bytes: u32,
        kind: PageOperation,
    ) {
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

    pub(super) fn place_of(&self, page: u64) -> (usize, usize, u32) {
        let planes = self.places.len() as u64;
        let (die, plane) = self.places[(page % planes) as usize];
        (die as usize, plane as usize, (page / planes) as u32)
    }

    pub(super) fn is_written(&self, page: u64) -> bool {
        let (die, plane, page) = self.place_of(page);
        self.dies[die].planes[plane].written(page)
    }

    pub(super) fn kick(&mut self, now: Nanos, page: u64) {
        self.dispatch(self.place_of(page).0, now);
    }

    pub(super) fn read(&mut self, now: Nanos, request: &Request) {
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

    pub(super) fn write(&mut self, now: Nanos, request: Request) {
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
    pub(super) fn admit(&mut self, now: Nanos) {
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

    pub(super) fn program(&mut self, now: Nanos, request: &Request, link: Nanos, buffered: bool) {
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
    pub(super) fn done_one(&mut self, owner: u32, now: Nanos) {
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

    pub(super) fn end_write(&mut self, epoch: u64, now: Nanos) {
        if let Some(span) = self.epochs.get_mut((epoch - self.first_epoch) as usize) {
            span.0 -= 1;
        }
        self.end_flushes(now);
    }

    pub(super) fn end_flushes(&mut self, now: Nanos) {
        while let Some((0, Some(id))) = self.epochs.front().copied() {
            self.epochs.pop_front();
            self.first_epoch += 1;
            self.pending.push(now + self.options.overhead, id);
        }
    }
}
