//! Who hears of each event of a data server's queue, in the order of decisions.
use crate::events::{Event, Observer};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The receivers of events.
#[derive(Debug, Default)]
pub(crate) struct TraceTap {
    observer: RwLock<Option<Arc<dyn Observer>>>,
    requests: AtomicU64,
}

impl TraceTap {
    fn observer(&self) -> RwLockReadGuard<'_, Option<Arc<dyn Observer>>> {
        // It is whole whenever the lock is free: it is only ever replaced.
        self.observer.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the observer of events, which are in the order of decisions.
    pub(crate) fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        let mut place = self
            .observer
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = observer;
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.observer().is_some()
    }

    /// A number for an arriving request.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed)
    }

    /// Passes on one event.
    pub(crate) fn hear(&self, event: &Event) {
        if let Some(observer) = &*self.observer() {
            observer.event(event);
        }
    }
}
