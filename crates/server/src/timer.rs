//! The timer of a data server: a thread that calls the queue when its dispatcher wants to be called.
//!
//! It starts when requests are scheduled for the first time, and sleeps while no time is set.
use crate::error::refuse;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::now;
use penstock_rpc::Background;
use penstock_sched::Nanos;
use penstock_wire::message::{ErrorKind, WireError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// The state of the timer.
pub(crate) struct Timer {
    /// Time 0 of the queue.
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    at: Option<Nanos>,
    started: bool,
    stopped: bool,
}

impl Timer {
    pub(crate) fn new(began: Instant) -> Timer {
        Timer {
            began,
            state: Mutex::new(State::default()),
            changed: Condvar::default(),
        }
    }

    // A time and two flags: whole whenever the mutex is free.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time at which the queue is called; it replaces one set before.
    pub(crate) fn set(&self, at: Nanos) {
        self.state().at = Some(at);
        self.changed.notify_all();
    }

    /// Ends the thread for good.
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Sleeps until the time that is set; false if the timer is to end.
    fn wait(&self) -> bool {
        let mut state = self.state();
        loop {
            if state.stopped {
                return false;
            }
            let Some(at) = state.at else {
                let changed = self.changed.wait(state);
                state = changed.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = (self.began + Duration::from_nanos(at)).saturating_duration_since(now());
            if left.is_zero() {
                state.at = None;
                return true;
            }
            let changed = self.changed.wait_timeout(state, left);
            state = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts the thread, unless it runs or the server stops. It calls `ring` at each time that was set; false ends it.
    pub(crate) fn start(
        self: &Arc<Self>,
        timer: &Background,
        ring: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), WireError> {
        let mut state = self.state();
        if state.started || state.stopped {
            return Ok(());
        }
        let wakeup = self.clone();
        timer
            .start("timer", move || while wakeup.wait() && ring() {})
            .map_err(|e| {
                refuse(
                    ErrorKind::Io,
                    format!("cannot start the queue's timer: {e}"),
                )
            })?;
        state.started = true;
        Ok(())
    }
}
