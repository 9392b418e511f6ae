//! Errors for callers: always what, where, and what to do.
use penstock_layout::{LayoutError, ServerId};
use penstock_store::StoreError;
use penstock_wire::message::{ErrorKind, WireError};
use std::fmt;
use std::time::Duration;

/// Result of a client call.
pub type Result<T> = std::result::Result<T, Error>;

/// A server as errors name it: its role and where it was sought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// `None` is the metadata server.
    pub data: Option<ServerId>,
    /// Where it was sought, such as `unix:/run/x/data0.sock` or `tcp:node7:4800`.
    pub address: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data {
            None => write!(f, "metadata server ({})", self.address),
            Some(id) => write!(f, "data server {} ({})", id.0, self.address),
        }
    }
}

/// Data of one file that is known to be lost on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Whose host lost it.
    pub peer: Peer,
    /// At most this many bytes; `None`: the kernel of a mount wrote them.
    pub bytes: Option<u64>,
    /// They were written within this time.
    pub within: Duration,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.within.as_secs() + 1;
        match self.bytes {
            Some(bytes) => write!(f, "up to {bytes} bytes")?,
            None => write!(f, "what this host's kernel")?,
        }
        write!(
            f,
            " written since {seconds} s ago were lost with the host of {} before a sync",
            self.peer
        )
    }
}

/// Why a client call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server answered with an error.
    #[error("{operation} at {peer}: {source}")]
    Refused {
        /// Who answered.
        peer: Peer,
        /// What was asked.
        operation: &'static str,
        /// Its answer.
        source: WireError,
    },
    /// A server could not be reached, or went away and did not come back in time.
    #[error(
        "{operation}: {peer} cannot be reached ({detail}; tried for {} ms); \
         run `penstock status` to see which servers are up",
        tried.as_millis()
    )]
    Unreachable {
        /// Who was sought.
        peer: Peer,
        /// What was asked.
        operation: &'static str,
        /// The last failure.
        detail: String,
        /// How long it was tried.
        tried: Duration,
    },
    /// A server that accepted the connection did not answer in time.
    #[error(
        "{operation}: {peer} did not answer within {} ms; run `penstock status`, \
         and raise the time-out if the server is only slow",
        waited.as_millis()
    )]
    Timeout {
        /// Who was asked.
        peer: Peer,
        /// What was asked.
        operation: &'static str,
        /// How long the answer was awaited.
        waited: Duration,
    },
    /// A server sent what the protocol does not allow.
    #[error(
        "{operation}: {peer} broke the protocol: {detail}; are client and server of one version?"
    )]
    Protocol {
        /// Who sent it.
        peer: Peer,
        /// What was asked.
        operation: &'static str,
        /// What was wrong.
        detail: String,
    },
    /// Acknowledged writes of this file were not synced before their servers lost them.
    #[error("sync: {}; write it to {path} again", lost.iter().map(Loss::to_string).collect::<Vec<_>>().join(" and "))]
    LostWrites {
        /// Which file.
        path: String,
        /// What was lost, by server.
        lost: Vec<Loss>,
    },
    /// The metadata server does not know the file any more.
    #[error(
        "sync: {path} is unknown to the metadata server: it was removed, or its name was lost with that server's host \
         before a sync; write it again"
    )]
    LostName {
        /// Its path when it was opened.
        path: String,
    },
    /// The call was wrong.
    #[error("{0}")]
    Invalid(String),
    /// A local system call failed.
    #[error("{what}: {detail}")]
    Local {
        /// What was tried.
        what: String,
        /// The class it belongs to.
        kind: ErrorKind,
        /// The system's message.
        detail: String,
    },
}

impl Error {
    /// The class: each has one errno and one MPI error class.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Refused { source, .. } => source.kind,
            Error::Local { kind, .. } => *kind,
            Error::Invalid(_) => ErrorKind::InvalidArgument,
            Error::Protocol { .. } => ErrorKind::Malformed,
            Error::Unreachable { .. }
            | Error::Timeout { .. }
            | Error::LostWrites { .. }
            | Error::LostName { .. } => ErrorKind::Io,
        }
    }

    /// True when a server could not be reached or did not answer.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Timeout { .. })
    }

    /// The errno that says most nearly the same (for the C interface and mounts).
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Error::Unreachable { .. } => Errno::HOSTUNREACH,
            Error::Timeout { .. } => Errno::TIMEDOUT,
            _ => return self.kind().errno(),
        };
        errno.raw_os_error()
    }
}

/// The class of a store's error met by direct I/O.
pub(crate) fn kind_of(e: &StoreError) -> ErrorKind {
    match e {
        StoreError::Full(_) => ErrorKind::NoSpace,
        StoreError::OverQuota(_) => ErrorKind::Quota,
        StoreError::ReadOnly(_) => ErrorKind::ReadOnly,
        StoreError::NotFound(..) => ErrorKind::NotFound,
        StoreError::Damaged { .. } | StoreError::Lost { .. } => ErrorKind::Damaged,
        StoreError::Descriptors(_) => ErrorKind::Busy,
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::FileTooLarge => {
            ErrorKind::TooLarge
        }
        _ => ErrorKind::Io,
    }
}

impl From<LayoutError> for Error {
    fn from(e: LayoutError) -> Error {
        Error::Invalid(e.to_string())
    }
}

impl From<penstock_datatype::Error> for Error {
    fn from(e: penstock_datatype::Error) -> Error {
        Error::Invalid(e.to_string())
    }
}
