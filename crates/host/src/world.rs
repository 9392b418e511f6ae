//! The place where threads run instead of the machine.
use rustix::event::PollFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Simulated machines, as narrow as servers and clients need them.
///
/// Of all threads in a world one runs at a time. It hands over to another only in the calls named *waits*
/// here; those that merely wake others never wait.
pub trait World: Sync {
    /// Virtual time.
    fn now(&self) -> Instant;
    /// Virtual time of day.
    fn wall_clock(&self) -> SystemTime;
    /// Virtual time since a moment before the machine's power came on.
    fn since_boot(&self) -> Duration;
    /// Names the time since the machine's power came on.
    fn boot(&self) -> u128;
    /// Bytes from the world's generator.
    fn random(&self, into: &mut [u8]);

    /// A new thread of the caller's process; its number.
    fn spawn(&'static self, name: &str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<u64>;
    /// Waits for the end of a thread; false if it panicked.
    fn join(&self, thread: u64) -> bool;
    /// The calling thread's number.
    fn current(&self) -> u64;
    /// Waits until unparked, for `limit` at most.
    fn park(&self, limit: Duration);
    /// Wakes a parked thread, or spares it the next park.
    fn unpark(&self, thread: u64);
    /// Waits for this long.
    fn sleep(&self, time: Duration);
    /// Waits until [`World::wake`] names the same place, for `limit` at most; false: the limit passed.
    fn wait(&self, place: usize, limit: Option<Duration>) -> bool;
    /// Wakes one or all who wait at a place.
    fn wake(&self, place: usize, all: bool);
    /// Waits if the world wants another thread to run now.
    fn pass(&self);

    /// Listens; the descriptor is readable when somebody wants to connect.
    fn listen(&self, address: &str) -> std::io::Result<OwnedFd>;
    /// The next connection and its peer's name, or `WouldBlock`.
    fn accept(&self, listener: BorrowedFd<'_>) -> std::io::Result<(OwnedFd, String)>;
    /// Waits for a connection to `address`.
    fn connect(&self, address: &str, within: Duration) -> std::io::Result<OwnedFd>;
    /// Waits like poll(2).
    fn poll(&self, fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<usize, Errno>;
    /// A descriptor has become readable otherwise than by what the world delivers.
    fn signalled(&self, fd: BorrowedFd<'_>);

    /// Somebody is about to use a disk: may wait, refuse, or allow a write of fewer bytes than wanted.
    fn disk(&self, access: &Access<'_>, pace: Pace) -> Result<usize, Errno>;
    /// It has been done.
    fn disk_done(&self, access: &Access<'_>, pace: Pace);
    /// Waits for as long as the accesses with [`Pace::Later`] took since the last settlement.
    fn settle(&self);
}

/// One use of a disk. Names are relative to the directory.
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
    /// A file is cut or extended.
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
    /// What was done to a file, or to the entries of a directory, becomes durable.
    Sync {
        /// File or directory.
        file: BorrowedFd<'a>,
    },
    /// A descriptor of a file or directory that is there is wanted.
    Open,
    /// Everything that was done on the disk becomes durable.
    SyncAll,
    /// A file or directory gets its first name.
    Make {
        /// Above it.
        directory: &'a Path,
        /// Its name.
        name: &'a Path,
    },
    /// A file gets another name.
    Rename {
        /// Above both.
        directory: &'a Path,
        /// The name it had.
        from: &'a Path,
        /// The name it gets.
        to: &'a Path,
    },
    /// A file loses its name.
    Remove {
        /// Above it.
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
    /// Its thread holds locks that the world does not know: its time is made up for by [`World::settle`].
    Later,
}

thread_local! {
    static WORLD: Cell<Option<&'static dyn World>> = const { Cell::new(None) };
}

/// The calling thread belongs to `world` from now on.
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
