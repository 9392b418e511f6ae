//! The mark of an object whose sync has failed.
//!
//! Problem: the system reports a failed write-back once and may drop the bytes; the next sync succeeds without them. A
//! restarted server must know that. When a sync fails the disk may be full: there may be no space for a file, a record
//! or an attribute as mark. Idea: use a bit that every file has and that has no other use on a regular file: the sticky
//! bit of its mode. It survives the process. After a power loss, which also clears the page cache, it may be there or
//! not.
use rustix::fs::{Mode, Stat};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

const MARK: Mode = Mode::SVTX;

/// Whether a file carries the mark.
pub(crate) fn marked(stat: &Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).contains(MARK)
}

/// Sets the mark.
pub(crate) fn mark(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    penstock_host::fs::fchmod(file, mode | MARK)?;
    // Some file systems without modes take the call and do nothing.
    if marked(&rustix::fs::fstat(file)?) {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

/// Clears the mark; durable with the next fsync(2).
pub(crate) fn clear(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(file)?;
    if !marked(&stat) {
        return Ok(());
    }
    penstock_host::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode) - MARK)
}
