//! Small files that are replaced atomically.
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why a store's own file cannot be used.
#[derive(Debug)]
pub(crate) enum Bad {
    Content(&'static str),
    Errno(Errno),
}

impl From<Errno> for Bad {
    fn from(e: Errno) -> Bad {
        Bad::Errno(e)
    }
}

/// Stores `bytes` as `name` in `dir` atomically: a crash leaves the old or the new content. The directory itself is not
/// synced.
pub(crate) fn replace(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let (file, temporary) = prepare(dir, name)?;
    crate::descriptor::write_at(file.as_fd(), 0, bytes)?;
    commit(dir, file, &temporary, name)
}

/// A new file that [`commit`] will rename to `name`, and its temporary name.
pub(crate) fn prepare(dir: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, String), Errno> {
    let temporary = format!("{name}.new");
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = penstock_host::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    Ok((file, temporary))
}

/// Makes the file durable and renames it to `name`.
pub(crate) fn commit(
    dir: BorrowedFd<'_>,
    file: OwnedFd,
    temporary: &str,
    name: &str,
) -> Result<(), Errno> {
    penstock_host::fs::fsync(&file)?;
    penstock_host::fs::renameat(dir, temporary, name)
}
