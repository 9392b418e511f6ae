//! File pointers (MPI-4.1 sections 14.4.3 and 14.4.4), in etypes of the view.
//!
//! Each rank has its own. Another one is shared by all: a [`Counter`] that is advanced atomically, so that no two calls
//! get the same bytes. If the ranks share memory it is a word there ([`Word`]); otherwise it is the file system's.
//! Ordered calls advance it once for all ranks and divide the range in rank order.
use crate::comm::Comm;
use crate::error::{Error, ErrorClass, Result};
use crate::filesystem::Counter;
use crate::node_memory::{NodeMemory, UNTOUCHED};
use penstock_host::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

/// Origin of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// `MPI_SEEK_SET`.
    Set,
    /// `MPI_SEEK_CUR`.
    Current,
    /// `MPI_SEEK_END`.
    End,
}

/// `base + offset` of a seek or an advance, checked.
pub(crate) fn moved(base: i64, offset: i64) -> Result<i64> {
    base.checked_add(offset)
        .filter(|position| *position >= 0)
        .ok_or_else(|| {
            Error::new(
                ErrorClass::Arg,
                format!("seek to {base} + {offset} leaves the file; stay at 0 or above"),
            )
        })
}

/// `before + etypes` of the shared pointer, checked.
pub(crate) fn advanced(before: i64, etypes: i64) -> Result<i64> {
    before.checked_add(etypes).ok_or_else(|| {
        Error::new(
            ErrorClass::Arg,
            format!("shared pointer {before} + {etypes} leaves 64 bits; seek back first"),
        )
    })
}

/// The shared pointer as a word of memory, without servers and locks.
pub(crate) struct Word {
    memory: CounterHome,
    initial: i64,
}

/// The place of the word.
pub(crate) enum CounterHome {
    /// Private: the file is open on one rank.
    Alone(AtomicI64),
    /// All ranks share a node.
    Node(Arc<NodeMemory>),
}

impl Word {
    pub(crate) fn new(memory: CounterHome, initial: i64) -> Word {
        Word { memory, initial }
    }

    fn word(&self) -> &AtomicI64 {
        match &self.memory {
            CounterHome::Alone(word) => word,
            CounterHome::Node(memory) => memory.pointer(),
        }
    }

    fn value(&self, word: i64) -> i64 {
        if word == UNTOUCHED {
            self.initial
        } else {
            word
        }
    }
}

impl Counter for Word {
    fn add(&self, n: i64) -> Result<i64> {
        let word = self.word();
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let before = self.value(seen);
            let after = advanced(before, n)?;
            match word.compare_exchange_weak(seen, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(before),
                Err(other) => seen = other,
            }
        }
    }
    fn set(&self, value: i64) -> Result<()> {
        self.word().store(value, Ordering::Release);
        Ok(())
    }
    fn get(&self) -> Result<i64> {
        Ok(self.value(self.word().load(Ordering::Acquire)))
    }
    fn free(&self) -> Result<()> {
        Ok(())
    }
}

/// Makes the counter at its first use.
type Make = dyn Fn(i64) -> Result<Box<dyn Counter>> + Send + Sync;

/// The shared pointer of an open file.
pub(crate) struct SharedPointer {
    make: Box<Make>,
    counter: OnceLock<Arc<dyn Counter>>,
    /// Its initial value.
    initial: Mutex<i64>,
}

impl SharedPointer {
    pub(crate) fn new(initial: i64, make: Box<Make>) -> SharedPointer {
        SharedPointer {
            make,
            counter: OnceLock::new(),
            initial: Mutex::new(initial),
        }
    }

    /// Whether this rank has used it.
    pub(crate) fn is_made(&self) -> bool {
        self.counter.get().is_some()
    }

    /// Sets the initial value, if it has not been used yet.
    pub(crate) fn reset(&self, initial: i64) {
        *self.initial.lock().unwrap_or_else(PoisonError::into_inner) = initial;
    }

    fn counter(&self) -> Result<&dyn Counter> {
        if let Some(counter) = self.counter.get() {
            return Ok(&**counter);
        }
        // One thread makes it, the others find it.
        let initial = self.initial.lock().unwrap_or_else(PoisonError::into_inner);
        if self.counter.get().is_none() {
            let counter = Arc::from((self.make)(*initial)?);
            return Ok(&**self.counter.get_or_init(|| counter));
        }
        drop(initial);
        self.counter()
    }

    /// Advances by `etypes`; returns the position before.
    pub(crate) fn advance(&self, etypes: u64) -> Result<i64> {
        let etypes = i64::try_from(etypes).map_err(|_| {
            Error::new(
                ErrorClass::Count,
                format!("an access of {etypes} etypes moves the shared pointer beyond 2^63"),
            )
        })?;
        self.counter()?.add(etypes)
    }

    pub(crate) fn get(&self) -> Result<i64> {
        self.counter()?.get()
    }

    pub(crate) fn set(&self, position: i64) -> Result<()> {
        self.counter()?.set(position)
    }

    /// Frees it, if it was used. Every rank calls this when all have finished.
    pub(crate) fn free(&self) -> Result<()> {
        match self.counter.get() {
            Some(counter) => counter.free(),
            None => Ok(()),
        }
    }

    /// Advances for all ranks' accesses in order of rank; `etypes` is this rank's. Returns the position of this rank's
    /// access. Collective.
    pub(crate) fn advance_ordered(&self, comm: &dyn Comm, etypes: &[u64]) -> Result<i64> {
        let sum = |ranks: &[u64]| ranks.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let (before, total) = (sum(&etypes[..comm.rank()]), sum(etypes));
        // Rank 0 moves the pointer and sends the others its former value, or the error.
        let mut told = Vec::new();
        let base = if comm.rank() == 0 {
            let base = self.advance(total);
            match &base {
                Ok(base) => {
                    told.push(0);
                    told.extend(base.to_le_bytes());
                }
                Err(_) => {
                    told.push(1);
                    told.extend(crate::comm::encode_outcome(&base));
                }
            }
            comm.bcast(0, &mut told)?;
            base?
        } else {
            comm.bcast(0, &mut told)?;
            match told.split_first() {
                Some((0, base)) => base.try_into().map(i64::from_le_bytes).unwrap_or(0),
                Some((_, outcome)) => {
                    crate::comm::decode_outcome(0, outcome)?;
                    0
                }
                None => 0,
            }
        };
        moved(base, i64::try_from(before).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same word as several ranks see it.
    fn node() -> Vec<Word> {
        let (first, offer, _file) = NodeMemory::offer(3, 4096).unwrap();
        let others = (1..3).map(|rank| NodeMemory::join(&offer, rank, 3).unwrap());
        let all: Vec<_> = std::iter::once(first).chain(others).collect();
        let word = |memory| Word::new(CounterHome::Node(Arc::new(memory)), 100);
        all.into_iter().map(word).collect()
    }

    #[test]
    fn a_word_begins_where_all_ranks_know_and_no_two_calls_get_the_same() {
        let ranks = node();
        assert!(ranks.iter().all(|rank| rank.get().unwrap() == 100));
        let mut got: Vec<i64> = std::thread::scope(|scope| {
            let add = |rank: &Word| (0..1000).map(|_| rank.add(3).unwrap()).collect();
            let threads: Vec<_> = ranks
                .iter()
                .map(|rank| scope.spawn(move || add(rank)))
                .collect();
            let all = threads.into_iter().map(|thread| thread.join().unwrap());
            all.flat_map(|one: Vec<i64>| one).collect()
        });
        got.sort_unstable();
        let expected: Vec<i64> = (0..3000).map(|k| 100 + 3 * k).collect();
        assert_eq!(got, expected);
        ranks[2].set(7).unwrap();
        assert_eq!((ranks[0].add(0).unwrap(), ranks[1].get().unwrap()), (7, 7));
    }

    #[test]
    fn a_word_does_not_leave_64_bits() {
        for word in node()
            .into_iter()
            .chain([Word::new(CounterHome::Alone(AtomicI64::new(UNTOUCHED)), 5)])
        {
            word.set(i64::MAX - 1).unwrap();
            assert_eq!(word.add(1).unwrap(), i64::MAX - 1);
            let e = word.add(1).unwrap_err();
            assert!(
                e.class == ErrorClass::Arg && e.message.contains("seek back"),
                "{e}"
            );
            assert_eq!(word.get().unwrap(), i64::MAX);
        }
    }
}
