//! A held range lock: for each server the connection that holds it, which calls under the lock use.
use crate::error::{Error, Peer};
use crate::fault::Fault;
use crate::guard::guard;
use crate::link::Link;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_wire::message::{ErrorKind, LockId, WireError};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The lock at one server.
#[derive(Debug)]
enum Part {
    /// The range does not touch this server.
    None,
    Idle(Box<Link>, LockId),
    InUse(LockId),
    Lost,
}

/// A lock as the file knows it.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub range: Range<u64>,
    path: String,
    peers: Vec<Peer>,
    parts: Vec<Mutex<Part>>,
    released: AtomicBool,
    /// One call at a time uses the lock's connections.
    busy: Mutex<()>,
}

impl HeldLock {
    /// Nothing is locked yet; `peers`: the servers of the file at `path`, in the order of its layout.
    pub fn new(range: Range<u64>, path: String, peers: Vec<Peer>) -> HeldLock {
        HeldLock {
            range,
            path,
            parts: peers.iter().map(|_| Mutex::new(Part::None)).collect(),
            peers,
            released: AtomicBool::new(false),
            busy: Mutex::new(()),
        }
    }

    /// Server `i` has granted its part.
    pub fn granted(&self, i: usize, link: Link, lock: LockId) {
        *guard(&self.parts[i]) = Part::Idle(Box::new(link), lock);
    }

    /// Whether a server has been lost, and its part of the lock with it.
    pub fn is_lost(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(*guard(part), Part::Lost))
    }

    /// From now on no connection comes back.
    pub fn released(&self) {
        self.released.store(true, SeqCst);
    }

    /// The connection and lock at server `i`, to release it there; `None` where a call still uses it or there is none.
    pub fn take_idle(&self, i: usize) -> Option<(Link, LockId)> {
        match std::mem::replace(&mut *guard(&self.parts[i]), Part::Lost) {
            Part::Idle(link, lock) => Some((*link, lock)),
            _ => None,
        }
    }

    /// For the length of one call.
    pub fn enter(&self) -> MutexGuard<'_, ()> {
        guard(&self.busy)
    }

    /// The connection and lock at server `i`; `None` if the lock does not touch it.
    pub fn take(
        &self,
        i: usize,
        operation: &'static str,
    ) -> std::result::Result<Option<(Link, LockId)>, Fault> {
        let mut part = guard(&self.parts[i]);
        match std::mem::replace(&mut *part, Part::Lost) {
            Part::Idle(link, lock) => {
                *part = Part::InUse(lock);
                Ok(Some((*link, lock)))
            }
            Part::None => {
                *part = Part::None;
                Ok(None)
            }
            Part::InUse(_) | Part::Lost => Err(Fault::Final(self.lost_error(operation, i))),
        }
    }

    /// The connection comes back in good order.
    pub fn put(&self, i: usize, link: Link) {
        let mut part = guard(&self.parts[i]);
        if let Part::InUse(lock) = *part
            && !self.released.load(SeqCst)
        {
            *part = Part::Idle(Box::new(link), lock);
        }
    }

    /// The connection is gone, and with it the lock at that server.
    pub fn lost(&self, i: usize) {
        *guard(&self.parts[i]) = Part::Lost;
    }

    pub fn lost_error(&self, operation: &'static str, i: usize) -> Error {
        Error::Refused {
            peer: self.peers[i].clone(),
            operation,
            source: WireError {
                kind: ErrorKind::LockLost,
                message: format!(
                    "the lock on bytes {}..{} of {} was lost with the connection; \
                     others may have changed them since: lock and read again",
                    self.range.start, self.range.end, self.path
                ),
            },
        }
    }
}
