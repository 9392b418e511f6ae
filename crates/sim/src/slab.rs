//! Records with numbers, which are reused.
//!
//! The crate `slab` drops what it frees. Here the records stay, so that their lists are reused. A simulation makes a
//! part of a request and a service every few events, each with lists of its own.

/// Records by number; the number of a removed record is reused.
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

    /// Adds a record; the former contents are passed to `reuse`, so that their memory can be reused.
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
