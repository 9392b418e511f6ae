//! Background sync: syncs what nobody else syncs, so that its loss would be detected.
//!
//! Problem: a store must have an object from its first sync on, and most programs (`cp`, `tar`) never sync. Idea: a
//! thread syncs new and extended objects every [`crate::Options::background_sync`], pausing at least as long as it
//! works. When the server stops, it syncs the rest. Then the store's generation is increased and reported to the
//! metadata server, so that an older copy can be distinguished from this store.
use penstock_host::sync::{Condvar, Mutex};
use penstock_rpc::Background;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The thread, and how to end it.
#[derive(Default)]
pub(crate) struct BackgroundSync {
    stop: Arc<Stop>,
    thread: Background,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Sleeps; false when it is time to stop.
    fn pause(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if *stopped {
            return false;
        }
        let waited = self.changed.wait_timeout(stopped, time);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl BackgroundSync {
    /// Starts the thread. After each pause of `period` it calls `round` with a function that pauses between two syncs;
    /// both return whether to continue.
    pub(crate) fn start(
        &self,
        period: Duration,
        round: impl Fn(&mut dyn FnMut(Duration) -> bool) -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let stop = self.stop.clone();
        self.thread.start("settle", move || {
            while stop.pause(period) && round(&mut |took| stop.pause(took)) {}
        })
    }

    /// Ends the thread and waits for it, at most for a batch of syncs.
    pub(crate) fn stop(&self) {
        *self
            .stop
            .stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        self.thread.join("syncs in the background");
    }
}
