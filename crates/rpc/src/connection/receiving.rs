//! Receives frames: through the input buffer; large payloads directly into the caller's memory.
use super::{Connection, INPUT, Received, io_error};
use penstock_host::net;
use penstock_host::time::now;
use penstock_wire::Result;
use penstock_wire::frame::{self, FrameError, HEADER_LEN, Header, MAX_DESCRIPTORS};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Connection {
    /// Receives the next frame's header and body. Skips unread payload of the frame before; errors name the peer.
    pub fn receive<B: DeserializeOwned>(&mut self) -> Result<Received<B>> {
        match self.receive_unless_idle()? {
            Some(received) => Ok(received),
            None => Err(self.timed_out("answer")),
        }
    }

    /// The same, but returns `None` if no frame began within the read time-out. Queued output is written before
    /// waiting.
    pub fn receive_unless_idle<B: DeserializeOwned>(&mut self) -> Result<Option<Received<B>>> {
        self.skip_payload()?;
        while self.buffered() < HEADER_LEN {
            let idle = self.buffered() == 0;
            if idle {
                self.flush()?;
            }
            if !self.fill(HEADER_LEN, idle)? {
                return Ok(None);
            }
        }
        // Frames of a closed connection are ignored.
        if self.socket.is_closed() {
            return Err(self.closed());
        }
        let mut bytes = [0u8; HEADER_LEN];
        bytes.copy_from_slice(&self.input[self.start..self.start + HEADER_LEN]);
        let header =
            Header::decode(&bytes, self.version, &self.limits).map_err(|e| self.frame_error(e))?;
        if let Some(server) = &mut self.server {
            server.heard(header.envelope.waits_on);
        }
        let whole = HEADER_LEN + header.body_len;
        while self.buffered() < whole {
            self.fill(whole, false)?;
        }
        let body = &self.input[self.start + HEADER_LEN..self.start + whole];
        let body = if body.is_empty() {
            None
        } else {
            Some(frame::decode_body(body).map_err(|e| self.frame_error(e))?)
        };
        self.consume(whole);
        if header.descriptors > self.descriptors.len() {
            return Err(self.frame_error(FrameError::Malformed(format!(
                "{} descriptors announced, {} came",
                header.descriptors,
                self.descriptors.len()
            ))));
        }
        self.payload_left = header.payload_len;
        Ok(Some(Received {
            envelope: header.envelope,
            body,
            payload_len: header.payload_len,
        }))
    }

    /// Payload bytes of the current frame not yet read.
    pub fn payload_left(&self) -> usize {
        self.payload_left
    }

    /// Fills `into` from the payload of the current frame, which must have that many bytes left.
    pub fn read_payload(&mut self, into: &mut [u8]) -> Result<()> {
        if into.len() > self.payload_left {
            return Err(self.frame_error(FrameError::Malformed(format!(
                "payload of {} bytes where {} were due",
                self.payload_left,
                into.len()
            ))));
        }
        let have = self.buffered().min(into.len());
        into[..have].copy_from_slice(&self.input[self.start..self.start + have]);
        self.consume(have);
        let mut done = have;
        while done < into.len() {
            // The buffer is empty here: the same read may receive what follows the payload.
            self.start = 0;
            self.end = 0;
            let n = self.read(Some(&mut into[done..]), false)?;
            let taken = n.min(into.len() - done);
            done += taken;
            self.end = n - taken;
        }
        self.payload_left -= into.len();
        Ok(())
    }

    /// Reads into the first `len` bytes of `into`, which grows as bytes arrive: an announced payload that is not sent
    /// takes no memory.
    pub fn read_payload_into(&mut self, into: &mut Vec<u8>, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            if into.len() < len {
                let room = (2 * done).max(INPUT).min(len);
                into.resize(room.max(into.len()), 0);
            }
            let to = into.len().min(len);
            self.read_payload(&mut into[done..to])?;
            done = to;
        }
        Ok(())
    }

    /// The rest of the current payload if it is already in the input buffer: no copy, no system call. This call
    /// consumes it.
    pub fn buffered_payload(&mut self) -> Option<&[u8]> {
        let len = self.payload_left;
        if self.buffered() < len {
            return None;
        }
        let at = self.start;
        self.payload_left = 0;
        self.consume_keeping(len);
        Some(&self.input[at..at + len])
    }

    /// Whether [`Connection::buffered_payload`] would succeed.
    pub fn payload_is_buffered(&self) -> bool {
        self.buffered() >= self.payload_left
    }

    /// Skips the rest of the current payload.
    pub fn skip_payload(&mut self) -> Result<()> {
        while self.payload_left > 0 {
            if self.buffered() == 0 {
                self.fill(1, false)?;
            }
            let n = self.buffered().min(self.payload_left);
            self.consume(n);
            self.payload_left -= n;
        }
        Ok(())
    }

    /// Descriptors received with the last frame.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors.drain(..).collect()
    }

    pub(super) fn buffered(&self) -> usize {
        self.end - self.start
    }

    fn consume(&mut self, n: usize) {
        self.consume_keeping(n);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.input.len() > INPUT {
                self.input = Vec::new();
            }
        }
    }

    fn consume_keeping(&mut self, n: usize) {
        self.start += n;
    }

    /// Reads until `want` bytes from `start` are buffered. The buffer grows as bytes arrive. False: nothing arrived,
    /// and `idle` allows that.
    fn fill(&mut self, want: usize, idle: bool) -> Result<bool> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        let size = want.min(2 * self.buffered()).max(INPUT);
        if self.input.len() < size {
            self.input.resize(size, 0);
        }
        if self.start > 0 && (self.start + size > self.input.len() || self.end == self.input.len())
        {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let n = self.read(None, idle)?;
        self.end += n;
        Ok(n > 0)
    }

    /// One read into `first` (if any) and then the free part of the input buffer. 0 only if `idle` and the read
    /// time-out passed.
    fn read(&mut self, first: Option<&mut [u8]>, idle: bool) -> Result<usize> {
        let mut first = first;
        if self.input.is_empty() {
            self.input.resize(INPUT, 0);
        }
        loop {
            if let Some(tls) = &mut self.tls {
                let mut slices = [
                    IoSliceMut::new(first.as_deref_mut().unwrap_or_default()),
                    IoSliceMut::new(&mut self.input[self.end..]),
                ];
                match tls.decrypt(&mut slices) {
                    Ok(0) => {}
                    Ok(n) => return Ok(n),
                    Err(e) => return Err(self.session_error(e)),
                }
                if self.pull(idle)? == 0 {
                    return Ok(0);
                }
                continue;
            }
            let got = self.attempt(idle, |c| c.receive_plain(first.as_deref_mut()))?;
            if let Some(n) = got {
                return Ok(n);
            }
        }
    }

    /// Receives more records of a TLS session. 0 only if `idle` and the read time-out passed.
    pub(super) fn pull(&mut self, idle: bool) -> Result<usize> {
        loop {
            let got = self.attempt(idle, |c| {
                let Some(tls) = &mut c.tls else {
                    return Ok(0);
                };
                let socket = &c.socket;
                tls.pull(|records| {
                    let (n, _) = rustix::net::recv(socket, records, RecvFlags::empty())?;
                    Ok(n)
                })
                .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
            })?;
            if let Some(n) = got {
                return Ok(n);
            }
        }
    }

    /// One call of `receive`, within the time-outs. `None`: interrupted. 0 only if `idle` and the read time-out passed.
    fn attempt(
        &mut self,
        idle: bool,
        receive: impl FnOnce(&mut Connection) -> rustix::io::Result<usize>,
    ) -> Result<Option<usize>> {
        if self.socket.is_closed() {
            return Err(self.closed());
        }
        let mut limit = self.timeouts.read;
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(self.timed_out("finish the handshake"));
            }
            self.apply_timeout(sockopt::Timeout::Recv, Some(left))?;
            limit = Some(left);
        }
        let ready = net::ready(self.socket.as_fd(), PollFlags::IN, limit);
        match ready.and_then(|()| receive(self)) {
            Ok(0) if idle => Err(self.closed()),
            Ok(0) => Err(io_error(
                "the connection ended inside a frame from",
                &self.peer,
                Errno::CONNRESET,
            )),
            Ok(n) => Ok(Some(n)),
            Err(Errno::INTR) => Ok(None),
            Err(Errno::AGAIN) if self.deadline.is_some() => Ok(None),
            Err(Errno::AGAIN) if idle => Ok(Some(0)),
            Err(Errno::AGAIN) => Err(self.timed_out("finish a frame")),
            Err(e) => Err(io_error("read from", &self.peer, e)),
        }
    }

    fn receive_plain(&mut self, first: Option<&mut [u8]>) -> rustix::io::Result<usize> {
        let spare = &mut self.input[self.end..];
        match first {
            None if !self.takes_descriptors => {
                rustix::net::recv(&self.socket, spare, RecvFlags::empty()).map(|(n, _)| n)
            }
            None => receive_with_descriptors(
                self.socket.as_fd(),
                &mut [IoSliceMut::new(spare)],
                &mut self.descriptors,
            ),
            Some(first) => {
                let mut slices = [IoSliceMut::new(first), IoSliceMut::new(spare)];
                if self.takes_descriptors {
                    receive_with_descriptors(
                        self.socket.as_fd(),
                        &mut slices,
                        &mut self.descriptors,
                    )
                } else {
                    rustix::io::readv(&self.socket, &mut slices)
                }
            }
        }
    }
}

fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    slices: &mut [IoSliceMut<'_>],
    descriptors: &mut VecDeque<OwnedFd>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    // Bounded: if nobody takes the descriptors, the oldest are closed.
    while descriptors.len() > 4 * MAX_DESCRIPTORS {
        descriptors.pop_front();
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok(received.bytes)
}
