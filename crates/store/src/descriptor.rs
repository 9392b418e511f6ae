//! Positioned I/O on a raw descriptor: handles partial transfers, interruptions and the limits of one call.
use crate::mappable::Mappable;
use crate::{Object, StoreError};
use penstock_layout::ObjectOffset;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

/// Most buffers of one `preadv` or `pwritev` (IOV_MAX of Linux).
pub const MAX_VECTORS: usize = 1024;

/// Reads until `buf` is full or the file ends.
pub(crate) fn read_at(fd: BorrowedFd<'_>, at: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match penstock_host::fs::pread(fd, &mut buf[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes all of `buf`.
pub(crate) fn write_at(fd: BorrowedFd<'_>, at: u64, buf: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        match penstock_host::fs::pwrite(fd, &buf[done..], at + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads until all buffers are full or the file ends.
pub(crate) fn read_vectored_at(
    fd: BorrowedFd<'_>,
    at: u64,
    mut bufs: &mut [IoSliceMut<'_>],
) -> Result<usize, Errno> {
    let mut done = 0;
    IoSliceMut::advance_slices(&mut bufs, 0); // drops leading empty buffers
    while !bufs.is_empty() {
        let now = bufs.len().min(MAX_VECTORS);
        let got = match &mut bufs[..now] {
            // Saves copying a vector.
            [only] => penstock_host::fs::pread(fd, &mut only[..], at + done as u64),
            several => penstock_host::fs::preadv(fd, several, at + done as u64),
        };
        match got {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                IoSliceMut::advance_slices(&mut bufs, n);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes all bytes of all buffers.
pub(crate) fn write_vectored_at(
    fd: BorrowedFd<'_>,
    mut at: u64,
    mut bufs: &[IoSlice<'_>],
) -> Result<(), Errno> {
    while let Some(first) = bufs.first() {
        if first.is_empty() {
            bufs = &bufs[1..];
            continue;
        }
        let now = bufs.len().min(MAX_VECTORS);
        let mut n = match penstock_host::fs::pwritev(fd, &bufs[..now], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        at += n as u64;
        while n > 0 {
            let len = bufs[0].len();
            if n < len {
                // A partly transferred buffer is finished separately, because the slices must not be changed.
                write_at(fd, at, &bufs[0][n..])?;
                at += (len - n) as u64;
                n = len;
            }
            n -= len;
            bufs = &bufs[1..];
        }
    }
    Ok(())
}

/// Reserves space; `Ok` also where the file system does not support it.
pub(crate) fn allocate(fd: BorrowedFd<'_>, at: u64, len: u64) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    loop {
        return match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, at, len) {
            // A reservation concerns later writes, not contents: without support those writes report a full disk
            // themselves.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(Errno::INTR) => continue,
            other => other,
        };
    }
}

/// Extends the file to at least `len` bytes in one step, which never truncates concurrent writes. False where the file
/// system does not support it (it reserves one block at the new end).
pub(crate) fn extend(fd: BorrowedFd<'_>, len: u64) -> Result<bool, Errno> {
    let Some(last) = len.checked_sub(1) else {
        return Ok(true);
    };
    loop {
        return match penstock_host::fs::reserve(fd, last, 1) {
            Ok(()) => Ok(true),
            Err(Errno::INTR) => continue,
            // Without space for a block a hole may still be possible.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC | Errno::DQUOT) => Ok(false),
            Err(e) => Err(e),
        };
    }
}

/// Length of the file.
pub(crate) fn len(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::fstat(fd)?.st_size.unsigned_abs())
}

/// Time of the last change of the file's bytes or length, nanoseconds since the epoch.
pub(crate) fn modified_ns(fd: BorrowedFd<'_>) -> Result<i64, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(stat
        .st_mtime
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::try_from(stat.st_mtime_nsec).unwrap_or(0)))
}

/// A passed descriptor of an object used as an object, by a client on the same host.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor<'a> {
    fd: BorrowedFd<'a>,
}

impl<'a> Descriptor<'a> {
    /// The object behind `fd`.
    pub fn new(fd: &'a impl AsFd) -> Descriptor<'a> {
        Descriptor { fd: fd.as_fd() }
    }

    fn error(&self, what: &'static str, errno: Errno) -> StoreError {
        StoreError::from_errno(what, "object of a same-host server", errno)
    }
}

impl Object for Descriptor<'_> {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        read_at(self.fd, at.0, buf).map_err(|e| self.error("read", e))
    }
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        write_at(self.fd, at.0, buf).map_err(|e| self.error("write", e))
    }
    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        read_vectored_at(self.fd, at.0, bufs).map_err(|e| self.error("read", e))
    }
    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        write_vectored_at(self.fd, at.0, bufs).map_err(|e| self.error("write", e))
    }
    fn len(&self) -> Result<u64, StoreError> {
        len(self.fd).map_err(|e| self.error("stat", e))
    }
    /// Only the server sets lengths, because it keeps the record of the synced length.
    fn set_len(&self, _len: u64) -> Result<(), StoreError> {
        Err(self.error("set the length of", Errno::OPNOTSUPP))
    }
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        allocate(self.fd, at.0, len).map_err(|e| self.error("allocate", e))
    }
    /// Only the server syncs, because it keeps the record of the synced length.
    fn sync(&self) -> Result<(), StoreError> {
        Err(self.error("sync", Errno::OPNOTSUPP))
    }
    fn mappable(&self) -> Option<&dyn Mappable> {
        Some(self)
    }
}

impl Mappable for Descriptor<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
