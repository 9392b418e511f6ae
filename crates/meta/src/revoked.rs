//! The list of revoked credentials ([`penstock_wire::revocation`]), stored in the file `revoked` of the server's
//! directory.
//!
//! The file is replaced atomically before a revocation is answered. A server whose file cannot be read does not start:
//! revoked credentials would be valid again.
use crate::error::{Result, error};
use crate::start_error::StoreError;
use penstock_host::fs;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_wire::credential::Statement;
use penstock_wire::message::{ErrorKind, WireError};
use penstock_wire::revocation::{Revocation, Revocations, Revoked};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

const NAME: &str = "revoked";
/// The longest validity of a credential.
const LONGEST_MS: u64 = 3653 * 86_400_000;

/// The stored list.
#[derive(Debug)]
pub struct List {
    directory: PathBuf,
    now: Mutex<Arc<Revocations>>,
    /// Version of the list, readable without its lock.
    version: AtomicU64,
}

impl List {
    /// Loads the list.
    pub fn load(directory: &Path) -> std::result::Result<List, StoreError> {
        let path = directory.join(NAME);
        let list = match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| StoreError::Damaged {
                path: path.display().to_string(),
                detail: e.to_string(),
                advice: "restore it from a backup; or move it away, start the server, and revoke again the credentials that must not be valid".into(),
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Revocations::default(),
            Err(source) => {
                return Err(StoreError::Io {
                    what: "read",
                    path: path.display().to_string(),
                    source,
                });
            }
        };
        Ok(List {
            directory: directory.to_owned(),
            version: AtomicU64::new(list.version),
            now: Mutex::new(Arc::new(list)),
        })
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Revocations>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Increases with each change.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The list, unless `known` is its version.
    pub fn since(&self, known: Option<u64>) -> Option<Revocations> {
        let list = self.locked();
        (known != Some(list.version)).then(|| Revocations::clone(&list))
    }

    /// Refuses a credential that is in the list.
    pub fn require(&self, statement: &Statement) -> std::result::Result<(), WireError> {
        let list = self.locked().clone();
        list.require(statement)
    }

    /// Revokes credentials, durably.
    pub fn revoke(&self, what: Revoked, at_ms: u64, until_ms: u64) -> Result<()> {
        let until_ms = until_ms.min(at_ms.saturating_add(LONGEST_MS));
        if until_ms <= at_ms {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("{what}: ended already by the metadata server's clock"),
            ));
        }
        let new = Revocation {
            what,
            at_ms,
            until_ms,
        };
        let mut list = self.locked();
        let next = list.with(new)?;
        self.save(&next).map_err(|e| {
            error(
                ErrorKind::Io,
                format!(
                    "{}: {e}; {what}: NOT revoked",
                    self.directory.join(NAME).display()
                ),
            )
        })?;
        let version = next.version;
        *list = Arc::new(next);
        self.version.store(version, Ordering::Release);
        Ok(())
    }

    fn save(&self, list: &Revocations) -> std::io::Result<()> {
        let text = toml::to_string(list).map_err(std::io::Error::other)?;
        let (path, new) = (
            self.directory.join(NAME),
            self.directory.join("revoked.new"),
        );
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = fs::open(&options, &new, true)?;
        fs::write_all(&mut file, text.as_bytes())?;
        fs::fsync(&file)?;
        fs::rename(&new, &path)?;
        Ok(fs::fsync(&File::open(&self.directory)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_outlives_the_server_and_is_never_taken_for_empty() {
        let dir = tempfile::tempdir().unwrap();
        let list = List::load(dir.path()).unwrap();
        assert_eq!(list.since(None), Some(Revocations::default()));
        list.revoke(Revoked::User(7), 100, u64::MAX).unwrap();
        list.revoke(Revoked::Serial([9; 16]), 100, 200).unwrap();
        assert_eq!((list.version(), list.since(Some(2))), (2, None));
        let e = list.revoke(Revoked::User(8), 100, 100).unwrap_err();
        assert_eq!(e.kind, ErrorKind::InvalidArgument);
        let again = List::load(dir.path()).unwrap();
        assert_eq!(again.since(None), list.since(None));
        assert_eq!(again.since(Some(1)).unwrap().entries.len(), 2);
        std::fs::write(dir.path().join(NAME), "rubbish").unwrap();
        assert!(matches!(
            List::load(dir.path()),
            Err(StoreError::Damaged { .. })
        ));
    }

    #[test]
    fn what_cannot_be_kept_is_not_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let list = List::load(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("revoked.new")).unwrap();
        let e = list.revoke(Revoked::User(7), 100, 200).unwrap_err();
        assert!(e.message.contains("NOT revoked"), "{e}");
        assert_eq!(list.version(), 0);
    }
}
