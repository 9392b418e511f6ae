//! Conflicting requests in order of arrival (TS 3.1; optional).
//!
//! Two requests of one file conflict when they share bytes and one of them writes. A request that conflicts with one
//! that is queued or being served is held back. So are all later ones of that file, in order of arrival, until the
//! first of them has no conflict. This may hold back a request that conflicts with nothing. In exchange it needs O(1)
//! space per request and O(log n) time, whatever the overlaps.
//!
//! Live requests of a file are a treap by offset; each node knows the furthest end in its subtree, of all requests and
//! of writes. Priorities are a hash of the arrival number: shape and decisions are the same on every run.
use crate::table::{Entry, Map, NONE};
use penstock_base::Op;
use slab::Slab;
use std::hash::BuildHasher;

#[derive(Debug)]
struct Node {
    start: u64,
    end: u64,
    serial: u64,
    writes: bool,
    priority: u64,
    left: usize,
    right: usize,
    /// Furthest end in this subtree: of all requests, of writes.
    furthest: [u64; 2],
}

/// The requests of one file.
#[derive(Debug, Clone, Copy)]
struct File {
    root: usize,
    /// Requests held back, linked by `Entry::next`.
    first: usize,
    last: usize,
}

/// The order of conflicting requests.
#[derive(Debug, Default)]
pub(crate) struct Order {
    nodes: Slab<Node>,
    files: Map<u64, File>,
    /// Requests held back.
    pub(crate) held: usize,
}

impl Order {
    /// Returns true if the request may be queued, false if it is held back.
    pub(crate) fn admit(&mut self, entries: &mut Slab<Entry>, entry: usize) -> bool {
        let file = entries[entry].file;
        let mut state = *self.files.entry(file).or_insert(File {
            root: NONE,
            first: NONE,
            last: NONE,
        });
        let e = entries[entry];
        if state.first == NONE && !self.conflicts(state.root, &e) {
            state.root = self.insert(state.root, &e);
            self.files.insert(file, state);
            return true;
        }
        match state.last {
            NONE => state.first = entry,
            last => entries[last].next = entry,
        }
        state.last = entry;
        self.files.insert(file, state);
        self.held += 1;
        false
    }

    /// Adds a request that is being served already.
    pub(crate) fn live(&mut self, e: &Entry) {
        let file = e.file;
        let root = self.files.get(&file).map_or(NONE, |state| state.root);
        let root = self.insert(root, e);
        let (first, last) = (NONE, NONE);
        self.files.insert(file, File { root, first, last });
    }

    /// Removes all requests that are held back from their lists and returns them.
    pub(crate) fn drain(&mut self, entries: &mut Slab<Entry>) -> Vec<usize> {
        let mut all = Vec::with_capacity(self.held);
        for state in self.files.values_mut() {
            let mut entry = state.first;
            while entry != NONE {
                all.push(entry);
                entry = std::mem::replace(&mut entries[entry].next, NONE);
            }
            (state.first, state.last) = (NONE, NONE);
        }
        self.held = 0;
        all
    }

    /// A request has been served.
    pub(crate) fn ended(&mut self, e: &Entry) {
        let Some(file) = self.files.get(&e.file).copied() else {
            return;
        };
        let root = self.remove(file.root, e.offset, e.serial);
        if root == NONE && file.first == NONE {
            self.files.remove(&e.file);
        } else {
            self.files.insert(e.file, File { root, ..file });
        }
    }

    /// A request of this file that is held back and may now be queued.
    pub(crate) fn release(&mut self, entries: &mut Slab<Entry>, file: u64) -> Option<usize> {
        let mut state = *self.files.get(&file)?;
        let entry = state.first;
        if entry == NONE || self.conflicts(state.root, &entries[entry]) {
            return None;
        }
        state.first = entries[entry].next;
        if state.first == NONE {
            state.last = NONE;
        }
        entries[entry].next = NONE;
        state.root = self.insert(state.root, &entries[entry]);
        self.files.insert(file, state);
        self.held -= 1;
        Some(entry)
    }

    fn conflicts(&self, root: usize, e: &Entry) -> bool {
        // A read conflicts with writes only.
        let kind = usize::from(e.op == Op::Read);
        let (start, end) = (e.offset, e.end);
        let furthest = |at: usize| match at {
            NONE => 0,
            _ => self.nodes[at].furthest[kind],
        };
        let mut at = root;
        while at != NONE {
            let n = &self.nodes[at];
            if n.start < end && n.end > start && (kind == 0 || n.writes) {
                return true;
            }
            // If one on the left reaches far enough and none there overlaps, all on the right begin after the range.
            at = if furthest(n.left) > start {
                n.left
            } else {
                n.right
            };
        }
        false
    }

    fn insert(&mut self, root: usize, e: &Entry) -> usize {
        let writes = e.op == Op::Write;
        let node = self.nodes.insert(Node {
            start: e.offset,
            end: e.end,
            serial: e.serial,
            writes,
            priority: self.files.hasher().hash_one(e.serial),
            left: NONE,
            right: NONE,
            furthest: [e.end, if writes { e.end } else { 0 }],
        });
        let (left, right) = self.split(root, e.offset, e.serial);
        let left = self.merge(left, node);
        self.merge(left, right)
    }

    fn remove(&mut self, root: usize, start: u64, serial: u64) -> usize {
        let (left, rest) = self.split(root, start, serial);
        let (node, right) = self.split(rest, start, serial + 1);
        if node != NONE {
            self.nodes.remove(node);
        }
        self.merge(left, right)
    }

    /// Splits into nodes below (start, serial), and the rest.
    fn split(&mut self, at: usize, start: u64, serial: u64) -> (usize, usize) {
        if at == NONE {
            return (NONE, NONE);
        }
        let n = &self.nodes[at];
        if (n.start, n.serial) < (start, serial) {
            let (below, rest) = self.split(n.right, start, serial);
            self.nodes[at].right = below;
            self.update(at);
            (at, rest)
        } else {
            let (below, rest) = self.split(n.left, start, serial);
            self.nodes[at].left = rest;
            self.update(at);
            (below, at)
        }
    }

    fn merge(&mut self, left: usize, right: usize) -> usize {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if self.nodes[left].priority > self.nodes[right].priority {
            self.nodes[left].right = self.merge(self.nodes[left].right, right);
            self.update(left);
            left
        } else {
            self.nodes[right].left = self.merge(left, self.nodes[right].left);
            self.update(right);
            right
        }
    }

    fn update(&mut self, at: usize) {
        let n = &self.nodes[at];
        let mut furthest = [n.end, if n.writes { n.end } else { 0 }];
        for child in [n.left, n.right] {
            if child != NONE {
                let below = self.nodes[child].furthest;
                furthest = [furthest[0].max(below[0]), furthest[1].max(below[1])];
            }
        }
        self.nodes[at].furthest = furthest;
    }
}
