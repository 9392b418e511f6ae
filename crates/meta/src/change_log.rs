//! The log under the journal: bytes in numbered epochs.
//!
//! Problem: the journal's rules (what a seal means, where replay ends) do not depend on where its bytes are stored. A
//! log shared by several hosts would allow a standby to take over. Idea: the journal needs few operations: begin an
//! epoch, append to it, read it, delete it. An epoch is a number that only increases; the journal uses those of
//! commits. [`DirectoryLog`] has a file for each epoch; [`MemoryLog`] is for tests.
//!
//! Only one server uses a log at a time. That of a directory is protected by the lock of the store beside it.
use crate::start_error::StoreError;
use penstock_host::fs;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "journal-";

/// A log. Appended bytes survive the process; they need not survive a system crash.
pub trait ChangeLog: Debug + Send {
    /// The name of an epoch in messages.
    fn name(&self, epoch: u64) -> String;

    /// All epochs, ascending. Fails if they cannot be listed.
    fn epochs(&self) -> Result<Vec<u64>, StoreError>;

    /// All bytes of an epoch.
    fn read(&self, epoch: u64) -> Result<Vec<u8>, StoreError>;

    /// Begins an empty epoch, to which appends go from now on.
    fn begin(&mut self, epoch: u64) -> io::Result<()>;

    /// Appends to the current epoch. After an error a part of the bytes may have been appended.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Renumbers an epoch. Appends continue to go to it.
    fn renumber(&mut self, from: u64, to: u64) -> io::Result<()>;

    /// Deletes an epoch, which may be missing already.
    fn trim(&mut self, epoch: u64) -> io::Result<()>;
}

/// A file for each epoch, `journal-N`, in a directory.
#[derive(Debug)]
pub struct DirectoryLog {
    directory: PathBuf,
    /// The file of the current epoch.
    file: Option<File>,
}

impl DirectoryLog {
    pub fn new(directory: &Path) -> DirectoryLog {
        DirectoryLog {
            directory: directory.to_owned(),
            file: None,
        }
    }

    fn path(&self, epoch: u64) -> PathBuf {
        // Constant width, so that names sort as numbers do.
        self.directory.join(format!("{PREFIX}{epoch:020}"))
    }
}

impl ChangeLog for DirectoryLog {
    fn name(&self, epoch: u64) -> String {
        self.path(epoch).display().to_string()
    }

    fn epochs(&self) -> Result<Vec<u64>, StoreError> {
        let list = |source| StoreError::Io {
            what: "list the journal in",
            path: self.directory.display().to_string(),
            source,
        };
        let mut epochs = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(list)? {
            let entry = entry.map_err(list)?;
            let name = entry.file_name();
            if let Some(number) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
                let number = number.parse().map_err(|_| {
                    let path = entry.path().display().to_string();
                    damage(path, "its name has no number".into())
                })?;
                epochs.push(number);
            }
        }
        epochs.sort_unstable();
        Ok(epochs)
    }

    fn read(&self, epoch: u64) -> Result<Vec<u8>, StoreError> {
        std::fs::read(self.path(epoch)).map_err(|source| StoreError::Io {
            what: "read journal",
            path: self.name(epoch),
            source,
        })
    }

    fn begin(&mut self, epoch: u64) -> io::Result<()> {
        self.file = None;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        self.file = Some(fs::open(&options, &self.path(epoch), true)?);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => fs::write_all(file, bytes),
            None => Err(io::Error::other("no epoch has begun")),
        }
    }

    fn renumber(&mut self, from: u64, to: u64) -> io::Result<()> {
        fs::rename(&self.path(from), &self.path(to))
    }

    fn trim(&mut self, epoch: u64) -> io::Result<()> {
        match fs::remove_file(&self.path(epoch)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

/// The text of an error about a journal that cannot be replayed.
pub fn damage(path: String, detail: String) -> StoreError {
    StoreError::Damaged {
        path,
        detail,
        advice: "restore the directory from a backup. Or go on without the last unsynced changes of names: move the files journal-* out of it, start the server and run `penstock check`".into(),
    }
}

#[cfg(test)]
pub use memory::MemoryLog;

#[cfg(test)]
mod memory {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, Mutex, MutexGuard};

    /// A log without a disk. A clone is the same log, as the next server finds it.
    #[derive(Debug, Clone, Default)]
    pub struct MemoryLog {
        memory: Arc<Mutex<Memory>>,
        last: Option<u64>,
    }

    /// Its contents, and the failures it simulates.
    #[derive(Debug, Default)]
    pub struct Memory {
        pub epochs: BTreeMap<u64, Vec<u8>>,
        /// Epochs whose beginning fails.
        pub refused: BTreeSet<u64>,
        /// The next append stores only this many bytes, and fails.
        pub torn: Option<usize>,
    }

    impl MemoryLog {
        pub fn memory(&self) -> MutexGuard<'_, Memory> {
            self.memory.lock().unwrap()
        }
    }

    impl ChangeLog for MemoryLog {
        fn name(&self, epoch: u64) -> String {
            format!("epoch {epoch}")
        }

        fn epochs(&self) -> Result<Vec<u64>, StoreError> {
            Ok(self.memory().epochs.keys().copied().collect())
        }

        fn read(&self, epoch: u64) -> Result<Vec<u8>, StoreError> {
            Ok(self.memory().epochs[&epoch].clone())
        }

        fn begin(&mut self, epoch: u64) -> io::Result<()> {
            self.last = None;
            if self.memory().refused.contains(&epoch) {
                return Err(ErrorKind::StorageFull.into());
            }
            self.memory().epochs.insert(epoch, Vec::new());
            self.last = Some(epoch);
            Ok(())
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let last = self.last.unwrap();
            let mut memory = self.memory();
            let torn = memory.torn.take();
            let taken = &bytes[..torn.unwrap_or(bytes.len())];
            memory.epochs.get_mut(&last).unwrap().extend(taken);
            match torn {
                Some(_) => Err(ErrorKind::StorageFull.into()),
                None => Ok(()),
            }
        }

        fn renumber(&mut self, from: u64, to: u64) -> io::Result<()> {
            let bytes = self.memory().epochs.remove(&from);
            let bytes = bytes.ok_or(ErrorKind::NotFound)?;
            self.memory().epochs.insert(to, bytes);
            self.last = self.last.map(|last| if last == from { to } else { last });
            Ok(())
        }

        fn trim(&mut self, epoch: u64) -> io::Result<()> {
            self.memory().epochs.remove(&epoch);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The properties that a journal relies on.
    fn check(mut log: impl ChangeLog) {
        assert!(log.epochs().unwrap().is_empty());
        assert!(log.trim(5).is_ok(), "it is gone already");
        log.begin(5).unwrap();
        log.append(b"ab").unwrap();
        log.append(b"c").unwrap();
        log.begin(6).unwrap();
        log.append(b"d").unwrap();
        assert_eq!(log.epochs().unwrap(), [5, 6]);
        assert_eq!(log.read(5).unwrap(), b"abc");
        log.renumber(6, 12).unwrap();
        assert!(log.renumber(6, 13).is_err());
        log.append(b"e").unwrap();
        log.trim(5).unwrap();
        assert_eq!(log.epochs().unwrap(), [12]);
        assert_eq!(log.read(12).unwrap(), b"de");
        log.begin(12).unwrap();
        assert_eq!(log.read(12).unwrap(), b"");
    }

    #[test]
    fn logs_keep_epochs_apart() {
        check(MemoryLog::default());
        let dir = tempfile::tempdir().unwrap();
        check(DirectoryLog::new(dir.path()));
    }

    #[test]
    fn what_cannot_be_listed_read_or_begun_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        assert!(DirectoryLog::new(&none).epochs().is_err());
        let mut log = DirectoryLog::new(dir.path());
        let obstacle = log.path(1);
        std::fs::create_dir(&obstacle).unwrap();
        let e = log.read(1).unwrap_err().to_string();
        assert!(e.contains(obstacle.to_str().unwrap()), "{e}");
        assert!(log.begin(1).is_err() && log.append(b"a").is_err());
        std::fs::remove_dir(&obstacle).unwrap();
        let strange = dir.path().join("journal-old");
        std::fs::write(&strange, b"").unwrap();
        let e = log.epochs().unwrap_err().to_string();
        assert!(e.contains(strange.to_str().unwrap()), "{e}");
    }
}
