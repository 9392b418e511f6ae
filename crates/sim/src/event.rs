//! The event queue: virtual time moves from one event to the next.
//!
//! Problem: a million clients have a million events pending, and a binary heap of them misses the cache at each of
//! twenty levels. Idea: a radix heap. Time never decreases, so an event's bucket is the highest bit in which its time
//! differs from that of the last event taken. When the nearest buckets are empty, the next one is distributed over
//! them, front to back. Each event moves a few times, always in order of memory.
//!
//! Events of one instant are taken in the order in which they were added: they are always in one bucket and keep their
//! order there. A run therefore depends on nothing but its input. Source: Ahuja, Mehlhorn, Orlin, Tarjan, Faster
//! Algorithms for the Shortest Path Problem, J. ACM 37 (1990).
use penstock_base::Nanos;

/// One for each bit of a time, and one for the current time.
const BUCKETS: usize = 65;
/// Emptied buckets keep memory for this many events.
const KEPT: usize = 1 << 12;

/// Events in order of time. `E` is a small value; adding an event allocates nothing unless a bucket grows.
pub struct EventQueue<E> {
    buckets: Vec<Vec<(Nanos, E)>>,
    /// Events of the current time that have been taken.
    taken: usize,
    /// The time of the last event taken.
    now: Nanos,
}

fn bucket(now: Nanos, at: Nanos) -> usize {
    (Nanos::BITS - (now ^ at).leading_zeros()) as usize
}

impl<E: Copy> EventQueue<E> {
    /// Without events.
    pub fn new() -> EventQueue<E> {
        EventQueue {
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            taken: 0,
            now: 0,
        }
    }

    /// Adds an event at `at`; one earlier than the last event taken gets that event's time.
    pub fn push(&mut self, at: Nanos, event: E) {
        let at = at.max(self.now);
        self.buckets[bucket(self.now, at)].push((at, event));
    }

    /// Takes the earliest event.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        if self.taken == self.buckets[0].len() {
            self.buckets[0].clear();
            self.taken = 0;
            self.deal()?;
        }
        let event = self.buckets[0][self.taken];
        self.taken += 1;
        Some(event)
    }

    /// Advances time to the next event, and moves the events of that time to the current bucket.
    fn deal(&mut self) -> Option<()> {
        let nearest = self.buckets.iter().position(|b| !b.is_empty())?;
        let mut events = std::mem::take(&mut self.buckets[nearest]);
        self.now = events.iter().map(|e| e.0).min()?;
        for event in events.drain(..) {
            self.buckets[bucket(self.now, event.0)].push(event);
        }
        if events.capacity() <= KEPT {
            self.buckets[nearest] = events;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Random;

    #[test]
    fn time_first_then_the_order_of_arrival() {
        let mut queue = EventQueue::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            queue.push(at, name);
        }
        let names: String = std::iter::from_fn(|| queue.pop()).map(|(_, e)| e).collect();
        assert_eq!(names, "abcd");
    }

    #[test]
    fn events_that_make_events_come_in_order() {
        let mut random = Random::new(3);
        let mut queue = EventQueue::new();
        let mut waiting = std::collections::BTreeSet::new();
        let mut number = 0;
        let mut push =
            |queue: &mut EventQueue<u32>, waiting: &mut std::collections::BTreeSet<_>, at| {
                queue.push(at, number);
                waiting.insert((at, number));
                number += 1;
            };
        for _ in 0..500 {
            push(&mut queue, &mut waiting, random.bits() % 1000);
        }
        while let Some((now, event)) = queue.pop() {
            assert_eq!(waiting.pop_first(), Some((now, event)));
            if now < 1_000_000 && random.unit() < 0.98 {
                // Often at once, sometimes far away.
                let far = random.bits() % 6 * 3;
                let after = random.bits() % (1 << far);
                push(&mut queue, &mut waiting, now + after);
            }
        }
        assert!(waiting.is_empty());
    }
}
