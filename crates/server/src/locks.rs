//! Range locks of one object.
//!
//! *Problem*: a data-sieving client reads a whole extent, changes some bytes and writes all of it back; concurrent
//! writes to the extent would be lost. MPI atomic mode requires whole accesses to be serialised. And a holder may die
//! or stall. *Idea*: one queue per object in order of arrival. A request is granted when it conflicts neither with a
//! holder nor with an earlier request in the queue. So no request starves, and requests for other ranges never wait. A
//! plain write takes part while it accesses the store. Writes are compatible with each other and conflict with locks.
//! So a plain write waits for the holder, and a lock for plain writes in progress. *Lease*: a lock that has been unused
//! for a while is revoked, but only when another request waits for it, and only between uses. Its holder learns of it
//! at its next use ([`Refusal::Lost`]), before a byte is written. *Strangers*: no user can make another wait longer
//! than [`LockLimits::strangers`]. Two rules ensure that. Against a request of another user a shared lock, which takes
//! no right to write, lasts only that long from its grant. A request that is not ready, because its requester waits for
//! something else first, does not delay other users' requests. *Shares*: a user has a share of the requests that may
//! wait for one object. The same holds for all locks of a server and the requests for them (docs/decisions/0028). Plain
//! writes are not charged: a connection has one at a time. *Source*: the contract "Visibility" of docs/ARCHITECTURE.md.
//!
//! A plain state machine: requests and times go in, grants come out of [`RangeLocks::advance`]. The requester waits
//! outside.
use crate::owner::Owner;
use penstock_rpc::share::{Charge, is_fair};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A request in the queue, and later its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub u64);

/// The purpose of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One plain write, while it touches the store.
    Write,
    /// A lock that excludes writers.
    Shared,
    /// A lock that excludes all other requests.
    Exclusive,
}

impl Mode {
    fn compatible(self, other: Mode) -> bool {
        self == other && self != Mode::Exclusive
    }
}

/// Why a request or a use is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many requests wait already.
    Full,
    /// Too many of them are this user's.
    Crowd(u32),
    /// This connection holds too many locks on this object.
    TooMany,
    /// This connection itself holds a conflicting lock: it would wait for itself.
    Own,
    /// No such lock: never granted, released, or revoked because its lease expired.
    Lost,
}

/// Bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockLimits {
    /// An unused lock is kept at least this long.
    pub lease: Duration,
    /// How long an unused shared lock can delay another user.
    pub strangers: Duration,
    /// Most requests waiting for one object.
    pub waiters: usize,
    /// Most locks of one connection on one object, which bounds the search of every access.
    pub per_owner: usize,
}

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    owner: Owner,
    range: Range<u64>,
    mode: Mode,
    /// Released with the lock, or with the request for it.
    _charge: Option<Charge>,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        if !overlap || self.mode.compatible(other.mode) {
            return false;
        }
        // A holder's own plain writes are what its lock is for.
        let own_write = self.mode == Mode::Write || other.mode == Mode::Write;
        !(self.owner == other.owner && own_write)
    }
}

#[derive(Debug)]
struct GrantedLock {
    entry: Entry,
    /// Uses in progress; a lock in use is not revoked.
    uses: u32,
    granted: Instant,
    /// When its last use ended.
    used: Instant,
}

#[derive(Debug)]
struct Waiting {
    entry: Entry,
    /// Whether shortcuts have been revoked, or need not be.
    ready: bool,
}

/// The range locks of one object.
#[derive(Debug)]
pub(crate) struct RangeLocks {
    limits: LockLimits,
    next: u64,
    held: Vec<GrantedLock>,
    queue: VecDeque<Waiting>,
}

impl RangeLocks {
    pub(crate) fn new(limits: LockLimits) -> RangeLocks {
        RangeLocks {
            limits,
            next: 1,
            held: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    fn entry(&mut self, owner: Owner, range: Range<u64>, mode: Mode) -> Entry {
        let ticket = Ticket(self.next);
        self.next += 1;
        Entry {
            ticket,
            owner,
            range,
            mode,
            _charge: None,
        }
    }

    /// A plain write that may start at once, or `None`: then call [`RangeLocks::request`].
    pub(crate) fn try_write(
        &mut self,
        now: Instant,
        owner: Owner,
        range: &Range<u64>,
    ) -> Option<Ticket> {
        let entry = self.entry(owner, range.clone(), Mode::Write);
        let blocked = self.held.iter().any(|h| h.entry.conflicts(&entry));
        // Requests in the queue wait for the holder anyway: its writes go first, or both would wait.
        let waits = || self.queue.iter().any(|w| w.keeps_back(&entry));
        if blocked || (waits() && !self.covered(owner, range)) {
            return None;
        }
        let ticket = entry.ticket;
        self.hold(now, entry);
        Some(ticket)
    }

    /// The owner holds an exclusive lock on all of `range`.
    fn covered(&self, owner: Owner, range: &Range<u64>) -> bool {
        self.held.iter().any(|h| {
            h.entry.owner == owner
                && h.entry.mode == Mode::Exclusive
                && h.entry.range.start <= range.start
                && range.end <= h.entry.range.end
        })
    }

    /// Queues a request. It is not granted before [`RangeLocks::ready`].
    pub(crate) fn request(
        &mut self,
        owner: Owner,
        range: Range<u64>,
        mode: Mode,
        charge: Option<Charge>,
    ) -> Result<Ticket, Refusal> {
        let Some(free) = self.limits.waiters.checked_sub(self.queue.len() + 1) else {
            return Err(Refusal::Full);
        };
        if let Some(uid) = owner.payer {
            let of_user = |w: &&Waiting| w.entry.owner.payer == Some(uid);
            if !is_fair(self.queue.iter().filter(of_user).count() + 1, free) {
                return Err(Refusal::Crowd(uid));
            }
        }
        let locks = |h: &&GrantedLock| h.entry.owner == owner && h.entry.mode != Mode::Write;
        if mode != Mode::Write && self.held.iter().filter(locks).count() >= self.limits.per_owner {
            return Err(Refusal::TooMany);
        }
        let entry = Entry {
            _charge: charge,
            ..self.entry(owner, range, mode)
        };
        let own = |h: &GrantedLock| h.entry.owner == owner && h.entry.conflicts(&entry);
        if self.held.iter().any(own) {
            return Err(Refusal::Own);
        }
        let ticket = entry.ticket;
        self.queue.push_back(Waiting {
            entry,
            ready: false,
        });
        Ok(ticket)
    }

    /// The request may be granted from now on.
    pub(crate) fn ready(&mut self, ticket: Ticket) {
        if let Some(w) = self.queue.iter_mut().find(|w| w.entry.ticket == ticket) {
            w.ready = true;
        }
    }

    /// Grants what can be granted, and revokes expired locks that conflict. Call after every change and at
    /// [`RangeLocks::next_expiry`].
    pub(crate) fn advance(&mut self, now: Instant, mut granted: impl FnMut(Ticket)) {
        let mut at = 0;
        while at < self.queue.len() {
            let waiting = &self.queue[at];
            let behind = self
                .queue
                .iter()
                .take(at)
                .any(|before| before.keeps_back(&waiting.entry));
            if behind || !waiting.ready {
                at += 1;
                continue;
            }
            let limits = self.limits;
            self.held.retain(|h| {
                let ends = h.ends_for(&waiting.entry, limits);
                !(h.entry.conflicts(&waiting.entry) && ends.is_some_and(|at| at <= now))
            });
            if self.held.iter().any(|h| h.entry.conflicts(&waiting.entry)) {
                at += 1;
                continue;
            }
            // Later requests were blocked by this one and still are: continue from here.
            if let Some(waiting) = self.queue.remove(at) {
                granted(waiting.entry.ticket);
                self.hold(now, waiting.entry);
            }
        }
    }

    fn hold(&mut self, now: Instant, entry: Entry) {
        self.held.push(GrantedLock {
            // A plain write ends when its system call ends; nobody takes it away.
            uses: u32::from(entry.mode == Mode::Write),
            entry,
            granted: now,
            used: now,
        });
    }

    /// When [`RangeLocks::advance`] can next grant something by time alone.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let ends = |h: &GrantedLock| {
            let conflicting = self.queue.iter().filter(|w| w.entry.conflicts(&h.entry));
            conflicting
                .filter_map(|w| h.ends_for(&w.entry, self.limits))
                .min()
        };
        self.held.iter().filter_map(ends).min()
    }

    /// The holder of, or an earlier request for, the range of a waiting request.
    pub(crate) fn in_the_way(&self, ticket: Ticket) -> Option<Owner> {
        let at = self.queue.iter().position(|w| w.entry.ticket == ticket)?;
        let wanted = &self.queue[at].entry;
        let holder = self.held.iter().find(|h| h.entry.conflicts(wanted));
        let before = || self.queue.iter().take(at).find(|w| w.keeps_back(wanted));
        holder
            .map(|h| h.entry.owner)
            .or_else(|| before().map(|w| w.entry.owner))
    }

    /// The requester stops waiting. True if it was still in the queue.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let before = self.queue.len();
        self.queue.retain(|w| w.entry.ticket != ticket);
        self.queue.len() < before
    }

    /// Whether a range held by `owner` under `ticket` still is.
    fn find(&mut self, owner: Owner, ticket: Ticket) -> Option<usize> {
        self.held
            .iter()
            .position(|h| h.entry.ticket == ticket && h.entry.owner == owner)
    }

    /// Begins a use of a lock, which is not revoked until [`RangeLocks::end_use`]. Returns its range and mode.
    pub(crate) fn begin_use(
        &mut self,
        owner: Owner,
        ticket: Ticket,
    ) -> Result<(Range<u64>, Mode), Refusal> {
        let at = self.find(owner, ticket).ok_or(Refusal::Lost)?;
        let held = &mut self.held[at];
        held.uses += 1;
        Ok((held.entry.range.clone(), held.entry.mode))
    }

    /// Ends a use; the lease begins again.
    pub(crate) fn end_use(&mut self, now: Instant, owner: Owner, ticket: Ticket) {
        if let Some(at) = self.find(owner, ticket) {
            let held = &mut self.held[at];
            held.uses -= 1;
            held.used = now;
        }
    }

    /// Ends a lock or a plain write.
    pub(crate) fn release(&mut self, owner: Owner, ticket: Ticket) -> Result<(), Refusal> {
        let at = self.find(owner, ticket).ok_or(Refusal::Lost)?;
        self.held.swap_remove(at);
        Ok(())
    }

    /// Ends a lock of any owner: its requester gave up at the moment of the grant.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.held.retain(|h| h.entry.ticket != ticket);
    }

    /// The connection has ended: removes everything of it.
    pub(crate) fn disconnect(&mut self, owner: Owner) {
        self.held.retain(|h| h.entry.owner != owner);
        self.queue.retain(|w| w.entry.owner != owner);
    }

    /// A lock is held or wanted: shortcuts must not be granted. Plain writes do not count.
    pub(crate) fn locked(&self) -> bool {
        let lock = |e: &Entry| e.mode != Mode::Write;
        self.held.iter().any(|h| lock(&h.entry)) || self.queue.iter().any(|w| lock(&w.entry))
    }

    /// Whether no request waits.
    pub(crate) fn quiet(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Waiting {
    /// Whether `later` must wait for it.
    fn keeps_back(&self, later: &Entry) -> bool {
        self.entry.conflicts(later) && (self.ready || !self.entry.owner.is_stranger_to(later.owner))
    }
}

impl GrantedLock {
    /// When it may be revoked for this request; not while it is in use, and a plain write never.
    fn ends_for(&self, request: &Entry, limits: LockLimits) -> Option<Instant> {
        if self.uses > 0 {
            return None;
        }
        let lease = self.used + limits.lease;
        // An exclusive lock, which needs the right to write, is kept for a full lease. An access of several servers may
        // wait at one for another.
        if self.entry.mode != Mode::Shared || !self.entry.owner.is_stranger_to(request.owner) {
            return Some(lease);
        }
        Some(lease.min(self.granted + limits.strangers))
    }
}

#[cfg(test)]
mod tests;
