//! Ordered sets of numbers: what finding neighbours and choices by offset rest on.
//!
//! B+ trees whose nodes lie in one arena and are used again: insertion, removal and search are O(log n), and nothing is
//! allocated once the arena has grown to what is needed (the standard library's tree allocates nodes all the
//! time). Each queue with more than a few requests has a tree of its own (`places`). A node is freed when it is empty, not merged before: queues drain soon, and a merge
//! costs more than it saves.
use crate::slab::{NONE, Slab};

const KEYS: usize = 24;
/// Levels at most: one more takes 12 times as many insertions.
const LEVELS: usize = 16;

#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Node {
    len: u16,
    leaf: bool,
    /// Leaves: neighbours.
    before: u32,
    after: u32,
    keys: [u128; KEYS],
    /// Inner nodes: children, one more than keys; child i has the keys below `keys[i]`.
    children: [u32; KEYS + 1],
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

    /// How many keys are below this one.
    fn position(&self, key: u128) -> usize {
        self.keys().partition_point(|k| *k < key)
    }

    /// Inner nodes: the child that has the key.
    fn way(&self, key: u128) -> usize {
        self.keys().partition_point(|k| *k <= key)
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

/// Where a set begins in a [`Forest`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root(u32);

impl Default for Root {
    fn default() -> Root {
        Root(NONE)
    }
}

impl Root {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == NONE
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    nodes: Slab<Node>,
}

/// Way from the root to a leaf: node and child taken.
struct Path {
    steps: [(u32, u16); LEVELS],
    depth: usize,
}

impl Forest {
    /// The key must not be there.
    pub(crate) fn insert(&mut self, root: &mut Root, key: u128) {
        if root.is_empty() {
            let mut leaf = Node::new(true);
            leaf.insert_key(0, key);
            root.0 = self.nodes.insert(leaf);
            return;
        }
        let (leaf, mut path) = self.descend(*root, key);
        let node = &mut self.nodes[leaf];
        let at = node.position(key);
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
        self.grow(root, &mut path, separator, right);
    }

    /// Puts a new right neighbour into the parents.
    fn grow(&mut self, root: &mut Root, path: &mut Path, mut separator: u128, mut child: u32) {
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
        let mut top = Node::new(false);
        top.keys[0] = separator;
        top.children[0] = root.0;
        top.children[1] = child;
        top.len = 1;
        root.0 = self.nodes.insert(top);
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, root: &mut Root, key: u128) -> bool {
        if root.is_empty() {
            return false;
        }
        let (leaf, mut path) = self.descend(*root, key);
        let node = &mut self.nodes[leaf];
        let at = node.position(key);
        if node.keys().get(at) != Some(&key) {
            return false;
        }
        node.remove_key(at);
        if node.len > 0 {
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
        loop {
            if path.depth == 0 {
                // Every node has been freed on the way.
                root.0 = NONE;
                return true;
            }
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
        while !self.nodes[root.0].leaf && self.nodes[root.0].len == 0 {
            let child = self.nodes[root.0].children[0];
            self.nodes.free(root.0);
            root.0 = child;
        }
        true
    }

    /// The largest key below `key` and the smallest that is at least `key`.
    pub(crate) fn around(&self, root: Root, key: u128) -> (Option<u128>, Option<u128>) {
        if root.is_empty() {
            return (None, None);
        }
        let mut at = root.0;
        while !self.nodes[at].leaf {
            let node = &self.nodes[at];
            at = node.children[node.way(key)];
        }
        let leaf = &self.nodes[at];
        let at = leaf.position(key);
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

    pub(crate) fn first(&self, root: Root) -> Option<u128> {
        let mut at = root.0;
        while let Some(node) = self.nodes.get(at) {
            if node.leaf {
                return node.keys().first().copied();
            }
            at = node.children[0];
        }
        None
    }

    fn descend(&self, root: Root, key: u128) -> (u32, Path) {
        let mut path = Path {
            steps: [(NONE, 0); LEVELS],
            depth: 0,
        };
        let mut at = root.0;
        loop {
            let node = &self.nodes[at];
            if node.leaf {
                return (at, path);
            }
            let taken = node.way(key);
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

/// A set with an arena of its own.
#[derive(Debug, Default)]
pub(crate) struct OrderedSet {
    forest: Forest,
    root: Root,
}

impl OrderedSet {
    /// The key must not be there.
    pub(crate) fn insert(&mut self, key: u128) {
        self.forest.insert(&mut self.root, key);
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, key: u128) -> bool {
        self.forest.remove(&mut self.root, key)
    }

    /// The smallest key that is at least `key`.
    pub(crate) fn first_from(&self, key: u128) -> Option<u128> {
        self.forest.around(self.root, key).1
    }

    pub(crate) fn first(&self) -> Option<u128> {
        self.forest.first(self.root)
    }
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
                prop_assert_eq!(set.forest.around(set.root, key).0, model.range(..key).next_back().copied());
                prop_assert_eq!(set.first(), model.first().copied());
                prop_assert_eq!(set.root.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn sets_in_one_arena_are_apart() {
        let (mut forest, mut roots) = (Forest::default(), [Root::default(); 7]);
        for i in 0..7000u128 {
            forest.insert(&mut roots[i as usize % 7], i);
        }
        for (i, root) in roots.iter().enumerate() {
            assert_eq!(forest.first(*root), Some(i as u128));
            assert_eq!(forest.around(*root, 3500).1, Some(3500 + i as u128));
        }
        for i in (0..7000u128).rev() {
            assert!(forest.remove(&mut roots[i as usize % 7], i));
        }
        assert!(roots.iter().all(|root| root.is_empty()) && forest.nodes.len() == 0);
    }

    #[test]
    fn thousands_come_and_go() {
        for step in [1u128, 7919] {
            let mut set = OrderedSet::default();
            for round in 0..2 {
                for i in 0..20_000u128 {
                    set.insert(i * step % 20_011 + round);
                }
                let nodes = set.forest.nodes.len();
                assert!(nodes < 3000, "{nodes}");
                for i in 0..20_000u128 {
                    assert!(set.remove(i * step % 20_011 + round));
                }
                assert!(set.root.is_empty() && set.forest.nodes.len() == 0);
            }
        }
    }
}
