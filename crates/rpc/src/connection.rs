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
    /// The address that it was accepted from or connected to.
    from: Arc<str>,
    /// What the other end says of itself, until it has proven it.
    claim: Option<Box<Claim>>,
    version: u16,
    limits: Limits,
    timeouts: Timeouts,
    /// Overrides the read time-out: nothing is read after it (handshake).
    deadline: Option<Instant>,
    /// Under the frames of a TCP connection, unless its network is trusted.
    tls: Option<Box<Tls>>,
    /// What both ends of a protected connection know and nobody else.
    binding: Option<[u8; 32]>,
    /// Whether descriptors beside frames are taken.
    takes_descriptors: bool,
    input: Vec<u8>,
    start: usize,
    end: usize,
    payload_left: usize,
    output: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// The thread that serves it.
    server: Option<cpu_affinity::Server>,
    /// Those who wait for answers.
    caller: Option<cpu_affinity::Caller>,
}

/// For a client that drives several connections at once with `poll`.
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

    /// Names the other end in errors.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Gives the other end a better name (after the handshake).
    pub fn set_peer(&mut self, peer: impl Into<String>) {
        self.peer = peer.into();
    }

    /// The address of the other end, over TCP.
    pub(crate) fn from(&self) -> &str {
        &self.from
    }

    /// What the other end said of itself in a handshake that has not ended.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_deref()
    }

    /// The other end has opened the handshake.
    pub(crate) fn heard(&mut self, hello: &Hello) {
        self.claim = Some(Box::new(Claim::of(hello)));
    }

    /// Same host, and descriptors can be passed.
    pub fn is_unix(&self) -> bool {
        self.unix
    }

    /// The protocol version in use.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// A value that both ends of a protected connection know and nobody else: whoever signs it signs for this connection alone.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.binding
    }

    /// The handshake has ended.
    pub(crate) fn establish(&mut self, version: u16) {
        self.claim = None;
        self.version = version;
        self.limits = Limits::FULL;
    }

    /// From now on descriptors beside frames are accepted ([`Connection::take_descriptors`]).
    pub fn accept_descriptors(&mut self) {
        self.takes_descriptors = self.unix;
    }

    /// Sends a request and waits for its answer, on this thread, which does nothing else meanwhile: a server on
    /// this host may serve it on this CPU. `sent` becomes true when the request may arrive.
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

    /// From now on this thread keeps to where the peer waits ([`Connection::call`]).
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
