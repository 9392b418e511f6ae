//! Ordered sets of numbers: what finding neighbours and choices by offset rest on.
//!
//! B+ trees whose nodes lie in one arena and are used again: insertion, removal and search are O(log n), and nothing is
//! allocated once the arena has grown to what is needed (the standard library's tree allocates nodes all the
//! time). Each queue with more than a few requests has a tree of its own (`places`). A leaf that has become thin is joined
//! to its neighbour once: without that, leaves of a queue that stays long end up two fifths full, and the trees
//! outgrow the caches. Inner nodes, which are few, are freed when they are empty.
use crate::memory::fetch;
use crate::slab::{NONE, Slab};

/// What sets are ordered by: a rank, and what tells apart those of the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) rank: u64,
    pub(crate) then: u64,
}

impl Key {
    pub(crate) fn new(rank: u64, number: u32) -> Key {
        Key {
            rank,
            then: number.into(),
        }
    }

    /// What has this place in the order.
    pub(crate) fn number(self) -> u32 {
        self.then as u32
    }

    /// The same order in one word, for comparisons without a branch.
    pub(crate) fn words(self) -> u128 {
        u128::from(self.rank) << 64 | u128::from(self.then)
    }
}

/// How many of these, which are in order, are below a rank. Halves without a branch: nobody could predict it.
pub(crate) fn below<const N: usize>(ranks: &[u64; N], rank: u64) -> usize {
    let (mut at, mut left) = (0, N);
    while left > 1 {
        let half = left / 2;
        at += half * usize::from(ranks[at + half - 1] < rank);
        left -= half;
    }
    at + usize::from(ranks[at] < rank)
}

const KEYS: usize = 24;
/// A leaf with so few keys is joined to its neighbour if both together have at most `MERGED`.
const THIN: u16 = KEYS as u16 / 3;
const MERGED: u16 = KEYS as u16 - 2;
/// Levels at most: one more takes 12 times as many insertions.
const LEVELS: usize = 16;

/// A search looks at ranks, which lie together in few lines of the processor's cache.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Node {
    len: u16,
    leaf: bool,
    /// Leaves: neighbours.
    before: u32,
    after: u32,
    /// `u64::MAX` behind the last key.
    ranks: [u64; KEYS],
    thens: [u64; KEYS],
    /// Inner nodes: children, one more than keys; child i has the keys below key i.
    children: [u32; KEYS + 1],
}

const _: () = assert!(size_of::<Node>() == 512);

impl Node {
    fn new(leaf: bool) -> Node {
        Node {
            ranks: [u64::MAX; KEYS],
            thens: [0; KEYS],
            children: [NONE; KEYS + 1],
            len: 0,
            leaf,
            before: NONE,
            after: NONE,
        }
    }

    fn key(&self, at: usize) -> Key {
        Key {
            rank: self.ranks[at],
            then: self.thens[at],
        }
    }

    fn get(&self, at: usize) -> Option<Key> {
        (at < self.len as usize).then(|| self.key(at))
    }

    fn last(&self) -> Option<Key> {
        self.get((self.len as usize).wrapping_sub(1))
    }

    /// How many keys are below this one.
    fn position(&self, key: Key) -> usize {
        let mut at = below(&self.ranks, key.rank);
        while self.get(at).is_some_and(|k| k < key) {
            at += 1;
        }
        at
    }

    /// Inner nodes: the child that has the key.
    fn way(&self, key: Key) -> usize {
        let mut at = below(&self.ranks, key.rank);
        while self.get(at).is_some_and(|k| k <= key) {
            at += 1;
        }
        at
    }

    fn insert_key(&mut self, at: usize, key: Key) {
        let len = self.len as usize;
        self.ranks.copy_within(at..len, at + 1);
        self.thens.copy_within(at..len, at + 1);
        (self.ranks[at], self.thens[at]) = (key.rank, key.then);
        self.len += 1;
    }

    fn remove_key(&mut self, at: usize) {
        let len = self.len as usize;
        self.ranks.copy_within(at + 1..len, at);
        self.thens.copy_within(at + 1..len, at);
        self.len -= 1;
        self.ranks[len - 1] = u64::MAX;
    }

    /// Moves the keys from `from` on to an empty node.
    fn give(&mut self, from: usize, to: &mut Node) {
        let moved = self.len as usize - from;
        to.ranks[..moved].copy_from_slice(&self.ranks[from..][..moved]);
        to.thens[..moved].copy_from_slice(&self.thens[from..][..moved]);
        to.len = moved as u16;
        self.ranks[from..].fill(u64::MAX);
        self.len = from as u16;
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

/// Where a search has ended: a key just below what was looked for is inserted there without another search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot(u32);

impl Default for Spot {
    fn default() -> Spot {
        Spot(NONE)
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

impl Path {
    /// The last node before the leaf, and the child taken.
    fn last(&self) -> Option<(u32, usize)> {
        let (at, taken) = self.steps[self.depth.checked_sub(1)?];
        Some((at, taken as usize))
    }
}

impl Forest {
    /// The key must not be there.
    pub(crate) fn insert(&mut self, root: &mut Root, key: Key) {
        if root.is_empty() {
            let mut leaf = Node::new(true);
            leaf.insert_key(0, key);
            root.0 = self.nodes.insert(leaf);
            return;
        }
        let leaf = self.leaf(*root, key);
        let node = &mut self.nodes[leaf];
        let at = node.position(key);
        debug_assert!(node.get(at) != Some(key), "twice");
        if (node.len as usize) < KEYS {
            node.insert_key(at, key);
            return;
        }
        // Ascending keys fill leaves nearly.
        let keep = if at == KEYS { KEYS - 2 } else { KEYS / 2 };
        let mut right = Node::new(true);
        node.give(keep, &mut right);
        right.before = leaf;
        right.after = node.after;
        if at <= keep {
            node.insert_key(at, key);
        } else {
            right.insert_key(at - keep, key);
        }
        let (separator, after) = (right.key(0), right.after);
        let path = self.path(*root, separator);
        let right = self.nodes.insert(right);
        self.nodes[leaf].after = right;
        if after != NONE {
            self.nodes[after].before = right;
        }
        self.grow(root, path, separator, right);
    }

    /// Puts a new right neighbour into the parents.
    fn grow(&mut self, root: &mut Root, mut path: Path, mut separator: Key, mut child: u32) {
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
            let up = node.key(keep);
            node.give(keep + 1, &mut right);
            let moved = right.len as usize;
            right.children[..=moved].copy_from_slice(&node.children[keep + 1..]);
            node.remove_key(keep);
            if taken <= keep {
                insert_child(node, taken, separator, child);
            } else {
                insert_child(&mut right, taken - keep - 1, separator, child);
            }
            separator = up;
            child = self.nodes.insert(right);
        }
        let mut top = Node::new(false);
        top.children[0] = root.0;
        insert_child(&mut top, 0, separator, child);
        root.0 = self.nodes.insert(top);
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, root: &mut Root, key: Key) -> bool {
        if root.is_empty() {
            return false;
        }
        let leaf = self.leaf(*root, key);
        let node = &mut self.nodes[leaf];
        let at = node.position(key);
        if node.get(at) != Some(key) {
            return false;
        }
        node.remove_key(at);
        match node.len {
            0 => self.drop_leaf(root, leaf, key),
            THIN => self.merge(root, key),
            _ => {}
        }
        true
    }

    /// Joins the leaf to which `key` leads to one beside it, where both have room in one.
    fn merge(&mut self, root: &mut Root, key: Key) {
        let path = self.path(*root, key);
        let Some((parent, taken)) = path.last() else {
            return;
        };
        let above = &self.nodes[parent];
        let taken = taken.min((above.len as usize).saturating_sub(1));
        let [left, right] = [above.children[taken], above.children[taken + 1]];
        if above.len == 0 || self.nodes[left].len + self.nodes[right].len > MERGED {
            return;
        }
        let from = self.nodes[right].clone();
        let to = &mut self.nodes[left];
        for at in 0..from.len as usize {
            to.insert_key(to.len as usize, from.key(at));
        }
        self.unlink(right);
        self.nodes.free(right);
        remove_child(&mut self.nodes[parent], taken + 1);
        self.lower(root);
    }

    /// Takes a leaf out of the list of all.
    fn unlink(&mut self, leaf: u32) {
        let Node { before, after, .. } = self.nodes[leaf];
        if before != NONE {
            self.nodes[before].after = after;
        }
        if after != NONE {
            self.nodes[after].before = before;
        }
    }

    /// A root with one child gives way to it.
    fn lower(&mut self, root: &mut Root) {
        while !self.nodes[root.0].leaf && self.nodes[root.0].len == 0 {
            let child = self.nodes[root.0].children[0];
            self.nodes.free(root.0);
            root.0 = child;
        }
    }

    /// Takes an empty leaf out of the tree, and all above it that have no other child. `key` leads to it.
    fn drop_leaf(&mut self, root: &mut Root, leaf: u32, key: Key) {
        let path = self.path(*root, key);
        self.unlink(leaf);
        self.nodes.free(leaf);
        for (at, taken) in path.steps[..path.depth].iter().rev() {
            let node = &mut self.nodes[*at];
            if node.len > 0 {
                remove_child(node, *taken as usize);
                return self.lower(root);
            }
            // Its only child is gone.
            self.nodes.free(*at);
        }
        // Every node has been freed on the way.
        root.0 = NONE;
    }

    /// Like `insert`, of a key for which there was room where the search for a larger one ended: unless something was
    /// inserted or removed since.
    pub(crate) fn insert_near(&mut self, root: &mut Root, spot: Spot, key: Key) {
        if let Some(leaf) = self.nodes.get_mut(spot.0)
            && (leaf.len as usize) < KEYS
        {
            let at = leaf.position(key);
            // Above its first key, it belongs nowhere else.
            if at > 0 {
                leaf.insert_key(at, key);
                return;
            }
        }
        self.insert(root, key);
    }

    /// The largest key below `key` and the smallest that is at least `key`.
    pub(crate) fn around(&self, root: Root, key: Key) -> (Option<Key>, Option<Key>) {
        let (before, from, _) = self.search(root, key);
        (before, from)
    }

    /// The same, and where they are.
    pub(crate) fn search(&self, root: Root, key: Key) -> (Option<Key>, Option<Key>, Spot) {
        if root.is_empty() {
            return (None, None, Spot::default());
        }
        let spot = self.leaf(root, key);
        let leaf = &self.nodes[spot];
        let at = leaf.position(key);
        let before = match at.checked_sub(1) {
            Some(at) => Some(leaf.key(at)),
            None => self.nodes.get(leaf.before).and_then(Node::last),
        };
        let from = match leaf.get(at) {
            Some(found) => Some(found),
            None => self.nodes.get(leaf.after).and_then(|leaf| leaf.get(0)),
        };
        (before, from, Spot(spot))
    }

    pub(crate) fn first(&self, root: Root) -> Option<Key> {
        self.two(root)[0]
    }

    /// The first; and the one behind it, unless that is in another leaf.
    pub(crate) fn two(&self, root: Root) -> [Option<Key>; 2] {
        let mut at = root.0;
        while let Some(node) = self.nodes.get(at) {
            if node.leaf {
                return [node.get(0), node.get(1)];
            }
            at = node.children[0];
        }
        [None; 2]
    }

    /// A key will be looked for: its leaf is fetched.
    pub(crate) fn fetch(&self, root: Root, key: Key) {
        if !root.is_empty() {
            fetch(&self.nodes[self.leaf(root, key)]);
        }
    }

    /// The leaf to which a key belongs.
    fn leaf(&self, root: Root, key: Key) -> u32 {
        let mut at = root.0;
        loop {
            let node = &self.nodes[at];
            if node.leaf {
                return at;
            }
            at = node.children[node.way(key)];
        }
    }

    /// The way there.
    fn path(&self, root: Root, key: Key) -> Path {
        let mut path = Path {
            steps: [(NONE, 0); LEVELS],
            depth: 0,
        };
        let mut at = root.0;
        loop {
            let node = &self.nodes[at];
            if node.leaf {
                return path;
            }
            let taken = node.way(key);
            path.steps[path.depth] = (at, taken as u16);
            path.depth += 1;
            at = node.children[taken];
        }
    }
}

/// Adds `child` to the right of child number `taken`.
fn insert_child(node: &mut Node, taken: usize, separator: Key, child: u32) {
    let len = node.len as usize;
    node.children.copy_within(taken + 1..=len, taken + 2);
    node.children[taken + 1] = child;
    node.insert_key(taken, separator);
}

/// Takes child number `taken` out.
fn remove_child(node: &mut Node, taken: usize) {
    let len = node.len as usize;
    node.children.copy_within(taken + 1..=len, taken);
    node.remove_key(taken.saturating_sub(1));
}

/// A set with an arena of its own.
#[derive(Debug, Default)]
pub(crate) struct OrderedSet {
    forest: Forest,
    root: Root,
}

impl OrderedSet {
    /// The key must not be there.
    pub(crate) fn insert(&mut self, key: Key) {
        self.forest.insert(&mut self.root, key);
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        self.forest.remove(&mut self.root, key)
    }

    /// The smallest key that is at least `key`.
    pub(crate) fn first_from(&self, key: Key) -> Option<Key> {
        self.forest.around(self.root, key).1
    }

    pub(crate) fn first(&self) -> Option<Key> {
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
            steps in proptest::collection::vec((0u8..8, 0u64..600), 0..3000),
            // Ranks far apart, some that are equal, all of them equal.
            spread in prop::sample::select(vec![1u64, 40, 600]),
        ) {
            let (mut set, mut model) = (OrderedSet::default(), BTreeSet::new());
            let mut drain = false;
            for (what, key) in steps {
                // Long runs of insertions and of removals, so that the tree grows and shrinks.
                if what == 7 && key < 20 { drain = !drain; }
                let key = Key { rank: (key / spread) << 54, then: key };
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

    fn key(i: u64) -> Key {
        Key::new(i, 0)
    }

    #[test]
    fn sets_in_one_arena_are_apart() {
        let (mut forest, mut roots) = (Forest::default(), [Root::default(); 7]);
        for i in 0..7000 {
            forest.insert(&mut roots[i as usize % 7], key(i));
        }
        for (i, root) in roots.iter().enumerate() {
            assert_eq!(forest.first(*root), Some(key(i as u64)));
            assert_eq!(
                forest.around(*root, key(3500)).1,
                Some(key(3500 + i as u64))
            );
        }
        for i in (0..7000).rev() {
            assert!(forest.remove(&mut roots[i as usize % 7], key(i)));
        }
        assert!(roots.iter().all(|root| root.is_empty()) && forest.nodes.len() == 0);
    }

    #[test]
    fn leaves_of_a_set_that_stays_are_half_full() {
        let (mut set, mut state) = (OrderedSet::default(), 1u64);
        let scattered: Vec<Key> = (0..200_000)
            .map(|i| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                Key::new(state >> 40, i)
            })
            .collect();
        for (at, key) in scattered.iter().enumerate() {
            set.insert(*key);
            if let Some(old) = at.checked_sub(10_000) {
                assert!(set.remove(scattered[old]));
            }
        }
        let full = 10_000.0 / (set.forest.nodes.len() * KEYS) as f64;
        assert!(full > 0.5, "{full}");
    }

    #[test]
    fn thousands_come_and_go() {
        for step in [1, 7919] {
            let mut set = OrderedSet::default();
            for round in 0..2 {
                for i in 0..20_000 {
                    set.insert(key(i * step % 20_011 + round));
                }
                let nodes = set.forest.nodes.len();
                assert!(nodes < 3000, "{nodes}");
                for i in 0..20_000 {
                    assert!(set.remove(key(i * step % 20_011 + round)));
                }
                assert!(set.root.is_empty() && set.forest.nodes.len() == 0);
            }
        }
    }
}
