//! Passthrough: objects lent to the kernel of a mount on this host.
//!
//! *Problem*: with a descriptor of the bytes the kernel reads and writes a file by itself, at the speed of the file
//! system below. But it keeps that descriptor until the file is closed, so it cannot be revoked like a shortcut.
//! *Idea*: nothing is revoked. For reads that is not needed: a read without a lock does not wait for locks anyway. A
//! descriptor lent for writing carries a shared flock(2). It is taken before the descriptor is passed, with the
//! object's mutex held, while nobody has or requests a range lock. The kernel keeps that lock with the open file,
//! through kill -9 of mount and server, and releases it with the last close. A range lock waits until it is released,
//! or fails and says what is open. Truncations need not wait: the file system below orders them with reads and writes.
//! *When*: the file is entirely on this server, and no policy must see each request. The client is root on a Unix
//! socket (the kernel takes descriptors from nobody else). The store is a directory on a file system with flock of its
//! own. Parameters: [`LOOK`].
use rustix::fs::FlockOperation;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// No file has bytes from here on; locks there are signals between programs, and do not wait for lent objects.
pub(crate) const SIGNS: u64 = 1 << 60;
/// Longest delay until the return of an object is noticed while a range lock waits for it.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// Whether a range lock waits for lent objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lent {
    Awaited,
    Ignored,
}

/// Marks the descriptor as writing until its last copy is closed.
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

/// Why an object cannot be lent, if so: what is lent must survive this server, on a file system of this host.
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
