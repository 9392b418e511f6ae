//! The directory of a fast tier: its lock, its segments, and how far its log is on stable storage.
//!
//! ```text
//! tier                    whose it is (`tie`)
//! incarnation             names the page cache that holds what is not synced
//! lock                    held by the server
//! synced                  two places for the number of the last record on stable storage, written in turn
//! segment-0000000000000001
//! ```
use super::tie::{NAME, Tie};
use crate::incarnation::Incarnation;
use crate::replace::replace;
use crate::{StoreError, descriptor};
use penstock_host::fs as host;
use penstock_host::lock::{DirectoryLock, Refused};
use penstock_tier::{TierId, checksum};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LOCK: &str = "lock";
const SYNCED: &str = "synced";
const SEGMENT: &str = "segment-";
/// Bytes of one place in [`SYNCED`]: a number and a checksum, in a sector of its own.
const PLACE: u64 = 512;
/// Longest file `tier` that is read.
const LIMIT: usize = 8192;

/// A segment's file, open as long as anybody reads it.
pub(crate) type File = Arc<OwnedFd>;

/// See the module's text.
pub(crate) struct FastDevice {
    pub(crate) path: String,
    root: OwnedFd,
    synced: OwnedFd,
    turn: AtomicU64,
    pub(crate) incarnation: Incarnation,
    _lock: DirectoryLock,
}

/// The directory with its lock, before anything is read in it.
pub(crate) struct Unread {
    path: String,
    root: OwnedFd,
    lock: DirectoryLock,
}

impl Unread {
    /// Opens it; makes it with `make`. `None`: there is none.
    pub(crate) fn open(path: &Path, make: bool) -> Result<Option<Unread>, StoreError> {
        let name = path.display().to_string();
        let error = |what| {
            let name = name.clone();
            move |e| StoreError::from_errno(what, name, e)
        };
        if make && !path.is_dir() {
            create(path).map_err(error("create directory"))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(error("open"))?,
        };
        let lock = DirectoryLock::take(root.as_fd(), LOCK).map_err(|refused| match refused {
            Refused::Held(holder) => StoreError::InUse {
                path: name.clone(),
                holder,
            },
            Refused::Failed(e) => error("lock")(e),
        })?;
        Ok(Some(Unread {
            path: name,
            root,
            lock,
        }))
    }

    /// What it says of itself; `None`: nothing.
    pub(crate) fn tie(&self) -> Result<Option<Tie>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let error = |e| StoreError::from_errno("read", format!("{}/{NAME}", self.path), e);
        let file = match rustix::fs::openat(&self.root, NAME, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(error)?,
        };
        let mut bytes = vec![0; LIMIT];
        let n = descriptor::read_at(file.as_fd(), 0, &mut bytes).map_err(error)?;
        bytes.truncate(n);
        let tie = std::str::from_utf8(&bytes).ok().and_then(Tie::decode);
        tie.map(Some).ok_or_else(|| StoreError::Damaged {
            path: format!("{}/{NAME}", self.path),
            what: "description of the fast tier".to_owned(),
            detail: "it is not what was written; restore it from a backup".to_owned(),
        })
    }

    /// Whether segments are there.
    pub(crate) fn has_segments(&self) -> Result<bool, StoreError> {
        Ok(!segments(&self.path)?.is_empty())
    }

    /// The directory of the tier that `tie` describes, which is written to it.
    pub(crate) fn begin(self, tie: &Tie) -> Result<FastDevice, StoreError> {
        let path = self.path;
        let error = |what| {
            let path = path.clone();
            move |e| StoreError::from_errno(what, path, e)
        };
        let incarnation = Incarnation::open(self.root.as_fd(), &path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let synced = host::openat(&self.root, SYNCED, flags, mode).map_err(error("write in"))?;
        let device = FastDevice {
            root: self.root,
            synced,
            turn: AtomicU64::new(0),
            incarnation,
            _lock: self.lock,
            path: path.clone(),
        };
        device.describe(tie)?;
        Ok(device)
    }
}

/// Makes the directory, on stable storage: bytes will be there and nowhere else.
fn create(path: &Path) -> Result<(), Errno> {
    let (parent, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => return Err(Errno::INVAL),
    };
    // Of a name alone.
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(parent);
    made.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, flags, Mode::empty())?;
    match host::mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => host::fsync(&parent),
        Err(e) => Err(e),
    }
}

/// Numbers of the segments in the directory, ascending.
fn segments(path: &str) -> Result<Vec<u64>, StoreError> {
    let mut numbers = Vec::new();
    for name in crate::dir::names(path)? {
        let number = name.strip_prefix(SEGMENT);
        let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
        numbers.extend(number.filter(|n| segment(*n) == name));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn segment(number: u64) -> String {
    format!("{SEGMENT}{number:016x}")
}

impl FastDevice {
    fn error(&self, what: &'static str) -> impl FnOnce(Errno) -> StoreError + '_ {
        move |e| StoreError::from_errno(what, self.path.clone(), e)
    }

    /// Writes what it says of itself, on stable storage.
    pub(crate) fn describe(&self, tie: &Tie) -> Result<(), StoreError> {
        replace(self.root.as_fd(), NAME, tie.encode().as_bytes())
            .and_then(|()| host::fsync(&self.root))
            .map_err(self.error("write the description of the fast tier in"))
    }

    pub(crate) fn segments(&self) -> Result<Vec<u64>, StoreError> {
        segments(&self.path)
    }

    /// A segment that is there, and its length.
    pub(crate) fn open(&self, number: u64) -> Result<(File, u64), StoreError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = segment(number);
        let error = |e| StoreError::from_errno("open", format!("{}/{name}", self.path), e);
        let file = host::openat(&self.root, &name, flags, Mode::empty()).map_err(error)?;
        let len = descriptor::len(file.as_fd()).map_err(error)?;
        Ok((Arc::new(file), len))
    }

    /// A new segment, with room for so many bytes where the file system can say so.
    pub(crate) fn make(&self, number: u64, bytes: u64) -> Result<File, Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = segment(number);
        let file = host::openat(&self.root, &name, flags, Mode::RUSR | Mode::WUSR)?;
        match descriptor::allocate(file.as_fd(), 0, bytes) {
            Ok(()) => Ok(Arc::new(file)),
            Err(e) => {
                let _ = host::unlinkat(&self.root, &name);
                Err(e)
            }
        }
    }

    /// Removes a segment, on stable storage: none before it is there when the next one goes.
    pub(crate) fn remove(&self, number: u64) -> Result<(), Errno> {
        match host::unlinkat(&self.root, segment(number)) {
            Ok(()) | Err(Errno::NOENT) => host::fsync(&self.root),
            Err(e) => Err(e),
        }
    }

    /// The names of segments become durable.
    pub(crate) fn sync_names(&self) -> Result<(), Errno> {
        host::fsync(&self.root)
    }

    /// The number of the last record on stable storage, as far as it is noted.
    pub(crate) fn synced(&self, tier: &TierId) -> u64 {
        let mut last = 0;
        for place in [0, PLACE] {
            let mut bytes = [0; 12];
            if descriptor::read_at(self.synced.as_fd(), place, &mut bytes) != Ok(12) {
                continue;
            }
            let (number, sum) = bytes.split_at(8);
            if checksum([&tier[..], number]).to_le_bytes() == sum {
                last = last.max(u64::from_le_bytes(number.try_into().unwrap_or_default()));
            }
        }
        last
    }

    /// Notes it. A note that is lost costs nothing but a longer look at the next start.
    pub(crate) fn note_synced(&self, tier: &TierId, last: u64) {
        let place = PLACE * (self.turn.fetch_add(1, Relaxed) % 2);
        let number = last.to_le_bytes();
        let sum = checksum([&tier[..], &number]);
        let bytes = [&number[..], &sum.to_le_bytes()].concat();
        if let Err(e) = descriptor::write_at(self.synced.as_fd(), place, &bytes) {
            log::debug!("{}/{SYNCED}: {e}", self.path);
        }
    }
}
