//! Group sync: many ranks ask for the same object to be made durable at the same moment.
//!
//! A sync covers every write that was acknowledged before it began. So of all requests that arrive while one sync
//! runs, one runs the next and the others share its result: n requests cost two syncs, not n.
use penstock_host::sync::{Condvar, Mutex};
use penstock_wire::message::WireError;
use std::sync::PoisonError;

/// The syncs of one object.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Syncs begun.
    begun: u64,
    /// One is running.
    running: bool,
    /// The last one that ended, and how.
    done: u64,
    result: Option<WireError>,
}

impl GroupSync {
    /// Returns when a sync that began after this call has ended. `sync` runs on one of the callers' threads.
    pub(crate) fn run(
        &self,
        sync: impl FnOnce() -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = state.begun + 1;
        // Bounded by the sync that runs: the store's own calls return or fail.
        while state.running && state.done < mine {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.done >= mine {
            return state.result.clone().map_or(Ok(()), Err);
        }
        state.begun = mine;
        state.running = true;
        drop(state);
        let guard = Ended { syncs: self, mine };
        let result = sync();
        guard.end(result)
    }
}

/// Frees the place of the running sync, also when it panicked.
struct Ended<'a> {
    syncs: &'a GroupSync,
    mine: u64,
}

impl Ended<'_> {
    fn end(self, result: Result<(), WireError>) -> Result<(), WireError> {
        let mut state = self
            .syncs
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.done = self.mine;
        state.result = result.as_ref().err().cloned();
        drop(state);
        result
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self
            .syncs
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.running = false;
        drop(state);
        self.syncs.ended.notify_all();
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

    #[test]
    fn a_failure_reaches_its_caller_and_the_next_sync_runs() {
        let syncs = GroupSync::default();
        let failed = WireError::new(penstock_wire::message::ErrorKind::Io, "no");
        assert_eq!(syncs.run(|| Err(failed.clone())), Err(failed));
        assert_eq!(syncs.run(|| Ok(())), Ok(()));
    }
}
