//! The engine around the name space: one lock, one committing thread, the clocks.
//!
//! Requests run on their connection's thread under the lock, for microseconds. They never hold it across disk access,
//! except for a page that is not in memory. The committing thread flushes collected changes without holding the lock;
//! requests that need durability wait for it.
mod committing;
mod counting;
mod scrubbing;

use crate::advisory::{AdvisoryLocks, Answer};
use crate::change_log::ChangeLog;
use crate::commit::{GroupCommit, Waiter};
use crate::counters::{ConnectionId, Counters};
use crate::error::{Result, damaged, error};
use crate::journal::{self, Journal};
use crate::layers::{Layers, milliseconds};
use crate::names::Namespace;
use crate::nodes::Outcome;
use crate::open_unlinked::OpenUnlinked;
use crate::pending::Totals;
use crate::placement::Placement;
use crate::scrub::Scrubbed;
use crate::slots::{Once, Owner, Sessions};
use crate::snapshot::Snapshot;
use crate::store::Store;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::thread::{self, JoinHandle};
use penstock_host::time::{now, since, since_epoch};
use penstock_layout::FileId;
use penstock_wire::message::{
    Advisory, AdvisoryHow, AdvisoryMode, ErrorKind, NodeReply, WireError,
};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Most changes that wait for a commit; further ones are delayed.
const MAX_COLLECTED: usize = 1 << 17;
/// Open-unlinked files that are removed in one go.
const REAPED: usize = 1024;
/// Longest wait for the disk.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Marker file in the store: advisory locks may have been held when the server ended.
const LOCKED: &str = "advisory-locks";

pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle>>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the committing thread.
    work: Condvar,
    /// Wakes requests that wait for a commit.
    settled: Condvar,
    /// Wakes requests that wait for advisory locks.
    unlocked: Condvar,
    /// Wakes a thread that waits until no snapshot is in use.
    looked: Condvar,
    start: Instant,
    store_name: String,
    /// Bytes of the journal that were unreadable after a system crash.
    unreadable: u64,
    /// Path of [`LOCKED`].
    locked: PathBuf,
}

struct State {
    space: Namespace<Layers>,
    group: GroupCommit,
    journal: Journal,
    counters: Counters,
    sessions: Sessions,
    locks: AdvisoryLocks,
    /// Open-unlinked files and their holders.
    kept: OpenUnlinked,
    /// Whether [`LOCKED`] exists.
    noted_locks: bool,
    /// Whether locks have ended with their connection, whose client may still rely on them.
    dropped_locks: bool,
    requests: u64,
    /// Whether the database must be reopened.
    broken: bool,
    /// Whether a snapshot is in use without the lock.
    looking: bool,
    looked: Scrubbed,
    count: Option<counting::Count>,
    /// Set for good by a panic inside, or by the server's end.
    closed: Option<WireError>,
    /// Whether the committing thread has ended.
    ended: bool,
}

/// Figures for the status reply.
#[derive(Debug, Clone)]
pub struct Figures {
    pub totals: Totals,
    pub requests: u64,
    pub commits: u64,
    pub uptime: Duration,
    /// Bytes of the journal that were unreadable at the start.
    pub unreadable: u64,
    /// What the scrub has found so far.
    pub looked: Scrubbed,
    /// Users above their soft limit on files, and users at their hard one.
    pub at_limits: (u64, u64),
    /// Users above their soft limit on bytes, users at their hard one, and users whose bytes are not counted yet.
    pub at_byte_limits: (u64, u64, u64),
    /// Whether the files of all users have been counted.
    pub counted: bool,
}

/// Nanoseconds since the epoch.
pub fn wall_clock_ns() -> i64 {
    i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// Open-unlinked files from before the start are kept for clients that have them open.
fn keep_open_files(space: &mut Namespace<Layers>, kept: &mut OpenUnlinked) -> Result<()> {
    let mut found = 0;
    space.each_kept(|file| {
        let room = !kept.is_full();
        if room {
            kept.leave(file, now());
            found += 1;
        }
        room
    })?;
    if found > 0 {
        log::info!(
            "{found} removed files were open when the server ended: they are kept for the clients that have them open"
        );
    }
    Ok(())
}

impl Engine {
    /// Starts the committing thread. `interval` is the longest that a change stays in memory only, if nobody waits for
    /// it.
    pub fn start(
        mut store: Store,
        snapshot: Snapshot,
        placement: Placement,
        interval: Duration,
        mut kept: OpenUnlinked,
        log: Box<dyn ChangeLog>,
    ) -> std::result::Result<Engine, crate::start_error::Error> {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut sessions = Sessions::default();
        for note in snapshot.sessions()? {
            sessions.restore(note, now());
        }
        let same_boot = snapshot.is_of_this_boot();
        let mut layers = Layers::new(snapshot, wall_clock_ns())?;
        let replayed = journal::replay(&*log, store.commits(), same_boot)?;
        let found = replayed.changes;
        if !found.is_empty() {
            log::info!("{} changes are replayed from the journal", found.len());
        }
        for note in found.iter().flat_map(|changes| &changes.notes) {
            sessions.restore(note.clone(), now());
        }
        layers.replay(found, milliseconds(wall_clock_ns()))?;
        // The start time identifies the incarnation: no two starts are in the same nanosecond.
        let run = u64::try_from(wall_clock_ns()).unwrap_or(0);
        layers
            .accounts_mut()
            .bytes_mut()
            .begin(run, placement.ids());
        let mut space = Namespace::new(layers, placement);
        keep_open_files(&mut space, &mut kept)?;
        // The commit below contains them; the journal begins after it.
        space.names_mut().take_changes()?;
        let layers = space.names_mut();
        // Ids are reserved on stable storage before any is used.
        let reservation = layers.freeze();
        layers.committed(store.commit(&reservation)?);
        let locked = store.path().join(LOCKED);
        let noted_locks = locked.exists();
        if noted_locks {
            log::info!(
                "advisory locks were held when the server ended: mounts may claim them first"
            );
        }
        let was_read = store.was_read();
        let counted = layers.accounts().are_counted();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                space,
                group: GroupCommit::new(interval_ns),
                journal: Journal::begin(log, store.commits() + 1)?,
                counters: Counters::default(),
                sessions,
                locks: if noted_locks {
                    AdvisoryLocks::recovering(now())
                } else {
                    AdvisoryLocks::default()
                },
                kept,
                noted_locks,
                dropped_locks: false,
                requests: 0,
                broken: false,
                looking: false,
                looked: if was_read {
                    Scrubbed::before()
                } else {
                    Scrubbed::default()
                },
                count: None,
                closed: None,
                ended: false,
            }),
            work: Condvar::new(),
            settled: Condvar::new(),
            unlocked: Condvar::new(),
            looked: Condvar::new(),
            start: now(),
            store_name: store.path().display().to_string(),
            unreadable: replayed.unreadable,
            locked,
        });
        let committer = thread::spawn("commit", None, {
            let shared = shared.clone();
            move || committing::commit_loop(&shared, store)
        })
        .map_err(|e| {
            error(
                ErrorKind::Io,
                format!("no thread for commits: {e}; look at the limits of processes"),
            )
        })?;
        let mut threads = vec![committer];
        if !counted {
            threads.extend(counting::start(&shared));
        }
        if !was_read {
            threads.extend(scrubbing::start(&shared));
        }
        Ok(Engine {
            shared,
            threads: Mutex::new(threads),
        })
    }

    /// Runs a request that changes nothing.
    pub fn read<T>(&self, f: impl FnOnce(&Namespace<Layers>) -> Result<T>) -> Result<T> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        let result = state.guarded(|state| f(&state.space));
        self.shared.heed(&mut state, &result);
        result
    }

    /// Runs a request whose changes are never stored; `f` gets the time. It waits for no commit.
    pub fn change_in_memory<T>(
        &self,
        f: impl FnOnce(&mut Namespace<Layers>, i64) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        let now_ns = wall_clock_ns();
        let result = state.guarded(|state| f(&mut state.space, now_ns));
        self.shared.heed(&mut state, &result);
        result
    }

    /// Runs a request that may change names; `f` gets the time. If it has a slot and was carried out before, `f` is not
    /// run: its earlier outcome is returned.
    pub fn change(
        &self,
        once: Option<&Once>,
        f: impl FnOnce(&mut Namespace<Layers>, i64) -> Result<Outcome>,
    ) -> Result<Outcome> {
        self.change_with(once, |state, now_ns| f(&mut state.space, now_ns))
    }

    fn change_with(
        &self,
        once: Option<&Once>,
        f: impl FnOnce(&mut State, i64) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        if state.space.names().collected() >= MAX_COLLECTED {
            state = self.shared.wait_for_room(state)?;
            if let Some(why) = &state.closed {
                return Err(why.clone());
            }
        }
        if let Some(known) = state.known(once)? {
            if !state.journal.is_written() {
                // The first copy waits, or waited, for the commit too.
                drop(self.shared.wait_commit(state)?);
            }
            return known;
        }
        if let Some(refusal) = state.group.refusal() {
            return Err(refusal.clone());
        }
        let now_ns = wall_clock_ns();
        let mut safe = true;
        let result = state.guarded(|state| {
            let result = f(state, now_ns);
            state.keep(once, &result);
            let changes = state.space.names_mut().take_changes()?;
            safe = changes.is_empty() || state.journal.append(changes);
            result
        });
        self.shared.heed(&mut state, &result);
        if state.space.names().collected() > 0 && state.group.changed(self.shared.now()) {
            self.shared.work.notify_one();
        }
        if !safe {
            drop(self.shared.wait_commit(state)?);
        }
        result
    }

    /// Opens a session of changes, which is on stable storage when [`Engine::sync`] returns.
    pub fn open_session(
        &self,
        connection: ConnectionId,
        owner: Owner,
        session: u128,
    ) -> Result<Outcome> {
        self.change_with(None, |state, _| {
            for note in state.sessions.open(connection, owner, session, now())? {
                state.space.names_mut().note(note);
            }
            Ok(Outcome::Done)
        })
    }

    /// Whether one more open-unlinked file can be kept for a user.
    pub fn may_keep(&self, uid: u32) -> bool {
        self.shared.state().kept.has_room(uid)
    }

    /// The connection has these files open: it holds those without a name from now on. Returns them.
    pub fn keep(
        &self,
        connection: ConnectionId,
        uid: u32,
        files: &[FileId],
    ) -> Result<Vec<FileId>> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        let result = state.guarded(|state| {
            let mut kept = Vec::new();
            for &file in files {
                if state.space.is_kept(file)? {
                    state.kept.hold(connection, uid, file);
                    kept.push(file);
                }
            }
            Ok(kept)
        });
        self.shared.heed(&mut state, &result);
        result
    }

    /// The connection has closed an open-unlinked file: it is removed, unless others hold it.
    pub fn reap(
        &self,
        once: Option<&Once>,
        connection: ConnectionId,
        file: FileId,
    ) -> Result<Outcome> {
        self.change_with(once, |state, _| {
            if !state.kept.closed(connection, file) {
                return Ok(None.into());
            }
            let reaped = state.space.reap(file);
            if reaped.is_err() {
                state.kept.leave(file, now());
            }
            reaped.map(Outcome::from)
        })
    }

    /// A connection has ended: its open-unlinked files and sessions are kept until its client reconnects or the grace
    /// period ends.
    pub fn leave(&self, connection: ConnectionId) {
        let mut state = self.shared.state();
        state.sessions.connection_closed(connection, now());
        if state.kept.connection_closed(connection, now()) {
            self.shared.work.notify_one();
        }
    }

    /// Changes a counter; the outcome is the value before.
    pub fn count(
        &self,
        once: Option<&Once>,
        f: impl FnOnce(&mut Counters) -> Result<i64>,
    ) -> Result<i64> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        let outcome = match state.known(once)? {
            Some(known) => known,
            None => {
                let result = f(&mut state.counters).map(Outcome::Counter);
                // Counters end with this process, and so may the record of their changes.
                if let Some(once) = once {
                    state.sessions.keep(once, &result);
                }
                result
            }
        };
        match outcome? {
            Outcome::Counter(before) => Ok(before),
            other => Err(other.unexpected()),
        }
    }

    pub fn counters<T>(&self, f: impl FnOnce(&mut Counters) -> Result<T>) -> Result<T> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        f(&mut state.counters)
    }

    /// Carries out a request `how` about an advisory lock. After a restart all except claims wait for the grace period.
    pub fn lock(
        &self,
        by: (ConnectionId, u32),
        file: FileId,
        lock: &Advisory,
        how: AdvisoryHow,
    ) -> Result<NodeReply> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        while let Some(left) = state.locks.held_back(now(), lock, how) {
            state = self.shared.wait_unlocked(state, left);
            if let Some(why) = &state.closed {
                return Err(why.clone());
            }
        }
        let takes = matches!(
            how,
            AdvisoryHow::Try | AdvisoryHow::Wait | AdvisoryHow::Claim
        ) && lock.mode != AdvisoryMode::Free;
        if takes && !state.noted_locks {
            state.noted_locks = true;
            if let Err(e) = note(&self.shared.locked) {
                log::warn!(
                    "{}: {e}; advisory locks may go to others if this server is restarted",
                    self.shared.locked.display()
                );
            }
        }
        let before = state.locks.given_up();
        let answer = state.locks.request(by, file, lock, how)?;
        let given_up = state.locks.given_up();
        if given_up != before {
            self.shared.unlocked.notify_all();
        }
        Ok(match answer {
            Answer::Done => NodeReply::Done,
            Answer::Held(lock) => NodeReply::LockedBy { lock, given_up },
            Answer::Deadlock => NodeReply::Deadlock,
        })
    }

    /// Releases the advisory locks of a connection that has ended.
    pub fn release_locks(&self, connection: ConnectionId) {
        let mut state = self.shared.state();
        if state.locks.connection_closed(connection) {
            state.dropped_locks = true;
            self.shared.unlocked.notify_all();
        }
    }

    /// Waits until an advisory lock has been released since the count was `seen`, at most `wait`. Returns the count.
    pub fn await_unlock(&self, seen: u64, wait: Duration) -> Result<u64> {
        let deadline = now() + wait;
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        loop {
            let left = deadline.saturating_duration_since(now());
            if state.locks.given_up() != seen || left.is_zero() || state.closed.is_some() {
                return Ok(state.locks.given_up());
            }
            state = self.shared.wait_unlocked(state, left);
        }
    }

    /// Returns when everything acknowledged so far is on stable storage.
    pub fn sync(&self) -> Result<()> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        self.shared.wait_commit(state).map(drop)
    }

    /// Makes all future file ids greater than `highest`, durably after an [`Engine::sync`]. Returns the next id.
    pub fn skip_ids(&self, highest: u64) -> Result<u64> {
        let mut state = self.shared.open_state()?;
        state.requests += 1;
        if state.guarded(|state| Ok(state.space.names_mut().skip_ids(highest)))?
            && state.group.changed(self.shared.now())
        {
            self.shared.work.notify_one();
        }
        Ok(state.space.names().next_id())
    }

    pub fn figures(&self) -> Result<Figures> {
        let state = self.shared.open_state()?;
        Ok(Figures {
            totals: state.space.names().totals(),
            requests: state.requests,
            commits: state.group.commits(),
            uptime: since(self.shared.start),
            unreadable: self.shared.unreadable,
            looked: state.looked.clone(),
            at_limits: state.space.names().accounts().at_limits(),
            at_byte_limits: state.space.names().accounts().at_byte_limits(),
            counted: state.space.names().accounts().are_counted(),
        })
    }

    pub fn store_name(&self) -> &str {
        &self.shared.store_name
    }

    /// Number of data servers in the deployment.
    pub fn servers(&self) -> usize {
        self.shared.state().space.placement().servers()
    }

    /// Commits the remaining changes, closes the store and refuses requests from now on. Idempotent.
    pub fn stop(&self) {
        let threads = {
            let mut state = self.shared.state();
            state.group.stop();
            state.close(error(
                ErrorKind::ShuttingDown,
                "the metadata server is stopping; connect again when it is back",
            ));
            if state.noted_locks && state.locks.is_empty() && !state.dropped_locks {
                state.noted_locks = false;
                // If it stays, locking programs wait in vain after the restart.
                let _ = penstock_host::fs::remove_file(&self.shared.locked);
            }
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        self.shared.work.notify_one();
        self.shared.unlocked.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a thread of the metadata server panicked");
            }
        }
    }
}

/// Records on stable storage that advisory locks are held.
fn note(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    let file = penstock_host::fs::open(&options, path, false)?;
    penstock_host::fs::fsync(&file)?;
    if let Some(directory) = path.parent() {
        penstock_host::fs::fsync(&std::fs::File::open(directory)?)?;
    }
    Ok(())
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn close(&mut self, why: WireError) {
        self.closed.get_or_insert(why);
    }

    /// The earlier outcome of this request; `None`: it is to be carried out.
    fn known(&mut self, once: Option<&Once>) -> Result<Option<Result<Outcome>>> {
        match once {
            Some(once) => {
                let kept = self.sessions.known(once, now())?;
                Ok(kept.map(|kept| kept.outcome(&self.space)))
            }
            None => Ok(None),
        }
    }

    /// Stores the outcome of this request together with its changes, if any.
    fn keep(&mut self, once: Option<&Once>, result: &Result<Outcome>) {
        let note = once.and_then(|once| self.sessions.keep(once, result));
        if let Some(note) = note
            && self.space.names().changed()
        {
            self.space.names_mut().note(note);
        }
    }

    /// Runs `f`; after a panic in it the server is closed for good, so that it never serves half a change.
    fn guarded<T>(&mut self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| f(self))).unwrap_or_else(|_| {
            let why =
                damaged("the server had an internal error while using it and refuses to go on");
            self.close(why.clone());
            Err(why)
        })
    }
}

impl Shared {
    /// Sleeps until an advisory lock is released or the server stops, at most `left`.
    fn wait_unlocked<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        left: Duration,
    ) -> MutexGuard<'a, State> {
        self.unlocked
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Nanoseconds of a steady clock.
    fn now(&self) -> u64 {
        u64::try_from(since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Panics under the lock are caught where they happen, and close the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        match &state.closed {
            Some(why) => Err(why.clone()),
            None => Ok(state),
        }
    }

    /// Waits until `done` has a result, at most [`MAX_WAIT`].
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        done: impl Fn(&State) -> Option<Result<()>>,
    ) -> Result<MutexGuard<'a, State>> {
        let deadline = now() + MAX_WAIT;
        loop {
            if let Some(result) = done(&state) {
                return result.map(|()| state);
            }
            if let Some(why) = state.closed.as_ref().filter(|_| state.ended) {
                return Err(why.clone());
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(error(
                    ErrorKind::Io,
                    format!(
                        "metadata store {} has not finished a commit for {MAX_WAIT:?}; look at its disk",
                        self.store_name
                    ),
                ));
            }
            state = self
                .settled
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until all changes so far are on stable storage.
    fn wait_commit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>> {
        let waiter = state.group.want();
        self.work.notify_one();
        self.wait(state, |state| state.group.settled(waiter))
    }

    /// Sleeps until there is work for the committing thread, at most `pause`.
    fn wait_work<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        pause: Duration,
    ) -> MutexGuard<'a, State> {
        self.work
            .wait_timeout(state, pause)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>> {
        let waiter: Waiter = state.group.want();
        self.work.notify_one();
        self.wait(state, |state| {
            if state.space.names().collected() < MAX_COLLECTED {
                return Some(Ok(()));
            }
            state.group.settled(waiter)
        })
    }
}
