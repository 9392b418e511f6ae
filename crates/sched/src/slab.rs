//! Records under small numbers that are used again: no allocation once it has grown to what is needed.
use crate::memory::grown;

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    records: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            records: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, record: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.records[at as usize] = record;
            return at;
        }
        if self.records.len() == self.records.capacity() {
            self.records = grown(std::mem::take(&mut self.records));
        }
        self.records.push(record);
        (self.records.len() - 1) as u32
    }

    /// The caller keeps no number of it.
    pub(crate) fn free(&mut self, at: u32) {
        self.free.push(at);
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.records.get(at as usize)
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.records.get_mut(at as usize)
    }

    /// Records in use and such that were.
    pub(crate) fn records(&self) -> impl Iterator<Item = &T> {
        self.records.iter()
    }

    pub(crate) fn records_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.records.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        &self.records[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.records[at as usize]
    }
}
