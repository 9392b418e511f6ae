//! Range locks of files. A sieved write with holes holds the range that it reads and writes back. In atomic mode each
//! call holds its whole range, shared with other readers if it reads.
//!
//! The real servers keep locks by object, and a client takes them from one server after the other, in the order of the
//! servers. What is held or waited for is therefore the range as a whole. Requests are granted in the order of arrival.
use std::collections::{BTreeMap, VecDeque};

/// A byte range of a file, its end excluded.
pub(crate) type Span = (i64, i64);

#[derive(Default)]
struct File {
    held: Vec<Lock>,
    waiting: VecDeque<Lock>,
}

#[derive(Clone, Copy)]
struct Lock {
    rank: u32,
    span: Span,
    shared: bool,
}

impl Lock {
    fn hinders(&self, other: &Lock) -> bool {
        meet(self.span, other.span) && !(self.shared && other.shared)
    }
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
    /// Requests the range; returns whether `rank` has it now. If not, [`Locks::unlock`] will name it.
    pub(crate) fn lock(&mut self, file: u32, rank: u32, span: Span, shared: bool) -> bool {
        let file = self.files.entry(file).or_default();
        let lock = Lock { rank, span, shared };
        if file
            .held
            .iter()
            .chain(&file.waiting)
            .any(|l| l.hinders(&lock))
        {
            file.waiting.push_back(lock);
            return false;
        }
        file.held.push(lock);
        true
    }

    /// Releases the range of `rank` in a file; returns the ranks that have theirs now.
    pub(crate) fn unlock(&mut self, file: u32, rank: u32) -> Vec<u32> {
        let Some(state) = self.files.get_mut(&file) else {
            return Vec::new();
        };
        state.held.retain(|held| held.rank != rank);
        let mut granted = Vec::new();
        let mut still = VecDeque::new();
        for lock in std::mem::take(&mut state.waiting) {
            if state.held.iter().chain(&still).any(|l| l.hinders(&lock)) {
                still.push_back(lock);
            } else {
                state.held.push(lock);
                granted.push(lock.rank);
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

    /// Takes an exclusive lock.
    fn lock(locks: &mut Locks, file: u32, rank: u32, span: Span) -> bool {
        locks.lock(file, rank, span, false)
    }

    #[test]
    fn overlapping_ranges_are_held_one_after_the_other() {
        let mut locks = Locks::default();
        assert!(lock(&mut locks, 0, 1, (0, 100)) && lock(&mut locks, 0, 2, (100, 200)));
        assert!(lock(&mut locks, 1, 3, (0, 100)), "another file");
        assert!(!lock(&mut locks, 0, 4, (50, 150)));
        assert!(!lock(&mut locks, 0, 5, (140, 150)), "nobody overtakes");
        assert!(!lock(&mut locks, 0, 6, (0, 10)) && lock(&mut locks, 0, 7, (200, 300)));
        assert_eq!(locks.unlock(0, 1), vec![6]);
        assert_eq!(locks.unlock(0, 6), Vec::<u32>::new());
        assert_eq!(locks.unlock(0, 2), vec![4]);
        assert_eq!(locks.unlock(0, 4), vec![5]);
        for (file, rank) in [(0, 5), (0, 7), (1, 3)] {
            assert!(locks.unlock(file, rank).is_empty());
        }
        assert!(locks.files.is_empty());
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut locks = Locks::default();
        assert!(locks.lock(0, 1, (0, 100), true) && locks.lock(0, 2, (50, 150), true));
        assert!(!locks.lock(0, 3, (0, 200), false));
        assert!(!locks.lock(0, 4, (0, 100), true), "nobody overtakes");
        assert!(locks.unlock(0, 1).is_empty());
        assert_eq!(locks.unlock(0, 2), vec![3]);
        assert_eq!(locks.unlock(0, 3), vec![4]);
    }
}
