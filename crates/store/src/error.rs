//! Errors of stores, and findings of checks.
use penstock_layout::FileId;
use rustix::io::Errno;
use std::fmt;

/// Why an operation on a store or an object failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store's specification is invalid.
    #[error("store {0:?} is none of dir:PATH, memory, model:DEVICE")]
    Spec(String),
    /// The modelled device's name or options are invalid.
    #[error("store {0:?}: {1}")]
    Model(String, penstock_device::ModelError),
    /// No such object.
    #[error("object {id:016x} does not exist in {1}", id = .0.0)]
    NotFound(FileId, String),
    /// No space left.
    #[error("store {0} is full: free space, or use a larger file system")]
    Full(String),
    /// A quota of the store's file system, on the servers' user or on the store as a project, is used up.
    #[error(
        "store {0}: its file system's quota is used up: remove files, or have the quota raised"
    )]
    OverQuota(String),
    /// The file system or the permissions forbid writing.
    #[error(
        "store {0} cannot be written (read-only file system or missing permission): remount it or change its owner"
    )]
    ReadOnly(String),
    /// Too many open descriptors.
    #[error("store {0}: no descriptor left; raise the limit of open files (ulimit -n)")]
    Descriptors(String),
    /// Another server uses it.
    #[error("store {path} is in use by another server ({holder}); stop it first")]
    InUse {
        /// The store's directory.
        path: String,
        /// The holder of its lock.
        holder: String,
    },
    /// It was made for another deployment or server.
    #[error("store {path} belongs to {found}, not {expected}: name the right directory")]
    WrongDeployment {
        /// The store's directory.
        path: String,
        /// Deployment and server it was made for.
        found: String,
        /// Deployment and server that opened it.
        expected: String,
    },
    /// The metadata server does not accept it as the right one.
    #[error("{0}")]
    Refused(String),
    /// The store had this object, and it is missing.
    #[error(
        "{path} is lost: {detail}; remove its file or cut it to nothing, or run `penstock check`"
    )]
    Lost {
        /// The object's file.
        path: String,
        /// How that is known.
        detail: String,
    },
    /// Stored data is damaged.
    #[error("{what} in {path} is damaged: {detail}; run `penstock check`")]
    Damaged {
        /// The file.
        path: String,
        /// Which part.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A fast tier and the store behind it do not fit together, or the tier has failed.
    #[error("{path}: {why}")]
    Fast {
        /// The tier, or the store behind it.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// Any other error of the operating system.
    #[error("{what} {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl StoreError {
    /// Whether descriptors have run out.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, StoreError::Descriptors(_))
    }

    /// The error of a failed system call `what` on `path`.
    pub fn from_errno(what: &'static str, path: impl Into<String>, errno: Errno) -> StoreError {
        match errno {
            Errno::NOSPC => StoreError::Full(path.into()),
            Errno::DQUOT => StoreError::OverQuota(path.into()),
            Errno::ROFS | Errno::ACCESS | Errno::PERM => StoreError::ReadOnly(path.into()),
            Errno::MFILE | Errno::NFILE => StoreError::Descriptors(path.into()),
            _ => StoreError::Io {
                what,
                path: path.into(),
                source: errno.into(),
            },
        }
    }
}

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object, if the file is one.
    pub object: Option<FileId>,
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Kinds of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The record of the synced length does not match its checksum.
    BadRecord(String),
    /// The object is shorter than what was synced.
    Truncated {
        /// Synced length, bytes.
        recorded: u64,
        /// Present length, bytes.
        actual: u64,
    },
    /// The object is missing, or is an older copy.
    Missing(String),
    /// A file that no store creates.
    Foreign,
    /// The file cannot be opened, or is no regular file.
    Unreadable(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.problem {
            Problem::BadRecord(detail) => write!(
                f,
                "{path}: damaged record ({detail}); its data may be complete: compare, then accept it"
            ),
            Problem::Truncated { recorded, actual } => write!(
                f,
                "{path}: {actual} B long, but {recorded} B were synced; restore it or accept the loss"
            ),
            Problem::Missing(detail) => write!(
                f,
                "{path}: {detail}; restore it, remove its file, or accept the loss with `penstock check --accept-lost FILE`"
            ),
            Problem::Foreign => write!(f, "{path}: not part of the store; move it away"),
            Problem::Unreadable(detail) => write!(f, "{path}: cannot be read: {detail}"),
        }
    }
}
