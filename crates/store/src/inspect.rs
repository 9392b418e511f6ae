//! What is where a store should be, before anything there is touched.
use crate::superblock::Superblock;
use crate::{StoreError, directory};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

/// What [`look`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// Whether there is a store.
    pub state: State,
    /// The directory is the root of a file system of its own.
    pub mounted: bool,
}

/// Whether there is a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Stores of this kind are new at each start.
    Volatile,
    /// There is not even a directory.
    Missing,
    /// A directory without a store.
    Empty,
    /// A store.
    Store,
}

/// Looks at the place that `spec` names; changes nothing there.
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

/// Whether the directory lies on another device than its parent.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
    match (device(path), device(&path.join(".."))) {
        (Ok(own), Ok(parent)) => own != parent,
        _ => false,
    }
}
