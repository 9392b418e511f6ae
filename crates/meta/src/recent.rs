//! A bounded map with approximate LRU eviction.
//!
//! Two generations: new and reused entries go to the young one. When that is full it becomes the old one, and the old
//! one is dropped. Operations take constant time, and there are never more than `capacity` entries.
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    pub fn new(capacity: usize) -> Recent<K, V> {
        Recent {
            young: HashMap::new(),
            old: HashMap::new(),
            half: (capacity / 2).max(1),
        }
    }

    pub fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.young.remove(key);
        self.old.remove(key);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_bounded_and_keeps_what_is_used() {
        let mut map = Recent::new(100);
        for i in 0..10_000u32 {
            map.insert(i, i);
            assert_eq!(map.get(&0), Some(0), "used all the time, at {i}");
            assert!(map.len() <= 100);
        }
        assert_eq!(map.get(&9_999), Some(9_999));
        assert_eq!(map.get(&5), None, "long unused");
    }

    #[test]
    fn newest_value_wins_in_both_generations() {
        let mut map = Recent::new(4);
        for i in 0..3 {
            map.insert(i, "first");
        }
        map.insert(0, "second");
        assert_eq!(map.get(&0), Some("second"));
        for i in 10..13 {
            map.insert(i, "other");
        }
        assert_ne!(map.get(&0), Some("first"));
        map.remove(&0);
        assert_eq!(map.get(&0), None);
    }
}
