//! The directory of a store as its objects use it: location, records, and durability.
use crate::StoreError;
use crate::incarnation::Incarnation;
use crate::manifest::{self, Manifest};
use crate::record::{Records, Shard};
use crate::superblock::Superblock;
use penstock_host::lock::DirectoryLock;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::FileId;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};

/// Subdirectories of objects; part of the store's format.
pub(crate) const SHARDS: usize = 16;
/// The directory above them.
pub(crate) const OBJECTS: &str = "objects";

/// State that objects share with their store.
pub(crate) struct StoreRoot {
    pub(crate) path: String,
    pub(crate) root: OwnedFd,
    pub(crate) objects: OwnedFd,
    pub(crate) records: Records,
    pub(crate) manifest: Manifest,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) lost_below: u64,
    /// Objects made since the last [`Store::sync_unsynced`].
    pub(crate) fresh: Mutex<Vec<FileId>>,
    /// Whether unentered objects of earlier servers have been searched.
    pub(crate) searched: AtomicBool,
    /// Flushes of the manifest at the end of the last [`Store::sync_unsynced`].
    pub(crate) rounds: AtomicU64,
    /// Creations and removals so far in each subdirectory, and how many of them are durable.
    pub(crate) changes: [Changes; SHARDS],
    pub(crate) incarnation: Incarnation,
    /// Why nothing can be made durable any more.
    pub(crate) failed: OnceLock<String>,
    /// Held for life; the system releases it when the process ends.
    pub(crate) _lock: DirectoryLock,
}

pub(crate) struct Changes {
    made: AtomicU64,
    durable: AtomicU64,
}

impl Changes {
    /// An earlier server may have ended before it synced its changes: the first sync has work to do.
    pub(crate) fn unknown() -> Changes {
        Changes {
            made: AtomicU64::new(1),
            durable: AtomicU64::new(0),
        }
    }
}

impl StoreRoot {
    pub(crate) fn shard(&self, id: FileId) -> Shard<'_> {
        Shard {
            objects: self.objects.as_fd(),
            number: (id.0 % SHARDS as u64) as u8,
        }
    }

    pub(crate) fn object_path(&self, id: FileId) -> String {
        format!("{}/{OBJECTS}/{}", self.path, self.shard(id).file(id))
    }

    /// Why an object without a file is lost, if it is; `least` is its entry in the manifest.
    pub(crate) fn lost(&self, id: FileId, least: Option<u64>) -> Option<&'static str> {
        match least {
            Some(_) => Some("it was synced, and its file is gone"),
            None if id.0 < self.lost_below => Some("what held it was replaced by this store"),
            None => None,
        }
    }

    /// The error of a lost object.
    pub(crate) fn loss(&self, id: FileId, least: Option<u64>) -> StoreError {
        StoreError::Lost {
            path: self.object_path(id),
            detail: self.lost(id, least).unwrap_or_default().to_owned(),
        }
    }

    /// Enters objects, whose bytes and names are durable, into the manifest.
    pub(crate) fn enter(&self, objects: &[(FileId, u64)]) -> Result<(), StoreError> {
        self.manifest.enter(objects).map_err(|e| {
            let path = format!("{}/{}", self.path, manifest::NAME);
            StoreError::from_errno("write", path, e)
        })
    }

    pub(crate) fn fresh(&self) -> MutexGuard<'_, Vec<FileId>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn touch(&self, shard: u8) {
        self.changes[usize::from(shard)]
            .made
            .fetch_add(1, Ordering::SeqCst);
    }

    /// A separate record was removed: returns when that is durable.
    pub(crate) fn removed_record(&self, shard: &Shard<'_>) -> Result<(), StoreError> {
        self.touch(shard.number);
        self.sync_shard(shard.number)
    }

    /// From now on every sync fails, because what an earlier one has lost is unknown.
    pub(crate) fn fail(&self, why: &str) {
        log::error!("{why}; no sync succeeds until this server is started again");
        let _ = self.failed.set(why.to_owned());
        self.incarnation.end(&self.path);
    }

    /// Refuses a sync after such a failure.
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
        let error = |what, e| {
            let path = format!("{}/{OBJECTS}/{number:02x}", self.path);
            StoreError::from_errno(what, path, e)
        };
        // If it cannot be opened, nothing was tried and nothing is lost: this sync fails, and the next one tries again.
        let directory = shard.open().map_err(|e| error("open directory", e))?;
        penstock_host::fs::fsync(directory).map_err(|e| {
            let error = error("sync directory", e);
            self.fail(&error.to_string());
            error
        })?;
        changes.durable.fetch_max(made, Ordering::SeqCst);
        Ok(())
    }
}
