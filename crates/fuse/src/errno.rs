//! Errors for the kernel.
use fuser::Errno;
use penstock_client::{Error, ErrorKind};

pub(crate) fn errno(e: &Error) -> Errno {
    log::debug!("{e}");
    Errno::from_i32(e.errno())
}

/// For calls on a node that the kernel already knows: if it is gone, the kernel looks its name up again.
pub(crate) fn stale(e: &Error) -> Errno {
    match e.kind() {
        ErrorKind::NotFound => Errno::ESTALE,
        _ => errno(e),
    }
}

pub(crate) fn invalid(what: &str) -> Error {
    Error::Invalid(what.to_owned())
}
