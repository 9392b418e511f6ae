//! The recorded events: each is one moment of one request at one data server.
use penstock_base::{Nanos, Op};

/// The moment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// It reached the server.
    Arrival,
    /// It went to the store, alone or as a part of a virtual request.
    Dispatch,
    /// The store has served it.
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
    /// Time since the trace began.
    pub at: Nanos,
    /// The request's number, which the server assigned.
    pub request: u64,
    /// The moment.
    pub kind: Kind,
    /// The request's operation.
    pub op: Op,
    /// The file.
    pub file: u64,
    /// First byte, in the file's object on this server.
    pub offset: u64,
    /// Bytes on this server.
    pub bytes: u64,
    /// The program that sent it; 0: unknown.
    pub program: u64,
    /// The rank of the process that sent it.
    pub rank: u32,
    /// The number of the rank's MPI call; 0: none.
    pub mpi_call: u64,
    /// The number of the rank's call of the client library; 0: unknown.
    pub client_call: u64,
}

impl Event {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}
