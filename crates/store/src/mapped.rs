//! Reads an object out of a mapping instead of by system calls.
//!
//! Problem: a `pread` of 3 KiB from the page cache costs 0.7 µs; copying 3 KiB costs a fifth of that. Large reads gain
//! less. The kernel copies 21 GB/s in calls of 64 KiB and 25 in calls of 1 MiB. A process copies 31 out of a mapping (2
//! shared cores, ext4). Idea: what was read once is probably in the page cache, and will be read again, or next to the
//! following read. The first small read in a chunk of [`CHUNK`] bytes is a `pread`. A later one, or one of [`DENSE`] at
//! once, populates the chunk's pages in a mapping, and from then on reads in it are copies. Populating a chunk costs as
//! much as [`PATIENCE`] large reads of it lose by being calls, so the first ones are calls. A file that is read once
//! costs nothing extra, and the total cost is at most twice the optimum (the rent-or-buy rule). Windows of [`WINDOW`]
//! bytes are mapped, one per object, so that page tables stay small. An access elsewhere begins a new window. When it
//! pays: repeated reads of one part of an object. Where reads are never repeated nearby, nothing is mapped.
//!
//! *Why a read cannot kill the process.* A page beyond the end of the object, or one that the device cannot read,
//! raises SIGBUS. Three rules prevent that. A [`Mapped`] is made for one operation of a caller who knows that nobody
//! truncates the object before the operation ends (a grant: `penstock_rpc::grant`). Nothing beyond its length is
//! accessed. A chunk is first populated by a call that returns an error instead of a signal. After an error, reads in
//! the window are calls, which report what is wrong. (A page that the system has dropped since is read from the device
//! again: if it has become unreadable meanwhile it raises the signal.) A known length stays valid as long as nobody
//! truncates the object, so it is kept between operations until [`Maps::forget_len`]. Reads beyond it always ask for
//! the length, so that bytes just appended are read. *Holes.* On a file system in memory, a page of a hole that is
//! accessed through a mapping becomes allocated. A reader of a sparse object would fill the store. There chunks with
//! holes are read by calls. Parameters: [`CHUNK`], [`SMALL`], [`PATIENCE`], [`DENSE`], [`WINDOW`].
use crate::mappable::Mappable;
use crate::mapping::Mapping;
use crate::view::{CHUNK, CHUNKS, View, WINDOW, Window};
use crate::{Descriptor, Object, StoreError};
use penstock_host::reservation::Reservation;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::ObjectOffset;
use rustix::fs::SeekFrom;
use rustix::mm::ProtFlags;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

/// Reads below this size are small: the second one in a chunk justifies a mapping.
const SMALL: u64 = 32 << 10;
/// Large reads of a chunk by calls whose extra cost equals that of populating it.
const PATIENCE: u8 = 3;
/// A chunk with this many reads at once is mapped immediately.
const DENSE: u64 = 4;

/// The mappings of an object in one process, kept between operations.
#[derive(Debug, Default)]
pub struct Maps {
    /// The kind of this file system's mappings, once determined.
    kind: OnceLock<Coherence>,
    /// A length that the object is known to have.
    len: AtomicU64,
    /// The window read last.
    seen: Mutex<Option<Seen>>,
}

/// A window with its state.
#[derive(Debug)]
struct Seen {
    number: u64,
    /// Reads by calls of each chunk, up to [`PATIENCE`].
    calls: Box<[u8; CHUNKS]>,
    window: Option<Arc<Window>>,
    /// Whether a page could not be populated.
    failed: bool,
}

impl Maps {
    /// Never maps anything: for callers that must not get SIGBUS when the object is truncated.
    pub fn calls_only() -> Maps {
        Maps {
            kind: OnceLock::from(Coherence::Unknown),
            ..Maps::default()
        }
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object may have been truncated: its length must be queried again.
    pub fn forget_len(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    /// The window for [from, end), end > from, if each of its chunks has been read by calls `patience` times.
    fn window(
        &self,
        file: BorrowedFd<'_>,
        from: u64,
        end: u64,
        patience: u8,
    ) -> Option<Arc<Window>> {
        let number = from / WINDOW;
        if (end - 1) / WINDOW != number {
            return None;
        }
        let mut seen = self.seen();
        if seen.as_ref().is_none_or(|seen| seen.number != number) {
            *seen = Some(Seen {
                number,
                calls: Box::new([0; CHUNKS]),
                window: None,
                failed: false,
            });
        }
        let seen = seen.as_mut()?;
        if seen.failed {
            return None;
        }
        let chunks = (from % WINDOW / CHUNK) as usize..=((end - 1) % WINDOW / CHUNK) as usize;
        let calls = &mut seen.calls[chunks];
        if calls.iter().any(|&calls| calls < patience) {
            for calls in calls {
                *calls = (*calls + 1).min(PATIENCE);
            }
            return None;
        }
        if seen.window.is_none() {
            match Mapping::new(file, number * WINDOW, WINDOW as usize, ProtFlags::READ) {
                Ok(map) => {
                    seen.window = Some(Arc::new(Window::new(map)));
                }
                Err(e) => {
                    log::debug!("an object is not mapped: {e}");
                    seen.failed = true;
                }
            }
        }
        seen.window.clone()
    }

    /// Stops mapping the present window.
    fn failed(&self) {
        if let Some(seen) = &mut *self.seen() {
            seen.window = None;
            seen.failed = true;
        }
    }
}

/// The kind of a file system's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coherence {
    /// They may not show at once what calls write, or that is unknown.
    Unknown,
    /// They show at once what calls write, also of other processes.
    Coherent,
    /// The same, and a hole accessed through them is allocated.
    Memory,
}

fn kind(file: BorrowedFd<'_>) -> Coherence {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const TMPFS: i64 = 0x0102_1994;
    match rustix::fs::fstatfs(file).map(|s| s.f_type) {
        Ok(EXT4 | XFS) => Coherence::Coherent,
        Ok(TMPFS) => Coherence::Memory,
        _ => Coherence::Unknown,
    }
}

/// A passed descriptor of an object for one operation, during which nobody truncates the object: reads are copies where
/// that pays.
#[derive(Debug)]
pub struct Mapped<'a> {
    object: Descriptor<'a>,
    fd: BorrowedFd<'a>,
    maps: &'a Maps,
}

impl<'a> Mapped<'a> {
    /// The object of `fd`, whose mappings are in `maps`. The caller guarantees that the object is not truncated while
    /// this exists. Nor may it have been since `maps` was made or [`Maps::forget_len`] was called.
    pub fn new(fd: &'a impl AsFd, maps: &'a Maps) -> Mapped<'a> {
        Mapped {
            object: Descriptor::new(fd),
            fd: fd.as_fd(),
            maps,
        }
    }

    fn kind(&self) -> Coherence {
        *self.maps.kind.get_or_init(|| kind(self.fd))
    }

    /// Whether [from, end) of the object may be accessed through a mapping.
    fn is_solid(&self, from: u64, end: u64) -> bool {
        self.kind() == Coherence::Coherent
            || rustix::fs::seek(self.fd, SeekFrom::Hole(from)).is_ok_and(|hole| hole >= end)
    }

    /// Whether the object has `end` bytes.
    pub fn reaches(&self, end: u64) -> Result<bool, StoreError> {
        Ok(end <= self.reached(end)?)
    }

    /// A known length of the object, at least `end` if it has that many bytes.
    fn reached(&self, end: u64) -> Result<u64, StoreError> {
        let known = self.maps.len.load(Ordering::Relaxed);
        if end <= known {
            return Ok(known);
        }
        let len = self.object.len()?;
        self.maps.len.store(len, Ordering::Relaxed);
        Ok(len)
    }
}

impl Object for Mapped<'_> {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        if let Some(view) = self.view(at, buf.len() as u64, 1) {
            view.copy(0, buf);
            return Ok(buf.len());
        }
        self.object.read_at(at, buf)
    }
    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        match bufs {
            [only] => self.read_at(at, only),
            several => {
                let len = several.iter().map(|buf| buf.len() as u64).sum();
                let Some(view) = self.view(at, len, 1) else {
                    return self.object.read_vectored_at(at, several);
                };
                let mut from = 0;
                for buf in several {
                    view.copy(from, buf);
                    from += buf.len() as u64;
                }
                Ok(len as usize)
            }
        }
    }
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        self.object.write_at(at, buf)
    }
    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        self.object.write_vectored_at(at, bufs)
    }
    fn len(&self) -> Result<u64, StoreError> {
        self.object.len()
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.object.set_len(len)
    }
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.object.allocate(at, len)
    }
    fn hold(&self, len: u64) -> Result<Option<Reservation>, StoreError> {
        self.object.hold(len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.object.sync()
    }
    fn mappable(&self) -> Option<&dyn Mappable> {
        Some(self)
    }
}

impl Mappable for Mapped<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.object.fd()
    }
    fn maps(&self) -> bool {
        self.kind() != Coherence::Unknown
            && self.maps.seen().as_ref().is_none_or(|seen| !seen.failed)
    }
    fn view(&self, at: ObjectOffset, len: u64, calls: u64) -> Option<View> {
        let end =
            at.0.checked_add(len)
                .filter(|_| len > 0 && self.kind() != Coherence::Unknown)?;
        let patience = if calls * CHUNK >= DENSE * len {
            0
        } else if len < calls * SMALL {
            1
        } else {
            PATIENCE
        };
        let window = self.maps.window(self.fd, at.0, end, patience)?;
        let reached = self.reached(end).ok().filter(|&reached| end <= reached)?;
        let base = at.0 / WINDOW * WINDOW;
        let limit = (reached - base).min(WINDOW);
        let from = at.0 - base;
        let solid = |from, end| self.is_solid(base + from, base + end);
        match window.bring_in((from, end - base), limit, solid) {
            Ok(true) => Some(View::new(window, from, len)),
            Ok(false) => None,
            Err(e) => {
                log::debug!("pages of an object cannot be mapped: {e}");
                self.maps.failed();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use penstock_layout::FileId;

    #[test]
    fn large_reads_are_calls_until_a_mapping_pays() {
        let store = open("memory", "d", 0).unwrap();
        let object = store.open(FileId(1), true).unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
        object.write_at(ObjectOffset(0), &bytes).unwrap();
        let fd = object.mappable().unwrap().fd();
        let maps = Maps::default();
        let is_mapped = || {
            let seen = maps.seen();
            seen.as_ref().is_some_and(|seen| seen.window.is_some())
        };
        for round in 0..=PATIENCE {
            let mut out = vec![0; 200_000];
            let (one, two) = out.split_at_mut(70_001);
            let mut bufs = [IoSliceMut::new(one), IoSliceMut::new(two)];
            let got = Mapped::new(&fd, &maps)
                .read_vectored_at(ObjectOffset(1000), &mut bufs)
                .unwrap();
            assert_eq!(got, out.len());
            assert!(out == bytes[1000..201_000], "round {round}");
            assert_eq!(is_mapped(), round == PATIENCE);
        }
        // Other chunks have their own count, and bytes beyond the end are read by a call.
        let mut out = vec![0; 200_000];
        for _ in 0..=PATIENCE {
            let got = Mapped::new(&fd, &maps)
                .read_at(ObjectOffset(150_000), &mut out)
                .unwrap();
            assert!(out[..got] == bytes[150_000..], "{got}");
        }
    }
}
