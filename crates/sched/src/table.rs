//! What all algorithms share: requests, virtual requests in order of arrival, queues in order of offset.
//!
//! Requests lie in one slab, virtual requests in another, queues (one per file and operation) in a third; links are
//! numbers. Every queued virtual request is in one list by age. The algorithms that work by offset also keep those of each
//! queue in an ordered set by (offset, number), in which neighbours are found for aggregation: a request joins the
//! neighbour that it touches or overlaps (TS 3.1), and may close the gap between two. What MLF does not let through yet
//! is in a second set of its queue, and in a third by the visit that lets it through.
//!
//! Most of the time goes into waiting for memory, so records are kept small, and the links of the list by age lie apart.
use crate::request::{Nanos, Op, Request, VirtualRequest};
use crate::set::{Forest, Root};
use crate::slab::{NONE, Slab};
use crate::waiting::{History, Waited};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One request that is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) request: Request,
    /// One past the last byte it may touch.
    pub(crate) end: u64,
    pub(crate) arrived: Nanos,
    /// Counts arrivals.
    pub(crate) serial: u64,
    /// The next part of the same virtual request, or the next one that waits for a conflict to end.
    pub(crate) next: u32,
}

/// Requests that are served as one: two lines of the processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Virtual {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
    pub(crate) arrived: Nanos,
    /// Of its first arrival; also tells apart virtual requests that use the same record in turn.
    pub(crate) serial: u64,
    /// MLF, aIOLi: sum of the parts' factors when the queue had been visited `visits` times, and parts added since.
    factor: u64,
    visits: u64,
    fresh: u32,
    /// Of its first arrival.
    pub(crate) program: u32,
    /// MLF: the visit that lets it through; 0: it may go.
    later: u64,
    /// Parts, by offset.
    pub(crate) first: u32,
    last: u32,
    pub(crate) parts: u32,
    pub(crate) queue: u32,
    /// WFQ, TWINS: the next in the program's queue.
    pub(crate) chain: u32,
    pub(crate) op: Op,
    /// The algorithm that has it.
    pub(crate) lane: u8,
    /// It has been dispatched; queued otherwise.
    served: bool,
}

/// Requests of one file and operation, and what is remembered of those served. Two lines of the processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    file: u64,
    /// Bytes of queued virtual requests, and how many these are.
    pub(crate) bytes: u64,
    pub(crate) queued: u32,
    /// By (offset, number): virtual requests that may go, and those that MLF does not let through yet.
    ready: Root,
    deferred: Root,
    /// The latter by (visit that lets them through, number).
    by_visit: Root,
    /// Neighbours in MLF's round, or among the empty queues.
    pub(crate) before: u32,
    pub(crate) after: u32,
    /// No queued virtual request reaches further than so many bytes; `u32::MAX`: some may.
    reach: u32,
    op: Op,
    lane: u8,
    /// MLF: it is in the round.
    pub(crate) active: bool,
    /// MLF: visits so far.
    pub(crate) visits: u64,
    /// Bytes ever added.
    pub(crate) seen: u64,
    /// aIOLi: present quantum; 0: the default.
    pub(crate) quantum: u64,
    /// SRTF: bytes that will have come in the end, or [`UNKNOWN`].
    pub(crate) predicted: u64,
    pub(crate) history: History,
}

/// No prediction.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// A fixed hash: decisions must not depend on a random one, and files have numbers given by ourselves.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, value: u64) {
        // SplitMix64's finisher.
        let mut z = (self.0 ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = z ^ (z >> 31);
    }
}

pub(crate) type Map<V> = HashMap<u64, V, BuildHasherDefault<Mix>>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) entries: Slab<Entry>,
    pub(crate) virtuals: Slab<Virtual>,
    pub(crate) queues: Slab<Queue>,
    /// By file; reads and writes apart.
    by_file: [Map<u32>; 2],
    sets: Forest,
    /// Neighbours by age of each virtual request that is queued: the older, the newer.
    ages: Vec<[u32; 2]>,
    lanes: Vec<Lane>,
    /// Of the algorithm that is being asked.
    current: u8,
    /// Files that are not in the first lane; reads and writes apart.
    lane_of: [Map<u8>; 2],
    /// Waits for company begun since they were last forgotten.
    pub(crate) waited: Waited,
    /// Empty queues, the one empty for the longest first.
    empty_oldest: u32,
    empty_newest: u32,
    file_limit: usize,
    bytes_limit: u64,
}

/// What one algorithm has of the table: the queues of a group of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    oldest: u32,
    newest: u32,
    /// Queued virtual requests.
    pub(crate) queued: usize,
    /// Virtual requests being served.
    pub(crate) serving: usize,
    /// aIOLi: scans of all queues so far.
    pub(crate) scans: u64,
    /// Requests in one virtual request.
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
            by_file: Default::default(),
            sets: Forest::default(),
            ages: Vec::new(),
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

    /// That of the algorithm that is being asked.
    pub(crate) fn lane(&self) -> &Lane {
        &self.lanes[usize::from(self.current)]
    }

    pub(crate) fn lane_mut(&mut self) -> &mut Lane {
        &mut self.lanes[usize::from(self.current)]
    }

    /// Another algorithm is being asked.
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

    /// Where a file belongs.
    pub(crate) fn lane_of(&self, file: u64, op: Op) -> usize {
        match self.lanes.len() {
            1 => 0,
            _ => self.lane_of[op as usize]
                .get(&file)
                .map_or(0, |l| usize::from(*l)),
        }
    }

    /// The queued virtual request that arrived first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let oldest = self.lane().oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// The number by which callers know a virtual request.
    pub(crate) fn id(&self, at: u32) -> u64 {
        (self.virtuals[at].serial << 32) | u64::from(at)
    }

    /// A virtual request that is being served.
    pub(crate) fn serving(&self, id: u64) -> Option<u32> {
        let at = id as u32;
        let known = self.virtuals.get(at)?;
        (known.served && known.parts > 0 && self.id(at) == id).then_some(at)
    }

    /// The callers' names of its parts.
    pub(crate) fn ids(&self, at: u32) -> impl Iterator<Item = u64> + '_ {
        let v = &self.virtuals[at];
        let (mut part, mut left) = (v.first, v.parts);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let entry = &self.entries[part];
            part = entry.next;
            Some(entry.request.id)
        })
    }

    pub(crate) fn describe(&self, at: u32) -> VirtualRequest {
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

    // ---- in ----

    /// A virtual request of its own, the newest, in no queue.
    pub(crate) fn append(&mut self, entry: u32) -> u32 {
        self.make(entry, NONE)
    }

    /// Into the queue of its file and operation, joined with neighbours as far as the limits allow. The virtual
    /// request it is a part of now.
    pub(crate) fn aggregate(&mut self, entry: u32) -> u32 {
        let Entry { request, end, .. } = self.entries[entry];
        let queue = self.queue(request.file, request.op);
        if self.queues[queue].queued == 0 {
            self.unlist_empty(queue);
            self.queues[queue].reach = 0;
        }
        let q = &mut self.queues[queue];
        q.bytes += request.bytes;
        q.seen = q.seen.saturating_add(request.bytes);
        let (left, right) = match self.lane().parts_limit {
            1 => (None, None),
            _ => self.neighbours(queue, request.offset, end),
        };
        if let Some(left) = left.filter(|at| self.has_room(*at, 1, request.bytes)) {
            self.push(left, entry);
            let v = &self.virtuals[left];
            if let Some(right) = right {
                let r = &self.virtuals[right];
                if v.end >= r.offset
                    && self.entries[v.last].request.offset <= r.offset
                    && self.has_room(left, r.parts, r.bytes)
                {
                    self.swallow(left, right);
                }
            }
            self.stretch(left);
            return left;
        }
        let at = match right.filter(|at| self.has_room(*at, 1, request.bytes)) {
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

    fn stretch(&mut self, at: u32) {
        let v = &self.virtuals[at];
        let reach = &mut self.queues[v.queue].reach;
        *reach = (*reach).max(u32::try_from(v.end - v.offset).unwrap_or(u32::MAX));
    }

    /// Queued neighbours that the range touches or overlaps.
    fn neighbours(&self, queue: u32, offset: u64, end: u64) -> (Option<u32>, Option<u32>) {
        let q = &self.queues[queue];
        let above = place(offset, NONE) + 1;
        let (mut left, mut right) = self.sets.around(q.ready, above);
        if !q.deferred.is_empty() {
            let (other_left, other_right) = self.sets.around(q.deferred, above);
            left = left.max(other_left);
            right = match (right, other_right) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        // Offsets are in the keys: most lie too far away to be looked at.
        let near =
            |key: &u128| q.reach == u32::MAX || (key >> 32) as u64 + u64::from(q.reach) >= offset;
        (
            left.filter(near)
                .map(|key| key as u32)
                .filter(|at| self.virtuals[*at].end >= offset),
            right
                .filter(|key| (key >> 32) as u64 <= end)
                .map(|key| key as u32),
        )
    }

    /// Puts a virtual request into the sets of its queue.
    fn file(&mut self, at: u32) {
        let v = &self.virtuals[at];
        let (q, key) = (&mut self.queues[v.queue], place(v.offset, at));
        if v.later == 0 {
            self.sets.insert(&mut q.ready, key);
        } else {
            self.sets.insert(&mut q.deferred, key);
            self.sets.insert(&mut q.by_visit, place(v.later, at));
        }
    }

    /// Takes it out of them.
    fn withdraw(&mut self, at: u32) {
        let v = &self.virtuals[at];
        let (q, key) = (&mut self.queues[v.queue], place(v.offset, at));
        if v.later == 0 {
            self.sets.remove(&mut q.ready, key);
        } else {
            self.sets.remove(&mut q.deferred, key);
            self.sets.remove(&mut q.by_visit, place(v.later, at));
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
        ((key >> 32) as u64 <= visit).then_some(key as u32)
    }

    fn has_room(&self, at: u32, parts: u32, bytes: u64) -> bool {
        let v = &self.virtuals[at];
        v.parts.saturating_add(parts) <= self.lane().parts_limit
            && v.bytes.saturating_add(bytes) <= self.bytes_limit
    }

    fn make(&mut self, entry: u32, queue: u32) -> u32 {
        let e = self.entries[entry];
        let at = self.virtuals.insert(Virtual {
            file: e.request.file,
            op: e.request.op,
            program: e.request.program,
            offset: e.request.offset,
            end: e.end,
            bytes: e.request.bytes,
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
            chain: NONE,
        });
        if self.ages.len() <= at as usize {
            self.ages.resize(at as usize + 1, [NONE; 2]);
        }
        let lane = &mut self.lanes[usize::from(self.current)];
        self.ages[at as usize] = [lane.newest, NONE];
        match lane.newest {
            NONE => lane.oldest = at,
            newest => self.ages[newest as usize][1] = at,
        }
        lane.newest = at;
        lane.queued += 1;
        at
    }

    /// Adds a part that does not begin before the virtual request.
    fn push(&mut self, at: u32, entry: u32) {
        let Entry { request, end, .. } = self.entries[entry];
        self.age(at);
        let v = self.virtuals[at];
        let offset = |e: u32| self.entries[e].request.offset;
        if offset(v.last) <= request.offset {
            self.entries[v.last].next = entry;
            self.virtuals[at].last = entry;
        } else {
            let mut before = v.first;
            while offset(self.entries[before].next) <= request.offset {
                before = self.entries[before].next;
            }
            self.entries[entry].next = self.entries[before].next;
            self.entries[before].next = entry;
        }
        let v = &mut self.virtuals[at];
        v.end = v.end.max(end);
        v.bytes += request.bytes;
        v.parts += 1;
        v.fresh += 1;
    }

    /// Adds a part that begins before the virtual request.
    fn push_front(&mut self, at: u32, entry: u32) {
        let Entry { request, end, .. } = self.entries[entry];
        self.age(at);
        let v = &mut self.virtuals[at];
        self.entries[entry].next = v.first;
        v.first = entry;
        v.offset = request.offset;
        v.end = v.end.max(end);
        v.bytes += request.bytes;
        v.parts += 1;
        v.fresh += 1;
    }

    /// Joins `right` to `left`, which begins before it; the older one's place by age is kept.
    fn swallow(&mut self, left: u32, right: u32) {
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
            let older = self.ages[right as usize][0];
            self.ages[left as usize] = [older, right];
            self.ages[right as usize][0] = left;
            match older {
                NONE => self.lane_mut().oldest = left,
                _ => self.ages[older as usize][1] = left,
            }
        }
        self.unlink(right);
        self.lane_mut().queued -= 1;
        self.virtuals[right].parts = 0;
        self.virtuals.free(right);
    }

    // ---- out ----

    /// Takes a queued virtual request out of list and queue, to be served.
    pub(crate) fn take(&mut self, at: u32) {
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

    /// Forgets a virtual request that has been taken. Its parts go with it.
    pub(crate) fn forget(&mut self, at: u32) {
        self.lanes[usize::from(self.virtuals[at].lane)].serving -= 1;
        let mut part = self.virtuals[at].first;
        for _ in 0..self.virtuals[at].parts {
            let next = self.entries[part].next;
            self.entries.free(part);
            part = next;
        }
        self.virtuals[at].parts = 0;
        self.virtuals.free(at);
    }

    /// Takes everything queued, by age, for other algorithms; forgets all queues. Each algorithm with the most requests
    /// that it joins, and the files that are not in the first one's lane.
    pub(crate) fn dissolve(
        &mut self,
        parts_limits: impl Iterator<Item = u32>,
        bytes_limit: u64,
        lane_of: [Map<u8>; 2],
    ) -> Vec<u32> {
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
                self.virtuals[at].parts = 0;
                self.virtuals.free(at);
            }
        }
        self.lanes = parts_limits.map(Lane::new).collect();
        self.lane_of = lane_of;
        self.enter(0);
        let (lanes, lane_of) = (&mut self.lanes, &self.lane_of);
        for v in self.virtuals.records_mut() {
            if v.served && v.parts > 0 {
                v.lane = lane_of[v.op as usize].get(&v.file).copied().unwrap_or(0);
                lanes[usize::from(v.lane)].serving += 1;
            }
        }
        all.sort_unstable_by_key(|part| self.entries[*part].serial);
        for part in &all {
            self.entries[*part].next = NONE;
        }
        let mut predicted = Vec::new();
        let known = |q: &Queue| Some(q.predicted).filter(|bytes| *bytes != UNKNOWN);
        for map in &self.by_file {
            let queues = map.values().map(|q| &self.queues[*q]);
            predicted.extend(queues.filter_map(|q| Some((q.file, q.op, known(q)?, q.seen))));
        }
        // The order of a hash map must not leak into decisions.
        predicted.sort_unstable_by_key(|p| (p.0, p.1 as u8));
        self.queues = Slab::default();
        self.by_file = Default::default();
        self.sets = Forest::default();
        (self.empty_oldest, self.empty_newest) = (NONE, NONE);
        self.bytes_limit = bytes_limit;
        for (file, op, bytes, seen) in predicted {
            let queue = self.queue(file, op);
            self.queues[queue].predicted = bytes;
            // What is queued comes again.
            self.queues[queue].seen = seen;
        }
        for part in &all {
            let Request {
                file, op, bytes, ..
            } = self.entries[*part].request;
            if let Some(queue) = self.by_file[op as usize].get(&file) {
                let q = &mut self.queues[*queue];
                q.seen = q.seen.saturating_sub(bytes);
            }
        }
        all
    }

    /// The one that has waited longest, if it has waited for the bound.
    pub(crate) fn overdue(&self, now: Nanos, bound: Option<Nanos>) -> Option<u32> {
        let oldest = self.oldest()?;
        (now.saturating_sub(self.virtuals[oldest].arrived) >= bound?).then_some(oldest)
    }

    // ---- aging: factors of MLF and aIOLi ----

    /// How often a queue has been looked at.
    pub(crate) fn visits(&self, queue: u32) -> u64 {
        match queue {
            NONE => 0,
            _ => {
                let queue = &self.queues[queue];
                queue.visits + self.lanes[usize::from(queue.lane)].scans
            }
        }
    }

    /// Brings a virtual request's factor up to date: every visit doubles it, a part's first visit makes it 1.
    pub(crate) fn age(&mut self, at: u32) {
        let visits = self.visits(self.virtuals[at].queue);
        let v = &mut self.virtuals[at];
        let passed = visits - v.visits;
        if passed == 0 {
            return;
        }
        let once = v.factor.saturating_mul(2).saturating_add(v.fresh.into());
        let doublings = (passed - 1).min(63) as u32;
        v.factor = match once.leading_zeros() >= doublings {
            true => once << doublings,
            false => u64::MAX,
        };
        v.fresh = 0;
        v.visits = visits;
    }

    /// As it was brought up to date last.
    pub(crate) fn factor(&self, at: u32) -> u64 {
        self.virtuals[at].factor
    }

    /// At which visit the factor will let the virtual request through: factor × quantum ≥ its bytes.
    pub(crate) fn ripe_at(&self, at: u32, quantum: u64) -> u64 {
        let v = &self.virtuals[at];
        let needed = v.bytes.div_ceil(quantum);
        if v.factor >= needed {
            return v.visits;
        }
        let mut factor = v.factor.saturating_mul(2).saturating_add(v.fresh.into());
        let mut visits = v.visits + 1;
        while factor < needed {
            factor = factor.saturating_mul(2);
            visits += 1;
        }
        visits
    }

    /// All requests that are being served. Looks at every record: for a change of the order of conflicts only.
    pub(crate) fn parts_served(&self) -> Vec<u32> {
        let mut all = Vec::new();
        let records = self.virtuals.records();
        for v in records.filter(|v| v.served && v.parts > 0) {
            let mut part = v.first;
            for _ in 0..v.parts {
                all.push(part);
                part = self.entries[part].next;
            }
        }
        all
    }

    fn unlink(&mut self, at: u32) {
        let [older, newer] = self.ages[at as usize];
        let lane = &mut self.lanes[usize::from(self.current)];
        match older {
            NONE => lane.oldest = newer,
            _ => self.ages[older as usize][1] = newer,
        }
        match newer {
            NONE => lane.newest = older,
            _ => self.ages[newer as usize][0] = older,
        }
    }

    // ---- queues ----

    /// The virtual request of a queue with the lowest offset, of those that may go.
    pub(crate) fn head(&self, queue: u32) -> Option<u32> {
        let key = self.sets.first(self.queues[queue].ready)?;
        Some(key as u32)
    }

    /// The queue's virtual request that begins there.
    pub(crate) fn beginning_at(&self, queue: u32, offset: u64) -> Option<u32> {
        let ready = self.queues[queue].ready;
        let key = self.sets.first_from(ready, place(offset, 0))?;
        ((key >> 32) as u64 == offset).then_some(key as u32)
    }

    pub(crate) fn queue(&mut self, file: u64, op: Op) -> u32 {
        if let Some(queue) = self.by_file[op as usize].get(&file) {
            return *queue;
        }
        if self.queues.len() >= 2 * self.file_limit && self.empty_oldest != NONE {
            // What it remembers is only a hint.
            let oldest = self.empty_oldest;
            self.unlist_empty(oldest);
            let Queue { file, op, .. } = self.queues[oldest];
            self.by_file[op as usize].remove(&file);
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
            ready: Root::default(),
            deferred: Root::default(),
            by_visit: Root::default(),
            history: History::default(),
            predicted: UNKNOWN,
            active: false,
            before: NONE,
            after: NONE,
        });
        self.by_file[op as usize].insert(file, queue);
        self.list_empty(queue);
        queue
    }

    fn list_empty(&mut self, queue: u32) {
        let newest = self.empty_newest;
        self.queues[queue].before = newest;
        self.queues[queue].after = NONE;
        match newest {
            NONE => self.empty_oldest = queue,
            _ => self.queues[newest].after = queue,
        }
        self.empty_newest = queue;
    }

    fn unlist_empty(&mut self, queue: u32) {
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

const _: () = assert!(size_of::<Queue>() == 128 && size_of::<Virtual>() == 128);

/// Key of a virtual request by its offset, or by another number.
fn place(offset: u64, at: u32) -> u128 {
    (u128::from(offset) << 32) | u128::from(at)
}
