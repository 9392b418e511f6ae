//! Open objects, so that a request does not open its file anew.
//!
//! Problem: descriptors are few, objects are many, and an object must never be open twice (two copies
//! would disagree about its record).
//! Idea: second chance (clock), an approximation of LRU whose hit costs one bit: the hand clears the
//! used bit of what it passes and takes the first entry unused since its last round. Entries held by
//! callers are passed over, so that the cache can exceed its bound by what is in use and no more.
use penstock_layout::FileId;
use std::collections::HashMap;
use std::sync::Arc;

/// At most `bound` idle objects.
pub(crate) struct Cache<T> {
    bound: usize,
    place: HashMap<FileId, usize>,
    ring: Vec<Entry<T>>,
    hand: usize,
}

struct Entry<T> {
    id: FileId,
    object: Arc<T>,
    used: bool,
}

impl<T> Cache<T> {
    pub(crate) fn new(bound: usize) -> Cache<T> {
        Cache {
            bound: bound.max(1),
            place: HashMap::new(),
            ring: Vec::new(),
            hand: 0,
        }
    }

    pub(crate) fn get(&mut self, id: FileId) -> Option<Arc<T>> {
        let entry = self.ring.get_mut(*self.place.get(&id)?)?;
        entry.used = true;
        Some(entry.object.clone())
    }

    /// Puts in an object that is not there yet. What it displaces is handed back, to be closed outside
    /// the caller's lock.
    #[must_use]
    pub(crate) fn insert(&mut self, id: FileId, object: Arc<T>) -> Vec<Arc<T>> {
        let mut displaced = Vec::new();
        // Room for the new one; more than one leaves only when a crowd in use has shrunk again.
        while self.ring.len() >= self.bound && displaced.len() < 2 {
            let Some(victim) = self.victim() else { break };
            displaced.extend(self.take(victim));
        }
        self.place.insert(id, self.ring.len());
        self.ring.push(Entry {
            id,
            object,
            used: true,
        });
        displaced
    }

    pub(crate) fn remove(&mut self, id: FileId) -> Option<Arc<T>> {
        self.place.contains_key(&id).then(|| self.take(id))?
    }

    /// The entry to displace: two rounds of the hand find one unless all are held by callers.
    fn victim(&mut self) -> Option<FileId> {
        for _ in 0..2 * self.ring.len() {
            self.hand = (self.hand + 1) % self.ring.len();
            let entry = &mut self.ring[self.hand];
            if Arc::strong_count(&entry.object) > 1 {
                continue;
            }
            if !entry.used {
                return Some(entry.id);
            }
            entry.used = false;
        }
        None
    }

    fn take(&mut self, id: FileId) -> Option<Arc<T>> {
        let at = self.place.remove(&id)?;
        let entry = self.ring.swap_remove(at);
        if let Some(moved) = self.ring.get(at) {
            self.place.insert(moved.id, at);
        }
        Some(entry.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(cache: &Cache<u64>) -> Vec<u64> {
        let mut ids: Vec<u64> = cache.place.keys().map(|id| id.0).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn idle_objects_stay_within_the_bound_and_the_used_one_survives() {
        let mut cache = Cache::new(4);
        for id in 0..100u64 {
            drop(cache.insert(FileId(id), Arc::new(id)));
            assert_eq!(cache.get(FileId(id)).as_deref(), Some(&id));
            if id > 0 {
                assert!(cache.get(FileId(0)).is_some(), "used in every round");
            }
            assert!(cache.ring.len() <= 4);
            assert_eq!(cache.place.len(), cache.ring.len());
        }
    }

    #[test]
    fn held_objects_are_never_displaced_and_the_excess_goes_later() {
        let mut cache = Cache::new(2);
        let held: Vec<_> = (0..6u64).map(Arc::new).collect();
        for h in &held {
            assert!(cache.insert(FileId(**h), h.clone()).is_empty());
        }
        assert_eq!(ids(&cache), [0, 1, 2, 3, 4, 5]);
        drop(held);
        for id in 10..20u64 {
            drop(cache.insert(FileId(id), Arc::new(id)));
        }
        assert_eq!(cache.ring.len(), 2);
    }

    #[test]
    fn removal_keeps_the_index_right() {
        let mut cache = Cache::new(8);
        for id in 0..8u64 {
            drop(cache.insert(FileId(id), Arc::new(id)));
        }
        assert_eq!(cache.remove(FileId(2)).as_deref(), Some(&2));
        assert_eq!(cache.remove(FileId(2)), None);
        for id in [0, 1, 3, 4, 5, 6, 7] {
            assert_eq!(cache.get(FileId(id)).as_deref(), Some(&id));
        }
    }
}
