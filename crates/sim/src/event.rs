//! The event queue: virtual time moves from one event to the next.
//!
//! Events of one instant come out in the order in which they went in, so that a run depends on nothing but its input.
use penstock_device::Nanos;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events in order of time. `E` is a small value; nothing is allocated per event.
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    order: u64,
}

struct Entry<E> {
    at: Nanos,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E: Copy> Queue<E> {
    /// Without events.
    pub fn new() -> Queue<E> {
        Queue {
            heap: BinaryHeap::new(),
            order: 0,
        }
    }

    /// Adds an event at `at`.
    pub fn push(&mut self, at: Nanos, event: E) {
        self.order += 1;
        self.heap.push(Reverse(Entry {
            at,
            order: self.order,
            event,
        }));
    }

    /// Takes the earliest event.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.heap.pop().map(|Reverse(e)| (e.at, e.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_order_of_arrival() {
        let mut queue = Queue::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            queue.push(at, name);
        }
        let names: String = std::iter::from_fn(|| queue.pop()).map(|(_, e)| e).collect();
        assert_eq!(names, "abcd");
    }
}
