//! A test's world whose disk is full and fails to sync when told to.
use penstock_host::{Access, Pace, World};
use rustix::event::PollFd;
use rustix::io::Errno;
use std::io::Result;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

/// Full: nothing is written, no name and no attribute is made.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) full: AtomicBool,
    pub(crate) fails_to_sync: AtomicBool,
    /// It takes no change at all.
    pub(crate) read_only: AtomicBool,
    pub(crate) attributes: bool,
}

impl Disk {
    /// `body` on a thread that uses this disk alone.
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

impl World for Disk {
    fn disk(&self, access: &Access<'_>, _: Pace) -> std::result::Result<usize, Errno> {
        let full = self.full.load(SeqCst);
        match access {
            Access::Read { .. } => Ok(usize::MAX),
            Access::Sync { .. } if self.fails_to_sync.load(SeqCst) => Err(Errno::IO),
            Access::Sync { .. } => Ok(usize::MAX),
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
        into.fill(7);
    }

    // One thread and no network: nothing of this is asked for.

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
