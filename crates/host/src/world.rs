//! The interface of a simulated machine on which threads run instead of the real one.
use rustix::event::PollFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Simulated machines, with as few operations as servers and clients need.
///
/// One thread of a world runs at a time. It switches to another only in the calls described as *waits* here; calls that
/// only wake others never wait.
pub trait World: Sync {
    /// Virtual time.
    fn now(&self) -> Instant;
    /// Virtual time of day.
    fn wall_clock(&self) -> SystemTime;
    /// Virtual time since a moment before the machine was switched on.
    fn since_boot(&self) -> Duration;
    /// Identifies the boot of the machine.
    fn boot(&self) -> u128;
    /// Bytes from the world's generator.
    fn random(&self, into: &mut [u8]);

    /// Starts a thread of the caller's process; returns its number.
    fn spawn(&'static self, name: &str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<u64>;
    /// Waits for the end of a thread; false if it panicked.
    fn join(&self, thread: u64) -> bool;
    /// The calling thread's number.
    fn current(&self) -> u64;
    /// Waits until unparked, for at most `limit`.
    fn park(&self, limit: Duration);
    /// Wakes a parked thread, or makes its next park return at once.
    fn unpark(&self, thread: u64);
    /// Waits for this long.
    fn sleep(&self, time: Duration);
    /// Waits until [`World::wake`] is called for the same place, for at most `limit`; false: the limit passed.
    fn wait(&self, place: usize, limit: Option<Duration>) -> bool;
    /// Wakes one or all threads that wait at a place.
    fn wake(&self, place: usize, all: bool);
    /// Waits if the world wants another thread to run now.
    fn pass(&self);

    /// Listens; the descriptor is readable when a connection is waiting.
    fn listen(&self, address: &str) -> std::io::Result<OwnedFd>;
    /// The next connection and its peer's name, or `WouldBlock`.
    fn accept(&self, listener: BorrowedFd<'_>) -> std::io::Result<(OwnedFd, String)>;
    /// Connects to `address`; waits for the result.
    fn connect(&self, address: &str, within: Duration) -> std::io::Result<OwnedFd>;
    /// Waits like poll(2).
    fn poll(&self, fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<usize, Errno>;
    /// A descriptor has become readable, other than by data from the world.
    fn signalled(&self, fd: BorrowedFd<'_>);

    /// A disk access is about to begin: may wait, refuse, or allow a write of fewer bytes than requested.
    fn disk(&self, access: &Access<'_>, pace: Pace) -> Result<usize, Errno>;
    /// The access is complete.
    fn disk_done(&self, access: &Access<'_>, pace: Pace);
    /// Waits for the time of accesses with [`Pace::Later`] since the last call.
    fn settle(&self);
}

/// A disk access. Names are relative to the directory.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// Bytes are read.
    Read {
        /// The file.
        file: BorrowedFd<'a>,
        /// Their number.
        len: usize,
    },
    /// Bytes are written.
    Write {
        /// The file.
        file: BorrowedFd<'a>,
        /// Where to.
        at: u64,
        /// Which.
        bytes: &'a [u8],
    },
    /// A file is truncated or extended.
    SetLen {
        /// The file.
        file: BorrowedFd<'a>,
        /// To so many bytes.
        len: u64,
    },
    /// An extended attribute is set.
    Attribute {
        /// The file.
        file: BorrowedFd<'a>,
        /// Which one.
        name: &'a str,
        /// Its new value.
        value: &'a [u8],
    },
    /// A file's mode is set.
    Mode {
        /// The file.
        file: BorrowedFd<'a>,
        /// Permissions and the bits above them.
        mode: Mode,
    },
    /// Changes to a file, or to the entries of a directory, become durable.
    Sync {
        /// File or directory.
        file: BorrowedFd<'a>,
    },
    /// A descriptor of an existing file or directory is requested.
    Open,
    /// All changes to the disk become durable.
    SyncAll,
    /// A file or directory gets its first name.
    Make {
        /// Its directory.
        directory: &'a Path,
        /// Its name.
        name: &'a Path,
    },
    /// A file gets another name.
    Rename {
        /// The directory of both names.
        directory: &'a Path,
        /// The name it had.
        from: &'a Path,
        /// The name it gets.
        to: &'a Path,
    },
    /// A file loses its name.
    Remove {
        /// Its directory.
        directory: &'a Path,
        /// Its name.
        name: &'a Path,
    },
}

/// Whether an access may make its thread wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It takes its time at once.
    Now,
    /// Its thread holds locks unknown to the world: [`World::settle`] accounts for its time.
    Later,
}

thread_local! {
    static WORLD: Cell<Option<&'static dyn World>> = const { Cell::new(None) };
}

/// Assigns the calling thread to `world`.
pub fn enter(world: &'static dyn World) {
    WORLD.set(Some(world));
}

/// Whether the calling thread runs in a world.
#[inline]
pub fn simulated() -> bool {
    current().is_some()
}

#[inline]
pub(crate) fn current() -> Option<&'static dyn World> {
    WORLD.get()
}
