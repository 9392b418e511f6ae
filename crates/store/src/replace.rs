//! Small files that are replaced as a whole.
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why what a store keeps of itself cannot be used.
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

/// Puts `bytes` under `name` in `dir`, all or nothing: a crash leaves the old or the new content.
/// The directory itself is not synced.
pub(crate) fn replace(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let (file, temporary) = prepare(dir, name)?;
    crate::descriptor::write_at(file.as_fd(), 0, bytes)?;
    commit(dir, file, &temporary, name)
}

/// A new file for what [`commit`] puts under `name`, and its name meanwhile.
pub(crate) fn prepare(dir: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, String), Errno> {
    let temporary = format!("{name}.new");
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = penstock_host::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    Ok((file, temporary))
}

/// Makes the file durable and puts it under `name`.
pub(crate) fn commit(
    dir: BorrowedFd<'_>,
    file: OwnedFd,
    temporary: &str,
    name: &str,
) -> Result<(), Errno> {
    penstock_host::fs::fsync(&file)?;
    penstock_host::fs::renameat(dir, temporary, name)
}
