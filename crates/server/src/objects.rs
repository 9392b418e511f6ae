//! The objects that connections have open, with their range locks and shortcuts; threads wait here.
//!
//! The lock rules are in [`crate::locks`]; here threads sleep until their requests are granted.
mod access_guard;

use crate::error::{refuse, store_error};
use crate::fetches::Fetches;
use crate::locks::{LockLimits, Mode, RangeLocks, Refusal, Ticket};
use crate::owner::Owner;
use crate::passthrough::{self, Lent};
use crate::shortcut::Grants;
use crate::sync::GroupSync;
use crate::usage::UserBytes;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::thread::{self, Thread};
use penstock_host::time::now;
use penstock_layout::FileId;
use penstock_rpc::Closer;
use penstock_rpc::grant::GrantPage;
use penstock_rpc::share::{Charge, Pool, Share, TIMES};
use penstock_store::{Object, Store, StoreError, descriptors};
use penstock_wire::message::{ErrorKind, WireError};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Time limits of waits for locks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// See [`LockLimits`].
    pub locks: LockLimits,
    /// A plain write waits at most this long for a lock's holder.
    pub write: Duration,
    /// A client with a shortcut ends its operation within this time, or the lock is refused.
    pub revoke: Duration,
}

/// A request for a range lock.
pub(crate) struct Want {
    pub range: Range<u64>,
    pub mode: Mode,
    /// Whether it waits for objects lent to the kernels of mounts.
    pub lent: Lent,
    /// The user who may have descriptors of the object, if it is only one.
    pub lend_to: Option<u32>,
}

/// All open objects of a server.
pub(crate) struct Objects {
    store: Box<dyn Store>,
    /// Of users with limits on bytes.
    usage: Arc<UserBytes>,
    waits: Waits,
    stopping: Arc<AtomicBool>,
    open: Mutex<Table>,
    shares: Shares,
}

/// Resources of a server of which a user has a share.
#[derive(Clone)]
struct Shares {
    /// Objects that stay open although nobody uses them.
    pins: Pool,
    /// Range locks and requests for them.
    locks: Pool,
}

#[derive(Default)]
struct Table {
    objects: HashMap<FileId, Weak<OpenObject>>,
    /// The size at which entries of objects that are no longer open are dropped.
    purge_at: usize,
}

/// One object that at least one connection has open. It may not exist in the store yet.
pub(crate) struct OpenObject {
    id: FileId,
    waits: Waits,
    stopping: Arc<AtomicBool>,
    object: Mutex<ObjectUse>,
    shares: Shares,
    removed: AtomicBool,
    /// Whether the object may be lent for writing, by this server or an earlier one.
    lent: AtomicBool,
    shared: Mutex<Shared>,
    pub(crate) syncs: GroupSync,
    pub(crate) fetches: Fetches,
    usage: Arc<UserBytes>,
}

impl OpenObject {
    /// Whether it has lost its name.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }
}

impl Drop for OpenObject {
    /// An open-unlinked object counts as long as it is open.
    fn drop(&mut self) {
        if self.is_removed() {
            self.usage.forget(self.id);
        }
    }
}

/// References to the object between requests.
#[derive(Default)]
struct ObjectUse {
    /// The store may close it when nobody uses it, and then opens it again.
    known: Option<Weak<dyn Object>>,
    /// The store must not close this.
    pin: Option<Pin>,
}

/// A reference that keeps an object open as long as its file is. The object has lost its name, or a client has its
/// descriptor and may write by it.
struct Pin {
    object: Arc<dyn Object>,
    _charge: Charge,
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(file) = self.object.mappable() {
            file.note_changes();
        }
    }
}

struct Shared {
    locks: RangeLocks,
    grants: Grants,
    waiting: HashMap<Ticket, Waiter>,
}

struct Waiter {
    thread: Thread,
    granted: bool,
}

impl Shared {
    /// The calling thread is about to wait for this request.
    fn await_grant(&mut self, ticket: Ticket) {
        let waiter = Waiter {
            thread: thread::current(),
            granted: false,
        };
        self.waiting.insert(ticket, waiter);
    }

    fn advance(&mut self, now: Instant) {
        let waiting = &mut self.waiting;
        self.locks.advance(now, |ticket| {
            if let Some(waiter) = waiting.get_mut(&ticket) {
                waiter.granted = true;
                waiter.thread.unpark();
            }
        });
    }
}

impl Objects {
    /// With so many range locks, and requests for them.
    pub(crate) fn new(store: Box<dyn Store>, waits: Waits, locks: usize) -> Objects {
        let pins = Share::elastic(
            descriptors::quarter(),
            "objects that this server cannot close",
            "close files, or raise its limit of open files (ulimit -n), of which these are a quarter",
        );
        let locks = Share::elastic(
            locks,
            "range locks of this server or requests for them",
            "unlock some",
        );
        Objects {
            shares: Shares {
                pins: Pool::new(pins),
                locks: Pool::new(locks),
            },
            usage: Arc::default(),
            store,
            waits,
            stopping: Arc::new(AtomicBool::new(false)),
            open: Mutex::new(Table::default()),
        }
    }

    pub(crate) fn usage(&self) -> &Arc<UserBytes> {
        &self.usage
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No update of the table can panic half-way.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared state of a file's object; creates nothing in the store.
    pub(crate) fn open(&self, id: FileId) -> Arc<OpenObject> {
        let mut table = self.table();
        if let Some(open) = table.objects.get(&id).and_then(Weak::upgrade) {
            return open;
        }
        if table.objects.len() >= table.purge_at {
            table.objects.retain(|_, open| open.strong_count() > 0);
            table.purge_at = (2 * table.objects.len()).max(1024);
        }
        let open = Arc::new(OpenObject {
            id,
            waits: self.waits,
            stopping: self.stopping.clone(),
            object: Mutex::new(ObjectUse::default()),
            shares: self.shares.clone(),
            removed: AtomicBool::new(false),
            lent: AtomicBool::new(true),
            shared: Mutex::new(Shared {
                locks: RangeLocks::new(self.waits.locks),
                grants: Grants::default(),
                waiting: HashMap::new(),
            }),
            syncs: GroupSync::default(),
            fetches: Fetches::default(),
            usage: self.usage.clone(),
        });
        table.objects.insert(id, Arc::downgrade(&open));
        open
    }

    /// The object if it exists.
    pub(crate) fn existing(&self, open: &OpenObject) -> Result<Option<Arc<dyn Object>>, WireError> {
        if let Some(object) = open.held() {
            return Ok(Some(object));
        }
        match self.store.open(open.id, false) {
            Ok(object) => Ok(Some(open.hold(object))),
            Err(StoreError::NotFound(..)) => Ok(None),
            Err(e) => Err(store_error(e)),
        }
    }

    /// A file's object if it exists, whether or not anybody has it open.
    pub(crate) fn look(&self, id: FileId) -> Result<Option<Arc<dyn Object>>, WireError> {
        let open = self.table().objects.get(&id).and_then(Weak::upgrade);
        if let Some(open) = open {
            return self.existing(&open);
        }
        match self.store.open(id, false) {
            Ok(object) => Ok(Some(object)),
            Err(StoreError::NotFound(..)) => Ok(None),
            Err(e) => Err(store_error(e)),
        }
    }

    /// The object, created if needed. After a removal, clients that have the file open continue with an object without
    /// a name, which is charged to `owner`.
    pub(crate) fn created(
        &self,
        open: &OpenObject,
        owner: Owner,
    ) -> Result<Arc<dyn Object>, WireError> {
        self.made(open, owner, || self.store.open(open.id, true))
    }

    /// The same, also if the store has lost it: its file is truncated to nothing.
    pub(crate) fn renewed(
        &self,
        open: &OpenObject,
        owner: Owner,
    ) -> Result<Arc<dyn Object>, WireError> {
        self.made(open, owner, || self.store.renew(open.id))
    }

    fn made(
        &self,
        open: &OpenObject,
        owner: Owner,
        make: impl FnOnce() -> Result<Arc<dyn Object>, StoreError>,
    ) -> Result<Arc<dyn Object>, WireError> {
        if let Some(object) = open.held() {
            return Ok(object);
        }
        let object = open.hold(make().map_err(store_error)?);
        // A removal before this check finds no object; a later one finds this one.
        if open.is_removed() {
            open.pin(&object, owner)?;
            self.remove_if_there(open.id)?;
        }
        Ok(object)
    }

    /// Makes an object durable. Idle ones are closed if there are no descriptors.
    pub(crate) fn sync(&self, object: &dyn Object) -> Result<(), WireError> {
        let mut done = object.sync();
        if matches!(done, Err(StoreError::Descriptors(_))) && self.store.relieve() {
            done = object.sync();
        }
        done.map_err(store_error)
    }

    /// Removes a file's object; a missing one is no error (no byte of the file may have reached this server). If others
    /// have it open, what stays is charged to `owner`.
    pub(crate) fn remove(&self, id: FileId, owner: Owner) -> Result<(), WireError> {
        let open = self.table().objects.get(&id).and_then(Weak::upgrade);
        if let Some(open) = &open {
            open.removed.store(true, Ordering::SeqCst);
            // Clients that have it open continue to use it. One that cannot be opened may be removed too.
            if let Ok(Some(object)) = self.existing(open)
                && let Err(e) = open.pin(&object, owner)
            {
                open.removed.store(false, Ordering::SeqCst);
                return Err(e);
            }
        }
        if let Err(e) = self.remove_if_there(id) {
            // It stays, and counts until the last one closes it.
            if let Some(open) = &open {
                open.removed.store(false, Ordering::SeqCst);
            }
            return Err(e);
        }
        match open {
            Some(_) => self.usage.removed(id),
            None => self.usage.forget(id),
        }
        Ok(())
    }

    /// Revokes all shortcuts: from now on each request goes through the server. Operations in progress may still end.
    pub(crate) fn revoke_shortcuts(&self) {
        let open: Vec<_> = {
            let table = self.table();
            table.objects.values().filter_map(Weak::upgrade).collect()
        };
        for open in open {
            open.shared().grants.revoke_all();
        }
    }

    /// Revokes all shortcuts and waits for the operations in progress; false if one does not end. None is granted after
    /// [`Objects::stop`].
    pub(crate) fn end_shortcuts(&self, until: Instant) -> bool {
        let open: Vec<_> = {
            let table = self.table();
            table.objects.values().filter_map(Weak::upgrade).collect()
        };
        let pages: Vec<_> = open
            .iter()
            .flat_map(|open| open.shared().grants.revoke_all())
            .collect();
        pages.iter().all(|(_, page)| page.wait_inactive(until))
    }

    fn remove_if_there(&self, id: FileId) -> Result<(), WireError> {
        match self.store.remove(id) {
            Ok(()) | Err(StoreError::NotFound(..)) => Ok(()),
            Err(e) => Err(store_error(e)),
        }
    }

    /// The server stops: waits for locks are aborted.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let open: Vec<_> = self
            .table()
            .objects
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for open in open {
            for waiter in open.shared().waiting.values() {
                waiter.thread.unpark();
            }
        }
    }
}

impl OpenObject {
    fn object(&self) -> MutexGuard<'_, ObjectUse> {
        // Each change is one assignment.
        self.object.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, if it is open.
    fn held(&self) -> Option<Arc<dyn Object>> {
        let held = self.object();
        match &held.pin {
            Some(pin) => Some(pin.object.clone()),
            None => held.known.as_ref().and_then(Weak::upgrade),
        }
    }

    /// Records an object that the store has opened. Returns the one that all use from now on.
    fn hold(&self, object: Arc<dyn Object>) -> Arc<dyn Object> {
        let mut held = self.object();
        if let Some(pin) = &held.pin {
            return pin.object.clone();
        }
        held.known = Some(Arc::downgrade(&object));
        object
    }

    /// Keeps the object open for as long as the file is. The first requester is charged.
    pub(crate) fn pin(&self, object: &Arc<dyn Object>, owner: Owner) -> Result<(), WireError> {
        let mut held = self.object();
        if held.pin.is_none() {
            held.pin = Some(Pin {
                _charge: self.shares.pins.take(owner.payer)?,
                object: object.clone(),
            });
        }
        Ok(())
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A panic in a lock decision is a bug; the state it leaves is still consistent enough to release locks.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a range, waiting in order of arrival until `deadline`, or until the connection is closed. Shortcuts are
    /// revoked first, and lent objects are waited for; those of other users only for [`LockLimits::strangers`]. A
    /// truncation then proceeds: it can only harm the holder of the descriptor.
    pub(crate) fn lock(
        &self,
        owner: Owner,
        line: &Closer,
        want: Want,
        deadline: Instant,
    ) -> Result<Ticket, WireError> {
        let Want {
            range,
            mode,
            lent,
            lend_to,
        } = want;
        let charge = self.shares.locks.take(owner.payer)?;
        let (ticket, pages) = {
            let mut shared = self.shared();
            let ticket = shared
                .locks
                .request(owner, range.clone(), mode, Some(charge))
                .map_err(|r| self.refusal(r))?;
            // From here on no shortcut is granted: the object counts as locked.
            shared.await_grant(ticket);
            (ticket, shared.grants.revoke_all())
        };
        let patience = now() + self.waits.locks.strangers;
        if let Err(e) = self.await_shortcuts(&pages, owner, lent, (patience, deadline)) {
            self.give_up(ticket);
            return Err(e);
        }
        if lent == Lent::Awaited && range.start < passthrough::SIGNS {
            let deadline = if lend_to == Some(owner.user) {
                deadline
            } else {
                deadline.min(patience)
            };
            if let Err(e) = self.await_return(line, lend_to, deadline) {
                self.give_up(ticket);
                return Err(e);
            }
        }
        {
            let mut shared = self.shared();
            shared.grants.forget_inactive();
            shared.locks.ready(ticket);
        }
        self.wait(ticket, line, deadline, &range)
    }

    /// Waits until no operation is in progress under revoked shortcuts.
    fn await_shortcuts(
        &self,
        shortcuts: &[(Owner, Arc<GrantPage>)],
        owner: Owner,
        lent: Lent,
        (patience, deadline): (Instant, Instant),
    ) -> Result<(), WireError> {
        let deadline = deadline.min(now() + self.waits.revoke);
        for (holder, page) in shortcuts {
            let stranger = holder.is_stranger_to(owner);
            let until = if stranger {
                deadline.min(patience)
            } else {
                deadline
            };
            if page.wait_inactive(until) {
                continue;
            }
            if stranger && lent == Lent::Ignored {
                log::warn!(
                    "file {} is cut although {holder} does not end its operation on it",
                    self.id.0
                );
                continue;
            }
            return Err(refuse(
                ErrorKind::LockTimeout,
                format!(
                    "{holder} has a shortcut to file {} and did not end its operation in time; is it stopped?",
                    self.id.0
                ),
            ));
        }
        Ok(())
    }

    /// Ends a lock.
    pub(crate) fn unlock(&self, owner: Owner, ticket: Ticket) -> Result<(), WireError> {
        let mut shared = self.shared();
        shared
            .locks
            .release(owner, ticket)
            .map_err(|r| self.refusal(r))?;
        if !shared.locks.quiet() {
            shared.advance(now());
        }
        Ok(())
    }

    /// The connection has ended, or has let go of the file.
    pub(crate) fn disconnect(&self, owner: Owner) {
        if let Some(file) = self.held().as_ref().and_then(|o| o.mappable()) {
            file.observe();
        }
        let mut shared = self.shared();
        shared.grants.retire(owner);
        shared.locks.disconnect(owner);
        shared.advance(now());
    }

    /// Adds a shortcut unless the object is locked.
    pub(crate) fn grant<T>(&self, add: impl FnOnce(&mut Grants) -> T) -> Option<T> {
        let mut shared = self.shared();
        if shared.locks.locked() || self.stopping.load(Ordering::SeqCst) {
            return None;
        }
        Some(add(&mut shared.grants))
    }

    /// Lends the object by this descriptor for writing, unless it is locked or `may` refuses.
    pub(crate) fn lend(
        &self,
        descriptor: &OwnedFd,
        may: impl FnOnce() -> bool,
    ) -> std::io::Result<bool> {
        let shared = self.shared();
        if shared.locks.locked() || !may() {
            return Ok(false);
        }
        passthrough::mark(descriptor)?;
        self.lent.store(true, Ordering::SeqCst);
        Ok(true)
    }

    /// Whether the object is lent for writing. With the mutex held, so that it is not lent meanwhile.
    fn is_lent(&self, _: &Shared) -> bool {
        if !self.lent.load(Ordering::SeqCst) {
            return false;
        }
        let object = self.held();
        let out = object
            .as_ref()
            .and_then(|o| o.mappable())
            .is_some_and(|file| passthrough::is_out(file.fd()));
        self.lent.store(out, Ordering::SeqCst);
        out
    }

    /// Waits until the object is no longer lent for writing. A lock is already requested, so it is not lent again.
    fn await_return(
        &self,
        line: &Closer,
        lend_to: Option<u32>,
        deadline: Instant,
    ) -> Result<(), WireError> {
        loop {
            if !self.is_lent(&self.shared()) {
                return Ok(());
            }
            if line.is_closed() {
                return Err(refuse(ErrorKind::Io, "the connection has been closed"));
            }
            if self.stopping.load(Ordering::SeqCst) {
                return Err(refuse(
                    ErrorKind::ShuttingDown,
                    "the server is shutting down",
                ));
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(refuse(
                    ErrorKind::LockTimeout,
                    format!(
                        "a program{} has file {} open for writing through a mount, with passthrough; close it there, or mount with --no-passthrough",
                        lend_to
                            .map(|uid| format!(" of user {uid}"))
                            .unwrap_or_default(),
                        self.id.0
                    ),
                ));
            }
            thread::park_timeout(left.min(passthrough::LOOK));
        }
    }

    fn wait(
        &self,
        ticket: Ticket,
        line: &Closer,
        deadline: Instant,
        range: &Range<u64>,
    ) -> Result<Ticket, WireError> {
        loop {
            if line.is_closed() {
                self.give_up(ticket);
                return Err(refuse(ErrorKind::Io, "the connection has been closed"));
            }
            // Checked first: the holders' connections are closing, and what they release is for nobody.
            if self.stopping.load(Ordering::SeqCst) {
                self.give_up(ticket);
                return Err(refuse(
                    ErrorKind::ShuttingDown,
                    "the server is shutting down",
                ));
            }
            let time = now();
            let wake = {
                let mut shared = self.shared();
                shared.advance(time);
                if shared.waiting.get(&ticket).is_none_or(|w| w.granted) {
                    shared.waiting.remove(&ticket);
                    return Ok(ticket);
                }
                shared
                    .locks
                    .next_expiry()
                    .map_or(deadline, |e| e.min(deadline))
            };
            if time >= deadline {
                let holder = self.shared().locks.in_the_way(ticket);
                self.give_up(ticket);
                return Err(refuse(
                    ErrorKind::LockTimeout,
                    format!(
                        "bytes {}..{} of this server's object of file {} stayed locked by {}; try again",
                        range.start,
                        range.end,
                        self.id.0,
                        holder.map_or("another client".to_owned(), |h| h.to_string())
                    ),
                ));
            }
            // A spurious wake-up only repeats the loop.
            thread::park_timeout(wake.saturating_duration_since(time));
        }
    }

    /// Withdraws a request, even if it was just granted.
    fn give_up(&self, ticket: Ticket) {
        let mut shared = self.shared();
        shared.waiting.remove(&ticket);
        if !shared.locks.withdraw(ticket) {
            shared.locks.cancel(ticket);
        }
        shared.advance(now());
    }

    fn refusal(&self, refusal: Refusal) -> WireError {
        let file = self.id.0;
        match refusal {
            Refusal::Full => refuse(
                ErrorKind::Busy,
                format!("too many clients wait for locks on file {file}; try again later"),
            ),
            Refusal::Crowd(uid) => refuse(
                ErrorKind::Busy,
                format!(
                    "user {uid} has too many requests that wait for locks on file {file}: one may have {TIMES} times as many as there is room for after them; try again later"
                ),
            ),
            Refusal::TooMany => refuse(
                ErrorKind::Busy,
                format!(
                    "this connection holds {} locks on file {file}, the most that one may; unlock some first",
                    self.waits.locks.per_owner
                ),
            ),
            Refusal::Own => refuse(
                ErrorKind::InvalidArgument,
                format!(
                    "this connection holds a lock on that range of file {file} and would wait for itself"
                ),
            ),
            Refusal::Lost => refuse(
                ErrorKind::LockLost,
                format!(
                    "the lock on file {file} is gone: it was not used for {:?} (a shared one {:?}, if another user waited) while others waited; lock again and redo the access",
                    self.waits.locks.lease, self.waits.locks.strangers
                ),
            ),
        }
    }
}
