//! What is recorded: one event in the life of one request at one data server.
use penstock_base::{Nanos, Op};

/// Which moment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// It reached the server.
    Arrival,
    /// It went to the store, alone or as a part of a virtual request.
    Dispatch,
    /// The store is done with it.
    Completion,
}

impl Kind {
    /// `arrival`, `dispatch` or `completion`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Arrival => "arrival",
            Kind::Dispatch => "dispatch",
            Kind::Completion => "completion",
        }
    }
}

/// One event. All events of one request carry its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// When, since the trace began.
    pub at: Nanos,
    /// The request, by a number that the server gave it.
    pub request: u64,
    /// Which moment.
    pub kind: Kind,
    /// What the request does.
    pub op: Op,
    /// The file.
    pub file: u64,
    /// First byte, in the file's object on this server.
    pub offset: u64,
    /// Bytes on this server.
    pub bytes: u64,
    /// The program that asked; 0: unknown.
    pub program: u64,
    /// Its process that asked: a rank.
    pub rank: u32,
    /// The MPI call of that rank, counted; 0: none.
    pub mpi_call: u64,
    /// The call of the client library of that rank, counted; 0: unknown.
    pub client_call: u64,
}

impl Event {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}
