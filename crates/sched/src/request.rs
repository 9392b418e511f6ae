//! The scheduler's input and output.
use penstock_base::{Nanos, Op};

/// One request for a run of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The caller's identifier.
    pub id: u64,
    /// The file.
    pub file: u64,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// The parallel job. With TWINS at a forwarder: the data server that it goes to.
    pub program: u64,
    /// The rank of the process in the program; 0: unknown. Processes are counted only; no order depends on them.
    pub process: u32,
}

/// Requests of one file and operation that are served as one. [`crate::Scheduler::parts`] lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualRequest {
    /// Its identifier, for [`crate::Scheduler::completed`].
    pub id: u64,
    /// The file.
    pub file: u64,
    /// Read or write.
    pub op: Op,
    /// First byte of all parts.
    pub offset: u64,
    /// One past the last byte of all parts.
    pub end: u64,
    /// Bytes of all parts; bytes in several parts count for each.
    pub bytes: u64,
    /// How many requests.
    pub parts: u32,
    /// When the first of them arrived.
    pub arrived: Nanos,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Serve this, then call [`crate::Scheduler::completed`].
    Dispatch(VirtualRequest),
    /// Serve nothing before this time, unless a request arrives or is completed first.
    WaitUntil(Nanos),
    /// Serve nothing before the next arrival or completion.
    Idle,
}
