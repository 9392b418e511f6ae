//! Where rings lie: the directory of one trace's session on this host. Its processes make the same path (`interpose/src/process.c`).
use crate::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where sessions are, the first that is there.
const BASES: [&str; 2] = ["/dev/shm", "/tmp"];

/// Makes `path`, mode 0700, or takes one that is there: it has to be a directory of this user's that nobody else may write to.
pub fn own_directory(path: &Path) -> Result<()> {
    let io = |doing| {
        move |source| Error::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    };
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(io("make")(e)),
        _ => {}
    }
    let there = path.symlink_metadata().map_err(io("find"))?;
    let why = if !there.is_dir() {
        "is no directory (links are not followed)"
    } else if there.uid() != geteuid().as_raw() {
        "belongs to another user"
    } else if there.mode() & 0o022 != 0 {
        "can be written to by others"
    } else {
        return Ok(());
    };
    Err(Error::Refused {
        path: path.to_owned(),
        why,
    })
}

/// One trace on this host, and the right to collect it.
#[derive(Debug)]
pub struct Session {
    directory: PathBuf,
    lock: Option<OwnedFd>,
}

impl Session {
    /// The session of the trace in `trace`, an absolute path: as its processes have it, byte for byte.
    pub fn of(trace: &Path) -> Result<Session> {
        let base = BASES.iter().map(Path::new).find(|b| b.is_dir());
        let base = base.unwrap_or(Path::new(BASES[0]));
        let user = base.join(format!("penstock-{}", geteuid().as_raw()));
        own_directory(&user)?;
        let directory = user.join(format!("{:x}", hash(trace)));
        own_directory(&directory)?;
        let mut session = Session {
            directory,
            lock: None,
        };
        session.take(trace)?;
        Ok(session)
    }

    /// Takes the right to collect, which ends with this process.
    pub fn take(&mut self, trace: &Path) -> Result<()> {
        let path = self.directory.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let io = |source: rustix::io::Errno| Error::Io {
            doing: "lock",
            path: path.clone(),
            source: source.into(),
        };
        let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                self.lock = Some(file);
                Ok(())
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy(trace.to_owned())),
            Err(e) => Err(io(e)),
        }
    }

    /// Gives the right back. Who makes a ring after this starts a collector.
    pub fn release(&mut self) {
        self.lock = None;
    }

    /// Where rings lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Names of rings that nobody has taken yet.
    pub fn rings(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.directory);
        let paths = entries.into_iter().flatten().flatten().map(|e| e.path());
        paths
            .filter(|p| p.extension().is_some_and(|e| e == "ring"))
            .collect()
    }
}

/// FNV-1a of the path's bytes.
fn hash(path: &Path) -> u64 {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directories_of_others_and_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("fresh");
        own_directory(&fresh).unwrap();
        let mode = fresh.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        own_directory(&fresh).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&fresh, &link).unwrap();
        assert!(matches!(own_directory(&link), Err(Error::Refused { .. })));
        let open = dir.path().join("open");
        own_directory(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(own_directory(&open), Err(Error::Refused { .. })));
    }

    #[test]
    fn one_collects_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Session::of(dir.path()).unwrap();
        assert!(matches!(Session::of(dir.path()), Err(Error::Busy(_))));
        first.release();
        drop(Session::of(dir.path()).unwrap());
        let _ = std::fs::remove_dir_all(first.directory());
    }
}
