//! Space that is held aside before a file takes it.
//!
//! `fallocate` takes what it can before it finds the file system full, and a reservation over several servers takes
//! what the first of them give. Nothing can be given back safely later: cutting or punching could hit bytes that
//! others have written meanwhile. So a file without a name takes the space first. If that fails anywhere, dropping it
//! frees everything, and the real file has not been touched.
use crate::world::current;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Space in a file without a name, which dropping it frees.
#[derive(Debug)]
pub struct Reservation {
    _file: OwnedFd,
}

/// Bytes that `file` still lacks to have blocks for its first `len` bytes. Blocks behind `len` count as if they were
/// before it, so that the answer is never too much.
fn missing(file: BorrowedFd<'_>, len: u64) -> Result<u64, Errno> {
    let has = u64::try_from(rustix::fs::fstat(file)?.st_blocks).unwrap_or(0);
    Ok(len.saturating_sub(has.saturating_mul(512)))
}

/// Holds what `file` lacks for its first `len` bytes, on the file system of `directory`, which is that of `file`. `None`
/// where nothing is missing or the file system has no files without names, or cannot reserve.
pub fn hold(
    directory: impl AsFd,
    file: BorrowedFd<'_>,
    len: u64,
) -> Result<Option<Reservation>, Errno> {
    let missing = missing(file, len)?;
    // As with fallocate itself, a world's disk cannot.
    if missing == 0 || current().is_some() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(scratch) = rustix::fs::openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) else {
        return Ok(None);
    };
    if rustix::fs::fstat(&scratch)?.st_dev != rustix::fs::fstat(file)?.st_dev {
        return Ok(None);
    }
    loop {
        return match rustix::fs::fallocate(&scratch, FallocateFlags::KEEP_SIZE, 0, missing) {
            Ok(()) => Ok(Some(Reservation { _file: scratch })),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(e) => Err(e),
        };
    }
}
