//! A world for tests whose disk can be full, fail to sync or refuse to open.
use penstock_host::{Access, Pace, World};
use rustix::event::PollFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io::Result;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

/// Full: no write succeeds, and no name or attribute can be made.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) full: AtomicBool,
    pub(crate) fails_to_sync: AtomicBool,
    /// The same for directories only.
    pub(crate) fails_to_sync_names: AtomicBool,
    /// The system reports one failed write-back.
    pub(crate) lost: AtomicBool,
    /// Existing files cannot be opened: the error number, or 0.
    pub(crate) opens_nothing: AtomicI32,
    pub(crate) drawn: AtomicU8,
    /// Read-only: no change succeeds.
    pub(crate) read_only: AtomicBool,
    pub(crate) attributes: bool,
}

impl Disk {
    /// Runs `body` on a thread that uses only this disk.
    pub(crate) fn run(self, body: impl FnOnce(&Disk) + Send) {
        let disk: &'static Disk = Box::leak(Box::new(self));
        std::thread::scope(|s| {
            let thread = s.spawn(|| {
                penstock_host::enter(disk);
                body(disk);
            });
            if let Err(e) = thread.join() {
                std::panic::resume_unwind(e);
            }
        });
    }
}

fn is_directory(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

impl World for Disk {
    fn disk(&self, access: &Access<'_>, _: Pace) -> std::result::Result<usize, Errno> {
        let full = self.full.load(SeqCst);
        match access {
            Access::Read { .. } => Ok(usize::MAX),
            Access::Sync { .. } if self.fails_to_sync.load(SeqCst) => Err(Errno::IO),
            Access::Sync { file }
                if self.fails_to_sync_names.load(SeqCst) && is_directory(*file) =>
            {
                Err(Errno::IO)
            }
            Access::Open => match self.opens_nothing.load(SeqCst) {
                0 => Ok(usize::MAX),
                number => Err(Errno::from_raw_os_error(number)),
            },
            Access::SyncAll if self.lost.swap(false, SeqCst) => Err(Errno::IO),
            Access::Sync { .. } | Access::SyncAll => Ok(usize::MAX),
            _ if self.read_only.load(SeqCst) => Err(Errno::ROFS),
            Access::Attribute { .. } if !self.attributes => Err(Errno::OPNOTSUPP),
            Access::Make { .. } | Access::Write { .. } if full => Err(Errno::NOSPC),
            Access::Attribute { file, name, .. } if full => {
                rustix::fs::fgetxattr(file, *name, &mut [0; 64][..]).map_err(|_| Errno::NOSPC)
            }
            _ => Ok(usize::MAX),
        }
    }

    fn disk_done(&self, _: &Access<'_>, _: Pace) {}
    fn pass(&self) {}
    fn wake(&self, _: usize, _: bool) {}
    fn settle(&self) {}

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }

    fn since_boot(&self) -> Duration {
        Duration::ZERO
    }

    fn boot(&self) -> u128 {
        1
    }

    fn random(&self, into: &mut [u8]) {
        into.fill(self.drawn.fetch_add(1, SeqCst).wrapping_add(7));
    }

    // Unused: there are one thread and no network.

    fn spawn(&'static self, _: &str, _: Box<dyn FnOnce() + Send>) -> Result<u64> {
        unreachable!()
    }

    fn join(&self, _: u64) -> bool {
        unreachable!()
    }

    fn current(&self) -> u64 {
        unreachable!()
    }

    fn park(&self, _: Duration) {
        unreachable!()
    }

    fn unpark(&self, _: u64) {
        unreachable!()
    }

    fn sleep(&self, _: Duration) {
        unreachable!()
    }

    fn wait(&self, _: usize, _: Option<Duration>) -> bool {
        unreachable!()
    }

    fn listen(&self, _: &str) -> Result<OwnedFd> {
        unreachable!()
    }

    fn accept(&self, _: BorrowedFd<'_>) -> Result<(OwnedFd, String)> {
        unreachable!()
    }

    fn connect(&self, _: &str, _: Duration) -> Result<OwnedFd> {
        unreachable!()
    }

    fn poll(&self, _: &mut [PollFd<'_>], _: Option<Duration>) -> std::result::Result<usize, Errno> {
        unreachable!()
    }

    fn signalled(&self, _: BorrowedFd<'_>) {
        unreachable!()
    }
}
