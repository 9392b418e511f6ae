//! Unsynced writes of this process, by file and data server.
//!
//! Problem: a write is acknowledged when it is in the page cache of its server. If the host of that server loses power
//! before the next sync, the sync makes nothing durable and must not succeed. Idea: each acknowledged write records the
//! incarnation that took it ([`Incarnation`]). A server has one for its whole life, so the connection determines it. A
//! sync compares the records with the incarnation that answers it. A single record suffices: incarnations never return,
//! so of two different ones the older has ended. Records belong to the file, not to a handle: they survive it until a
//! sync of any handle has succeeded or failed. A loss is reported once to each handle that was open when it was found.
//! *Bounds*: records of [`MAX_CLOSED`] closed files and servers. Beyond it there is only one record for each server,
//! which every older file inherits when it is opened. It may then report a loss of another file.
use crate::error::{Loss, Peer};
use crate::guard::guard;
use penstock_host::sync::Mutex;
use penstock_host::time::{now, since};
use penstock_layout::{FileId, ServerId};
use penstock_wire::message::Incarnation;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Most records of closed files and servers.
const MAX_CLOSED: usize = 1 << 16;

/// An incarnation of one server, by a number that this process gives it. 0: none.
pub(crate) type Taken = u32;
/// Several incarnations, of which all but one have ended.
const SEVERAL: Taken = u32::MAX;

/// Both of two notes.
pub(crate) fn merge(one: Taken, other: Taken) -> Taken {
    match (one, other) {
        (0, n) | (n, 0) => n,
        (a, b) if a == b => a,
        _ => SEVERAL,
    }
}

/// Numbers for the incarnations of one server.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<(Option<Incarnation>, Taken)>);

impl Numbers {
    /// The number of an incarnation. An incarnation that returns after another gets a new number, and so counts as
    /// another.
    pub fn of(&self, incarnation: Incarnation) -> Taken {
        let mut last = guard(&self.0);
        if last.0 != Some(incarnation) {
            *last = (Some(incarnation), last.1.saturating_add(1).min(SEVERAL - 1));
        }
        last.1
    }
}

/// The record of one file for one server.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// Number of the incarnation in the high bits, count of recorded writes in the low ones.
    word: AtomicU64,
    bytes: AtomicU64,
    /// Handles through which a kernel writes without reporting.
    lent: AtomicU32,
    /// Losses found, and the last one with its first write.
    losses: AtomicU32,
    more: Mutex<More>,
}

#[derive(Debug, Default)]
struct More {
    first: Option<Instant>,
    lost: Option<Loss>,
}

fn number(word: u64) -> Taken {
    (word >> 32) as Taken
}

fn with_number(word: u64, number: Taken) -> u64 {
    u64::from(number) << 32 | (word & 0xffff_ffff)
}

impl Note {
    fn inherited(taken: Taken) -> Note {
        let note = Note::default();
        if taken != 0 {
            note.wrote(taken, 0);
        }
        note
    }

    /// A write of at most `bytes` was acknowledged in this incarnation.
    pub fn wrote(&self, taken: Taken, bytes: u64) {
        self.bytes.fetch_add(bytes, SeqCst);
        let add = |word: u64| {
            let count = (word as u32).wrapping_add(1);
            Some(u64::from(merge(number(word), taken)) << 32 | u64::from(count))
        };
        let before = self.word.fetch_update(SeqCst, SeqCst, add).unwrap_or(0);
        if number(before) == 0 {
            guard(&self.more).first.get_or_insert_with(now);
        }
    }

    /// Whether there are writes that no sync has covered.
    pub fn is_dirty(&self) -> bool {
        number(self.word.load(SeqCst)) != 0
    }

    /// A kernel begins or ends writing through a handle.
    pub fn lend(&self, lent: bool) {
        if lent {
            self.lent.fetch_add(1, SeqCst)
        } else {
            self.lent.fetch_sub(1, SeqCst)
        };
    }

    /// To be taken before a sync is sent.
    pub fn before_sync(&self) -> u64 {
        self.word.load(SeqCst)
    }

    /// A sync that was sent then was answered by incarnation `by`.
    pub fn synced(&self, before: u64, by: Taken, peer: &Peer) {
        let noted = number(before);
        let lent = self.lent.load(SeqCst) > 0;
        if noted != 0 && noted != by {
            let mut more = guard(&self.more);
            let first = more.first.unwrap_or_else(now);
            more.lost = Some(Loss {
                peer: peer.clone(),
                bytes: (!lent).then(|| self.bytes.load(SeqCst)),
                within: since(first),
            });
            self.losses.fetch_add(1, SeqCst);
        }
        // A kernel's writes are not recorded.
        let after = with_number(before, if lent { by } else { 0 });
        // Writes acknowledged meanwhile stay recorded.
        let cleared = self
            .word
            .compare_exchange(before, after, SeqCst, SeqCst)
            .is_ok();
        if cleared {
            self.bytes.store(0, SeqCst);
            guard(&self.more).first = lent.then(now);
        }
    }

    /// Losses found so far.
    pub fn losses(&self) -> u32 {
        self.losses.load(SeqCst)
    }

    /// The last one.
    pub fn last_loss(&self) -> Option<Loss> {
        guard(&self.more).lost.clone()
    }
}

/// The records of all files of a client.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    notes: HashMap<(FileId, ServerId), Arc<Note>>,
    /// Records of closed files.
    closed: usize,
    /// Merged records of forgotten files, and the newest of these.
    forgotten: HashMap<ServerId, Taken>,
    newest: Option<FileId>,
}

impl Notes {
    /// The notes of a file that is opened, one for each server.
    pub fn open(&self, file: FileId, servers: &[ServerId]) -> Vec<Arc<Note>> {
        let mut tables = guard(&self.0);
        let tables = &mut *tables;
        servers
            .iter()
            .map(|server| {
                if let Some(note) = tables.notes.get(&(file, *server)) {
                    if Arc::strong_count(note) == 1 {
                        tables.closed -= 1;
                    }
                    return note.clone();
                }
                let old = tables.newest.is_some_and(|newest| file <= newest);
                let taken = tables.forgotten.get(server).filter(|_| old);
                let note = Arc::new(Note::inherited(taken.copied().unwrap_or(0)));
                tables.notes.insert((file, *server), note.clone());
                note
            })
            .collect()
    }

    /// A handle is closed.
    pub fn close(&self, file: FileId, servers: &[ServerId], notes: Vec<Arc<Note>>) {
        let mut tables = guard(&self.0);
        for (server, note) in servers.iter().zip(notes) {
            // The table's and ours.
            if Arc::strong_count(&note) > 2 {
                continue;
            }
            let taken = number(note.word.load(SeqCst));
            drop(note);
            if taken != 0 && tables.closed < MAX_CLOSED {
                tables.closed += 1;
                continue;
            }
            tables.notes.remove(&(file, *server));
            if taken != 0 {
                let forgotten = tables.forgotten.entry(*server).or_default();
                *forgotten = merge(*forgotten, taken);
                tables.newest = tables.newest.max(Some(file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer {
            data: Some(ServerId(3)),
            address: "unix:x".into(),
        }
    }

    /// Syncs, answered by incarnation `by`; the bytes that were lost.
    fn sync(note: &Note, by: Taken) -> Option<u64> {
        let losses = note.losses();
        note.synced(note.before_sync(), by, &peer());
        (note.losses() > losses).then(|| note.last_loss().unwrap().bytes.unwrap())
    }

    #[test]
    fn a_loss_is_told_once_and_only_where_something_was_written() {
        let note = Note::default();
        assert_eq!(sync(&note, 1), None);
        assert_eq!(sync(&note, 2), None, "nothing was written");
        note.wrote(2, 10);
        note.wrote(2, 5);
        assert_eq!(sync(&note, 2), None);
        assert!(!note.is_dirty());
        assert_eq!(sync(&note, 3), None, "it was synced before");
        note.wrote(3, 7);
        assert_eq!(sync(&note, 4), Some(7));
        assert_eq!(sync(&note, 4), None);
        note.wrote(4, 1);
        note.wrote(5, 1);
        assert_eq!(sync(&note, 5), Some(2), "some of it in the one before");
    }

    #[test]
    fn a_write_during_a_sync_stays_noted() {
        let note = Note::default();
        note.wrote(1, 10);
        let before = note.before_sync();
        note.wrote(1, 10);
        note.synced(before, 1, &peer());
        assert!(note.is_dirty());
        assert_eq!(sync(&note, 2), Some(20));
    }

    #[test]
    fn what_a_kernel_may_write_is_noted_until_it_gives_it_back() {
        let note = Note::default();
        note.wrote(1, 0);
        note.lend(true);
        assert_eq!(sync(&note, 1), None);
        assert!(note.is_dirty());
        note.synced(note.before_sync(), 2, &peer());
        assert_eq!((note.losses(), note.last_loss().unwrap().bytes), (1, None));
        note.lend(false);
        assert_eq!(sync(&note, 2), None);
        assert!(!note.is_dirty());
    }

    #[test]
    fn notes_outlive_handles_until_a_sync() {
        let notes = Notes::default();
        let servers = [ServerId(0), ServerId(1)];
        let open = || notes.open(FileId(7), &servers);
        let close = |handle| notes.close(FileId(7), &servers, handle);
        let handle = open();
        handle[1].wrote(1, 10);
        close(handle);
        assert_eq!(guard(&notes.0).notes.len(), 1);
        let (one, other) = (open(), open());
        assert!(one[1].is_dirty() && !one[0].is_dirty());
        close(other);
        assert_eq!(sync(&one[1], 2), Some(10));
        close(one);
        let tables = guard(&notes.0);
        assert!(tables.notes.is_empty() && tables.closed == 0);
    }

    #[test]
    fn beyond_the_bound_older_files_inherit_what_is_forgotten() {
        let notes = Notes::default();
        let servers = [ServerId(0)];
        let most = MAX_CLOSED as u64;
        for file in 0..most + 10 {
            let handle = notes.open(FileId(file), &servers);
            handle[0].wrote(1, 1);
            notes.close(FileId(file), &servers, handle);
        }
        assert_eq!(guard(&notes.0).notes.len(), MAX_CLOSED);
        assert!(notes.open(FileId(most + 5), &servers)[0].is_dirty());
        assert!(
            !notes.open(FileId(most + 10), &servers)[0].is_dirty(),
            "newer"
        );
    }

    #[test]
    fn an_incarnation_keeps_its_number_and_none_comes_back() {
        let numbers = Numbers::default();
        let (a, b) = (Incarnation([1; 16]), Incarnation([2; 16]));
        let first = numbers.of(a);
        assert_eq!(numbers.of(a), first);
        let second = numbers.of(b);
        assert!(second != first && numbers.of(a) != first && second != 0);
    }
}
