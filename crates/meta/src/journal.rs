//! Changes on their way to a commit, kept where the death of the server does not reach them.
//!
//! Problem: changes are acknowledged before they are on stable storage; a server that is killed would take the last
//! ones with it, and a file made a moment ago would be gone under the program that writes it.
//! Idea: each change is appended to a plain file before it is acknowledged, without a flush: the system's page cache
//! outlives the process. A server that starts replays what no commit holds. When it pays: always; an append costs
//! about a microsecond. A crash of the whole machine may take the journal, as it may all that was not synced.
//!
//! One file per commit, `journal-N` for commit N. When the commit begins its file is sealed and the next one begun;
//! when it has ended the file is removed. Replay goes on to the next file only over a seal, and ends at the first
//! record that is torn, so that what it finds is all changes up to some moment. Record: length and CRC-32 of the
//! payload (little endian, 4 bytes each), payload.
use crate::node::Node;
use crate::pending::Pending;
use crate::slots::Note;
use penstock_host::fs;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "journal-";
const HEADER: usize = 8;

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
    pub fn begin(directory: &Path, commit: u64) -> Journal {
        for (_, path) in files(directory) {
            remove(&path);
        }
        let mut journal = Journal {
            directory: directory.to_owned(),
            file: None,
            there: false,
            commit,
        };
        journal.open();
        journal
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
                bytes[4..HEADER].copy_from_slice(&crc.to_le_bytes());
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
        self.write(&Record::Sealed);
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
    }

    /// The commit that began with [`Journal::turn`] is on stable storage, as number `commits`. That is further on than
    /// planned when an attempt that was reported as failed had succeeded.
    pub fn committed(&mut self, commits: u64) {
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
    }

    /// Everything is on stable storage and nothing more will come. The file stays, empty: its number tells the next
    /// start how far the commits went.
    pub fn end(&mut self) {
        self.file = None;
    }
}

/// What was acknowledged after commit number `commits` and is in no commit, in order.
pub fn replay(directory: &Path, commits: u64) -> Vec<Changes> {
    let mut found = Vec::new();
    let mut next = commits + 1;
    for (number, path) in files(directory) {
        if number < next {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        if number > next {
            break;
        }
        let (used, sealed) = records(&bytes, &mut found);
        if !sealed {
            if used < bytes.len() {
                log::warn!(
                    "journal {} is torn or damaged after {used} of {} bytes: names changed later and not synced are lost",
                    path.display(),
                    bytes.len()
                );
            }
            break;
        }
        next += 1;
    }
    found
}

/// The last commit that the journal tells of, if the database, which ends at commit number `commits`, does not have it:
/// file N is only begun when commit N - 1 begins, and file N - 1 only removed when that has ended.
pub fn missing(directory: &Path, commits: u64) -> Option<u64> {
    let files = files(directory);
    let (first, _) = files.iter().find(|(number, _)| *number > commits)?;
    (*first > commits + 1).then(|| first - 1)
}

/// Adds the changes of one file; how many of its bytes are whole records, and whether it was sealed.
fn records(all: &[u8], found: &mut Vec<Changes>) -> (usize, bool) {
    let mut bytes = all;
    loop {
        let used = all.len() - bytes.len();
        let number = |b: &[u8]| b.try_into().map_or(0, u32::from_le_bytes);
        let record = bytes.split_at_checked(HEADER).and_then(|(header, rest)| {
            let (length, crc) = header.split_at(4);
            let (payload, rest) = rest.split_at_checked(number(length) as usize)?;
            let good = crc32fast::hash(payload) == number(crc);
            Some((postcard::from_bytes(payload).ok().filter(|_| good)?, rest))
        });
        match record {
            Some((Record::Changes(changes), rest)) => {
                found.push(changes);
                bytes = rest;
            }
            Some((Record::Sealed, rest)) => return (all.len() - rest.len(), true),
            None => return (used, false),
        }
    }
}

fn path(directory: &Path, commit: u64) -> PathBuf {
    // Of one width, so that names sort as numbers do.
    directory.join(format!("{PREFIX}{commit:020}"))
}

/// The journal files, in order.
fn files(directory: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    files.sort();
    files
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

    #[test]
    fn a_file_that_could_not_be_made_is_no_missing_commit() {
        let dir = tempfile::tempdir().unwrap();
        // Something is in the way, as a full disk would be.
        let obstacle = path(dir.path(), 29);
        std::fs::create_dir(&obstacle).unwrap();
        let mut journal = Journal::begin(dir.path(), 29);
        assert!(!journal.append(changes(1)), "it has to wait for its commit");
        std::fs::remove_dir(&obstacle).unwrap();
        journal.turn();
        assert!(journal.append(changes(2)));
        // The power fails before commit 29 has ended.
        assert_eq!(missing(dir.path(), 28), None);
        assert!(found(dir.path(), 28).is_empty());
        // And after that.
        journal.committed(29);
        assert_eq!(found(dir.path(), 29), [2]);
        assert_eq!(missing(dir.path(), 28), Some(29));
        // Still in the way when the commit begins: the next has no file either.
        journal.committed(29);
        std::fs::create_dir(path(dir.path(), 31)).unwrap();
        journal.turn();
        std::fs::create_dir(path(dir.path(), 32)).unwrap();
        assert!(!journal.append(changes(3)));
        journal.turn();
        assert!(!journal.append(changes(4)));
    }

    fn found(directory: &Path, commits: u64) -> Vec<u64> {
        let found = replay(directory, commits);
        found.iter().map(|changes| changes.files).collect()
    }

    #[test]
    fn what_no_commit_holds_is_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(dir.path(), 5);
        assert!(journal.append(changes(1)) && journal.append(changes(2)));
        assert_eq!(found(dir.path(), 4), [1, 2]);
        journal.turn();
        assert!(journal.append(changes(3)));
        assert_eq!(found(dir.path(), 4), [1, 2, 3]);
        assert_eq!(found(dir.path(), 5), [3], "the commit is there");
        journal.committed(5);
        assert_eq!(found(dir.path(), 5), [3]);
        assert_eq!(missing(dir.path(), 4), Some(5));
        assert_eq!(missing(dir.path(), 5), None);
        journal.turn();
        assert!(journal.append(changes(4)));
        journal.committed(7);
        assert_eq!(found(dir.path(), 7), [4], "another number than planned");
        journal.turn();
        journal.committed(8);
        journal.end();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(found(dir.path(), 8), [0; 0]);
        assert_eq!(missing(dir.path(), 7), Some(8));
    }

    #[test]
    fn a_torn_or_changed_record_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(dir.path(), 1);
        for n in 1..=3 {
            assert!(journal.append(changes(n)));
        }
        journal.turn();
        assert!(journal.append(changes(4)));
        let file = path(dir.path(), 1);
        let whole = std::fs::read(&file).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&file, &whole[..len]).unwrap();
            let found = found(dir.path(), 0);
            assert!(found.len() <= 3, "the next file is out of reach: {found:?}");
            assert!(found.iter().copied().eq(1..=found.len() as u64));
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            std::fs::write(&file, bytes).unwrap();
            let found = found(dir.path(), 0);
            assert!(found.iter().copied().eq(1..=found.len() as u64), "{at}");
            assert!(found.len() <= 3);
        }
    }

    #[test]
    fn where_it_cannot_be_written_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(&dir.path().join("none"), 1);
        assert!(!journal.append(changes(1)));
    }
}
