//! Connections of the simulated network and the bytes in flight; `network` moves them.
use crate::effects::{Effect, Effects};
use crate::units::{MS, MachineId, Nanos, ProcessId};
use penstock_base::Random;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{OwnedFd, RawFd};

/// Bytes of one direction of a connection that the network holds; more bytes stay with the sender.
pub(crate) const HELD: usize = 256 << 10;

/// The longest delay of a message without faults.
const USUAL: Nanos = 200_000;

pub(crate) struct Segment {
    /// Sequence number among everything that was sent.
    pub number: u64,
    pub due: Nanos,
    pub bytes: Vec<u8>,
    /// Whether the sender has closed the connection after this.
    pub end: bool,
}

pub(crate) struct End {
    pub process: ProcessId,
    pub machine: MachineId,
    /// The program's half, to match polls.
    pub app: RawFd,
    /// The same until the program has accepted it.
    pub offered: Option<OwnedFd>,
    /// The network's half; `None` when this end is broken.
    pub ours: Option<OwnedFd>,
    /// Segments that its program has sent and that have not arrived.
    pub out: VecDeque<Segment>,
    pub held: usize,
    pub last_due: Nanos,
    pub closed: bool,
}

/// How a connection breaks once bytes are in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// They are lost.
    Drop,
    /// A bit of them flips, which both ends notice because the connection is a TLS session.
    BitRot,
    /// The client's bytes arrive long after the client has seen the connection broken.
    Late,
}

pub(crate) struct Connection {
    pub address: String,
    /// Client, server.
    pub ends: [End; 2],
    /// Until this time nothing that the client sends arrives.
    pub stalled: Nanos,
    pub fate: Option<Fate>,
    /// `None` while connecting.
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
    /// Pairs of machines that are partitioned.
    pub cut: BTreeSet<(MachineId, MachineId)>,
    /// Whether connections are TLS sessions.
    pub tls: bool,
    /// Factor on all delays.
    pub slow: u64,
    /// Connections broken so far, for any reason.
    pub broken: u64,
    pub effects: Effects,
    /// Segments sent so far.
    pub sent: u64,
    /// The newest segment that has arrived, by machine.
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
