//! A blocking connection that speaks frames over a Unix or TCP stream socket; both ends use it.
//!
//! Wake-ups, not bytes, are what a small request costs. So small frames collect in an output buffer
//! that is written when the reader is about to wait, and input is read into a buffer that usually
//! holds many small frames: 64 requests in flight cost a handful of system calls on each side, and a
//! single request costs one write and one read. Payloads beyond [`COPY_BELOW`] bytes skip both
//! buffers: they go out with one vectored write and come in straight into the caller's memory.
//!
//! A connection serves one thread at a time. A client that keeps many requests in flight reads its
//! replies before some thousand of them are outstanding: neither side reads while it writes.
use crate::closer::{Closer, Socket};
use crate::error::{Error, Result};
use crate::frame::{self, Envelope, FrameError, HEADER_LEN, Header, Limits, MAX_DESCRIPTORS};
use crate::message::{MAX_GROUPS, User};
use penstock_host::net;
use penstock_host::time::now;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the input buffer; larger bodies make it grow for as long as they need it.
const INPUT: usize = 32 << 10;
/// The output buffer is written at this size at the latest.
const OUTPUT: usize = 64 << 10;
/// Payloads up to this many bytes are copied into the output buffer, so that they can wait for company.
pub const COPY_BELOW: usize = 8 << 10;
/// Slices in one vectored write (the kernel's IOV_MAX is 1024).
const MAX_SLICES: usize = 512;

/// How long one read or write may wait. `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the next bytes from the peer.
    pub read: Option<Duration>,
    /// For room to send.
    pub write: Option<Duration>,
}

impl Default for Timeouts {
    /// 60 s each way.
    fn default() -> Timeouts {
        Timeouts {
            read: Some(Duration::from_secs(60)),
            write: Some(Duration::from_secs(60)),
        }
    }
}

/// Header and body of a frame that came in. Its payload is still in the connection.
#[derive(Debug)]
pub struct Received<B> {
    /// Request id, flags, trace context.
    pub envelope: Envelope,
    /// The message; `None` in continuation frames, which carry payload alone.
    pub body: Option<B>,
    /// Payload bytes to be read next.
    pub payload_len: usize,
}

/// Who is at the other end of a Unix socket, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Process id.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// See the module's text.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<Socket>,
    unix: bool,
    peer: String,
    version: u16,
    limits: Limits,
    timeouts: Timeouts,
    /// Overrides the read time-out: nothing is read after it (handshake).
    deadline: Option<Instant>,
    /// Whether descriptors beside frames are taken.
    takes_descriptors: bool,
    input: Vec<u8>,
    start: usize,
    end: usize,
    payload_left: usize,
    output: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

/// For a client that drives several connections at once with `poll`. Between a request and its
/// answer the buffers are empty, so that bytes may pass them by.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// Over an accepted or connected Unix socket. `peer` names the other end in errors.
    pub fn unix(stream: UnixStream, peer: impl Into<String>, timeouts: Timeouts) -> Result<Self> {
        Connection::new(OwnedFd::from(stream), true, peer.into(), timeouts)
    }

    /// Over an accepted or connected TCP socket: no delay, keepalive.
    pub fn tcp(stream: TcpStream, peer: impl Into<String>, timeouts: Timeouts) -> Result<Self> {
        let socket = OwnedFd::from(stream);
        let peer = peer.into();
        let set = || -> rustix::io::Result<()> {
            sockopt::set_tcp_nodelay(&socket, true)?;
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, Duration::from_secs(30))?;
            sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(10))?;
            sockopt::set_tcp_keepcnt(&socket, 3)
        };
        set().map_err(|e| io_error("set options of the connection to", &peer, e))?;
        Connection::new(socket, false, peer, timeouts)
    }

    /// Over a socket of a simulated network.
    pub(crate) fn world(
        socket: OwnedFd,
        peer: impl Into<String>,
        timeouts: Timeouts,
    ) -> Result<Self> {
        Connection::new(socket, false, peer.into(), timeouts)
    }

    fn new(socket: OwnedFd, unix: bool, peer: String, timeouts: Timeouts) -> Result<Self> {
        let mut connection = Connection {
            socket: Socket::new(socket),
            unix,
            peer,
            version: frame::HANDSHAKE_VERSION,
            limits: Limits::HANDSHAKE,
            timeouts,
            deadline: None,
            takes_descriptors: false,
            input: Vec::new(),
            start: 0,
            end: 0,
            payload_left: 0,
            output: Vec::new(),
            descriptors: VecDeque::new(),
        };
        connection.set_timeouts(timeouts)?;
        Ok(connection)
    }

    /// Names the other end in errors.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Gives the other end a better name (after the handshake).
    pub fn set_peer(&mut self, peer: impl Into<String>) {
        self.peer = peer.into();
    }

    /// Same host, and descriptors can be passed.
    pub fn is_unix(&self) -> bool {
        self.unix
    }

    /// The protocol version in use.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The handshake has ended.
    pub(crate) fn establish(&mut self, version: u16) {
        self.version = version;
        self.limits = Limits::FULL;
    }

    /// From now on descriptors beside frames are accepted ([`Connection::take_descriptors`]).
    pub fn accept_descriptors(&mut self) {
        self.takes_descriptors = self.unix;
    }

    /// The peer's process, user and group; `None` over TCP.
    pub fn credentials(&self) -> Option<Credentials> {
        if !self.unix {
            return None;
        }
        let c = sockopt::socket_peercred(&self.socket).ok()?;
        Some(Credentials {
            pid: c.pid.as_raw_nonzero().get(),
            uid: c.uid.as_raw(),
            gid: c.gid.as_raw(),
        })
    }

    /// The peer's user with all its groups; `None` over TCP.
    pub fn user(&self) -> Option<User> {
        let credentials = self.credentials()?;
        Some(User {
            uid: credentials.uid,
            gid: credentials.gid,
            groups: peer_groups(self.socket.as_fd()).unwrap_or_default(),
        })
    }

    /// A handle that ends this connection from another thread.
    pub fn closer(&self) -> Closer {
        Closer::new(self.socket.clone())
    }

    /// Changes both time-outs.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<()> {
        self.timeouts = timeouts;
        self.apply_timeout(sockopt::Timeout::Recv, timeouts.read)?;
        self.apply_timeout(sockopt::Timeout::Send, timeouts.write)
    }

    /// Nothing is read after `deadline`; `None` returns to the read time-out.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.deadline = deadline;
        if deadline.is_none() {
            self.apply_timeout(sockopt::Timeout::Recv, self.timeouts.read)?;
        }
        Ok(())
    }

    fn apply_timeout(&self, which: sockopt::Timeout, after: Option<Duration>) -> Result<()> {
        // Zero would mean "for ever" to the kernel.
        let after = after.map(|d| d.max(Duration::from_millis(1)));
        sockopt::set_socket_timeout(&self.socket, which, after)
            .map_err(|e| io_error("set the time-out of", &self.peer, e))
    }

    // ---- sending ----

    /// Puts a frame without payload into the output buffer.
    pub fn queue<B: Serialize>(&mut self, envelope: &Envelope, body: &B) -> Result<()> {
        self.append(envelope, Some(body), 0, 0)?;
        self.flush_if_full()
    }

    /// The same with a payload. A large one is written at once, together with all that was queued.
    pub fn queue_payload<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: &B,
        payload: &[u8],
    ) -> Result<()> {
        self.append(envelope, Some(body), payload.len(), 0)?;
        self.put(payload)
    }

    /// A frame without body: further payload of the same request or reply.
    pub fn queue_continuation(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<()> {
        self.append::<()>(envelope, None, payload.len(), 0)?;
        self.put(payload)
    }

    /// Like [`Connection::queue_payload`], the payload gathered from several places (`None` body:
    /// continuation).
    pub fn queue_gathered<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: Option<&B>,
        payload: &[&[u8]],
    ) -> Result<()> {
        let len = payload.iter().map(|p| p.len()).sum();
        self.append(envelope, body, len, 0)?;
        if len <= COPY_BELOW {
            for part in payload {
                self.output.extend_from_slice(part);
            }
            return self.flush_if_full();
        }
        // The first write takes what is queued along; the rest is in the caller's memory.
        let mut groups = payload.chunks(MAX_SLICES);
        let first = groups.next().unwrap_or(&[]);
        let output = std::mem::take(&mut self.output);
        let mut slices = Vec::with_capacity(first.len() + 1);
        slices.push(IoSlice::new(&output));
        slices.extend(first.iter().map(|p| IoSlice::new(p)));
        let mut sent = self.transmit(&mut slices);
        for group in groups {
            if sent.is_err() {
                break;
            }
            let mut slices: Vec<_> = group.iter().map(|p| IoSlice::new(p)).collect();
            sent = self.transmit(&mut slices);
        }
        self.reuse_output(output);
        sent
    }

    /// Sends a frame with descriptors beside it (Unix sockets).
    pub fn send_descriptors<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: &B,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        // The descriptors must ride on the first byte of their own frame.
        self.flush()?;
        self.append(envelope, Some(body), 0, descriptors.len())?;
        let output = std::mem::take(&mut self.output);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(self.frame_error(FrameError::TooLarge {
                what: "descriptors",
                size: descriptors.len(),
                limit: MAX_DESCRIPTORS,
            }));
        }
        let sent = loop {
            let slices = [IoSlice::new(&output)];
            match rustix::net::sendmsg(&self.socket, &slices, &mut control, SendFlags::NOSIGNAL) {
                Ok(n) => break n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.send_error(e)),
            }
        };
        let rest = self.transmit(&mut [IoSlice::new(&output[sent..])]);
        self.reuse_output(output);
        rest
    }

    /// Writes all that was queued.
    pub fn flush(&mut self) -> Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let sent = self.transmit(&mut [IoSlice::new(&output)]);
        self.reuse_output(output);
        sent
    }

    fn append<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: Option<&B>,
        payload_len: usize,
        descriptors: usize,
    ) -> Result<()> {
        frame::append(
            &mut self.output,
            self.version,
            envelope,
            body,
            payload_len,
            descriptors,
            &self.limits,
        )
        .map_err(|e| self.frame_error(e))
    }

    fn put(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() <= COPY_BELOW {
            self.output.extend_from_slice(payload);
            return self.flush_if_full();
        }
        let output = std::mem::take(&mut self.output);
        let sent = self.transmit(&mut [IoSlice::new(&output), IoSlice::new(payload)]);
        self.reuse_output(output);
        sent
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.output.len() >= OUTPUT {
            self.flush()?;
        }
        Ok(())
    }

    /// Keeps the output buffer's memory for the next frames, unless a large body blew it up.
    fn reuse_output(&mut self, mut output: Vec<u8>) {
        if output.capacity() <= 2 * OUTPUT {
            output.clear();
            self.output = output;
        }
    }

    fn transmit(&self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        // Empty slices would make a write of nothing look like progress.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let sent = if let [one] = slices {
                rustix::net::send(&self.socket, one, SendFlags::NOSIGNAL)
            } else {
                rustix::net::sendmsg(
                    &self.socket,
                    slices,
                    &mut SendAncillaryBuffer::default(),
                    SendFlags::NOSIGNAL,
                )
            };
            match sent {
                Ok(n) => IoSlice::advance_slices(&mut slices, n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if penstock_host::simulated() => {
                    net::ready(self.socket.as_fd(), PollFlags::OUT, self.timeouts.write)
                        .map_err(|e| self.send_error(e))?;
                }
                Err(e) => return Err(self.send_error(e)),
            }
        }
        Ok(())
    }

    // ---- receiving ----

    /// The next frame's header and body. Unread payload of the frame before is skipped.
    pub fn receive<B: DeserializeOwned>(&mut self) -> Result<Received<B>> {
        match self.receive_unless_idle()? {
            Some(received) => Ok(received),
            None => Err(self.timed_out("answer")),
        }
    }

    /// The same, but `None` when no frame began within the read time-out. Queued output is written
    /// before waiting for a frame to begin.
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
        // Nothing that an ended connection has delivered is acted upon.
        if self.socket.is_closed() {
            return Err(self.closed());
        }
        let mut bytes = [0u8; HEADER_LEN];
        bytes.copy_from_slice(&self.input[self.start..self.start + HEADER_LEN]);
        let header =
            Header::decode(&bytes, self.version, &self.limits).map_err(|e| self.frame_error(e))?;
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
            // The buffer is empty here: what follows the payload may come with the same read.
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

    /// The rest of the current payload if it lies in the input buffer already: no copy, no system
    /// call. It is consumed by this call.
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

    /// Drops what is left of the current payload.
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

    /// Descriptors that came beside the last frame.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors.drain(..).collect()
    }

    /// Gives the buffers' memory back; for a connection that has been idle.
    pub fn shrink(&mut self) {
        if self.buffered() == 0 {
            self.input = Vec::new();
            self.start = 0;
            self.end = 0;
        }
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }

    fn buffered(&self) -> usize {
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

    /// Reads more input, with room for `want` bytes from `start`. False: idle, and that was allowed.
    fn fill(&mut self, want: usize, idle: bool) -> Result<bool> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        let size = want.max(INPUT);
        if self.input.len() < size {
            self.input.resize(size, 0);
        }
        if self.start > 0 && (self.start + want > self.input.len() || self.end == self.input.len())
        {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let n = self.read(None, idle)?;
        self.end += n;
        Ok(n > 0)
    }

    /// One read into `first` (if any) and then the free part of the input buffer. 0 only when `idle`
    /// and the read time-out passed.
    fn read(&mut self, first: Option<&mut [u8]>, idle: bool) -> Result<usize> {
        let mut first = first;
        if self.input.is_empty() {
            self.input.resize(INPUT, 0);
        }
        loop {
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
            let spare = &mut self.input[self.end..];
            let ready = net::ready(self.socket.as_fd(), PollFlags::IN, limit);
            let got = ready.and_then(|()| match &mut first {
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
            });
            match got {
                Ok(0) if idle => return Err(self.closed()),
                Ok(0) => {
                    return Err(io_error(
                        "the connection ended inside a frame from",
                        &self.peer,
                        Errno::CONNRESET,
                    ));
                }
                Ok(n) => return Ok(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.deadline.is_some() => {}
                Err(Errno::AGAIN) if idle => return Ok(0),
                Err(Errno::AGAIN) => return Err(self.timed_out("finish a frame")),
                Err(e) => return Err(io_error("read from", &self.peer, e)),
            }
        }
    }

    // ---- errors ----

    fn closed(&self) -> Error {
        Error::Closed {
            peer: self.peer.clone(),
        }
    }

    fn timed_out(&self, what: &'static str) -> Error {
        Error::TimedOut {
            peer: self.peer.clone(),
            what,
            after: self.timeouts.read.unwrap_or_default(),
        }
    }

    fn send_error(&self, e: Errno) -> Error {
        match e {
            Errno::AGAIN => Error::TimedOut {
                peer: self.peer.clone(),
                what: "take data",
                after: self.timeouts.write.unwrap_or_default(),
            },
            e => io_error("write to", &self.peer, e),
        }
    }

    fn frame_error(&self, e: FrameError) -> Error {
        let peer = self.peer.clone();
        match e {
            FrameError::Malformed(what) => Error::Malformed { peer, what },
            FrameError::Version { found, expected } => Error::Version {
                peer,
                theirs: found.to_string(),
                ours: expected.to_string(),
            },
            FrameError::TooLarge { what, size, limit } => Error::TooLarge {
                peer,
                what,
                size: size as u64,
                limit: limit as u64,
            },
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
    // Bounded: a peer that sends more than anyone takes loses the oldest.
    while descriptors.len() > 4 * MAX_DESCRIPTORS {
        descriptors.pop_front();
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok(received.bytes)
}

/// An [`Error::Io`] from a system call.
pub(crate) fn io_error(what: &'static str, peer: &str, e: Errno) -> Error {
    Error::Io {
        what,
        peer: peer.to_owned(),
        source: e.into(),
    }
}
/// Supplementary groups of a Unix socket's peer when it connected; those beyond [`MAX_GROUPS`] are left out.
fn peer_groups(socket: BorrowedFd<'_>) -> Option<Vec<u32>> {
    let mut groups = vec![0 as libc::gid_t; 1024];
    for _ in 0..2 {
        let mut bytes = libc::socklen_t::try_from(size_of_val(groups.as_slice())).ok()?;
        // SAFETY: the descriptor is open; the kernel writes at most `bytes` bytes, all within the vector, and the number
        // of bytes there are to `bytes`.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        groups.resize(bytes as usize / size_of::<libc::gid_t>(), 0);
        if code == 0 {
            groups.truncate(MAX_GROUPS);
            return Some(groups);
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::ERANGE) {
            return None;
        }
    }
    None
}
