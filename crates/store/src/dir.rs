//! Objects as sparse files in a directory.
//!
//! ```text
//! superblock                      for whom the store was made (checksummed text)
//! lock                            held by the server (flock); names its process
//! objects/0f/000000000000003f     one sparse file per object, under its id modulo 16
//! ```
//! Creating is one system call; [`Store::sync`] makes it durable by syncing the subdirectories touched
//! since, at most 16: enough for threads not to meet in one directory, few enough to make and to walk. An object's sync records its length ([`crate::record`]), so that an object cut
//! short is noticed: when opened, when read, and by `verify`. A damaged object can still be read where
//! it has bytes; everything else is refused until `accept`.
use crate::cache::Cache;
use crate::record::{Bad, Records, Shard};
use crate::superblock::{self, Superblock};
use crate::{Finding, Object, Problem, Store, StoreError, descriptor};
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::{FileId, ObjectOffset};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// Idle objects kept open, unless the limit of open files is below twice that.
const OPEN_OBJECTS: usize = 4096;
/// Locks that the cache is divided among, so that one slow open does not hold up all.
const CACHE_LOCKS: usize = 16;
/// Subdirectories of objects; part of the store's format.
const SHARDS: usize = 16;
const LOCK: &str = "lock";
const OBJECTS: &str = "objects";

/// The directory backend.
pub(crate) struct DirStore {
    place: Arc<Place>,
    caches: Vec<Mutex<Cache<DirObject>>>,
}

/// What objects share with their store.
struct Place {
    path: String,
    objects: OwnedFd,
    records: Records,
    /// Creations and removals so far in each subdirectory, and how many of them are durable.
    changes: [Changes; SHARDS],
    /// Held for life; the system lets go of it when the process ends, however it ends.
    _lock: OwnedFd,
}

struct Changes {
    made: AtomicU64,
    durable: AtomicU64,
}

impl Changes {
    /// An earlier server may have ended before it synced what it had made: the first sync has something to do.
    fn unknown() -> Changes {
        Changes {
            made: AtomicU64::new(1),
            durable: AtomicU64::new(0),
        }
    }
}

impl Place {
    fn shard(&self, id: FileId) -> Shard<'_> {
        Shard {
            objects: self.objects.as_fd(),
            number: (id.0 % SHARDS as u64) as u8,
        }
    }

    fn object_path(&self, id: FileId) -> String {
        format!("{}/{OBJECTS}/{}", self.path, self.shard(id).file(id))
    }

    fn touch(&self, shard: u8) {
        self.changes[usize::from(shard)]
            .made
            .fetch_add(1, Ordering::SeqCst);
    }

    /// Makes creations and removals in one subdirectory durable.
    fn sync_shard(&self, number: u8) -> Result<(), StoreError> {
        let changes = &self.changes[usize::from(number)];
        let made = changes.made.load(Ordering::SeqCst);
        if changes.durable.load(Ordering::SeqCst) >= made {
            return Ok(());
        }
        let shard = Shard {
            objects: self.objects.as_fd(),
            number,
        };
        shard
            .open()
            .and_then(penstock_host::fs::fsync)
            .map_err(|e| {
                let path = format!("{}/{OBJECTS}/{number:02x}", self.path);
                StoreError::from_errno("sync directory", path, e)
            })?;
        changes.durable.fetch_max(made, Ordering::SeqCst);
        Ok(())
    }
}

impl DirStore {
    /// Opens the store in `path`, making one if there is none.
    pub(crate) fn open(path: &Path, deployment: &str, server: u32) -> Result<DirStore, StoreError> {
        DirStore::open_with(path, deployment, server, None)
    }

    /// The same, with records kept as told instead of as the file system allows.
    pub(crate) fn open_with(
        path: &Path,
        deployment: &str,
        server: u32,
        records: Option<Records>,
    ) -> Result<DirStore, StoreError> {
        let name = path.display().to_string();
        if deployment.is_empty() || deployment.contains(char::is_whitespace) {
            return Err(StoreError::from_errno(
                "use a deployment id that is empty or has spaces for",
                name,
                Errno::INVAL,
            ));
        }
        let error = |what| {
            let name = name.clone();
            move |e| StoreError::from_errno(what, name, e)
        };
        std::fs::create_dir_all(path).map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            error("create directory")(errno)
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(error("open"))?;
        let lock = take_lock(root.as_fd(), &name)?;
        let supported = match records {
            Some(records) => records,
            None => Records::supported(lock.as_fd()).map_err(error("use attributes in"))?,
        };
        let expected = Superblock {
            deployment: deployment.to_owned(),
            server,
            records: supported,
        };
        let mut records = supported;
        match Superblock::load(root.as_fd(), &name)? {
            Some(found) if found.deployment != deployment || found.server != server => {
                let whose =
                    |s: &Superblock| format!("server {} of deployment {}", s.server, s.deployment);
                return Err(StoreError::WrongDeployment {
                    path: name.clone(),
                    found: whose(&found),
                    expected: whose(&expected),
                });
            }
            // A store keeps its kind, unless it was moved to where that kind does not work.
            Some(found) if found.records == supported || supported == Records::Attribute => {
                records = found.records;
            }
            Some(_) => expected.store(root.as_fd(), &name)?,
            None => {
                format(root.as_fd(), path)?;
                expected.store(root.as_fd(), &name)?;
            }
        }
        let objects = rustix::fs::openat(&root, OBJECTS, flags, Mode::empty())
            .map_err(error("open objects of"))?;
        let bound = idle_bound() / CACHE_LOCKS;
        Ok(DirStore {
            place: Arc::new(Place {
                path: name,
                objects,
                records,
                changes: std::array::from_fn(|_| Changes::unknown()),
                _lock: lock,
            }),
            caches: (0..CACHE_LOCKS)
                .map(|_| Mutex::new(Cache::new(bound)))
                .collect(),
        })
    }

    fn cache(&self, id: FileId) -> MutexGuard<'_, Cache<DirObject>> {
        let cache = &self.caches[(id.0 % CACHE_LOCKS as u64) as usize];
        // The index is mended by every operation or not touched: usable also after a panic elsewhere.
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, id: FileId, create: bool) -> Result<Arc<DirObject>, StoreError> {
        let mut cache = self.cache(id);
        if let Some(object) = cache.get(id) {
            return Ok(object);
        }
        // The file is opened under the lock: an object must not be open twice, nor come back from the
        // cache after its removal.
        let object = Arc::new(DirObject::open(&self.place, id, create)?);
        let displaced = cache.insert(id, object.clone());
        drop(cache);
        drop(displaced);
        Ok(object)
    }

    /// Names in one subdirectory, or in the one above (`None`).
    fn names(&self, shard: Option<usize>) -> Result<Vec<String>, StoreError> {
        let path = match shard {
            Some(number) => format!("{}/{OBJECTS}/{number:02x}", self.place.path),
            None => format!("{}/{OBJECTS}", self.place.path),
        };
        names(&path)
    }
}

/// The names in a directory.
fn names(path: &str) -> Result<Vec<String>, StoreError> {
    let error = |source| StoreError::Io {
        what: "list",
        path: path.to_owned(),
        source,
    };
    std::fs::read_dir(path)
        .map_err(error)?
        .map(|entry| Ok(entry.map_err(error)?.file_name().to_string_lossy().into()))
        .collect()
}

/// The id that a file name in subdirectory `shard` stands for.
fn id_of(shard: usize, name: &str) -> Option<FileId> {
    let id = FileId(u64::from_str_radix(name, 16).ok()?);
    let ours = format!("{:016x}", id.0) == name && id.0 as usize % SHARDS == shard;
    ours.then_some(id)
}

fn idle_bound() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = limit.map_or(u64::MAX, |l| l / 2);
    usize::try_from(half).map_or(OPEN_OBJECTS, |half| half.min(OPEN_OBJECTS))
}

/// Takes the lock for life or says who has it.
fn take_lock(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, StoreError> {
    let error = |e| StoreError::from_errno("lock", path, e);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::openat(root, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(error)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            let mut text = [0; 64];
            let n = descriptor::read_at(lock.as_fd(), 0, &mut text).unwrap_or(0);
            let holder = match String::from_utf8_lossy(&text[..n]).trim() {
                "" => "unknown process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(StoreError::InUse {
                path: path.to_owned(),
                holder,
            });
        }
        Err(e) => return Err(error(e)),
    }
    penstock_host::fs::ftruncate(&lock, 0).map_err(error)?;
    let pid = format!("{}\n", std::process::id());
    descriptor::write_at(lock.as_fd(), 0, pid.as_bytes()).map_err(error)?;
    Ok(lock)
}

/// Makes the subdirectories. What an interrupted attempt left is taken over; objects without a
/// superblock are not: nobody knows whose they are.
fn format(root: BorrowedFd<'_>, path: &Path) -> Result<(), StoreError> {
    let name = path.display().to_string();
    let make = |dir: &str| match penstock_host::fs::mkdirat(root, dir, Mode::RWXU) {
        Err(Errno::EXIST) | Ok(()) => Ok(()),
        Err(e) => Err(StoreError::from_errno("make store in", name.clone(), e)),
    };
    make(OBJECTS)?;
    for shard in 0..SHARDS {
        let dir = format!("{OBJECTS}/{shard:02x}");
        make(&dir)?;
        if !names(&format!("{name}/{dir}"))?.is_empty() {
            return Err(StoreError::Damaged {
                path: name,
                what: "superblock".to_owned(),
                detail: "missing, but there are objects; restore it from a backup or name another directory"
                    .to_owned(),
            });
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(root, OBJECTS, flags, Mode::empty())
        .and_then(penstock_host::fs::fsync)
        .map_err(|e| StoreError::from_errno("make store in", name, e))
}

impl Store for DirStore {
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError> {
        Ok(self.object(id, create)?)
    }

    fn remove(&self, id: FileId) -> Result<(), StoreError> {
        let place = &self.place;
        let shard = place.shard(id);
        let error = |e| match e {
            Errno::NOENT => StoreError::NotFound(id, place.path.clone()),
            e => StoreError::from_errno("remove", place.object_path(id), e),
        };
        let mut cache = self.cache(id);
        let held = cache.remove(id);
        // Freeing a large file takes time: the last reference goes outside the lock.
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let last = rustix::fs::openat(shard.objects, shard.file(id), flags, Mode::empty());
        if let Some(object) = &held {
            object.state().removed = true;
        }
        let done = place
            .records
            .forget(&shard, id)
            .and_then(|()| penstock_host::fs::unlinkat(shard.objects, shard.file(id)));
        place.touch(shard.number);
        drop(cache);
        drop((held, last));
        done.map_err(error)
    }

    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError> {
        // The smallest ids of all subdirectories: whoever asks for what follows an id counts on the order of ids.
        let mut least: BinaryHeap<FileId> = BinaryHeap::new();
        for number in 0..SHARDS {
            for name in &self.names(Some(number))? {
                let id = id_of(number, name).filter(|id| after.is_none_or(|after| *id > after));
                least.extend(id);
                if least.len() > limit {
                    least.pop();
                }
            }
        }
        let ids = least.into_sorted_vec();
        let (full, last) = (ids.len() == limit, ids.last().copied());
        let mut page = Vec::with_capacity(ids.len());
        for id in ids {
            let shard = self.place.shard(id);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::statat(shard.objects, shard.file(id), flags) {
                Ok(stat) => page.push((id, stat.st_size.unsigned_abs())),
                Err(Errno::NOENT) => {} // removed meanwhile
                Err(e) => {
                    let path = self.place.object_path(id);
                    return Err(StoreError::from_errno("stat", path, e));
                }
            }
        }
        if full && page.len() < limit && last.is_some() {
            // A short page would say that there are no more.
            page.extend(self.list_after(last, limit - page.len())?);
        }
        Ok(page)
    }

    fn sync(&self) -> Result<(), StoreError> {
        (0..SHARDS).try_for_each(|shard| self.place.sync_shard(shard as u8))
    }

    fn space(&self) -> Result<(u64, u64), StoreError> {
        let stat = rustix::fs::fstatvfs(&self.place.objects)
            .map_err(|e| StoreError::from_errno("ask for space in", self.place.path.clone(), e))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok((bytes(stat.f_blocks), bytes(stat.f_bavail)))
    }

    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        let place = &self.place;
        let mut foreign = |path| {
            report(Finding {
                object: None,
                path,
                problem: Problem::Foreign,
            });
        };
        for name in names(&place.path)? {
            if ![superblock::NAME, LOCK, OBJECTS, "lost+found"].contains(&&*name) {
                foreign(format!("{}/{name}", place.path));
            }
        }
        for name in self.names(None)? {
            if !(0..SHARDS).any(|shard| format!("{shard:02x}") == name) {
                foreign(format!("{}/{OBJECTS}/{name}", place.path));
            }
        }
        for shard in 0..SHARDS {
            let names = match self.names(Some(shard)) {
                Ok(names) => names,
                Err(e) => {
                    report(Finding {
                        object: None,
                        path: format!("{}/{OBJECTS}/{shard:02x}", place.path),
                        problem: Problem::Unreadable(e.to_string()),
                    });
                    continue;
                }
            };
            for name in &names {
                let path = format!("{}/{OBJECTS}/{shard:02x}/{name}", place.path);
                // A crash may leave the beginning of a record; the next one takes its place.
                let record = name.strip_suffix(".new").unwrap_or(name);
                let record_of = record.strip_suffix(".record").filter(|object| {
                    place.records == Records::Beside && id_of(shard, object).is_some()
                });
                let (object, problem) = match id_of(shard, name) {
                    Some(id) => (Some(id), self.examine(id)),
                    None if record_of.is_some_and(|o| names.iter().any(|n| n == o)) => continue,
                    None => (None, Some(Problem::Foreign)),
                };
                if let Some(problem) = problem {
                    report(Finding {
                        object,
                        path,
                        problem,
                    });
                }
            }
        }
        Ok(())
    }

    fn accept(&self, id: FileId) -> Result<(), StoreError> {
        self.object(id, false)?.accept()
    }

    fn describe(&self) -> String {
        format!("dir:{}", self.place.path)
    }
}

impl DirStore {
    /// What is wrong with one object.
    fn examine(&self, id: FileId) -> Option<Problem> {
        match self.object(id, false) {
            Ok(object) => object.examine(),
            Err(StoreError::NotFound(..)) => None, // removed meanwhile
            Err(e) => Some(Problem::Unreadable(e.to_string())),
        }
    }
}

/// One open file.
struct DirObject {
    id: FileId,
    file: OwnedFd,
    place: Arc<Place>,
    /// Copy of `State::recorded` for short reads; `u64::MAX` while the record is bad.
    recorded: AtomicU64,
    /// Found damaged when opened, not yet accepted.
    damaged: AtomicBool,
    state: Mutex<State>,
}

/// Changes together with the record on disk.
struct State {
    recorded: Result<u64, String>,
    /// Number of cuts: a sync that was overtaken by one must not record its length.
    cuts: u64,
    removed: bool,
}

impl DirObject {
    fn open(place: &Arc<Place>, id: FileId, create: bool) -> Result<DirObject, StoreError> {
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
        let file = match open(flags) {
            Err(Errno::NOENT) if create => {
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
            Ok(len) => Ok(len),
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
            recorded: AtomicU64::new(*recorded.as_ref().unwrap_or(&u64::MAX)),
            damaged: AtomicBool::new(damaged),
            state: Mutex::new(State {
                recorded,
                cuts: 0,
                removed: false,
            }),
            file,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Fields are set one by one after the step on disk that they describe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, what: &'static str) -> impl Fn(Errno) -> StoreError + '_ {
        move |e| StoreError::from_errno(what, self.place.object_path(self.id), e)
    }

    fn record(&self, state: &mut State, recorded: u64) {
        state.recorded = Ok(recorded);
        self.recorded.store(recorded, Ordering::Release);
    }

    /// Compares length and record while neither can shrink.
    fn examine(&self) -> Option<Problem> {
        let state = self.state();
        let actual = match descriptor::len(self.file.as_fd()) {
            Ok(len) => len,
            Err(e) => return Some(Problem::Unreadable(e.to_string())),
        };
        match &state.recorded {
            Err(detail) => Some(Problem::BadRecord(detail.clone())),
            Ok(recorded) if *recorded > actual && !state.removed => Some(Problem::Truncated {
                recorded: *recorded,
                actual,
            }),
            Ok(_) => None,
        }
    }

    fn damage(&self) -> StoreError {
        let detail = match self.examine() {
            Some(Problem::BadRecord(detail)) => format!("record: {detail}"),
            Some(Problem::Truncated { recorded, actual }) => {
                format!("{actual} B long, but {recorded} B were synced")
            }
            _ => "shorter than what was synced".to_owned(),
        };
        StoreError::Damaged {
            path: self.place.object_path(self.id),
            what: "object".to_owned(),
            detail,
        }
    }

    /// Refuses what would hide damage.
    fn sound(&self) -> Result<(), StoreError> {
        if self.damaged.load(Ordering::Acquire) {
            return Err(self.damage());
        }
        Ok(())
    }

    /// A read that ended `end` bytes into the object was short: rightly so?
    fn check_end(&self, end: u64) -> Result<(), StoreError> {
        if end < self.recorded.load(Ordering::Acquire) && self.examine().is_some() {
            return Err(self.damage());
        }
        Ok(())
    }

    fn accept(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        let len = descriptor::len(self.file.as_fd()).map_err(self.error("stat"))?;
        // Not claimed before it is true: what is there may never have been synced.
        penstock_host::fs::fdatasync(&self.file).map_err(self.error("sync"))?;
        self.place
            .records
            .raise(&self.place.shard(self.id), self.id, self.file.as_fd(), len)
            .map_err(self.error("record length of"))?;
        self.record(&mut state, len);
        self.damaged.store(false, Ordering::Release);
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
        descriptor::write_at(self.file.as_fd(), at.0, buf).map_err(self.error("write"))
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
        descriptor::write_vectored_at(self.file.as_fd(), at.0, bufs).map_err(self.error("write"))
    }

    fn len(&self) -> Result<u64, StoreError> {
        self.sound()?;
        descriptor::len(self.file.as_fd()).map_err(self.error("stat"))
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.sound()?;
        let mut state = self.state();
        if !state.removed
            && state
                .recorded
                .as_ref()
                .is_ok_and(|recorded| *recorded > len)
        {
            let lowered = self
                .place
                .records
                .lower(&self.place.shard(self.id), self.id, self.file.as_fd(), len)
                .map_err(self.error("record length of"))?;
            self.record(&mut state, lowered);
        }
        state.cuts += 1;
        penstock_host::fs::ftruncate(&self.file, len).map_err(self.error("set length of"))
    }

    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.sound()?;
        descriptor::allocate(self.file.as_fd(), at.0, len).map_err(self.error("allocate"))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.sound()?;
        let cuts = self.state().cuts;
        let len = descriptor::len(self.file.as_fd()).map_err(self.error("stat"))?;
        penstock_host::fs::fdatasync(&self.file).map_err(self.error("sync"))?;
        let shard = self.place.shard(self.id);
        self.place.sync_shard(shard.number)?;
        let mut state = self.state();
        if state.cuts != cuts || state.removed || state.recorded == Ok(len) {
            return Ok(());
        }
        if state
            .recorded
            .as_ref()
            .is_ok_and(|recorded| *recorded > len)
        {
            // Another sync that saw a longer object was faster, or somebody else cut the file.
            drop(state);
            return self.check_end(len);
        }
        self.place
            .records
            .raise(&shard, self.id, self.file.as_fd(), len)
            .map_err(self.error("record length of"))?;
        self.record(&mut state, len);
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.damaged.load(Ordering::Acquire)).then(|| self.file.as_fd())
    }
}
