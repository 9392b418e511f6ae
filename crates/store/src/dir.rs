//! Objects as sparse files in a directory.
//!
//! ```text
//! superblock                      for whom the store was made, and who it is (checksummed text)
//! manifest                        which objects there must be ([`crate::manifest`])
//! incarnation                     names the page cache that holds what is not synced ([`crate::incarnation`])
//! clock                           what the server knows of the time (penstock_wire::clock)
//! fast                            its fast tier, if it has one ([`crate::fast`])
//! lock                            held by the server (flock); names its process
//! objects/0f/000000000000003f     one sparse file per object, under its id modulo 16
//! ```
//! Creating is one system call. [`Store::sync`] makes it durable by syncing the subdirectories changed since, at most
//! 16. That is enough for threads not to contend for one directory, and few enough to make and to scan. An object's
//! sync records its length ([`crate::record`]), so that a truncated object is detected: when opened, when read, and by
//! `verify`. A damaged object can still be read where it has bytes; everything else is refused until `accept`.
use crate::cache::Cache;
use crate::incarnation::{self, Incarnation};
use crate::manifest::{self, Manifest};
use crate::object::{DirObject, Way};
use crate::record::Records;
use crate::replace::{Bad, replace};
use crate::store_root::{Changes, OBJECTS, SHARDS, StoreRoot};
use crate::superblock::{self, Identity, Superblock};
use crate::{Finding, Note, Object, Problem, Store, StoreError, descriptors};
use penstock_host::lock::{DirectoryLock, Refused};
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::FileId;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BinaryHeap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

/// Most idle objects kept open, unless a quarter of the limit of open files is less.
const OPEN_OBJECTS: usize = 4096;
/// Objects synced together before they are evicted.
const SYNCED_TOGETHER: usize = 32;
/// Attempts to open an object when descriptors have run out.
const TRIES: usize = 4;
/// Number of cache shards with a lock each, so that one slow open does not delay all.
const CACHE_LOCKS: usize = 16;
/// Most objects made and not yet in the manifest; beyond it they are entered first.
const FRESH: usize = 1 << 16;
/// Objects that [`Store::sync_unsynced`] (background sync) syncs at a time. More than that are first written back by one call.
const SETTLED: usize = 64;
const LOCK: &str = "lock";
/// Longest [`Note`] that is read.
const MAX_NOTE: usize = 8192;

impl Note {
    /// The name of its file; part of the store's format.
    fn file(self) -> &'static str {
        match self {
            Note::Clock => "clock",
            Note::Limits => "limits",
            Note::Fast => "fast",
        }
    }
}

/// The directory backend.
pub(crate) struct DirStore {
    pub(crate) place: Arc<StoreRoot>,
    caches: Vec<Mutex<Cache<DirObject>>>,
}

impl DirStore {
    /// Opens the store in `path`, making one if there is none.
    pub(crate) fn open(path: &Path, deployment: &str, server: u32) -> Result<DirStore, StoreError> {
        DirStore::open_with(path, deployment, server, None, None)
    }

    /// Opens the directory as a new store replacing one that had objects with ids below `lost_below`.
    pub(crate) fn renew(
        path: &Path,
        deployment: &str,
        server: u32,
        lost_below: u64,
    ) -> Result<DirStore, StoreError> {
        DirStore::open_with(path, deployment, server, None, Some(lost_below))
    }

    /// The same with `records` as given instead of as the file system allows; as a new store with `renewed`.
    pub(crate) fn open_with(
        path: &Path,
        deployment: &str,
        server: u32,
        records: Option<Records>,
        renewed: Option<u64>,
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
        let supported: Records = match records {
            Some(records) => records,
            None => Records::supported(lock.as_fd()).map_err(error("use attributes in"))?,
        };
        let found = Superblock::load(root.as_fd(), &name)?;
        if let Some(found) = &found
            && (found.deployment != deployment || found.server != server)
        {
            let whose =
                |deployment: &str, server| format!("server {server} of deployment {deployment}");
            return Err(StoreError::WrongDeployment {
                path: name.clone(),
                found: whose(&found.deployment, found.server),
                expected: whose(deployment, server),
            });
        }
        if found.is_none() {
            format(root.as_fd(), path)?;
        }
        let known = found.as_ref().and_then(|found| found.identity);
        let superblock = Superblock {
            deployment: deployment.to_owned(),
            server,
            // A store keeps its kind of records, unless it was moved to a file system that does not support it.
            records: match &found {
                Some(found) if supported == Records::Attribute => found.records,
                _ => supported,
            },
            identity: match known.filter(|_| renewed.is_none()) {
                Some(identity) => identity,
                None => Identity::new().map_err(|source| StoreError::Io {
                    what: "take random bytes for",
                    path: name.clone(),
                    source,
                })?,
            },
            lost_below: renewed
                .or(found.as_ref().map(|f| f.lost_below))
                .unwrap_or(0),
        };
        if known != Some(superblock.identity) {
            Manifest::make(root.as_fd()).map_err(error("make manifest of"))?;
        }
        let manifest = Manifest::load(root.as_fd()).map_err(|bad| match bad {
            Bad::Errno(e) => error("read manifest of")(e),
            Bad::Content(what) => StoreError::Damaged {
                path: format!("{name}/{}", manifest::NAME),
                what: "manifest".to_owned(),
                detail: format!(
                    "{what}; restore it from a backup, or take the store for a new one with `penstock up --new-store {server}`"
                ),
            },
        })?;
        if known != Some(superblock.identity)
            || found.is_none_or(|found| found.records != superblock.records)
        {
            superblock.store(root.as_fd(), &name)?;
        }
        let objects = rustix::fs::openat(&root, OBJECTS, flags, Mode::empty())
            .map_err(error("open objects of"))?;
        let incarnation = Incarnation::open(root.as_fd(), &name)?;
        Ok(DirStore {
            place: Arc::new(StoreRoot {
                path: name,
                root,
                objects,
                records: superblock.records,
                manifest,
                lost_below: superblock.lost_below,
                superblock: Mutex::new(superblock),
                fresh: Mutex::new(Vec::new()),
                searched: AtomicBool::new(false),
                rounds: AtomicU64::new(0),
                incarnation,
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
        // Every operation leaves the index consistent: it is usable also after a panic elsewhere.
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn object(&self, id: FileId, create: bool) -> Result<Arc<DirObject>, StoreError> {
        let bound = idle_bound() / CACHE_LOCKS;
        let way = if create { Way::Create } else { Way::Find };
        for tried in 1.. {
            let mut cache = self.cache(id);
            if let Some(object) = cache.get(id) {
                return Ok(object);
            }
            // The file is opened under the lock: an object must not be open twice, nor return to the cache after its
            // removal.
            let object = match DirObject::open(&self.place, id, way) {
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
            let fresh = {
                let mut fresh = self.place.fresh();
                let unnoted = std::iter::once(&object).chain(&displaced);
                fresh.extend(unnoted.filter(|o| o.unnoted()).map(|o| o.id()));
                fresh.len()
            };
            drop(displaced);
            clean(&unclean);
            if fresh >= FRESH {
                self.sync_unsynced(&mut |_| true)?;
            }
            return Ok(object);
        }
        unreachable!("the last try returns")
    }

    /// Opens a lost or damaged object as it is: empty if there is nothing.
    fn taken(&self, id: FileId, anew: bool) -> Result<Arc<DirObject>, StoreError> {
        let place = &self.place;
        let mut cache = self.cache(id);
        drop(cache.remove(id));
        if anew {
            let shard = place.shard(id);
            let gone = place.records.forget(&shard, id).and_then(|()| {
                match penstock_host::fs::unlinkat(shard.objects, shard.file(id)) {
                    Err(e) if e != Errno::NOENT => Err(e),
                    _ => Ok(()),
                }
            });
            gone.map_err(|e| StoreError::from_errno("remove", place.object_path(id), e))?;
        }
        let object = Arc::new(DirObject::open(place, id, Way::Accept)?);
        drop(cache.insert(id, object.clone(), idle_bound() / CACHE_LOCKS));
        Ok(object)
    }

    /// Finds objects that an earlier server made and did not enter before it was killed.
    fn search(&self) -> Result<(), StoreError> {
        for number in 0..SHARDS {
            let names = self.names(Some(number))?;
            let ids = names.iter().filter_map(|name| id_of(number, name));
            let place = &self.place;
            let unknown =
                ids.filter(|id| place.manifest.least(*id).is_none() && id.0 >= place.lost_below);
            place.fresh().extend(unknown);
        }
        Ok(())
    }

    /// Syncs some objects and enters them in the manifest. An object that cannot be synced counts as damaged from then
    /// on.
    fn settle_some(&self, ids: &[FileId]) {
        let mut synced = Vec::with_capacity(ids.len());
        for id in ids {
            let object = match self.object(*id, false) {
                Ok(object) if object.unnoted() => object,
                _ => continue,
            };
            match object.sync_alone() {
                Ok(len) => synced.push((object, len)),
                Err(e) => log::warn!("{e}"),
            }
        }
        let entries: Vec<_> = synced.iter().map(|(o, len)| (o.id(), *len)).collect();
        match self.place.enter(&entries) {
            Ok(()) => synced.iter().for_each(|(object, _)| object.note_entered()),
            Err(e) => {
                log::warn!("{e}");
                self.place.fresh().extend(entries.iter().map(|(id, _)| *id));
            }
        }
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
pub(crate) fn names(path: &str) -> Result<Vec<String>, StoreError> {
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

/// The id of a file name in subdirectory `shard`.
fn id_of(shard: usize, name: &str) -> Option<FileId> {
    let id = FileId(u64::from_str_radix(name, 16).ok()?);
    let ours = format!("{:016x}", id.0) == name && id.0 as usize % SHARDS == shard;
    ours.then_some(id)
}

fn idle_bound() -> usize {
    descriptors::quarter().min(OPEN_OBJECTS)
}

/// Syncs objects so that they can be evicted. An object that cannot be synced stays open, marked as damaged.
fn clean(objects: &[Arc<DirObject>]) {
    for object in objects {
        if let Err(e) = object.sync() {
            log::warn!("cannot close an object: {e}");
        }
    }
}

/// Locks the store for life; the error says who has it.
fn take_lock(root: BorrowedFd<'_>, path: &str) -> Result<DirectoryLock, StoreError> {
    DirectoryLock::take(root, LOCK).map_err(|refused| match refused {
        Refused::Held(holder) => StoreError::InUse {
            path: path.to_owned(),
            holder,
        },
        Refused::Failed(e) => StoreError::from_errno("lock", path, e),
    })
}

/// Makes the subdirectories. Continues an interrupted attempt. Objects without a superblock are refused, because their
/// owner is unknown.
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
        // Freeing a large file takes time: the last reference is dropped outside the lock.
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let last = rustix::fs::openat(shard.objects, shard.file(id), flags, Mode::empty());
        if let Some(object) = &held {
            object.removed();
        }
        let done = place
            .records
            .forget(&shard, id)
            .and_then(|()| penstock_host::fs::unlinkat(shard.objects, shard.file(id)));
        if matches!(done, Ok(()) | Err(Errno::NOENT)) {
            place.manifest.forget(id);
        }
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
        // The smallest ids of all subdirectories: paging by id relies on the order of ids.
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
            // A short page would mean that there are no more.
            page.extend(self.list_after(last, limit - page.len())?);
        }
        Ok(page)
    }

    fn sync(&self) -> Result<(), StoreError> {
        (0..SHARDS).try_for_each(|shard| self.place.sync_shard(shard as u8))
    }

    fn incarnation(&self) -> [u8; 16] {
        self.place.incarnation.id()
    }

    fn share(&self) {
        self.place.incarnation.share();
    }

    fn stop(&self) {
        if self.place.sound().is_ok() {
            self.place.incarnation.stop(&self.place.path);
        }
    }

    fn kept(&self, note: Note) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.place.root, note.file(), flags, Mode::empty()).ok()?;
        let mut bytes = vec![0; MAX_NOTE];
        let n = crate::descriptor::read_at(file.as_fd(), 0, &mut bytes).ok()?;
        bytes.truncate(n);
        String::from_utf8(bytes).ok()
    }

    fn keep(&self, note: Note, text: &str) -> Result<(), StoreError> {
        let name = note.file();
        let error = |e| StoreError::from_errno("write", format!("{}/{name}", self.place.path), e);
        replace(self.place.root.as_fd(), name, text.as_bytes())
            // Its name, too: without it bytes elsewhere would not be missed.
            .and_then(|()| match note {
                Note::Fast => penstock_host::fs::fsync(&self.place.root),
                Note::Clock | Note::Limits => Ok(()),
            })
            .map_err(error)
    }

    fn space(&self) -> Result<(u64, u64), StoreError> {
        let stat = rustix::fs::fstatvfs(&self.place.objects)
            .map_err(|e| StoreError::from_errno("ask for space in", self.place.path.clone(), e))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok((bytes(stat.f_blocks), bytes(stat.f_bavail)))
    }

    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        let place = &self.place;
        let foreign = |report: &mut dyn FnMut(Finding), path| {
            report(Finding {
                object: None,
                path,
                problem: Problem::Foreign,
            });
        };
        for name in names(&place.path)? {
            // A crash may leave an incomplete file; the next one replaces it.
            let whole = name.strip_suffix(".new").unwrap_or(&name);
            if ![
                superblock::NAME,
                manifest::NAME,
                incarnation::NAME,
                LOCK,
                Note::Clock.file(),
                Note::Limits.file(),
                Note::Fast.file(),
                OBJECTS,
                "lost+found",
            ]
            .contains(&whole)
            {
                foreign(report, format!("{}/{name}", place.path));
            }
        }
        for name in self.names(None)? {
            if !(0..SHARDS).any(|shard| format!("{shard:02x}") == name) {
                foreign(report, format!("{}/{OBJECTS}/{name}", place.path));
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
            self.missing(shard, &names, report);
            for name in &names {
                let path = format!("{}/{OBJECTS}/{shard:02x}/{name}", place.path);
                // A crash may leave an incomplete record; the next one replaces it.
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
        if self.gone(id).is_some() {
            return self.taken(id, false)?.accept();
        }
        let object = match self.object(id, false) {
            Err(StoreError::Lost { .. }) => self.taken(id, false),
            other => other,
        };
        object?.accept()
    }

    fn renew(&self, id: FileId) -> Result<Arc<dyn Object>, StoreError> {
        let object = match self.object(id, true) {
            Err(StoreError::Lost { .. }) => {
                let object = self.taken(id, true)?;
                object.accept()?;
                Ok(object)
            }
            other => other,
        };
        Ok(object?)
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.superblock().identity)
    }

    fn highest(&self, look: bool) -> Result<u64, StoreError> {
        let mut highest = self.place.manifest.highest();
        for shard in 0..if look { SHARDS } else { 0 } {
            let names = self.names(Some(shard))?;
            let ids = names.iter().filter_map(|name| id_of(shard, name));
            highest = ids.fold(highest, |highest, id| highest.max(id.0));
        }
        Ok(highest)
    }

    fn next_generation(&self) -> Result<Option<Identity>, StoreError> {
        let mut superblock = self.superblock();
        let mut next = superblock.clone();
        next.identity.generation += 1;
        next.identity.registered = true;
        next.identity.heard = false;
        next.store(self.place.root.as_fd(), &self.place.path)?;
        *superblock = next;
        Ok(Some(superblock.identity))
    }

    fn note_heard(&self) -> Result<(), StoreError> {
        let mut superblock = self.superblock();
        let mut heard = superblock.clone();
        heard.identity.heard = true;
        heard.store(self.place.root.as_fd(), &self.place.path)?;
        *superblock = heard;
        Ok(())
    }

    fn sync_unsynced(&self, go_on: &mut dyn FnMut(Duration) -> bool) -> Result<bool, StoreError> {
        self.place.sound()?;
        if !self.place.searched.swap(true, Ordering::SeqCst) {
            self.search()?;
        }
        let mut ids = std::mem::take(&mut *self.place.fresh());
        for cache in &self.caches {
            let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            ids.extend(cache.iter().filter(|o| o.unnoted()).map(|o| o.id()));
        }
        ids.sort_unstable();
        ids.dedup();
        if ids.len() > SETTLED {
            penstock_host::fs::write_back_all(&self.place.root);
        }
        for (n, some) in ids.chunks(SETTLED).enumerate() {
            let began = penstock_host::time::now();
            self.settle_some(some);
            if !go_on(penstock_host::time::since(began)) {
                let rest = ids.get((n + 1) * SETTLED..).unwrap_or_default();
                self.place.fresh().extend_from_slice(rest);
                break;
            }
        }
        self.place
            .manifest
            .flush()
            .map_err(|e| StoreError::from_errno("write manifest of", self.place.path.clone(), e))?;
        let rounds = self.place.manifest.rounds();
        Ok(self.place.rounds.swap(rounds, Ordering::SeqCst) != rounds)
    }

    fn lost_below(&self) -> u64 {
        self.place.lost_below
    }

    fn describe(&self) -> String {
        format!("dir:{}", self.place.path)
    }
}

impl DirStore {
    fn superblock(&self) -> MutexGuard<'_, Superblock> {
        // Replaced as a whole.
        let superblock = self.place.superblock.lock();
        superblock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Why an object is lost, if its directory has no file for it. That this server has a file open proves nothing: its
    /// name may have been removed from outside.
    fn gone(&self, id: FileId) -> Option<&'static str> {
        // A removal removes the file first, then the entry, both under this lock.
        let _cache = self.cache(id);
        let shard = self.place.shard(id);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statat(shard.objects, shard.file(id), flags) {
            Err(Errno::NOENT) => self.place.lost(id, self.place.manifest.least(id)),
            _ => None,
        }
    }

    /// Reports objects of a subdirectory that are in the manifest but not in `names`.
    fn missing(&self, shard: usize, names: &[String], report: &mut dyn FnMut(Finding)) {
        const PAGE: usize = 4096;
        let there: HashSet<FileId> = names.iter().filter_map(|n| id_of(shard, n)).collect();
        let mut after = None;
        loop {
            let ids = self.place.manifest.ids(after, PAGE);
            let Some(last) = ids.last() else { return };
            after = Some(*last);
            for id in ids {
                if usize::from(self.place.shard(id).number) != shard || there.contains(&id) {
                    continue;
                }
                // Made after the names were listed, or removed.
                if let Some(detail) = self.gone(id) {
                    report(Finding {
                        object: Some(id),
                        path: self.place.object_path(id),
                        problem: Problem::Missing(detail.to_owned()),
                    });
                }
            }
        }
    }

    /// Checks one object; returns what is wrong.
    fn examine(&self, id: FileId) -> Option<Problem> {
        match self.object(id, false) {
            Ok(object) => object.examine(),
            Err(StoreError::Lost { detail, .. }) => Some(Problem::Missing(detail)),
            Err(StoreError::NotFound(..)) => None, // removed meanwhile
            Err(e) => Some(Problem::Unreadable(e.to_string())),
        }
    }
}
