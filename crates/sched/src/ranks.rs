//! Queues ordered by a rank that changes, the least first: bytes, age, or the time until which they wait.
//!
//! Equal ranks are ordered by number, so that the order is deterministic.
use std::collections::BTreeSet;

/// Numbers with a rank each.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    order: BTreeSet<(u64, usize)>,
    /// Rank of each number.
    ranks: Vec<Option<u64>>,
}

impl Ranks {
    /// The first: its rank and its number.
    pub(crate) fn first(&self) -> Option<(u64, usize)> {
        self.order.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        matches!(self.ranks.get(number), Some(Some(_)))
    }

    /// Adds a number, or changes its rank.
    pub(crate) fn set(&mut self, number: usize, rank: u64) {
        if self.ranks.len() <= number {
            self.ranks.resize(number + 1, None);
        }
        match self.ranks[number].replace(rank) {
            Some(old) if old == rank => return,
            Some(old) => self.order.remove(&(old, number)),
            None => false,
        };
        self.order.insert((rank, number));
    }

    /// Takes a number out, if it is there.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(rank) = self.ranks.get_mut(number).and_then(Option::take) {
            self.order.remove(&(rank, number));
        }
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
            steps in proptest::collection::vec((0u8..4, 0usize..60, 0u64..40), 0..800),
        ) {
            let (mut ranks, mut model) = (Ranks::default(), BTreeMap::new());
            for (what, number, rank) in steps {
                if what == 0 {
                    ranks.remove(number);
                    model.remove(&number);
                } else {
                    ranks.set(number, rank);
                    model.insert(number, rank);
                }
                let least = model.iter().map(|(number, rank)| (*rank, *number)).min();
                prop_assert_eq!(ranks.first(), least);
                prop_assert_eq!(ranks.has(number), what > 0);
                prop_assert_eq!(ranks.is_empty(), model.is_empty());
            }
        }
    }
}
