//! Shortcut grants: how a server revokes a descriptor that a client on the same host is using.
//!
//! With a descriptor of an object a client reads and writes without involving the server. Before the server grants a
//! range lock, or truncates the object, no such operation may be in progress and none may begin. Both sides share one
//! page of memory per grant with two words:
//!
//! ```text
//! word 0  revoked: 0, then for ever 1; written by the server
//! word 1  active: the client's operations under way
//! ```
//!
//! Client, per operation: `active += 1`. If `revoked`: `active -= 1`, wake the server, give up. Otherwise do the I/O,
//! then `active -= 1`; if `revoked` then wake the server. Server: `revoked = 1`; while `active != 0` sleep on that
//! word.
//!
//! *Why no operation escapes.* All accesses are sequentially consistent, so they have one total order. If the client's
//! load of `revoked` precedes the server's store, so does the client's increment before it. The server loads `active`
//! after its store, sees the operation and waits. If the load comes after the store, the client sees the revocation and
//! does no I/O. (This is Dekker's argument; with release and acquire only, both sides could miss each other.) *Why no
//! wake-up is lost.* The decrement comes before the client's second load of `revoked`. If that load sees 0, it precedes
//! the server's store, so the server's loads of `active` see the decrement. If it sees 1, the client wakes the server.
//! The kernel puts the server to sleep only if `active` still has the value that the server saw. *Why the I/O has
//! ended.* The decrement follows the system call's return on the same thread.
//!
//! The server's wait is bounded. A client that has died, or whose connection has ended, counts as
//! inactive ([`GrantPage::retire`]): its system calls were over before the kernel closed its socket. So a client ends
//! a connection only after [`GrantPage::quiesce`] on every grant it got there.
//! The page is a sealed memfd: a client cannot make it shorter under the server's feet.
//!
//! *What is moved* past the server the client adds up in the same page, on a cache line of its own ([`GrantPage::count`]). The server
//! reads it when it wants to know ([`GrantPage::moved`]). No message is sent for it, and a client that is killed has told what it moved. A client that lies
//! changes its own figures alone.
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// Bytes of a grant page.
const PAGE: usize = 4096;

/// The two shared words, and what the client counts.
#[repr(C)]
struct Words {
    revoked: AtomicU32,
    active: AtomicU32,
    counts: Counts,
}

/// Of the client alone, so on a cache line that the server seldom looks at.
#[repr(C, align(64))]
struct Counts {
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// What a client says that it moved under a grant, since it has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Accesses.
    pub requests: u64,
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
}

/// One side's mapping of a grant page.
pub struct GrantPage {
    words: NonNull<Words>,
}

// SAFETY: the mapping stays valid until drop, whichever thread that runs on, and is only accessed through atomics.
unsafe impl Send for GrantPage {}
// SAFETY: as above: shared access is atomic.
unsafe impl Sync for GrantPage {}

impl fmt::Debug for GrantPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantPage")
            .field("revoked", &self.is_revoked())
            .field("active", &self.words().active.load(SeqCst))
            .finish()
    }
}

impl GrantPage {
    /// Server: makes a page, and the descriptor to send to the client.
    pub fn create() -> std::io::Result<(GrantPage, OwnedFd)> {
        let fd = rustix::fs::memfd_create(
            "penstock-grant",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, PAGE as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = GrantPage::map(&fd)?;
        Ok((page, fd))
    }

    /// Client: maps the page received with a grant.
    pub fn open(fd: OwnedFd) -> std::io::Result<GrantPage> {
        let size = rustix::fs::fstat(&fd)?.st_size;
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        if size != PAGE as i64 || !seals.contains(SealFlags::SHRINK) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!("not a grant page: {size} bytes, seals {seals:?}"),
            ));
        }
        GrantPage::map(&fd)
    }

    fn map(fd: impl AsFd) -> std::io::Result<GrantPage> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory. The file has PAGE
        // bytes and is sealed against shrinking, so every access within the mapping has a page behind it.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let words = NonNull::new(address.cast::<Words>()).ok_or(Errno::NOMEM)?;
        Ok(GrantPage { words })
    }

    fn words(&self) -> &Words {
        // SAFETY: the mapping is page-aligned, at least as large as `Words`, zero-initialised by the kernel, and lives
        // as long as self. Both processes access it through atomics only.
        unsafe { self.words.as_ref() }
    }

    // ---- client ----

    /// Begins an operation under the grant; `None` if it has been revoked. The I/O must have ended before the guard is
    /// dropped.
    pub fn enter(&self) -> Option<Operation<'_>> {
        let operation = Operation { page: self };
        self.words().active.fetch_add(1, SeqCst);
        if self.is_revoked() {
            // Dropping the guard undoes the increment and wakes the server.
            return None;
        }
        Some(operation)
    }

    /// An access under the grant has moved so many bytes.
    pub fn count(&self, write: bool, bytes: u64) {
        let counts = &self.words().counts;
        counts.requests.fetch_add(1, Relaxed);
        let moved = if write { &counts.written } else { &counts.read };
        moved.fetch_add(bytes, Relaxed);
    }

    /// The grant is over: use requests, and ask for a new one later.
    pub fn is_revoked(&self) -> bool {
        self.words().revoked.load(SeqCst) != 0
    }

    /// For a client that is about to close the connection: no operation begins any more; waits for those in progress.
    /// False if they do not end in time.
    pub fn quiesce(&self, timeout: Duration) -> bool {
        self.revoke();
        self.wait_inactive(Instant::now() + timeout)
    }

    // ---- server ----

    /// What the client says that it moved.
    pub fn moved(&self) -> Moved {
        let counts = &self.words().counts;
        Moved {
            requests: counts.requests.load(Relaxed),
            read: counts.read.load(Relaxed),
            written: counts.written.load(Relaxed),
        }
    }

    /// Forbids new operations. Follow with [`GrantPage::wait_inactive`].
    pub fn revoke(&self) {
        self.words().revoked.store(1, SeqCst);
    }

    /// After [`GrantPage::revoke`]: waits until no operation is in progress. False at the deadline.
    pub fn wait_inactive(&self, deadline: Instant) -> bool {
        let active = &self.words().active;
        loop {
            let now = active.load(SeqCst);
            if now == 0 {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(left) = rustix::time::Timespec::try_from(left) else {
                return false;
            };
            if left.tv_sec == 0 && left.tv_nsec == 0 {
                return false;
            }
            match futex::wait(active, futex::Flags::empty(), now, Some(&left)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(e) => {
                    log::error!("waiting for a revoked shortcut: {e}");
                    return false;
                }
            }
        }
    }

    /// Server: the client's connection has ended, and with it all its operations.
    pub fn retire(&self) {
        self.revoke();
        self.words().active.store(0, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // It is no error if no thread waits.
        let _ = futex::wake(&self.words().active, futex::Flags::empty(), u32::MAX >> 1);
    }
}

impl Drop for GrantPage {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, of PAGE bytes; `words` borrows end with self.
        let unmapped = unsafe { rustix::mm::munmap(self.words.as_ptr().cast::<c_void>(), PAGE) };
        debug_assert!(unmapped.is_ok());
    }
}

/// An operation in progress; dropping it ends it.
#[derive(Debug)]
#[must_use = "the operation is over when this is dropped"]
pub struct Operation<'a> {
    page: &'a GrantPage,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.page.words().active.fetch_sub(1, SeqCst);
        if self.page.is_revoked() {
            self.page.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn pair() -> (GrantPage, GrantPage) {
        let (server, fd) = GrantPage::create().unwrap();
        (server, GrantPage::open(fd).unwrap())
    }

    #[test]
    fn revocation_waits_for_operations_and_stops_new_ones() {
        let (server, client) = pair();
        let first = client.enter().unwrap();
        server.revoke();
        assert!(!server.wait_inactive(soon()));
        assert!(client.enter().is_none());
        assert!(!server.wait_inactive(soon()));
        drop(first);
        assert!(server.wait_inactive(soon()));
        assert!(client.is_revoked());
    }

    #[test]
    fn a_dead_client_counts_as_inactive() {
        let (server, client) = pair();
        std::mem::forget(client.enter().unwrap());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| server.wait_inactive(Instant::now() + Duration::from_secs(20)));
            server.retire();
            assert!(waiter.join().unwrap());
        });
        assert!(client.enter().is_none());
    }

    #[test]
    fn the_server_sees_what_the_client_has_counted() {
        let (server, client) = pair();
        client.count(true, 100);
        client.count(false, 7);
        client.count(false, 0);
        let moved = Moved {
            requests: 3,
            read: 7,
            written: 100,
        };
        assert_eq!(server.moved(), moved);
        // Also of a client that is gone.
        drop(client);
        server.retire();
        assert_eq!(server.moved(), moved);
    }

    #[test]
    fn only_sealed_pages_are_mapped() {
        let fd = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, PAGE as u64).unwrap();
        assert!(GrantPage::open(fd).is_err());
        let (_, fd) = GrantPage::create().unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }

    /// Many rounds of clients working while the server revokes: after the wait the word that clients write under their
    /// grants never changes again.
    #[test]
    fn nothing_happens_after_the_wait() {
        for _ in 0..50 {
            let (server, client) = pair();
            let work = AtomicU64::new(0);
            let stop = AtomicBool::new(false);
            std::thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        while let Some(operation) = client.enter() {
                            work.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            drop(operation);
                        }
                        stop.store(true, SeqCst);
                    });
                }
                while work.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
                server.revoke();
                assert!(server.wait_inactive(Instant::now() + Duration::from_secs(20)));
                let after = work.load(SeqCst);
                while !stop.load(SeqCst) {
                    std::thread::yield_now();
                }
                assert_eq!(work.load(SeqCst), after);
            });
        }
    }
}
