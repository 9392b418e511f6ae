//! Range locks of files: a sieved write with holes holds the range that it reads and writes back.
//!
//! The real servers keep locks by object; a client takes them from one server after the other, in the order of the servers, so
//! that what holds or waits is the range as a whole. Requests are granted in the order of their coming.
use std::collections::{BTreeMap, VecDeque};

/// A byte range of a file, its end excluded.
pub(crate) type Span = (i64, i64);

#[derive(Default)]
struct File {
    held: Vec<(u32, Span)>,
    waiting: VecDeque<(u32, Span)>,
}

/// The locks of all files, by the ranks that hold or want them.
#[derive(Default)]
pub(crate) struct Locks {
    files: BTreeMap<u32, File>,
}

fn meet(a: Span, b: Span) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Locks {
    /// Whether `rank` has the range now; if not, [`Locks::unlock`] will name it.
    pub(crate) fn lock(&mut self, file: u32, rank: u32, span: Span) -> bool {
        let file = self.files.entry(file).or_default();
        let taken = file.held.iter().chain(&file.waiting);
        if taken.into_iter().any(|(_, other)| meet(*other, span)) {
            file.waiting.push_back((rank, span));
            return false;
        }
        file.held.push((rank, span));
        true
    }

    /// Gives up what `rank` holds of a file; the ranks that have theirs now.
    pub(crate) fn unlock(&mut self, file: u32, rank: u32) -> Vec<u32> {
        let Some(state) = self.files.get_mut(&file) else {
            return Vec::new();
        };
        state.held.retain(|(holder, _)| *holder != rank);
        let mut granted = Vec::new();
        let mut still = VecDeque::new();
        for (rank, span) in std::mem::take(&mut state.waiting) {
            let taken = state.held.iter().chain(&still);
            if taken.into_iter().any(|(_, other)| meet(*other, span)) {
                still.push_back((rank, span));
            } else {
                state.held.push((rank, span));
                granted.push(rank);
            }
        }
        state.waiting = still;
        if state.held.is_empty() {
            self.files.remove(&file);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_held_one_after_the_other() {
        let mut locks = Locks::default();
        assert!(locks.lock(0, 1, (0, 100)) && locks.lock(0, 2, (100, 200)));
        assert!(locks.lock(1, 3, (0, 100)), "another file");
        assert!(!locks.lock(0, 4, (50, 150)));
        assert!(!locks.lock(0, 5, (140, 150)), "nobody overtakes");
        assert!(!locks.lock(0, 6, (0, 10)) && locks.lock(0, 7, (200, 300)));
        assert_eq!(locks.unlock(0, 1), vec![6]);
        assert_eq!(locks.unlock(0, 6), Vec::<u32>::new());
        assert_eq!(locks.unlock(0, 2), vec![4]);
        assert_eq!(locks.unlock(0, 4), vec![5]);
        for (file, rank) in [(0, 5), (0, 7), (1, 3)] {
            assert!(locks.unlock(file, rank).is_empty());
        }
        assert!(locks.files.is_empty());
    }
}
