//! Who hears of the requests that a data server serves: its trace, and whoever else wants to.
//!
//! *Problem*: a trace is to cost next to nothing, and the queue's mutex costs more than the record of a request.
//! *Idea*: where nothing is decided (NOOP) and only a trace wants to know, a request goes straight to the store and its
//! thread leaves two records in the buffer of its rank ([`penstock_trace::Recorder`]); no lock is shared with other ranks
//! but one for reading. Requests that are scheduled are recorded by whoever decides, in the order of decisions.
use crate::events::{Event, EventKind, Observer};
use crate::tracing::Tracing;
use penstock_wire::message::TraceStatus;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct TraceTap {
    listeners: RwLock<Listeners>,
    requests: AtomicU64,
}

#[derive(Debug, Default)]
struct Listeners {
    trace: Option<Tracing>,
    observer: Option<Arc<dyn Observer>>,
}

impl TraceTap {
    // Listeners are whole whenever the lock is free: they are only ever replaced.
    fn listeners(&self) -> RwLockReadGuard<'_, Listeners> {
        self.listeners
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners_mut(&self) -> RwLockWriteGuard<'_, Listeners> {
        self.listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, this trace is written. The one before, which ends when it is dropped.
    #[must_use]
    pub(crate) fn trace(&self, trace: Option<Tracing>) -> Option<Tracing> {
        std::mem::replace(&mut self.listeners_mut().trace, trace)
    }

    /// From now on, this one hears of each event in the order of decisions.
    pub(crate) fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.listeners_mut().observer = observer;
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.listeners().trace.is_some()
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.listeners().observer.is_some()
    }

    pub(crate) fn trace_status(&self) -> Option<TraceStatus> {
        self.listeners().trace.as_ref().map(Tracing::status)
    }

    /// A number for a request that comes.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed)
    }

    /// Tells of one event.
    pub(crate) fn hear(&self, event: &Event) {
        let listeners = self.listeners();
        if let Some(observer) = &listeners.observer {
            observer.event(event);
        }
        if let Some(trace) = &listeners.trace {
            trace.record(&[*event]);
        }
    }

    /// The trace alone: a request has come and goes to the store at once.
    pub(crate) fn passes(&self, arrival: &Event) {
        if let Some(trace) = &self.listeners().trace {
            let dispatch = Event {
                kind: EventKind::Dispatch,
                ..*arrival
            };
            trace.record(&[*arrival, dispatch]);
        }
    }

    /// The trace alone: it has been served.
    pub(crate) fn passed(&self, completion: &Event) {
        if let Some(trace) = &self.listeners().trace {
            trace.record(&[*completion]);
        }
    }
}
