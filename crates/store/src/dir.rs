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
use crate::object::DirObject;
use crate::record::{Records, Shard};
use crate::superblock::{self, Superblock};
use crate::{Finding, Object, Problem, Store, StoreError, descriptors};
use penstock_host::lock::{DirectoryLock, Refused};
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::FileId;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

/// Idle objects kept open, unless a quarter of the limit of open files is below that.
const OPEN_OBJECTS: usize = 4096;
/// Objects synced together so that they may be closed.
const SYNCED_TOGETHER: usize = 32;
/// How often an object is tried to be opened when descriptors have run out.
const TRIES: usize = 4;
/// Locks that the cache is divided among, so that one slow open does not hold up all.
const CACHE_LOCKS: usize = 16;
/// Subdirectories of objects; part of the store's format.
const SHARDS: usize = 16;
const LOCK: &str = "lock";
pub(crate) const OBJECTS: &str = "objects";

/// The directory backend.
pub(crate) struct DirStore {
    pub(crate) place: Arc<Place>,
    caches: Vec<Mutex<Cache<DirObject>>>,
}

/// What objects share with their store.
pub(crate) struct Place {
    pub(crate) path: String,
    objects: OwnedFd,
    pub(crate) records: Records,
    /// Creations and removals so far in each subdirectory, and how many of them are durable.
    changes: [Changes; SHARDS],
    /// Why nothing can be made durable any more.
    failed: OnceLock<String>,
    /// Held for life; the system lets go of it when the process ends, however it ends.
    _lock: DirectoryLock,
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
    pub(crate) fn shard(&self, id: FileId) -> Shard<'_> {
        Shard {
            objects: self.objects.as_fd(),
            number: (id.0 % SHARDS as u64) as u8,
        }
    }

    pub(crate) fn object_path(&self, id: FileId) -> String {
        format!("{}/{OBJECTS}/{}", self.path, self.shard(id).file(id))
    }

    pub(crate) fn touch(&self, shard: u8) {
        self.changes[usize::from(shard)]
            .made
            .fetch_add(1, Ordering::SeqCst);
    }

    /// From now on no sync succeeds: what an earlier one has lost is not known.
    pub(crate) fn fail(&self, why: &str) {
        log::error!("{why}; no sync succeeds until this server is started again");
        let _ = self.failed.set(why.to_owned());
    }

    /// Refuses to promise what cannot be known.
    pub(crate) fn sound(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(StoreError::Damaged {
                path: self.path.clone(),
                what: "store".to_owned(),
                detail: format!("{why}; look at its disk and start the server again"),
            }),
        }
    }

    /// Makes creations and removals in one subdirectory durable.
    pub(crate) fn sync_shard(&self, number: u8) -> Result<(), StoreError> {
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
                let error = StoreError::from_errno("sync directory", path, e);
                self.fail(&error.to_string());
                error
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
        Ok(DirStore {
            place: Arc::new(Place {
                path: name,
                objects,
                records,
                changes: std::array::from_fn(|_| Changes::unknown()),
                failed: OnceLock::new(),
                _lock: lock,
            }),
            caches: (0..CACHE_LOCKS)
                .map(|_| Mutex::new(Cache::new(DirObject::is_clean)))
                .collect(),
        })
    }

    fn cache(&self, id: FileId) -> MutexGuard<'_, Cache<DirObject>> {
        let cache = &self.caches[(id.0 % CACHE_LOCKS as u64) as usize];
        // The index is mended by every operation or not touched: usable also after a panic elsewhere.
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn object(&self, id: FileId, create: bool) -> Result<Arc<DirObject>, StoreError> {
        let bound = idle_bound() / CACHE_LOCKS;
        for tried in 1.. {
            let mut cache = self.cache(id);
            if let Some(object) = cache.get(id) {
                return Ok(object);
            }
            // The file is opened under the lock: an object must not be open twice, nor come back from the
            // cache after its removal.
            let object = match DirObject::open(&self.place, id, create) {
                Err(e) if e.lacks_descriptors() && tried < TRIES => {
                    drop(cache);
                    if !self.relieve() {
                        return Err(e);
                    }
                    continue;
                }
                opened => Arc::new(opened?),
            };
            let displaced = cache.insert(id, object.clone(), bound);
            let unclean = cache.unclean(bound, SYNCED_TOGETHER);
            drop(cache);
            drop(displaced);
            clean(&unclean);
            return Ok(object);
        }
        unreachable!("the last try returns")
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
    descriptors::quarter().min(OPEN_OBJECTS)
}

/// Syncs objects so that they may be closed. One that cannot be synced stays open, marked as damaged.
fn clean(objects: &[Arc<DirObject>]) {
    for object in objects {
        if let Err(e) = object.sync() {
            log::warn!("cannot close an object: {e}");
        }
    }
}

/// Takes the lock for life or says who has it.
fn take_lock(root: BorrowedFd<'_>, path: &str) -> Result<DirectoryLock, StoreError> {
    DirectoryLock::take(root, LOCK).map_err(|refused| match refused {
        Refused::Held(holder) => StoreError::InUse {
            path: path.to_owned(),
            holder,
        },
        Refused::Failed(e) => StoreError::from_errno("lock", path, e),
    })
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
    fn relieve(&self) -> bool {
        let lock = |cache: &Mutex<Cache<DirObject>>| {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            (cache.displace(2), cache.unclean(0, 2))
        };
        let mut closed = false;
        let mut unclean = Vec::new();
        for cache in &self.caches {
            let (displaced, left) = lock(cache);
            closed |= !displaced.is_empty();
            unclean.extend(left);
        }
        if closed {
            return true;
        }
        clean(&unclean);
        drop(unclean);
        let closing = self.caches.iter().map(|cache| lock(cache).0);
        closing.fold(false, |closed, displaced| closed | !displaced.is_empty())
    }

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
            object.removed();
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
