//! Vectored calls on a socket that never wait.
use crate::memory::Stretch;
use std::os::fd::{AsRawFd, BorrowedFd};

fn vectors(stretches: &[Stretch]) -> Vec<libc::iovec> {
    stretches
        .iter()
        .map(|s| libc::iovec {
            iov_base: s.base.cast(),
            iov_len: s.len,
        })
        .collect()
}

fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is plain data for which all-zero is the empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len();
    message
}

/// Sends what the socket takes now.
pub(crate) fn send_some(fd: BorrowedFd<'_>, stretches: &[Stretch]) -> std::io::Result<usize> {
    let mut vectors = vectors(stretches);
    let message = message(&mut vectors);
    // SAFETY: the stretches lie in the lane's output buffer, which does not change before they are
    // sent, or in the caller's source buffer, which the exchange borrows for its whole life. The kernel
    // only reads them, and only during this call.
    let n = unsafe {
        libc::sendmsg(
            fd.as_raw_fd(),
            &message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
}

/// Receives what the socket has now; 0 = the peer has closed.
pub(crate) fn receive_some(fd: BorrowedFd<'_>, stretches: &[Stretch]) -> std::io::Result<usize> {
    let mut vectors = vectors(stretches);
    let mut message = message(&mut vectors);
    // SAFETY: the stretches lie in the lane's input buffer behind its valid part, or in the caller's
    // target buffer, which the exchange borrows exclusively for its whole life. Nothing else looks at
    // them during this call.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
}
