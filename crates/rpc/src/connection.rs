//! A blocking connection that carries frames over a Unix or TCP stream socket; both ends use it.
//!
//! The cost of a small request is the wake-ups, not the bytes. So small frames collect in an output buffer, which is
//! written when the reader is about to wait. Input is read into a buffer that usually holds many small frames. 64
//! requests in flight then cost a handful of system calls on each side, and a single request costs one write and one
//! read. Payloads beyond [`COPY_BELOW`] bytes bypass both buffers: one vectored write sends them, and they are received
//! directly into the caller's memory.
//!
//! A connection serves one thread at a time. A client with many requests in flight must read its replies before some
//! thousand of them are outstanding: neither side reads while it writes.
mod passing;
mod receiving;
mod securing;
mod sending;

use crate::claim::Claim;
use crate::closer::{Closer, Socket};
use crate::cpu_affinity;
use crate::tls::Tls;
use penstock_wire::frame::{self, FrameError, Limits};
use penstock_wire::handshake::Hello;
use penstock_wire::message::{MAX_GROUPS, User};
use penstock_wire::{Envelope, Error, Result};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the input buffer; it grows for larger bodies and shrinks afterwards.
const INPUT: usize = 32 << 10;
/// The output buffer is written when it reaches this size.
const OUTPUT: usize = 64 << 10;
/// Payloads up to this size are copied into the output buffer, so that they are sent with other frames.
pub const COPY_BELOW: usize = 8 << 10;
/// Slices in one vectored write (the kernel's IOV_MAX is 1024).
const MAX_SLICES: usize = 512;

/// Time limits of one read or write. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the next bytes from the peer.
    pub read: Option<Duration>,
    /// For space in the send buffer.
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

/// Header and body of a received frame. Its payload is still to be read.
#[derive(Debug)]
pub struct Received<B> {
    /// Request id, flags, trace context.
    pub envelope: Envelope,
    /// The message; `None` in continuation frames, which carry payload only.
    pub body: Option<B>,
    /// Payload bytes to be read next.
    pub payload_len: usize,
}

/// The process at the other end of a Unix socket, as reported by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Process id.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A connection that carries frames.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<Socket>,
    unix: bool,
    peer: String,
    /// The address that it was accepted from or connected to.
    from: Arc<str>,
    /// The unverified claim of the other end, until it is authenticated.
    claim: Option<Box<Claim>>,
    version: u16,
    limits: Limits,
    timeouts: Timeouts,
    /// Overrides the read time-out: nothing is read after it (handshake).
    deadline: Option<Instant>,
    /// TLS under the frames of a TCP connection, unless its network is trusted.
    tls: Option<Box<Tls>>,
    /// The channel binding of a TLS session: a value that only both ends know.
    binding: Option<[u8; 32]>,
    /// Whether descriptors are accepted with frames.
    takes_descriptors: bool,
    input: Vec<u8>,
    start: usize,
    end: usize,
    payload_left: usize,
    output: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// CPU affinity of the thread that serves it.
    server: Option<cpu_affinity::Server>,
    /// CPU affinity of the threads that wait for answers.
    caller: Option<cpu_affinity::Caller>,
}

/// For a client that uses several connections with `poll`.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// A connection over an accepted or connected Unix socket. `peer` names the other end in errors.
    pub fn unix(stream: UnixStream, peer: impl Into<String>, timeouts: Timeouts) -> Result<Self> {
        Connection::new(OwnedFd::from(stream), true, peer.into(), timeouts)
    }

    /// A connection over an accepted or connected TCP socket, with no delay and keepalive.
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

    /// A connection over a socket of a simulated network.
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
            from: peer.as_str().into(),
            peer,
            claim: None,
            version: frame::HANDSHAKE_VERSION,
            limits: Limits::HANDSHAKE,
            timeouts,
            deadline: None,
            tls: None,
            binding: None,
            takes_descriptors: false,
            input: Vec::new(),
            start: 0,
            end: 0,
            payload_left: 0,
            output: Vec::new(),
            descriptors: VecDeque::new(),
            server: None,
            caller: unix.then(cpu_affinity::Caller::default),
        };
        connection.set_timeouts(timeouts)?;
        Ok(connection)
    }

    /// The name of the other end in errors.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Sets a better name of the other end (after the handshake).
    pub fn set_peer(&mut self, peer: impl Into<String>) {
        self.peer = peer.into();
    }

    /// The address of the other end, over TCP.
    pub(crate) fn from(&self) -> &str {
        &self.from
    }

    /// The other end's claim in an unfinished handshake.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_deref()
    }

    /// Records the hello of the other end.
    pub(crate) fn heard(&mut self, hello: &Hello) {
        self.claim = Some(Box::new(Claim::of(hello)));
    }

    /// Whether the peer is on this host, so that descriptors can be passed.
    pub fn is_unix(&self) -> bool {
        self.unix
    }

    /// The protocol version in use.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The channel binding: a value that only both ends of a protected connection know. A signature over it is valid
    /// for this connection only.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.binding
    }

    /// Ends the handshake.
    pub(crate) fn establish(&mut self, version: u16) {
        self.claim = None;
        self.version = version;
        self.limits = Limits::FULL;
    }

    /// Accepts descriptors with frames from now on ([`Connection::take_descriptors`]).
    pub fn accept_descriptors(&mut self) {
        self.takes_descriptors = self.unix;
    }

    /// Sends a request and waits for its answer. The calling thread does nothing else meanwhile, so a server on this
    /// host may serve the request on this CPU. `sent` becomes true when the request may have reached the server.
    pub fn call<Q: Serialize, A: DeserializeOwned>(
        &mut self,
        envelope: &Envelope,
        request: &Q,
        sent: &mut bool,
    ) -> Result<Received<A>> {
        let waiting = self.caller.as_mut().map(cpu_affinity::Caller::asks);
        let envelope = Envelope {
            waits_on: waiting.as_ref().and_then(|w| w.cpu),
            ..*envelope
        };
        let asked = self.queue(&envelope, request).and_then(|()| self.flush());
        *sent |= asked.is_ok();
        let answer = asked.and_then(|()| self.receive());
        if let (Some(caller), Some(waiting)) = (&mut self.caller, waiting) {
            caller.answered(waiting);
        }
        answer
    }

    /// Serves on the CPU where the peer waits from now on ([`Connection::call`]).
    pub(crate) fn serve_nearby(&mut self) {
        self.server = if self.unix {
            cpu_affinity::Server::new()
        } else {
            None
        };
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

    /// A handle that closes this connection from another thread.
    pub fn closer(&self) -> Closer {
        Closer::new(self.socket.clone())
    }

    /// Changes both time-outs.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<()> {
        self.timeouts = timeouts;
        self.apply_timeout(sockopt::Timeout::Recv, timeouts.read)?;
        self.apply_timeout(sockopt::Timeout::Send, timeouts.write)
    }

    /// Sets a deadline after which nothing is read; `None` restores the read time-out.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.deadline = deadline;
        if deadline.is_none() {
            self.apply_timeout(sockopt::Timeout::Recv, self.timeouts.read)?;
        }
        Ok(())
    }

    fn apply_timeout(&self, which: sockopt::Timeout, after: Option<Duration>) -> Result<()> {
        // The kernel takes zero as no limit.
        let after = after.map(|d| d.max(Duration::from_millis(1)));
        sockopt::set_socket_timeout(&self.socket, which, after)
            .map_err(|e| io_error("set the time-out of", &self.peer, e))
    }

    /// Frees the buffers' memory; for an idle connection.
    pub fn shrink(&mut self) {
        if self.buffered() == 0 {
            self.input = Vec::new();
            self.start = 0;
            self.end = 0;
        }
        if self.output.is_empty() {
            self.output = Vec::new();
        }
        if let Some(tls) = &mut self.tls {
            tls.shrink();
        }
    }

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

/// An [`Error::Io`] from a system call.
pub(crate) fn io_error(what: &'static str, peer: &str, e: Errno) -> Error {
    Error::Io {
        what,
        peer: peer.to_owned(),
        source: e.into(),
    }
}

/// Supplementary groups of a Unix socket's peer at the time of connecting; those beyond [`MAX_GROUPS`] are left out.
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
