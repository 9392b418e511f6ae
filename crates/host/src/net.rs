//! Stream sockets. On a machine callers use the system's calls themselves. This module has only what a world must
//! intercept: waiting, listening, connecting.
use crate::world::current;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// To be called before a call that may block on `fd`. On a machine it does nothing, because the call itself waits. In a
/// world it waits until the call will not block; when the time-out passes it fails with `AGAIN`, as the call would.
#[inline]
pub fn ready(fd: BorrowedFd<'_>, wanted: PollFlags, limit: Option<Duration>) -> Result<(), Errno> {
    let Some(world) = current() else {
        return Ok(());
    };
    match world.poll(&mut [PollFd::from_borrowed_fd(fd, wanted)], limit)? {
        0 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

/// poll(2); without a limit it waits for ever.
pub fn poll(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<usize, Errno> {
    match current() {
        None => {
            let limit = limit.and_then(|l| Timespec::try_from(l).ok());
            rustix::event::poll(fds, limit.as_ref())
        }
        Some(world) => world.poll(fds, limit),
    }
}

/// Wakes threads that poll this eventfd.
pub fn signal(event: &OwnedFd) {
    // Fails only if the counter is full, and then it is readable anyway.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    if let Some(world) = current() {
        world.signalled(event.as_fd());
    }
}

/// This end of a socket has been shut down: threads that poll it must check again. On a machine the system does this.
pub fn changed(socket: BorrowedFd<'_>) {
    if let Some(world) = current() {
        world.signalled(socket);
    }
}

/// In a world, listens at `address`; `None` on a machine.
pub fn listen(address: &str) -> Option<std::io::Result<OwnedFd>> {
    current().map(|world| world.listen(address))
}

/// Accepts from what [`listen`] returned: the connection and its peer's name.
pub fn accept(listener: BorrowedFd<'_>) -> std::io::Result<(OwnedFd, String)> {
    match current() {
        Some(world) => world.accept(listener),
        None => Err(std::io::ErrorKind::NotConnected.into()),
    }
}

/// In a world, connects to `address`; `None` on a machine.
pub fn connect(address: &str, within: Duration) -> Option<std::io::Result<OwnedFd>> {
    current().map(|world| world.connect(address, within))
}
