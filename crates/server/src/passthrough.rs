//! Objects lent to the kernel of a mount on this host: passthrough.
//!
//! *Problem*: the kernel reads and writes a file by itself if it is given a descriptor of the bytes, at the speed of the file
//! system below; but it keeps that descriptor until the file is closed, so it can't be taken back as a shortcut can.
//! *Idea*: nothing is taken back. Reads need not be: a read without a lock waits for no lock either. A descriptor that is lent
//! for writing carries a shared flock(2) from the moment it leaves here, taken with the object's mutex held while nobody
//! has or wants a range lock. The kernel keeps that lock with the open file, through kill -9 of the mount and of
//! this server, and drops it with the last close. A range lock waits until it is gone, or fails and says what is open.
//! Cuts need not wait: the file system below orders them against reads and writes by itself.
//! *When*: the file is whole on this server, the client is root on a Unix socket (the kernel takes descriptors from
//! nobody else), nothing has to see each request, and the store is a directory on a file system with flock of its own.
//! Parameters: [`LOOK`].
use rustix::fs::FlockOperation;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes from here on no file has; locks there are signs that programs give each other, and wait for no loan.
pub(crate) const SIGNS: u64 = 1 << 60;
/// How long the return of an object may go unseen while a range lock waits for it.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// Whether a range lock waits for what is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lent {
    Awaited,
    Ignored,
}

/// The descriptor may write from now on until its last copy is closed.
pub(crate) fn mark(descriptor: &OwnedFd) -> std::io::Result<()> {
    Ok(rustix::fs::flock(
        descriptor,
        FlockOperation::NonBlockingLockShared,
    )?)
}

/// Whether another descriptor of this file has the mark.
pub(crate) fn is_out(object: BorrowedFd<'_>) -> bool {
    match rustix::fs::flock(object, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            if let Err(e) = rustix::fs::flock(object, FlockOperation::Unlock) {
                log::error!("cannot unlock an object; it gets no passthrough any more: {e}");
            }
            false
        }
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        Err(e) => {
            log::warn!("cannot tell whether an object has passthrough: {e}");
            true
        }
    }
}

/// Why an object is not lent, if so: what is lent must outlive this server, on a file system of this host.
pub(crate) fn suits(object: BorrowedFd<'_>) -> Result<(), &'static str> {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const TMPFS: i64 = 0x0102_1994;
    let local = rustix::fs::fstatfs(object.as_fd())
        .is_ok_and(|s| matches!(s.f_type, EXT4 | XFS | BTRFS | TMPFS));
    if !local {
        return Err("the store is on no file system known to suit");
    }
    match rustix::fs::fstat(object) {
        Ok(stat) if stat.st_nlink > 0 => Ok(()),
        _ => Err("the object has no name: its store is memory, or it was removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shortcut::reopen;

    #[test]
    fn a_loan_lasts_until_its_last_copy_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let object = file.as_file().as_fd();
        assert!(!is_out(object));
        let lent = reopen(object, true, false).unwrap();
        assert!(!is_out(object), "for reading only");
        mark(&lent).unwrap();
        let second = reopen(object, true, false).unwrap();
        mark(&second).unwrap();
        let copy = lent.try_clone().unwrap();
        drop((lent, second));
        assert!(is_out(object));
        drop(copy);
        assert!(!is_out(object) && !is_out(object));
    }

    #[test]
    fn objects_without_names_stay_here() {
        let file = tempfile::tempfile().unwrap();
        assert!(suits(file.as_fd()).unwrap_err().contains("no name"));
    }
}
