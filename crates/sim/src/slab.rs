//! Numbered places that are used again.
//!
//! The crate `slab` drops what it frees. Here it stays, so that the lists in it serve the next user: a simulation makes a
//! part of a request and a service for every few events, each with lists of its own.

/// Values by number; the number of a removed value is given out again.
pub(crate) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// A place; what an earlier user left in it is handed to `reuse` so that its memory can serve again.
    pub(crate) fn put(&mut self, make: impl FnOnce(Option<&mut T>) -> Option<T>) -> u32 {
        if let Some(at) = self.free.pop() {
            if let Some(value) = make(Some(&mut self.places[at as usize])) {
                self.places[at as usize] = value;
            }
            return at;
        }
        if let Some(value) = make(None) {
            self.places.push(value);
        }
        (self.places.len() - 1) as u32
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.put(|_| Some(value))
    }

    pub(crate) fn free(&mut self, at: u32) {
        self.free.push(at);
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        &self.places[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.places[at as usize]
    }
}
