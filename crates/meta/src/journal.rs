//! Changes on their way to a commit, kept where the death of the server does not reach them.
//!
//! Problem: changes are acknowledged before they are on stable storage; a server that is killed would take the last
//! ones with it, and a file made a moment ago would be gone under the program that writes it.
//! Idea: each change is appended to a plain file before it is acknowledged, without a flush: the system's page cache
//! outlives the process. A server that starts replays what no commit holds. When it pays: always; an append costs
//! about a microsecond. A crash of the whole machine may take the journal, as it may all that was not synced.
//!
//! One file per commit, `journal-N` for commit N. When the commit begins its file is sealed and the next one begun;
//! when it has ended the file is removed. Replay goes on to the next file only over a seal, so that what it finds is all
//! changes up to some moment. While the file before is there without a seal nothing is appended: changes wait for their
//! commit. After that commit the file begins with all changes collected by then.
//! Record: length and CRC-32 of the payload, CRC-32 of these two (little endian, 4 bytes each), payload.
//!
//! *What cannot be read.* A server that is killed leaves at most one record that was not written to its end, which nobody was
//! told of. Anything else that is no record is damage on the same boot of the system (the database has the boot of its last
//! commit, and the files that follow it are of the same process): the server does not start. After another boot pages
//! of the files may have reached the disk in any order: replay ends at the first bad record, as it may for names that
//! were not synced. Errors of listing and reading always keep the server from starting. Files are removed only when
//! a commit holds all that they tell.
use crate::node::Node;
use crate::pending::Pending;
use crate::slots::Note;
use crate::store::StoreError;
use penstock_host::fs;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "journal-";
const HEADER: usize = 12;

/// What one request changed: the newest value per key, `None` = removed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Nodes in their stored form.
    pub nodes: Vec<(u64, Option<Vec<u8>>)>,
    pub entries: Vec<(Box<[u8]>, Option<u64>)>,
    /// What became of the request, if it may come again.
    pub notes: Vec<Note>,
    pub files: u64,
    pub directories: u64,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.entries.is_empty() && self.notes.is_empty()
    }

    /// Puts the changes over those that came before them.
    pub fn apply(self, pending: &mut Pending) -> crate::error::Result<()> {
        for (id, node) in self.nodes {
            let node = match node {
                Some(stored) => Some(Arc::new(Node::decode(FileId(id), &stored)?)),
                None => None,
            };
            pending.nodes.insert(id, node);
        }
        pending.entries.extend(self.entries);
        self.notes.into_iter().for_each(|note| pending.note(note));
        pending.totals.files = self.files;
        pending.totals.directories = self.directories;
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
enum Record {
    Changes(Changes),
    /// The last one: nothing was lost between this file and the next.
    Sealed,
}

/// The file that changes go to now.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    /// `None` when it cannot be written; changes then have to wait for their commit.
    file: Option<File>,
    /// There is a file, though perhaps one that cannot be written any more.
    there: bool,
    /// The commit that will hold what is in `file`.
    commit: u64,
}

impl Journal {
    /// Begins the file for commit number `commit`; all older files must be held by commits.
    pub fn begin(directory: &Path, commit: u64) -> Result<Journal, StoreError> {
        for (_, path) in files(directory)? {
            remove(&path);
        }
        let mut journal = Journal {
            directory: directory.to_owned(),
            file: None,
            there: false,
            commit,
        };
        journal.open();
        Ok(journal)
    }

    fn open(&mut self) {
        let path = path(&self.directory, self.commit);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        self.file = fs::open(&options, &path, true)
            .map_err(|e| lost(&path, &e))
            .ok();
        self.there = self.file.is_some();
    }

    /// True when the changes outlive this process. If not they have to be committed before they are acknowledged.
    pub fn append(&mut self, changes: Changes) -> bool {
        self.write(&Record::Changes(changes))
    }

    /// Whether what was appended last outlives this process.
    pub fn is_written(&self) -> bool {
        self.file.is_some()
    }

    fn write(&mut self, record: &Record) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        let mut bytes = vec![0; HEADER];
        let written = postcard::to_io(record, &mut bytes)
            .map_err(std::io::Error::other)
            .and_then(|bytes| {
                let payload = &bytes[HEADER..];
                let length = u32::try_from(payload.len()).map_err(std::io::Error::other)?;
                let crc = crc32fast::hash(payload);
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4..8].copy_from_slice(&crc.to_le_bytes());
                let crc = crc32fast::hash(&bytes[..8]);
                bytes[8..HEADER].copy_from_slice(&crc.to_le_bytes());
                fs::write_all(file, bytes)
            });
        if let Err(e) = written {
            lost(&path(&self.directory, self.commit), &e);
            // What follows a torn record would not be found.
            self.file = None;
            return false;
        }
        true
    }

    /// The commit of what is in the file begins; what comes now is the next one's.
    pub fn turn(&mut self) {
        let sealed = self.write(&Record::Sealed);
        if !self.there {
            // An empty one, where replay ends: a file without the one before it would tell of a commit that is missing.
            self.open();
        }
        let before = self.there;
        self.commit += 1;
        (self.file, self.there) = (None, false);
        if before {
            self.open();
        }
        if !sealed {
            // Replay would not come as far as this file.
            self.file = None;
        }
    }

    /// The commit that began with [`Journal::turn`] is on stable storage, as number `commits`. That is further on than
    /// planned when an attempt that was reported as failed had succeeded. `collected` gives all changes since, for a file
    /// that does not have them.
    pub fn committed(&mut self, commits: u64, collected: impl FnOnce() -> Option<Changes>) {
        remove(&path(&self.directory, self.commit - 1));
        if commits + 1 != self.commit {
            let (old, new) = (self.commit, commits + 1);
            let (from, to) = (path(&self.directory, old), path(&self.directory, new));
            if let Err(e) = fs::rename(&from, &to) {
                if self.there {
                    lost(&from, &e);
                }
                (self.file, self.there) = (None, false);
            }
            self.commit = new;
        }
        if self.file.is_none() {
            self.open();
            match collected() {
                Some(changes) if self.file.is_some() => {
                    let _ = changes.is_empty() || self.append(changes);
                }
                _ => self.file = None,
            }
        }
    }

    /// Everything is on stable storage and nothing more will come. The file stays, empty: its number tells the next
    /// start how far the commits went.
    pub fn end(&mut self) {
        self.file = None;
    }
}

/// What a start found.
#[derive(Debug, Default)]
pub struct Replayed {
    /// In order.
    pub changes: Vec<Changes>,
    /// Bytes that a crash of the system has left unreadable.
    pub unreadable: u64,
}

/// What was acknowledged after commit number `commits` and is in no commit. `same_boot`: the system has not been
/// started again since that commit.
pub fn replay(directory: &Path, commits: u64, same_boot: bool) -> Result<Replayed, StoreError> {
    let mut found = Replayed::default();
    let mut next = commits + 1;
    let mut ended: Option<PathBuf> = None;
    for (number, path) in files(directory)? {
        if number < next {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|source| StoreError::Io {
            what: "read journal",
            path: path.display().to_string(),
            source,
        })?;
        if let Some(before) = ended.as_ref().filter(|_| !bytes.is_empty()) {
            if same_boot {
                let detail = format!(
                    "{} follows it, but it does not say that it is whole",
                    path.display()
                );
                return Err(damage(before, detail));
            }
            found.unreadable += bytes.len() as u64;
            continue;
        }
        let (used, end) = records(&bytes, &mut found.changes);
        match end {
            End::Sealed if number == next => {
                next += 1;
                continue;
            }
            End::Bad if same_boot => {
                let detail = format!("byte {used} of {} begins no record", bytes.len());
                return Err(damage(&path, detail));
            }
            _ => {}
        }
        let rest = (bytes.len() - used) as u64;
        if rest > 0 && !same_boot {
            log::warn!(
                "journal {} cannot be read after {used} of {} bytes, as a crash of the system leaves it: names changed later and not synced are lost",
                path.display(),
                bytes.len()
            );
            found.unreadable += rest;
        }
        ended = Some(path);
    }
    Ok(found)
}

fn damage(path: &Path, detail: String) -> StoreError {
    StoreError::Damaged {
        path: path.display().to_string(),
        detail,
        advice: "restore the directory from a backup; or, to go on without the last names that were changed and not synced, move the files journal-* out of it, start the server and run `penstock check`".into(),
    }
}

/// The last commit that the journal tells of, if the database, which ends at commit number `commits`, does not have it:
/// file N is only begun when commit N - 1 begins, and file N - 1 only removed when that has ended.
pub fn missing(directory: &Path, commits: u64) -> Result<Option<u64>, StoreError> {
    let files = files(directory)?;
    let first = files.iter().find(|(number, _)| *number > commits);
    Ok(first
        .filter(|(first, _)| *first > commits + 1)
        .map(|(first, _)| first - 1))
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The next file goes on.
    Sealed,
    /// With its last record, or in the middle of one that was not written to its end.
    Open,
    /// With bytes that are no record.
    Bad,
}

/// Adds the changes of one file; how many of its bytes are whole records, and what follows.
fn records(all: &[u8], found: &mut Vec<Changes>) -> (usize, End) {
    let mut bytes = all;
    loop {
        let used = all.len() - bytes.len();
        let number = |b: &[u8]| b.try_into().map_or(0, u32::from_le_bytes);
        let Some((header, rest)) = bytes.split_at_checked(HEADER) else {
            return (used, End::Open);
        };
        if crc32fast::hash(&header[..8]) != number(&header[8..]) {
            return (used, End::Bad);
        }
        let Some((payload, rest)) = rest.split_at_checked(number(&header[..4]) as usize) else {
            return (used, End::Open);
        };
        let good = crc32fast::hash(payload) == number(&header[4..8]);
        match postcard::from_bytes(payload).ok().filter(|_| good) {
            Some(Record::Changes(changes)) => {
                found.push(changes);
                bytes = rest;
            }
            Some(Record::Sealed) if rest.is_empty() => return (all.len(), End::Sealed),
            Some(Record::Sealed) | None => return (used, End::Bad),
        }
    }
}

fn path(directory: &Path, commit: u64) -> PathBuf {
    // Of one width, so that names sort as numbers do.
    directory.join(format!("{PREFIX}{commit:020}"))
}

/// The journal files, in order.
fn files(directory: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let list = |source| StoreError::Io {
        what: "list the journal in",
        path: directory.display().to_string(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(list)? {
        let entry = entry.map_err(list)?;
        let name = entry.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
            let number = number
                .parse()
                .map_err(|_| damage(&entry.path(), "its name has no number".into()))?;
            files.push((number, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

fn remove(path: &Path) {
    if let Err(e) = fs::remove_file(path)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        log::warn!(
            "journal {} cannot be removed: {e}; it does no harm",
            path.display()
        );
    }
}

fn lost(path: &Path, e: &std::io::Error) {
    log::warn!(
        "journal {} cannot be written: {e}; changes wait for their commit meanwhile; look at its disk",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(n: u64) -> Changes {
        Changes {
            nodes: vec![(n, None)],
            entries: vec![(vec![7; 9].into(), Some(n))],
            notes: Vec::new(),
            files: n,
            directories: 1,
        }
    }

    fn begin(directory: &Path, commit: u64) -> Journal {
        Journal::begin(directory, commit).unwrap()
    }

    /// Which changes are found after a kill on the same boot.
    fn found(directory: &Path, commits: u64) -> Vec<u64> {
        let found = replay(directory, commits, true).unwrap();
        assert_eq!(found.unreadable, 0);
        found.changes.iter().map(|changes| changes.files).collect()
    }

    fn nothing() -> Option<Changes> {
        Some(Changes::default())
    }

    fn unneeded() -> Option<Changes> {
        panic!("the file has them")
    }

    #[test]
    fn a_file_that_could_not_be_made_is_no_missing_commit() {
        let dir = tempfile::tempdir().unwrap();
        // Something is in the way, as a full disk would be.
        let obstacle = path(dir.path(), 29);
        std::fs::create_dir(&obstacle).unwrap();
        let mut journal = begin(dir.path(), 29);
        assert!(!journal.append(changes(1)), "it has to wait for its commit");
        std::fs::remove_dir(&obstacle).unwrap();
        journal.turn();
        assert!(!journal.append(changes(2)), "replay would not find it");
        // The power fails, or the server is killed, before commit 29 has ended.
        assert_eq!(missing(dir.path(), 28).unwrap(), None);
        assert!(found(dir.path(), 28).is_empty());
        // And after that.
        journal.committed(29, || Some(changes(2)));
        assert_eq!(found(dir.path(), 29), [2]);
        assert_eq!(missing(dir.path(), 28).unwrap(), Some(29));
        assert!(journal.append(changes(3)));
        assert_eq!(found(dir.path(), 29), [2, 3]);
        // Still in the way when the commit begins.
        std::fs::create_dir(path(dir.path(), 31)).unwrap();
        journal.turn();
        assert!(!journal.append(changes(4)));
        std::fs::create_dir(path(dir.path(), 32)).unwrap();
        journal.committed(30, || Some(changes(4)));
        assert!(!journal.append(changes(5)));
        journal.turn();
        assert!(!journal.append(changes(6)));
    }

    #[test]
    fn what_no_commit_holds_is_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = begin(dir.path(), 5);
        assert!(journal.append(changes(1)) && journal.append(changes(2)));
        assert_eq!(found(dir.path(), 4), [1, 2]);
        journal.turn();
        assert!(journal.append(changes(3)));
        assert_eq!(found(dir.path(), 4), [1, 2, 3]);
        assert_eq!(found(dir.path(), 5), [3], "the commit is there");
        journal.committed(5, unneeded);
        assert_eq!(found(dir.path(), 5), [3]);
        assert_eq!(missing(dir.path(), 4).unwrap(), Some(5));
        assert_eq!(missing(dir.path(), 5).unwrap(), None);
        journal.turn();
        assert!(journal.append(changes(4)));
        journal.committed(7, unneeded);
        assert_eq!(found(dir.path(), 7), [4], "another number than planned");
        journal.turn();
        journal.committed(8, unneeded);
        journal.end();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(found(dir.path(), 8), [0; 0]);
        assert_eq!(missing(dir.path(), 7).unwrap(), Some(8));
    }

    #[test]
    fn after_a_torn_append_changes_wait_until_the_file_is_whole_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = begin(dir.path(), 5);
        assert!(journal.append(changes(1)));
        // The disk takes half a record.
        let file = path(dir.path(), 5);
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, [&whole[..], &whole[..9]].concat()).unwrap();
        journal.file = None;
        assert!(!journal.append(changes(2)));
        journal.turn();
        assert!(
            !journal.append(changes(3)),
            "replay ends at the torn record"
        );
        assert_eq!(found(dir.path(), 4), [1]);
        journal.committed(5, || Some(changes(3)));
        assert!(journal.append(changes(4)));
        assert_eq!(found(dir.path(), 5), [3, 4]);
        journal.turn();
        journal.committed(6, unneeded);
        journal.file = None;
        journal.turn();
        journal.committed(7, nothing);
        assert!(journal.append(changes(5)));
        assert_eq!(found(dir.path(), 7), [5]);
    }

    /// Two files, and the first one as it was written.
    fn two_files(dir: &Path) -> (PathBuf, Vec<u8>) {
        let mut journal = begin(dir, 1);
        for n in 1..=3 {
            assert!(journal.append(changes(n)));
        }
        journal.turn();
        assert!(journal.append(changes(4)));
        let first = path(dir, 1);
        let whole = std::fs::read(&first).unwrap();
        (first, whole)
    }

    #[test]
    fn on_the_same_boot_a_changed_record_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let (first, whole) = two_files(dir.path());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            std::fs::write(&first, bytes).unwrap();
            let e = replay(dir.path(), 0, true).unwrap_err().to_string();
            assert!(
                e.contains("damaged") && e.contains(first.to_str().unwrap()),
                "{e}"
            );
        }
        // Cut, and the next one tells that there was more.
        for len in 0..whole.len() {
            std::fs::write(&first, &whole[..len]).unwrap();
            assert!(replay(dir.path(), 0, true).is_err(), "{len}");
        }
        // The last one may end in the middle of a record: nobody was told of that one.
        std::fs::write(&first, &whole).unwrap();
        let last = path(dir.path(), 2);
        let bytes = std::fs::read(&last).unwrap();
        for len in 0..bytes.len() {
            std::fs::write(&last, &bytes[..len]).unwrap();
            assert_eq!(found(dir.path(), 0), [1, 2, 3]);
        }
    }

    #[test]
    fn after_another_boot_it_ends_at_the_first_bad_record() {
        let dir = tempfile::tempdir().unwrap();
        let (first, whole) = two_files(dir.path());
        let check = |bytes: &[u8]| {
            std::fs::write(&first, bytes).unwrap();
            let found = replay(dir.path(), 0, false).unwrap();
            let files: Vec<u64> = found.changes.iter().map(|c| c.files).collect();
            assert!(files.len() <= 3, "the next file is out of reach: {files:?}");
            assert!(files.iter().copied().eq(1..=files.len() as u64));
            assert!(found.unreadable > 0);
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            check(&bytes);
            check(&whole[..at]);
        }
        check(&vec![0; whole.len()]);
    }

    #[test]
    fn what_cannot_be_listed_or_read_is_not_taken_for_empty() {
        let dir = tempfile::tempdir().unwrap();
        for same_boot in [true, false] {
            let none = dir.path().join("none");
            assert!(replay(&none, 0, same_boot).is_err());
            assert!(missing(&none, 0).is_err() && Journal::begin(&none, 1).is_err());
            let obstacle = path(dir.path(), 1);
            std::fs::create_dir(&obstacle).unwrap();
            let e = replay(dir.path(), 0, same_boot).unwrap_err().to_string();
            assert!(e.contains(obstacle.to_str().unwrap()), "{e}");
            std::fs::remove_dir(&obstacle).unwrap();
            let strange = dir.path().join("journal-old");
            std::fs::write(&strange, b"").unwrap();
            assert!(replay(dir.path(), 0, same_boot).is_err());
            std::fs::remove_file(&strange).unwrap();
        }
    }
}
