//! The journal (write-ahead log) of changes that are not yet committed, which survives the server's death.
//!
//! Problem: changes are acknowledged before they are on stable storage. A killed server would lose the last ones, and a
//! new file would vanish while a program writes it. Idea: each change is appended to a log before it is acknowledged,
//! without a flush: the system's page cache survives the process. At a start the server replays changes that no commit
//! contains. When it pays: always; an append costs about a microsecond. A system crash may lose the journal, like
//! everything that was not synced.
//!
//! There is one epoch of the log ([`crate::change_log`]) per commit, N for commit N. When the commit begins, its epoch
//! is sealed and the next one begun; when it has ended, the epoch is deleted. Replay continues to the next epoch only
//! after a seal, so that it finds all changes up to some moment. While the epoch before exists without a seal nothing
//! is appended: changes wait for their commit. After that commit the epoch begins with all changes collected by then.
//! Record: length and CRC-32 of the payload, CRC-32 of these two (little endian, 4 bytes each), payload.
//!
//! *What cannot be read.* A killed server leaves at most one incomplete record, whose change was not acknowledged.
//! Anything else that is no record is damage if it is the same boot of the system, and the server does not start. (The
//! database stores the boot of its last commit, and the epochs after it belong to the same process.) After another
//! boot, pages of the log may have reached the disk in any order. Replay then ends at the first bad record, as unsynced
//! names may be lost. Errors of listing and reading always prevent a start. Epochs are deleted only when a commit
//! contains all of their changes.
use crate::change_log::{ChangeLog, damage};
use crate::node::Node;
use crate::pending::Pending;
use crate::slots::Note;
use crate::start_error::StoreError;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const HEADER: usize = 12;

/// What one request changed: the newest value per key, `None` = removed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Nodes in their stored form.
    pub nodes: Vec<(u64, Option<Vec<u8>>)>,
    pub entries: Vec<(Box<[u8]>, Option<u64>)>,
    /// The outcome of the request, if it has a slot.
    pub notes: Vec<Note>,
    pub files: u64,
    pub directories: u64,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.entries.is_empty() && self.notes.is_empty()
    }

    /// Applies the changes on top of earlier ones.
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
    /// The seal: no change was lost between this epoch and the next.
    Sealed,
}

/// The current epoch of the log.
#[derive(Debug)]
pub struct Journal {
    log: Box<dyn ChangeLog>,
    /// Whether the epoch is intact so far, and can be appended to. Otherwise changes must wait for their commit.
    written: bool,
    /// Whether the epoch exists, even if appends fail.
    there: bool,
    /// The commit that will contain this epoch.
    commit: u64,
}

impl Journal {
    /// Begins the epoch for commit number `commit`; commits must contain all older ones.
    pub fn begin(mut log: Box<dyn ChangeLog>, commit: u64) -> Result<Journal, StoreError> {
        for epoch in log.epochs()? {
            trim(&mut *log, epoch);
        }
        let mut journal = Journal {
            log,
            written: false,
            there: false,
            commit,
        };
        journal.open();
        Ok(journal)
    }

    fn open(&mut self) {
        let begun = self.log.begin(self.commit);
        self.there = begun.is_ok();
        self.written = self.there;
        if let Err(e) = begun {
            lost(&self.log.name(self.commit), &e);
        }
    }

    /// Appends changes; returns true if they survive this process. Otherwise they must be committed before they are
    /// acknowledged.
    pub fn append(&mut self, changes: Changes) -> bool {
        self.write(&Record::Changes(changes))
    }

    /// Whether the last append survives this process.
    pub fn is_written(&self) -> bool {
        self.written
    }

    fn write(&mut self, record: &Record) -> bool {
        if !self.written {
            return false;
        }
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
                self.log.append(bytes)
            });
        if let Err(e) = written {
            lost(&self.log.name(self.commit), &e);
            // Records after a torn one would not be found.
            self.written = false;
        }
        self.written
    }

    /// The commit of this epoch begins; later changes belong to the next one.
    pub fn turn(&mut self) {
        let sealed = self.write(&Record::Sealed);
        if !self.there {
            // Replay ends at an empty epoch. An epoch without the one before it would indicate a missing commit.
            self.open();
        }
        let before = self.there;
        self.commit += 1;
        (self.written, self.there) = (false, false);
        if before {
            self.open();
        }
        if !sealed {
            // Replay would not reach this epoch.
            self.written = false;
        }
    }

    /// The commit that began with [`Journal::turn`] is on stable storage, as number `commits`. That is more than
    /// planned if an attempt that was reported as failed had succeeded. `collected` returns all changes since, for an
    /// epoch that lacks them.
    pub fn committed(&mut self, commits: u64, collected: impl FnOnce() -> Option<Changes>) {
        trim(&mut *self.log, self.commit - 1);
        if commits + 1 != self.commit {
            let (old, new) = (self.commit, commits + 1);
            if let Err(e) = self.log.renumber(old, new) {
                if self.there {
                    lost(&self.log.name(old), &e);
                }
                (self.written, self.there) = (false, false);
            }
            self.commit = new;
        }
        if !self.written {
            self.open();
            match collected() {
                Some(changes) if self.written => {
                    let _ = changes.is_empty() || self.append(changes);
                }
                _ => self.written = false,
            }
        }
    }

    /// Everything is on stable storage and no change will follow. The empty epoch stays: its number tells the next
    /// start how many commits there were.
    pub fn end(&mut self) {
        self.written = false;
    }
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    /// In order.
    pub changes: Vec<Changes>,
    /// Bytes that are unreadable after a system crash.
    pub unreadable: u64,
}

/// Returns changes that were acknowledged after commit number `commits` and are in no commit. `same_boot`: the system
/// has not been restarted since that commit.
pub fn replay(log: &dyn ChangeLog, commits: u64, same_boot: bool) -> Result<Replayed, StoreError> {
    let mut found = Replayed::default();
    let mut next = commits + 1;
    let mut ended: Option<String> = None;
    for number in log.epochs()? {
        if number < next {
            continue;
        }
        let bytes = log.read(number)?;
        let name = log.name(number);
        if let Some(before) = ended.as_ref().filter(|_| !bytes.is_empty()) {
            if same_boot {
                let detail = format!("{name} follows it, but it does not say that it is whole");
                return Err(damage(before.clone(), detail));
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
                return Err(damage(name, detail));
            }
            _ => {}
        }
        let rest = (bytes.len() - used) as u64;
        if rest > 0 && !same_boot {
            log::warn!(
                "journal {name} cannot be read after {used} of {} bytes, as a crash of the system leaves it: names changed later and not synced are lost",
                bytes.len()
            );
            found.unreadable += rest;
        }
        ended = Some(name);
    }
    Ok(found)
}

/// The last commit that the journal implies, if the database, which ends at commit `commits`, lacks it. Epoch N is
/// begun only when commit N - 1 begins, and epoch N - 1 is deleted only when that has ended.
pub fn missing(log: &dyn ChangeLog, commits: u64) -> Result<Option<u64>, StoreError> {
    let first = log.epochs()?.into_iter().find(|number| *number > commits);
    Ok(first
        .filter(|first| *first > commits + 1)
        .map(|first| first - 1))
}

/// How an epoch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With a seal: the next epoch continues.
    Sealed,
    /// After its last record, or inside an incomplete one.
    Open,
    /// With bytes that are no record.
    Bad,
}

/// Adds the changes of one epoch; returns the bytes of intact records, and the end.
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

fn trim(log: &mut dyn ChangeLog, epoch: u64) {
    if let Err(e) = log.trim(epoch) {
        log::warn!(
            "journal {} cannot be removed: {e}; it does no harm",
            log.name(epoch)
        );
    }
}

fn lost(name: &str, e: &std::io::Error) {
    log::warn!(
        "journal {name} cannot be written: {e}; changes wait for their commit meanwhile; look at its disk"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change_log::MemoryLog;

    fn changes(n: u64) -> Changes {
        Changes {
            nodes: vec![(n, None)],
            entries: vec![(vec![7; 9].into(), Some(n))],
            notes: Vec::new(),
            files: n,
            directories: 1,
        }
    }

    fn begin(log: &MemoryLog, commit: u64) -> Journal {
        Journal::begin(Box::new(log.clone()), commit).unwrap()
    }

    /// Which changes are found after a kill on the same boot.
    fn found(log: &MemoryLog, commits: u64) -> Vec<u64> {
        let found = replay(log, commits, true).unwrap();
        assert_eq!(found.unreadable, 0);
        found.changes.iter().map(|changes| changes.files).collect()
    }

    fn nothing() -> Option<Changes> {
        Some(Changes::default())
    }

    fn unneeded() -> Option<Changes> {
        panic!("the epoch has them")
    }

    #[test]
    fn an_epoch_that_could_not_begin_is_no_missing_commit() {
        let log = MemoryLog::default();
        // As on a full disk.
        log.memory().refused.insert(29);
        let mut journal = begin(&log, 29);
        assert!(!journal.append(changes(1)), "it has to wait for its commit");
        log.memory().refused.clear();
        journal.turn();
        assert!(!journal.append(changes(2)), "replay would not find it");
        // The power fails, or the server is killed, before commit 29 has ended.
        assert_eq!(missing(&log, 28).unwrap(), None);
        assert!(found(&log, 28).is_empty());
        // And after it.
        journal.committed(29, || Some(changes(2)));
        assert_eq!(found(&log, 29), [2]);
        assert_eq!(missing(&log, 28).unwrap(), Some(29));
        assert!(journal.append(changes(3)));
        assert_eq!(found(&log, 29), [2, 3]);
        // Appends still fail when the commit begins.
        log.memory().refused.extend([31, 32]);
        journal.turn();
        assert!(!journal.append(changes(4)));
        journal.committed(30, || Some(changes(4)));
        assert!(!journal.append(changes(5)));
        journal.turn();
        assert!(!journal.append(changes(6)));
    }

    #[test]
    fn what_no_commit_holds_is_found_in_order() {
        let log = MemoryLog::default();
        let mut journal = begin(&log, 5);
        assert!(journal.append(changes(1)) && journal.append(changes(2)));
        assert_eq!(found(&log, 4), [1, 2]);
        journal.turn();
        assert!(journal.append(changes(3)));
        assert_eq!(found(&log, 4), [1, 2, 3]);
        assert_eq!(found(&log, 5), [3], "the commit is there");
        journal.committed(5, unneeded);
        assert_eq!(found(&log, 5), [3]);
        assert_eq!(missing(&log, 4).unwrap(), Some(5));
        assert_eq!(missing(&log, 5).unwrap(), None);
        journal.turn();
        assert!(journal.append(changes(4)));
        journal.committed(7, unneeded);
        assert_eq!(found(&log, 7), [4], "another number than planned");
        journal.turn();
        journal.committed(8, unneeded);
        journal.end();
        assert_eq!(log.epochs().unwrap().len(), 1);
        assert_eq!(found(&log, 8), [0; 0]);
        assert_eq!(missing(&log, 7).unwrap(), Some(8));
        // The next start deletes what it finds.
        let mut journal = begin(&log, 10);
        assert!(journal.append(changes(5)));
        assert_eq!(log.epochs().unwrap(), [10]);
    }

    #[test]
    fn after_a_torn_append_changes_wait_until_the_log_is_whole_again() {
        let log = MemoryLog::default();
        let mut journal = begin(&log, 5);
        assert!(journal.append(changes(1)));
        log.memory().torn = Some(9);
        assert!(!journal.append(changes(2)));
        journal.turn();
        assert!(
            !journal.append(changes(3)),
            "replay ends at the torn record"
        );
        assert_eq!(found(&log, 4), [1]);
        journal.committed(5, || Some(changes(3)));
        assert!(journal.append(changes(4)));
        assert_eq!(found(&log, 5), [3, 4]);
        journal.turn();
        journal.committed(6, unneeded);
        log.memory().torn = Some(0);
        journal.turn();
        journal.committed(7, nothing);
        assert!(journal.append(changes(5)));
        assert_eq!(found(&log, 7), [5]);
    }

    /// Two epochs, and the first one as written.
    fn two_epochs() -> (MemoryLog, Vec<u8>) {
        let log = MemoryLog::default();
        let mut journal = begin(&log, 1);
        for n in 1..=3 {
            assert!(journal.append(changes(n)));
        }
        journal.turn();
        assert!(journal.append(changes(4)));
        let whole = log.read(1).unwrap();
        (log, whole)
    }

    fn set(log: &MemoryLog, epoch: u64, bytes: &[u8]) {
        log.memory().epochs.insert(epoch, bytes.to_vec());
    }

    #[test]
    fn on_the_same_boot_a_changed_record_is_damage() {
        let (log, whole) = two_epochs();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            set(&log, 1, &bytes);
            let e = replay(&log, 0, true).unwrap_err().to_string();
            assert!(e.contains("damaged") && e.contains("epoch 1"), "{e}");
        }
        // Truncated, although the next epoch shows that there was more.
        for len in 0..whole.len() {
            set(&log, 1, &whole[..len]);
            assert!(replay(&log, 0, true).is_err(), "{len}");
        }
        // The last one may end inside a record, which was not acknowledged.
        set(&log, 1, &whole);
        let bytes = log.read(2).unwrap();
        for len in 0..bytes.len() {
            set(&log, 2, &bytes[..len]);
            assert_eq!(found(&log, 0), [1, 2, 3]);
        }
    }

    #[test]
    fn after_another_boot_it_ends_at_the_first_bad_record() {
        let (log, whole) = two_epochs();
        let check = |bytes: &[u8]| {
            set(&log, 1, bytes);
            let found = replay(&log, 0, false).unwrap();
            let files: Vec<u64> = found.changes.iter().map(|c| c.files).collect();
            assert!(
                files.len() <= 3,
                "the next epoch is out of reach: {files:?}"
            );
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
        let log = |path: &std::path::Path| Box::new(crate::change_log::DirectoryLog::new(path));
        for same_boot in [true, false] {
            let none = dir.path().join("none");
            assert!(replay(&*log(&none), 0, same_boot).is_err());
            assert!(missing(&*log(&none), 0).is_err() && Journal::begin(log(&none), 1).is_err());
            let obstacle = log(dir.path()).name(1);
            std::fs::create_dir(&obstacle).unwrap();
            let e = replay(&*log(dir.path()), 0, same_boot)
                .unwrap_err()
                .to_string();
            assert!(e.contains(&obstacle), "{e}");
            std::fs::remove_dir(&obstacle).unwrap();
        }
    }
}
