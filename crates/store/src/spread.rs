//! Spreading: writes many small pieces to an object without a call for each.
//!
//! Problem: a `pwrite` of 256 B costs 1.35 µs on ext4 (journal handle, locks) and 0.6 µs on tmpfs, many times the cost
//! of copying. A writer must not change the bytes between its pieces, so it cannot write whole extents as a reader can
//! read them. Idea: map the part of the object that contains the pieces, and copy their bytes to a staging file in
//! memory. One `preadv` of the staging file, whose vectors point into the mapping, then does the copying. The kernel
//! stores exactly the given bytes in the page cache; concurrent writes to bytes between them are preserved. The kernel
//! and not the program accesses the mapping. If the object is truncated meanwhile or the device is full, the call
//! therefore ends short instead of raising SIGBUS. The rest is then written piece by piece, which returns the actual
//! error. Two hazards: when a write extends an object, Linux shows the new length first and then zeroes the page from
//! the old end on. It does so under a lock that stores through mappings do not take. So before spreading beyond a
//! length that was just read, one piece is written by a call, which waits for that lock (`Execution::spread`). And no
//! truncation may happen in between. A page has space beyond the end of its object. On tmpfs what is stored there
//! becomes part of the object as soon as it grows again ([`crate::Object::steady`]). Before a truncation, clients with
//! a grant are waited for. When it pays: a page written through a mapping has a fixed cost, whatever the number of
//! pieces. On ext4 it is 0.6 µs in huge folios, 1.1 µs in folios of 64 KiB, and 3.1 µs in single pages. It is 2 µs for
//! a page not yet cached. On tmpfs it is 2.2 µs. So it pays from 4 pieces per page on, on tmpfs from 8. Parts of 2 MiB
//! are mapped at multiples of 2 MiB, because only then are huge folios mapped at once. Otherwise each of their pages
//! costs 6 µs. Measured as CPU time, 2 shared cores, Linux 6.18, 2026-11.
use crate::descriptor;
use crate::mapping::Mapping;
use crate::window::{PICKS, REGION, STAGING, Window};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Least number of pieces for a mapping.
pub(crate) const FEWEST: usize = 16;

/// Largest mean distance of pieces, from start to start, at which spreading pays on the file system of `file`. 0 if
/// that is unknown, and in a simulated world, which must see each write.
pub(crate) fn distance(file: BorrowedFd<'_>) -> u64 {
    if penstock_host::simulated() {
        return 0;
    }
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342; // Faults are handled like ext4's.
    const TMPFS: i64 = 0x0102_1994;
    match rustix::fs::fstatfs(file).map(|s| s.f_type) {
        Ok(EXT4 | XFS) => 1024,
        Ok(TMPFS) => 512,
        _ => 0,
    }
}

/// Access mode of mappings for writing.
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// The part of one object that was spread over last.
#[derive(Debug)]
pub(crate) struct Region {
    from: u64,
    map: Mapping,
}

impl Region {
    /// The region around offset `at` of `object`; `last` if it is that one.
    pub(crate) fn around(
        at: u64,
        object: BorrowedFd<'_>,
        last: Option<Region>,
    ) -> Result<Region, Errno> {
        let from = at / REGION * REGION;
        match last {
            Some(region) if region.from == from => Ok(region),
            _ => Ok(Region {
                from,
                map: Mapping::new(object, from, REGION as usize, ACCESS)?,
            }),
        }
    }
}

/// A private mapped file in memory, through which spread bytes pass.
#[derive(Debug)]
pub(crate) struct Staging {
    file: OwnedFd,
    map: Mapping,
    vectors: Vec<libc::iovec>,
}

// SAFETY: `vectors` points into memory only during `spread`; the rest is Send by itself.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new() -> Result<Staging, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("penstock-staging", flags)?;
        rustix::fs::ftruncate(&file, STAGING as u64)?;
        descriptor::allocate(file.as_fd(), 0, STAGING as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = Mapping::new(file.as_fd(), 0, STAGING, ACCESS)?;
        Ok(Staging {
            file,
            map,
            vectors: Vec::with_capacity(PICKS),
        })
    }

    /// The staged bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a live mapping of STAGING bytes of a file that has these bytes and cannot shrink. Nobody else has it
        // open or mapped, and it is borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.map.at.cast(), STAGING) }
    }

    /// Copies the staged bytes, in order, to the pieces of `window`, all within `region`, as far as the object has
    /// these offsets. Returns how many pieces were completely written, from the first on.
    pub(crate) fn spread(&mut self, region: &Region, window: &Window) -> Result<usize, Errno> {
        if window.low < region.from || window.high > region.from + REGION {
            return Err(Errno::INVAL);
        }
        self.vectors.clear();
        self.vectors
            .extend(window.picks.iter().take(PICKS).map(|pick| {
                libc::iovec {
                    iov_base: region
                        .map
                        .at
                        .wrapping_byte_add((pick.object - region.from) as usize),
                    iov_len: pick.len as usize,
                }
            }));
        let done = loop {
            // SAFETY: the vectors are as many as said and point into the live mapping of `region`: the
            // window lies within it. Nothing in this program refers to that memory; the kernel writes it.
            let done = unsafe {
                libc::preadv(
                    self.file.as_raw_fd(),
                    self.vectors.as_ptr(),
                    self.vectors.len() as libc::c_int,
                    0,
                )
            };
            match usize::try_from(done) {
                Ok(done) => break done,
                Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => break 0, // Nothing was written: writing the rest will return the reason.
            }
        };
        let mut end = 0;
        Ok(window
            .picks
            .iter()
            .take_while(|pick| {
                end += pick.len as usize;
                end <= done
            })
            .count())
    }
}
