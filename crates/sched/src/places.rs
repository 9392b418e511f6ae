//! The virtual requests of one queue by offset: few of them in the queue's own record, more in a tree.
//!
//! *Problem*: with many files a queue holds few requests, and a tree's node for them is one more place in memory that
//! each step has to wait for. *Idea*: up to [`FEW`] keys stand in order beside what else is known of the queue, two lines of
//! the processor's cache; one more moves them all to a tree ([`Forest`]), and they come back when half as many are left.
use crate::set::{Forest, Root};

/// Keys without a tree.
const FEW: usize = 10;
/// A tree that has shrunk to so many is given up.
const BACK: u32 = FEW as u32 / 2;

/// A key of 96 bits, highest word first.
type Words = [u32; 3];

/// See the module's text. Keys have 96 bits: an offset and a number.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Places {
    /// Has all of the keys, or none.
    tree: Root,
    len: u32,
    keys: [Words; FEW],
}

const _: () = assert!(size_of::<Places>() == 128);

impl Default for Places {
    fn default() -> Places {
        Places {
            tree: Root::default(),
            len: 0,
            keys: [[0; 3]; FEW],
        }
    }
}

fn words(key: u128) -> Words {
    [(key >> 64) as u32, (key >> 32) as u32, key as u32]
}

fn key([high, middle, low]: Words) -> u128 {
    (u128::from(high) << 64) | (u128::from(middle) << 32) | u128::from(low)
}

impl Places {
    /// Those that stand in this record, in order: all or none.
    pub(crate) fn near(&self) -> impl Iterator<Item = u128> + '_ {
        self.here().iter().map(|k| key(*k))
    }

    fn here(&self) -> &[Words] {
        match self.tree.is_empty() {
            true => &self.keys[..self.len as usize],
            false => &[],
        }
    }

    /// How many of those that stand here are below this one.
    fn position(&self, limit: u128) -> usize {
        self.near().take_while(|k| *k < limit).count()
    }

    /// The key must not be there.
    pub(crate) fn insert(&mut self, forest: &mut Forest, new: u128) {
        let (at, len) = (self.position(new), self.len as usize);
        self.len += 1;
        if self.tree.is_empty() && len < FEW {
            debug_assert!(at == len || key(self.keys[at]) != new, "twice");
            self.keys.copy_within(at..len, at + 1);
            self.keys[at] = words(new);
            return;
        }
        if self.tree.is_empty() {
            for k in self.keys {
                forest.insert(&mut self.tree, key(k));
            }
        }
        forest.insert(&mut self.tree, new);
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, forest: &mut Forest, old: u128) -> bool {
        let (at, len) = (self.position(old), self.len as usize);
        let known = match self.tree.is_empty() {
            true => at < len && key(self.keys[at]) == old,
            false => forest.remove(&mut self.tree, old),
        };
        if !known {
            return false;
        }
        self.len -= 1;
        if self.tree.is_empty() {
            self.keys.copy_within(at + 1..len, at);
        } else if self.len == BACK {
            for at in 0..self.len as usize {
                let Some(first) = forest.first(self.tree) else {
                    break;
                };
                forest.remove(&mut self.tree, first);
                self.keys[at] = words(first);
            }
        }
        true
    }

    /// The largest key below `limit` and the smallest that is at least `limit`.
    pub(crate) fn around(&self, forest: &Forest, limit: u128) -> (Option<u128>, Option<u128>) {
        if !self.tree.is_empty() {
            return forest.around(self.tree, limit);
        }
        let keys = self.here();
        let at = self.position(limit);
        let before = at.checked_sub(1).map(|at| key(keys[at]));
        (before, keys.get(at).map(|k| key(*k)))
    }

    pub(crate) fn first(&self, forest: &Forest) -> Option<u128> {
        match self.tree.is_empty() {
            true => self.near().next(),
            false => forest.first(self.tree),
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
            steps in proptest::collection::vec((any::<bool>(), 0u128..24), 0..300),
            scale in prop::sample::select(vec![1u128, 1 << 31, 1 << 63, 1 << 90]),
        ) {
            let (mut forest, mut places, mut model) = (Forest::default(), Places::default(), BTreeSet::new());
            for (adds, key) in steps {
                let key = key * scale;
                if adds {
                    if model.insert(key) { places.insert(&mut forest, key); }
                } else {
                    prop_assert_eq!(places.remove(&mut forest, key), model.remove(&key));
                }
                let around = (model.range(..key).next_back().copied(), model.range(key..).next().copied());
                prop_assert_eq!(places.around(&forest, key), around);
                prop_assert_eq!(places.first(&forest), model.first().copied());
                prop_assert_eq!(places.len as usize, model.len());
                prop_assert!(!places.tree.is_empty() || places.near().eq(model.iter().copied()));
                prop_assert!(places.tree.is_empty() || model.len() > BACK as usize);
            }
        }
    }
}
