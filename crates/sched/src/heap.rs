//! Numbered things by rank, the least first: queues by their bytes, their age, the time until which they wait.
//!
//! A heap of four children per node that knows where each number stands, so that a rank can change: O(log n), and all of
//! it lies in two arrays that stay in the processor's cache where a search tree of the same size does not. Equal ranks
//! are served by number: the order depends on nothing else.
use crate::set::Key;
use crate::slab::NONE;

const CHILDREN: usize = 4;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    items: Vec<Key>,
    /// By number: its index in `items`.
    places: Vec<u32>,
}

impl Heap {
    /// The first: a rank and a number.
    pub(crate) fn first(&self) -> Option<Key> {
        self.items.first().copied()
    }

    /// Number of the one that will be first when the first has gone.
    pub(crate) fn second(&self) -> Option<u32> {
        Some(self.items[self.least_child(0)?].number())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.place(number).is_some()
    }

    /// Adds a number, or changes its rank.
    pub(crate) fn set(&mut self, number: u32, rank: u64) {
        let item = Key::new(rank, number);
        match self.place(number) {
            Some(at) if self.items[at] == item => {}
            Some(at) => self.settle(at, item),
            None => {
                if self.places.len() <= number as usize {
                    self.places.resize(number as usize + 1, NONE);
                }
                self.items.push(item);
                self.settle(self.items.len() - 1, item);
            }
        }
    }

    /// Takes a number out, if it is there.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(at) = self.place(number) else {
            return;
        };
        self.places[number as usize] = NONE;
        if let Some(last) = self.items.pop()
            && at < self.items.len()
        {
            self.settle(at, last);
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        // An empty one needs not look into memory.
        self.items.first()?;
        let at = *self.places.get(number as usize)?;
        (at != NONE).then_some(at as usize)
    }

    /// Finds the place of an item that belongs at `at`, above or below it.
    fn settle(&mut self, mut at: usize, item: Key) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.items[parent] <= item {
                break;
            }
            self.put(at, self.items[parent]);
            at = parent;
        }
        while let Some(least) = self.least_child(at)
            && self.items[least] < item
        {
            self.put(at, self.items[least]);
            at = least;
        }
        self.put(at, item);
    }

    /// Which child of a node is first. Found without a branch where there are all four: nobody could predict it.
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * CHILDREN + 1;
        let children = self.items.get(first..)?;
        let Some(children) = children.first_chunk::<CHILDREN>() else {
            let few = (0..children.len()).min_by_key(|child| children[*child]);
            return few.map(|child| first + child);
        };
        let less =
            |one: usize, other: usize| usize::from(children[one].words() < children[other].words());
        let (low, high) = (less(1, 0), 2 + less(3, 2));
        Some(first + low + (high - low) * less(high, low))
    }

    fn put(&mut self, at: usize, item: Key) {
        self.items[at] = item;
        self.places[item.number() as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_least_is_first_whatever_changes(
            steps in proptest::collection::vec((0u8..4, 0u32..60, 0u64..40), 0..800),
        ) {
            let (mut heap, mut model) = (Heap::default(), BTreeMap::new());
            for (what, number, rank) in steps {
                if what == 0 {
                    heap.remove(number);
                    model.remove(&number);
                } else {
                    heap.set(number, rank);
                    model.insert(number, rank);
                }
                let least = model.iter().map(|(number, rank)| Key::new(*rank, *number)).min();
                prop_assert_eq!(heap.first(), least);
                let behind = model.iter().map(|(number, rank)| Key::new(*rank, *number)).filter(|item| Some(*item) != least);
                prop_assert_eq!(heap.second(), behind.min().map(Key::number));
                prop_assert_eq!(heap.is_empty(), model.is_empty());
            }
        }
    }
}
