//! Queues, one per file and operation: virtual requests by offset, the history of those served, and the list of empty
//! queues.
//!
//! *Problem*: what a queue has learnt (quantum, history, prediction) is worth keeping while it is empty, and the number
//! of files is unbounded. *Idea*: empty queues are in a list by age. When twice as many queues as the limit are held,
//! the oldest empty one is removed. *Parameter*: the limit of files. *Source*: TS section 3.1 (a queue per file and
//! operation).
use super::{NONE, Table};
use crate::history::History;
use penstock_base::Op;
use std::collections::BTreeSet;

/// Numbers of virtual requests with their sort key.
type Places = BTreeSet<(u64, usize)>;

/// Requests of one file and operation, and the history of those served.
#[derive(Debug)]
pub(crate) struct FileQueue {
    /// Bytes of queued virtual requests, and their number.
    pub(crate) bytes: u64,
    /// Bytes ever added.
    pub(crate) seen: u64,
    /// MLF: visits so far.
    pub(crate) visits: u64,
    /// aIOLi: current quantum; 0: the default.
    pub(crate) quantum: u64,
    pub(crate) queued: u32,
    /// Neighbours in MLF's round, or among the empty queues.
    pub(crate) before: usize,
    pub(crate) after: usize,
    /// No queued virtual request is longer.
    pub(super) reach: u64,
    /// Eligible virtual requests, by offset.
    ready: Places,
    /// MLF: virtual requests not yet eligible, by offset and by the visit at which they become so.
    deferred: Places,
    by_visit: Places,
    pub(super) op: Op,
    pub(super) lane: u8,
    /// MLF: whether it is in the round.
    pub(crate) active: bool,
    pub(super) file: u64,
    /// SRTF: bytes that will have been requested in the end, or [`UNKNOWN`].
    pub(crate) predicted: u64,
    pub(crate) history: History,
}

/// No prediction.
pub(crate) const UNKNOWN: u64 = u64::MAX;

impl Table {
    /// The queue of a file and operation.
    pub(crate) fn queue(&mut self, file: u64, op: Op) -> usize {
        if let Some(queue) = self.by_file.get(&(file, op)) {
            return *queue;
        }
        if self.queues.len() >= 2 * self.file_limit && self.empty_oldest != NONE {
            // Its history is only a hint.
            let oldest = self.empty_oldest;
            self.unlist_empty(oldest);
            let gone = self.queues.remove(oldest);
            self.by_file.remove(&(gone.file, gone.op));
        }
        let queue = self.queues.insert(FileQueue {
            file,
            op,
            lane: self.lane_of(file, op) as u8,
            queued: 0,
            bytes: 0,
            seen: 0,
            reach: 0,
            quantum: 0,
            visits: 0,
            ready: Places::default(),
            deferred: Places::default(),
            by_visit: Places::default(),
            history: History::default(),
            predicted: UNKNOWN,
            active: false,
            before: NONE,
            after: NONE,
        });
        self.by_file.insert((file, op), queue);
        self.list_empty(queue);
        queue
    }

    /// The eligible virtual request of a queue with the lowest offset.
    pub(crate) fn head(&self, queue: usize) -> Option<usize> {
        self.queues[queue].ready.first().map(|head| head.1)
    }

    /// The queue's virtual request that begins at this offset.
    pub(crate) fn beginning_at(&self, queue: usize, offset: u64) -> Option<usize> {
        let ready = &self.queues[queue].ready;
        let (begin, at) = *ready.range((offset, 0)..).next()?;
        (begin == offset).then_some(at)
    }

    /// Queued neighbours that the range touches or overlaps.
    pub(super) fn neighbours(
        &self,
        queue: usize,
        offset: u64,
        end: u64,
    ) -> (Option<usize>, Option<usize>) {
        let FileQueue {
            ready,
            deferred,
            reach,
            ..
        } = &self.queues[queue];
        let last = |set: &Places| set.range(..(offset, NONE)).next_back().copied();
        let first = |set: &Places| set.range((offset, NONE)..).next().copied();
        let left = last(ready).max(last(deferred));
        let right = [first(ready), first(deferred)].into_iter().flatten().min();
        (
            // Most are too far away to be neighbours.
            left.filter(|left| left.0 + reach >= offset)
                .map(|left| left.1)
                .filter(|at| self.virtuals[*at].end >= offset),
            right.filter(|right| right.0 <= end).map(|right| right.1),
        )
    }

    /// Adds a virtual request to the sets of its queue.
    pub(super) fn file(&mut self, at: usize) {
        let v = &self.virtuals[at];
        let q = &mut self.queues[v.queue];
        if v.later == 0 {
            q.ready.insert((v.offset, at));
        } else {
            q.deferred.insert((v.offset, at));
            q.by_visit.insert((v.later, at));
        }
    }

    /// Removes it from them.
    pub(super) fn withdraw(&mut self, at: usize) {
        let v = &self.virtuals[at];
        let q = &mut self.queues[v.queue];
        if v.later == 0 {
            q.ready.remove(&(v.offset, at));
        } else {
            q.deferred.remove(&(v.offset, at));
            q.by_visit.remove(&(v.later, at));
        }
    }

    /// MLF: it becomes eligible at this visit of its queue; 0: now.
    pub(crate) fn defer(&mut self, at: usize, visit: u64) {
        if self.virtuals[at].later != visit {
            self.withdraw(at);
            self.virtuals[at].later = visit;
            self.file(at);
        }
    }

    /// MLF: a virtual request of the queue that became eligible at this visit or before.
    pub(crate) fn due(&self, queue: usize, visit: u64) -> Option<usize> {
        let (lets_through, at) = *self.queues[queue].by_visit.first()?;
        (lets_through <= visit).then_some(at)
    }

    pub(super) fn list_empty(&mut self, queue: usize) {
        let newest = self.empty_newest;
        self.queues[queue].before = newest;
        self.queues[queue].after = NONE;
        match newest {
            NONE => self.empty_oldest = queue,
            _ => self.queues[newest].after = queue,
        }
        self.empty_newest = queue;
    }

    pub(super) fn unlist_empty(&mut self, queue: usize) {
        let FileQueue { before, after, .. } = self.queues[queue];
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
