//! The thread that scrubs the names of a large store.
use super::{Shared, State};
use crate::error::Result;
use crate::scrub::{PAUSE, Scrub};
use penstock_host::sync::MutexGuard;
use penstock_host::thread::{self, JoinHandle};
use penstock_wire::message::ErrorKind;
use std::sync::{Arc, PoisonError};

/// Starts the thread, which ends after one pass.
pub(super) fn start(shared: &Arc<Shared>) -> Option<JoinHandle> {
    let body = {
        let shared = shared.clone();
        move || scrub_loop(&shared)
    };
    thread::spawn("look", None, body)
        .map_err(|e| log::warn!("no thread looks for damage: {e}; run `penstock check`"))
        .ok()
}

fn scrub_loop(shared: &Shared) {
    let mut look = Scrub::default();
    let mut state = shared.state();
    while state.closed.is_none() && !look.looked.through {
        if let Some(snapshot) = state.space.names().snapshot() {
            state.looking = true;
            drop(state);
            let went_on = look.go_on(&snapshot);
            drop(snapshot);
            state = shared.state();
            state.looking = false;
            shared.heed(&mut state, &went_on);
            state.looked.clone_from(&look.looked);
            shared.looked.notify_all();
        }
        state = shared.wait_unlocked(state, PAUSE);
    }
    if look.looked.through {
        log::info!(
            "all names were looked through: {} of {} records and entries are damaged",
            look.looked.damaged,
            look.looked.seen
        );
    }
}

impl Shared {
    /// After a disk error the committing thread must reopen the database.
    pub(super) fn heed<T>(&self, state: &mut State, result: &Result<T>) {
        if matches!(result, Err(e) if e.kind == ErrorKind::Io) && !state.broken {
            state.broken = true;
            self.work.notify_one();
        }
    }

    /// Waits until no snapshot is in use outside the lock.
    pub(super) fn without_scrub<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        while state.looking {
            state = self
                .looked
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}
