//! Spreading many small pieces over an object without a call for each.
//!
//! Problem: a `pwrite` of 256 B costs 1.35 µs on ext4 (journal handle, locks) and 0.6 µs on tmpfs, many
//! times the copying, and a writer must not touch the bytes between its pieces, so that it cannot write
//! whole extents as a reader can read them.
//! Idea: map the part of the object that the pieces lie in, put their bytes into a staging file in
//! memory, and let one `preadv` of the staging file, whose vectors point into the mapping, do the copying.
//! The kernel stores to the page cache exactly the bytes given; what other writers put beside them at the
//! same time stays. Since the kernel and not the program touches the mapping, an object that is cut
//! meanwhile or a full device ends the call short instead of raising SIGBUS; the rest is then written
//! piece by piece and gives the true error.
//! What to mind: when a write lengthens an object, Linux shows the new length first and then zeroes the page from the old end
//! on, under a lock that stores through mappings don't take. So whoever spreads behind a length it has just seen
//! writes one piece by a call before, which waits for that lock (`Execution::spread`). And a cut must not come between:
//! a page has room behind the end of its object, and on tmpfs what is stored there is part of the object as soon as that
//! grows again ([`crate::Object::steady`]; clients that have the object by a grant are waited for before it is cut).
//! When it pays: a page written through a mapping costs, however many pieces lie in it, on ext4 0.6 µs
//! where the cache holds it in huge folios, 1.1 µs in folios of 64 KiB, 3.1 µs in single pages and 2 µs
//! where it does not exist yet; on tmpfs 2.2 µs. So from 4 pieces a page on, on tmpfs from 8. Parts of
//! 2 MiB are mapped at multiples of 2 MiB: only then are huge folios mapped at once; otherwise each of
//! their pages costs 6 µs. Measured as CPU time, 2 shared cores, Linux 6.18, 2026-11.
use crate::descriptor;
use crate::mapping::Mapping;
use crate::window::{PICKS, REGION, STAGING, Window};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Fewest pieces worth a mapping.
pub(crate) const FEWEST: usize = 16;

/// Largest average distance of pieces, from start to start, at which spreading pays on the file system
/// of `file`; 0 where it is not known to pay, and in a simulated world, which has to see each write.
pub(crate) fn distance(file: BorrowedFd<'_>) -> u64 {
    if penstock_host::simulated() {
        return 0;
    }
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342; // faults are served like ext4's
    const TMPFS: i64 = 0x0102_1994;
    match rustix::fs::fstatfs(file).map(|s| s.f_type) {
        Ok(EXT4 | XFS) => 1024,
        Ok(TMPFS) => 512,
        _ => 0,
    }
}

/// Mappings that bytes are written through.
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

/// A private file in memory, mapped, that spread bytes pass through.
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
        // SAFETY: a live mapping of STAGING bytes of a file that has these bytes, cannot shrink, that
        // nobody else has open or mapped, and that is borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.map.at.cast(), STAGING) }
    }

    /// Puts the staged bytes, in order, where the pieces of `window` lie, all within `region`, as far as
    /// the object has these places. Returns how many pieces were written whole, from the first on.
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
                Err(_) => break 0, // nothing was written: whoever writes the rest learns why
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
