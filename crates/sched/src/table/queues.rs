//! Queues, one per file and operation: their virtual requests by offset, what is remembered of those served, and which
//! queues are empty.
//!
//! *Problem*: what a queue has learnt (quantum, history, prediction) is worth keeping while it is empty, and files come without
//! end. *Idea*: empty queues are in a list by age; where twice as many queues as the limit are held, the oldest empty one
//! makes room. *Parameter*: the limit of files. *Source*: TS section 3.1 (a queue per file and operation).
use super::{Mix, Table};
use crate::memory::fetch;
use crate::places::Places;
use crate::request::Op;
use crate::set::{Key, Root, Spot};
use crate::slab::NONE;
use crate::waiting::History;
use std::hash::Hasher;

/// Requests of one file and operation, and what is remembered of those served. Four lines of the processor's cache:
/// what adding and choosing need, what only choosing needs, and those that may go.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    /// Bytes of queued virtual requests, and how many these are.
    pub(crate) bytes: u64,
    /// Bytes ever added.
    pub(crate) seen: u64,
    /// MLF: visits so far.
    pub(crate) visits: u64,
    /// aIOLi: present quantum; 0: the default.
    pub(crate) quantum: u64,
    pub(crate) queued: u32,
    /// Neighbours in MLF's round, or among the empty queues.
    pub(crate) before: u32,
    pub(crate) after: u32,
    /// No queued virtual request reaches further than so many bytes; `u32::MAX`: some may.
    pub(super) reach: u32,
    /// What MLF does not let through yet, by (offset, number) and by (visit that lets it through, number).
    deferred: Root,
    by_visit: Root,
    pub(super) op: Op,
    pub(super) lane: u8,
    /// MLF: it is in the round.
    pub(crate) active: bool,
    pub(super) file: u64,
    /// SRTF: bytes that will have come in the end, or [`UNKNOWN`].
    pub(crate) predicted: u64,
    pub(crate) history: History,
    /// By (offset, number): virtual requests that may go.
    ready: Places,
}

const _: () = assert!(size_of::<Queue>() == 256);

/// No prediction.
pub(crate) const UNKNOWN: u64 = u64::MAX;

fn hash(queue: &Queue) -> u64 {
    hash_of(queue.file, queue.op)
}

fn hash_of(file: u64, op: Op) -> u64 {
    let mut hash = Mix::default();
    hash.write_u64(file);
    hash.write_u64(op as u64);
    hash.finish()
}

impl Table {
    /// The queue of a file and operation, if there is one.
    pub(super) fn find(&self, file: u64, op: Op) -> Option<u32> {
        let is = |queue: &u32| {
            let queue = &self.queues[*queue];
            // All of it will be needed.
            fetch(queue);
            queue.file == file && queue.op == op
        };
        self.by_file.find(hash_of(file, op), is).copied()
    }

    pub(crate) fn queue(&mut self, file: u64, op: Op) -> u32 {
        if let Some(queue) = self.find(file, op) {
            return queue;
        }
        if self.queues.len() >= 2 * self.file_limit && self.empty_oldest != NONE {
            // What it remembers is only a hint.
            let oldest = self.empty_oldest;
            self.unlist_empty(oldest);
            let hash = hash(&self.queues[oldest]);
            if let Ok(known) = self.by_file.find_entry(hash, |queue| *queue == oldest) {
                known.remove();
            }
            self.queues.free(oldest);
        }
        let queue = self.queues.insert(Queue {
            file,
            op,
            lane: self.lane_of(file, op) as u8,
            queued: 0,
            bytes: 0,
            reach: 0,
            seen: 0,
            quantum: 0,
            visits: 0,
            ready: Places::default(),
            deferred: Root::default(),
            by_visit: Root::default(),
            history: History::default(),
            predicted: UNKNOWN,
            active: false,
            before: NONE,
            after: NONE,
        });
        let queues = &self.queues;
        self.by_file
            .insert_unique(hash(&queues[queue]), queue, |queue| hash(&queues[*queue]));
        self.list_empty(queue);
        queue
    }

    /// The virtual request of a queue with the lowest offset, of those that may go.
    pub(crate) fn head(&self, queue: u32) -> Option<u32> {
        let key = self.queues[queue].ready.first(&self.sets)?;
        Some(key.number())
    }

    /// The queue's virtual request that begins there.
    pub(crate) fn beginning_at(&self, queue: u32, offset: u64) -> Option<u32> {
        let ready = &self.queues[queue].ready;
        let key = ready.around(&self.sets, Key::new(offset, 0)).1?;
        (key.rank == offset).then_some(key.number())
    }

    /// The next choice is likely to be of this queue, and the one after it of that one: what they will look at is
    /// fetched meanwhile.
    pub(crate) fn expect(&mut self, next: Option<u32>, then: Option<u32>) {
        if let Some(queue) = then {
            fetch(&self.queues[queue]);
        }
        // This one's record was fetched one choice earlier. Its head goes, and the one behind it will be the head.
        let heads = next.map(|queue| self.queues[queue].ready.two(&self.sets));
        let [head, then] = heads.unwrap_or_default();
        self.expected = head.map_or(NONE, Key::number);
        for key in [head, then].into_iter().flatten() {
            fetch(&self.virtuals[key.number()]);
            fetch(&self.ages[key.number() as usize]);
        }
    }

    /// The next choice is likely to be the oldest, and the one after it the next newer one.
    pub(crate) fn expect_oldest(&self) {
        let oldest = self.lane().oldest;
        let Some(v) = self.virtuals.get(oldest) else {
            return;
        };
        if let Some(newer) = self.virtuals.get(self.ages[oldest as usize][1]) {
            fetch(newer);
        }
        // This one's record was fetched one choice earlier.
        fetch(&self.entries[v.first]);
        if let Some(q) = self.queues.get(v.queue) {
            q.ready.fetch(&self.sets, Key::new(v.offset, oldest));
        }
    }

    /// Time has passed since the last choice, and what was fetched then is there: what else the next one will look at
    /// is fetched too.
    pub(super) fn prepare(&self) {
        let Some(v) = self.virtuals.get(self.expected) else {
            return;
        };
        if let Some(entry) = self.entries.get(v.first) {
            fetch(entry);
        }
        for neighbour in self.ages[self.expected as usize] {
            if let Some(age) = self.ages.get(neighbour as usize) {
                fetch(age);
            }
        }
    }

    /// Queued neighbours that the range touches or overlaps.
    pub(super) fn neighbours(
        &self,
        queue: u32,
        offset: u64,
        end: u64,
    ) -> (Option<u32>, Option<u32>, Spot) {
        let q = &self.queues[queue];
        let above = Key::new(offset, NONE);
        let (mut left, mut right, spot) = q.ready.around(&self.sets, above);
        if !q.deferred.is_empty() {
            let (other_left, other_right) = self.sets.around(q.deferred, above);
            left = left.max(other_left);
            right = match (right, other_right) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        // Offsets are in the keys: most lie too far away to be looked at.
        let near = |key: &Key| q.reach == u32::MAX || key.rank + u64::from(q.reach) >= offset;
        (
            left.filter(near)
                .map(Key::number)
                .filter(|at| self.virtuals[*at].end >= offset),
            right.filter(|key| key.rank <= end).map(Key::number),
            spot,
        )
    }

    /// Puts a virtual request into the sets of its queue.
    pub(super) fn file(&mut self, at: u32) {
        self.file_near(at, Spot::default());
    }

    /// The same, with what the search for its neighbours has found.
    pub(super) fn file_near(&mut self, at: u32, spot: Spot) {
        let v = &self.virtuals[at];
        let (q, key) = (&mut self.queues[v.queue], Key::new(v.offset, at));
        if v.later == 0 {
            q.ready.insert(&mut self.sets, spot, key);
        } else {
            self.sets.insert(&mut q.deferred, key);
            self.sets.insert(&mut q.by_visit, Key::new(v.later, at));
        }
    }

    /// Takes it out of them.
    pub(super) fn withdraw(&mut self, at: u32) {
        let v = &self.virtuals[at];
        let (q, key) = (&mut self.queues[v.queue], Key::new(v.offset, at));
        if v.later == 0 {
            q.ready.remove(&mut self.sets, key);
        } else {
            self.sets.remove(&mut q.deferred, key);
            self.sets.remove(&mut q.by_visit, Key::new(v.later, at));
        }
    }

    /// MLF: it may go from this visit of its queue on; 0: now.
    pub(crate) fn defer(&mut self, at: u32, visit: u64) {
        if self.virtuals[at].later != visit {
            self.withdraw(at);
            self.virtuals[at].later = visit;
            self.file(at);
        }
    }

    /// MLF: one of the queue that is deferred to this visit or one before.
    pub(crate) fn due(&self, queue: u32, visit: u64) -> Option<u32> {
        let key = self.sets.first(self.queues[queue].by_visit)?;
        (key.rank <= visit).then_some(key.number())
    }

    pub(super) fn list_empty(&mut self, queue: u32) {
        let newest = self.empty_newest;
        self.queues[queue].before = newest;
        self.queues[queue].after = NONE;
        match newest {
            NONE => self.empty_oldest = queue,
            _ => self.queues[newest].after = queue,
        }
        self.empty_newest = queue;
    }

    pub(super) fn unlist_empty(&mut self, queue: u32) {
        let Queue { before, after, .. } = self.queues[queue];
        match before {
            NONE => self.empty_oldest = after,
            _ => self.queues[before].after = after,
        }
        match after {
            NONE => self.empty_newest = before,
            _ => self.queues[after].before = before,
        }
    }
}
