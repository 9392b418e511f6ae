//! A socket that another thread may close.
use penstock_host::net;
use rustix::event::{PollFd, PollFlags};
use rustix::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A socket, and whether it has been closed here.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    closed: AtomicBool,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Arc<Socket> {
        Arc::new(Socket {
            fd,
            closed: AtomicBool::new(false),
        })
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Ends a connection from another thread: both ends see it closed.
#[derive(Debug, Clone)]
pub struct Closer(Arc<Socket>);

impl Closer {
    pub(crate) fn new(socket: Arc<Socket>) -> Closer {
        Closer(socket)
    }

    /// Wakes a thread that waits in the connection. From now on no frame is returned from it, not even a buffered one.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        // The peer may have closed already; nothing is left to do then.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
        net::changed(self.0.as_fd());
    }

    /// Whether it has been closed here.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Whether it has been closed here, or the peer sends nothing more. Takes a system call.
    pub fn is_deserted(&self) -> bool {
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), ends)];
        self.is_closed()
            || (net::poll(&mut fds, Some(Duration::ZERO)).is_ok()
                && fds[0].revents().intersects(ends))
    }
}
