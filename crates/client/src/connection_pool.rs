//! A server as a client sees it: its address and the idle connections to it.
//!
//! A connection is used by one thread at a time. Their number is bounded by the number of operations that the client
//! runs at once ([`crate::admission`]). Each of these uses at most one connection per server. Locks hold connections of
//! their own.
use crate::error::Peer;
use crate::fault::Fault;
use crate::grant_link::GrantLink;
use crate::guard::guard;
use crate::link::{Endpoint, Link, OpenAs};
use crate::operations::KnownLoops;
use penstock_host::sync::Mutex;
use penstock_layout::ServerId;
use penstock_rpc::deployment::Address;
use penstock_rpc::{Caller, Timeouts};
use penstock_wire::message::ProgramInfo;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

/// Files that stay open on an idle connection: closed while it was in use elsewhere.
const MAX_LEFT_OPEN: usize = 1024;

/// A metadata or data server. Idle connections know its [`Endpoint`] alone, so that they end with the pool.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    server: Arc<Endpoint>,
    /// Idle connections kept.
    limit: usize,
    idle: Mutex<Vec<Link>>,
    /// Raised when a connection is lost: idle ones from before are probably lost too.
    epoch: AtomicU64,
    /// Files that have been closed so far.
    closes: AtomicU64,
    /// The connection that descriptors came over.
    grants: Mutex<Option<Arc<GrantLink>>>,
    /// Loops the server has been sent.
    pub known: Arc<KnownLoops>,
}

impl Deref for ConnectionPool {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.server
    }
}

impl ConnectionPool {
    pub fn new(
        data: Option<ServerId>,
        address: &Address,
        caller: Arc<Caller>,
        answer: Duration,
        limit: usize,
        listed: Option<ProgramInfo>,
    ) -> ConnectionPool {
        let mut ways = Vec::new();
        if let Some(path) = &address.unix {
            ways.push(format!("unix:{}", path.display()));
        }
        if let Some(tcp) = &address.tcp {
            ways.push(format!("tcp:{tcp}"));
        }
        let peer = Peer {
            data,
            address: ways.join(" or "),
        };
        let timeouts = Timeouts {
            read: Some(answer),
            write: Some(answer),
        };
        ConnectionPool {
            server: Endpoint::new(peer, address.clone(), caller, timeouts, listed),
            limit,
            idle: Mutex::new(Vec::new()),
            epoch: AtomicU64::new(0),
            closes: AtomicU64::new(0),
            grants: Mutex::new(None),
            known: Arc::default(),
        }
    }

    /// An idle connection, or a new one.
    pub fn connect(&self, operation: &'static str) -> Result<Link, Fault> {
        if let Some(link) = self.server.fence(operation, self.epoch())? {
            return Ok(link);
        }
        loop {
            let Some(link) = guard(&self.idle).pop() else {
                break;
            };
            if link.epoch != self.epoch() {
                continue;
            }
            if link.is_open() {
                return Ok(link);
            }
            self.lost();
        }
        self.server.open(operation, self.epoch())
    }

    /// A new connection.
    pub fn dial(&self, operation: &'static str) -> Result<Link, Fault> {
        let epoch = self.epoch();
        match self.server.fence(operation, epoch)? {
            Some(link) => Ok(link),
            None => self.server.open(operation, epoch),
        }
    }

    /// Takes an idle connection back. Files that were closed while it was in use are closed here first.
    pub fn put(&self, mut link: Link) {
        while link.epoch == self.epoch() && link.attached.len() <= MAX_LEFT_OPEN {
            {
                let mut idle = guard(&self.idle);
                // Under the lock: who closes a file after this finds the connection idle.
                if idle.len() >= self.limit {
                    return;
                }
                if self.closes.load(SeqCst) == link.closes {
                    idle.push(link);
                    return;
                }
            }
            if self.close_left(&mut link).is_err() {
                return self.lost();
            }
        }
    }

    /// Closes on a connection what is left of files that were closed since this was done last.
    pub fn close_left(&self, link: &mut Link) -> Result<(), Fault> {
        let closes = self.closes.load(SeqCst);
        if link.closes == closes {
            return Ok(());
        }
        link.closes = closes;
        link.close_left()
    }

    /// A file has been closed, and its attachments are void: each connection looks for them when it comes back.
    pub fn closed(&self) {
        self.closes.fetch_add(1, SeqCst);
    }

    /// An idle connection on which this file is open still, although it has been closed.
    pub fn take_closed(&self, file: OpenAs) -> Option<Link> {
        let is_left = |link: &Link| link.attached.get(&file).is_some_and(|at| at.is_closed());
        let mut idle = guard(&self.idle);
        let at = idle.iter().position(is_left)?;
        Some(idle.swap_remove(at))
    }

    /// Which generation of connections this is: raised by each loss.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// A connection was lost.
    pub fn lost(&self) {
        self.epoch.fetch_add(1, Relaxed);
        self.known.clear();
        let idle = std::mem::take(&mut *guard(&self.idle));
        drop(idle);
    }

    /// The connection for grants; made when there is none.
    pub fn grant_link(&self) -> std::result::Result<Arc<GrantLink>, Fault> {
        let mut slot = guard(&self.grants);
        if let Some(link) = slot.as_ref().filter(|l| l.is_alive()) {
            return Ok(link.clone());
        }
        let link = Arc::new(GrantLink {
            link: Mutex::new(self.dial("ask for a shortcut")?),
            dead: AtomicBool::new(false),
        });
        *slot = Some(link.clone());
        Ok(link)
    }

    /// Closes on that connection what is left of files that have been closed; also where shortcuts were refused or taken back.
    pub fn close_left_by_grants(&self) {
        let Some(holder) = guard(&self.grants).clone().filter(|l| l.is_alive()) else {
            return;
        };
        if self.close_left(&mut guard(&holder.link)).is_err() {
            holder.dead.store(true, Relaxed);
        }
    }
}
