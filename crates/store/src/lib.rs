//! Where bytes live (SYSTEMS 3): objects of one data server.
#![allow(missing_docs)]
use penstock_layout::{FileId, ObjectOffset};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("object {0:?} does not exist in {1}")]
    NotFound(FileId, String),
    #[error("store {0} is full")]
    Full(String),
    #[error("store {0} is read-only")]
    ReadOnly(String),
    #[error("store {path} is in use by another server ({holder}); stop it first")]
    InUse { path: String, holder: String },
    #[error("store {path} belongs to deployment {found}, not {expected}")]
    WrongDeployment {
        path: String,
        found: String,
        expected: String,
    },
    #[error("{what} in {path} is damaged: {detail}; run `penstock check`")]
    Damaged {
        path: String,
        what: String,
        detail: String,
    },
    #[error("{what} {path}: {source}")]
    Io {
        what: &'static str,
        path: String,
        source: std::io::Error,
    },
}

/// Objects of one data server.
pub trait Store: Send + Sync {
    /// Opens an object; creates it empty when `create`.
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError>;
    fn remove(&self, id: FileId) -> Result<(), StoreError>;
    /// All object ids (for `check`), with their lengths.
    fn list(&self) -> Result<Vec<(FileId, u64)>, StoreError>;
    /// Makes creations and removals durable.
    fn sync(&self) -> Result<(), StoreError>;
    /// (total bytes, free bytes).
    fn space(&self) -> Result<(u64, u64), StoreError>;
    fn describe(&self) -> String;
}

/// One object: a sparse run of bytes; holes read as zeros.
pub trait Object: Send + Sync {
    /// Reads up to `buf.len()` bytes; short only at the object's end.
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError>;
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError>;
    fn len(&self) -> Result<u64, StoreError>;
    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError>;
    /// Reserves space (fallocate) without changing contents.
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError>;
    /// Data and length on stable storage.
    fn sync(&self) -> Result<(), StoreError>;
    /// A descriptor that same-host clients may use directly, where the backend has one.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}
