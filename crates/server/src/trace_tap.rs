//! The trace tap: passes events of served requests to the trace and to observers.
//!
//! *Problem*: a trace must cost almost nothing, and the queue's mutex costs more than the record of a request. *Idea*:
//! with NOOP and only a trace, a request goes directly to the store. Its thread adds two records to the buffer of its
//! rank ([`penstock_trace::Recorder`]). The only lock shared with other ranks is one for reading. Scheduled requests
//! are recorded by the thread that decides, in the order of decisions.
use crate::events::{Event, EventKind, Observer};
use crate::tracing::Tracing;
use penstock_wire::message::TraceStatus;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The receivers of events.
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
    // They are only ever replaced as a whole.
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

    /// Sets the trace to write. Returns the one before, which ends on drop.
    #[must_use]
    pub(crate) fn trace(&self, trace: Option<Tracing>) -> Option<Tracing> {
        std::mem::replace(&mut self.listeners_mut().trace, trace)
    }

    /// Sets the observer of events, which are in the order of decisions.
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

    /// A number for an arriving request.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed)
    }

    /// Passes on one event.
    pub(crate) fn hear(&self, event: &Event) {
        let listeners = self.listeners();
        if let Some(observer) = &listeners.observer {
            observer.event(event);
        }
        if let Some(trace) = &listeners.trace {
            trace.record(&[*event]);
        }
    }

    /// Trace only: a request has arrived and goes to the store at once.
    pub(crate) fn passes(&self, arrival: &Event) {
        if let Some(trace) = &self.listeners().trace {
            let dispatch = Event {
                kind: EventKind::Dispatch,
                ..*arrival
            };
            trace.record(&[*arrival, dispatch]);
        }
    }

    /// Trace only: it has been served.
    pub(crate) fn passed(&self, completion: &Event) {
        if let Some(trace) = &self.listeners().trace {
            trace.record(&[*completion]);
        }
    }
}
