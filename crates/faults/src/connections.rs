//! The connections of the simulated network, and what is on its way over them; `network` carries it.
use crate::effects::{Effect, Effects};
use crate::units::{MS, MachineId, Nanos, ProcessId};
use penstock_base::Random;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{OwnedFd, RawFd};

/// Bytes of one direction of a connection that the network holds; the rest stays with the sender.
pub(crate) const HELD: usize = 256 << 10;

/// A message takes no longer on a good day.
const USUAL: Nanos = 200_000;

pub(crate) struct Segment {
    /// When it was sent, among all that was.
    pub number: u64,
    pub due: Nanos,
    pub bytes: Vec<u8>,
    /// The sender has closed; nothing follows.
    pub end: bool,
}

pub(crate) struct End {
    pub process: ProcessId,
    pub machine: MachineId,
    /// The program's half, for matching polls.
    pub app: RawFd,
    /// The same until the program has taken it.
    pub offered: Option<OwnedFd>,
    /// The network's half; `None` once this end is broken.
    pub ours: Option<OwnedFd>,
    /// What its program has sent and has not arrived at the other end.
    pub out: VecDeque<Segment>,
    pub held: usize,
    pub last_due: Nanos,
    pub closed: bool,
}

/// How a connection is to break once bytes are on their way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// They are lost.
    Drop,
    /// One bit of them flips, which both ends notice: the connection is a TLS session.
    BitRot,
    /// Those of the client arrive, long after it has seen the connection gone.
    Late,
}

pub(crate) struct Connection {
    pub address: String,
    /// Client, server.
    pub ends: [End; 2],
    /// Nothing that the client sends arrives before.
    pub stalled: Nanos,
    pub fate: Option<Fate>,
    /// `None`: still calling.
    pub accepted: Option<bool>,
}

pub(crate) struct Listener {
    pub process: ProcessId,
    pub app: RawFd,
    pub event: OwnedFd,
    pub backlog: VecDeque<u64>,
}

/// All connections and listeners.
pub(crate) struct Network {
    pub random: Random,
    pub epoll: OwnedFd,
    pub next: u64,
    pub connections: BTreeMap<u64, Connection>,
    pub listeners: BTreeMap<String, Listener>,
    /// Pairs of machines that cannot reach each other.
    pub cut: BTreeSet<(MachineId, MachineId)>,
    /// Connections are TLS sessions.
    pub tls: bool,
    /// Everything takes so many times longer.
    pub slow: u64,
    /// Connections broken so far, by whatever.
    pub broken: u64,
    pub effects: Effects,
    /// Segments sent so far.
    pub sent: u64,
    /// By machine, the newest segment that has arrived.
    pub newest: BTreeMap<MachineId, u64>,
    pub most_connections: usize,
}

pub(crate) fn pair(a: MachineId, b: MachineId) -> (MachineId, MachineId) {
    (a.min(b), a.max(b))
}

impl Network {
    pub fn new(seed: u64) -> std::io::Result<Network> {
        Ok(Network {
            random: Random::for_purpose(seed, 2),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            next: 0,
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            cut: BTreeSet::new(),
            slow: 1,
            tls: false,
            broken: 0,
            effects: Effects::default(),
            sent: 0,
            newest: BTreeMap::new(),
            most_connections: 0,
        })
    }

    pub fn latency(&mut self) -> Nanos {
        let usual = self.random.from_to(20_000, USUAL);
        let late = if self.random.one_in(40) {
            self.random.below(40 * MS)
        } else {
            0
        };
        let takes = usual * self.slow + late;
        if takes > USUAL {
            self.effects.count(Effect::Delay);
        }
        takes
    }

    pub fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    pub fn all(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }
}

pub(crate) fn socket_pair(buffer: usize) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_send_buffer_size(&a, buffer)?;
    sockopt::set_socket_send_buffer_size(&b, buffer)?;
    Ok((a, b))
}
