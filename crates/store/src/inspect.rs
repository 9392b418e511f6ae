//! Inspects the place of a store before anything there is changed.
use crate::superblock::Superblock;
use crate::{StoreError, directory};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

/// The result of [`inspect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// The state of the store.
    pub state: State,
    /// Whether the directory is the root of a file system of its own.
    pub mounted: bool,
}

/// The state of a store's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Stores of this kind are new at each start.
    Volatile,
    /// No directory.
    Missing,
    /// A directory without a store.
    Empty,
    /// A store.
    Store,
}

/// Inspects the place that `spec` names without changing it.
pub fn inspect(spec: &str) -> Result<Inspection, StoreError> {
    let Some(path) = directory(spec) else {
        return Ok(Inspection {
            state: State::Volatile,
            mounted: false,
        });
    };
    let name = path.display().to_string();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            return Ok(Inspection {
                state: State::Missing,
                mounted: false,
            });
        }
        other => other.map_err(|e| StoreError::from_errno("open", name.clone(), e))?,
    };
    Ok(Inspection {
        state: match Superblock::load(root.as_fd(), &name)? {
            Some(_) => State::Store,
            None => State::Empty,
        },
        mounted: is_mounted(path),
    })
}

/// Whether the directory is on another device than its parent.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
    match (device(path), device(&path.join(".."))) {
        (Ok(own), Ok(parent)) => own != parent,
        _ => false,
    }
}
