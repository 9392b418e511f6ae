//! The union of the intervals of a call's children, as they come, in any order.
//!
//! Exclusive time of a call is its interval less this union. Children mostly come in order and overlap the one before, so
//! one interval is kept in place. Those apart from it go to a list, which is merged when it grows.

/// Intervals in the list before it is merged.
const MERGE_AT: usize = 1024;

/// A union of half-open intervals, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Cover {
    begin: u64,
    end: u64,
    /// Those that don't touch the one above; unordered.
    apart: Vec<(u64, u64)>,
    /// Sum of all lengths that were added.
    sum: u64,
}

impl Cover {
    /// Adds `[begin, end)`.
    pub fn add(&mut self, begin: u64, end: u64) {
        if end <= begin {
            return;
        }
        self.sum += end - begin;
        if self.end == 0 {
            (self.begin, self.end) = (begin, end);
        } else if begin <= self.end && end >= self.begin {
            self.begin = self.begin.min(begin);
            self.end = self.end.max(end);
        } else {
            self.apart.push((self.begin, self.end));
            (self.begin, self.end) = (begin, end);
            if self.apart.len() >= MERGE_AT.max(self.apart.capacity() / 2)
                && self.apart.len().is_power_of_two()
            {
                merge(&mut self.apart);
            }
        }
    }

    /// Length of the union within `[begin, end)`.
    pub fn within(&mut self, begin: u64, end: u64) -> u64 {
        let clipped = |(b, e): (u64, u64)| e.min(end).saturating_sub(b.max(begin));
        if self.apart.is_empty() {
            return clipped((self.begin, self.end));
        }
        self.close();
        self.apart.iter().copied().map(clipped).sum()
    }

    /// Length of the union.
    pub fn length(&mut self) -> u64 {
        self.within(0, u64::MAX)
    }

    /// Sum of the lengths of all intervals, those that overlap each counted.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// All in the list, in order and disjoint.
    fn close(&mut self) {
        if self.end != 0 {
            self.apart.push((self.begin, self.end));
            (self.begin, self.end) = (0, 0);
        }
        merge(&mut self.apart);
    }
}

fn merge(list: &mut Vec<(u64, u64)>) {
    list.sort_unstable();
    let mut kept = 0;
    for i in 1..list.len() {
        let (begin, end) = list[i];
        if begin <= list[kept].1 {
            list[kept].1 = list[kept].1.max(end);
        } else {
            kept += 1;
            list[kept] = (begin, end);
        }
    }
    list.truncate(kept + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_union_is_that_of_a_set(
            spans in proptest::collection::vec((1u64..400, 0u64..40), 0..60),
            (begin, length) in (0u64..450, 0u64..450),
        ) {
            let mut cover = Cover::default();
            let mut set = std::collections::BTreeSet::new();
            for (b, n) in &spans {
                cover.add(*b, b + n);
                set.extend(*b..b + n);
            }
            prop_assert_eq!(cover.sum(), spans.iter().map(|s| s.1).sum::<u64>());
            prop_assert_eq!(cover.within(begin, begin + length), set.range(begin..begin + length).count() as u64);
            prop_assert_eq!(cover.length(), set.len() as u64);
        }
    }

    #[test]
    fn many_intervals_are_bounded_where_they_join() {
        let mut cover = Cover::default();
        for round in 0..4u64 {
            for i in 0..10_000u64 {
                cover.add(1 + i * 10 + round, 1 + i * 10 + round + 1);
            }
        }
        assert_eq!(cover.length(), 40_000);
        assert!(cover.apart.len() <= 10_000);
    }
}
