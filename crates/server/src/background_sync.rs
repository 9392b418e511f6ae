//! What nobody syncs is synced in the background, so that its loss would be noticed.
//!
//! Problem: a store knows the objects that it must have from their first sync, and most programs (`cp`, `tar`) never sync. Idea: a
//! thread syncs what is new or longer every [`crate::Options::background_sync`], resting at least as long as it works; when
//! the server stops, the rest.
//! Then the store's generation rises and the metadata server hears of it, so that an older copy can be told from this store.
use penstock_host::sync::{Condvar, Mutex};
use penstock_rpc::Background;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The thread, and how it is ended.
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
    /// Starts the thread. After each rest of `period` it calls `round` with what rests between two syncs; both say
    /// whether to go on.
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
