//! A fast tier before a slow store ([`penstock_tier`]). Small, random and partial writes go to a log on a fast device and
//! are complete there. They come to the slow store in ascending order when it is idle.
//!
//! Rules that keep bytes right:
//! 1. *A byte in the log is the newest.* A write that touches such a byte goes to the log too, or waits until that byte is
//!    home. Reads take the slow store's bytes and lay the log's over them.
//! 2. *A record counts until the slow store has synced its bytes* and another record says so. Segments go in their order,
//!    after everything behind them is on stable storage.
//! 3. *A cut comes to the slow store first,* durably; then the log hears that what is behind the cut counts no longer.
//! 4. *A sync makes durable where the bytes are:* the log, and the slow store only if it was written.
//! 5. *After a failed sync of the fast device* nothing goes to the log, and no sync succeeds until the next start. That
//!    brings everything home and begins a new log.
//!
//! There are no descriptors of objects, and so no shortcuts: they would miss what is in the log.

mod device;
mod front;
mod home;
mod object;
mod recover;
mod state;
#[cfg(test)]
mod tests;
mod tie;

use crate::{Finding, Identity, Note, Object, Problem, Store, StoreError};
use device::{FastDevice, Unread};
use front::Front;
use home::HomeThread;
use object::FastObject;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time;
use penstock_layout::FileId;
use penstock_tier::{Log, Mode, Policy, TierId};
use state::State;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use tie::Tie;

/// Bytes that a log takes unless told otherwise.
const QUEUE: u64 = 8 << 30;

/// Objects about which more is kept than is needed, at most.
const FRONTS: usize = 4096;

/// How a tier is described: `DIR[,queue=BYTES]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastSpec {
    /// The directory on the fast device.
    pub dir: PathBuf,
    /// Most bytes of its log.
    pub queue: u64,
}

impl FastSpec {
    /// Reads it; an error says what is wrong.
    pub fn parse(text: &str) -> Result<FastSpec, String> {
        let mut words = text.split(',');
        let dir = words.next().unwrap_or_default();
        if dir.is_empty() || dir.contains(';') || dir.contains('\n') {
            return Err(format!(
                "`{text}` names no directory; write DIR[,queue=8GiB], without `,` and `;` in DIR"
            ));
        }
        let mut spec = FastSpec {
            dir: dir.into(),
            queue: QUEUE,
        };
        for word in words {
            let bytes = word.strip_prefix("queue=").and_then(bytes);
            spec.queue = bytes.ok_or_else(|| {
                format!(
                    "`{word}` is no option of a fast tier; there is queue=BYTES, such as queue=8GiB"
                )
            })?;
        }
        if spec.queue < Log::LEAST {
            return Err(format!(
                "a queue of {} B is too small; the least is {} B",
                spec.queue,
                Log::LEAST
            ));
        }
        Ok(spec)
    }
}

/// A number of bytes: `65536`, `64KiB`, `8GiB`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// What a tier is and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastStatus {
    /// Its directory.
    pub path: String,
    /// What users say: `auto`, `on`, `off`.
    pub mode: String,
    /// What it does, in words.
    pub state: String,
    /// Why bytes do not come home, or what is wrong; empty if nothing is.
    pub problem: String,
    /// Bytes of objects that are not home, and of how many objects.
    pub waiting: u64,
    /// See `waiting`.
    pub objects: u64,
    /// Bytes that the log takes, and at most may take.
    pub log: u64,
    /// See `log`.
    pub limit: u64,
    /// Writes that went to the log since the start, and their bytes.
    pub writes: u64,
    /// See `writes`.
    pub bytes: u64,
    /// Writes that found no room there.
    pub refused: u64,
    /// Bytes that came home since the start.
    pub home: u64,
    /// Records that are damaged.
    pub damaged: u64,
    /// 1000 H: how much farther apart requests are than they would be behind the log.
    pub h_milli: u64,
}

/// What only stores with a fast tier can.
pub trait FastTier {
    /// What it is and did.
    fn status(&self) -> FastStatus;
    /// Which writes it takes from now on.
    fn set_mode(&self, mode: Mode);
    /// Bytes come home from now on, whoever else uses the slow store, until none is left.
    fn drain(&self);
}

/// What all parts of a tier share.
pub(crate) struct Fast {
    inner: Box<dyn Store>,
    device: FastDevice,
    tier: TierId,
    state: Mutex<State>,
    /// One sync of the log at a time; whoever waits may find that it was covered.
    syncing: Mutex<()>,
    tie: Mutex<Tie>,
    failed: OnceLock<String>,
    /// Why the last attempt to bring bytes home has failed.
    stuck: Mutex<Option<String>>,
    /// What wakes the thread that brings bytes home.
    control: Mutex<Control>,
    changed: Condvar,
    began: Instant,
    /// Accesses to the slow store by callers: under way, and when the last one ended (ns since `began`).
    busy: AtomicU64,
    last: AtomicU64,
    volatile: bool,
}

#[derive(Default)]
pub(crate) struct Control {
    stop: bool,
    drain: bool,
    work: bool,
}

impl Fast {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Maps and log are changed after the step on disk that they describe; a panic leaves them behind by one record.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tie(&self) -> MutexGuard<'_, Tie> {
        // Replaced as a whole.
        self.tie.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        time::since(self.began).as_nanos() as u64
    }

    /// The thread that brings bytes home looks what there is to do.
    fn wake(&self) {
        self.control().work = true;
        self.changed.notify_all();
    }

    /// What is kept of an object beside its bytes. `made`: it has been made just now.
    fn front(&self, state: &mut State, id: FileId, made: bool) -> Arc<Front> {
        if let Some(front) = state.fronts.get(&id) {
            return front.clone();
        }
        if state.fronts.len() >= FRONTS {
            state.fronts.retain(|_, front| Arc::strong_count(front) > 1);
        }
        let front = Arc::new(Front::new(made));
        state.fronts.insert(id, front.clone());
        front
    }

    /// Refuses what needs the log after a sync of it has failed.
    fn sound(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(StoreError::Fast {
                path: self.device.path.clone(),
                why: format!("{why}; start the server again"),
            }),
        }
    }

    /// The fast device has failed: nothing that it says of syncs can be believed from now on.
    fn fail(&self, why: String) {
        log::error!("fast tier {}: {why}", self.device.path);
        if self.failed.set(why).is_err() {
            return;
        }
        self.device.incarnation.end(&self.device.path);
        let mut tie = self.tie();
        tie.suspect = true;
        if let Err(e) = self.note(&tie) {
            log::error!("{e}; remove nothing, and drain the tier at the next start");
        }
    }

    /// The slow store's side of the tie, on stable storage.
    fn note(&self, tie: &Tie) -> Result<(), StoreError> {
        if self.volatile {
            return Ok(());
        }
        self.inner.keep(Note::Fast, &tie.encode())
    }

    /// Everything that the log holds now is on stable storage.
    pub(crate) fn sync_log(&self) -> Result<(), StoreError> {
        self.sound()?;
        let wanted = self.state().log.last();
        let _one = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.sound()?;
        let (upto, files, names) = {
            let mut state = self.state();
            if state.log.synced() >= wanted {
                return Ok(());
            }
            let unsynced = std::mem::take(&mut state.unsynced);
            let files = unsynced.iter().filter_map(|n| state.files.get(n).cloned());
            let files: Vec<_> = files.collect();
            (state.log.last(), files, std::mem::take(&mut state.names))
        };
        let done = files
            .iter()
            .try_for_each(penstock_host::fs::fdatasync)
            .and_then(|()| {
                if names {
                    self.device.sync_names()
                } else {
                    Ok(())
                }
            });
        if let Err(e) = done {
            let error = StoreError::from_errno("sync", self.device.path.clone(), e);
            self.fail(format!(
                "a sync of the fast device failed ({e}): writes since the one before may be lost"
            ));
            return Err(error);
        }
        self.state().log.note_synced(upto);
        self.device.note_synced(&self.tier, upto);
        Ok(())
    }

    /// Removes segments in which nothing counts.
    fn reclaim(&self) -> Result<(), StoreError> {
        loop {
            let Some((number, true)) = self.state().log.oldest() else {
                return Ok(());
            };
            // What took the place of its bytes must not be lost.
            self.sync_log()?;
            if let Err(e) = self.device.remove(number) {
                self.fail(format!("a segment cannot be removed ({e})"));
                return self.sound();
            }
            let mut state = self.state();
            state.log.removed(number);
            state.files.remove(&number);
            state.unsynced.remove(&number);
            state.damaged.retain(|(segment, _)| *segment != number);
        }
    }
}

/// The backend with a fast tier before another store.
pub(crate) struct FastStore {
    fast: Arc<Fast>,
    home: HomeThread,
}

impl FastStore {
    /// Puts the tier before a store that is open.
    pub(crate) fn open(
        spec: &FastSpec,
        inner: Box<dyn Store>,
        deployment: &str,
        server: u32,
    ) -> Result<FastStore, StoreError> {
        let place = spec.dir.display().to_string();
        let volatile = inner.identity().is_none();
        let noted = inner.kept(Note::Fast);
        let noted = match noted.as_deref().map(Tie::decode) {
            None => None,
            Some(Some(tie)) => Some(tie),
            Some(None) => {
                Tie::refuse_alone(noted.as_deref(), &inner.describe())?;
                None
            }
        };
        let make = noted.as_ref().is_none_or(|noted| !noted.holds);
        let unread = Unread::open(&spec.dir, make)?;
        let found = unread.as_ref().map(Unread::tie).transpose()?.flatten();
        if let Some(found) = &found
            && (found.deployment != deployment || found.server != server)
        {
            let whose = |d: &str, s| format!("server {s} of deployment {d}");
            return Err(StoreError::WrongDeployment {
                path: place,
                found: whose(&found.deployment, found.server),
                expected: whose(deployment, server),
            });
        }
        let known = found.filter(|_| !volatile);
        Tie::compare(known.as_ref(), noted.as_ref(), &place, &inner.describe())?;
        let Some(unread) = unread else {
            return Err(StoreError::Fast {
                path: place,
                why: "there is no such directory".to_owned(),
            });
        };
        if known.is_none() && !volatile && unread.has_segments()? {
            return Err(StoreError::Fast {
                path: place,
                why: "there is a log, and nothing says whose: name an empty directory".to_owned(),
            });
        }
        let suspect = noted.as_ref().is_some_and(|noted| noted.suspect);
        let generation = [&known, &noted].into_iter().flatten().map(|t| t.generation);
        let tie = Tie {
            deployment: deployment.to_owned(),
            server,
            tier: match &known {
                Some(known) => known.tier,
                None => draw(&place)?,
            },
            generation: generation.max().unwrap_or(0) + 1,
            holds: true,
            suspect,
            place,
        };
        FastStore::begin(spec, inner, unread, tie, volatile)
    }

    fn begin(
        spec: &FastSpec,
        inner: Box<dyn Store>,
        unread: Unread,
        tie: Tie,
        volatile: bool,
    ) -> Result<FastStore, StoreError> {
        let device = unread.begin(&tie)?;
        if volatile {
            for number in device.segments()? {
                let error = |e| StoreError::from_errno("remove", device.path.clone(), e);
                device.remove(number).map_err(error)?;
            }
        } else {
            inner.keep(Note::Fast, &tie.encode())?;
        }
        let log = Log::new(tie.tier, spec.queue);
        let mut state = State::new(log, Policy::new(spec.queue));
        recover::recover(&device, &mut state)?;
        // The names of objects that a loss of power has taken and the log has not.
        for id in state.maps.keys() {
            match inner.open(*id, true) {
                Ok(_) | Err(StoreError::Lost { .. } | StoreError::Damaged { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        let fast = Arc::new(Fast {
            inner,
            device,
            tier: tie.tier,
            state: Mutex::new(state),
            syncing: Mutex::new(()),
            tie: Mutex::new(tie.clone()),
            failed: OnceLock::new(),
            stuck: Mutex::new(None),
            control: Mutex::new(Control::default()),
            changed: Condvar::new(),
            began: time::now(),
            busy: AtomicU64::new(0),
            last: AtomicU64::new(0),
            volatile,
        });
        if tie.suspect {
            fast.start_anew()?;
        }
        #[cfg(test)]
        TESTED.with(|tested| {
            let path = fast.device.path.clone();
            tested.borrow_mut().insert(path, Arc::downgrade(&fast))
        });
        let home = HomeThread::start(&fast)?;
        Ok(FastStore { fast, home })
    }
}

/// A new tier's id.
fn draw(place: &str) -> Result<TierId, StoreError> {
    let mut tier = TierId::default();
    penstock_host::random(&mut tier).map_err(|source| StoreError::Io {
        what: "draw a name for the fast tier in",
        path: place.to_owned(),
        source,
    })?;
    Ok(tier)
}

impl Fast {
    /// Brings everything home after a failed sync of the fast device: what the log says of stable storage is not so.
    fn start_anew(&self) -> Result<(), StoreError> {
        log::warn!(
            "fast tier {}: a sync of it has failed before; {} B come home before the start",
            self.device.path,
            self.state().log.live()
        );
        self.bring_all_home()?;
        let current = self.state().log.current();
        if let Some(number) = current {
            self.state().end(number);
        }
        self.reclaim()?;
        let mut tie = self.tie();
        tie.suspect = false;
        self.note(&tie)
    }

    /// Objects whose bytes in the log are damaged, found by reading them all.
    fn damaged(&self) -> BTreeMap<FileId, u64> {
        let ids: Vec<FileId> = self.state().maps.keys().copied().collect();
        let mut damaged = BTreeMap::new();
        for id in ids {
            let mut from = 0;
            loop {
                let (extents, files) = self.extents(id, from..u64::MAX, 256);
                let Some(last) = extents.last() else { break };
                from = last.end();
                for (extent, file) in extents.iter().zip(files) {
                    match recover::bytes_of(&self.tier, id, &file, extent) {
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => *damaged.entry(id).or_default() += extent.len,
                    }
                }
            }
        }
        damaged
    }
}

impl FastTier for FastStore {
    fn status(&self) -> FastStatus {
        let fast = &self.fast;
        let stuck = fast.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = fast.failed.get().or(stuck.as_ref()).cloned();
        drop(stuck);
        let state = fast.state();
        let counts = state.counts;
        FastStatus {
            path: fast.device.path.clone(),
            mode: state.policy.mode().name().to_owned(),
            state: match fast.failed.get() {
                Some(_) => "has failed".to_owned(),
                None => state.policy.state().to_owned(),
            },
            problem: problem.unwrap_or_default(),
            waiting: state.log.live(),
            objects: state.maps.len() as u64,
            log: state.log.bytes(),
            limit: state.log.limit(),
            writes: counts.writes,
            bytes: counts.bytes,
            refused: counts.refused,
            home: counts.home,
            damaged: state.damaged.len() as u64 + state.unreadable,
            h_milli: (state.policy.h().unwrap_or(0.0) * 1e3) as u64,
        }
    }

    fn set_mode(&self, mode: Mode) {
        self.fast.state().policy.set_mode(mode);
    }

    fn drain(&self) {
        self.fast.control().drain = true;
        self.fast.wake();
    }
}

impl Store for FastStore {
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError> {
        let fast = &self.fast;
        let (inner, made) = match fast.inner.open(id, false) {
            Err(StoreError::NotFound(..)) if create => (fast.inner.open(id, true)?, true),
            opened => (opened?, false),
        };
        let front = fast.front(&mut fast.state(), id, made);
        Ok(FastObject::open(fast, id, inner, front))
    }

    fn remove(&self, id: FileId) -> Result<(), StoreError> {
        let fast = &self.fast;
        let front = fast.front(&mut fast.state(), id, false);
        let gate = front.gate.write();
        let waiting = fast.state().map(id).is_some();
        if waiting {
            fast.sound()?;
            // This one, and the table's.
            if Arc::strong_count(&front) > 2 {
                // Those who have it open go on with what the slow store has.
                let inner = fast.inner.open(id, false)?;
                fast.move_home(id, &*inner, 0..u64::MAX)?;
            }
        }
        let removed = fast.inner.remove(id);
        if matches!(removed, Ok(()) | Err(StoreError::NotFound(..))) {
            front.removed.store(true, SeqCst);
            fast.state().fronts.remove(&id);
            if waiting {
                fast.forget(id, 0..u64::MAX)?;
            }
        }
        drop(gate);
        removed
    }

    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError> {
        let mut page = self.fast.inner.list_after(after, limit)?;
        let state = self.fast.state();
        for (id, len) in &mut page {
            *len = (*len).max(state.map(*id).map_or(0, |map| map.end()));
        }
        Ok(page)
    }

    fn relieve(&self) -> bool {
        self.fast.inner.relieve()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.fast.inner.sync()?;
        self.fast.sync_log()
    }

    fn incarnation(&self) -> [u8; 16] {
        let mut both = self.fast.inner.incarnation();
        let own = self.fast.device.incarnation.id();
        both.iter_mut()
            .zip(own)
            .for_each(|(both, own)| *both ^= own);
        both
    }

    fn share(&self) {
        self.fast.inner.share();
    }

    fn stop(&self) {
        self.home.stop();
        let fast = &self.fast;
        match fast.settle() {
            Ok(()) => fast.device.incarnation.stop(&fast.device.path),
            Err(e) => log::error!("{e}"),
        }
        fast.inner.stop();
    }

    fn space(&self) -> Result<(u64, u64), StoreError> {
        self.fast.inner.space()
    }

    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        let fast = &self.fast;
        fast.inner.verify(report)?;
        for (id, bytes) in fast.damaged() {
            report(Finding {
                object: Some(id),
                path: fast.device.path.clone(),
                problem: Problem::BadRecord(format!(
                    "{bytes} B of object {:016x} in the fast tier are not those that were written; write them again, or accept that older bytes take their place",
                    id.0
                )),
            });
        }
        let unreadable = fast.state().unreadable;
        if unreadable > 0 {
            report(Finding {
                object: None,
                path: fast.device.path.clone(),
                problem: Problem::Unreadable(format!(
                    "{unreadable} records of the fast tier's log: of which objects is not known"
                )),
            });
        }
        Ok(())
    }

    fn accept(&self, id: FileId) -> Result<(), StoreError> {
        self.fast.inner.accept(id).or_else(|e| match e {
            // Only the log's bytes are damaged, or it is in the log alone.
            StoreError::NotFound(..) if self.fast.state().map(id).is_some() => Ok(()),
            e => Err(e),
        })?;
        self.fast.drop_damaged(id)
    }

    fn renew(&self, id: FileId) -> Result<Arc<dyn Object>, StoreError> {
        let inner = self.fast.inner.renew(id)?;
        let front = self.fast.front(&mut self.fast.state(), id, false);
        Ok(FastObject::open(&self.fast, id, inner, front))
    }

    fn identity(&self) -> Option<Identity> {
        self.fast.inner.identity()
    }

    fn highest(&self, look: bool) -> Result<u64, StoreError> {
        self.fast.inner.highest(look)
    }

    fn next_generation(&self) -> Result<Option<Identity>, StoreError> {
        self.fast.inner.next_generation()
    }

    fn note_heard(&self) -> Result<(), StoreError> {
        self.fast.inner.note_heard()
    }

    fn sync_unsynced(&self, go_on: &mut dyn FnMut(Duration) -> bool) -> Result<bool, StoreError> {
        let any = self.fast.inner.sync_unsynced(go_on)?;
        self.fast.sync_log()?;
        Ok(any)
    }

    fn lost_below(&self) -> u64 {
        self.fast.inner.lost_below()
    }

    fn kept(&self, note: Note) -> Option<String> {
        self.fast.inner.kept(note)
    }

    fn keep(&self, note: Note, text: &str) -> Result<(), StoreError> {
        self.fast.inner.keep(note, text)
    }

    fn fast(&self) -> Option<&dyn FastTier> {
        Some(self)
    }

    fn describe(&self) -> String {
        let fast = &self.fast;
        format!("{}, fast tier {}", fast.inner.describe(), fast.device.path)
    }
}

impl Fast {
    /// Nobody writes any more: the log is on stable storage; where nothing is in it, the store needs it no longer.
    fn settle(&self) -> Result<(), StoreError> {
        self.sync_log()?;
        let (empty, current) = {
            let state = self.state();
            (
                state.maps.is_empty() && state.damaged.is_empty(),
                state.log.current(),
            )
        };
        if let Some(number) = current {
            self.state().end(number);
        }
        if !empty {
            return self.sync_log();
        }
        self.reclaim()?;
        let mut tie = self.tie();
        tie.holds = false;
        self.device.describe(&tie)?;
        self.note(&tie)
    }
}

/// An access to the slow store by a caller, for as long as it lives.
pub(crate) struct Busy<'a>(&'a Fast);

impl<'a> Busy<'a> {
    pub(crate) fn begin(fast: &'a Fast) -> (Busy<'a>, bool) {
        let others = fast.busy.fetch_add(1, SeqCst);
        (Busy(fast), others == 0)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.last.store(self.0.now(), SeqCst);
        self.0.busy.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
thread_local! {
    /// The tiers that this thread has opened last, by directory.
    static TESTED: std::cell::RefCell<BTreeMap<String, std::sync::Weak<Fast>>> = const { std::cell::RefCell::new(BTreeMap::new()) };
}
