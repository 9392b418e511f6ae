//! Status that both kinds of server report.
use serde::{Deserialize, Serialize};

/// Generations of keys that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysHeld {
    /// The one that it uses.
    pub current: u32,
    /// The other one, during a rotation.
    pub other: Option<u32>,
}

/// Counts of a server's audit log, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Requests and connections that were refused.
    pub refused: u64,
    /// Records lost because the queue was full.
    pub dropped: u64,
    /// Writes that failed.
    pub write_errors: u64,
}
