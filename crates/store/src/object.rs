//! One object of a directory store: an open file, its record, and its known damage.
use crate::mappable::Mappable;
use crate::record::Records;
use crate::replace::Bad;
use crate::store_root::{OBJECTS, StoreRoot};
use crate::{Object, Problem, StoreError, descriptor, unsynced};
use penstock_host::reservation::{self, Reservation};
use penstock_host::sync::{Mutex, MutexGuard, RwLock, RwLockGuard};
use penstock_layout::{FileId, ObjectOffset};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

const SYNC_FAILED: &str = "a sync of it failed: what was written since the one before may be lost";

/// One open file.
pub(crate) struct DirObject {
    id: FileId,
    file: OwnedFd,
    place: Arc<StoreRoot>,
    /// A length that it is known to have had, by its record or this server's writes; used to judge short reads.
    /// `u64::MAX` while the record is bad.
    known: AtomicU64,
    /// Whether it is in the store's manifest.
    entered: AtomicBool,
    /// Whether it was changed since the last sync, as far as is known: clients may have the descriptor.
    dirty: AtomicBool,
    /// Whether it was found damaged when opened and is not yet accepted.
    damaged: AtomicBool,
    state: Mutex<State>,
    /// Locked exclusively to truncate, shared to store through mappings or to extend.
    cutting: RwLock,
}

/// A change in progress. It counts once it has ended: a concurrent sync need not cover it.
struct Changes<'a>(&'a DirObject);

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        self.0.note_changes();
    }
}

/// State that changes together with the record on disk.
struct State {
    recorded: Result<u64, String>,
    /// Only this server truncates it: since its last truncation it had at least this length.
    known: u64,
    /// Number of truncations: a sync overtaken by one must not record its length.
    cuts: u64,
    removed: bool,
}

/// An operation that extends an object.
struct Growth {
    /// Truncations before it.
    cuts: u64,
    len: u64,
}

/// What to do about a missing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Report that there is no such object.
    Find,
    /// Create it.
    Create,
    /// Create it, even if the store has lost the object.
    Accept,
}

impl DirObject {
    pub(crate) fn open(
        place: &Arc<StoreRoot>,
        id: FileId,
        way: Way,
    ) -> Result<DirObject, StoreError> {
        let shard = place.shard(id);
        let error = |what| move |e| StoreError::from_errno(what, place.object_path(id), e);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |flags| {
            penstock_host::fs::openat(
                shard.objects,
                shard.file(id),
                flags,
                Mode::RUSR | Mode::WUSR,
            )
        };
        let least = place.manifest.least(id);
        let file = match open(flags) {
            Err(Errno::NOENT) if way != Way::Accept && place.lost(id, least).is_some() => {
                return Err(place.loss(id, least));
            }
            Err(Errno::NOENT) if way != Way::Find => {
                let file = open(flags | OFlags::CREATE).map_err(|e| match e {
                    Errno::NOENT => StoreError::Damaged {
                        path: place.path.clone(),
                        what: format!("directory {OBJECTS}/{:02x}", shard.number),
                        detail: "missing".to_owned(),
                    },
                    e => error("create")(e),
                })?;
                place.touch(shard.number);
                file
            }
            Err(Errno::NOENT) => return Err(StoreError::NotFound(id, place.path.clone())),
            Ok(_) if way != Way::Accept && least.is_none() && id.0 < place.lost_below => {
                return Err(place.loss(id, least));
            }
            other => other.map_err(error("open"))?,
        };
        let stat = rustix::fs::fstat(&file).map_err(error("stat"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(StoreError::Damaged {
                path: place.object_path(id),
                what: "object".to_owned(),
                detail: "not a regular file".to_owned(),
            });
        }
        let recorded = match place.records.load(&shard, id, file.as_fd()) {
            _ if unsynced::marked(&stat) => Err(SYNC_FAILED.to_owned()),
            // Without its attribute, the file has replaced the one that was synced. A separate record is removed before
            // each truncation.
            Ok(None) if place.records == Records::Attribute => Ok(least.unwrap_or(0)),
            Ok(len) => Ok(len.unwrap_or(0)),
            Err(Bad::Content(what)) => Err(what.to_owned()),
            Err(Bad::Errno(e)) => return Err(error("read record of")(e)),
        };
        let damaged = match &recorded {
            Ok(recorded) => *recorded > stat.st_size.unsigned_abs(),
            Err(_) => true,
        };
        Ok(DirObject {
            id,
            place: place.clone(),
            known: AtomicU64::new(match &recorded {
                Ok(recorded) => stat.st_size.unsigned_abs().max(*recorded),
                Err(_) => u64::MAX,
            }),
            entered: AtomicBool::new(least.is_some()),
            dirty: AtomicBool::new(false),
            damaged: AtomicBool::new(damaged),
            state: Mutex::new(State {
                recorded,
                known: stat.st_size.unsigned_abs(),
                cuts: 0,
                removed: false,
            }),
            cutting: RwLock::new(),
            file,
        })
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each field is set after the step on disk that it describes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, what: &'static str) -> impl Fn(Errno) -> StoreError + '_ {
        move |e| StoreError::from_errno(what, self.place.object_path(self.id), e)
    }

    /// The record on disk has this value now.
    fn record(&self, state: &mut State, recorded: u64) {
        state.recorded = Ok(recorded);
        let known = state.known.max(recorded);
        self.known.store(known, Ordering::Release);
    }

    /// Called before writing this many bytes.
    fn written(&self, at: ObjectOffset, bytes: usize) -> Option<Growth> {
        let end = at.0.saturating_add(bytes as u64);
        if bytes == 0 { None } else { self.growth(end) }
    }

    /// Called before an operation that leaves the object at least `len` bytes long, if that is more than known.
    fn growth(&self, len: u64) -> Option<Growth> {
        (len > self.known.load(Ordering::Acquire)).then(|| Growth {
            cuts: self.state().cuts,
            len,
        })
    }

    /// The operation has succeeded.
    fn grown(&self, growth: Option<Growth>) {
        let Some(Growth { cuts, len }) = growth else {
            return;
        };
        let mut state = self.state();
        // A truncation in between may have undone it.
        if state.cuts == cuts && state.recorded.is_ok() && len > state.known {
            state.known = len;
            self.known.fetch_max(len, Ordering::AcqRel);
        }
    }

    /// Whether a sync would record something new: the object itself, or a greater length.
    pub(crate) fn unnoted(&self) -> bool {
        let state = self.state();
        let Ok(recorded) = state.recorded else {
            return false;
        };
        if state.removed || self.damaged.load(Ordering::Acquire) {
            return false;
        }
        !self.entered.load(Ordering::Acquire)
            || descriptor::len(self.file.as_fd()).is_ok_and(|len| len > recorded)
    }

    /// Whether it can be closed without losing a write-back error.
    pub(crate) fn is_clean(&self) -> bool {
        // A damaged object has a mark or differs from its record, which is found when it is opened again.
        !self.dirty.load(Ordering::SeqCst) || self.damaged.load(Ordering::Acquire)
    }

    /// Its name is about to be removed.
    pub(crate) fn removed(&self) {
        self.state().removed = true;
    }

    /// Compares the length with the required one, while neither can decrease.
    pub(crate) fn examine(&self) -> Option<Problem> {
        self.examine_as(&self.state())
    }

    fn examine_as(&self, state: &State) -> Option<Problem> {
        let actual = match descriptor::len(self.file.as_fd()) {
            Ok(len) => len,
            Err(e) => return Some(Problem::Unreadable(e.to_string())),
        };
        match &state.recorded {
            Err(detail) => Some(Problem::BadRecord(detail.clone())),
            Ok(recorded) if state.known.max(*recorded) > actual && !state.removed => {
                Some(Problem::Truncated {
                    recorded: state.known.max(*recorded),
                    actual,
                })
            }
            Ok(_) => None,
        }
    }

    /// The error of a damaged object. An object truncated from outside is refused from now on, also after a restart:
    /// the next write beyond the cut would hide the damage.
    fn damage(&self, state: &mut State, problem: Problem) -> StoreError {
        let detail = match problem {
            Problem::BadRecord(detail) => format!("record: {detail}"),
            Problem::Truncated { recorded, actual } => {
                if !self.damaged.swap(true, Ordering::AcqRel) && state.recorded != Ok(recorded) {
                    let shard = self.place.shard(self.id);
                    let noted =
                        self.place
                            .records
                            .raise(&shard, self.id, self.file.as_fd(), recorded);
                    match noted {
                        Ok(()) => self.record(state, recorded),
                        Err(e) => log::warn!("{}", self.error("record length of")(e)),
                    }
                }
                format!("{actual} B long, but {recorded} B were written")
            }
            _ => "shorter than what was written".to_owned(),
        };
        StoreError::Damaged {
            path: self.place.object_path(self.id),
            what: "object".to_owned(),
            detail,
        }
    }

    /// A sync of the file has failed with `e`. The system reports that once. It may have dropped what it could not
    /// write, and the next sync would succeed without it. So the object counts as damaged, also after a restart, until
    /// somebody accepts it.
    fn unsynced(&self, state: &mut State, e: Errno) -> StoreError {
        state.recorded = Err(SYNC_FAILED.to_owned());
        self.known.store(u64::MAX, Ordering::Release);
        self.damaged.store(true, Ordering::Release);
        let marked = unsynced::mark(self.file.as_fd());
        let error = self.error("sync")(e);
        log::error!("{error}; the object counts as damaged from now on");
        if let Err(e) = marked {
            self.place
                .fail(&format!("{error}, and the damage could not be marked: {e}"));
        }
        error
    }

    /// Rewrites the file's contents in place; holes stay holes.
    fn write_again(&self) -> Result<(), Errno> {
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(()),
                Err(e) => return Err(e),
            };
            let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(data))?;
            at = data;
            while at < hole {
                let want = usize::try_from(hole - at).map_or(buffer.len(), |n| n.min(buffer.len()));
                let n = descriptor::read_at(self.file.as_fd(), at, &mut buffer[..want])?;
                if n == 0 {
                    return Ok(());
                }
                descriptor::write_at(self.file.as_fd(), at, &buffer[..n])?;
                at += n as u64;
            }
        }
    }

    /// Refuses operations that would hide damage.
    fn sound(&self) -> Result<(), StoreError> {
        if self.damaged.load(Ordering::Acquire) {
            let mut state = self.state();
            let problem = self.examine_as(&state).unwrap_or(Problem::Foreign);
            return Err(self.damage(&mut state, problem));
        }
        Ok(())
    }

    /// A read ended early, at `end` bytes: checks that this is the object's end.
    fn check_end(&self, end: u64) -> Result<(), StoreError> {
        if end < self.known.load(Ordering::Acquire) {
            let mut state = self.state();
            if let Some(problem) = self.examine_as(&state) {
                return Err(self.damage(&mut state, problem));
            }
        }
        Ok(())
    }

    /// [`Object::sync`] without the manifest. Returns the durable length.
    pub(crate) fn sync_alone(&self) -> Result<u64, StoreError> {
        self.sound()?;
        self.place.sound()?;
        // Changes from now on belong to the next sync.
        let dirty = self.dirty.swap(false, Ordering::SeqCst);
        let done = self.sync_now();
        if done.is_err() && dirty {
            self.note_changes();
        }
        done
    }

    fn sync_now(&self) -> Result<u64, StoreError> {
        let cuts = self.state().cuts;
        let stat = rustix::fs::fstat(&self.file).map_err(self.error("stat"))?;
        let len = stat.st_size.unsigned_abs();
        penstock_host::fs::fdatasync(&self.file)
            .map_err(|e| self.unsynced(&mut self.state(), e))?;
        let shard = self.place.shard(self.id);
        self.place.sync_shard(shard.number)?;
        let mut state = self.state();
        if state.removed {
            return Ok(len);
        }
        if stat.st_nlink == 0 {
            return Err(self.place.loss(self.id, Some(len)));
        }
        if state.cuts != cuts {
            return Ok(len);
        }
        // Clients may have extended it meanwhile; or somebody has truncated the file from outside.
        let problem = self.examine_as(&state);
        if let Some(problem) = problem {
            return Err(self.damage(&mut state, problem));
        }
        if state
            .recorded
            .as_ref()
            .is_ok_and(|recorded| *recorded >= len)
        {
            return Ok(len);
        }
        self.place
            .records
            .raise(&shard, self.id, self.file.as_fd(), len)
            .map_err(self.error("record length of"))?;
        state.known = state.known.max(len);
        self.record(&mut state, len);
        Ok(len)
    }

    /// It is in the manifest now.
    pub(crate) fn note_entered(&self) {
        self.entered.store(true, Ordering::Release);
    }

    /// Accepts the object as it reads now. Nobody may write to it meanwhile.
    pub(crate) fn accept(&self) -> Result<(), StoreError> {
        self.place.sound()?;
        let mut state = self.state();
        let len = descriptor::len(self.file.as_fd()).map_err(self.error("stat"))?;
        if state.recorded.is_err() {
            // After a failed sync the system regards what it has dropped as written: only rewriting it makes it
            // durable.
            self.write_again().map_err(self.error("write again"))?;
        }
        // Synced before it is recorded: the contents may never have been synced.
        penstock_host::fs::fdatasync(&self.file).map_err(|e| self.unsynced(&mut state, e))?;
        self.place
            .records
            .raise(&self.place.shard(self.id), self.id, self.file.as_fd(), len)
            .map_err(self.error("record length of"))?;
        unsynced::clear(self.file.as_fd()).map_err(self.error("set mode of"))?;
        penstock_host::fs::fsync(&self.file).map_err(self.error("sync"))?;
        state.known = len;
        self.record(&mut state, len);
        self.damaged.store(false, Ordering::Release);
        drop(state);
        self.place.sync_shard(self.place.shard(self.id).number)?;
        self.place.enter(&[(self.id, len)])?;
        self.note_entered();
        Ok(())
    }
}

impl Object for DirObject {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        let n = descriptor::read_at(self.file.as_fd(), at.0, buf).map_err(self.error("read"))?;
        if n < buf.len() {
            self.check_end(at.0.saturating_add(n as u64))?;
        }
        Ok(n)
    }

    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        self.sound()?;
        let _changes = Changes(self);
        let growth = self.written(at, buf.len());
        let steady = growth.as_ref().and_then(|_| self.steady());
        descriptor::write_at(self.file.as_fd(), at.0, buf).map_err(self.error("write"))?;
        drop(steady);
        self.grown(growth);
        Ok(())
    }

    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        let wanted: usize = bufs.iter().map(|b| b.len()).sum();
        let n = descriptor::read_vectored_at(self.file.as_fd(), at.0, bufs)
            .map_err(self.error("read"))?;
        if n < wanted {
            self.check_end(at.0.saturating_add(n as u64))?;
        }
        Ok(n)
    }

    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        self.sound()?;
        let _changes = Changes(self);
        let growth = self.written(at, bufs.iter().map(|b| b.len()).sum());
        let steady = growth.as_ref().and_then(|_| self.steady());
        descriptor::write_vectored_at(self.file.as_fd(), at.0, bufs)
            .map_err(self.error("write"))?;
        drop(steady);
        self.grown(growth);
        Ok(())
    }

    fn len(&self) -> Result<u64, StoreError> {
        self.sound()?;
        let len = descriptor::len(self.file.as_fd()).map_err(self.error("stat"))?;
        self.check_end(len)?;
        Ok(len)
    }

    fn stored_len(&self) -> Result<u64, StoreError> {
        descriptor::len(self.file.as_fd()).map_err(self.error("stat"))
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.cut(len, u64::MAX).map(drop)
    }

    fn cut(&self, len: u64, end: u64) -> Result<bool, StoreError> {
        self.sound()?;
        let _changes = Changes(self);
        // Locked before the state, which a holder of `steady` may lock.
        let _cutting = self.cutting.write();
        let mut state = self.state();
        if end < u64::MAX
            && descriptor::len(self.file.as_fd()).map_err(self.error("examine"))? > end
        {
            return Ok(false);
        }
        if !state.removed
            && state
                .recorded
                .as_ref()
                .is_ok_and(|recorded| *recorded > len)
        {
            let shard = self.place.shard(self.id);
            let lowered = self
                .place
                .records
                .lower(&shard, self.id, self.file.as_fd(), len)
                .map_err(self.error("record length of"))?;
            if self.place.records == Records::Beside {
                self.place.removed_record(&shard)?;
            }
            state.recorded = Ok(lowered);
        }
        state.cuts += 1;
        let cut = penstock_host::fs::ftruncate(&self.file, len);
        if let Ok(recorded) = state.recorded {
            state.known = match cut {
                Ok(()) => len,
                Err(_) => recorded.min(len),
            };
            self.record(&mut state, recorded);
        }
        cut.map_err(self.error("set length of"))?;
        Ok(true)
    }

    fn extend(&self, len: u64) -> Result<bool, StoreError> {
        self.sound()?;
        let _changes = Changes(self);
        let growth = self.growth(len);
        let extended = descriptor::extend(self.file.as_fd(), len).map_err(self.error("extend"))?;
        self.grown(growth.filter(|_| extended));
        Ok(extended)
    }

    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.sound()?;
        let _changes = Changes(self);
        descriptor::allocate(self.file.as_fd(), at.0, len).map_err(self.error("allocate"))
    }

    fn hold(&self, len: u64) -> Result<Option<Reservation>, StoreError> {
        self.sound()?;
        let directory = self.place.shard(self.id).objects;
        reservation::hold(directory, self.file.as_fd(), len).map_err(self.error("hold space for"))
    }

    fn sync(&self) -> Result<(), StoreError> {
        let len = self.sync_alone()?;
        if !self.entered.load(Ordering::Acquire) && !self.state().removed {
            self.place.enter(&[(self.id, len)])?;
            self.note_entered();
        }
        Ok(())
    }

    fn mappable(&self) -> Option<&dyn Mappable> {
        (!self.damaged.load(Ordering::Acquire)).then_some(self)
    }
}

impl Mappable for DirObject {
    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn steady(&self) -> Option<RwLockGuard<'_>> {
        Some(self.cutting.read())
    }

    fn note_changes(&self) {
        // Mostly set already: then the cache line is not taken from other CPUs.
        if !self.dirty.load(Ordering::SeqCst) {
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    fn observe(&self) {
        let mut state = self.state();
        if let (Ok(len), Ok(_)) = (descriptor::len(self.file.as_fd()), &state.recorded)
            && len > state.known
        {
            state.known = len;
            self.known.fetch_max(len, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::dir::DirStore;
    use crate::full_disk::Disk;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn after_a_failed_sync_nothing_pretends() {
        let dir = tempfile::tempdir().unwrap();
        for (n, records) in [Records::Beside, Records::Attribute]
            .into_iter()
            .enumerate()
        {
            let path = dir.path().join(n.to_string());
            let open = || DirStore::open_with(&path, "d", 0, Some(records), None).unwrap();
            let id = FileId(5);
            let store = open();
            let object = store.object(id, true).unwrap();
            if records == Records::Attribute
                && Records::supported(object.file.as_fd()) != Ok(records)
            {
                continue;
            }
            object.write_at(ObjectOffset(0), b"safe").unwrap();
            object.sync().unwrap();
            object.write_at(ObjectOffset(1 << 20), b"lost?").unwrap();
            let told = object.unsynced(&mut object.state(), Errno::IO).to_string();
            assert!(
                told.contains("sync") && told.contains("0000000000000005"),
                "{told}"
            );
            let refused = |object: &DirObject| {
                for e in [
                    object.sync().unwrap_err(),
                    object.write_at(ObjectOffset(0), b"x").unwrap_err(),
                ] {
                    assert!(e.to_string().contains("a sync of it failed"), "{e}");
                }
                let mut found = [0; 4];
                assert_eq!(object.read_at(ObjectOffset(0), &mut found).unwrap(), 4);
                assert_eq!(&found, b"safe");
            };
            refused(&object);
            // A restarted server knows of it.
            drop((object, store));
            let store = open();
            let object = store.object(id, false).unwrap();
            refused(&object);
            let mut findings = 0;
            store
                .verify(&mut |finding| {
                    assert_eq!(finding.object, Some(id));
                    findings += 1;
                })
                .unwrap();
            assert_eq!(findings, 1);
            let blocks = || rustix::fs::fstat(&object.file).unwrap().st_blocks;
            let before = blocks();
            store.accept(id).unwrap();
            assert_eq!(blocks(), before, "holes stay holes");
            object.sync().unwrap();
            assert_eq!(object.len().unwrap(), (1 << 20) + 5);
        }
    }

    #[test]
    fn a_sync_that_fails_on_a_full_disk_is_known_after_a_restart() {
        for attributes in [false, true] {
            let disk = Disk {
                attributes,
                ..Disk::default()
            };
            let dir = tempfile::tempdir().unwrap();
            disk.run(|disk| {
                let open = || DirStore::open(dir.path(), "d", 0).unwrap();
                let (id, other) = (FileId(5), FileId(21));
                let store = open();
                let object = store.object(id, true).unwrap();
                let fine = store.object(other, true).unwrap();
                object.write_at(ObjectOffset(0), b"lost?").unwrap();
                // Never synced: only its file exists, and nothing can be created.
                disk.full.store(true, SeqCst);
                disk.fails_to_sync.store(true, SeqCst);
                let told = object.sync().unwrap_err().to_string();
                assert!(told.contains("sync"), "{told}");
                disk.fails_to_sync.store(false, SeqCst);
                object.sync().unwrap_err();
                // The server restarts, after a clean shutdown or not; first with the disk as before, then with space.
                drop((object, fine, store));
                let store = open();
                let object = store.object(id, false).unwrap();
                for full in [true, false] {
                    disk.full.store(full, SeqCst);
                    let e = object.sync().unwrap_err().to_string();
                    assert!(e.contains("a sync of it failed"), "{e}");
                }
                store.object(other, false).unwrap().sync().unwrap();
                // A sync that fails during the acceptance leaves it as it is.
                disk.fails_to_sync.store(true, SeqCst);
                store.accept(id).unwrap_err();
                disk.fails_to_sync.store(false, SeqCst);
                object.sync().unwrap_err();
                store.accept(id).unwrap();
                object.sync().unwrap();
                drop((object, store));
                let object = open().object(id, false).unwrap();
                assert!(object.examine().is_none());
                object.sync().unwrap();
            });
        }
    }

    #[test]
    fn where_not_even_the_mark_can_be_set_no_sync_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        Disk::default().run(|disk| {
            let store = DirStore::open(dir.path(), "d", 0).unwrap();
            let object = store.object(FileId(5), true).unwrap();
            let other = store.object(FileId(21), true).unwrap();
            disk.read_only.store(true, SeqCst);
            disk.fails_to_sync.store(true, SeqCst);
            object.sync().unwrap_err();
            disk.read_only.store(false, SeqCst);
            disk.fails_to_sync.store(false, SeqCst);
            for object in [object, other] {
                object.sync().unwrap_err();
            }
        });
    }

    #[test]
    fn a_directory_that_cannot_be_opened_fails_one_sync() {
        let dir = tempfile::tempdir().unwrap();
        Disk::default().run(|disk| {
            let store = DirStore::open(dir.path(), "d", 0).unwrap();
            let first = store.incarnation();
            let errors = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
            for (id, errno) in errors.into_iter().enumerate() {
                let object = store.object(FileId(id as u64), true).unwrap();
                object.write_at(ObjectOffset(0), b"here").unwrap();
                disk.opens_nothing.store(errno.raw_os_error(), SeqCst);
                object.sync().unwrap_err();
                assert!(!object.is_clean(), "no sync has covered it");
                disk.opens_nothing.store(0, SeqCst);
                object.sync().unwrap();
                assert!(object.is_clean());
            }
            drop(store);
            let store = DirStore::open(dir.path(), "d", 0).unwrap();
            assert_eq!(store.incarnation(), first, "nothing is lost");
        });
    }

    #[test]
    fn a_write_back_that_fails_after_a_kill_ends_the_incarnation() {
        for read_only in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            Disk::default().run(|disk| {
                let open = || DirStore::open(dir.path(), "d", 0);
                let store = open().unwrap();
                let first = store.incarnation();
                let object = store.object(FileId(5), true).unwrap();
                object.write_at(ObjectOffset(0), b"lost?").unwrap();
                // Dropped without a stop, like a killed server.
                drop((object, store));
                let store = open().unwrap();
                assert_eq!(store.incarnation(), first, "nothing is lost");
                drop(store);
                disk.lost.store(true, SeqCst);
                disk.read_only.store(read_only, SeqCst);
                if read_only {
                    // The next server could not be told.
                    assert!(open().is_err());
                    return;
                }
                // The file records it even if the new one cannot be written.
                disk.full.store(true, SeqCst);
                let second = open().unwrap().incarnation();
                assert_ne!(second, first);
                disk.full.store(false, SeqCst);
                assert_ne!(open().unwrap().incarnation(), first, "told once");
            });
        }
    }

    #[test]
    fn a_failed_sync_of_a_directory_ends_all_syncs() {
        // By a sync, and by a truncation that must wait until the separate record is gone.
        for cut in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            Disk::default().run(|disk| {
                let store = DirStore::open(dir.path(), "d", 0).unwrap();
                let first = store.incarnation();
                let object = store.object(FileId(1), true).unwrap();
                object.write_at(ObjectOffset(0), b"here").unwrap();
                if cut {
                    object.sync().unwrap();
                }
                disk.fails_to_sync_names.store(true, SeqCst);
                if cut {
                    object.set_len(2).unwrap_err()
                } else {
                    object.sync().unwrap_err()
                };
                disk.fails_to_sync_names.store(false, SeqCst);
                let e = object.sync().unwrap_err().to_string();
                assert!(e.contains("start the server again"), "{e}");
                object.write_at(ObjectOffset(0), b"x").unwrap();
                drop((object, store));
                let store = DirStore::open(dir.path(), "d", 0).unwrap();
                assert_ne!(store.incarnation(), first, "something may be lost");
                store.object(FileId(1), true).unwrap().sync().unwrap();
            });
        }
    }
}
