//! Sends and receives that bypass the buffers and never block, for a client that uses several connections at once.
//! Between a request and its answer the buffers must be empty.
use super::Connection;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Result};

impl Connection {
    /// Sends what can be sent now; `WouldBlock` if that is nothing.
    pub fn send_some(&mut self, bytes: &[IoSlice<'_>]) -> Result<usize> {
        self.push_some()?;
        let Some(tls) = &mut self.tls else {
            return put_some(&self.socket, bytes);
        };
        let n = tls.encrypt(bytes)?;
        match self.push_some() {
            // The bytes are queued: the next send, or a wait for space, sends them.
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(n),
            pushed => pushed.map(|()| n),
        }
    }

    /// Whether bytes taken by [`Connection::send_some`] are still to be sent: call [`Connection::push_some`] when there
    /// is space.
    pub fn is_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_pending())
    }

    /// Sends queued bytes; `WouldBlock` if some remain.
    pub fn push_some(&mut self) -> Result<()> {
        let socket = self.socket.clone();
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.is_pending() {
            tls.push(|records| put_some(&socket, records))?;
        }
        Ok(())
    }

    /// Receives what has arrived; 0: the peer has closed. Fewer bytes than requested: nothing else has arrived.
    pub fn receive_some(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let socket = &self.socket;
        let Some(tls) = &mut self.tls else {
            let mut control = RecvAncillaryBuffer::default();
            let got = rustix::net::recvmsg(socket, into, &mut control, RecvFlags::DONTWAIT)?;
            return Ok(got.bytes);
        };
        let mut into = into;
        let mut done = 0;
        loop {
            let n = match tls.decrypt(into) {
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(done),
                decrypted => decrypted?,
            };
            done += n;
            IoSliceMut::advance_slices(&mut into, n);
            if into.is_empty() {
                return Ok(done);
            }
            let pulled = tls.pull(|records| {
                let (n, _) = rustix::net::recv(socket, records, RecvFlags::DONTWAIT)?;
                Ok(n)
            });
            match pulled {
                Ok(0) => return Ok(done),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && done > 0 => return Ok(done),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

fn put_some(socket: &impl std::os::fd::AsFd, bytes: &[IoSlice<'_>]) -> Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(socket, bytes, &mut control, flags)?)
}
