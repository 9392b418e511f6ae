//! A cache of open objects, so that a request does not open its file again.
//!
//! Problem: descriptors are scarce and objects many. An object must never be open twice, because the two copies would
//! disagree about its record. Idea: second chance (clock), an approximation of LRU whose hit costs one bit. The hand
//! clears the used bit of what it passes and takes the first entry unused since its last round. Entries held by callers
//! are skipped, so that the cache exceeds its bound only by what is in use. So are entries with unsynced writes: the
//! system may forget a write-back error once nobody has the file open. The caller syncs entries that block eviction
//! ([`Cache::unclean`]).
use penstock_layout::FileId;
use std::collections::HashMap;
use std::sync::Arc;

/// Open objects.
pub(crate) struct Cache<T> {
    /// Whether closing it loses nothing.
    clean: fn(&T) -> bool,
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
    pub(crate) fn new(clean: fn(&T) -> bool) -> Cache<T> {
        Cache {
            clean,
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

    /// Inserts an object that is not there yet, keeping at most `bound` idle ones. Returns evicted objects, to be
    /// closed outside the caller's lock.
    #[must_use]
    pub(crate) fn insert(&mut self, id: FileId, object: Arc<T>, bound: usize) -> Vec<Arc<T>> {
        // Makes room for the new one; more than one is evicted only when many objects in use have been released.
        let excess = (self.ring.len() + 1).saturating_sub(bound.max(1));
        let displaced = self.displace(excess.min(2));
        self.place.insert(id, self.ring.len());
        self.ring.push(Entry {
            id,
            object,
            used: true,
        });
        displaced
    }

    /// Evicts at most `most` idle clean objects.
    #[must_use]
    pub(crate) fn displace(&mut self, most: usize) -> Vec<Arc<T>> {
        let mut displaced = Vec::new();
        while displaced.len() < most {
            let Some(victim) = self.victim() else { break };
            displaced.extend(self.take(victim));
        }
        displaced
    }

    /// At most `most` idle objects that must be synced before they can be evicted, if there are more than `bound`
    /// objects.
    pub(crate) fn unclean(&self, bound: usize, most: usize) -> Vec<Arc<T>> {
        if self.ring.len() <= bound.max(1) {
            return Vec::new();
        }
        let idle = |e: &&Entry<T>| Arc::strong_count(&e.object) == 1 && !(self.clean)(&e.object);
        let (before, behind) = self.ring.split_at(self.hand.min(self.ring.len()));
        let around = behind.iter().chain(before);
        around
            .filter(idle)
            .take(most)
            .map(|e| e.object.clone())
            .collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.ring.iter().map(|entry| &entry.object)
    }

    pub(crate) fn remove(&mut self, id: FileId) -> Option<Arc<T>> {
        self.place.contains_key(&id).then(|| self.take(id))?
    }

    /// The entry to evict: two rounds of the hand find one unless callers hold all.
    fn victim(&mut self) -> Option<FileId> {
        for _ in 0..2 * self.ring.len() {
            self.hand = (self.hand + 1) % self.ring.len();
            let entry = &mut self.ring[self.hand];
            if Arc::strong_count(&entry.object) > 1 || !(self.clean)(&entry.object) {
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
        let mut cache = Cache::new(|_| true);
        for id in 0..100u64 {
            drop(cache.insert(FileId(id), Arc::new(id), 4));
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
        let mut cache = Cache::new(|_| true);
        let held: Vec<_> = (0..6u64).map(Arc::new).collect();
        for h in &held {
            assert!(cache.insert(FileId(**h), h.clone(), 2).is_empty());
        }
        assert_eq!(ids(&cache), [0, 1, 2, 3, 4, 5]);
        drop(held);
        for id in 10..20u64 {
            drop(cache.insert(FileId(id), Arc::new(id), 2));
        }
        assert_eq!(cache.ring.len(), 2);
    }

    #[test]
    fn unclean_objects_stay_until_they_are_clean() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let mut cache: Cache<AtomicBool> = Cache::new(|clean| clean.load(Relaxed));
        for id in 0..10 {
            drop(cache.insert(FileId(id), Arc::new(AtomicBool::new(id == 3)), 4));
        }
        // The clean one was evicted, the others block eviction.
        assert!(cache.get(FileId(3)).is_none() && cache.ring.len() == 9);
        assert!(cache.unclean(9, 5).is_empty());
        let unclean = cache.unclean(4, 5);
        assert_eq!(unclean.len(), 5);
        unclean
            .iter()
            .for_each(|object| object.store(true, Relaxed));
        assert!(cache.displace(9).is_empty(), "held here");
        drop(unclean);
        assert_eq!(cache.displace(9).len(), 5);
        assert_eq!(cache.ring.len(), 4);
    }

    #[test]
    fn removal_keeps_the_index_right() {
        let mut cache = Cache::new(|_| true);
        for id in 0..8u64 {
            drop(cache.insert(FileId(id), Arc::new(id), 8));
        }
        assert_eq!(cache.remove(FileId(2)).as_deref(), Some(&2));
        assert_eq!(cache.remove(FileId(2)), None);
        for id in [0, 1, 3, 4, 5, 6, 7] {
            assert_eq!(cache.get(FileId(id)).as_deref(), Some(&id));
        }
    }
}
