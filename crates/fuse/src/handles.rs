//! Open files and directories, by the numbers that the kernel got.
//!
//! A file that loses its last name while it is open here is kept by the metadata server (open-unlinked); the last close
//! releases it. All tables are bounded by [`MAX_OPEN`].
use crate::listing::Listing;
use crate::passthrough::Way;
use penstock_client::{Error, ErrorKind, File, OpenFiles, Result};
use penstock_layout::FileId;
use penstock_wire::message::LockMode;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// Most open files, and most open directories.
const MAX_OPEN: usize = 1 << 16;
/// An appender locks this byte, which no file reaches: appends are serialised on all hosts.
const APPEND: u64 = i64::MAX as u64 - 1;

/// An open file.
#[derive(Debug)]
pub struct Open {
    pub node: FileId,
    /// Replaced if the file gets another layout before its first byte.
    file: RwLock<File>,
    /// Whether it runs as its owner or group, which a write by others ends.
    pub set_id: AtomicBool,
    /// Who reads and writes it: the kernel or the daemon.
    pub way: Way,
    /// The handle that holds the append lock, separate from accesses.
    appender: OnceLock<File>,
}

impl Open {
    pub fn new(file: File, way: Way) -> Open {
        Open {
            way,
            node: file.id(),
            set_id: AtomicBool::new(file.attributes().mode & 0o6000 != 0),
            file: RwLock::new(file),
            appender: OnceLock::new(),
        }
    }

    pub fn file(&self) -> File {
        self.file
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the file, which was opened again after a change of its layout.
    pub fn replace(&self, file: File) {
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Runs `write` with the end of the file while nobody else appends.
    pub fn append<T>(&self, write: impl FnOnce(&File, u64) -> Result<T>) -> Result<T> {
        let appender = match self.appender.get() {
            Some(appender) => appender,
            None => {
                // Opened with the capability of the open file: over TCP the daemon's own user may have no rights to it.
                let opened = self.file().beside()?;
                self.appender.get_or_init(|| opened)
            }
        };
        let _lock = appender.lock(APPEND..APPEND + 1, LockMode::Exclusive)?;
        let file = self.file();
        let end = file.len()?;
        write(&file, end)
    }
}

#[derive(Debug, Default)]
struct Tables {
    next: u64,
    files: HashMap<u64, Arc<Open>>,
    directories: HashMap<u64, Arc<Mutex<Listing>>>,
    /// Handles per open file.
    counts: HashMap<FileId, usize>,
    /// Open-unlinked files.
    removed: HashSet<FileId>,
}

/// All open files and directories of a mount.
#[derive(Debug, Default)]
pub struct Handles(Mutex<Tables>);

/// No handle is free.
fn full() -> penstock_client::Error {
    penstock_client::Error::Local {
        what: "open".into(),
        kind: ErrorKind::Busy,
        detail: format!("{MAX_OPEN} files are open in this mount, its limit; close some"),
    }
}

impl Handles {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_file(&self, open: Open) -> Result<u64> {
        let mut tables = self.tables();
        if tables.files.len() >= MAX_OPEN {
            return Err(full());
        }
        tables.next += 1;
        let handle = tables.next;
        *tables.counts.entry(open.node).or_default() += 1;
        tables.files.insert(handle, Arc::new(open));
        Ok(handle)
    }

    pub fn file(&self, handle: u64) -> Option<Arc<Open>> {
        self.tables().files.get(&handle).cloned()
    }

    /// All handles of a file.
    pub fn of(&self, node: FileId) -> Vec<Arc<Open>> {
        let tables = self.tables();
        let of_node = tables.files.values().filter(|open| open.node == node);
        of_node.cloned().collect()
    }

    /// Makes the bytes, length and name of an open file durable.
    pub fn sync(&self, open: &Open) -> Result<()> {
        match open.file().sync() {
            // An open-unlinked file has no name to make durable.
            Err(Error::LostName { .. }) if self.tables().removed.contains(&open.node) => Ok(()),
            done => done,
        }
    }

    /// Whether a removed name could belong to an open file.
    pub fn any_open(&self) -> bool {
        !self.tables().counts.is_empty()
    }

    /// Closes a handle: returns its file, and whether it was the last one of an open-unlinked file.
    pub fn close_file(&self, handle: u64) -> Option<(Arc<Open>, bool)> {
        let mut tables = self.tables();
        let open = tables.files.remove(&handle)?;
        let last = match tables.counts.get_mut(&open.node) {
            Some(left) if *left > 1 => {
                *left -= 1;
                false
            }
            _ => true,
        };
        if last {
            tables.counts.remove(&open.node);
        }
        let removed = last && tables.removed.remove(&open.node);
        Some((open, removed))
    }

    pub fn add_directory(&self, listing: Listing) -> Result<u64> {
        let mut tables = self.tables();
        if tables.directories.len() >= MAX_OPEN {
            return Err(full());
        }
        tables.next += 1;
        let handle = tables.next;
        tables
            .directories
            .insert(handle, Arc::new(Mutex::new(listing)));
        Ok(handle)
    }

    pub fn directory(&self, handle: u64) -> Option<Arc<Mutex<Listing>>> {
        self.tables().directories.get(&handle).cloned()
    }

    pub fn close_directory(&self, handle: u64) {
        self.tables().directories.remove(&handle);
    }
}

impl OpenFiles for Handles {
    fn ids(&self) -> Vec<FileId> {
        self.tables().counts.keys().copied().collect()
    }

    fn is_removed(&self, node: FileId) -> bool {
        let mut tables = self.tables();
        if !tables.counts.contains_key(&node) {
            return true;
        }
        tables.removed.insert(node);
        false
    }

    fn any_removed(&self) -> bool {
        !self.tables().removed.is_empty()
    }
}
