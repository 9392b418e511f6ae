//! The data structures that all algorithms share: requests, virtual requests in order of arrival, queues in order of
//! offset.
//!
//! Requests, virtual requests and queues (one per file and operation) are in one slab each; links are indices. Every
//! queued virtual request is in one list by age. Algorithms that work by offset also keep each queue in an ordered set
//! by (offset, number), in which neighbours are found for aggregation. A request joins the neighbour that it touches or
//! overlaps (TS 3.1), and may close the gap between two. Requests not yet eligible under MLF are in a second set of
//! their queue. A third has them by the visit at which they become so.
mod aging;
mod queues;

use crate::request::{Request, VirtualRequest};
use penstock_base::{Nanos, Op};
pub(crate) use queues::{FileQueue, UNKNOWN};
use slab::Slab;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Waits begun, by reason: shift, larger aggregation, prediction.
pub(crate) type Waited = [u64; 3];

/// A held request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    id: u64,
    pub(crate) file: u64,
    pub(crate) offset: u64,
    /// One past the last byte it may touch.
    pub(crate) end: u64,
    pub(crate) arrived: Nanos,
    /// Number of its arrival.
    pub(crate) serial: u64,
    pub(crate) program: u64,
    /// The next part of the same virtual request, or the next request held back by a conflict.
    pub(crate) next: usize,
    process: u32,
    pub(crate) op: Op,
    pub(crate) bytes: u64,
}

impl Entry {
    pub(crate) fn new(request: Request, end: u64, arrived: Nanos, serial: u64) -> Entry {
        Entry {
            id: request.id,
            file: request.file,
            offset: request.offset,
            end,
            arrived,
            serial,
            program: request.program,
            next: NONE,
            process: request.process,
            op: request.op,
            bytes: request.bytes,
        }
    }

    /// The request as it arrived.
    pub(crate) fn request(&self) -> Request {
        Request {
            id: self.id,
            file: self.file,
            op: self.op,
            offset: self.offset,
            bytes: self.bytes,
            program: self.program,
            process: self.process,
        }
    }
}

/// Requests that are served as one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Virtual {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
    pub(crate) arrived: Nanos,
    /// Number of its first arrival; also distinguishes virtual requests that use the same record in turn.
    pub(crate) serial: u64,
    /// MLF, aIOLi: sum of the parts' factors after `visits` visits of the queue, and parts added since.
    factor: u64,
    visits: u64,
    fresh: u32,
    /// Program of its first arrival.
    pub(crate) program: u64,
    /// MLF: the visit at which it becomes eligible; 0: it is.
    later: u64,
    /// Parts, by offset.
    pub(crate) first: usize,
    last: usize,
    pub(crate) parts: u32,
    pub(crate) queue: usize,
    /// Neighbours by age while it is queued.
    older: usize,
    newer: usize,
    pub(crate) op: Op,
    /// The lane of its algorithm.
    pub(crate) lane: u8,
    /// Whether it has been dispatched; queued otherwise.
    served: bool,
}

/// Marks the end of a list of links.
pub(crate) const NONE: usize = usize::MAX;

/// A map hashed with fixed keys, so that equal calls always cost the same.
#[expect(clippy::disallowed_types, reason = "its hasher has fixed keys")]
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// The data structures of a scheduler.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) entries: Slab<Entry>,
    pub(crate) virtuals: Slab<Virtual>,
    pub(crate) queues: Slab<FileQueue>,
    by_file: Map<(u64, Op), usize>,
    lanes: Vec<Lane>,
    /// The lane of the algorithm that is being asked.
    current: u8,
    /// Lanes of files outside the first lane; reads and writes separately.
    lane_of: [Map<u64, u8>; 2],
    /// Waits begun since the last reset.
    pub(crate) waited: Waited,
    /// The list of empty queues, the one empty for the longest first.
    empty_oldest: usize,
    empty_newest: usize,
    file_limit: usize,
    bytes_limit: u64,
}

/// The part of the table that belongs to one algorithm: the queues of a group of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    oldest: usize,
    newest: usize,
    /// Queued virtual requests.
    pub(crate) queued: usize,
    /// Virtual requests being served.
    pub(crate) serving: usize,
    /// aIOLi: scans of all queues so far.
    pub(crate) scans: u64,
    /// Most requests in one virtual request.
    parts_limit: u32,
}

impl Lane {
    fn new(parts_limit: u32) -> Lane {
        Lane {
            oldest: NONE,
            newest: NONE,
            queued: 0,
            serving: 0,
            scans: 0,
            parts_limit,
        }
    }
}

impl Table {
    pub(crate) fn new(file_limit: usize, parts_limit: u32, bytes_limit: u64) -> Table {
        Table {
            entries: Slab::default(),
            virtuals: Slab::default(),
            queues: Slab::default(),
            by_file: Map::default(),
            lanes: vec![Lane::new(parts_limit)],
            current: 0,
            lane_of: Default::default(),
            waited: Waited::default(),
            empty_oldest: NONE,
            empty_newest: NONE,
            file_limit,
            bytes_limit,
        }
    }

    /// The lane of the algorithm that is being asked.
    pub(crate) fn lane(&self) -> &Lane {
        &self.lanes[usize::from(self.current)]
    }

    pub(crate) fn lane_mut(&mut self) -> &mut Lane {
        &mut self.lanes[usize::from(self.current)]
    }

    /// Sets the lane of the algorithm that is asked next.
    pub(crate) fn enter(&mut self, lane: usize) {
        self.current = lane as u8;
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Queued virtual requests of all lanes.
    pub(crate) fn queued(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queued).sum()
    }

    /// The lane of a file.
    pub(crate) fn lane_of(&self, file: u64, op: Op) -> usize {
        match self.lanes.len() {
            1 => 0,
            _ => self.lane_of[op as usize]
                .get(&file)
                .map_or(0, |l| usize::from(*l)),
        }
    }

    /// The queued virtual request that arrived first.
    pub(crate) fn oldest(&self) -> Option<usize> {
        let oldest = self.lane().oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// The callers' number of a virtual request.
    pub(crate) fn id(&self, at: usize) -> u64 {
        (self.virtuals[at].serial << 32) | at as u64
    }

    /// The record of a virtual request that is being served.
    pub(crate) fn serving(&self, id: u64) -> Option<usize> {
        let at = id as u32 as usize;
        let known = self.virtuals.get(at)?;
        (known.served && self.id(at) == id).then_some(at)
    }

    /// The callers' identifiers of its parts.
    pub(crate) fn ids(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        let v = &self.virtuals[at];
        let (mut part, mut left) = (v.first, v.parts);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let entry = &self.entries[part];
            part = entry.next;
            Some(entry.id)
        })
    }

    pub(crate) fn describe(&self, at: usize) -> VirtualRequest {
        let v = &self.virtuals[at];
        VirtualRequest {
            id: self.id(at),
            file: v.file,
            op: v.op,
            offset: v.offset,
            end: v.end,
            bytes: v.bytes,
            parts: v.parts,
            arrived: v.arrived,
        }
    }

    // ---- adding ----

    /// A virtual request of its own, the newest, in no queue.
    pub(crate) fn append(&mut self, entry: usize) -> usize {
        self.make(entry, NONE)
    }

    /// Adds a request to the queue of its file and operation, joined with neighbours as far as the limits allow.
    /// Returns the virtual request that it is now a part of.
    pub(crate) fn aggregate(&mut self, entry: usize) -> usize {
        let e = self.entries[entry];
        let (bytes, offset) = (e.bytes, e.offset);
        let queue = self.queue(e.file, e.op);
        if self.queues[queue].queued == 0 {
            self.unlist_empty(queue);
            self.queues[queue].reach = 0;
        }
        let q = &mut self.queues[queue];
        q.bytes += bytes;
        q.seen = q.seen.saturating_add(bytes);
        let (left, right) = match self.lane().parts_limit {
            1 => (None, None),
            _ => self.neighbours(queue, offset, e.end),
        };
        if let Some(left) = left.filter(|at| self.has_room(*at, 1, bytes)) {
            self.push(left, entry);
            let v = &self.virtuals[left];
            if let Some(right) = right {
                let r = &self.virtuals[right];
                if v.end >= r.offset
                    && self.entries[v.last].offset <= r.offset
                    && self.has_room(left, r.parts, r.bytes)
                {
                    self.swallow(left, right);
                }
            }
            self.stretch(left);
            return left;
        }
        let at = match right.filter(|at| self.has_room(*at, 1, bytes)) {
            Some(right) => {
                self.withdraw(right);
                self.push_front(right, entry);
                self.file(right);
                right
            }
            None => {
                let at = self.make(entry, queue);
                self.queues[queue].queued += 1;
                self.file(at);
                at
            }
        };
        self.stretch(at);
        at
    }

    fn stretch(&mut self, at: usize) {
        let v = &self.virtuals[at];
        let reach = &mut self.queues[v.queue].reach;
        *reach = (*reach).max(v.end - v.offset);
    }

    fn has_room(&self, at: usize, parts: u32, bytes: u64) -> bool {
        let v = &self.virtuals[at];
        v.parts.saturating_add(parts) <= self.lane().parts_limit
            && v.bytes.saturating_add(bytes) <= self.bytes_limit
    }

    /// Adds a request that is served at once, without having been queued.
    pub(crate) fn serve(&mut self, entry: usize) -> usize {
        let v = Virtual {
            served: true,
            ..self.alone(entry, NONE)
        };
        self.lane_mut().serving += 1;
        self.virtuals.insert(v)
    }

    /// A virtual request of one part.
    fn alone(&self, entry: usize, queue: usize) -> Virtual {
        let e = &self.entries[entry];
        Virtual {
            file: e.file,
            op: e.op,
            program: e.program,
            offset: e.offset,
            end: e.end,
            bytes: e.bytes,
            first: entry,
            last: entry,
            parts: 1,
            arrived: e.arrived,
            serial: e.serial,
            queue,
            lane: self.current,
            served: false,
            factor: 0,
            fresh: 1,
            visits: self.visits(queue),
            later: 0,
            older: NONE,
            newer: NONE,
        }
    }

    fn make(&mut self, entry: usize, queue: usize) -> usize {
        let at = self.virtuals.insert(self.alone(entry, queue));
        let lane = &mut self.lanes[usize::from(self.current)];
        self.virtuals[at].older = lane.newest;
        match lane.newest {
            NONE => lane.oldest = at,
            newest => self.virtuals[newest].newer = at,
        }
        lane.newest = at;
        lane.queued += 1;
        at
    }

    /// Adds a part that does not begin before the virtual request.
    fn push(&mut self, at: usize, entry: usize) {
        let new = self.entries[entry];
        self.age(at);
        let v = self.virtuals[at];
        let offset = |e: usize| self.entries[e].offset;
        if offset(v.last) <= new.offset {
            self.entries[v.last].next = entry;
            self.virtuals[at].last = entry;
        } else {
            let mut before = v.first;
            while offset(self.entries[before].next) <= new.offset {
                before = self.entries[before].next;
            }
            self.entries[entry].next = self.entries[before].next;
            self.entries[before].next = entry;
        }
        let v = &mut self.virtuals[at];
        v.end = v.end.max(new.end);
        v.bytes += new.bytes;
        v.parts += 1;
        v.fresh += 1;
    }

    /// Adds a part that begins before the virtual request.
    fn push_front(&mut self, at: usize, entry: usize) {
        let new = self.entries[entry];
        self.age(at);
        let v = &mut self.virtuals[at];
        self.entries[entry].next = v.first;
        v.first = entry;
        v.offset = new.offset;
        v.end = v.end.max(new.end);
        v.bytes += new.bytes;
        v.parts += 1;
        v.fresh += 1;
    }

    /// Joins `right` to `left`, which begins before it; the result has the older one's place by age.
    fn swallow(&mut self, left: usize, right: usize) {
        self.withdraw(right);
        self.age(right);
        let r = self.virtuals[right];
        self.queues[r.queue].queued -= 1;
        let last = self.virtuals[left].last;
        self.entries[last].next = r.first;
        let v = &mut self.virtuals[left];
        v.last = r.last;
        v.end = v.end.max(r.end);
        v.bytes += r.bytes;
        v.parts += r.parts;
        v.factor = v.factor.saturating_add(r.factor);
        v.fresh += r.fresh;
        if r.serial < v.serial {
            (v.serial, v.arrived, v.program) = (r.serial, r.arrived, r.program);
            self.unlink(left);
            // Read the link only now: `left` may have been the neighbour of `right`.
            let older = std::mem::replace(&mut self.virtuals[right].older, left);
            let v = &mut self.virtuals[left];
            (v.older, v.newer) = (older, right);
            match older {
                NONE => self.lane_mut().oldest = left,
                _ => self.virtuals[older].newer = left,
            }
        }
        self.unlink(right);
        self.lane_mut().queued -= 1;
        self.virtuals.remove(right);
    }

    // ---- removing ----

    /// Takes a queued virtual request out of its list and queue, to be served.
    pub(crate) fn take(&mut self, at: usize) {
        self.unlink(at);
        self.lane_mut().queued -= 1;
        let Virtual { queue, bytes, .. } = self.virtuals[at];
        if queue != NONE {
            self.withdraw(at);
            let q = &mut self.queues[queue];
            q.queued -= 1;
            q.bytes -= bytes;
            if q.queued == 0 {
                self.list_empty(queue);
            }
        }
        self.virtuals[at].served = true;
        self.lane_mut().serving += 1;
    }

    /// Removes a virtual request that has been taken, with its parts.
    pub(crate) fn forget(&mut self, at: usize) {
        let v = self.virtuals.remove(at);
        self.lanes[usize::from(v.lane)].serving -= 1;
        let mut part = v.first;
        for _ in 0..v.parts {
            part = self.entries.remove(part).next;
        }
    }

    /// Takes all queued requests, by age, for other algorithms; removes all queues. The arguments are each algorithm
    /// with its most requests per virtual request, and the files outside the first lane.
    pub(crate) fn dissolve(
        &mut self,
        parts_limits: impl Iterator<Item = u32>,
        bytes_limit: u64,
        lane_of: [Map<u64, u8>; 2],
    ) -> Vec<usize> {
        let mut all = Vec::new();
        for lane in 0..self.lanes.len() {
            self.enter(lane);
            while let Some(at) = self.oldest() {
                let v = self.virtuals[at];
                let mut part = v.first;
                for _ in 0..v.parts {
                    all.push(part);
                    part = self.entries[part].next;
                }
                self.unlink(at);
                self.virtuals.remove(at);
            }
        }
        self.lanes = parts_limits.map(Lane::new).collect();
        self.lane_of = lane_of;
        self.enter(0);
        let (lanes, lane_of) = (&mut self.lanes, &self.lane_of);
        // All that remain are being served.
        for (_, v) in &mut self.virtuals {
            v.lane = lane_of[v.op as usize].get(&v.file).copied().unwrap_or(0);
            lanes[usize::from(v.lane)].serving += 1;
        }
        all.sort_unstable_by_key(|part| self.entries[*part].serial);
        for part in &all {
            self.entries[*part].next = NONE;
        }
        let mut predicted = Vec::new();
        let known = |q: &FileQueue| Some(q.predicted).filter(|bytes| *bytes != UNKNOWN);
        let queues = self.queues.iter().map(|(_, q)| q);
        predicted.extend(queues.filter_map(|q| Some((q.file, q.op, known(q)?, q.seen))));
        predicted.sort_unstable_by_key(|p| (p.0, p.1));
        self.queues.clear();
        self.by_file.clear();
        (self.empty_oldest, self.empty_newest) = (NONE, NONE);
        self.bytes_limit = bytes_limit;
        for (file, op, bytes, seen) in predicted {
            let queue = self.queue(file, op);
            self.queues[queue].predicted = bytes;
            // Queued requests will be added again.
            self.queues[queue].seen = seen;
        }
        for part in &all {
            let e = &self.entries[*part];
            if let Some(queue) = self.by_file.get(&(e.file, e.op)) {
                let q = &mut self.queues[*queue];
                q.seen = q.seen.saturating_sub(e.bytes);
            }
        }
        all
    }

    /// The request that has waited longest, if it has waited for the bound.
    pub(crate) fn overdue(&self, now: Nanos, bound: Option<Nanos>) -> Option<usize> {
        let oldest = self.oldest()?;
        (now.saturating_sub(self.virtuals[oldest].arrived) >= bound?).then_some(oldest)
    }

    /// All requests that are being served. Walks all records: only for a change of the order of conflicts.
    pub(crate) fn parts_served(&self) -> Vec<usize> {
        let mut all = Vec::new();
        for (_, v) in self.virtuals.iter().filter(|(_, v)| v.served) {
            let mut part = v.first;
            for _ in 0..v.parts {
                all.push(part);
                part = self.entries[part].next;
            }
        }
        all
    }

    fn unlink(&mut self, at: usize) {
        let Virtual { older, newer, .. } = self.virtuals[at];
        let lane = &mut self.lanes[usize::from(self.current)];
        match older {
            NONE => lane.oldest = newer,
            _ => self.virtuals[older].newer = newer,
        }
        match newer {
            NONE => lane.newest = older,
            _ => self.virtuals[newer].older = older,
        }
    }
}
