//! Space that is reserved before a file uses it.
//!
//! `fallocate` takes what it can before it finds the file system full. A reservation over several servers takes what
//! the first of them give. Nothing can be released safely later: truncating or punching could destroy bytes that others
//! have written meanwhile. So an unnamed file takes the space first. If that fails on any server, dropping it frees
//! everything, and the real file is untouched.
use crate::world::current;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Space held by an unnamed file, which is freed on drop.
#[derive(Debug)]
pub struct Reservation {
    _file: OwnedFd,
}

/// Bytes that `file` lacks to have blocks for its first `len` bytes. Blocks behind `len` count as if they were before
/// it, so that the answer is never too large.
fn missing(file: BorrowedFd<'_>, len: u64) -> Result<u64, Errno> {
    let has = u64::try_from(rustix::fs::fstat(file)?.st_blocks).unwrap_or(0);
    Ok(len.saturating_sub(has.saturating_mul(512)))
}

/// Reserves what `file` lacks for its first `len` bytes, on the file system of `directory`, which must be that of
/// `file`. `None` if nothing is missing, or the file system has no unnamed files or cannot reserve.
pub fn hold(
    directory: impl AsFd,
    file: BorrowedFd<'_>,
    len: u64,
) -> Result<Option<Reservation>, Errno> {
    let missing = missing(file, len)?;
    // Like fallocate itself, not supported by a world's disk.
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
