//! Stable storage of the names: one redb database in the metadata server's directory.
//!
//! Tables: nodes by id, entries by (directory, name), sessions and their slots, and a few facts about the store. Each commit is one
//! transaction that ends in a disk flush; redb keeps the state before it until the flush is over, so that
//! a crash at any moment leaves the last or the one before, whole.
//!
//! Files in the directory: `namespace.redb`, `lock` (held while a server runs), the journal's, the mark of an orderly
//! stop (`settled`), and `namespace.checked`, a copy made at the last start that found everything in order (small stores
//! only).
use crate::RECOVERS;
use crate::error::{Result, damaged, error};
use crate::node::{Node, REMOVED, ROOT};
use crate::pending::{EntryKey, EntryRange, Pending, Totals};
use crate::settled;
use crate::slots::Note;
use penstock_host::fs::{self, Held};
use penstock_host::lock::{DirectoryLock, Refused};
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, NodeKind, WireError};
use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    ReadableTable, ReadableTableMetadata, StorageError, TableDefinition, TableError,
};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::ops::Bound;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const NODES: TableDefinition<u64, &[u8]> = TableDefinition::new("nodes");
const ENTRIES: TableDefinition<&[u8], u64> = TableDefinition::new("entries");
/// Owner of each session.
const SESSIONS: TableDefinition<u128, &[u8]> = TableDefinition::new("sessions");
/// The newest change of each slot of each session.
const SLOTS: TableDefinition<(u128, u16), &[u8]> = TableDefinition::new("slots");
const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
/// Key in `ABOUT`.
const FACTS: &str = "facts";
/// Key in `ABOUT`: the boot of the system that made the last commit.
const BOOT: &str = "boot";

const FORMAT: u32 = 1;
const DATABASE: &str = "namespace.redb";
const CHECKED: &str = "namespace.checked";
const LOCK: &str = "lock";

/// How system errors that mean "no room" end: disk, quota, file size limit.
const FULL: [&str; 3] = ["(os error 28)", "(os error 122)", "(os error 27)"];

/// Ranges of given ids that are remembered; each start adds one.
pub const PAST_IDS: usize = 128;

/// redb's page cache.
const PAGE_CACHE: usize = 64 << 20;
/// Stores up to this size are read through and copied at each start.
const CHECK_AT_START: u64 = 64 << 20;

/// Why the metadata store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another server holds it.
    #[error(
        "metadata store {path} is in use by {holder}; stop that server first (`penstock down`)"
    )]
    InUse {
        /// The store's directory.
        path: String,
        /// Who, as far as known.
        holder: String,
    },
    /// It was made for another deployment.
    #[error(
        "metadata store {path} belongs to deployment {found}, not {expected}; give each deployment a directory of its own"
    )]
    WrongDeployment {
        /// The store's directory.
        path: String,
        /// Its deployment id.
        found: String,
        /// The id of the deployment file.
        expected: String,
    },
    /// Its contents are not what was written.
    #[error("metadata store {path} is damaged: {detail}; {advice}")]
    Damaged {
        /// The database file.
        path: String,
        /// What was found.
        detail: String,
        /// What to do.
        advice: String,
    },
    /// The system refused.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

type Opened<T> = std::result::Result<T, StoreError>;

/// What the store says about itself; rewritten by each commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    format: u32,
    deployment: String,
    totals: Totals,
    /// Transactions so far: tells whether a repair lost one.
    commits: u64,
    /// Ranges of ids that earlier runs may have given out, ascending.
    past_ids: Vec<(u64, u64)>,
}

impl Facts {
    /// After a commit that leaves these totals.
    fn after(&self, totals: Totals) -> Facts {
        let mut past_ids = self.past_ids.clone();
        if totals.ids_from != self.totals.ids_from && self.totals.ids_reserved > 0 {
            past_ids.push((self.totals.ids_from, self.totals.ids_reserved));
            if past_ids.len() > PAST_IDS {
                // The two oldest become one.
                past_ids[1].0 = past_ids[0].0;
                past_ids.remove(0);
            }
        }
        Facts {
            totals,
            commits: self.commits + 1,
            past_ids,
            ..self.clone()
        }
    }
}

/// The names as of one commit.
pub struct Snapshot {
    nodes: ReadOnlyTable<u64, &'static [u8]>,
    entries: ReadOnlyTable<&'static [u8], u64>,
    facts: Facts,
    boot: Option<u128>,
    transaction: ReadTransaction,
}

impl Snapshot {
    fn of(database: &Database) -> std::result::Result<Snapshot, redb::Error> {
        let transaction = database.begin_read()?;
        let about = transaction.open_table(ABOUT)?;
        let facts = about
            .get(FACTS)?
            .and_then(|stored| postcard::from_bytes(stored.value()).ok())
            .ok_or_else(|| redb::Error::Corrupted("the store's own description is lost".into()))?;
        let boot = about
            .get(BOOT)?
            .and_then(|stored| stored.value().try_into().ok())
            .map(u128::from_le_bytes);
        Ok(Snapshot {
            boot,
            nodes: transaction.open_table(NODES)?,
            entries: transaction.open_table(ENTRIES)?,
            facts,
            transaction,
        })
    }

    pub fn totals(&self) -> Totals {
        self.facts.totals
    }

    /// So many commits have led to it.
    pub fn commits(&self) -> u64 {
        self.facts.commits
    }

    /// Whether the system has not been started again since this commit.
    pub fn is_of_this_boot(&self) -> bool {
        self.boot.is_some() && self.boot == penstock_host::boot()
    }

    /// Sessions and their slots, as they were noted.
    pub fn sessions(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        if let Some(sessions) = there(self.transaction.open_table(SESSIONS))? {
            for item in sessions.iter().map_err(read_error)? {
                let (id, owner) = item.map_err(read_error)?;
                let owner = postcard::from_bytes(owner.value()).map_err(damaged)?;
                notes.push(Note::Opened(id.value(), owner));
            }
        }
        if let Some(slots) = there(self.transaction.open_table(SLOTS))? {
            for item in slots.iter().map_err(read_error)? {
                let (key, answered) = item.map_err(read_error)?;
                let (id, slot) = key.value();
                let answered = postcard::from_bytes(answered.value()).map_err(damaged)?;
                notes.push(Note::Answered(id, slot, answered));
            }
        }
        Ok(notes)
    }

    pub fn past_ids(&self) -> &[(u64, u64)] {
        &self.facts.past_ids
    }

    pub fn node(&self, id: FileId) -> Result<Option<Node>> {
        match self.nodes.get(id.0).map_err(read_error)? {
            Some(stored) => Node::decode(id, stored.value()).map(Some),
            None => Ok(None),
        }
    }

    pub fn entry(&self, key: &[u8]) -> Result<Option<u64>> {
        let id = self.entries.get(key).map_err(read_error)?;
        Ok(id.map(|id| id.value()))
    }

    pub fn nodes(
        &self,
        start: Bound<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, std::sync::Arc<Node>)>> + '_> {
        let range = self
            .nodes
            .range((start, Bound::Unbounded))
            .map_err(read_error)?;
        Ok(range.map(|item| {
            let (id, stored) = item.map_err(read_error)?;
            let node = Node::decode(FileId(id.value()), stored.value())?;
            Ok((id.value(), node.into()))
        }))
    }

    pub fn entries(
        &self,
        range: EntryRange,
    ) -> Result<impl Iterator<Item = Result<(Vec<u8>, u64)>> + '_> {
        let range = self.entries.range::<&[u8]>(range).map_err(read_error)?;
        Ok(range.map(|item| {
            let (key, id) = item.map_err(read_error)?;
            Ok((key.value().to_vec(), id.value()))
        }))
    }

    /// Reads everything and checks that nodes, entries and totals agree.
    fn verify(&self) -> Result<()> {
        let (mut files, mut directories, mut names) = (0, 0, 0u64);
        for item in self.nodes(Bound::Unbounded)? {
            let (id, node) = item?;
            match node.kind {
                NodeKind::Directory => directories += 1,
                NodeKind::File | NodeKind::Symlink => files += 1,
            }
            if id == ROOT.0 {
                continue;
            }
            for (parent, name) in node.names() {
                names += 1;
                let key = EntryKey::new(parent, name);
                if self.entry(key.as_slice())? != Some(id) {
                    return Err(damaged(format!("\"{name}\" has lost its entry")));
                }
                if parent != REMOVED && !self.node(parent)?.is_some_and(|d| d.is_directory()) {
                    return Err(damaged(format!("\"{name}\" has lost its directory")));
                }
            }
        }
        let totals = self.totals();
        if (files, directories) != (totals.files, totals.directories) {
            return Err(damaged(format!(
                "{files} files and {directories} directories are left of {} and {}",
                totals.files, totals.directories
            )));
        }
        let mut entries = 0;
        for item in self.entries((Bound::Unbounded, Bound::Unbounded))? {
            item?;
            entries += 1;
        }
        let stored = self.entries.len().map_err(read_error)?;
        if entries != names || stored != entries {
            return Err(damaged(format!(
                "{entries} entries where {files} files and {directories} directories have {names} names"
            )));
        }
        Ok(())
    }
}

/// The database, opened for one server.
pub struct Store {
    directory: PathBuf,
    deployment: String,
    /// `None` only after an error, until it is opened again.
    database: Option<Database>,
    facts: Facts,
    /// The database's file, opened before the database: tells of every write-back that has failed since.
    watched: File,
    /// A commit has failed.
    failed: bool,
    /// Held as long as the store is open.
    _lock: DirectoryLock,
}

impl Store {
    /// Opens the store in `directory` for the deployment, or makes a new one whose root directory is `root`.
    pub fn open(directory: &Path, deployment: &str, root: &Node) -> Opened<(Store, Snapshot)> {
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
        settled::settle(directory, &file).map_err(at("write the database anew in"))?;
        let watched = File::open(&file).map_err(at("open the database in"))?;
        let (database, snapshot) = open_database(directory, deployment, exists)?;
        let commits = snapshot.facts.commits;
        if let Some(last) = crate::journal::missing(directory, commits)? {
            let detail = format!("it ends at commit {commits}, but the journal tells of {last}");
            return Err(damage(directory, &detail));
        }
        if exists {
            keep_checked_copy(directory);
        }
        let store = Store {
            directory: directory.to_owned(),
            deployment: deployment.to_owned(),
            database: Some(database),
            facts: snapshot.facts.clone(),
            watched,
            failed: false,
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
        let snapshot = unpanicked(|| write(database, pending, &facts))
            .and_then(|written| written.map_err(|e| e.to_string()));
        fs::settle();
        let snapshot = snapshot.map_err(|detail| {
            self.failed = true;
            self.commit_error(&detail)
        })?;
        self.facts = facts;
        Ok(snapshot)
    }

    /// Closes the database and opens it from what is on stable storage, as it has to be after an I/O error. No snapshot
    /// may be left.
    pub fn reopen(&mut self) -> Opened<Snapshot> {
        self.database = None;
        fs::settle();
        settled::settle(&self.directory, &self.directory.join(DATABASE)).map_err(|source| {
            StoreError::Io {
                what: "write the database anew in",
                path: self.directory.display().to_string(),
                source,
            }
        })?;
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

    /// redb does not keep the system's error number apart from its text.
    fn commit_error(&self, detail: &str) -> WireError {
        let full = FULL.iter().any(|code| detail.contains(code));
        let path = self.directory.display();
        if full {
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
            settled::closed_in_order(&self.directory);
        }
    }
}

fn write(
    database: &Database,
    pending: &Pending,
    facts: &Facts,
) -> std::result::Result<Snapshot, Box<dyn std::error::Error>> {
    let transaction = database.begin_write()?;
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

/// The database's file in a simulated world.
#[derive(Debug)]
struct Backend(Held);

impl redb::StorageBackend for Backend {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(at, into)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync()
    }
    fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_at(at, bytes)
    }
}

/// Makes a new database aside and puts it in place whole.
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
    let facts = Facts {
        format: FORMAT,
        deployment: deployment.to_owned(),
        totals: pending.totals,
        commits: 1,
        past_ids: Vec::new(),
    };
    let database = match Held::new(file) {
        Err(file) => Builder::new().create_file(file),
        Ok(held) => Builder::new().create_with_backend(Backend(held)),
    }
    .map_err(|e| io(std::io::Error::other(e)))?;
    write(&database, &pending, &facts).map_err(|e| io(std::io::Error::other(e.to_string())))?;
    drop(database);
    fs::settle();
    fs::rename(&new, &directory.join(DATABASE)).map_err(io)?;
    File::open(directory)
        .and_then(|d| Ok(fs::fsync(&d)?))
        .map_err(io)
}

/// Opens the database, repairs what a crash left half done, and with `check` reads small stores through.
fn open_database(directory: &Path, deployment: &str, check: bool) -> Opened<(Database, Snapshot)> {
    let path = directory.join(DATABASE);
    let damaged = |detail: &str| damage(directory, detail);
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
                "{path} was not closed in order: {RECOVERS}: repair {:.0} % done",
                session.progress() * 100.0
            );
        }
    });
    let open = || match fs::held(&path)? {
        None => builder.open(&path),
        Some(held) => builder.create_with_backend(Backend(held)),
    };
    let opened = unpanicked(open);
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
    if snapshot.facts.deployment != deployment {
        return Err(StoreError::WrongDeployment {
            path: directory.display().to_string(),
            found: snapshot.facts.deployment,
            expected: deployment.to_owned(),
        });
    }
    if check && size <= CHECK_AT_START {
        let verify = |snapshot: &Snapshot| {
            unpanicked(|| snapshot.verify())
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
                    "its newest {} commits could not be kept",
                    commits.saturating_sub(snapshot.facts.commits)
                )));
            }
            log::warn!("{}: bookkeeping repaired, no names lost", path.display());
        }
    }
    if repaired.get() {
        log::info!("{}: repaired after a crash", path.display());
    }
    Ok((database, snapshot))
}

/// Whether the directory holds names, whole or damaged.
pub fn is_made(directory: &Path) -> bool {
    directory.join(DATABASE).exists() || directory.join(CHECKED).exists()
}

/// Copies the database, which was just found in order, beside itself. A convenience: failing is no error.
fn keep_checked_copy(directory: &Path) {
    let (from, to) = (directory.join(DATABASE), directory.join(CHECKED));
    let new = directory.join(format!("{CHECKED}.new"));
    let copy = || -> std::io::Result<()> {
        if std::fs::metadata(&from)?.len() > CHECK_AT_START {
            return Ok(());
        }
        std::fs::copy(&from, &new)?;
        File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &to)
    };
    if let Err(e) = copy() {
        log::warn!("{}: no checked copy could be made: {e}", from.display());
        let _ = std::fs::remove_file(&new);
    }
}

/// Takes the directory's lock for life.
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

/// Errors that redb reports as I/O but that come from what the file holds.
fn looks_damaged(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
    )
}

/// A table, if a store of an older release has it.
fn there<T>(table: std::result::Result<T, TableError>) -> Result<Option<T>> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(TableError::Storage(e)) => Err(read_error(e)),
        Err(e) => Err(damaged(e)),
    }
}

fn read_error(e: StorageError) -> WireError {
    match e {
        StorageError::Io(e) if !looks_damaged(&e) => error(
            ErrorKind::Io,
            format!("the metadata store cannot be read ({e}); look at its disk"),
        ),
        e => damaged(e),
    }
}

/// Runs code of the database on data that may be damaged; it then may panic.
fn unpanicked<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        format!(
            "the database gave up: {}",
            text.unwrap_or("no reason given")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_given_ids_are_kept_and_bounded() {
        let mut facts = Facts {
            format: FORMAT,
            deployment: "d".into(),
            totals: Totals::default(),
            commits: 1,
            past_ids: Vec::new(),
        };
        let runs = 2 * PAST_IDS as u64;
        for run in 1..=runs {
            for end in 1..3 {
                facts = facts.after(Totals {
                    ids_from: 100 * run,
                    ids_reserved: 100 * run + 10 * end,
                    ..Totals::default()
                });
            }
        }
        assert_eq!(facts.commits, 1 + 2 * runs);
        assert_eq!(facts.past_ids.len(), PAST_IDS);
        let newest = 100 * (runs - 1);
        assert_eq!(facts.past_ids.last(), Some(&(newest, newest + 20)));
        assert_eq!(facts.past_ids[0].0, 100, "the oldest cover all before");
        assert!(facts.past_ids.is_sorted_by(|a, b| a.1 <= b.0));
    }
}
