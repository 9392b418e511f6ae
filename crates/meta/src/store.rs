//! Stable storage of the names: one redb database in the metadata server's directory.
//!
//! Tables: nodes by id, entries by (directory, name), sessions and their slots, users and their files, and a few facts
//! about the store. Each commit is one transaction that ends with a disk flush. redb keeps the state before it until
//! the flush is over, so that a crash leaves either the last commit or the one before, intact.
//!
//! The directory has these files: `namespace.redb`, `lock` (held while a server runs) and those of the journal. Also
//! the mark of a clean shutdown (`clean_shutdown`) and the record of dirty ranges (`dirty_ranges`). In small stores
//! `namespace.checked` is a copy made at the last start that found everything in order.
//!
//! *Large stores.* A start reads nothing that grows with the number of names. Commits store the state of redb's page
//! allocator (quick repair), and `scrub` checks them in the background (docs/decisions/0020).
mod users;

use crate::RECOVERS;
use crate::change_log::ChangeLog;
use crate::dirty_ranges::Trouble;
use crate::error::{Result, error};
use crate::node::{Node, ROOT};
use crate::pending::Pending;
use crate::quota::Account;
use crate::snapshot::{
    ABOUT, BOOT, ENTRIES, FACTS, Facts, NODES, SESSIONS, SLOTS, Snapshot, looks_damaged, unpanicked,
};
use crate::start_error::StoreError;
use crate::{clean_shutdown, dirty_ranges, scrub};
use penstock_host::fs;
use penstock_host::lock::{DirectoryLock, Refused};
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, WireError};
use redb::{Builder, Database, DatabaseError, StorageError};
use std::cell::Cell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FORMAT: u32 = 1;
const DATABASE: &str = "namespace.redb";
const CHECKED: &str = "namespace.checked";
const LOCK: &str = "lock";

/// How system errors that mean "no room" end: disk, quota, file size limit.
const FULL: [&str; 2] = ["(os error 28)", "(os error 27)"];
/// EDQUOT.
const OVER_QUOTA: &str = "(os error 122)";

/// redb's page cache.
const PAGE_CACHE: usize = 64 << 20;
/// Default of [`crate::Options::read_through`], bytes.
pub const READ_THROUGH: u64 = 64 << 20;

type Opened<T> = std::result::Result<T, StoreError>;

/// The database, opened for one server.
pub struct Store {
    directory: PathBuf,
    deployment: String,
    /// `None` only between an error and the reopening.
    database: Option<Database>,
    facts: Facts,
    /// The database's file, opened before the database: reports every write-back that has failed since.
    watched: File,
    /// Whether a commit has failed.
    failed: bool,
    /// Up to this size in bytes the database is read completely at the start, and walked after a crash.
    read_through: u64,
    /// Whether it was read completely at the start.
    was_read: bool,
    /// Held as long as the store is open.
    _lock: DirectoryLock,
}

impl Store {
    /// Opens the store in `directory` for the deployment, or makes a new one whose root directory is `root`. Stores of
    /// up to `read_through` bytes are read completely first. `log` has the journal.
    pub fn open(
        directory: &Path,
        deployment: &str,
        root: &Node,
        read_through: u64,
        log: &dyn ChangeLog,
    ) -> Opened<(Store, Snapshot)> {
        let at = |what| {
            let path = directory.display().to_string();
            move |source| StoreError::Io { what, path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(at("create metadata store"))?;
        let lock = lock(directory)?;
        let file = directory.join(DATABASE);
        let exists = file.try_exists().map_err(at("look for the database in"))?;
        if !exists {
            if directory.join(CHECKED).exists() {
                return Err(damage(directory, "the database file is missing"));
            }
            create(directory, deployment, root)?;
        }
        clean_shutdown::settle(directory, &file).map_err(at("write the database anew in"))?;
        let watched = File::open(&file).map_err(at("open the database in"))?;
        let size = watched
            .metadata()
            .map_err(at("open the database in"))?
            .len();
        let was_read = size <= read_through;
        let (database, snapshot) = open_database(directory, deployment, exists && was_read)?;
        let commits = snapshot.facts.commits;
        if let Some(last) = crate::journal::missing(log, commits)? {
            let detail = format!("it ends at commit {commits}, but the journal tells of {last}");
            return Err(damage(directory, &detail));
        }
        if exists && was_read {
            keep_checked_copy(directory);
        }
        let store = Store {
            directory: directory.to_owned(),
            deployment: deployment.to_owned(),
            database: Some(database),
            facts: snapshot.facts.clone(),
            watched,
            failed: false,
            read_through,
            was_read,
            _lock: lock,
        };
        Ok((store, snapshot))
    }

    /// Makes the changes durable.
    pub fn commit(&mut self, pending: &Pending) -> Result<Snapshot> {
        let Some(database) = &self.database else {
            return Err(error(
                ErrorKind::Io,
                format!(
                    "metadata store {} is closed after an error",
                    self.directory.display()
                ),
            ));
        };
        let facts = self.facts.after(pending.totals);
        // A walk through a large database after a crash takes too long: its commits store what the walk would find.
        let size = self.watched.metadata().map_or(u64::MAX, |m| m.len());
        let quick = size > self.read_through;
        let snapshot = unpanicked(|| write(database, pending, &facts, quick))
            .and_then(|written| written.map_err(|e| e.to_string()));
        fs::settle();
        let snapshot = snapshot.map_err(|detail| {
            self.failed = true;
            self.commit_error(&detail)
        })?;
        self.facts = facts;
        Ok(snapshot)
    }

    /// Closes the database and reopens it from stable storage, as required after an I/O error. All snapshots must have
    /// been dropped.
    pub fn reopen(&mut self) -> Opened<Snapshot> {
        self.database = None;
        fs::settle();
        clean_shutdown::settle(&self.directory, &self.directory.join(DATABASE)).map_err(
            |source| StoreError::Io {
                what: "write the database anew in",
                path: self.directory.display().to_string(),
                source,
            },
        )?;
        let (database, snapshot) = open_database(&self.directory, &self.deployment, false)?;
        self.database = Some(database);
        self.facts = snapshot.facts.clone();
        Ok(snapshot)
    }

    /// Commits so far.
    pub fn commits(&self) -> u64 {
        self.facts.commits
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Whether it was read completely at the start.
    pub fn was_read(&self) -> bool {
        self.was_read
    }

    /// redb has the system's error number only in the text of its error.
    fn commit_error(&self, detail: &str) -> WireError {
        let full = FULL.iter().any(|code| detail.contains(code));
        let path = self.directory.display();
        if detail.contains(OVER_QUOTA) {
            error(
                ErrorKind::Quota,
                format!(
                    "metadata store {path}: the quota of its file system is used up ({detail}); remove files, or have it raised, the server then goes on by itself"
                ),
            )
        } else if full {
            error(
                ErrorKind::NoSpace,
                format!(
                    "metadata store {path} is full ({detail}); free some space there, the server then goes on by itself"
                ),
            )
        } else {
            error(
                ErrorKind::Io,
                format!(
                    "metadata store {path} cannot be written ({detail}); look at its disk, the server tries again"
                ),
            )
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.database = None;
        fs::settle();
        if !self.failed && fs::fdatasync(&self.watched).is_ok() {
            clean_shutdown::closed_in_order(&self.directory);
        }
    }
}

fn write(
    database: &Database,
    pending: &Pending,
    facts: &Facts,
    quick: bool,
) -> std::result::Result<Snapshot, Box<dyn std::error::Error>> {
    let mut transaction = database.begin_write()?;
    // A first sync for the data that the commit refers to, a second one for the reference. With a single sync, a start
    // that finds a bad page in the newest commit takes it for incomplete, and returns to the one before. Names
    // acknowledged as durable would then be lost silently.
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(quick);
    {
        let mut nodes = transaction.open_table(NODES)?;
        let mut stored = Vec::with_capacity(512);
        for (id, node) in &pending.nodes {
            match node {
                Some(node) => {
                    stored.clear();
                    node.encode(FileId(*id), &mut stored)?;
                    nodes.insert(id, stored.as_slice())?;
                }
                None => {
                    nodes.remove(id)?;
                }
            }
        }
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, id) in &pending.entries {
            match id {
                Some(id) => entries.insert(&**key, id)?,
                None => entries.remove(&**key)?,
            };
        }
        let mut slots = transaction.open_table(SLOTS)?;
        for (key, answered) in &pending.slots {
            stored.clear();
            stored = postcard::to_extend(answered, stored)?;
            slots.insert(key, stored.as_slice())?;
        }
        let mut sessions = transaction.open_table(SESSIONS)?;
        for (id, owner) in &pending.sessions {
            match owner {
                Some(owner) => {
                    sessions.insert(id, postcard::to_stdvec(owner)?.as_slice())?;
                }
                None => {
                    sessions.remove(id)?;
                    slots.retain_in((*id, 0)..=(*id, u16::MAX), |_, _| false)?;
                }
            }
        }
        users::write(&transaction, &pending.users, facts.commits)?;
        let mut about = transaction.open_table(ABOUT)?;
        about.insert(FACTS, postcard::to_stdvec(facts)?.as_slice())?;
        match penstock_host::boot() {
            Some(boot) => about.insert(BOOT, boot.to_le_bytes().as_slice())?,
            None => about.remove(BOOT)?,
        };
    }
    transaction.commit()?;
    Ok(Snapshot::of(database)?)
}

/// Makes a new database under a temporary name and renames it.
fn create(directory: &Path, deployment: &str, root: &Node) -> Opened<()> {
    let new = directory.join(format!("{DATABASE}.new"));
    let io = |source| StoreError::Io {
        what: "create",
        path: new.display().to_string(),
        source,
    };
    match fs::remove_file(&new) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = fs::open(&options, &new, false).map_err(io)?;
    let mut pending = Pending::default();
    pending.nodes.insert(ROOT.0, Some(root.clone().into()));
    pending.totals.directories = 1;
    let account = Account {
        files: 1,
        ..Account::default()
    };
    pending.users.accounts.insert(root.uid, Some(account));
    pending.users.rules.counted = true;
    let facts = Facts {
        format: FORMAT,
        deployment: deployment.to_owned(),
        totals: pending.totals,
        commits: 1,
        past_ids: Vec::new(),
    };
    let database = dirty_ranges::create(file).map_err(|e| io(std::io::Error::other(e)))?;
    write(&database, &pending, &facts, false)
        .map_err(|e| io(std::io::Error::other(e.to_string())))?;
    drop(database);
    fs::settle();
    fs::rename(&new, &directory.join(DATABASE)).map_err(io)?;
    File::open(directory)
        .and_then(|d| Ok(fs::fsync(&d)?))
        .map_err(io)
}

/// Refuses the names of another deployment.
fn check_deployment(directory: &Path, found: &str, expected: &str) -> Opened<()> {
    if found == expected {
        return Ok(());
    }
    Err(StoreError::WrongDeployment {
        path: directory.display().to_string(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    })
}

/// Opens the database, repairs it after a crash, and with `check` reads it completely.
fn open_database(directory: &Path, deployment: &str, check: bool) -> Opened<(Database, Snapshot)> {
    let path = directory.join(DATABASE);
    let trouble = Trouble::default();
    // A disk error is no damage, whatever the database makes of it.
    let damaged = |detail: &str| match trouble.why() {
        Some(why) => StoreError::Io {
            what: "read",
            path: path.display().to_string(),
            source: std::io::Error::other(why.to_owned()),
        },
        None => damage(directory, detail),
    };
    let size = std::fs::metadata(&path)
        .map_err(|source| StoreError::Io {
            what: "open",
            path: path.display().to_string(),
            source,
        })?
        .len();
    if size == 0 {
        return Err(damaged("the database file is empty"));
    }
    let repaired = Rc::new(Cell::new(false));
    let mut builder = Builder::new();
    builder.set_cache_size(PAGE_CACHE);
    builder.set_repair_callback({
        let (repaired, path) = (repaired.clone(), path.display().to_string());
        move |session| {
            repaired.set(true);
            log::info!(
                "{path} had no clean shutdown: {RECOVERS}: repair {:.0} % done",
                session.progress() * 100.0
            );
        }
    });
    let opened = unpanicked(|| dirty_ranges::open(&builder, directory, &path, &trouble));
    fs::settle();
    let mut database = opened
        .map_err(|panic| damaged(&panic))?
        .map_err(|e| match e {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse {
                path: directory.display().to_string(),
                holder: "another program".into(),
            },
            DatabaseError::Storage(StorageError::Io(source)) if !looks_damaged(&source) => {
                StoreError::Io {
                    what: "open",
                    path: path.display().to_string(),
                    source,
                }
            }
            e => damaged(&e.to_string()),
        })?;
    let read = |database: &Database| {
        unpanicked(|| Snapshot::of(database))
            .and_then(|s| s.map_err(|e| e.to_string()))
            .map_err(|detail| damaged(&detail))
    };
    let mut snapshot = read(&database)?;
    if snapshot.facts.format != FORMAT {
        return Err(damaged(&format!(
            "it has format {}, this server knows {FORMAT}",
            snapshot.facts.format
        )));
    }
    check_deployment(directory, &snapshot.facts.deployment, deployment)?;
    if check {
        let verify = |snapshot: &Snapshot| {
            unpanicked(|| scrub::all(snapshot))
                .and_then(|v| v.map_err(|e| e.message))
                .map_err(|detail| damaged(&detail))
        };
        verify(&snapshot)?;
        let commits = snapshot.facts.commits;
        drop(snapshot);
        let clean = unpanicked(|| database.check_integrity())
            .map_err(|panic| damaged(&panic))?
            .map_err(|e| damaged(&e.to_string()))?;
        snapshot = read(&database)?;
        if !clean {
            verify(&snapshot)?;
            if snapshot.facts.commits != commits {
                return Err(damaged(&format!(
                    "its newest {} commits are lost",
                    commits.saturating_sub(snapshot.facts.commits)
                )));
            }
            log::warn!(
                "{}: allocation state repaired, no names lost",
                path.display()
            );
        }
    }
    if repaired.get() {
        log::info!("{}: repaired after a crash", path.display());
    }
    Ok((database, snapshot))
}

/// Whether the directory contains names, intact or damaged.
pub fn is_made(directory: &Path) -> bool {
    directory.join(DATABASE).exists() || directory.join(CHECKED).exists()
}

/// Copies the database, which was just found in order. An optional copy: a failure is no error.
fn keep_checked_copy(directory: &Path) {
    let (from, to) = (directory.join(DATABASE), directory.join(CHECKED));
    let new = directory.join(format!("{CHECKED}.new"));
    let copy = || -> std::io::Result<()> {
        std::fs::copy(&from, &new)?;
        File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &to)
    };
    if let Err(e) = copy() {
        log::warn!("{}: no checked copy could be made: {e}", from.display());
        let _ = std::fs::remove_file(&new);
    }
}

/// Locks the directory for the life of the process.
fn lock(directory: &Path) -> Opened<DirectoryLock> {
    let path = directory.display().to_string();
    let io = |source| StoreError::Io {
        what: "lock",
        path: path.clone(),
        source,
    };
    let opened = File::open(directory).map_err(io)?;
    DirectoryLock::take(opened.as_fd(), LOCK).map_err(|refused| match refused {
        Refused::Held(holder) => StoreError::InUse {
            path: path.clone(),
            holder,
        },
        Refused::Failed(e) => io(e.into()),
    })
}

fn damage(directory: &Path, detail: &str) -> StoreError {
    let advice = if directory.join(CHECKED).exists() {
        format!(
            "restore {DATABASE} from a backup, or copy {CHECKED} (the state at the last start) over it and remove the files journal-*, then run `penstock check`"
        )
    } else {
        format!(
            "restore {DATABASE} from a backup without the files journal-*, then run `penstock check`"
        )
    };
    StoreError::Damaged {
        path: directory.join(DATABASE).display().to_string(),
        detail: detail.to_owned(),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change_log::MemoryLog;

    /// A copy of what a killed server leaves.
    fn left_by_a_kill(of: &Path) -> tempfile::TempDir {
        let left = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(of).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, left.path().join(path.file_name().unwrap())).unwrap();
        }
        left
    }

    #[test]
    fn a_large_store_is_opened_without_a_walk() {
        for (read_through, walks) in [(0, false), (u64::MAX, true)] {
            let dir = tempfile::tempdir().unwrap();
            let root = Node::new(penstock_wire::message::NodeKind::Directory);
            let (mut store, snapshot) =
                Store::open(dir.path(), "d", &root, read_through, &MemoryLog::default()).unwrap();
            drop(snapshot);
            for id in 2..200 {
                let mut pending = Pending::default();
                pending.totals.directories = 1;
                pending.nodes.insert(id, Some(root.clone().into()));
                drop(store.commit(&pending).unwrap());
            }
            let left = left_by_a_kill(dir.path());
            let walked = Rc::new(Cell::new(false));
            let tell = walked.clone();
            let database = Builder::new()
                .set_repair_callback(move |_| tell.set(true))
                .open(left.path().join(DATABASE))
                .unwrap();
            assert_eq!(walked.get(), walks);
            assert_eq!(
                Snapshot::of(&database).unwrap().facts.commits,
                store.commits()
            );
        }
    }
}
