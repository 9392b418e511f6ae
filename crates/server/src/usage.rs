//! Leases on the bytes of users: the thread that requests them from the metadata server, and the waits of writers.
//!
//! The counts are in [`crate::bytes`]. A thread reports them to the metadata server about once a second, and at once
//! when a write waits for a lease. While no client is connected and no user has a limit, it reports every five seconds.
//! It also counts the objects of users with new limits, and all objects after a start, a page at a time. While the
//! metadata server is away, objects grow within their leases; writes beyond them wait [`WAIT`] and are refused.
use crate::bytes::{Bytes, Growth, Verdict};
use crate::channel::{Channel, Need, unexpected};
use crate::error::{Error, refuse, store_error};
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::{now, since};
use penstock_layout::FileId;
use penstock_rpc::Background;
use penstock_store::{Note, Object, Store};
use penstock_wire::message::{
    CountedBytes, ErrorKind, Leases, MAX_OWNERS, MetaReply, MetaRequest, UsageReport, WireError,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Time between reports.
const ASK: Duration = Duration::from_secs(1);
/// The same while no client is connected and no limit is known. Below [`WAIT`]: others may wait for its counts.
const IDLE: Duration = Duration::from_secs(5);
/// Least time between reports; while writes wait for long, it is doubled each time.
const PAUSE: Duration = Duration::from_millis(10);
/// How often it is doubled.
const DOUBLED: u32 = 4;
/// What the store records while some user has a limit, and while none has.
const SOME: &str = "some\n";
const NONE: &str = "none\n";
/// Longest wait of a write for a lease.
const WAIT: Duration = Duration::from_secs(10);

/// The data server whose objects count.
pub(crate) trait Counted: Send + Sync {
    /// It is known by.
    fn number(&self) -> u32;
    /// Where its objects are.
    fn store(&self) -> &dyn Store;
    /// An object, if it is there.
    fn look(&self, file: FileId) -> Result<Option<Arc<dyn Object>>, WireError>;
    /// From now on all writes are requests: shortcuts must be requested again.
    fn revoke_shortcuts(&self);
    /// The metadata server's time in milliseconds.
    fn now_ms(&self) -> u64;
    /// Some client is connected.
    fn is_connected(&self) -> bool;
}

/// Counts, leases, and the thread that keeps them.
#[derive(Default)]
pub(crate) struct UserBytes {
    /// Whether some user has a limit: the only cost if none has.
    any: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    channel: OnceLock<Arc<Channel>>,
    thread: Background,
}

#[derive(Default)]
struct State {
    bytes: Bytes,
    stop: bool,
    /// Somebody waits for an answer.
    asked: bool,
    /// All objects are to be counted anew.
    anew: bool,
    /// Whether it is still unknown who has a limit: nothing grows.
    unknown: bool,
    /// Capabilities issued before this, by the metadata server's time in milliseconds, may name a former owner.
    doubt_ms: u64,
    /// No client is connected and no limit is known: the thread rests for longer.
    quiet: bool,
    /// Reports sent, and the newest that was answered.
    sent: u64,
    answered: u64,
    /// Why the last one was not answered.
    away: Option<String>,
}

impl State {
    /// Resets the counts.
    fn count_anew(&mut self) {
        self.bytes.begin_again();
        self.anew = true;
    }

    /// Files may have other owners than in capabilities issued before now.
    fn doubt(&mut self, now_ms: u64) {
        self.doubt_ms = self.doubt_ms.max(now_ms + 1);
        self.bytes.doubt();
    }

    /// The metadata server has told the owner of a file whose object does not count.
    fn owned(&mut self, file: FileId, uid: u32, now_ms: u64) {
        if !self.bytes.owned(file, uid) {
            self.doubt(now_ms);
            self.bytes.owned(file, uid);
        }
    }

    /// The same, as an answer to a question that was asked at this doubt. Owners reported meanwhile are newer.
    fn answered_of(&mut self, file: FileId, uid: u32, doubt_ms: u64) {
        if doubt_ms == self.doubt_ms && self.bytes.owner(file).is_none() {
            // Asked again if there are too many.
            self.bytes.owned(file, uid);
        }
    }
}

/// A count of all objects.
struct Count {
    after: Option<FileId>,
    users: Vec<u32>,
}

/// How an object to be counted was found.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// In a listing, with this length.
    Listed(u64),
    /// By a report of its new owner.
    Given,
}

/// An object counts with its new length until this is dropped.
pub(crate) struct Growing<'a> {
    usage: &'a UserBytes,
    file: FileId,
    object: Arc<dyn Object>,
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        let mut state = self.usage.state();
        match self.object.stored_len() {
            Ok(len) => state.bytes.settle(self.file, len),
            Err(e) => {
                log::warn!("file {}: {e}; all bytes are counted anew", self.file.0);
                state.bytes.ended(self.file);
                state.count_anew();
            }
        }
    }
}

/// Who extends an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grower {
    pub(crate) file: FileId,
    /// The file's owner, as far as the capability says so.
    pub(crate) owner: Option<u32>,
    /// When the capability was issued, by the metadata server's time in milliseconds.
    pub(crate) issued_ms: u64,
    /// Root has no quota.
    pub(crate) root: bool,
    /// The object has lost its name.
    pub(crate) removed: bool,
}

impl UserBytes {
    fn state(&self) -> MutexGuard<'_, State> {
        // No update of the counts can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks from now on.
    pub(crate) fn follow(
        self: &Arc<UserBytes>,
        server: &Arc<impl Counted + 'static>,
        channel: Arc<Channel>,
        incarnation: u64,
    ) -> Result<(), Error> {
        // Set once: a server is started once.
        self.channel.get_or_init(|| channel.clone());
        // Who has a limit is not known before the metadata server answers.
        let kept = server.store().kept(Note::Limits);
        let limited = kept.is_some_and(|kept| kept == SOME);
        self.state().unknown = limited;
        self.any.store(limited, Ordering::Release);
        let server: Arc<dyn Counted> = server.clone();
        let (usage, weak) = (self.clone(), Arc::downgrade(&server));
        let of = (server.number(), incarnation);
        let run = move || usage.run(&weak, of, &channel);
        self.thread.start("bytes", run).map_err(|source| {
            Error::Wire(penstock_wire::Error::Io {
                what: "start a thread for the bytes of users of",
                peer: format!("data server {}", server.number()),
                source,
            })
        })
    }

    /// Ends the thread and waits for it. The channel has stopped before.
    pub(crate) fn stop(&self) {
        self.end();
        self.thread.join("counts the bytes of users");
    }

    /// The same without waiting.
    pub(crate) fn end(&self) {
        self.state().stop = true;
        self.changed.notify_all();
    }

    /// A client has connected: it may be of a user whose limit is not known yet.
    pub(crate) fn connected(&self) {
        let mut state = self.state();
        if state.quiet {
            state.quiet = false;
            state.asked = true;
            self.changed.notify_all();
        }
    }

    /// Whether an object's owner has a limit: then it may only be written by requests.
    pub(crate) fn is_limited(&self, file: FileId, owner: Option<u32>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state();
        if state.unknown {
            // The shortcuts of those who turn out to have one are revoked.
            return false;
        }
        let owner = state.bytes.owner(file).or(owner);
        owner.is_none_or(|owner| state.bytes.is_limited(owner))
    }

    /// The owner named by the capability, if that is current; otherwise the metadata server's answer, if there is one.
    pub(crate) fn believed(&self, who: &Grower) -> Option<u32> {
        if !self.any.load(Ordering::Acquire) {
            return who.owner;
        }
        let state = self.state();
        let told = state.unknown || state.bytes.owner(who.file).is_some();
        if who.owner.is_none() || told || who.issued_ms >= state.doubt_ms {
            return who.owner;
        }
        let doubt_ms = state.doubt_ms;
        drop(state);
        let uid = self.owner(who.file).ok()?;
        self.state().answered_of(who.file, uid, doubt_ms);
        Some(uid)
    }

    /// An object is about to be extended to `end` bytes, if it is shorter. `None`: its owner has no limit.
    pub(crate) fn grow(
        &self,
        who: Grower,
        object: &Arc<dyn Object>,
        end: u64,
    ) -> Result<Option<Growing<'_>>, WireError> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(None);
        }
        let Grower {
            file,
            root,
            removed,
            ..
        } = who;
        let mut asked = None;
        let began = now();
        let mut state = self.state();
        let sent = state.sent;
        loop {
            let len = object.stored_len().map_err(store_error)?;
            let said = who.owner.filter(|_| who.issued_ms >= state.doubt_ms);
            let answer = asked.filter(|(_, doubt_ms)| *doubt_ms == state.doubt_ms);
            let growth = Growth {
                file,
                owner: answer.map(|(uid, _)| uid).or(said),
                end,
                len,
                root,
            };
            let answered = state.answered > sent;
            let verdict = if state.unknown && !root {
                Verdict::Wait
            } else {
                state.bytes.grow(&growth, answered)
            };
            match verdict {
                Verdict::Free => {
                    if let Some((uid, doubt_ms)) = answer {
                        state.answered_of(file, uid, doubt_ms);
                    }
                    return Ok(None);
                }
                Verdict::Counted => {
                    if removed {
                        state.bytes.removed(file);
                    }
                    return Ok(Some(Growing {
                        usage: self,
                        file,
                        object: object.clone(),
                    }));
                }
                Verdict::Full { uid, total, limit } => return Err(full(uid, total, limit)),
                Verdict::WhoseIsIt => {
                    let doubt_ms = state.doubt_ms;
                    drop(state);
                    let uid = match self.owner(file) {
                        // Counted when the metadata server is back: it reports no changes then.
                        Err(_) if root => return Ok(None),
                        answer => answer?,
                    };
                    asked = Some((uid, doubt_ms));
                    state = self.state();
                    continue;
                }
                Verdict::Wait => {}
            }
            let left = WAIT.saturating_sub(since(began));
            if left.is_zero() || state.stop {
                return Err(no_lease(file, state.away.as_deref()));
            }
            // Each waiter wakes all others: only if there is news for them.
            if !std::mem::replace(&mut state.asked, true) {
                self.changed.notify_all();
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The first bytes of an object are preallocated.
    pub(crate) fn allocated(&self, file: FileId, end: u64) {
        if self.any.load(Ordering::Acquire) {
            self.state().bytes.allocated(file, end);
        }
    }

    /// Whether the object counts for a user with a limit.
    pub(crate) fn limits(&self, file: FileId) -> bool {
        self.any.load(Ordering::Acquire) && self.state().bytes.counts_object(file)
    }

    /// An object was cut.
    pub(crate) fn cut(&self, file: FileId, object: &dyn Object) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        let more = match object.stored_len() {
            Ok(len) => state.bytes.cut(file, len),
            Err(e) => {
                log::warn!("file {}: {e}; all bytes are counted anew", file.0);
                state.count_anew();
                true
            }
        };
        if more {
            state.asked = true;
            self.changed.notify_all();
        }
    }

    /// An object has lost its name and is still open.
    pub(crate) fn removed(&self, file: FileId) {
        if self.any.load(Ordering::Acquire) {
            self.state().bytes.removed(file);
        }
    }

    /// The current counts. `anew`: all counts are reset first, and counted again.
    pub(crate) fn counts(&self, anew: bool) -> Vec<CountedBytes> {
        let mut state = self.state();
        if anew {
            state.count_anew();
            state.asked = true;
            self.changed.notify_all();
        }
        state.bytes.counts()
    }

    /// An object is gone.
    pub(crate) fn forget(&self, file: FileId) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        if state.bytes.forget(file) {
            state.asked = true;
            self.changed.notify_all();
        }
    }

    fn owner(&self, file: FileId) -> Result<u32, WireError> {
        let channel = self.channel.get();
        match channel.map(|channel| owners(channel, Need::Client, vec![file])) {
            Some(Ok(owners)) => Ok(owners.first().copied().flatten().unwrap_or(0)),
            Some(Err(e)) => Err(no_lease(file, Some(&e.to_string()))),
            None => Err(no_lease(file, None)),
        }
    }

    // ---- the thread ----

    /// `of`: the server's number, and the random one of this start.
    fn run(&self, server: &Weak<dyn Counted>, of: (u32, u64), channel: &Channel) {
        let mut count = None;
        let mut first = true;
        let mut hurried = 0;
        loop {
            let told = now();
            let Some((need, report)) = self.report(of) else {
                return;
            };
            let answer = leases(channel, need, report);
            let Some(server) = server.upgrade() else {
                return;
            };
            match answer {
                Ok(leases) => {
                    self.take(&*server, &leases, first, &mut count);
                    first = false;
                }
                Err(e) => {
                    log::debug!("the metadata server is not there to lease bytes: {e}");
                    self.state().away = Some(e.to_string());
                }
            }
            let counting = count.is_some();
            self.count(&*server, channel, &mut count);
            let quiet = !server.is_connected() && !self.any.load(Ordering::Acquire);
            drop(server);
            let mut state = self.state();
            state.asked |= counting;
            state.quiet = quiet;
            loop {
                let wait = match (state.asked, state.quiet) {
                    (true, _) => PAUSE * (1 << hurried),
                    (false, true) => IDLE,
                    (false, false) => ASK,
                };
                let left = wait.saturating_sub(since(told));
                if state.stop || left.is_zero() {
                    break;
                }
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            hurried = if state.asked {
                DOUBLED.min(hurried + 1)
            } else {
                0
            };
        }
    }

    /// `None`: the server stops.
    fn report(&self, (server, incarnation): (u32, u64)) -> Option<(Need, UsageReport)> {
        let mut state = self.state();
        if state.stop {
            return None;
        }
        let need = match (state.asked, state.quiet) {
            (true, _) => Need::Client,
            (false, true) => Need::Seldom,
            (false, false) => Need::Regular,
        };
        state.asked = false;
        state.sent += 1;
        let (followed, users) = state.bytes.report();
        let report = UsageReport {
            server,
            incarnation,
            sequence: state.sent,
            followed,
            users,
        };
        Some((need, report))
    }

    /// Takes in what the metadata server has answered.
    fn take(&self, server: &dyn Counted, leases: &Leases, first: bool, count: &mut Option<Count>) {
        let changed;
        let new = {
            let mut state = self.state();
            let new = state.bytes.told(leases, first);
            state.unknown = false;
            let any = state.bytes.any();
            changed = self.any.swap(any, Ordering::AcqRel) != any;
            new
        };
        if changed {
            self.note(server);
        }
        if new {
            // From now on the writes of these users are requests.
            server.revoke_shortcuts();
        }
        let now_ms = server.now_ms();
        if new || leases.given.is_none() {
            self.state().doubt(now_ms);
        }
        for (file, uid) in leases.given.iter().flatten() {
            match self.found(server, *file, *uid, Found::Given) {
                Ok(true) => {}
                // A client that opened the file earlier may still make its object.
                Ok(false) => self.state().owned(*file, *uid, now_ms),
                Err(e) => {
                    log::warn!("file {}: {}; all bytes are counted anew", file.0, e.message);
                    self.state().anew = true;
                }
            }
        }
        let mut state = self.state();
        if std::mem::take(&mut state.anew) || new || leases.given.is_none() || !state.bytes.any() {
            *count = state.bytes.any().then(|| Count {
                after: None,
                users: state.bytes.uncounted(),
            });
        }
        state.answered = state.sent;
        state.away = None;
        self.changed.notify_all();
    }

    /// Records for the next server whether users have limits: it may start while the metadata server is away.
    fn note(&self, server: &dyn Counted) {
        let any = self.any.load(Ordering::Acquire);
        let text = if any { SOME } else { NONE };
        if let Err(e) = server.store().keep(Note::Limits, text) {
            log::warn!("the list of users with limits on bytes is not saved: {e}");
        }
    }

    /// Counts an object, if it exists. Returns whether it does.
    fn found(
        &self,
        server: &dyn Counted,
        file: FileId,
        uid: u32,
        found: Found,
    ) -> Result<bool, WireError> {
        // Without the lock of the counts: this may be the last reference to an open-unlinked object.
        let look = || server.look(file);
        let object = match (look(), found) {
            (Ok(Some(object)), _) => Some(object),
            (Ok(None), _) => return Ok(false),
            (Err(e), Found::Given) => return Err(e),
            // It is damaged, or there are no descriptors. It counts nevertheless.
            (Err(_), Found::Listed(_)) => None,
        };
        {
            let mut state = self.state();
            let len = match (&object, found) {
                (Some(object), _) => object.stored_len().map_err(store_error)?,
                (None, Found::Listed(len)) => len,
                (None, Found::Given) => 0,
            };
            match found {
                Found::Given => state.bytes.given(file, uid, len),
                Found::Listed(_) => state.bytes.found(file, uid, len),
            }
        }
        // Removed meanwhile: the removal had no count to drop.
        let stays = !matches!(look(), Ok(None));
        if !stays {
            self.forget(file);
        }
        Ok(stays)
    }

    /// Counts some more objects, for about [`ASK`] at most.
    fn count(&self, server: &dyn Counted, channel: &Channel, count: &mut Option<Count>) {
        let began = now();
        while let Some(counting) = count {
            if self.state().stop || since(began) >= ASK {
                return;
            }
            let store = server.store();
            let page = match store.list_after(counting.after, MAX_OWNERS) {
                Ok(page) => page,
                Err(e) => {
                    log::warn!("the bytes of users cannot be counted: {e}");
                    return;
                }
            };
            let files = page.iter().map(|(file, _)| *file).collect();
            let owners = match owners(channel, Need::Regular, files) {
                Ok(owners) => owners,
                Err(e) => {
                    log::debug!("the metadata server is not there to tell of owners: {e}");
                    return;
                }
            };
            for ((file, len), owner) in page.iter().zip(owners) {
                if let Some(uid) = owner
                    && self.is_followed(*file, uid)
                    && let Err(e) = self.found(server, *file, uid, Found::Listed(*len))
                {
                    log::warn!("the bytes of users cannot be counted: {}", e.message);
                    return;
                }
            }
            if page.len() == MAX_OWNERS {
                counting.after = page.last().map(|(file, _)| *file);
                continue;
            }
            let mut state = self.state();
            // Otherwise the results of this count are dropped.
            if !state.anew {
                state.bytes.counted(&counting.users);
            }
            *count = None;
        }
    }

    fn is_followed(&self, file: FileId, uid: u32) -> bool {
        let state = self.state();
        state.bytes.is_limited(uid) || state.bytes.owner(file).is_some()
    }
}

fn leases(channel: &Channel, need: Need, report: UsageReport) -> penstock_wire::Result<Leases> {
    match channel.ask(need, &MetaRequest::Usage(report))? {
        MetaReply::Leases(leases) => Ok(leases),
        other => Err(unexpected(&other)),
    }
}

fn owners(
    channel: &Channel,
    need: Need,
    files: Vec<FileId>,
) -> penstock_wire::Result<Vec<Option<u32>>> {
    let asked = files.len();
    match channel.ask(need, &MetaRequest::Owners(files))? {
        MetaReply::Owners(owners) if owners.len() == asked => Ok(owners),
        other => Err(unexpected(&other)),
    }
}

fn full(uid: u32, total: u64, limit: u64) -> WireError {
    refuse(
        ErrorKind::Quota,
        format!(
            "user {uid} has {total} bytes and the limit is {limit}; remove some files, or ask an administrator for more (`penstock quota` shows limits)"
        ),
    )
}

fn no_lease(file: FileId, away: Option<&str>) -> WireError {
    let file = file.0;
    match away {
        Some(why) => refuse(
            ErrorKind::Io,
            format!(
                "file {file} cannot grow: the metadata server does not answer, so it is unknown what is left of its owner's limit on bytes: {why}"
            ),
        ),
        None => refuse(
            ErrorKind::Busy,
            format!(
                "file {file} cannot grow now: the bytes of its owner, who has a limit, are being counted or are leased to other data servers; try again"
            ),
        ),
    }
}
