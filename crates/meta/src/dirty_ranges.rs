//! Dirty ranges: which bytes of the database's file may not be on the disk.
//!
//! Problem: after a server was killed nobody knows whether its last sync succeeded. The file is therefore rewritten in
//! place before it is opened ([`crate::clean_shutdown`]), which takes half a minute with ten million names. Idea: before each
//! sync, the ranges written since the last successful sync are recorded in a file beside the database. The record is
//! not flushed: it is needed only as long as the page cache that it describes. A sync that failed, or whose result its
//! caller did not live to see, can have lost nothing else. Later writes were never synced. For a failed write-back that
//! was not reported, the system reports an error to the next process that syncs the file (Linux 4.17, errseq). When it
//! pays: at a start after anything but a clean shutdown. It costs one small write for each sync. Parameters:
//! [`RANGES`], [`PAGE`].
//!
//! File format: magic, the system's boot, CRC-32 of both. At byte 32 the number of ranges, and the CRC-32 of the number
//! and the ranges. Then for each range its first byte and the byte after its last. Numbers are little endian.
use penstock_host::fs::{self, ExclusiveFile};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::ops::Bound;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most ranges of a record; beyond it, ranges with the smallest gaps between them are merged.
const RANGES: usize = 4092;
/// Unit of write-back, bytes.
const PAGE: u64 = 4096;

const NAME: &str = "namespace.unsynced";
const MAGIC: &[u8; 8] = b"unsynced";
const HEADER: usize = 28;
const BODY: usize = 32;
const SIZE: usize = BODY + 8 + 16 * RANGES;

/// Bytes that must be rewritten in place.
#[derive(Debug, PartialEq, Eq)]
pub enum Doubt {
    /// At most these bytes: (first, end), ascending.
    Ranges(Vec<(u64, u64)>),
    /// Unknown, so all.
    All,
}

/// Bytes of a file, as ranges of pages.
#[derive(Debug, Default)]
struct Ranges {
    list: Vec<(u64, u64)>,
}

impl Ranges {
    fn add(&mut self, first: u64, len: u64) {
        let (first, end) = (first & !(PAGE - 1), (first + len).next_multiple_of(PAGE));
        match self.list.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => self.list.push((first, end)),
        }
        if self.list.len() > 2 * RANGES {
            self.compact();
        }
    }

    /// Sorts and merges them, leaving at most [`RANGES`], none of which are adjacent.
    fn compact(&mut self) {
        self.list.sort_unstable();
        self.join(|gap| gap == 0);
        let Some(excess) = self.list.len().checked_sub(RANGES).filter(|n| *n > 0) else {
            return;
        };
        let mut gaps: Vec<u64> = self.list.windows(2).map(|w| w[1].0 - w[0].1).collect();
        let widest = *gaps.select_nth_unstable(excess - 1).1;
        // Of the gaps as wide as the widest, merge only as many as needed.
        let mut ties = excess - gaps.iter().filter(|gap| **gap < widest).count();
        self.join(|gap| {
            let tie = gap == widest && ties > 0;
            ties -= usize::from(tie);
            tie || gap < widest
        });
    }

    /// Merges neighbours if `f` says so of the gap between them.
    fn join(&mut self, mut f: impl FnMut(u64) -> bool) {
        self.list.dedup_by(|next, before| {
            let joined = f(next.0.saturating_sub(before.1));
            if joined {
                before.1 = before.1.max(next.1);
            }
            joined
        });
    }

    fn encode(&mut self) -> Vec<u8> {
        self.compact();
        let mut body = Vec::with_capacity(8 + 16 * self.list.len());
        body.extend_from_slice(&(self.list.len() as u32).to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        for (first, end) in &self.list {
            body.extend_from_slice(&first.to_le_bytes());
            body.extend_from_slice(&end.to_le_bytes());
        }
        let crc = checksum(&body);
        body[4..8].copy_from_slice(&crc.to_le_bytes());
        body
    }

    fn decode(body: &[u8]) -> Option<Vec<(u64, u64)>> {
        let count = u32::from_le_bytes(*body.first_chunk()?) as usize;
        let crc = u32::from_le_bytes(*body.get(4..)?.first_chunk()?);
        let body = body.get(..8 + 16 * count.min(RANGES))?;
        if checksum(body) != crc {
            return None;
        }
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.first_chunk()?));
        body[8..]
            .chunks_exact(16)
            .map(|range| Some((number(range)?, number(&range[8..])?)))
            .collect()
    }
}

/// Checksum of the number of ranges and the ranges.
fn checksum(body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&body[..4]);
    hasher.update(&body[8..]);
    hasher.finalize()
}

fn header(boot: u128) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..24].copy_from_slice(&boot.to_le_bytes());
    let crc = crc32fast::hash(&header[..24]);
    header[24..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// The bytes that the previous server may have failed to write. Nothing that another boot had in its page cache is
/// left.
pub fn doubt(directory: &Path) -> Doubt {
    let Ok(bytes) = std::fs::read(path(directory)) else {
        return Doubt::All;
    };
    let boot = bytes.get(8..24).and_then(|boot| boot.try_into().ok());
    let boot = boot
        .map(u128::from_le_bytes)
        .filter(|boot| bytes.starts_with(&header(*boot)));
    let now = penstock_host::boot();
    match (boot, now) {
        (Some(boot), Some(now)) if boot != now => Doubt::Ranges(Vec::new()),
        (Some(_), Some(_)) => {
            let ranges = bytes.get(BODY..).and_then(Ranges::decode);
            ranges.map_or(Doubt::All, Doubt::Ranges)
        }
        _ => Doubt::All,
    }
}

/// Deletes the record: everything is dirty for the next start.
pub fn forget(directory: &Path) -> Result<()> {
    match fs::remove_file(&path(directory)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Begins a record without dirty ranges. An optimisation: without it the next start takes longer.
pub fn begin(directory: &Path) -> Result<()> {
    forget(directory)?;
    let Some(boot) = penstock_host::boot() else {
        return Ok(());
    };
    let mut bytes = vec![0; SIZE];
    bytes[..HEADER].copy_from_slice(&header(boot));
    let none = Ranges::default().encode();
    bytes[BODY..BODY + none.len()].copy_from_slice(&none);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let begun = fs::open(&options, &path(directory), false)
        .and_then(|mut file| fs::write_all(&mut file, &bytes));
    if let Err(e) = begun {
        log::debug!("{}: no note of what is unsynced: {e}", directory.display());
        return forget(directory);
    }
    Ok(())
}

/// The record's file, usable from within the database's code.
#[derive(Debug)]
enum Note {
    File(File),
    /// In a simulated world.
    Held(ExclusiveFile),
}

impl Note {
    /// `None`: there is no record.
    fn open(directory: &Path) -> Option<Note> {
        let file = OpenOptions::new().write(true).open(path(directory)).ok()?;
        Some(match ExclusiveFile::new(file) {
            Ok(held) => Note::Held(held),
            Err(file) => Note::File(file),
        })
    }

    fn write(&self, ranges: &mut Ranges) -> Result<()> {
        let body = ranges.encode();
        match self {
            Note::File(file) => file.write_all_at(&body, BODY as u64),
            Note::Held(held) => held.write_at(BODY as u64, &body),
        }
    }
}

/// The first error of the database's file since it was opened. After it the database answers nothing until it is
/// reopened.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<OnceLock<String>>);

impl Trouble {
    /// The system's reason.
    pub fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn seen<T>(&self, done: Result<T>) -> Result<T> {
        // A file that is too short is damaged; its disk is not.
        if let Err(e) = &done
            && e.kind() != std::io::ErrorKind::UnexpectedEof
        {
            self.0.get_or_init(|| e.to_string());
        }
        done
    }
}

/// The database's file, which records dirty ranges before each sync.
#[derive(Debug)]
struct Recorded<B> {
    file: B,
    note: Option<Note>,
    trouble: Trouble,
    /// Ranges written since the last successful sync. Never locked while a simulated world switches threads.
    written: Mutex<Ranges>,
}

impl<B> Recorded<B> {
    fn new(file: B, directory: &Path, trouble: &Trouble) -> Recorded<B> {
        Recorded {
            file,
            note: Note::open(directory),
            trouble: trouble.clone(),
            written: Mutex::default(),
        }
    }

    fn wrote(&self, at: u64, len: u64) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.add(at, len);
    }
}

impl<B: StorageBackend> StorageBackend for Recorded<B> {
    fn len(&self) -> Result<u64> {
        self.trouble.seen(self.file.len())
    }
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.trouble.seen(self.file.read(at, into))
    }
    fn set_len(&self, len: u64) -> Result<()> {
        // An extended file ends with a written byte.
        self.wrote(len.saturating_sub(1), 1);
        self.trouble.seen(self.file.set_len(len))
    }
    fn sync_data(&self) -> Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(note) = &self.note {
            // If the record cannot be written, nothing is synced: nobody would know what a failure lost.
            self.trouble.seen(note.write(&mut written))?;
        }
        self.trouble.seen(self.file.sync_data())?;
        written.list.clear();
        Ok(())
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.wrote(at, bytes.len() as u64);
        self.trouble.seen(self.file.write(at, bytes))
    }
    fn close(&self) -> Result<()> {
        self.file.close()
    }
    fn try_lock_range(&self, first: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.try_lock_range(first, end)
    }
    fn try_lock_shared_range(&self, first: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.try_lock_shared_range(first, end)
    }
    fn lock_range(&self, first: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.lock_range(first, end)
    }
    fn lock_shared_range(&self, first: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.lock_shared_range(first, end)
    }
    fn unlock_range(&self, first: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.unlock_range(first, end)
    }
    fn query_lock_range(&self, first: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.query_lock_range(first, end)
    }
}

type Locked<T> = std::result::Result<T, redb::BackendError>;

/// The database's file in a simulated world.
#[derive(Debug)]
struct InWorld(ExclusiveFile);

impl StorageBackend for InWorld {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.0.read_at(at, into)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> Result<()> {
        self.0.sync()
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(at, bytes)
    }
}

/// Opens the database at `path` with its record in `directory`.
pub fn open(
    builder: &Builder,
    directory: &Path,
    path: &Path,
    trouble: &Trouble,
) -> std::result::Result<Database, DatabaseError> {
    match fs::held(path)? {
        Some(held) => builder.create_with_backend(Recorded::new(InWorld(held), directory, trouble)),
        None => {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            builder.create_with_backend(Recorded::new(FileBackend::new(file)?, directory, trouble))
        }
    }
}

/// Makes a new database in an empty file, without a record.
pub fn create(file: File) -> std::result::Result<Database, DatabaseError> {
    match ExclusiveFile::new(file) {
        Err(file) => Builder::new().create_file(file),
        Ok(held) => Builder::new().create_with_backend(InWorld(held)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        for (first, len) in of {
            ranges.add(*first, *len);
        }
        ranges
    }

    #[test]
    fn ranges_are_whole_pages_and_bounded() {
        let mut few = ranges(&[(10 * PAGE + 7, 1), (0, PAGE), (PAGE - 1, 2), (11 * PAGE, 1)]);
        let stored = few.encode();
        let expected = vec![(0, 2 * PAGE), (10 * PAGE, 12 * PAGE)];
        assert_eq!(Ranges::decode(&stored), Some(expected));
        let scattered: Vec<_> = (0..10 * RANGES as u64).map(|i| (i * i * PAGE, 1)).collect();
        let mut many = ranges(&scattered);
        assert!(many.list.len() <= 2 * RANGES);
        let stored = many.encode();
        assert!(BODY + stored.len() <= SIZE);
        let kept = Ranges::decode(&stored).unwrap();
        assert_eq!(kept.len(), RANGES, "no more than has to be is joined");
        for (first, len) in scattered {
            let covers = |range: &&(u64, u64)| range.0 <= first && first + len <= range.1;
            assert!(kept.iter().any(|range| covers(&range)));
        }
    }

    #[test]
    fn a_changed_note_leaves_all_in_doubt() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(doubt(dir.path()), Doubt::All);
        begin(dir.path()).unwrap();
        assert_eq!(doubt(dir.path()), Doubt::Ranges(vec![]));
        let note = Note::open(dir.path()).unwrap();
        note.write(&mut ranges(&[(3 * PAGE, 1), (9 * PAGE, 1)]))
            .unwrap();
        let noted = vec![(3 * PAGE, 4 * PAGE), (9 * PAGE, 10 * PAGE)];
        assert_eq!(doubt(dir.path()), Doubt::Ranges(noted));
        let path = path(dir.path());
        let whole = std::fs::read(&path).unwrap();
        for bit in (0..8 * HEADER).chain(8 * BODY..8 * (BODY + 40)) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(doubt(dir.path()), Doubt::All, "bit {bit}");
        }
        // After another boot nothing is in the page cache only, whatever a power loss has left of the record.
        let mut bytes = whole.clone();
        bytes[..HEADER].copy_from_slice(&header(7));
        bytes[BODY] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(doubt(dir.path()), Doubt::Ranges(vec![]));
        forget(dir.path()).unwrap();
        assert_eq!(doubt(dir.path()), Doubt::All);
    }

    /// A file whose syncs fail.
    #[derive(Debug)]
    struct Failing;

    impl StorageBackend for Failing {
        fn len(&self) -> Result<u64> {
            Ok(0)
        }
        fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn set_len(&self, _: u64) -> Result<()> {
            Ok(())
        }
        fn sync_data(&self) -> Result<()> {
            Err(std::io::Error::other("no disk"))
        }
        fn write(&self, _: u64, _: &[u8]) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_sync_may_have_lost_is_noted_before_it() {
        let dir = tempfile::tempdir().unwrap();
        begin(dir.path()).unwrap();
        let trouble = Trouble::default();
        let file = Recorded::new(Failing, dir.path(), &trouble);
        file.write(PAGE, &[0; 9]).unwrap();
        assert_eq!(doubt(dir.path()), Doubt::Ranges(vec![]), "not synced yet");
        assert_eq!(trouble.why(), None);
        assert!(file.sync_data().is_err());
        assert_eq!(trouble.why(), Some("no disk"));
        file.set_len(6 * PAGE).unwrap();
        assert!(file.sync_data().is_err());
        let noted = vec![(PAGE, 2 * PAGE), (5 * PAGE, 6 * PAGE)];
        assert_eq!(doubt(dir.path()), Doubt::Ranges(noted));
        let good = Recorded::new(redb::backends::InMemoryBackend::new(), dir.path(), &trouble);
        good.set_len(3 * PAGE).unwrap();
        good.write(0, &[0; 9]).unwrap();
        good.sync_data().unwrap();
        good.write(PAGE, &[0; 9]).unwrap();
        good.sync_data().unwrap();
        assert_eq!(doubt(dir.path()), Doubt::Ranges(vec![(PAGE, 2 * PAGE)]));
    }
}
