//! Memory that the ranks of one node share: a window for each rank, mapped by all.
//!
//! Each rank makes an anonymous file (memfd), closed to everyone else, and the others open it through
//! `/proc/<pid>/fd/<n>`, which the kernel allows to processes of the same user. Nothing has a name, so nothing is left
//! behind when a process is killed.
use crate::comm::{Comm, agree};
use crate::error::{Error, ErrorClass, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room before the data for the owner's notes; a page.
const HEADER_BYTES: usize = 4096;
/// Each window is two buffers: one is filled while the other is written or read out.
const HALVES: usize = 2;

/// All ranks' windows.
pub(crate) struct NodeMemory {
    windows: Vec<Mapping>,
    half_bytes: usize,
}

impl NodeMemory {
    /// Collective: every rank makes a window of twice `half_bytes` and maps everyone's. Fails on all ranks if it
    /// fails on one.
    pub(crate) fn new(comm: &dyn Comm, half_bytes: u64) -> Result<NodeMemory> {
        let half_bytes = half_bytes as usize;
        let bytes = HEADER_BYTES + HALVES * half_bytes;
        let own = anonymous_file(bytes);
        let address = match &own {
            Ok(file) => format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()),
            Err(_) => String::new(),
        };
        let addresses = comm.allgather(address.as_bytes())?;
        let windows = own.and_then(|own| {
            addresses
                .iter()
                .enumerate()
                .map(|(rank, address)| {
                    if rank == comm.rank() {
                        Mapping::new(&own, bytes)
                    } else {
                        let path = String::from_utf8_lossy(address);
                        let file = File::options().read(true).write(true).open(&*path)?;
                        Mapping::new(&file, bytes)
                    }
                })
                .collect::<io::Result<Vec<_>>>()
                // The descriptor must live until everyone has opened it.
                .map(|windows| (own, windows))
        });
        let windows = windows.map_err(|e| {
            Error::new(
                ErrorClass::NoMem,
                format!("memory shared by the ranks of a node: {e}"),
            )
        });
        let (_own, windows) = agree(comm, windows)?;
        Ok(NodeMemory {
            windows,
            half_bytes,
        })
    }

    /// Bytes of each half of a window.
    pub(crate) fn half_bytes(&self) -> usize {
        self.half_bytes
    }

    /// Where a half of a rank's window begins; it is `half_bytes` long and stays mapped as long as `self`.
    pub(crate) fn half(&self, rank: usize, half: usize) -> *mut u8 {
        let offset = HEADER_BYTES + (half % HALVES) * self.half_bytes;
        // SAFETY: each mapping is HEADER_BYTES + HALVES * half_bytes long, so the offset is inside it.
        unsafe { self.windows[rank].start.as_ptr().add(offset) }
    }

    /// A number that the owner of a window leaves for the others, one for each half. Ordered by the barrier between
    /// writer and readers.
    pub(crate) fn note(&self, rank: usize, half: usize) -> &AtomicU64 {
        let start = self.windows[rank].start.as_ptr().cast::<AtomicU64>();
        // SAFETY: the header is a page, aligned and inside the mapping, which lives as long as `self`; all zeros is a
        // valid AtomicU64, and every process touches it by atomic operations only.
        unsafe { &*start.add(half % HALVES) }
    }

    /// Sets this rank's note.
    pub(crate) fn set_note(&self, rank: usize, half: usize, value: u64) {
        self.note(rank, half).store(value, Ordering::Release);
    }
}

fn anonymous_file(bytes: usize) -> io::Result<File> {
    // SAFETY: the name is a C string; the call makes a new descriptor or fails.
    let fd = unsafe { libc::memfd_create(c"penstock-exchange".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// A shared mapping of a file.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory; it may be used and unmapped from any thread. Who touches which bytes when is
// settled by the users' barriers.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference only gives out pointers and atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, bytes: usize) -> io::Result<Mapping> {
        // A file shorter than the mapping would turn an access into a signal.
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::other("the ranks' buffers differ in size"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Mapping { start, bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, made with this length, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
