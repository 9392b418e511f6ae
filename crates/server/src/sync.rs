//! Group sync: many ranks ask at the same time to make one object durable.
//!
//! A sync covers every write that was acknowledged before it began. So of all requests that arrive during a sync, one
//! runs the next sync and the others share its result. n requests cost two syncs, not n.
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_wire::message::WireError;
use std::sync::{Arc, OnceLock, PoisonError};

/// One sync, and how it ended.
type Round = OnceLock<Result<(), WireError>>;

/// The syncs of one object.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    rounds: Mutex<Rounds>,
    ended: Condvar,
}

/// Who shares which sync. A round keeps its result for its waiters, however late they check. Later rounds may have
/// ended by then, with another result.
#[derive(Debug, Default)]
struct Rounds {
    /// The one that runs.
    running: Option<Arc<Round>>,
    /// The one that begins next; new requests share it.
    next: Arc<Round>,
}

impl Rounds {
    /// The sync that covers what was done before this call.
    fn join(&self) -> Arc<Round> {
        self.next.clone()
    }

    /// Whether somebody else runs `mine` or an earlier one, which must be waited for.
    fn waits(&self, mine: &Round) -> bool {
        self.running.is_some() && mine.get().is_none()
    }

    /// `mine` begins. It covers nothing that happens from now on.
    fn begin(&mut self, mine: &Arc<Round>) {
        self.running = Some(mine.clone());
        if Arc::ptr_eq(&self.next, mine) {
            self.next = Arc::default();
        }
    }
}

impl GroupSync {
    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when a sync that began after this call has ended, with its result. `sync` runs on one of the callers' threads.
    pub(crate) fn run(
        &self,
        sync: impl FnOnce() -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let mut rounds = self.rounds();
        let mine = rounds.join();
        // Bounded by the sync that runs: the store's own calls return or fail.
        while rounds.waits(&mine) {
            rounds = self
                .ended
                .wait(rounds)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(result) = mine.get() {
            return result.clone();
        }
        rounds.begin(&mine);
        drop(rounds);
        let _ended = Ended(self);
        let result = sync();
        // Nobody else runs this round.
        let _ = mine.set(result.clone());
        result
    }
}

/// Frees the place of the running sync, also when it panicked: then one of those who shared it runs it again.
struct Ended<'a>(&'a GroupSync);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.rounds().running = None;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    #[test]
    fn requests_during_one_sync_share_the_next() {
        let syncs = GroupSync::default();
        let runs = AtomicU32::new(0);
        let (release, gate) = mpsc::channel::<()>();
        let (entered, wait_entered) = mpsc::channel::<()>();
        std::thread::scope(|s| {
            let syncs = &syncs;
            let first = s.spawn(move || {
                syncs.run(move || {
                    entered.send(()).unwrap();
                    gate.recv().unwrap();
                    Ok(())
                })
            });
            wait_entered.recv().unwrap();
            let others: Vec<_> = (0..6)
                .map(|_| {
                    s.spawn(|| {
                        syncs.run(|| {
                            runs.fetch_add(1, SeqCst);
                            Ok(())
                        })
                    })
                })
                .collect();
            release.send(()).unwrap();
            assert!(first.join().unwrap().is_ok());
            for other in others {
                assert!(other.join().unwrap().is_ok());
            }
        });
        // At least one began after the first; late starters may have needed their own.
        assert!((1..=6).contains(&runs.load(SeqCst)));
    }

    fn failed() -> Result<(), WireError> {
        let kind = penstock_wire::message::ErrorKind::Io;
        Err(WireError::new(kind, "no"))
    }

    /// Returns when so many wait for the next round.
    fn await_waiters(syncs: &GroupSync, most: usize) {
        while Arc::strong_count(&syncs.rounds().next) < 1 + most {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_looks_late_gets_the_result_of_its_own_round() {
        let syncs = GroupSync::default();
        let first = syncs.rounds().join();
        syncs.rounds().begin(&first);
        std::thread::scope(|s| {
            let late = s.spawn(|| syncs.run(|| Ok(())));
            await_waiters(&syncs, 1);
            // While it sleeps the first ends, its own fails, and the one after that succeeds.
            let mut rounds = syncs.rounds();
            first.set(Ok(())).unwrap();
            for result in [failed(), Ok(())] {
                let round = rounds.join();
                rounds.begin(&round);
                round.set(result).unwrap();
            }
            rounds.running = None;
            drop(rounds);
            syncs.ended.notify_all();
            assert_eq!(late.join().unwrap(), failed());
        });
    }

    #[test]
    fn a_failure_reaches_all_who_share_it() {
        let syncs = GroupSync::default();
        let runs = AtomicU32::new(0);
        let first = syncs.rounds().join();
        syncs.rounds().begin(&first);
        let sync = || {
            runs.fetch_add(1, SeqCst);
            failed()
        };
        std::thread::scope(|s| {
            let sharing: Vec<_> = (0..4).map(|_| s.spawn(|| syncs.run(sync))).collect();
            await_waiters(&syncs, 4);
            first.set(Ok(())).unwrap();
            drop(Ended(&syncs));
            for one in sharing {
                assert_eq!(one.join().unwrap(), failed());
            }
        });
        assert_eq!(runs.load(SeqCst), 1);
        assert_eq!(syncs.run(|| Ok(())), Ok(()), "it is over");
    }

    #[test]
    fn a_failure_reaches_its_caller_and_the_next_sync_runs() {
        let syncs = GroupSync::default();
        let failed = WireError::new(penstock_wire::message::ErrorKind::Io, "no");
        assert_eq!(syncs.run(|| Err(failed.clone())), Err(failed));
        assert_eq!(syncs.run(|| Ok(())), Ok(()));
    }
}
