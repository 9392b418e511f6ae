//! An ordered set of numbers: what every choice by offset, size, age or time rests on.
//!
//! A B+ tree whose nodes lie in one arena and are used again: insertion, removal and search are O(log n), and nothing is
//! allocated once the arena has grown to what is needed (the standard library's tree allocates nodes all the
//! time). A node is freed when it is empty, not merged before: queues drain soon, and a merge costs more than it saves.
use crate::slab::{NONE, Slab};

const KEYS: usize = 24;
/// Levels at most: the arena has fewer than 2^32 nodes, and inner nodes begin with at least 12 children.
const LEVELS: usize = 24;

#[derive(Debug, Clone)]
struct Node {
    keys: [u128; KEYS],
    /// Inner nodes: children, one more than keys; child i has the keys below `keys[i]`.
    children: [u32; KEYS + 1],
    len: u16,
    leaf: bool,
    /// Leaves: neighbours.
    before: u32,
    after: u32,
}

impl Node {
    fn new(leaf: bool) -> Node {
        Node {
            keys: [0; KEYS],
            children: [NONE; KEYS + 1],
            len: 0,
            leaf,
            before: NONE,
            after: NONE,
        }
    }

    fn keys(&self) -> &[u128] {
        &self.keys[..self.len as usize]
    }

    fn insert_key(&mut self, at: usize, key: u128) {
        let len = self.len as usize;
        self.keys.copy_within(at..len, at + 1);
        self.keys[at] = key;
        self.len += 1;
    }

    fn remove_key(&mut self, at: usize) {
        let len = self.len as usize;
        self.keys.copy_within(at + 1..len, at);
        self.len -= 1;
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct OrderedSet {
    nodes: Slab<Node>,
    root: u32,
    len: usize,
}

/// Way from the root to a leaf: node and child taken.
struct Path {
    steps: [(u32, u16); LEVELS],
    depth: usize,
}

impl Default for OrderedSet {
    fn default() -> OrderedSet {
        let mut nodes = Slab::default();
        let root = nodes.insert(Node::new(true));
        OrderedSet {
            nodes,
            root,
            len: 0,
        }
    }
}

impl OrderedSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key must not be there.
    pub(crate) fn insert(&mut self, key: u128) {
        let (leaf, mut path) = self.descend(key);
        self.len += 1;
        let node = &mut self.nodes[leaf];
        let at = node.keys().partition_point(|k| *k < key);
        debug_assert!(at == node.keys().len() || node.keys[at] != key, "twice");
        if (node.len as usize) < KEYS {
            node.insert_key(at, key);
            return;
        }
        // Ascending keys fill leaves nearly.
        let keep = if at == KEYS { KEYS - 2 } else { KEYS / 2 };
        let mut right = Node::new(true);
        let moved = KEYS - keep;
        right.keys[..moved].copy_from_slice(&node.keys[keep..]);
        right.len = moved as u16;
        right.before = leaf;
        right.after = node.after;
        node.len = keep as u16;
        if at <= keep {
            node.insert_key(at, key);
        } else {
            right.insert_key(at - keep, key);
        }
        let (separator, after) = (right.keys[0], right.after);
        let right = self.nodes.insert(right);
        self.nodes[leaf].after = right;
        if after != NONE {
            self.nodes[after].before = right;
        }
        self.grow(&mut path, separator, right);
    }

    /// Puts a new right neighbour into the parents.
    fn grow(&mut self, path: &mut Path, mut separator: u128, mut child: u32) {
        while path.depth > 0 {
            path.depth -= 1;
            let (at, taken) = path.steps[path.depth];
            let taken = taken as usize;
            let node = &mut self.nodes[at];
            if (node.len as usize) < KEYS {
                insert_child(node, taken, separator, child);
                return;
            }
            let keep = if taken == KEYS { KEYS - 2 } else { KEYS / 2 };
            let mut right = Node::new(false);
            let up = node.keys[keep];
            let moved = KEYS - keep - 1;
            right.keys[..moved].copy_from_slice(&node.keys[keep + 1..]);
            right.children[..=moved].copy_from_slice(&node.children[keep + 1..]);
            right.len = moved as u16;
            node.len = keep as u16;
            if taken <= keep {
                insert_child(node, taken, separator, child);
            } else {
                insert_child(&mut right, taken - keep - 1, separator, child);
            }
            separator = up;
            child = self.nodes.insert(right);
        }
        let mut root = Node::new(false);
        root.keys[0] = separator;
        root.children[0] = self.root;
        root.children[1] = child;
        root.len = 1;
        self.root = self.nodes.insert(root);
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, key: u128) -> bool {
        let (leaf, mut path) = self.descend(key);
        let node = &mut self.nodes[leaf];
        let Ok(at) = node.keys().binary_search(&key) else {
            return false;
        };
        node.remove_key(at);
        self.len -= 1;
        if node.len > 0 || path.depth == 0 {
            return true;
        }
        let (before, after) = (node.before, node.after);
        if before != NONE {
            self.nodes[before].after = after;
        }
        if after != NONE {
            self.nodes[after].before = before;
        }
        self.nodes.free(leaf);
        while path.depth > 0 {
            path.depth -= 1;
            let (at, taken) = path.steps[path.depth];
            let (taken, node) = (taken as usize, &mut self.nodes[at]);
            if node.len == 0 {
                // Its only child is gone.
                self.nodes.free(at);
                continue;
            }
            node.children
                .copy_within(taken + 1..=node.len as usize, taken);
            node.remove_key(taken.saturating_sub(1));
            break;
        }
        if self.len == 0 {
            // Every node has been freed on the way.
            self.root = self.nodes.insert(Node::new(true));
            return true;
        }
        while !self.nodes[self.root].leaf && self.nodes[self.root].len == 0 {
            let child = self.nodes[self.root].children[0];
            self.nodes.free(self.root);
            self.root = child;
        }
        true
    }

    /// The smallest key that is at least `key`.
    pub(crate) fn first_from(&self, key: u128) -> Option<u128> {
        self.around(key).1
    }

    /// The largest key below `key` and the smallest that is at least `key`.
    pub(crate) fn around(&self, key: u128) -> (Option<u128>, Option<u128>) {
        let leaf = &self.nodes[self.leaf(key)];
        let at = leaf.keys().partition_point(|k| *k < key);
        let before = match at.checked_sub(1) {
            Some(at) => Some(leaf.keys[at]),
            None if leaf.before == NONE => None,
            None => self.nodes[leaf.before].keys().last().copied(),
        };
        let from = match leaf.keys().get(at) {
            Some(found) => Some(*found),
            None if leaf.after == NONE => None,
            None => Some(self.nodes[leaf.after].keys[0]),
        };
        (before, from)
    }

    pub(crate) fn first(&self) -> Option<u128> {
        self.first_from(0)
    }

    fn leaf(&self, key: u128) -> u32 {
        let mut at = self.root;
        loop {
            let node = &self.nodes[at];
            if node.leaf {
                return at;
            }
            at = node.children[node.keys().partition_point(|k| *k <= key)];
        }
    }

    fn descend(&self, key: u128) -> (u32, Path) {
        let mut path = Path {
            steps: [(NONE, 0); LEVELS],
            depth: 0,
        };
        let mut at = self.root;
        loop {
            let node = &self.nodes[at];
            if node.leaf {
                return (at, path);
            }
            let taken = node.keys().partition_point(|k| *k <= key);
            path.steps[path.depth] = (at, taken as u16);
            path.depth += 1;
            at = node.children[taken];
        }
    }
}

/// Adds `child` to the right of child number `taken`.
fn insert_child(node: &mut Node, taken: usize, separator: u128, child: u32) {
    let len = node.len as usize;
    node.children.copy_within(taken + 1..=len, taken + 2);
    node.children[taken + 1] = child;
    node.insert_key(taken, separator);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            steps in proptest::collection::vec((0u8..8, 0u128..600), 0..3000),
            scale in prop::sample::select(vec![1u128, 1 << 90]),
        ) {
            let (mut set, mut model) = (OrderedSet::default(), BTreeSet::new());
            let mut drain = false;
            for (what, key) in steps {
                // Long runs of insertions and of removals, so that the tree grows and shrinks.
                if what == 7 && key < 20 { drain = !drain; }
                let key = key * scale;
                if (what < 5) != drain {
                    if model.insert(key) { set.insert(key); }
                } else {
                    prop_assert_eq!(set.remove(key), model.remove(&key));
                }
                prop_assert_eq!(set.first_from(key), model.range(key..).next().copied());
                prop_assert_eq!(set.around(key).0, model.range(..key).next_back().copied());
                prop_assert_eq!(set.first(), model.first().copied());
                prop_assert_eq!(set.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn thousands_come_and_go() {
        for step in [1u128, 7919] {
            let mut set = OrderedSet::default();
            for round in 0..2 {
                for i in 0..20_000u128 {
                    set.insert(i * step % 20_011 + round);
                }
                let nodes = set.nodes.len();
                assert!(nodes < 3000, "{nodes}");
                for i in 0..20_000u128 {
                    assert!(set.remove(i * step % 20_011 + round));
                }
                assert!(set.is_empty() && set.nodes.len() == 1);
            }
        }
    }
}
