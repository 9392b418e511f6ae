//! The objects that a store must have: a missing one is damage, not a hole.
//!
//! Problem: an object that was never written reads as zeros, and so would one that was lost with a disk. Idea: a log in
//! the store lists every object that was ever synced, with its length at that time. A listed object that is missing
//! counts as damaged. Entries are part of the object's first sync: data, then directory, then this log, then the
//! answer. Entries of objects that are synced at the same time share one flush. Later syncs, writes and truncations
//! change nothing here. The object's record has its current length ([`crate::record`]), which the file system journals
//! in order with the truncation itself. An entry here instead would cost a flush for each truncation.
//!
//! A removal is recorded after the file is gone, without a flush. If a crash loses that record, an entry without an
//! object is left over. Its file has no name any more, so nobody reads it, and `penstock check` drops it.
//!
//! The highest id ever entered is kept when its object is removed: it shows how new the store's files were
//! (docs/decisions/0015).
//!
//! Format: a header (magic, least number of entries that follow, CRC-32), then entries of 24 bytes. An entry is id,
//! length (all ones: removed), number 0, CRC-32; little endian. The log is rewritten at each start. An incomplete entry
//! is skipped: the sync that wrote it was not answered, and [`crate::Store::sync_unsynced`] enters its object again.
use crate::descriptor;
use crate::replace::{Bad, commit, prepare};
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_layout::FileId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, PoisonError};

pub(crate) const NAME: &str = "manifest";
const MAGIC: [u8; 8] = *b"PSMANIF1";
const HEADER: usize = 20;
const ENTRY: usize = 24;
/// Length in an entry that removes the object.
const REMOVED: u64 = u64::MAX;
/// Bytes read and written at a time.
const CHUNK: usize = ENTRY << 15;
/// Removals that wait for the next flush at most; beyond it they are written for their own sake.
const WAITING: usize = ENTRY << 12;

/// The manifest of an open store.
pub(crate) struct Manifest {
    file: OwnedFd,
    state: Mutex<State>,
    ended: Condvar,
}

/// The result of a flush.
type Outcome = Arc<OnceLock<Result<(), Errno>>>;

struct State {
    /// For each id, the class of its least length.
    known: BTreeMap<u64, u8>,
    /// The highest id ever entered; 0: none.
    highest: u64,
    /// End of the log in bytes.
    end: u64,
    /// Entries for the next flush.
    waiting: Vec<(FileId, u64)>,
    /// The result of the next flush.
    outcome: Outcome,
    running: bool,
    /// Successful flushes.
    rounds: u64,
}

/// A length is stored in a byte: the number of its bits.
fn class(len: u64) -> u8 {
    (u64::BITS - len.leading_zeros()) as u8
}

/// The least length of a class.
fn least(class: u8) -> u64 {
    match class {
        0 => 0,
        bits => 1 << (bits - 1),
    }
}

fn encode(id: FileId, len: u64) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..8].copy_from_slice(&id.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&len.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    (bytes.get(20..)? == crc32fast::hash(&bytes[..20]).to_le_bytes())
        .then_some((number(0)?, number(8)?))
}

fn header(entries: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&entries.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

impl Manifest {
    /// Makes an empty one in the store's directory, replacing an old one. The directory is not synced.
    pub(crate) fn make(root: BorrowedFd<'_>) -> Result<(), Errno> {
        let (file, temporary) = prepare(root, NAME)?;
        descriptor::write_at(file.as_fd(), 0, &header(0))?;
        commit(root, file, &temporary, NAME)
    }

    /// Reads the one in the store's directory and rewrites it.
    pub(crate) fn load(root: BorrowedFd<'_>) -> Result<Manifest, Bad> {
        let open = || {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat(root, NAME, flags, Mode::empty())
        };
        let file = open().map_err(|e| match e {
            Errno::NOENT => Bad::Content("missing"),
            e => Bad::Errno(e),
        })?;
        let (known, highest, end) = read(file.as_fd())?;
        let (file, end) = match rewrite(root, &known, highest) {
            Ok(end) => (open()?, end),
            // A full store must be able to start, so that something can be removed. The old file serves as well.
            Err(Errno::NOSPC | Errno::DQUOT) => (file, end),
            Err(e) => return Err(e.into()),
        };
        Ok(Manifest {
            file,
            state: Mutex::new(State {
                known,
                highest,
                end,
                waiting: Vec::new(),
                outcome: Outcome::default(),
                running: false,
                rounds: 0,
            }),
            ended: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic between two changes of it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least length of an object that the store must have.
    pub(crate) fn least(&self, id: FileId) -> Option<u64> {
        self.state().known.get(&id.0).copied().map(least)
    }

    /// The highest id that was ever entered; 0: none.
    pub(crate) fn highest(&self) -> u64 {
        self.state().highest
    }

    /// Increases when the log on the disk changes.
    pub(crate) fn rounds(&self) -> u64 {
        self.state().rounds
    }

    /// At most `limit` ids that the store must have, after `after`.
    pub(crate) fn ids(&self, after: Option<FileId>, limit: usize) -> Vec<FileId> {
        let from = after.map_or(0, |id| id.0.saturating_add(1));
        let state = self.state();
        let ids = state.known.range(from..).take(limit);
        ids.map(|(id, _)| FileId(*id)).collect()
    }

    /// Enters objects with their synced lengths; they are on stable storage when this returns.
    pub(crate) fn enter(&self, objects: &[(FileId, u64)]) -> Result<(), Errno> {
        let mut state = self.state();
        let new = |(id, _): &&(FileId, u64)| !state.known.contains_key(&id.0);
        let new: Vec<_> = objects.iter().filter(new).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        state.waiting.extend(new);
        self.write(state)
    }

    /// The object was removed. Recorded with the next flush, or lost in a crash.
    pub(crate) fn forget(&self, id: FileId) {
        let mut state = self.state();
        if state.known.remove(&id.0).is_none() {
            return;
        }
        state.waiting.push((id, REMOVED));
        // A failure is no error: the next `penstock check` drops left-over entries.
        if state.waiting.len() * ENTRY >= WAITING && !state.running {
            let _ = self.write(state);
        }
    }

    /// Makes records of removals durable.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        let state = self.state();
        if state.waiting.is_empty() {
            Ok(())
        } else {
            self.write(state)
        }
    }

    /// Writes waiting entries and makes them durable, together with what others enter meanwhile.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<(), Errno> {
        let mine = state.outcome.clone();
        loop {
            if let Some(outcome) = mine.get() {
                return *outcome;
            }
            if state.running {
                state = self
                    .ended
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            let round = std::mem::take(&mut state.waiting);
            let outcome = std::mem::take(&mut state.outcome);
            let at = state.end;
            drop(state);
            let bytes: Vec<u8> = round
                .iter()
                .flat_map(|(id, len)| encode(*id, *len))
                .collect();
            let result = descriptor::write_at(self.file.as_fd(), at, &bytes)
                .and_then(|()| penstock_host::fs::fdatasync(&self.file));
            state = self.state();
            state.running = false;
            if result.is_ok() {
                state.end += bytes.len() as u64;
                state.rounds += 1;
                for (id, len) in round.into_iter().filter(|(_, len)| *len != REMOVED) {
                    state.known.insert(id.0, class(len));
                    state.highest = state.highest.max(id.0);
                }
            }
            let _ = outcome.set(result);
            self.ended.notify_all();
        }
    }
}

/// The ids in a manifest, the highest one ever, and the end of the log.
fn read(file: BorrowedFd<'_>) -> Result<(BTreeMap<u64, u8>, u64, u64), Bad> {
    let mut start = [0; HEADER];
    let got = descriptor::read_at(file, 0, &mut start)?;
    let entries = u64::from_le_bytes(start[8..16].try_into().map_err(|_| Bad::Content("short"))?);
    if got < HEADER || start != header(entries) {
        return Err(Bad::Content("its beginning is not what was written"));
    }
    let mut known = BTreeMap::new();
    let (mut at, mut found, mut skipped) = (HEADER as u64, 0u64, 0u64);
    let mut highest = 0;
    let mut chunk = vec![0; CHUNK];
    loop {
        let got = descriptor::read_at(file, at, &mut chunk)?;
        for entry in chunk[..got].chunks_exact(ENTRY) {
            found += 1;
            let entry = decode(entry);
            highest = entry.map_or(highest, |(id, _)| highest.max(id));
            match entry {
                Some((id, REMOVED)) => drop(known.remove(&id)),
                Some((id, len)) => drop(known.insert(id, class(len))),
                None => skipped += 1,
            }
        }
        at += (got / ENTRY * ENTRY) as u64;
        if got < CHUNK {
            break;
        }
    }
    if found < entries {
        return Err(Bad::Content("it is shorter than it was"));
    }
    if skipped > 0 {
        log::warn!(
            "{skipped} entries of the manifest are not whole: their objects are entered again"
        );
    }
    Ok((known, highest, at))
}

/// Returns the end of the log.
fn rewrite(root: BorrowedFd<'_>, known: &BTreeMap<u64, u8>, highest: u64) -> Result<u64, Errno> {
    let (file, temporary) = prepare(root, NAME)?;
    // The object with the highest id may be removed: the record of its removal keeps the id.
    let gone = (highest > 0 && !known.contains_key(&highest)).then_some(highest);
    let number = known.len() + usize::from(gone.is_some());
    descriptor::write_at(file.as_fd(), 0, &header(number as u64))?;
    let mut at = HEADER as u64;
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut entries = known.iter().peekable();
    while let Some((id, class)) = entries.next() {
        chunk.extend(encode(FileId(*id), least(*class)));
        if chunk.len() == CHUNK || entries.peek().is_none() {
            descriptor::write_at(file.as_fd(), at, &chunk)?;
            at += chunk.len() as u64;
            chunk.clear();
        }
    }
    if let Some(id) = gone {
        descriptor::write_at(file.as_fd(), at, &encode(FileId(id), REMOVED))?;
        at += ENTRY as u64;
    }
    commit(root, file, &temporary, NAME)?;
    penstock_host::fs::fsync(root)?;
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(dir: &tempfile::TempDir) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap()
    }

    #[test]
    fn what_was_entered_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        Manifest::make(root.as_fd()).unwrap();
        let manifest = Manifest::load(root.as_fd()).unwrap();
        let objects: Vec<_> = (1..5000).map(|n| (FileId(n), 3 * n)).collect();
        std::thread::scope(|s| {
            for part in objects.chunks(100) {
                let manifest = &manifest;
                s.spawn(move || part.iter().try_for_each(|o| manifest.enter(&[*o])).unwrap());
            }
        });
        manifest.forget(FileId(7));
        manifest.enter(&[(FileId(9000), 0)]).unwrap();
        for manifest in [manifest, Manifest::load(root.as_fd()).unwrap()] {
            assert_eq!(manifest.ids(None, usize::MAX).len(), 4999);
            assert_eq!(manifest.least(FileId(7)), None);
            assert_eq!(manifest.least(FileId(9000)), Some(0));
            for (id, len) in objects.iter().filter(|(id, _)| id.0 != 7) {
                let least = manifest.least(*id).unwrap();
                assert!(least <= *len && 2 * least > *len, "{least} of {len}");
            }
        }
    }

    #[test]
    fn the_highest_id_outlives_its_object() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        Manifest::make(root.as_fd()).unwrap();
        let manifest = Manifest::load(root.as_fd()).unwrap();
        manifest.enter(&[(FileId(9), 1), (FileId(5), 1)]).unwrap();
        manifest.forget(FileId(9));
        manifest.flush().unwrap();
        for _ in 0..2 {
            let manifest = Manifest::load(root.as_fd()).unwrap();
            assert_eq!(manifest.highest(), 9);
            assert_eq!(manifest.ids(None, 9), [FileId(5)]);
        }
        let manifest = Manifest::load(root.as_fd()).unwrap();
        manifest.enter(&[(FileId(12), 1)]).unwrap();
        assert_eq!(manifest.highest(), 12);
        assert_eq!(Manifest::load(root.as_fd()).unwrap().highest(), 12);
    }

    #[test]
    fn a_torn_end_is_left_out_and_a_cut_beginning_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        Manifest::make(root.as_fd()).unwrap();
        let manifest = Manifest::load(root.as_fd()).unwrap();
        manifest.enter(&[(FileId(1), 5), (FileId(2), 6)]).unwrap();
        drop(Manifest::load(root.as_fd()).unwrap());
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn.extend([9; ENTRY - 1]);
        std::fs::write(&path, &torn).unwrap();
        assert_eq!(Manifest::load(root.as_fd()).unwrap().ids(None, 9).len(), 2);
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(matches!(Manifest::load(root.as_fd()), Err(Bad::Content(_))));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            Manifest::load(root.as_fd()),
            Err(Bad::Content("missing"))
        ));
    }
}
