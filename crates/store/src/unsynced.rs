//! The mark of an object whose sync has failed.
//!
//! Problem: the system reports a failed write-back once and may drop the bytes; the next sync succeeds without them. A server
//! that is started again has to know that, and when a sync fails the disk may be full: a file, a record or an attribute
//! that has to be made for the mark finds no room. Idea: a bit that every file has from the beginning, which nothing else uses
//! on a regular file: the sticky bit of its mode. It outlives the process; after a loss of power, with which what the
//! system took for written is gone from its memory too, it may be there or not.
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

/// Takes the mark away; not durable before the next fsync(2).
pub(crate) fn clear(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(file)?;
    if !marked(&stat) {
        return Ok(());
    }
    penstock_host::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode) - MARK)
}
