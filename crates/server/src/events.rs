//! Events of the queue, for observers.
use penstock_sched::Nanos;
use penstock_wire::message::TraceContext;

pub use penstock_sched::Op;

/// What happens to a slice of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It arrives at the queue.
    Arrival,
    /// It is passed to the store.
    Dispatch,
    /// The store has answered.
    Completion,
}

/// One event of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the server's start; never less than that of the event before.
    pub time: Nanos,
    /// What happened.
    pub kind: EventKind,
    /// The slice, counted.
    pub id: u64,
    /// Dispatch, completion: the virtual request it is served in.
    pub served_in: u64,
    /// The file.
    pub file: u64,
    /// Read or write.
    pub op: Op,
    /// First byte of the object that it may touch.
    pub offset: u64,
    /// One past the last byte that it may touch.
    pub end: u64,
    /// Bytes moved: fewer than between offset and end if the access is structured.
    pub bytes: u64,
    /// Its origin: program, rank, call.
    pub trace: TraceContext,
}

/// Receives every event, in order. Called under the queue's mutex: it must be quick and must not call back.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// One event.
    fn event(&self, event: &Event);
}
