//! File pointers (MPI-4.1 sections 14.4.3 and 14.4.4), in etypes of the view.
//!
//! Each rank has its own; one more is shared by all, a [`Counter`] of the file system that is advanced in one step, so
//! that no two calls get the same bytes. Ordered calls advance it once for all ranks and deal the room in rank order.
use crate::comm::Comm;
use crate::error::{Error, ErrorClass, Result};
use crate::filesystem::Counter;
use penstock_host::sync::Mutex;
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

/// Makes the counter when it is first used.
type Make = dyn Fn(i64) -> Result<Box<dyn Counter>> + Send + Sync;

/// The shared pointer of an open file.
pub(crate) struct SharedPointer {
    make: Box<Make>,
    counter: OnceLock<Arc<dyn Counter>>,
    /// What it begins with.
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

    /// What it begins with, if nobody has used it yet.
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

    /// Takes room for `etypes`; returns where it begins.
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

    /// Frees it, if it was used. Every rank calls this when all are through.
    pub(crate) fn free(&self) -> Result<()> {
        match self.counter.get() {
            Some(counter) => counter.free(),
            None => Ok(()),
        }
    }

    /// Takes room for all ranks' accesses in order of rank; returns where this rank's begins. Collective; fails on all
    /// ranks if `mine` is an error on one.
    pub(crate) fn advance_ordered(&self, comm: &dyn Comm, mine: &Result<u64>) -> Result<i64> {
        let told = match mine {
            Ok(etypes) => {
                let mut told = vec![0];
                told.extend(etypes.to_le_bytes());
                told
            }
            Err(_) => {
                let mut told = vec![1];
                told.extend(crate::comm::encode_outcome(mine));
                told
            }
        };
        let all = comm.allgather(&told)?;
        let mut before: u64 = 0;
        let mut total: u64 = 0;
        let mut failed = Ok(());
        for (rank, told) in all.iter().enumerate() {
            match told.split_first() {
                Some((0, etypes)) => {
                    let etypes = etypes.try_into().map(u64::from_le_bytes).unwrap_or(0);
                    if rank == comm.rank() {
                        before = total;
                    }
                    total = total.saturating_add(etypes);
                }
                Some((_, outcome)) if failed.is_ok() => {
                    failed = crate::comm::decode_outcome(rank, outcome);
                }
                _ => {}
            }
        }
        if let Err(e) = mine {
            return Err(e.clone());
        }
        failed?;
        // Rank 0 moves the pointer and tells the others where it was, or why it could not.
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
