//! Errors of the library: an MPI error class, and a message with what, where and what to do.
//!
//! An [`Error`] is sent between ranks when a collective call agrees on its result, so it is plain data.
use penstock_wire::message::ErrorKind;
use serde::{Deserialize, Serialize};

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The error classes of MPI-4.1 (section 9.4) that an I/O call can raise. The C shim maps each to the
/// number its ABI uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorClass {
    /// `MPI_ERR_FILE`: invalid file handle.
    File,
    /// `MPI_ERR_NOT_SAME`: a collective argument differs between ranks.
    NotSame,
    /// `MPI_ERR_AMODE`: invalid access mode at open.
    Amode,
    /// `MPI_ERR_UNSUPPORTED_DATAREP`: unknown data representation.
    UnsupportedDatarep,
    /// `MPI_ERR_UNSUPPORTED_OPERATION`: not possible on this file (sequential, read-only, ...).
    UnsupportedOperation,
    /// `MPI_ERR_NO_SUCH_FILE`.
    NoSuchFile,
    /// `MPI_ERR_FILE_EXISTS`.
    FileExists,
    /// `MPI_ERR_BAD_FILE`: invalid file name.
    BadFile,
    /// `MPI_ERR_ACCESS`: permission denied.
    Access,
    /// `MPI_ERR_NO_SPACE`.
    NoSpace,
    /// `MPI_ERR_QUOTA`.
    Quota,
    /// `MPI_ERR_READ_ONLY`: read-only file or file system.
    ReadOnly,
    /// `MPI_ERR_FILE_IN_USE`.
    FileInUse,
    /// `MPI_ERR_DUP_DATAREP`.
    DupDatarep,
    /// `MPI_ERR_CONVERSION`: a user conversion function failed, or a value cannot be represented.
    Conversion,
    /// `MPI_ERR_IO`: any other I/O error.
    Io,
    /// `MPI_ERR_ARG`.
    Arg,
    /// `MPI_ERR_TYPE`.
    Type,
    /// `MPI_ERR_COUNT`.
    Count,
    /// `MPI_ERR_BUFFER`.
    Buffer,
    /// `MPI_ERR_COMM`: the communicator failed.
    Comm,
    /// `MPI_ERR_INFO_VALUE`.
    InfoValue,
    /// `MPI_ERR_REQUEST`: wrong order of split collective calls and the like.
    Request,
    /// `MPI_ERR_NO_MEM`.
    NoMem,
    /// `MPI_ERR_INTERN`: a defect of this library.
    Intern,
    /// `MPI_ERR_OTHER`.
    Other,
}

/// An error: the MPI class and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Error {
    /// The MPI error class.
    pub class: ErrorClass,
    /// What failed, where, and what to do.
    pub message: String,
}

impl Error {
    /// An error of a class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Error {
        Error {
            class,
            message: message.into(),
        }
    }

    /// The same error with its place in front of the message.
    pub fn at(self, place: impl std::fmt::Display) -> Error {
        Error {
            class: self.class,
            message: format!("{place}: {}", self.message),
        }
    }

    /// From an operating system error; `what` names the action and the file.
    pub fn os(what: impl std::fmt::Display, source: &std::io::Error) -> Error {
        let (class, hint) = match source.raw_os_error() {
            Some(libc::ENOENT) => (
                ErrorClass::NoSuchFile,
                "; check the path: a new file needs MPI_MODE_CREATE and a directory that exists",
            ),
            Some(libc::EEXIST) => (
                ErrorClass::FileExists,
                "; open without MPI_MODE_EXCL or choose another name",
            ),
            Some(libc::EACCES | libc::EPERM) => (ErrorClass::Access, "; check its permissions"),
            Some(libc::EROFS) => (ErrorClass::ReadOnly, "; open it MPI_MODE_RDONLY"),
            Some(libc::ENOSPC) => (ErrorClass::NoSpace, "; free space or choose another target"),
            Some(libc::EDQUOT) => (ErrorClass::Quota, "; free space or raise the quota"),
            Some(libc::EISDIR | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => {
                (ErrorClass::BadFile, "; check the file name")
            }
            Some(libc::ETXTBSY | libc::EBUSY) => (ErrorClass::FileInUse, "; wait until it is free"),
            Some(libc::ENOMEM) => (ErrorClass::NoMem, ""),
            Some(libc::EFBIG) => (ErrorClass::Arg, "; use a smaller size or offset"),
            Some(libc::EINVAL) => (ErrorClass::Arg, ""),
            _ => (ErrorClass::Io, ""),
        };
        Error::new(class, format!("{what}: {source}{hint}"))
    }

    /// The class of a failure reported by a Penstock server or the client library.
    pub fn class_of(kind: ErrorKind) -> ErrorClass {
        match kind {
            ErrorKind::NotFound => ErrorClass::NoSuchFile,
            ErrorKind::Exists => ErrorClass::FileExists,
            ErrorKind::NotDirectory
            | ErrorKind::IsDirectory
            | ErrorKind::NotEmpty
            | ErrorKind::NameTooLong
            | ErrorKind::Loop => ErrorClass::BadFile,
            ErrorKind::Permission
            | ErrorKind::NotOwner
            | ErrorKind::BadKey
            | ErrorKind::BadCapability
            | ErrorKind::ExpiredCapability => ErrorClass::Access,
            ErrorKind::ReadOnly => ErrorClass::ReadOnly,
            ErrorKind::NoSpace => ErrorClass::NoSpace,
            ErrorKind::Quota => ErrorClass::Quota,
            ErrorKind::InvalidArgument | ErrorKind::TooLarge | ErrorKind::NotText => {
                ErrorClass::Arg
            }
            ErrorKind::Busy => ErrorClass::FileInUse,
            ErrorKind::Unsupported => ErrorClass::UnsupportedOperation,
            ErrorKind::Malformed
            | ErrorKind::Damaged
            | ErrorKind::LockTimeout
            | ErrorKind::LockLost
            | ErrorKind::Io
            | ErrorKind::NoSession
            | ErrorKind::TooManyLinks
            | ErrorKind::NoAttribute
            | ErrorKind::ShuttingDown
            | ErrorKind::Version => ErrorClass::Io,
        }
    }
}

impl From<penstock_datatype::Error> for Error {
    fn from(e: penstock_datatype::Error) -> Error {
        Error::new(
            ErrorClass::Type,
            format!("datatype of this access: {e}; use a smaller count or type"),
        )
    }
}
