//! Why a metadata server does not start.
use penstock_wire::message::WireError;

/// Why the metadata store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another server holds it.
    #[error(
        "metadata store {path} is in use by {holder}; stop that server first (`penstock down`)"
    )]
    InUse {
        /// The store's directory.
        path: String,
        /// The holder, as far as known.
        holder: String,
    },
    /// It was made for another deployment.
    #[error(
        "metadata store {path} belongs to deployment {found}, not {expected}; give each deployment a directory of its own"
    )]
    WrongDeployment {
        /// The store's directory.
        path: String,
        /// Its deployment id.
        found: String,
        /// The id of the deployment file.
        expected: String,
    },
    /// Its contents are damaged.
    #[error("metadata store {path} is damaged: {detail}; {advice}")]
    Damaged {
        /// The database file.
        path: String,
        /// What was found.
        detail: String,
        /// What to do.
        advice: String,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Why a metadata server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The deployment is invalid, or the store cannot be written.
    #[error(transparent)]
    Refused(#[from] WireError),
    /// Keys cannot be read or sockets cannot be opened.
    #[error(transparent)]
    Wire(#[from] penstock_wire::Error),
}
