//! The simulated disk of one machine: what of its files survives a power loss.
//!
//! Problem: a real disk loses what was not synced, and not atomically. Some pages are written, some not, some in part,
//! and names are durable independently of their files. Idea: the files that programs see are real files in a directory
//! in memory, which acts as the page cache. Beside it the model keeps what is durable. That is contents as of their
//! last sync, names as of the last sync of their directory, and the list of changes since. When the power fails, the
//! directory is emptied and filled with the durable state and a random part of the changes. Of writes that is any
//! choice of sectors. Lengths, attributes and the names of a directory survive as a prefix in order, as on a
//! journalling file system.
mod copy;

pub(crate) use copy::{Aside, Item};

use crate::cluster::FAST;
use crate::effects::{Effect, Effects};
use crate::plant::Plant;
use crate::units::{MS, MachineId, Nanos};
use penstock_base::Random;
use penstock_host::Access;
use rustix::fs::{FileType, Mode, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

type Inode = u64;

/// With failing accesses, one access in so many fails.
const ERRORS: u64 = 12;

/// The durable content of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    data: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
    mode: Option<Mode>,
}

#[derive(Debug)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    SetLen(u64),
    Attribute(String, Vec<u8>),
    Mode(Mode),
}

impl Content {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (at, end) = (at as usize, at as usize + bytes.len());
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[at..end].copy_from_slice(bytes);
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { at, bytes } => self.write(*at, bytes),
            Change::SetLen(len) => self.data.resize(*len as usize, 0),
            Change::Attribute(name, value) => {
                self.attributes.insert(name.clone(), value.clone());
            }
            Change::Mode(mode) => self.mode = Some(*mode),
        }
    }
}

#[derive(Debug, Default)]
struct File {
    durable: Content,
    since: Vec<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File(Inode),
    Directory,
}

#[derive(Debug)]
enum Naming {
    Make(PathBuf, Entry),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

fn rename(names: &mut BTreeMap<PathBuf, Entry>, naming: &Naming) {
    match naming {
        Naming::Make(path, entry) => {
            names.insert(path.clone(), *entry);
        }
        Naming::Rename(from, to) => {
            if let Some(entry) = names.remove(from) {
                names.insert(to.clone(), entry);
            }
        }
        Naming::Remove(path) => {
            names.remove(path);
        }
    }
}

/// The simulated disk of one machine.
pub(crate) struct Disk {
    root: PathBuf,
    random: Random,
    plant: Option<Plant>,
    /// Whether it has no extended attributes.
    plain: bool,
    files: BTreeMap<Inode, File>,
    names: BTreeMap<PathBuf, Entry>,
    naming: BTreeMap<PathBuf, Vec<Naming>>,
    /// Factor on the time of accesses.
    pub slow: u64,
    /// Whether no file can grow.
    pub full: bool,
    /// Whether one sync in two fails.
    pub failing: bool,
    /// Whether one read or write in [`ERRORS`] fails.
    pub erring: bool,
    /// Whether one access in [`ERRORS`], and one new thread in four, gets no memory.
    pub starved: bool,
    /// Whether one descriptor in two is refused.
    pub without_descriptors: bool,
    /// Whether a failed sync has not yet been reported by a sync of the file system, which reports each failure once.
    unreported: bool,
    /// Syncs and other accesses that have failed.
    pub failed: u64,
    /// Accesses until the power fails.
    pub power: Option<u64>,
    /// Whether the power fails when a sync of a file with unsynced writes is about to begin.
    pub before_sync: bool,
    pub effects: Effects,
    /// Times of power losses so far.
    pub losses: Vec<Nanos>,
    /// When a sync of the file system reported an earlier failure: the store's incarnation ended then.
    pub told: Vec<Nanos>,
    /// For [`Plant::StaleRead`]: the place of the last write and what it replaced; whether it is undone at the moment.
    last: Option<(Inode, u64, Vec<u8>, Vec<u8>)>,
    stale: bool,
    /// For [`Plant::SameBytes`]: whether the current write changes nothing.
    same: bool,
}

fn inode(file: BorrowedFd<'_>) -> Inode {
    rustix::fs::fstat(file).map_or(0, |s| s.st_ino)
}

fn is_directory(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(file).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
}

fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(link).unwrap_or_default()
}

impl Disk {
    pub fn new(seed: u64, machine: MachineId, root: PathBuf, plant: Option<Plant>) -> Disk {
        let mut random = Random::for_purpose(seed, 100 + machine as u64);
        Disk {
            root,
            plain: random.one_in(3),
            random,
            plant: plant.filter(|p| (machine == 0) == (*p == Plant::SameBytes)),
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            naming: BTreeMap::new(),
            slow: 1,
            full: false,
            failing: false,
            erring: false,
            starved: false,
            without_descriptors: false,
            unreported: false,
            failed: 0,
            power: None,
            before_sync: false,
            effects: Effects::default(),
            losses: Vec::new(),
            told: Vec::new(),
            last: None,
            stale: false,
            same: false,
        }
    }

    /// For the log: kind and size of an access.
    pub fn kind(access: &Access<'_>) -> (u8, u64) {
        match access {
            Access::Read { len, .. } => (10, *len as u64),
            Access::Write { at, bytes, .. } => {
                (11, penstock_base::Random::mix(*at) ^ bytes.len() as u64)
            }
            Access::SetLen { len, .. } => (12, *len),
            Access::Attribute { value, .. } => (13, value.len() as u64),
            Access::Sync { .. } => (14, 0),
            Access::Make { .. } => (15, 0),
            Access::Rename { .. } => (16, 0),
            Access::Remove { .. } => (17, 0),
            Access::Mode { mode, .. } => (18, u64::from(mode.bits())),
            Access::Open => (19, 0),
            Access::SyncAll => (20, 0),
        }
    }

    /// Counts an access; returns whether the power fails now.
    pub fn counts_down(&mut self, access: &Access<'_>) -> bool {
        if self.before_sync && self.would_lose(access) {
            return true;
        }
        match &mut self.power {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// Whether a sync of a file with non-durable writes is about to begin.
    fn would_lose(&self, access: &Access<'_>) -> bool {
        let Access::Sync { file } = access else {
            return false;
        };
        let write = |change: &Change| matches!(change, Change::Write { .. });
        self.files
            .get(&inode(*file))
            .is_some_and(|file| file.since.iter().any(write))
    }

    /// Duration of an access, and how many of its bytes are allowed.
    pub fn before(&mut self, access: &Access<'_>, now: Nanos) -> (Nanos, Result<usize, Errno>) {
        if self.stale {
            self.stale = false;
            self.put_last(access, true);
        }
        let takes = self.slow
            * match access {
                Access::Open | Access::Read { .. } => self.random.from_to(2_000, 10_000),
                Access::Write { .. }
                | Access::Attribute { .. }
                | Access::Mode { .. }
                | Access::SetLen { .. } => self.random.from_to(3_000, 15_000),
                Access::Sync { .. } | Access::SyncAll => self.random.from_to(MS / 5, 6 * MS),
                Access::Make { .. } | Access::Rename { .. } | Access::Remove { .. } => {
                    self.random.from_to(10_000, 60_000)
                }
            };
        let allowed = match access {
            Access::Read { .. } | Access::Write { .. }
                if self.erring && self.random.one_in(ERRORS) =>
            {
                self.failed += 1;
                let (effect, error) = match access {
                    Access::Read { .. } => (Effect::FailedRead, Errno::IO),
                    _ => (Effect::FailedWrite, Errno::IO),
                };
                self.effects.count(effect);
                Err(error)
            }
            Access::Read { .. } | Access::Write { .. } | Access::Open | Access::Make { .. }
                if self.starved && self.random.one_in(ERRORS) =>
            {
                self.failed += 1;
                self.effects.count(Effect::NoMemory);
                Err(Errno::NOMEM)
            }
            Access::Open | Access::Make { .. } if self.has_no_descriptor() => Err(Errno::MFILE),
            Access::Attribute { .. } if self.plain => Err(Errno::OPNOTSUPP),
            // An existing attribute is overwritten, which needs no space.
            Access::Attribute { file, name, .. } if self.full => {
                match rustix::fs::fgetxattr(file, *name, &mut [0; 64][..]) {
                    Err(Errno::NODATA) => Err(Errno::NOSPC),
                    _ => Ok(usize::MAX),
                }
            }
            Access::Write { file, at, bytes } if self.full => {
                let len = rustix::fs::fstat(file).map_or(0, |s| s.st_size as u64);
                let room = len.saturating_sub(*at).min(bytes.len() as u64) as usize;
                if room == 0 {
                    Err(Errno::NOSPC)
                } else {
                    Ok(room)
                }
            }
            Access::Make { .. } if self.full => Err(Errno::NOSPC),
            Access::Sync { file } if self.failing && self.random.one_in(2) => {
                self.fail_to_sync(*file);
                Err(Errno::IO)
            }
            Access::SyncAll if std::mem::take(&mut self.unreported) => {
                self.sync_all();
                self.told.push(now);
                self.failed += 1;
                self.effects.count(Effect::FailedSync);
                Err(Errno::IO)
            }
            Access::SetLen { file, len } if self.full => {
                let now = rustix::fs::fstat(file).map_or(0, |s| s.st_size as u64);
                if *len > now { Err(Errno::NOSPC) } else { Ok(0) }
            }
            // A call may always write less.
            Access::Write { bytes, .. } if bytes.len() > 1 && self.random.one_in(50) => {
                Ok(1 + self.random.index(bytes.len() - 1))
            }
            _ => Ok(usize::MAX),
        };
        if self.slow > 1 {
            self.effects.count(Effect::SlowDisk);
        }
        if allowed == Err(Errno::NOSPC) {
            self.effects.count(Effect::FullDisk);
        }
        match (self.plant, access) {
            (Some(Plant::StaleRead), _) => self.keep_old(access),
            (Some(Plant::SameBytes), Access::Write { file, at, bytes }) => {
                let mut there = vec![0; bytes.len()];
                let read = rustix::io::pread(file, &mut there[..], *at);
                self.same = read == Ok(bytes.len()) && there == *bytes;
            }
            _ => {}
        }
        (takes, allowed)
    }

    /// Ends all access failures.
    pub fn heal(&mut self) {
        self.failing = false;
        self.erring = false;
        self.starved = false;
        self.without_descriptors = false;
    }

    /// Whether this descriptor is refused.
    pub fn has_no_descriptor(&mut self) -> bool {
        let refused = self.without_descriptors && self.random.one_in(2);
        if refused {
            self.failed += 1;
            self.effects.count(Effect::NoDescriptor);
        }
        refused
    }

    /// Whether this thread is refused.
    pub fn has_no_thread(&mut self) -> bool {
        let refused = self.starved && self.random.one_in(4);
        if refused {
            self.failed += 1;
            self.effects.count(Effect::NoMemory);
        }
        refused
    }

    /// Records a completed access.
    pub fn done(&mut self, access: &Access<'_>) {
        match access {
            Access::Read { .. } | Access::Open => {}
            Access::Write { .. } if std::mem::take(&mut self.same) => {}
            Access::Write { file, at, bytes } => {
                let change = Change::Write {
                    at: *at,
                    bytes: bytes.to_vec(),
                };
                self.changed(*file, change);
            }
            Access::SetLen { file, len } => self.changed(*file, Change::SetLen(*len)),
            Access::Attribute { file, name, value } => {
                let change = Change::Attribute((*name).to_owned(), value.to_vec());
                self.changed(*file, change);
            }
            Access::Mode { file, mode } => self.changed(*file, Change::Mode(*mode)),
            Access::Sync { file } if is_directory(*file) => {
                if self.plant == Some(Plant::LostName) {
                    return;
                }
                let since = self.naming.remove(&path_of(*file)).unwrap_or_default();
                for naming in &since {
                    rename(&mut self.names, naming);
                }
            }
            Access::Sync { file } => {
                if self.plant == Some(Plant::LostSync) && self.random.one_in(4)
                    || self.forgets(*file)
                {
                    return;
                }
                let file = self.files.entry(inode(*file)).or_default();
                for change in std::mem::take(&mut file.since) {
                    file.durable.apply(&change);
                }
            }
            Access::SyncAll => self.sync_all(),
            Access::Make { directory, name } => {
                let path = directory.join(name);
                if let Ok(metadata) = std::fs::symlink_metadata(&path) {
                    let entry = if metadata.is_dir() {
                        Entry::Directory
                    } else {
                        self.files.entry(metadata.ino()).or_default();
                        Entry::File(metadata.ino())
                    };
                    self.named(&path.clone(), Naming::Make(path, entry));
                }
            }
            Access::Rename {
                directory,
                from,
                to,
            } => {
                let (from, to) = (directory.join(from), directory.join(to));
                self.named(&to.clone(), Naming::Rename(from, to));
            }
            Access::Remove { directory, name } => {
                let path = directory.join(name);
                self.named(&path.clone(), Naming::Remove(path));
            }
        }
    }

    /// Whether a planted bug makes this sync of a file of a fast tier, or of what is behind it, do nothing.
    fn forgets(&self, file: BorrowedFd<'_>) -> bool {
        match self.plant {
            Some(Plant::LostLog) => {
                let path = path_of(file);
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("segment-")
            }
            Some(Plant::LostHome) => path_of(file).starts_with(self.root.join("objects")),
            _ => false,
        }
    }

    fn sync_all(&mut self) {
        for naming in std::mem::take(&mut self.naming).into_values().flatten() {
            rename(&mut self.names, &naming);
        }
        for file in self.files.values_mut() {
            for change in std::mem::take(&mut file.since) {
                file.durable.apply(&change);
            }
        }
    }

    /// As on Linux: a part of the data is written, and the rest counts as written too. The page cache shows it, and no
    /// later sync of the file reports it. The next sync of the file system does, even if the process that synced the
    /// file was killed before it learned of the failure.
    fn fail_to_sync(&mut self, file: BorrowedFd<'_>) {
        self.failed += 1;
        self.effects.count(Effect::FailedSync);
        if is_directory(file) {
            return;
        }
        self.unreported = true;
        let file = self.files.entry(inode(file)).or_default();
        for change in std::mem::take(&mut file.since) {
            let lost = matches!(change, Change::Write { .. }) && self.random.one_in(2);
            if !lost {
                file.durable.apply(&change);
            }
        }
    }

    fn changed(&mut self, file: BorrowedFd<'_>, change: Change) {
        self.files
            .entry(inode(file))
            .or_default()
            .since
            .push(change);
    }

    fn named(&mut self, path: &Path, naming: Naming) {
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        self.naming.entry(directory).or_default().push(naming);
    }

    /// After kill -9 the page cache stays. Only the lock file is replaced, because its lock cannot be released from
    /// within this process.
    pub fn forget_lock(&mut self) -> std::io::Result<()> {
        for path in self.locks() {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => self.named(&path.clone(), Naming::Remove(path)),
            }
        }
        Ok(())
    }

    /// The lock files of a server and of its fast tier.
    fn locks(&self) -> [PathBuf; 2] {
        [self.root.join("lock"), self.root.join(FAST).join("lock")]
    }

    /// An administrator has restored the file at `path` and synced it.
    pub fn restored(&mut self, path: &Path) -> std::io::Result<()> {
        let data = std::fs::read(path)?;
        let file = self.files.entry(path.metadata()?.ino()).or_default();
        file.durable.data = data;
        file.since
            .retain(|change| matches!(change, Change::Attribute(..) | Change::Mode(_)));
        Ok(())
    }

    /// The power fails: what was durable remains, and some of the rest.
    pub fn lose_power(&mut self, now: Nanos) -> std::io::Result<()> {
        self.power = None;
        self.before_sync = false;
        self.unreported = false;
        self.losses.push(now);
        self.effects.count(Effect::PowerLoss);
        let mut names = std::mem::take(&mut self.names);
        for (_, since) in std::mem::take(&mut self.naming) {
            let kept = self.prefix(since.len());
            for naming in &since[..kept] {
                rename(&mut names, naming);
            }
            for _ in kept..since.len() {
                self.effects.count(Effect::LostName);
            }
        }
        let files = std::mem::take(&mut self.files);
        let mut contents = BTreeMap::new();
        // The percentage of unsynced changes that survives.
        let kept = [0, 20, 50, 90, 100][self.random.index(5)];
        let sector = if self.random.one_in(3) { 512 } else { 4096 };
        for (inode, file) in files {
            let mut content = file.durable;
            let orderly = self.prefix(file.since.len());
            for (i, change) in file.since.iter().enumerate() {
                match change {
                    Change::Write { at, bytes } => {
                        let (mut done, mut survived) = (0, 0);
                        while done < bytes.len() {
                            let from = *at + done as u64;
                            let n = (sector - from % sector) as usize;
                            let n = n.min(bytes.len() - done);
                            if self.random.below(100) < kept {
                                content.write(from, &bytes[done..done + n]);
                                survived += n;
                            }
                            done += n;
                        }
                        if survived == 0 {
                            self.effects.count(Effect::LostWrite);
                        } else if survived < bytes.len() {
                            self.effects.count(Effect::TornWrite);
                        }
                    }
                    change if i < orderly => content.apply(change),
                    _ => {}
                }
            }
            contents.insert(inode, content);
        }
        self.clear()?;
        let locks = self.locks();
        for (path, entry) in names {
            // The contents of a lost directory are lost too.
            if locks.contains(&path) || !path.parent().is_some_and(Path::is_dir) {
                continue;
            }
            match entry {
                Entry::Directory => {
                    std::fs::create_dir(&path)?;
                    self.names.insert(path, Entry::Directory);
                }
                Entry::File(old) => {
                    let content = contents.get(&old).cloned().unwrap_or_default();
                    self.put_file(path, content)?;
                }
            }
        }
        Ok(())
    }

    fn prefix(&mut self, len: usize) -> usize {
        match self.random.below(4) {
            0 => 0,
            1 => len,
            _ => self.random.index(len + 1),
        }
    }

    // ---- planted bugs ----

    fn keep_old(&mut self, access: &Access<'_>) {
        match access {
            Access::Write { file, at, bytes } => {
                let mut old = vec![0; bytes.len()];
                let n = rustix::io::pread(file, &mut old[..], *at).unwrap_or(0);
                // Beyond the end there is no older content.
                if n == bytes.len() {
                    self.last = Some((inode(*file), *at, old, bytes.to_vec()));
                }
            }
            Access::Read { file, .. }
                if self.random.one_in(40)
                    && self.last.as_ref().is_some_and(|l| l.0 == inode(*file)) =>
            {
                self.put_last(access, false);
                self.stale = true;
            }
            _ => {}
        }
    }

    fn put_last(&mut self, access: &Access<'_>, new: bool) {
        let (Access::Read { file, .. } | Access::Write { file, .. } | Access::Sync { file }) =
            access
        else {
            return;
        };
        if let Some((of, at, old, bytes)) = &self.last
            && *of == inode(*file)
        {
            let _ = rustix::io::pwrite(file, if new { bytes } else { old }, *at);
        }
    }
}
