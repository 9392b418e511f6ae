//! A mapping of a part of a file.
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// A shared mapping, unmapped on drop. Each access must say why the bytes exist: a page that the file does not have
/// kills the process.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) at: *mut c_void,
    pub(crate) len: usize,
}

// SAFETY: a mapping is valid from every thread, and `Mapping` itself gives no access to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from offset `from` on, a multiple of the page size.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        from: u64,
        len: usize,
        access: ProtFlags,
    ) -> Result<Mapping, Errno> {
        // SAFETY: the place is the kernel's choice, so that nothing is replaced.
        let at =
            unsafe { rustix::mm::mmap(null_mut(), len, access, MapFlags::SHARED, file, from)? };
        Ok(Mapping { at, len })
    }

    /// Populates pages, so that they can be read. An error instead of a signal if the file does not have them or its
    /// device cannot read them.
    pub(crate) fn populate(&self, from: usize, len: usize) -> Result<(), Errno> {
        if from.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the range lies in a live mapping, and reading pages in changes none of them.
        unsafe {
            let at = self.at.cast::<u8>().add(from);
            rustix::mm::madvise(at.cast(), len, Advice::LinuxPopulateRead)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and references into it do not outlive it. It cannot
        // fail for a live mapping; if it did, the mapping would stay.
        let _ = unsafe { rustix::mm::munmap(self.at, self.len) };
    }
}
