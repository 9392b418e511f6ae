//! Advisory locks of mounts: flock(2) and fcntl(2), across all mounts of the deployment.
//!
//! Problem: programs on different hosts (or mounts) of one deployment synchronise by locking a file. Idea: the metadata
//! server keeps the locked ranges in memory. Each belongs to an owner of a connection, so that the locks of a mount
//! that dies end with it. Nothing waits in here: a lock that cannot be taken is answered with the conflicting one.
//! `given_up` counts released locks, so that a waiter knows when to ask again. As in POSIX, an owner's new lock
//! replaces its locks on that range, and may split them.
//!
//! *Deadlock.* For each owner the locks that it waits for are recorded. Before an owner begins to wait, the wait-for
//! graph is searched, from owners of conflicting locks to the owners they wait for, and so on. If that leads back to
//! it, it gets `Deadlock`. The edges are computed anew on each check, because an edge recorded earlier may belong to a
//! request that has since been granted.
//!
//! *Restart.* Locks do not outlive the server, but their holders do. After a restart (if any lock was held before),
//! only claims are served for [`GRACE`]: mounts reclaim their locks before anybody else can take them. *Users.* Each
//! user has a share of locks and of waits, even if a single mount asks for all of them.
//!
//! Parameters: [`MAX_LOCKS`], [`MAX_WAITS`], [`GRACE`].
use crate::counters::ConnectionId;
use crate::error::{Result, error};
use penstock_layout::FileId;
use penstock_rpc::share::Share;
use penstock_wire::advisory::{overlap, replace};
use penstock_wire::message::{Advisory, AdvisoryHow, AdvisoryMode, ErrorKind};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Most locked ranges of all files.
pub const MAX_LOCKS: usize = 1 << 16;
/// Most waits; an owner waits once for each of its threads that does.
pub const MAX_WAITS: usize = 1 << 16;
/// How long only claims are served after a restart.
pub const GRACE: Duration = Duration::from_secs(5);

/// The owner of a lock or of a wait.
type Owner = (ConnectionId, u64);

#[derive(Debug, Clone, Copy)]
struct GrantedLock {
    connection: ConnectionId,
    uid: u32,
    lock: Advisory,
}

/// A lock that an owner waits for.
#[derive(Debug, Clone, Copy)]
struct Wait {
    file: FileId,
    lock: Advisory,
    uid: u32,
}

impl GrantedLock {
    fn owner(&self) -> Owner {
        (self.connection, self.lock.owner)
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The conflicting lock of another owner; no lock has changed.
    Held(Advisory),
    /// The same, and its owner waits for the caller; no lock has changed.
    Deadlock,
}

#[derive(Debug)]
pub struct AdvisoryLocks {
    files: HashMap<FileId, Vec<GrantedLock>>,
    locks: Share,
    given_up: u64,
    /// The locks that each owner waits for.
    waits: HashMap<Owner, Vec<Wait>>,
    waiting: Share,
    /// Until this time only claims are served.
    recovers_until: Option<Instant>,
}

impl Default for AdvisoryLocks {
    fn default() -> AdvisoryLocks {
        AdvisoryLocks {
            files: HashMap::new(),
            locks: Share::of(
                MAX_LOCKS,
                "advisory locks of the metadata server",
                "give some up",
            ),
            given_up: 0,
            waits: HashMap::new(),
            waiting: Share::of(
                MAX_WAITS,
                "waits for advisory locks of the metadata server",
                "let some end",
            ),
            recovers_until: None,
        }
    }
}

impl AdvisoryLocks {
    /// The locks of a server that ended with locks held and restarts at `now`.
    pub fn recovering(now: Instant) -> AdvisoryLocks {
        AdvisoryLocks {
            recovers_until: Some(now + GRACE),
            ..AdvisoryLocks::default()
        }
    }

    /// How often locks were released or became shared.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.locks.held() == 0
    }

    /// How long this request must wait after a restart.
    pub fn held_back(&self, now: Instant, lock: &Advisory, how: AdvisoryHow) -> Option<Duration> {
        let gives_way = lock.mode != AdvisoryMode::Free
            && !matches!(how, AdvisoryHow::Claim | AdvisoryHow::Leave);
        let left = self.recovers_until?.saturating_duration_since(now);
        (gives_way && !left.is_zero()).then_some(left)
    }

    /// Carries out a request `how` about a lock of `connection`, for a user.
    pub fn request(
        &mut self,
        (connection, uid): (ConnectionId, u32),
        file: FileId,
        lock: &Advisory,
        how: AdvisoryHow,
    ) -> Result<Answer> {
        if lock.start > lock.last {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("a lock from byte {} to {}", lock.start, lock.last),
            ));
        }
        let owner = (connection, lock.owner);
        match how {
            AdvisoryHow::Leave => {
                self.leave(owner, file, lock);
                return Ok(Answer::Done);
            }
            AdvisoryHow::Test => {
                let conflict = self.in_the_way(owner, file, lock).next();
                return Ok(conflict.map_or(Answer::Done, |h| Answer::Held(h.lock)));
            }
            AdvisoryHow::Try | AdvisoryHow::Wait | AdvisoryHow::Claim => {}
        }
        let Some(conflict) = self.in_the_way(owner, file, lock).next() else {
            self.take((connection, uid), file, lock)?;
            if how == AdvisoryHow::Wait {
                self.leave(owner, file, lock);
            }
            return Ok(Answer::Done);
        };
        let conflict = conflict.lock;
        if how == AdvisoryHow::Wait {
            if self.closes_circle(owner, file, lock) {
                self.leave(owner, file, lock);
                return Ok(Answer::Deadlock);
            }
            self.note(owner, uid, file, lock)?;
        }
        Ok(Answer::Held(conflict))
    }

    /// Locks of other owners that conflict with this one.
    fn in_the_way(
        &self,
        owner: Owner,
        file: FileId,
        lock: &Advisory,
    ) -> impl Iterator<Item = &GrantedLock> {
        let lock = *lock;
        let exclusive = lock.mode == AdvisoryMode::Exclusive;
        let held = self.files.get(&file).map_or(&[][..], Vec::as_slice);
        held.iter().filter(move |h| {
            lock.mode != AdvisoryMode::Free
                && h.owner() != owner
                && overlap(&h.lock, &lock)
                && h.lock.family.meets(lock.family)
                && (exclusive || h.lock.mode == AdvisoryMode::Exclusive)
        })
    }

    /// Takes a lock without conflicts.
    fn take(
        &mut self,
        (connection, uid): (ConnectionId, u32),
        file: FileId,
        lock: &Advisory,
    ) -> Result<()> {
        // A range can become three.
        if lock.mode != AdvisoryMode::Free {
            self.locks.room(uid, 2)?;
        }
        let held = self.files.entry(file).or_default();
        let owner = (connection, lock.owner);
        let mut own = Vec::new();
        for h in held.extract_if(.., |h| h.owner() == owner) {
            self.locks.give_back(h.uid);
            own.push(h.lock);
        }
        let given_up = replace(&mut own, lock);
        for lock in own {
            self.locks.take(uid);
            held.push(GrantedLock {
                connection,
                uid,
                lock,
            });
        }
        if held.is_empty() {
            self.files.remove(&file);
        }
        self.given_up += u64::from(given_up);
        Ok(())
    }

    /// Whether an owner that waited for this lock would wait for itself (deadlock).
    fn closes_circle(&self, owner: Owner, file: FileId, lock: &Advisory) -> bool {
        let mut seen = HashSet::new();
        let mut next: Vec<Owner> = self
            .in_the_way(owner, file, lock)
            .map(GrantedLock::owner)
            .collect();
        while let Some(holder) = next.pop() {
            if holder == owner {
                return true;
            }
            if !seen.insert(holder) {
                continue;
            }
            for wait in self.waits.get(&holder).map_or(&[][..], Vec::as_slice) {
                next.extend(
                    self.in_the_way(holder, wait.file, &wait.lock)
                        .map(GrantedLock::owner),
                );
            }
        }
        false
    }

    /// Records that the owner waits.
    fn note(&mut self, owner: Owner, uid: u32, file: FileId, lock: &Advisory) -> Result<()> {
        let noted = self.waits.get(&owner).map_or(&[][..], Vec::as_slice);
        if noted.iter().any(|w| w.file == file && w.lock == *lock) {
            return Ok(());
        }
        self.waiting.room(uid, 1)?;
        self.waiting.take(uid);
        let wait = Wait {
            file,
            lock: *lock,
            uid,
        };
        self.waits.entry(owner).or_default().push(wait);
        Ok(())
    }

    /// The owner stops waiting.
    fn leave(&mut self, owner: Owner, file: FileId, lock: &Advisory) {
        let Some(waits) = self.waits.get_mut(&owner) else {
            return;
        };
        for wait in waits.extract_if(.., |w| w.file == file && w.lock == *lock) {
            self.waiting.give_back(wait.uid);
        }
        if waits.is_empty() {
            self.waits.remove(&owner);
        }
    }

    /// Releases all locks of a connection; returns whether there were any.
    pub fn connection_closed(&mut self, connection: ConnectionId) -> bool {
        self.waits.retain(|(of, _), waits| {
            if *of == connection {
                waits.iter().for_each(|w| self.waiting.give_back(w.uid));
            }
            *of != connection
        });
        let before = self.locks.held();
        self.files.retain(|_, held| {
            for h in held.extract_if(.., |h| h.connection == connection) {
                self.locks.give_back(h.uid);
            }
            !held.is_empty()
        });
        let any = self.locks.held() < before;
        self.given_up += u64::from(any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AdvisoryMode::{Exclusive, Free, Shared};
    use penstock_wire::message::AdvisoryFamily;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);
    const F: FileId = FileId(7);
    const USER: u32 = 1000;

    impl AdvisoryLocks {
        fn set(
            &mut self,
            connection: ConnectionId,
            file: FileId,
            lock: &Advisory,
        ) -> Result<Option<Advisory>> {
            Ok(
                match self.request((connection, USER), file, lock, AdvisoryHow::Try)? {
                    Answer::Done => None,
                    Answer::Held(by) => Some(by),
                    Answer::Deadlock => panic!("nobody waits"),
                },
            )
        }

        fn conflict(
            &mut self,
            connection: ConnectionId,
            file: FileId,
            lock: &Advisory,
        ) -> Result<Option<Advisory>> {
            Ok(
                match self.request((connection, USER), file, lock, AdvisoryHow::Test)? {
                    Answer::Held(by) => Some(by),
                    _ => None,
                },
            )
        }
    }

    fn lock(owner: u64, mode: AdvisoryMode, start: u64, last: u64) -> Advisory {
        Advisory {
            owner,
            start,
            last,
            mode,
            family: AdvisoryFamily::Fcntl,
            pid: owner as u32,
        }
    }

    /// The mode in which an owner holds each of the first bytes.
    fn picture(locks: &AdvisoryLocks, connection: ConnectionId, owner: u64) -> String {
        let held = locks.files.get(&F).cloned().unwrap_or_default();
        (0..10)
            .map(|byte| {
                let at = lock(owner, Shared, byte, byte);
                let mut found = held
                    .iter()
                    .filter(|h| h.owner() == (connection, owner) && overlap(&h.lock, &at));
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
        assert_eq!(l.locks.held(), 0);
        assert!(l.files.is_empty());
        // Adjacent ranges are joined, so that locking byte by byte takes little memory.
        for byte in 0..1000 {
            l.set(ONE, F, &lock(1, Exclusive, byte, byte)).unwrap();
        }
        assert_eq!(l.locks.held(), 1);
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
        // Its own shared lock becomes exclusive only if no other owner shares it.
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
    fn locks_of_the_two_calls_do_not_meet() {
        let mut l = AdvisoryLocks::default();
        let of = |owner, family| Advisory {
            family,
            ..lock(owner, Exclusive, 0, u64::MAX)
        };
        let (flock, fcntl) = (AdvisoryFamily::Flock, AdvisoryFamily::Fcntl);
        assert_eq!(l.set(ONE, F, &of(1, flock)).unwrap(), None);
        assert_eq!(l.set(TWO, F, &of(2, fcntl)).unwrap(), None);
        for family in [flock, fcntl, AdvisoryFamily::Any] {
            assert!(l.set(TWO, F, &of(3, family)).unwrap().is_some());
        }
        // An owner releases its locks by either call.
        for (connection, owner) in [(ONE, 1), (TWO, 2)] {
            let all = Advisory {
                family: AdvisoryFamily::Any,
                ..lock(owner, Free, 0, u64::MAX)
            };
            assert_eq!(l.set(connection, F, &all).unwrap(), None);
        }
        assert_eq!(l.set(TWO, F, &of(3, AdvisoryFamily::Any)).unwrap(), None);
        for family in [flock, fcntl] {
            assert!(l.set(ONE, F, &of(4, family)).unwrap().is_some());
        }
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
        assert_eq!((count(&l), l.locks.held()), (3, 0));
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
        // One more lock could have become three ranges.
        assert_eq!(l.locks.held() + 1, MAX_LOCKS / 4);
        let other = lock(byte, Shared, byte, byte);
        let by = (ONE, USER + 1);
        let answer = l.request(by, F, &other, AdvisoryHow::Try).unwrap();
        assert_eq!(answer, Answer::Done, "another user of the same mount");
        l.set(ONE, F, &lock(0, Free, 0, u64::MAX)).unwrap();
        l.set(ONE, F, &lock(1, Free, 0, u64::MAX)).unwrap();
        assert_eq!(l.set(TWO, F, &lock(1, Shared, 0, 0)).unwrap(), None);
    }

    #[test]
    fn who_waits_as_often_as_he_can_leaves_waits_to_others() {
        let mut l = AdvisoryLocks::default();
        let x = |owner| lock(owner, Exclusive, 0, 9);
        l.set(ONE, F, &x(0)).unwrap();
        let mut wait = |uid, owner| l.request((TWO, uid), F, &x(owner), AdvisoryHow::Wait);
        let refused = (1..).find_map(|owner| wait(USER, owner).err()).unwrap();
        assert_eq!(refused.kind, ErrorKind::Busy);
        assert!(refused.message.contains("user 1000 has 16384 waits"));
        assert_eq!(wait(USER + 1, 0).unwrap(), Answer::Held(x(0)));
        assert_eq!(l.waiting.held(), MAX_WAITS / 4 + 1);
        l.connection_closed(TWO);
        assert_eq!(l.waiting.held(), 0);
    }

    fn wait(l: &mut AdvisoryLocks, connection: ConnectionId, file: u64, lock: Advisory) -> Answer {
        l.request((connection, USER), FileId(file), &lock, AdvisoryHow::Wait)
            .unwrap()
    }

    #[test]
    fn whoever_would_wait_for_itself_is_told() {
        let mut l = AdvisoryLocks::default();
        let x = |owner| lock(owner, Exclusive, 0, 9);
        // Three owners in two mounts, each with a file of its own.
        for (connection, owner, file) in [(ONE, 1, 1), (TWO, 2, 2), (TWO, 3, 3)] {
            assert_eq!(wait(&mut l, connection, file, x(owner)), Answer::Done);
        }
        assert_eq!(wait(&mut l, ONE, 2, x(1)), Answer::Held(x(2)));
        assert_eq!(wait(&mut l, TWO, 3, x(2)), Answer::Held(x(3)));
        // An owner with the same number in the other mount is a different owner.
        assert_eq!(wait(&mut l, ONE, 1, x(3)), Answer::Held(x(1)));
        assert_eq!(wait(&mut l, TWO, 1, x(3)), Answer::Deadlock);
        // An owner that got `Deadlock` does not count as waiting, and a request without waiting is never a deadlock.
        assert_eq!(wait(&mut l, TWO, 3, x(2)), Answer::Held(x(3)));
        assert_eq!(
            l.request((TWO, USER), FileId(1), &x(3), AdvisoryHow::Try)
                .unwrap(),
            Answer::Held(x(1))
        );
        // It releases its lock: the others continue one after the other.
        l.set(TWO, FileId(3), &lock(3, Free, 0, 9)).unwrap();
        assert_eq!(wait(&mut l, TWO, 3, x(2)), Answer::Done);
        assert_eq!(wait(&mut l, TWO, 1, x(3)), Answer::Held(x(1)));
    }

    #[test]
    fn shared_locks_and_threads_make_circles_too() {
        let mut l = AdvisoryLocks::default();
        let s = |owner| lock(owner, Shared, 0, 0);
        let x = |owner| lock(owner, Exclusive, 0, 0);
        l.set(ONE, F, &s(1)).unwrap();
        l.set(ONE, F, &s(2)).unwrap();
        // Both want a shared lock as exclusive.
        assert_eq!(wait(&mut l, ONE, F.0, x(1)), Answer::Held(s(2)));
        assert_eq!(wait(&mut l, ONE, F.0, x(2)), Answer::Deadlock);
        // The first owner has another thread, which waits for an unrelated lock: the deadlock is still detected.
        l.set(TWO, FileId(8), &x(5)).unwrap();
        assert_eq!(wait(&mut l, ONE, 8, x(1)), Answer::Held(x(5)));
        assert_eq!(wait(&mut l, ONE, F.0, x(2)), Answer::Deadlock);
    }

    #[test]
    fn who_does_not_wait_any_more_is_forgotten() {
        let mut l = AdvisoryLocks::default();
        let x = |owner| lock(owner, Exclusive, 0, 9);
        l.set(ONE, FileId(1), &x(1)).unwrap();
        l.set(TWO, FileId(2), &x(2)).unwrap();
        let leave = |l: &mut AdvisoryLocks| {
            l.request((TWO, USER), FileId(1), &x(2), AdvisoryHow::Leave)
                .unwrap();
        };
        for _ in 0..2 {
            assert_eq!(wait(&mut l, TWO, 1, x(2)), Answer::Held(x(1)));
        }
        assert_eq!(l.waiting.held(), 1);
        assert_eq!(wait(&mut l, ONE, 2, x(1)), Answer::Deadlock);
        leave(&mut l);
        leave(&mut l);
        assert_eq!(wait(&mut l, ONE, 2, x(1)), Answer::Held(x(2)));
        assert_eq!(l.waiting.held(), 1);
        // Everything about an owner ends with its connection.
        l.connection_closed(ONE);
        assert_eq!(l.waiting.held(), 0);
        assert!(l.waits.is_empty());
        assert_eq!(wait(&mut l, TWO, 1, x(2)), Answer::Done);
    }

    #[test]
    fn after_a_restart_claims_come_first() {
        let start = Instant::now();
        let mut l = AdvisoryLocks::recovering(start);
        let x = lock(1, Exclusive, 0, 9);
        let soon = start + Duration::from_secs(1);
        for (how, held_back) in [
            (AdvisoryHow::Try, true),
            (AdvisoryHow::Wait, true),
            (AdvisoryHow::Test, true),
            (AdvisoryHow::Claim, false),
            (AdvisoryHow::Leave, false),
        ] {
            let left = l.held_back(soon, &x, how);
            assert_eq!(left, held_back.then_some(Duration::from_secs(4)), "{how:?}");
            assert_eq!(l.held_back(start + GRACE, &x, how), None);
        }
        let free = lock(1, Free, 0, 9);
        assert_eq!(l.held_back(soon, &free, AdvisoryHow::Try), None);
        assert_eq!(
            AdvisoryLocks::default().held_back(soon, &x, AdvisoryHow::Try),
            None
        );
        // Of two claims of the same lock, the second is refused.
        let claim = AdvisoryHow::Claim;
        assert_eq!(l.request((ONE, USER), F, &x, claim).unwrap(), Answer::Done);
        assert_eq!(
            l.request((TWO, USER), F, &x, claim).unwrap(),
            Answer::Held(x)
        );
    }
}
