//! A server as a client sees it: its address and the idle connections to it.
//!
//! A connection is used by one thread at a time. How many exist is bounded by the number of
//! operations that the client lets run at once (`Permits`), each of which uses at most one connection
//! per server; locks hold connections of their own.
use crate::error::{Error, Peer};
use crate::lane::Buffers;
use crate::operations::KnownLoops;
use crate::shortcut::GrantLink;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::now;
use penstock_layout::{FileId, ServerId};
use penstock_wire::deployment::Address;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle, TraceContext};
use penstock_wire::{Caller, Connection, Envelope, Timeouts};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Locks a mutex whose data no panic can leave half-changed.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a call came to nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server is away; trying again may help.
    Away(String),
    /// Trying again does not help.
    Final(Error),
}

impl Fault {
    /// For callers that do not try again.
    pub fn into_final(self, site: &Site, operation: &'static str) -> Error {
        match self {
            Fault::Final(e) => e,
            Fault::Away(detail) => Error::Unreachable {
                peer: site.peer.clone(),
                operation,
                detail,
                tried: Duration::ZERO,
            },
        }
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Final(e)
    }
}

/// A metadata or data server.
#[derive(Debug)]
pub(crate) struct Site {
    pub peer: Peer,
    address: Address,
    caller: Arc<Caller>,
    timeouts: Timeouts,
    volatile: bool,
    /// Idle connections kept.
    limit: usize,
    idle: Mutex<Vec<Link>>,
    /// Raised when a connection is lost: idle ones from before are probably lost too.
    epoch: AtomicU64,
    /// The connection that descriptors came over.
    pub grants: Mutex<Option<Arc<GrantLink>>>,
    /// Loops the server has been sent.
    pub known: Arc<KnownLoops>,
}

impl Site {
    pub fn new(
        data: Option<ServerId>,
        address: &Address,
        caller: Arc<Caller>,
        answer: Duration,
        volatile: bool,
        limit: usize,
    ) -> Site {
        let mut ways = Vec::new();
        if let Some(path) = &address.unix {
            ways.push(format!("unix:{}", path.display()));
        }
        if let Some(tcp) = &address.tcp {
            ways.push(format!("tcp:{tcp}"));
        }
        Site {
            peer: Peer {
                data,
                address: ways.join(" or "),
            },
            address: address.clone(),
            caller,
            timeouts: Timeouts {
                read: Some(answer),
                write: Some(answer),
            },
            volatile,
            limit,
            idle: Mutex::new(Vec::new()),
            epoch: AtomicU64::new(0),
            grants: Mutex::new(None),
            known: Arc::default(),
        }
    }

    /// An idle connection, or a new one.
    pub fn connect(self: &Arc<Self>, operation: &'static str) -> Result<Link, Fault> {
        loop {
            let Some(link) = guard(&self.idle).pop() else {
                break;
            };
            if link.epoch != self.epoch.load(Relaxed) {
                continue;
            }
            if link.is_open() {
                return Ok(link);
            }
            self.lost();
        }
        self.dial(operation)
    }

    /// A new connection.
    pub fn dial(self: &Arc<Self>, operation: &'static str) -> Result<Link, Fault> {
        let epoch = self.epoch.load(Relaxed);
        match penstock_wire::connect(&self.address, &self.caller, self.timeouts) {
            Ok(connection) => Ok(Link {
                connection,
                site: self.clone(),
                epoch,
                next: 1,
                attached: HashMap::new(),
                buffers: Buffers::default(),
            }),
            Err(penstock_wire::Error::TimedOut { .. }) => {
                Err(Fault::Away("no answer to a new connection".into()))
            }
            Err(e) => Err(self.fault(e, operation)),
        }
    }

    /// Takes an idle connection back.
    pub fn put(&self, link: Link) {
        if link.epoch == self.epoch.load(Relaxed) && link.attached.len() <= MAX_LEFT_OPEN {
            let mut idle = guard(&self.idle);
            if idle.len() < self.limit {
                idle.push(link);
            }
        }
    }

    /// An idle connection on which this file is open.
    pub fn take_with(&self, file: OpenAs) -> Option<Link> {
        let mut idle = guard(&self.idle);
        let at = idle.iter().position(|l| l.attached.contains_key(&file))?;
        Some(idle.swap_remove(at))
    }

    /// Which generation of connections this is: raised by each loss.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Its bytes end with its process.
    pub fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// It has a Unix socket, though perhaps not on this host.
    pub fn is_local(&self) -> bool {
        self.address.unix.is_some()
    }

    /// What an answer means that is not the one hoped for.
    pub fn unexpected(&self, operation: &'static str, reply: DataReply) -> Fault {
        match reply {
            DataReply::Error(e) => self.fault(penstock_wire::Error::Refused(e), operation),
            other => Fault::Final(Error::Protocol {
                peer: self.peer.clone(),
                operation,
                detail: format!("unexpected answer {other:?}"),
            }),
        }
    }

    /// A connection was lost.
    pub fn lost(&self) {
        self.epoch.fetch_add(1, Relaxed);
        self.known.clear();
        let idle = std::mem::take(&mut *guard(&self.idle));
        drop(idle);
    }

    fn fault(&self, e: penstock_wire::Error, operation: &'static str) -> Fault {
        use penstock_wire::Error as Wire;
        match e {
            Wire::TimedOut { after, .. } => Fault::Final(Error::Timeout {
                peer: self.peer.clone(),
                operation,
                waited: after,
            }),
            Wire::Closed { .. } | Wire::Io { .. } => Fault::Away(e.to_string()),
            Wire::Refused(source)
                if matches!(source.kind, ErrorKind::Busy | ErrorKind::ShuttingDown) =>
            {
                Fault::Away(source.message)
            }
            Wire::Refused(source) => Fault::Final(Error::Refused {
                peer: self.peer.clone(),
                operation,
                source,
            }),
            Wire::BadKey(_) | Wire::Version { .. } | Wire::KeyFile { .. } => {
                Fault::Final(Error::Refused {
                    peer: self.peer.clone(),
                    operation,
                    source: e.into(),
                })
            }
            e => Fault::Final(Error::Protocol {
                peer: self.peer.clone(),
                operation,
                detail: e.to_string(),
            }),
        }
    }
}

/// What a server gives one handle on a connection: a file, opened for (reading, writing).
pub(crate) type OpenAs = (FileId, bool, bool);

/// Files that stay open on an idle connection: closed while it was in use elsewhere.
const MAX_LEFT_OPEN: usize = 1024;

/// A file open on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attachment {
    pub handle: Handle,
    /// When its capability ends, milliseconds since the epoch.
    pub expires_ms: u64,
}

/// A connection with what belongs to it.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    pub site: Arc<Site>,
    epoch: u64,
    next: u64,
    pub attached: HashMap<OpenAs, Attachment>,
    buffers: Buffers,
}

impl Link {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    pub fn is_unix(&self) -> bool {
        self.connection.is_unix()
    }

    pub fn version(&self) -> u16 {
        self.connection.version()
    }

    /// Lends request ids and buffers to a lane.
    pub fn lend(&mut self) -> (u64, Buffers) {
        (self.next, std::mem::take(&mut self.buffers))
    }

    /// Takes them back.
    pub fn restore(&mut self, (next, buffers): (u64, Buffers)) {
        self.next = next;
        self.buffers = buffers;
    }

    /// The server has not closed it, and nothing has come that nobody asked for. Between calls.
    pub fn is_open(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        matches!(
            rustix::net::recv(self.fd(), &mut byte, flags),
            Err(rustix::io::Errno::AGAIN)
        )
    }

    /// Waits at most this long for an answer from now on.
    pub fn set_patience(&mut self, answer: Option<Duration>) -> Result<(), Fault> {
        let mut timeouts = self.site.timeouts;
        if answer.is_some() {
            timeouts.read = answer;
        }
        self.connection
            .set_timeouts(timeouts)
            .map_err(|e| self.site.fault(e, "set a time-out"))
    }

    /// Sends a request without payload; the answer is taken by [`Link::answer`].
    pub fn ask<R: serde::Serialize>(
        &mut self,
        operation: &'static str,
        trace: TraceContext,
        request: &R,
    ) -> Result<u64, Fault> {
        let id = self.next;
        self.next += 1;
        self.connection
            .queue(&Envelope::request(id, trace), request)
            .and_then(|()| self.connection.flush())
            .map_err(|e| self.site.fault(e, operation))?;
        Ok(id)
    }

    /// The answer to request `id`.
    pub fn answer<R: serde::de::DeserializeOwned>(
        &mut self,
        operation: &'static str,
        id: u64,
    ) -> Result<R, Fault> {
        let received = self
            .connection
            .receive::<R>()
            .map_err(|e| self.site.fault(e, operation))?;
        let protocol = |detail: String| {
            Fault::Final(Error::Protocol {
                peer: self.site.peer.clone(),
                operation,
                detail,
            })
        };
        if received.envelope.request != id || !received.envelope.reply || received.payload_len > 0 {
            return Err(protocol(format!(
                "a reply that request {id} did not ask for"
            )));
        }
        received
            .body
            .ok_or_else(|| protocol("an empty reply".into()))
    }

    /// Descriptors that came beside the last answer.
    pub fn descriptors(&mut self) -> Vec<OwnedFd> {
        self.connection.take_descriptors()
    }

    /// One request to a data server and its answer; errors of the server are in the reply.
    pub fn call(
        &mut self,
        operation: &'static str,
        trace: TraceContext,
        request: &DataRequest,
    ) -> Result<DataReply, Fault> {
        let id = self.ask(operation, trace, request)?;
        self.answer(operation, id)
    }
}

/// How many operations run at once.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<Places>,
    freed: Condvar,
}

#[derive(Debug)]
struct Places {
    free: usize,
    /// Nobody is woken when nobody waits: that would be a system call for each access.
    waiting: usize,
}

/// Freed on drop.
pub(crate) struct Permit<'a>(&'a Permits);

impl Permits {
    pub fn new(n: usize) -> Permits {
        Permits {
            state: Mutex::new(Places {
                free: n.max(1),
                waiting: 0,
            }),
            freed: Condvar::new(),
        }
    }

    /// Waits until fewer than the bound run, at most `limit`.
    pub fn take(&self, limit: Duration) -> Option<Permit<'_>> {
        let mut places = guard(&self.state);
        if places.free == 0 {
            let end = now() + limit;
            places.waiting += 1;
            while places.free == 0 {
                let left = end.saturating_duration_since(now());
                if left.is_zero() {
                    break;
                }
                (places, _) = self
                    .freed
                    .wait_timeout(places, left)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            places.waiting -= 1;
        }
        places.free = places.free.checked_sub(1)?;
        Some(Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut places = guard(&self.0.state);
        places.free += 1;
        if places.waiting > 0 {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_come_back() {
        let permits = Permits::new(2);
        let a = permits.take(Duration::ZERO);
        let b = permits.take(Duration::ZERO);
        assert!(a.is_some() && b.is_some());
        assert!(permits.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| permits.take(Duration::from_secs(10)).is_some());
            drop(a);
            assert!(waiter.join().unwrap());
        });
    }
}
