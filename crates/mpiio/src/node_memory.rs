//! Memory shared by the ranks of one node: a communicator without messages, and a window for each rank.
//!
//! Problem: between ranks of one node, messages copy each byte twice. Waiting in an MPI library occupies the processor
//! that the awaited rank needs if ranks outnumber processors. Idea: rank 0 makes an anonymous file (memfd) that is
//! inaccessible to everybody else. The others open it through `/proc/<pid>/fd/<n>`, which the kernel allows to
//! processes of the same user. All map it. A barrier is a counter and a futex on which ranks sleep; an allgather is a
//! slot for each rank and a barrier. Nothing has a name, so nothing is left behind when a process is killed. When it
//! pays: always on one node. It is made in the meetings of an open. The window's size is rank 0's hint at open; a
//! window takes no memory until it is used.
//!
//! The file's shared pointer is also here ([`crate::pointer`]): an atomic word, so that a rank that dies holds no lock.
//!
//! Waits are bounded: a waiting rank checks once a second that all ranks' processes still exist, and gives up after
//! [`MAX_WAIT`]. The memory is then marked broken, which ends the waits of all.
use crate::comm::Comm;
use crate::error::{Error, ErrorClass, Result};
use penstock_host::{sync, thread, time};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The longest wait for other ranks: longer than any time-out of their operations.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// How often a waiting rank checks that the others still exist.
const LOOK: Duration = Duration::from_secs(1);
/// How long a rank spins before it sleeps, if each rank has a processor: a wake-up takes longer.
const SPIN: Duration = Duration::from_micros(30);

/// The shared pointer of a file before its first use: it represents the pointer's initial value, which every rank
/// knows.
pub(crate) const UNTOUCHED: i64 = i64::MIN;

/// Bytes of a rank's slot in an allgather: a length and contents.
const SLOT_BYTES: usize = 4096;
const SLOT_CONTENTS: usize = SLOT_BYTES - size_of::<u64>();
/// Slots and windows are double: one half is filled while the other is read.
const HALVES: usize = 2;
const PAGE: usize = 4096;

/// At the beginning of the shared memory.
#[repr(C)]
struct Control {
    /// Ranks that have reached the current barrier.
    arrived: AtomicU32,
    /// Completed barriers; ranks sleep on this word.
    completed: AtomicU32,
    broken: AtomicU32,
    /// Address at which rank 0 has mapped it: its name in all processes.
    place: AtomicUsize,
    /// The file's shared pointer.
    pointer: AtomicI64,
}

/// What the others need to map rank 0's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Bytes of half a window.
    half_bytes: u64,
    /// Rank 0's process and its descriptor of the memory.
    process: u32,
    descriptor: i32,
}

/// At the beginning of each rank's part.
#[repr(C)]
struct Header {
    process: AtomicU32,
    notes: [AtomicU64; HALVES],
}

/// The memory shared by the ranks of a file that are all on one node.
pub(crate) struct NodeMemory {
    mapping: Mapping,
    rank: usize,
    ranks: usize,
    half_bytes: usize,
    /// The half of the slots that the next allgather uses.
    turn: AtomicUsize,
    spins: bool,
}

impl NodeMemory {
    /// Rank 0 makes the memory, with windows of two times `half_bytes` for each rank. The others can
    /// [`NodeMemory::join`] as long as the file is open.
    pub(crate) fn offer(ranks: usize, half_bytes: u64) -> Result<(NodeMemory, Offer, File)> {
        let made = || {
            let half_bytes = (half_bytes as usize).next_multiple_of(PAGE);
            let bytes = total_bytes(ranks, half_bytes);
            let file = anonymous_file(bytes)?;
            let memory = NodeMemory::of(Mapping::new(&file, bytes)?, 0, ranks, half_bytes);
            let control = memory.control();
            let place = memory.mapping.start.addr().get();
            control.place.store(place, Ordering::Release);
            control.pointer.store(UNTOUCHED, Ordering::Release);
            let offer = Offer {
                half_bytes: half_bytes as u64,
                process: std::process::id(),
                descriptor: file.as_raw_fd(),
            };
            Ok((memory, offer, file))
        };
        made().map_err(failed)
    }

    /// Another rank maps rank 0's memory.
    pub(crate) fn join(offer: &Offer, rank: usize, ranks: usize) -> Result<NodeMemory> {
        let joined = || {
            let half_bytes = offer.half_bytes as usize;
            let path = format!("/proc/{}/fd/{}", offer.process, offer.descriptor);
            let file = File::options().read(true).write(true).open(path)?;
            let mapping = Mapping::new(&file, total_bytes(ranks, half_bytes))?;
            Ok(NodeMemory::of(mapping, rank, ranks, half_bytes))
        };
        joined().map_err(failed)
    }

    fn of(mapping: Mapping, rank: usize, ranks: usize, half_bytes: usize) -> NodeMemory {
        let memory = NodeMemory {
            mapping,
            rank,
            ranks,
            half_bytes,
            turn: AtomicUsize::new(0),
            spins: thread::processors() >= ranks,
        };
        let process = &memory.header(rank).process;
        process.store(std::process::id(), Ordering::Release);
        memory
    }

    /// The file's shared pointer, in etypes; [`UNTOUCHED`] before its first use.
    pub(crate) fn pointer(&self) -> &AtomicI64 {
        &self.control().pointer
    }

    /// Bytes of each half of a window.
    pub(crate) fn half_bytes(&self) -> usize {
        self.half_bytes
    }

    fn control(&self) -> &Control {
        // SAFETY: the mapping begins with a page for it, aligned, zeroed and mapped as long as `self`. Zeros are valid
        // atomics, and every process touches them by atomic operations only.
        unsafe { &*self.mapping.start.as_ptr().cast::<Control>() }
    }

    /// Address of a rank's part: a page of header, slots, window.
    fn part(&self, rank: usize) -> *mut u8 {
        assert!(rank < self.ranks);
        let offset = PAGE + rank * part_bytes(self.half_bytes);
        // SAFETY: the mapping has a part for each rank.
        unsafe { self.mapping.start.as_ptr().add(offset) }
    }

    fn header(&self, rank: usize) -> &Header {
        // SAFETY: as for `control`; each part begins with a page for it.
        unsafe { &*self.part(rank).cast::<Header>() }
    }

    fn slot(&self, rank: usize, half: usize) -> *mut u8 {
        // SAFETY: behind the header each part has its slots.
        unsafe { self.part(rank).add(PAGE + (half % HALVES) * SLOT_BYTES) }
    }

    /// Address of a half of a rank's window; it is `half_bytes` long and stays mapped as long as `self`.
    pub(crate) fn half(&self, rank: usize, half: usize) -> *mut u8 {
        let offset = PAGE + HALVES * SLOT_BYTES + (half % HALVES) * self.half_bytes;
        // SAFETY: behind the slots each part has the halves of its window.
        unsafe { self.part(rank).add(offset) }
    }

    /// A number that the owner of a window publishes, one for each half. Ordered by the barrier between writer and
    /// readers.
    pub(crate) fn note(&self, rank: usize, half: usize) -> u64 {
        self.header(rank).notes[half % HALVES].load(Ordering::Acquire)
    }

    /// Sets this rank's note.
    pub(crate) fn set_note(&self, half: usize, value: u64) {
        self.header(self.rank).notes[half % HALVES].store(value, Ordering::Release);
    }

    /// Returns when every rank has called it.
    pub(crate) fn barrier(&self) -> Result<()> {
        let control = self.control();
        let before = control.completed.load(Ordering::Acquire);
        if control.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.ranks as u32 {
            control.arrived.store(0, Ordering::Release);
            control.completed.fetch_add(1, Ordering::AcqRel);
            self.wake();
            return self.check();
        }
        let began = time::now();
        let done = || control.completed.load(Ordering::Acquire) != before;
        while self.spins && !done() && time::since(began) < SPIN {
            std::hint::spin_loop();
        }
        while !done() {
            self.check()?;
            if time::since(began) > MAX_WAIT {
                return Err(self.give_up("took too long"));
            }
            // Woken, interrupted, or already changed: check again.
            if !sync::wait_while(&control.completed, before, self.place(), LOOK) {
                self.look_for_others()?;
            }
        }
        self.check()
    }

    fn wake(&self) {
        sync::wake_all(&self.control().completed, self.place());
    }

    fn place(&self) -> usize {
        self.control().place.load(Ordering::Acquire)
    }

    /// An error if any rank has given up.
    fn check(&self) -> Result<()> {
        if self.control().broken.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        Err(self.give_up("gave up waiting"))
    }

    fn look_for_others(&self) -> Result<()> {
        for rank in 0..self.ranks {
            let process = self.header(rank).process.load(Ordering::Acquire) as i32;
            let gone = rustix::process::Pid::from_raw(process).is_some_and(|process| {
                rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
            });
            if gone {
                return Err(self.give_up(&format!("is gone: rank {rank}")));
            }
        }
        Ok(())
    }

    /// This rank leaves without having closed the file: the others must not wait for it.
    pub(crate) fn abandon(&self) {
        self.give_up("left");
    }

    /// Ends the waits of all ranks.
    fn give_up(&self, why: &str) -> Error {
        self.control().broken.store(1, Ordering::Release);
        self.wake();
        Error::new(
            ErrorClass::Comm,
            format!("a rank of this node {why}; the file can only be closed"),
        )
    }

    /// Everyone's bytes, by rank.
    pub(crate) fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut all = vec![Vec::new(); self.ranks];
        let mut done = 0;
        loop {
            let half = self.turn.fetch_xor(1, Ordering::Relaxed);
            let part = &mine[done.min(mine.len())..];
            let part = &part[..part.len().min(SLOT_CONTENTS)];
            let slot = self.slot(self.rank, half);
            // SAFETY: the slot is this rank's to fill until the barrier: whoever read it two turns ago has been at the
            // barrier since. The length is at its aligned beginning, the contents fit behind it.
            unsafe {
                slot.cast::<u64>().write(mine.len() as u64);
                let contents = slot.add(size_of::<u64>());
                contents.copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            self.barrier()?;
            let mut longest = 0;
            for (rank, out) in all.iter_mut().enumerate() {
                let slot = self.slot(rank, half);
                // SAFETY: after the barrier the slots are filled, and nobody changes them before the next but one.
                unsafe {
                    let len = slot.cast::<u64>().read() as usize;
                    let part = len.saturating_sub(done).min(SLOT_CONTENTS);
                    let contents = slot.add(size_of::<u64>());
                    out.extend_from_slice(std::slice::from_raw_parts(contents, part));
                    longest = longest.max(len);
                }
            }
            done += SLOT_CONTENTS;
            if done >= longest {
                return Ok(all);
            }
        }
    }
}

fn failed(e: io::Error) -> Error {
    let says = format!("memory shared by the ranks of a node: {e}");
    Error::new(ErrorClass::NoMem, says)
}

fn part_bytes(half_bytes: usize) -> usize {
    PAGE + HALVES * SLOT_BYTES + HALVES * half_bytes
}

fn total_bytes(ranks: usize, half_bytes: usize) -> usize {
    PAGE + ranks * part_bytes(half_bytes)
}

/// The communicator of ranks that share memory. What does not fit goes through the communicator below.
pub(crate) struct NodeComm<'c> {
    pub memory: &'c NodeMemory,
    pub below: &'c dyn Comm,
}

impl Comm for NodeComm<'_> {
    fn rank(&self) -> usize {
        self.memory.rank
    }
    fn size(&self) -> usize {
        self.memory.ranks
    }
    fn barrier(&self) -> Result<()> {
        self.memory.barrier()
    }
    fn bcast(&self, root: usize, data: &mut Vec<u8>) -> Result<()> {
        let mine: &[u8] = if self.rank() == root { data } else { &[] };
        *data = self.memory.allgather(mine)?.swap_remove(root);
        Ok(())
    }
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.memory.allgather(mine)
    }
    fn alltoallv(&self, send: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        self.below.alltoallv(send)
    }
    fn tell(&self, peer: usize, message: &[u8]) -> Result<()> {
        self.below.tell(peer, message)
    }
    fn hear(&self, peer: usize) -> Result<Vec<u8>> {
        self.below.hear(peer)
    }
}

fn anonymous_file(bytes: usize) -> io::Result<File> {
    let name = "penstock-ranks";
    let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    let file = File::from(fd);
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
        // Accessing a mapping beyond the file's end would raise a signal.
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::other("the ranks' sizes differ"));
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
