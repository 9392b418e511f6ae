//! The committing thread, which also removes open-unlinked files after their grace period.
use super::{REAPED, Shared, State};
use crate::commit::Next;
use crate::store::Store;
use penstock_host::time::now;
use std::sync::PoisonError;
use std::time::Duration;

impl State {
    /// Removes some open-unlinked files whose holders have not reconnected. `penstock check` removes their objects,
    /// because no client is left to do it. Returns the time until the next one is due.
    fn reap_left(&mut self, clock: u64) -> Option<Duration> {
        if self.closed.is_some() || self.group.refusal().is_some() {
            return None;
        }
        let mut reaped = 0;
        while reaped < REAPED
            && let Some(file) = self.kept.pop_ended(now())
        {
            let gone = self.guarded(|state| {
                state.space.reap(file)?;
                let changes = state.space.names_mut().take_changes()?;
                // Nobody waits for this append.
                state.journal.append(changes);
                Ok(())
            });
            match gone {
                Ok(()) => reaped += 1,
                Err(e) => log::warn!("removed file {} stays until the next start: {e}", file.0),
            }
        }
        if reaped > 0 {
            log::info!(
                "{reaped} removed files are no longer open anywhere; `penstock check --repair` frees their bytes"
            );
            self.group.changed(clock);
        }
        let end = self.kept.next_end()?;
        Some(end.saturating_duration_since(now()))
    }
}

/// Time between attempts to reopen the database, nanoseconds.
const REOPEN_NS: u64 = 1_000_000_000;

pub(super) fn commit_loop(shared: &Shared, mut store: Store) {
    let mut state = shared.state();
    let mut reopen_at = 0;
    loop {
        if state.broken && shared.now() >= reopen_at {
            state = shared.without_scrub(state);
            state.broken = !reopen(&mut state, &mut store);
            reopen_at = shared.now() + REOPEN_NS;
        }
        let left = state.reap_left(shared.now());
        let left = if state.broken {
            let until = Duration::from_nanos(reopen_at.saturating_sub(shared.now()));
            Some(left.map_or(until, |left| left.min(until)))
        } else {
            left
        };
        match state.group.next(shared.now()) {
            Next::Stop => break,
            Next::Idle => {
                state = match left {
                    None => shared
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                    Some(left) => shared.wait_work(state, left),
                };
            }
            Next::WaitUntil(at) => {
                let pause = Duration::from_nanos(at.saturating_sub(shared.now()));
                let pause = left.map_or(pause, |left| left.min(pause));
                state = shared.wait_work(state, pause);
            }
            Next::Commit => {
                if state.group.started() {
                    state.journal.turn();
                }
                let frozen = state.space.names_mut().freeze();
                drop(state);
                let result = store.commit(&frozen);
                drop(frozen);
                state = shared.state();
                match result {
                    Ok(snapshot) => {
                        state.space.names_mut().committed(snapshot);
                        state.group.finished();
                        let State { journal, space, .. } = &mut *state;
                        journal.committed(store.commits(), || space.names().all_collected().ok());
                    }
                    Err(e) => {
                        log::error!("{e}");
                        state.group.failed(shared.now(), e);
                        state = shared.without_scrub(state);
                        state.broken = !reopen(&mut state, &mut store);
                        reopen_at = shared.now() + REOPEN_NS;
                    }
                }
                shared.settled.notify_all();
            }
        }
    }
    if let Some(lost) = state.group.refusal() {
        log::error!("stopped with changes that could not be committed: {lost}");
    } else {
        state.journal.end();
    }
    state = shared.without_scrub(state);
    state.space.names_mut().release();
    state.ended = true;
    shared.settled.notify_all();
}

/// After an I/O error the database works again only once it is reopened. Holds the lock meanwhile, because nothing can
/// be read. False: it could not be opened.
fn reopen(state: &mut State, store: &mut Store) -> bool {
    state.space.names_mut().release();
    match store.reopen() {
        Ok(snapshot) => {
            state.space.names_mut().reopened(snapshot);
            true
        }
        Err(e) => {
            log::error!("{e}");
            false
        }
    }
}
