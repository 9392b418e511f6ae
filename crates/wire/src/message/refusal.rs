//! Errors that a server answers.
use serde::{Deserialize, Serialize};

/// Why a request failed; each kind has one errno and one MPI class (docs/understand/semantics.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// No such file, directory or object.
    NotFound,
    /// It exists already.
    Exists,
    /// A part of the path is no directory.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// Mode bits, rights of a capability or the connection's role do not allow it.
    Permission,
    /// The store or the server is read-only.
    ReadOnly,
    /// The store is full.
    NoSpace,
    /// The request is invalid.
    InvalidArgument,
    /// The two sides hold different keys.
    BadKey,
    /// The capability was not signed by this deployment.
    BadCapability,
    /// The capability has expired: renew it.
    ExpiredCapability,
    /// Bytes that are not the protocol.
    Malformed,
    /// Beyond a limit of the protocol.
    TooLarge,
    /// Stored data or metadata is damaged.
    Damaged,
    /// Others held the range lock for too long.
    LockTimeout,
    /// The lock was revoked after it had been unused while others waited (its lease expired).
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
    /// Symbolic links form a loop.
    Loop,
    /// A file has too many names.
    TooManyLinks,
    /// No such extended attribute.
    NoAttribute,
    /// A name is not UTF-8.
    NotText,
    /// The session is unknown: the request was not carried out now.
    NoSession,
    /// The user's quota is exhausted.
    Quota,
}

impl ErrorKind {
    /// The errno that says most nearly the same.
    pub fn errno(self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            ErrorKind::NotFound => Errno::NOENT,
            ErrorKind::Exists => Errno::EXIST,
            ErrorKind::NotDirectory => Errno::NOTDIR,
            ErrorKind::IsDirectory => Errno::ISDIR,
            ErrorKind::NotEmpty => Errno::NOTEMPTY,
            ErrorKind::Permission
            | ErrorKind::BadKey
            | ErrorKind::BadCapability
            | ErrorKind::ExpiredCapability => Errno::ACCESS,
            ErrorKind::ReadOnly => Errno::ROFS,
            ErrorKind::NoSpace => Errno::NOSPC,
            ErrorKind::Quota => Errno::DQUOT,
            ErrorKind::InvalidArgument => Errno::INVAL,
            ErrorKind::TooLarge => Errno::FBIG,
            ErrorKind::Malformed | ErrorKind::Version => Errno::PROTO,
            ErrorKind::Damaged => Errno::BADMSG,
            ErrorKind::LockTimeout => Errno::TIMEDOUT,
            ErrorKind::LockLost => Errno::NOLCK,
            ErrorKind::Busy => Errno::BUSY,
            ErrorKind::Unsupported => Errno::OPNOTSUPP,
            ErrorKind::Io | ErrorKind::NoSession => Errno::IO,
            ErrorKind::ShuttingDown => Errno::SHUTDOWN,
            ErrorKind::NotOwner => Errno::PERM,
            ErrorKind::NameTooLong => Errno::NAMETOOLONG,
            ErrorKind::Loop => Errno::LOOP,
            ErrorKind::TooManyLinks => Errno::MLINK,
            ErrorKind::NoAttribute => Errno::NODATA,
            ErrorKind::NotText => Errno::ILSEQ,
        };
        errno.raw_os_error()
    }
}

/// A server's no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct WireError {
    /// The kind, for programs.
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
