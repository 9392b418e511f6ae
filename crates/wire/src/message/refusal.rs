//! How a server says no.
use serde::{Deserialize, Serialize};

/// Why a request failed; each kind has one errno and one MPI class (docs/understand/semantics.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// No such file, directory or object.
    NotFound,
    /// It is there already.
    Exists,
    /// A part of the path is no directory.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// Mode bits, rights of a capability or the connection's role forbid it.
    Permission,
    /// The store or the server takes no writes.
    ReadOnly,
    /// The store is full.
    NoSpace,
    /// The request makes no sense.
    InvalidArgument,
    /// The two sides hold different keys.
    BadKey,
    /// The capability was not signed by this deployment.
    BadCapability,
    /// The capability was good; renew it.
    ExpiredCapability,
    /// Bytes that are not the protocol.
    Malformed,
    /// Beyond a limit.
    TooLarge,
    /// Stored data or metadata is not what was stored.
    Damaged,
    /// Others kept the range locked for too long.
    LockTimeout,
    /// The lock was taken away after it had not been used while others waited.
    LockLost,
    /// A limit on connections, handles or waiters is reached; try again later.
    Busy,
    /// Not possible here.
    Unsupported,
    /// The system failed a call, or a peer cannot be reached.
    Io,
    /// The server is about to stop.
    ShuttingDown,
    /// No common protocol version.
    Version,
    /// Only the owner, or root, may do it (EPERM).
    NotOwner,
    /// A name or path is too long.
    NameTooLong,
    /// Symbolic links lead round in a circle.
    Loop,
    /// A file has no more room for names.
    TooManyLinks,
    /// No such extended attribute.
    NoAttribute,
    /// A name is no text (UTF-8).
    NotText,
    /// The server does not know the session, or no longer: nothing was carried out now.
    NoSession,
    /// The user has as many files as the limits allow.
    Quota,
}

/// A server's no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct WireError {
    /// For programs.
    pub kind: ErrorKind,
    /// What, where, and what to do.
    pub message: String,
}

impl WireError {
    /// `message` says what, where and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> WireError {
        WireError {
            kind,
            message: message.into(),
        }
    }
}
