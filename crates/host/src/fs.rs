//! Files: system calls, of which a world intercepts those that change or sync something, or take time.
//!
//! In a world files are real too (they are its page cache). It records changes, and after a crash it restores the
//! durable state and some of the rest.
use crate::world::{Access, Pace, World, current};
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// `f` on the disk of `world`.
fn through<T>(
    world: &'static dyn World,
    access: &Access<'_>,
    f: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    world.disk(access, Pace::Now)?;
    let done = f()?;
    world.disk_done(access, Pace::Now);
    Ok(done)
}

/// The path of an open directory.
fn path_of(directory: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    std::fs::read_link(link).map_err(|_| Errno::BADF)
}

/// pread(2)
#[inline]
pub fn pread(file: BorrowedFd<'_>, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    let Some(world) = current() else {
        return rustix::io::pread(file, into, at);
    };
    let len = into.len();
    through(world, &Access::Read { file, len }, || {
        rustix::io::pread(file, into, at)
    })
}

/// preadv(2)
#[inline]
pub fn preadv(file: BorrowedFd<'_>, into: &mut [IoSliceMut<'_>], at: u64) -> Result<usize, Errno> {
    let Some(world) = current() else {
        return rustix::io::preadv(file, into, at);
    };
    let len = into.iter().map(|b| b.len()).sum();
    through(world, &Access::Read { file, len }, || {
        rustix::io::preadv(file, into, at)
    })
}

/// pwrite(2)
#[inline]
pub fn pwrite(file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<usize, Errno> {
    match current() {
        None => rustix::io::pwrite(file, bytes, at),
        Some(world) => write_through(world, file, bytes, at, Pace::Now),
    }
}

fn write_through(
    world: &'static dyn World,
    file: BorrowedFd<'_>,
    bytes: &[u8],
    at: u64,
    pace: Pace,
) -> Result<usize, Errno> {
    let allowed = world.disk(&Access::Write { file, at, bytes }, pace)?;
    let done = rustix::io::pwrite(file, &bytes[..allowed.min(bytes.len())], at)?;
    let bytes = &bytes[..done];
    world.disk_done(&Access::Write { file, at, bytes }, pace);
    Ok(done)
}

/// pwritev(2)
#[inline]
pub fn pwritev(file: BorrowedFd<'_>, bytes: &[IoSlice<'_>], at: u64) -> Result<usize, Errno> {
    match current() {
        None => rustix::io::pwritev(file, bytes, at),
        // A call may always write fewer bytes.
        Some(_) => match bytes.iter().find(|b| !b.is_empty()) {
            Some(first) => pwrite(file, first, at),
            None => Ok(0),
        },
    }
}

/// fsync(2)
pub fn fsync(file: impl AsFd) -> Result<(), Errno> {
    let file = file.as_fd();
    match current() {
        None => rustix::fs::fsync(file),
        Some(world) => through(world, &Access::Sync { file }, || Ok(())),
    }
}

/// fdatasync(2)
pub fn fdatasync(file: impl AsFd) -> Result<(), Errno> {
    match current() {
        None => rustix::fs::fdatasync(file),
        Some(_) => fsync(file),
    }
}

/// syncfs(2): all changes to the file system of `directory` become durable. Reports any write-back of its files that
/// failed since `directory` was opened.
pub fn syncfs(directory: impl AsFd) -> Result<(), Errno> {
    match current() {
        None => rustix::fs::syncfs(directory),
        Some(world) => through(world, &Access::SyncAll, || Ok(())),
    }
}

/// sync_file_range(2): starts write-back of `file`'s dirty pages. It does not wait or promise anything, and does not
/// hide an error from the next sync. No effect in a world.
pub fn start_writeback(file: impl AsFd) {
    if current().is_none() {
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: no memory is involved, and the descriptor is open as long as it is borrowed. Its result is ignored:
        // nothing depends on it.
        unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

/// syncfs(2): writes all dirty data of the file system of `file`, so that syncs of its files find little to do. Its
/// result is ignored: those syncs report errors. No effect in a world.
pub fn write_back_all(file: impl AsFd) {
    if current().is_none() {
        let _ = rustix::fs::syncfs(file);
    }
}

/// ftruncate(2)
pub fn ftruncate(file: impl AsFd, len: u64) -> Result<(), Errno> {
    let file = file.as_fd();
    match current() {
        None => rustix::fs::ftruncate(file, len),
        Some(world) => through(world, &Access::SetLen { file, len }, || {
            rustix::fs::ftruncate(file, len)
        }),
    }
}

/// fallocate(2): reserves space, and extends the file if needed. Not supported by a world's disk.
pub fn reserve(file: impl AsFd, at: u64, len: u64) -> Result<(), Errno> {
    match current() {
        None => rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), at, len),
        Some(_) => Err(Errno::OPNOTSUPP),
    }
}

/// fsetxattr(2), replacing what is there.
pub fn fsetxattr(file: BorrowedFd<'_>, name: &str, value: &[u8]) -> Result<(), Errno> {
    let set = || rustix::fs::fsetxattr(file, name, value, XattrFlags::empty());
    match current() {
        None => set(),
        Some(world) => through(world, &Access::Attribute { file, name, value }, set),
    }
}

/// fchmod(2)
pub fn fchmod(file: impl AsFd, mode: Mode) -> Result<(), Errno> {
    let file = file.as_fd();
    match current() {
        None => rustix::fs::fchmod(file, mode),
        Some(world) => through(world, &Access::Mode { file, mode }, || {
            rustix::fs::fchmod(file, mode)
        }),
    }
}

/// openat(2)
pub fn openat(
    directory: impl AsFd,
    name: impl AsRef<Path>,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let (directory, name) = (directory.as_fd(), name.as_ref());
    let open = || rustix::fs::openat(directory, name, flags, mode);
    let Some(world) = current() else {
        return open();
    };
    if !flags.contains(OFlags::CREATE) {
        return through(world, &Access::Open, open);
    }
    if rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        let file = open()?;
        if flags.contains(OFlags::TRUNC) {
            let file = file.as_fd();
            through(world, &Access::SetLen { file, len: 0 }, || Ok(()))?;
        }
        return Ok(file);
    }
    let directory = &path_of(directory)?;
    through(world, &Access::Make { directory, name }, open)
}

/// mkdirat(2)
pub fn mkdirat(directory: impl AsFd, name: impl AsRef<Path>, mode: Mode) -> Result<(), Errno> {
    let (fd, name) = (directory.as_fd(), name.as_ref());
    let make = || rustix::fs::mkdirat(fd, name, mode);
    let Some(world) = current() else {
        return make();
    };
    let directory = &path_of(fd)?;
    through(world, &Access::Make { directory, name }, make)
}

/// unlinkat(2) of a file
pub fn unlinkat(directory: impl AsFd, name: impl AsRef<Path>) -> Result<(), Errno> {
    let (fd, name) = (directory.as_fd(), name.as_ref());
    let remove = || rustix::fs::unlinkat(fd, name, AtFlags::empty());
    let Some(world) = current() else {
        return remove();
    };
    let directory = &path_of(fd)?;
    through(world, &Access::Remove { directory, name }, remove)
}

/// renameat(2) within one directory
pub fn renameat(
    directory: impl AsFd,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
) -> Result<(), Errno> {
    let (fd, from, to) = (directory.as_fd(), from.as_ref(), to.as_ref());
    let rename = || rustix::fs::renameat(fd, from, fd, to);
    let Some(world) = current() else {
        return rename();
    };
    let directory = &path_of(fd)?;
    through(
        world,
        &Access::Rename {
            directory,
            from,
            to,
        },
        rename,
    )
}

// ---- by path ----

fn parts(path: &Path) -> (&Path, &Path) {
    let name = path.file_name().map_or(Path::new(""), Path::new);
    (path.parent().unwrap_or(Path::new("")), name)
}

/// [`OpenOptions::open`] for a file that it may make or cut to nothing.
pub fn open(options: &OpenOptions, path: &Path, truncate: bool) -> std::io::Result<File> {
    let Some(world) = current() else {
        return options.open(path);
    };
    let new = !path.exists();
    let (directory, name) = parts(path);
    let make = Access::Make { directory, name };
    if new {
        world.disk(&make, Pace::Now)?;
    }
    let opened = options.open(path)?;
    if new {
        world.disk_done(&make, Pace::Now);
    } else if truncate {
        let file = opened.as_fd();
        through(world, &Access::SetLen { file, len: 0 }, || Ok(()))?;
    }
    Ok(opened)
}

/// Appends at the file's position.
pub fn write_all(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    if !crate::simulated() {
        return file.write_all(bytes);
    }
    let at = file.stream_position()?;
    write_all_at(file, bytes, at)?;
    file.seek(std::io::SeekFrom::Start(at + bytes.len() as u64))?;
    Ok(())
}

fn write_all_at(file: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match pwrite(file.as_fd(), &bytes[done..], at + done as u64) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// [`std::fs::rename`] within one directory.
pub fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    let Some(world) = current() else {
        return std::fs::rename(from, to);
    };
    let (directory, old) = parts(from);
    let access = Access::Rename {
        directory,
        from: old,
        to: parts(to).1,
    };
    world.disk(&access, Pace::Now)?;
    std::fs::rename(from, to)?;
    world.disk_done(&access, Pace::Now);
    Ok(())
}

/// [`std::fs::remove_file`]
pub fn remove_file(path: &Path) -> std::io::Result<()> {
    let Some(world) = current() else {
        return std::fs::remove_file(path);
    };
    let (directory, name) = parts(path);
    let access = Access::Remove { directory, name };
    world.disk(&access, Pace::Now)?;
    std::fs::remove_file(path)?;
    world.disk_done(&access, Pace::Now);
    Ok(())
}

// ---- for a database that holds locks of its own while it uses its file ----

/// A file whose use never switches threads in a world; [`settle`] accounts for the time later.
#[derive(Debug)]
pub struct ExclusiveFile {
    file: File,
}

/// In a world, opens the file at `path` for a database; `None` on a machine, where the database opens it itself.
pub fn held(path: &Path) -> std::io::Result<Option<ExclusiveFile>> {
    if !crate::simulated() {
        return Ok(None);
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok(Some(ExclusiveFile { file }))
}

impl ExclusiveFile {
    /// In a world, wraps the file; on a machine returns it, and the database uses it itself.
    pub fn new(file: File) -> Result<ExclusiveFile, File> {
        if crate::simulated() {
            Ok(ExclusiveFile { file })
        } else {
            Err(file)
        }
    }

    fn done(
        &self,
        access: &Access<'_>,
        f: impl FnOnce() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let Some(world) = current() else {
            return f();
        };
        world.disk(access, Pace::Later)?;
        f()?;
        world.disk_done(access, Pace::Later);
        Ok(())
    }

    /// Bytes of the file.
    pub fn len(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> std::io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `into`.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        let access = Access::Read {
            file: self.file.as_fd(),
            len: into.len(),
        };
        self.done(&access, || {
            std::os::unix::fs::FileExt::read_exact_at(&self.file, into, at)
        })
    }

    /// Writes all of `bytes`.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        let Some(world) = current() else {
            return std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, at);
        };
        let mut done = 0;
        while done < bytes.len() {
            let (rest, at) = (&bytes[done..], at + done as u64);
            match write_through(world, self.file.as_fd(), rest, at, Pace::Later)? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Truncates or extends it.
    pub fn set_len(&self, len: u64) -> std::io::Result<()> {
        let access = Access::SetLen {
            file: self.file.as_fd(),
            len,
        };
        self.done(&access, || self.file.set_len(len))
    }

    /// Makes its bytes durable.
    pub fn sync(&self) -> std::io::Result<()> {
        let file = self.file.as_fd();
        self.done(&Access::Sync { file }, || Ok(()))
    }
}

/// After a [`ExclusiveFile`] file was used and no lock is held: waits for the time that the accesses took.
pub fn settle() {
    if let Some(world) = current() {
        world.settle();
    }
}
