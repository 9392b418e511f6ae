//! Access guards: reads and writes that take part in an object's locks while they are in progress.
use super::{OpenObject, Shared};
use crate::locks::{Mode, Ticket};
use crate::owner::Owner;
use penstock_host::time::now;
use penstock_rpc::Closer;
use penstock_wire::message::WireError;
use std::ops::Range;

impl OpenObject {
    /// Begins a write of `range` if it need not wait. A plain write need not if no other connection's lock covers any
    /// of it, a write under a lock if the lock is still held.
    pub(crate) fn try_begin_write(
        &self,
        owner: Owner,
        range: &Range<u64>,
        lock: Option<Ticket>,
    ) -> Result<Option<AccessGuard<'_>>, WireError> {
        let mut turn = AccessGuard::new(self, owner);
        let mut shared = self.shared();
        if let Some(ticket) = lock {
            let covers = self.begin_use(&mut shared, &mut turn, ticket, range)?;
            if covers {
                return Ok(Some(turn));
            }
        }
        turn.write = shared.locks.try_write(now(), owner, range);
        let begun = turn.write.is_some();
        // Dropping the guard takes the mutex.
        drop(shared);
        Ok(begun.then_some(turn))
    }

    /// The same, waiting for others' locks.
    pub(crate) fn begin_write(
        &self,
        owner: Owner,
        line: &Closer,
        range: &Range<u64>,
        lock: Option<Ticket>,
    ) -> Result<AccessGuard<'_>, WireError> {
        let mut turn = AccessGuard::new(self, owner);
        let deadline = now() + self.waits.write;
        let ticket = {
            let mut shared = self.shared();
            if let Some(ticket) = lock {
                self.begin_use(&mut shared, &mut turn, ticket, range)?;
            }
            let ticket = shared
                .locks
                .request(owner, range.clone(), Mode::Write, None)
                .map_err(|r| self.refusal(r))?;
            shared.locks.ready(ticket);
            shared.await_grant(ticket);
            ticket
        };
        turn.write = Some(self.wait(ticket, line, deadline, range)?);
        Ok(turn)
    }

    /// Begins a read under a lock, which is not revoked until the read has ended.
    pub(crate) fn begin_read(
        &self,
        owner: Owner,
        lock: Ticket,
    ) -> Result<AccessGuard<'_>, WireError> {
        let mut turn = AccessGuard::new(self, owner);
        self.begin_use(&mut self.shared(), &mut turn, lock, &(0..0))?;
        Ok(turn)
    }

    /// Whether the lock covers all of `range` for writing.
    fn begin_use(
        &self,
        shared: &mut Shared,
        turn: &mut AccessGuard<'_>,
        ticket: Ticket,
        range: &Range<u64>,
    ) -> Result<bool, WireError> {
        let (locked, mode) = shared
            .locks
            .begin_use(turn.owner, ticket)
            .map_err(|r| self.refusal(r))?;
        turn.used = Some(ticket);
        Ok(mode == Mode::Exclusive && locked.start <= range.start && range.end <= locked.end)
    }
}

/// A read or write in progress; it ends on drop.
pub(crate) struct AccessGuard<'a> {
    object: &'a OpenObject,
    owner: Owner,
    /// A lock that must not be revoked meanwhile.
    used: Option<Ticket>,
    /// A plain write's claim on its range.
    write: Option<Ticket>,
}

impl<'a> AccessGuard<'a> {
    fn new(object: &'a OpenObject, owner: Owner) -> AccessGuard<'a> {
        AccessGuard {
            object,
            owner,
            used: None,
            write: None,
        }
    }
}

impl Drop for AccessGuard<'_> {
    fn drop(&mut self) {
        if self.used.is_none() && self.write.is_none() {
            return;
        }
        let mut shared = self.object.shared();
        if let Some(ticket) = self.write {
            shared.locks.cancel(ticket);
        }
        if let Some(ticket) = self.used {
            // Waiters may sleep until a lease that began before this use; they check again then.
            shared.locks.end_use(now(), self.owner, ticket);
        }
        if !shared.locks.quiet() {
            shared.advance(now());
        }
    }
}
