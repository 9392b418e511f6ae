//! The virtual requests of one queue by offset: few of them in the queue's own record, more in a tree.
//!
//! *Problem*: with many files a queue holds few requests, and a tree's node for them is one more place in memory that
//! each step has to wait for. *Idea*: up to [`FEW`] keys stand in order beside what else is known of the queue, two lines of
//! the processor's cache; one more moves them all to a tree ([`Forest`]), and they come back when half as many are left.
use crate::set::{Forest, Key, Root, Spot, below};

/// Keys without a tree.
const FEW: usize = 10;
/// A tree that has shrunk to so many is given up.
const BACK: u32 = FEW as u32 / 2;

/// See the module's text. Keys are offsets and numbers.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Places {
    /// Has all of the keys, or none.
    tree: Root,
    len: u32,
    /// `u64::MAX` behind the last one.
    offsets: [u64; FEW],
    numbers: [u32; FEW],
}

const _: () = assert!(size_of::<Places>() == 128);

impl Default for Places {
    fn default() -> Places {
        Places {
            tree: Root::default(),
            len: 0,
            offsets: [u64::MAX; FEW],
            numbers: [0; FEW],
        }
    }
}

impl Places {
    fn key(&self, at: usize) -> Key {
        Key::new(self.offsets[at], self.numbers[at])
    }

    /// Of those that stand here.
    fn get(&self, at: usize) -> Option<Key> {
        (at < self.len as usize).then(|| self.key(at))
    }

    /// How many of those that stand here are below this one.
    fn position(&self, limit: Key) -> usize {
        let mut at = below(&self.offsets, limit.rank);
        while self.get(at).is_some_and(|key| key < limit) {
            at += 1;
        }
        at
    }

    fn put(&mut self, at: usize, key: Key) {
        (self.offsets[at], self.numbers[at]) = (key.rank, key.number());
    }

    /// The key must not be there. `spot` is where a search for a larger one has ended just now.
    pub(crate) fn insert(&mut self, forest: &mut Forest, spot: Spot, new: Key) {
        let len = self.len as usize;
        if !self.tree.is_empty() {
            forest.insert_near(&mut self.tree, spot, new);
        } else if len < FEW {
            let at = self.position(new);
            debug_assert!(self.get(at) != Some(new), "twice");
            self.offsets.copy_within(at..len, at + 1);
            self.numbers.copy_within(at..len, at + 1);
            self.put(at, new);
        } else {
            for at in 0..FEW {
                let key = self.key(at);
                forest.insert(&mut self.tree, key);
            }
            self.offsets.fill(u64::MAX);
            forest.insert(&mut self.tree, new);
        }
        self.len += 1;
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, forest: &mut Forest, old: Key) -> bool {
        let len = self.len as usize;
        if self.tree.is_empty() {
            let at = self.position(old);
            if self.get(at) != Some(old) {
                return false;
            }
            self.offsets.copy_within(at + 1..len, at);
            self.numbers.copy_within(at + 1..len, at);
            self.offsets[len - 1] = u64::MAX;
            self.len -= 1;
            return true;
        }
        if !forest.remove(&mut self.tree, old) {
            return false;
        }
        self.len -= 1;
        if self.len == BACK {
            for at in 0..self.len as usize {
                let Some(first) = forest.first(self.tree) else {
                    break;
                };
                forest.remove(&mut self.tree, first);
                self.put(at, first);
            }
        }
        true
    }

    /// The largest key below `limit` and the smallest that is at least `limit`.
    pub(crate) fn around(&self, forest: &Forest, limit: Key) -> (Option<Key>, Option<Key>, Spot) {
        if !self.tree.is_empty() {
            return forest.search(self.tree, limit);
        }
        let at = self.position(limit);
        (self.get(at.wrapping_sub(1)), self.get(at), Spot::default())
    }

    pub(crate) fn first(&self, forest: &Forest) -> Option<Key> {
        self.two(forest)[0]
    }

    /// A key will be looked for.
    pub(crate) fn fetch(&self, forest: &Forest, key: Key) {
        forest.fetch(self.tree, key);
    }

    /// The first and the one behind it.
    pub(crate) fn two(&self, forest: &Forest) -> [Option<Key>; 2] {
        match self.tree.is_empty() {
            true => [self.get(0), self.get(1)],
            false => forest.two(self.tree),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn few_or_many_they_are_a_set(
            steps in proptest::collection::vec((any::<bool>(), 0u64..24), 0..300),
            // Offsets far apart, some that are equal, all of them equal.
            spread in prop::sample::select(vec![1u64, 4, 64]),
        ) {
            let (mut forest, mut places, mut model) = (Forest::default(), Places::default(), BTreeSet::new());
            for (adds, key) in steps {
                let key = Key::new((key / spread) << 58, key as u32);
                if adds {
                    if model.insert(key) { places.insert(&mut forest, Spot::default(), key); }
                } else {
                    prop_assert_eq!(places.remove(&mut forest, key), model.remove(&key));
                }
                let around = (model.range(..key).next_back().copied(), model.range(key..).next().copied());
                let (before, from, _) = places.around(&forest, key);
                prop_assert_eq!((before, from), around);
                prop_assert_eq!(places.first(&forest), model.first().copied());
                prop_assert_eq!(places.len as usize, model.len());
                let mut two = model.iter().copied();
                prop_assert_eq!(places.two(&forest)[1], two.nth(1));
                prop_assert!(places.tree.is_empty() || model.len() > BACK as usize);
            }
        }
    }
}
