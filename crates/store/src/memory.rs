//! Objects in memory: one memfd each, so that descriptors can be passed. Nothing survives the process.
use crate::mappable::Mappable;
use crate::{Finding, Object, Store, StoreError, descriptor};
use penstock_host::sync::{RwLock, RwLockGuard};
use penstock_layout::{FileId, ObjectOffset};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory backend. The limit of open files bounds the objects.
pub(crate) struct MemoryStore {
    incarnation: [u8; 16],
    objects: Mutex<BTreeMap<FileId, Arc<MemoryObject>>>,
}

impl MemoryStore {
    pub(crate) fn new() -> Result<MemoryStore, StoreError> {
        let mut incarnation = [0; 16];
        penstock_host::random(&mut incarnation).map_err(|source| StoreError::Io {
            what: "draw an incarnation for",
            path: "memory".to_owned(),
            source,
        })?;
        Ok(MemoryStore {
            incarnation,
            objects: Mutex::new(BTreeMap::new()),
        })
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<FileId, Arc<MemoryObject>>> {
        // The map is changed by single calls only, so it is consistent also after a panic elsewhere.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(what: &'static str, errno: Errno) -> StoreError {
    match errno {
        Errno::NOMEM => StoreError::Full("memory".to_owned()),
        _ => StoreError::from_errno(what, "memory", errno),
    }
}

impl Store for MemoryStore {
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError> {
        let mut objects = self.objects();
        if let Some(object) = objects.get(&id) {
            return Ok(object.clone());
        }
        if !create {
            return Err(StoreError::NotFound(id, self.describe()));
        }
        let fd = rustix::fs::memfd_create(format!("penstock-{:016x}", id.0), MemfdFlags::CLOEXEC)
            .map_err(|e| error("create object in", e))?;
        let object = Arc::new(MemoryObject {
            fd,
            cutting: RwLock::new(),
        });
        objects.insert(id, object.clone());
        Ok(object)
    }

    fn remove(&self, id: FileId) -> Result<(), StoreError> {
        // Freed outside the lock: freeing many pages takes time.
        let removed = self.objects().remove(&id);
        match removed {
            Some(_) => Ok(()),
            None => Err(StoreError::NotFound(id, self.describe())),
        }
    }

    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects()
            .range((from, Bound::Unbounded))
            .take(limit)
            .map(|(id, object)| Ok((*id, object.len()?)))
            .collect()
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn incarnation(&self) -> [u8; 16] {
        self.incarnation
    }

    fn space(&self) -> Result<(u64, u64), StoreError> {
        let text = std::fs::read_to_string("/proc/meminfo").map_err(|source| StoreError::Io {
            what: "read",
            path: "/proc/meminfo".to_owned(),
            source,
        })?;
        let bytes = |key: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(key))?;
            let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        match (bytes("MemTotal:"), bytes("MemAvailable:")) {
            (Some(total), Some(free)) => Ok((total, free)),
            _ => Err(error("understand /proc/meminfo for", Errno::INVAL)),
        }
    }

    fn verify(&self, _report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        Ok(())
    }

    fn accept(&self, id: FileId) -> Result<(), StoreError> {
        self.open(id, false).map(|_| ())
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

struct MemoryObject {
    fd: OwnedFd,
    /// Locked exclusively to truncate, shared to store through mappings or to extend.
    cutting: RwLock,
}

impl Object for MemoryObject {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        descriptor::read_at(self.fd.as_fd(), at.0, buf).map_err(|e| error("read from", e))
    }
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        let _steady = self.steady();
        descriptor::write_at(self.fd.as_fd(), at.0, buf).map_err(|e| error("write to", e))
    }
    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        descriptor::read_vectored_at(self.fd.as_fd(), at.0, bufs).map_err(|e| error("read from", e))
    }
    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        let _steady = self.steady();
        descriptor::write_vectored_at(self.fd.as_fd(), at.0, bufs).map_err(|e| error("write to", e))
    }
    fn len(&self) -> Result<u64, StoreError> {
        descriptor::len(self.fd.as_fd()).map_err(|e| error("stat object in", e))
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        let _cutting = self.cutting.write();
        rustix::fs::ftruncate(&self.fd, len).map_err(|e| error("set object length in", e))
    }
    fn cut(&self, len: u64, end: u64) -> Result<bool, StoreError> {
        let _cutting = self.cutting.write();
        let short = self.len()? <= end;
        if short {
            rustix::fs::ftruncate(&self.fd, len).map_err(|e| error("set object length in", e))?;
        }
        Ok(short)
    }
    fn extend(&self, len: u64) -> Result<bool, StoreError> {
        descriptor::extend(self.fd.as_fd(), len).map_err(|e| error("extend in", e))
    }
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        descriptor::allocate(self.fd.as_fd(), at.0, len).map_err(|e| error("allocate in", e))
    }
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn mappable(&self) -> Option<&dyn Mappable> {
        Some(self)
    }
}

impl Mappable for MemoryObject {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
    fn steady(&self) -> Option<RwLockGuard<'_>> {
        Some(self.cutting.read())
    }
}
