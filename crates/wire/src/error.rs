//! Errors between two peers; each names the peer.
use crate::message::refusal::{ErrorKind, WireError};
use std::time::Duration;

/// A failure of transport, handshake or configuration on this side, or a refusal by the peer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed the connection between two frames.
    #[error("{peer} closed the connection")]
    Closed {
        /// The peer.
        peer: String,
    },
    /// No bytes were received or sent within the time-out.
    #[error("{peer} did not {what} within {after:?}")]
    TimedOut {
        /// The peer.
        peer: String,
        /// What was waited for: "answer", "take data", "finish a frame".
        what: &'static str,
        /// The time-out.
        after: Duration,
    },
    /// A system call failed.
    #[error("{what} {peer}: {source}")]
    Io {
        /// The operation: "connect to", "read from".
        what: &'static str,
        /// The peer.
        peer: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Bytes on a protected connection are not what the peer has sent.
    #[error(
        "the TLS session with {peer} broke: {what}; something on the network path changes bytes, or the peer is faulty"
    )]
    Broken {
        /// The peer.
        peer: String,
        /// What was wrong.
        what: String,
    },
    /// The peer sent bytes that are not Penstock's protocol.
    #[error("malformed message from {peer}: {what}")]
    Malformed {
        /// The peer.
        peer: String,
        /// Which field, and why.
        what: String,
    },
    /// A message is larger than the protocol allows; it was dropped.
    #[error("{what} of {size} bytes, {peer}: the limit is {limit} bytes")]
    TooLarge {
        /// The peer.
        peer: String,
        /// Which part.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The two sides have no protocol version in common.
    #[error(
        "{peer} speaks protocol version {theirs}, this side {ours}; install the same release of Penstock on both"
    )]
    Version {
        /// The peer.
        peer: String,
        /// Versions of the peer.
        theirs: String,
        /// Versions of this side.
        ours: String,
    },
    /// The peer answered with an error.
    #[error("{0}")]
    Refused(WireError),
    /// The two sides hold different keys.
    #[error("{0}")]
    BadKey(String),
    /// A key file cannot be used.
    #[error("key file {path}: {what}")]
    KeyFile {
        /// The file.
        path: String,
        /// Why, and what to do.
        what: String,
    },
    /// A deployment file cannot be used.
    #[error("deployment file {path}: {what}")]
    Deployment {
        /// The file.
        path: String,
        /// Why, and what to do.
        what: String,
    },
    /// A server cannot listen where it was told to.
    #[error("cannot listen on {address}: {what}")]
    Listen {
        /// The socket's path or host:port.
        address: String,
        /// Why, and what to do.
        what: String,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind, which callers map to errno and MPI class.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Closed { .. }
            | Error::TimedOut { .. }
            | Error::Io { .. }
            | Error::Broken { .. } => ErrorKind::Io,
            Error::Malformed { .. } => ErrorKind::Malformed,
            Error::TooLarge { .. } => ErrorKind::TooLarge,
            Error::Version { .. } => ErrorKind::Version,
            Error::Refused(e) => e.kind,
            Error::BadKey(_) => ErrorKind::BadKey,
            Error::KeyFile { .. } => ErrorKind::Permission,
            Error::Deployment { .. } | Error::Listen { .. } => ErrorKind::InvalidArgument,
        }
    }

    /// Whether the connection is lost but connecting again may help.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Error::Closed { .. } | Error::TimedOut { .. } | Error::Broken { .. } => true,
            Error::Io { source, .. } => matches!(
                source.kind(),
                std::io::ErrorKind::ConnectionRefused
                    | std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::ConnectionAborted
                    | std::io::ErrorKind::BrokenPipe
                    | std::io::ErrorKind::NotFound
                    | std::io::ErrorKind::TimedOut
                    | std::io::ErrorKind::UnexpectedEof
            ),
            Error::Refused(e) => matches!(e.kind, ErrorKind::Busy | ErrorKind::ShuttingDown),
            _ => false,
        }
    }
}

impl From<Error> for WireError {
    fn from(e: Error) -> WireError {
        match e {
            Error::Refused(e) => e,
            e => WireError {
                kind: e.kind(),
                message: e.to_string(),
            },
        }
    }
}

impl WireError {
    /// The error of a server that keeps its keys because new ones cannot be used.
    pub fn of_keys(e: Error) -> WireError {
        WireError::new(
            ErrorKind::InvalidArgument,
            format!("{e}; the server keeps the keys that it has"),
        )
    }
}
