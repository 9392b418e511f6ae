//! Advisory locks of mounts: flock(2) and fcntl(2), seen by all mounts of the deployment.
//!
//! Problem: programs on different hosts (or mounts) of one deployment take turns by locking a file.
//! Idea: the metadata server keeps the ranges that are locked, in memory, each belonging to an owner of a connection:
//! a mount that dies takes its locks with it. Nothing waits in here: a lock that cannot be had is answered with the one
//! in the way, and `given_up` counts what was given up, so that whoever waits knows when to ask again.
//! As in POSIX, an owner's new lock replaces what it held of that range, and may split it.
//! Parameter: [`MAX_LOCKS`].
use crate::counters::ConnectionId;
use crate::error::{Result, error};
use penstock_layout::FileId;
use penstock_wire::message::{Advisory, AdvisoryMode, ErrorKind};
use std::collections::HashMap;

/// Locked ranges of all files together.
pub const MAX_LOCKS: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Held {
    connection: ConnectionId,
    lock: Advisory,
}

impl Held {
    fn is_of(&self, connection: ConnectionId, lock: &Advisory) -> bool {
        self.connection == connection && self.lock.owner == lock.owner
    }
}

fn overlap(a: &Advisory, b: &Advisory) -> bool {
    a.start <= b.last && b.start <= a.last
}

/// Whether the ranges overlap or lie side by side.
fn touch(a: &Advisory, b: &Advisory) -> bool {
    a.start <= b.last.saturating_add(1) && b.start <= a.last.saturating_add(1)
}

#[derive(Debug, Default)]
pub struct AdvisoryLocks {
    files: HashMap<FileId, Vec<Held>>,
    count: usize,
    given_up: u64,
}

impl AdvisoryLocks {
    /// How often locks were given up, or became shared.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// A lock of somebody else that keeps this one from being taken.
    pub fn conflict(
        &self,
        connection: ConnectionId,
        file: FileId,
        lock: &Advisory,
    ) -> Result<Option<Advisory>> {
        if lock.start > lock.last {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("a lock from byte {} to {}", lock.start, lock.last),
            ));
        }
        let held = self.files.get(&file).map_or(&[][..], Vec::as_slice);
        let exclusive = lock.mode == AdvisoryMode::Exclusive;
        let in_the_way = held.iter().find(|h| {
            lock.mode != AdvisoryMode::Free
                && !h.is_of(connection, lock)
                && overlap(&h.lock, lock)
                && (exclusive || h.lock.mode == AdvisoryMode::Exclusive)
        });
        Ok(in_the_way.map(|h| h.lock))
    }

    /// Takes, changes or gives up; with a conflict, which is returned, nothing changes.
    pub fn set(
        &mut self,
        connection: ConnectionId,
        file: FileId,
        lock: &Advisory,
    ) -> Result<Option<Advisory>> {
        if let Some(conflict) = self.conflict(connection, file, lock)? {
            return Ok(Some(conflict));
        }
        // A range can become three.
        if lock.mode != AdvisoryMode::Free && self.count + 2 > MAX_LOCKS {
            return Err(error(
                ErrorKind::Busy,
                format!("all {MAX_LOCKS} advisory locks of the metadata server are in use"),
            ));
        }
        let held = self.files.entry(file).or_default();
        let before = held.len();
        let mut new = *lock;
        let mut pieces = Vec::new();
        let mut given_up = false;
        held.retain(|h| {
            if !h.is_of(connection, lock) {
                return true;
            }
            if h.lock.mode == lock.mode {
                // One range instead of two.
                if touch(&h.lock, lock) {
                    new.start = new.start.min(h.lock.start);
                    new.last = new.last.max(h.lock.last);
                    return false;
                }
                return true;
            }
            if !overlap(&h.lock, lock) {
                return true;
            }
            given_up |= lock.mode == AdvisoryMode::Free || h.lock.mode == AdvisoryMode::Exclusive;
            if h.lock.start < lock.start {
                pieces.push(Advisory {
                    last: lock.start - 1,
                    ..h.lock
                });
            }
            if h.lock.last > lock.last {
                pieces.push(Advisory {
                    start: lock.last + 1,
                    ..h.lock
                });
            }
            false
        });
        if lock.mode != AdvisoryMode::Free {
            pieces.push(new);
        }
        held.extend(pieces.into_iter().map(|lock| Held { connection, lock }));
        self.count = self.count + held.len() - before;
        if held.is_empty() {
            self.files.remove(&file);
        }
        self.given_up += u64::from(given_up);
        Ok(None)
    }

    /// All locks of a connection are given up; whether there were any.
    pub fn connection_closed(&mut self, connection: ConnectionId) -> bool {
        let before = self.count;
        self.files.retain(|_, held| {
            let all = held.len();
            held.retain(|h| h.connection != connection);
            self.count -= all - held.len();
            !held.is_empty()
        });
        let any = self.count < before;
        self.given_up += u64::from(any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AdvisoryMode::{Exclusive, Free, Shared};

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);
    const F: FileId = FileId(7);

    fn lock(owner: u64, mode: AdvisoryMode, start: u64, last: u64) -> Advisory {
        Advisory {
            owner,
            start,
            last,
            mode,
            pid: owner as u32,
        }
    }

    /// The mode in which each of the first bytes is held by an owner.
    fn picture(locks: &AdvisoryLocks, connection: ConnectionId, owner: u64) -> String {
        let held = locks.files.get(&F).cloned().unwrap_or_default();
        (0..10)
            .map(|byte| {
                let at = lock(owner, Shared, byte, byte);
                let mut found = held
                    .iter()
                    .filter(|h| h.is_of(connection, &at) && overlap(&h.lock, &at));
                let mode = found.next().map(|h| h.lock.mode);
                assert!(found.next().is_none(), "a byte is held once");
                match mode {
                    None => '.',
                    Some(Shared) => 's',
                    Some(_) => 'x',
                }
            })
            .collect()
    }

    #[test]
    fn ranges_are_replaced_split_and_joined() {
        let mut l = AdvisoryLocks::default();
        for (mode, start, last, expected) in [
            (Exclusive, 0, 9, "xxxxxxxxxx"),
            (Free, 3, 4, "xxx..xxxxx"),
            (Shared, 2, 6, "xxsssssxxx"),
            (Shared, 7, 7, "xxssssssxx"),
            (Exclusive, 3, 3, "xxsxssssxx"),
            (Free, 0, u64::MAX, ".........."),
        ] {
            assert_eq!(l.set(ONE, F, &lock(1, mode, start, last)).unwrap(), None);
            assert_eq!(picture(&l, ONE, 1), expected);
        }
        assert_eq!(l.count, 0);
        assert!(l.files.is_empty());
        // Side by side they become one, so that locking byte by byte stays small.
        for byte in 0..1000 {
            l.set(ONE, F, &lock(1, Exclusive, byte, byte)).unwrap();
        }
        assert_eq!(l.count, 1);
    }

    #[test]
    fn owners_conflict_whichever_mount_they_are_in() {
        let mut l = AdvisoryLocks::default();
        l.set(ONE, F, &lock(1, Shared, 0, 9)).unwrap();
        for (connection, owner) in [(ONE, 2), (TWO, 1)] {
            assert_eq!(
                l.set(connection, F, &lock(owner, Exclusive, 9, 20))
                    .unwrap(),
                Some(lock(1, Shared, 0, 9))
            );
            assert_eq!(
                l.set(connection, F, &lock(owner, Shared, 5, 5)).unwrap(),
                None
            );
        }
        // Its own shared lock becomes exclusive only when it is alone.
        assert!(l.set(ONE, F, &lock(1, Exclusive, 5, 5)).unwrap().is_some());
        assert_eq!(l.set(ONE, F, &lock(1, Exclusive, 0, 4)).unwrap(), None);
        assert_eq!(
            l.conflict(TWO, F, &lock(1, Shared, 4, 4)).unwrap(),
            Some(lock(1, Exclusive, 0, 4))
        );
        assert_eq!(
            l.conflict(TWO, FileId(8), &lock(1, Exclusive, 0, 9))
                .unwrap(),
            None
        );
        assert!(l.set(ONE, F, &lock(1, Shared, 5, 4)).is_err());
    }

    #[test]
    fn what_was_given_up_is_counted() {
        let mut l = AdvisoryLocks::default();
        let count = |l: &AdvisoryLocks| l.given_up();
        l.set(ONE, F, &lock(1, Exclusive, 0, 9)).unwrap();
        l.set(ONE, F, &lock(2, Free, 0, 9)).unwrap();
        assert_eq!(count(&l), 0, "nothing was held");
        l.set(ONE, F, &lock(1, Shared, 0, 9)).unwrap();
        assert_eq!(count(&l), 1, "others may share it now");
        l.set(ONE, F, &lock(1, Free, 0, 0)).unwrap();
        assert_eq!(count(&l), 2);
        assert!(l.connection_closed(ONE));
        assert_eq!((count(&l), l.count), (3, 0));
        assert!(!l.connection_closed(ONE));
        assert_eq!(count(&l), 3);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut l = AdvisoryLocks::default();
        let mut byte = 0;
        let refused = loop {
            match l.set(ONE, F, &lock(byte, Shared, byte, byte)) {
                Ok(None) => byte += 1,
                Ok(Some(lock)) => panic!("{lock:?}"),
                Err(e) => break e,
            }
        };
        assert_eq!(refused.kind, ErrorKind::Busy);
        assert!(l.count <= MAX_LOCKS);
        l.set(ONE, F, &lock(0, Free, 0, u64::MAX)).unwrap();
        l.set(ONE, F, &lock(1, Free, 0, u64::MAX)).unwrap();
        assert_eq!(l.set(TWO, F, &lock(1, Shared, 0, 0)).unwrap(), None);
    }
}
