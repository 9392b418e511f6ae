//! Errors of the server, and the translation of store errors for clients.
use penstock_layout::ServerId;
use penstock_store::StoreError;
use penstock_wire::message::{ErrorKind, WireError};

/// Why a data server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Keys, sockets.
    #[error(transparent)]
    Wire(#[from] penstock_wire::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The metadata server does not answer, without which the store cannot be judged.
    #[error(
        "data server {server} has waited {seconds} s for the metadata server at {meta}: {why}; start that (`penstock up` on its host, or `penstock serve --meta`), then this server again",
        server = .server.0
    )]
    NoMetadata {
        /// Who waits.
        server: ServerId,
        /// For which address.
        meta: String,
        /// How long.
        seconds: u64,
        /// Why it could not be asked the last time.
        why: String,
    },
    /// A setting of the deployment or of the options.
    #[error("{0}")]
    Setting(String),
    /// The deployment has no such server.
    #[error("the deployment has no server {id}; its servers are {known:?}", id = .id.0)]
    UnknownServer {
        /// Asked for.
        id: ServerId,
        /// In the deployment.
        known: Vec<u32>,
    },
}

/// How a request ends early: with an answer, or with the connection.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The client gets this error.
    Reply(WireError),
    /// No client is left to be told.
    Connection(penstock_wire::Error),
}

impl From<WireError> for Fail {
    fn from(e: WireError) -> Fail {
        Fail::Reply(e)
    }
}

impl From<penstock_wire::Error> for Fail {
    fn from(e: penstock_wire::Error) -> Fail {
        Fail::Connection(e)
    }
}

/// An error answer.
pub(crate) fn refuse(kind: ErrorKind, message: impl Into<String>) -> WireError {
    WireError::new(kind, message)
}

/// A store's error for the client: the kind decides errno and MPI class.
pub(crate) fn store_error(e: StoreError) -> WireError {
    let kind = match &e {
        StoreError::NotFound(..) => ErrorKind::NotFound,
        StoreError::Full(_) => ErrorKind::NoSpace,
        StoreError::OverQuota(_) => ErrorKind::Quota,
        StoreError::ReadOnly(_) => ErrorKind::ReadOnly,
        StoreError::Damaged { .. } | StoreError::Lost { .. } => ErrorKind::Damaged,
        StoreError::Descriptors(_) => ErrorKind::Busy,
        StoreError::Fast { .. } => ErrorKind::Io,
        StoreError::Spec(_)
        | StoreError::Model(..)
        | StoreError::InUse { .. }
        | StoreError::Refused(_)
        | StoreError::WrongDeployment { .. } => ErrorKind::InvalidArgument,
        StoreError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            std::io::ErrorKind::QuotaExceeded => ErrorKind::Quota,
            std::io::ErrorKind::FileTooLarge => ErrorKind::TooLarge,
            _ => ErrorKind::Io,
        },
    };
    let hint = if kind == ErrorKind::TooLarge {
        "; the store's file system has no files of that size: use a smaller one"
    } else {
        ""
    };
    refuse(kind, format!("{e}{hint}"))
}
