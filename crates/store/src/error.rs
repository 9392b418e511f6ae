//! What can go wrong with a store, and what a check can find in one.
use penstock_layout::FileId;
use rustix::io::Errno;
use std::fmt;

/// Why a store or an object could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store's name means nothing.
    #[error("store {0:?} is none of dir:PATH, memory, model:DEVICE")]
    Spec(String),
    /// The modelled device's name or options mean nothing.
    #[error("store {0:?}: {1}")]
    Model(String, penstock_device::ModelError),
    /// No such object.
    #[error("object {id:016x} does not exist in {1}", id = .0.0)]
    NotFound(FileId, String),
    /// No space or quota left.
    #[error("store {0} is full: free space or raise the quota")]
    Full(String),
    /// The file system or the permissions forbid writing.
    #[error(
        "store {0} cannot be written (read-only file system or missing permission): remount it or change its owner"
    )]
    ReadOnly(String),
    /// Too many open descriptors.
    #[error("store {0}: no descriptor left; raise the limit of open files (ulimit -n)")]
    Descriptors(String),
    /// Another server works on it.
    #[error("store {path} is in use by another server ({holder}); stop it first")]
    InUse {
        /// The store's directory.
        path: String,
        /// Who holds it.
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
    /// The metadata server does not take it for the right one.
    #[error("{0}")]
    Refused(String),
    /// The store held this object, and it is gone.
    #[error(
        "{path} is lost: {detail}; remove its file or cut it to nothing, or run `penstock check`"
    )]
    Lost {
        /// The object's file.
        path: String,
        /// How that is known.
        detail: String,
    },
    /// Stored data is not what was stored.
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
    /// Anything else the operating system says.
    #[error("{what} {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: String,
        /// The system's word.
        source: std::io::Error,
    },
}

impl StoreError {
    /// Descriptors have run out.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, StoreError::Descriptors(_))
    }

    /// The error of a failed system call `what` on `path`.
    pub fn from_errno(what: &'static str, path: impl Into<String>, errno: Errno) -> StoreError {
        match errno {
            Errno::NOSPC | Errno::DQUOT => StoreError::Full(path.into()),
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

/// Something a check found in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object concerned, if the file is one.
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
    /// The object was there, and now it is not, or it is an older copy.
    Missing(String),
    /// A file that no store makes.
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
