//! What comes in and what goes out.
use penstock_base::{Nanos, Op};

/// One request for a run of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it.
    pub id: u64,
    /// The file.
    pub file: u64,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Who asks: the parallel job. To TWINS behind a forwarder: the data server it goes to.
    pub program: u64,
    /// Which process of the program: its rank; 0: unknown. Processes are counted, no order depends on them.
    pub process: u32,
}

/// Requests of one file and operation that are served as one. [`crate::Scheduler::parts`] lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualRequest {
    /// For [`crate::Scheduler::completed`].
    pub id: u64,
    /// The file.
    pub file: u64,
    /// Read or write.
    pub op: Op,
    /// First byte of all parts.
    pub offset: u64,
    /// One past the last byte of all parts.
    pub end: u64,
    /// Bytes of all parts; overlapping bytes count for each.
    pub bytes: u64,
    /// How many requests.
    pub parts: u32,
    /// When the first of them arrived.
    pub arrived: Nanos,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Serve this, then say [`crate::Scheduler::completed`].
    Dispatch(VirtualRequest),
    /// Nothing before this time, unless a request arrives or is completed first.
    WaitUntil(Nanos),
    /// Nothing before the next arrival or completion.
    Idle,
}
