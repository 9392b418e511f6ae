//! What both kinds of server tell about themselves.
use serde::{Deserialize, Serialize};

/// Which generations of keys a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysHeld {
    /// The one that it uses itself.
    pub current: u32,
    /// One more, for a while.
    pub other: Option<u32>,
}

/// What a server's audit log counts, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Acts that were refused.
    pub refused: u64,
    /// Records that found no room.
    pub dropped: u64,
    /// Writes that failed.
    pub write_errors: u64,
}
