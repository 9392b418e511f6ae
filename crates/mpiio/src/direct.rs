//! Direct mode: files of an ordinary mounted file system.
//!
//! Each file region of an operation is one vectored `preadv` or `pwritev`. A read-modify-write holds an exclusive
//! record lock on the bytes that it rewrites, every other write a shared one on its extent. So a data-sieving writer
//! never writes back stale bytes of a concurrent writer. The locks are Linux's open-file-description locks: they belong
//! to a descriptor, not to the process, and the kernel releases them when their holder ends. Each guard takes a
//! separate descriptor from a pool, so threads of one process exclude each other too. The kernel's wait for a lock has
//! no time limit. So another thread waits, and the caller returns with an error after [`LOCK_WAIT`]: the holder may be
//! suspended, or on a host that is gone.
use crate::error::{Error, ErrorClass, Result};
use crate::filesystem::{
    Counter, FileHandle, FileSystem, Form, Guard, LockMode, OpenHow, Operations,
};
use crate::pointer::advanced;
use crate::task::Task;
use penstock_datatype::{Pattern, Source, Target};
use penstock_host::reservation::{self, Reservation};
use penstock_layout::Layout;
use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Memory pieces of one vectored call: the kernel's limit.
const MAX_IOVECS: usize = 1024;
/// Bytes of one system call; the kernel's limit is just below 2 GiB.
const MAX_CALL_BYTES: u64 = 1 << 30;
/// Lock descriptors kept for reuse.
const MAX_IDLE_LOCK_FILES: usize = 8;
/// Longest wait for a record lock. A holder needs it only for a read and a write of one data-sieving buffer.
const LOCK_WAIT: Duration = Duration::from_secs(60);

/// Attribute of a file that a task writes, followed by the step's number; its value is the task's number.
const MARK: &str = "user.penstock.step.";
/// Most attributes of other steps that stay on a file.
const MAX_MARKS: usize = 4;
/// No file is this long: bytes from here on represent steps, where files have no attributes.
const STEPS: u64 = 1 << 62;

/// The mounted file systems of this host.
#[derive(Debug, Default)]
pub(crate) struct Direct;

impl FileSystem for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn open(&self, path: &str, how: &OpenHow) -> Result<Arc<dyn FileHandle>> {
        let failed = |e: &io::Error| Error::os(format_args!("open {path}"), e);
        let mut options = File::options();
        options.custom_flags(libc::O_CLOEXEC);
        if let Some(mode) = how.create {
            options.mode(mode);
            options.create(!how.exclusive).create_new(how.exclusive);
        }
        // Data sieving reads before it writes, and a shared record lock needs a readable descriptor. A file opened only
        // for writing is therefore opened for both where its permissions allow it.
        let file = if how.write {
            match options.clone().read(true).write(true).open(path) {
                Err(e) if !how.read && e.kind() == io::ErrorKind::PermissionDenied => {
                    options.clone().write(true).open(path)
                }
                other => other,
            }
        } else {
            options.read(true);
            match how.create {
                // The kernel creates a file only for a process that may write it; MPI has no such rule.
                Some(_) => options.clone().write(true).open(path),
                None => options.open(path),
            }
        }
        .map_err(|e| failed(&e))?;
        let kind = file.metadata().map_err(|e| failed(&e))?.file_type();
        if kind.is_dir() {
            return Err(failed(&io::Error::from_raw_os_error(libc::EISDIR)));
        }
        if let Some(task) = how.task.as_ref().filter(|_| kind.is_file()) {
            mark(&file, task).map_err(|e| failed(&e))??;
        }
        let readable = flags(&file) & libc::O_ACCMODE != libc::O_WRONLY;
        Ok(Arc::new(DirectFile {
            file,
            readable,
            path: path.to_owned(),
            idle: Arc::default(),
            lock_wait: LOCK_WAIT,
        }))
    }

    fn claim(&self, path: &str, task: &Task) -> Result<()> {
        // A file that cannot be opened is not removed by accident: `unlink` reports what is wrong.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path);
        let file = file
            .ok()
            .filter(|f| f.metadata().is_ok_and(|m| m.is_file()));
        let marked = file.map_or(Ok(Ok(())), |file| mark(&file, task));
        marked.map_err(|e| Error::os(format_args!("delete {path}"), &e))?
    }

    fn unlink(&self, path: &str) -> Result<()> {
        std::fs::remove_file(path).map_err(|e| Error::os(format_args!("delete {path}"), &e))
    }

    fn counter(
        &self,
        path: &str,
        token: u128,
        initial: i64,
        one_node: bool,
    ) -> Result<Box<dyn Counter>> {
        Ok(Box::new(Sidecar::new(path, token, initial, one_node)?))
    }
}

fn flags(file: &File) -> libc::c_int {
    // SAFETY: F_GETFL takes no argument and only reads the state of a descriptor we own.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

/// Reserves a file for one task of its step. The reservation is an attribute of the file: all hosts see it, and it
/// stays when the task has ended. On a file system without attributes it is a record lock, which ends with this process
/// or when it closes the file.
fn mark(file: &File, task: &Task) -> io::Result<Result<()>> {
    let name = format!("{MARK}{:016x}", task.step);
    let number = task.number.to_string();
    match rustix::fs::fsetxattr(file, &*name, number.as_bytes(), XattrFlags::CREATE) {
        Ok(()) => {
            forget_marks(file, &name);
            Ok(Ok(()))
        }
        Err(Errno::EXIST) => {
            let mut value = [0; 16];
            let len = rustix::fs::fgetxattr(file, &*name, &mut value)?;
            let other = std::str::from_utf8(&value[..len]).unwrap_or_default();
            if other == number {
                Ok(Ok(()))
            } else {
                Ok(Err(task.refuse(other.parse().ok())))
            }
        }
        // Only users who may write the file can set attributes; others can still remove it.
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(Ok(())),
        Err(why) => {
            log::debug!("no attribute {name}: {why}; a record lock stands for it");
            let byte = STEPS + (task.step >> 2);
            let range = byte..byte + 1;
            match set_record_lock(file, libc::F_WRLCK, &range, libc::F_SETLK) {
                Ok(()) => Ok(Ok(())),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                    Ok(Err(task.refuse(None)))
                }
                Err(e) => {
                    log::warn!("other tasks that write the same file cannot be detected: {e}");
                    Ok(Ok(()))
                }
            }
        }
    }
}

/// Removes attributes of finished steps from a file, when there are many.
fn forget_marks(file: &File, own: &str) {
    let mut names = [0; 4096];
    let Ok(len) = rustix::fs::flistxattr(file, &mut names) else {
        return;
    };
    let names = names[..len].split(|b| *b == 0);
    let marks = names.filter(|name| name.starts_with(MARK.as_bytes()) && *name != own.as_bytes());
    let marks: Vec<_> = marks.collect();
    for mark in marks.iter().skip(MAX_MARKS) {
        if let Err(e) = rustix::fs::fremovexattr(file, *mark) {
            log::debug!("a mark stays on a file: {e}");
        }
    }
}

/// An open file of a mounted file system.
struct DirectFile {
    file: File,
    readable: bool,
    path: String,
    idle: Arc<Mutex<Vec<File>>>,
    lock_wait: Duration,
}

impl DirectFile {
    fn failed(&self, what: &str, e: &io::Error) -> Error {
        Error::os(format_args!("{what} {}", self.path), e)
    }

    /// Reserves the space that the first `len` bytes lack, in the directory where the file was opened.
    fn hold(&self, len: u64) -> std::result::Result<Option<Reservation>, Errno> {
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let directory = std::fs::read_link(link)
            .ok()
            .and_then(|path| File::open(path.parent()?).ok());
        match directory {
            Some(directory) => reservation::hold(directory, self.file.as_fd(), len),
            None => Ok(None),
        }
    }

    /// Takes a record lock on a descriptor that nobody else uses at the same time.
    fn record_lock(&self, range: Range<u64>, exclusive: bool) -> Result<Box<dyn Guard>> {
        let exclusive = exclusive || !self.readable;
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let file = match idle {
            Some(file) => file,
            None => File::options()
                .read(self.readable)
                .write(flags(&self.file) & libc::O_ACCMODE != libc::O_RDONLY)
                .custom_flags(libc::O_CLOEXEC)
                .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
                .map_err(|e| self.failed("lock", &e))?,
        };
        let kind = if exclusive {
            libc::F_WRLCK
        } else {
            libc::F_RDLCK
        };
        let file = await_record_lock(file, kind, &range, self.lock_wait)
            .map_err(|e| self.failed("lock", &e))?;
        Ok(Box::new(RecordLock {
            file: Some(file),
            range,
            idle: Arc::clone(&self.idle),
        }))
    }
}

/// Sets or clears a record lock. `command` is `F_OFD_SETLK`, or `F_OFD_SETLKW`, which waits, for a lock of the open
/// file description; `F_SETLK` is for one of the process.
fn set_record_lock(
    file: &File,
    kind: libc::c_int,
    range: &Range<u64>,
    command: libc::c_int,
) -> io::Result<()> {
    let limit = i64::MAX as u64;
    let start = range.start.min(limit);
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as i64,
        // 0 means up to the largest offset.
        l_len: if range.end >= limit {
            0
        } else {
            (range.end.max(start + 1) - start) as i64
        },
        l_pid: 0,
    };
    loop {
        // SAFETY: the commands read the flock structure, which lives for the call, and change nothing of ours.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// The same for a descriptor of the caller's, with a time limit. A lock granted too late ends with the descriptor.
fn await_record_lock(
    file: File,
    kind: libc::c_int,
    range: &Range<u64>,
    patience: Duration,
) -> io::Result<File> {
    match set_record_lock(&file, kind, range, libc::F_OFD_SETLK) {
        Ok(()) => return Ok(file),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {}
        Err(e) => return Err(e),
    }
    let (done, result) = mpsc::sync_channel(1);
    let wanted = range.clone();
    std::thread::Builder::new()
        .name("record lock".into())
        .spawn(move || {
            let locked = set_record_lock(&file, kind, &wanted, libc::F_OFD_SETLKW);
            // Nobody receives it: the caller has given up.
            let _ = done.send(locked.map(|()| file));
        })?;
    result.recv_timeout(patience).unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "another process has bytes {} to {} locked for {} s; is it stopped? `lslocks` shows the locks of this host",
                range.start,
                range.end,
                patience.as_secs()
            ),
        ))
    })
}

/// A held record lock.
struct RecordLock {
    file: Option<File>,
    range: Range<u64>,
    idle: Arc<Mutex<Vec<File>>>,
}
impl Guard for RecordLock {}
impl Drop for RecordLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // Closing the descriptor releases the lock too, so a failure here only prevents its reuse.
        if set_record_lock(&file, libc::F_UNLCK, &self.range, libc::F_OFD_SETLK).is_ok() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE_LOCK_FILES {
                idle.push(file);
            }
        }
    }
}

/// Bytes of one vectored call: as many as its iovecs are expected to cover, so that scattered memory is walked once.
fn call_bytes(memory: &Pattern) -> u64 {
    if memory.is_contiguous() {
        return MAX_CALL_BYTES;
    }
    let mean_piece = memory.len.div_ceil(memory.regions().max(1));
    mean_piece
        .saturating_mul(MAX_IOVECS as u64)
        .clamp(1, MAX_CALL_BYTES)
}

/// Reads one file region into the memory pieces of the same stream bytes.
fn read_region(
    file: &File,
    mut offset: u64,
    from: u64,
    len: u64,
    into: &mut Target<'_>,
    call_bytes: u64,
    iovecs: &mut Vec<libc::iovec>,
) -> io::Result<u64> {
    let mut done = 0;
    while done < len {
        let ask = (len - done).min(call_bytes);
        iovecs.clear();
        into.pieces(from + done, ask, |piece| {
            if iovecs.len() < MAX_IOVECS {
                iovecs.push(libc::iovec {
                    iov_base: piece.as_mut_ptr().cast(),
                    iov_len: piece.len(),
                });
            }
        });
        // SAFETY: each iovec is a piece of `into`, writable and untouched by others for the target's lifetime, which
        // outlives this call. `pieces` hands out slices that stay valid after the callback.
        let n = unsafe {
            libc::preadv(
                file.as_raw_fd(),
                iovecs.as_ptr(),
                iovecs.len() as libc::c_int,
                offset as libc::off_t,
            )
        };
        match n {
            0 => break,
            n if n > 0 => {
                done += n as u64;
                offset += n as u64;
            }
            _ => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
    Ok(done)
}

/// The writing counterpart of [`read_region`].
fn write_region(
    file: &File,
    mut offset: u64,
    position: u64,
    len: u64,
    from: &mut Source<'_>,
    call_bytes: u64,
    iovecs: &mut Vec<libc::iovec>,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let ask = (len - done).min(call_bytes);
        iovecs.clear();
        from.pieces(position + done, ask, |piece| {
            if iovecs.len() < MAX_IOVECS {
                iovecs.push(libc::iovec {
                    iov_base: piece.as_ptr().cast_mut().cast(),
                    iov_len: piece.len(),
                });
            }
        });
        // SAFETY: each iovec is a readable piece of `from` that outlives this call; pwritev only reads it.
        let n = unsafe {
            libc::pwritev(
                file.as_raw_fd(),
                iovecs.as_ptr(),
                iovecs.len() as libc::c_int,
                offset as libc::off_t,
            )
        };
        match n {
            0 => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            n if n > 0 => {
                done += n as u64;
                offset += n as u64;
            }
            _ => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
    Ok(())
}

impl FileHandle for DirectFile {
    fn identity(&self, one_node: bool) -> (u64, u64) {
        // Each host numbers its file systems in its own way.
        let here = |m: std::fs::Metadata| (if one_node { m.dev() } else { 0 }, m.ino());
        self.file.metadata().map_or((0, 0), here)
    }

    fn layout(&self) -> Option<&Layout> {
        None
    }

    fn has_shortcut(&self) -> bool {
        false
    }

    fn read_each(
        &self,
        operations: &mut Operations<'_>,
        _form: Form,
        into: &mut Target<'_>,
    ) -> Result<u64> {
        let call_bytes = call_bytes(into.pattern());
        let mut iovecs = Vec::new();
        let mut total = 0;
        for (mut position, pattern) in operations {
            let mut cursor = pattern.cursor();
            while let Some(run) = cursor.next_run(u64::MAX) {
                let got = read_region(
                    &self.file,
                    run.offset as u64,
                    position,
                    run.len,
                    into,
                    call_bytes,
                    &mut iovecs,
                )
                .map_err(|e| self.failed("read", &e))?;
                total += got;
                position += run.len;
            }
        }
        Ok(total)
    }

    fn write_each(
        &self,
        operations: &mut Operations<'_>,
        _form: Form,
        from: &mut Source<'_>,
    ) -> Result<u64> {
        let call_bytes = call_bytes(from.pattern());
        let mut iovecs = Vec::new();
        let mut total = 0;
        for (mut position, pattern) in operations {
            let mut cursor = pattern.cursor();
            while let Some(run) = cursor.next_run(u64::MAX) {
                write_region(
                    &self.file,
                    run.offset as u64,
                    position,
                    run.len,
                    from,
                    call_bytes,
                    &mut iovecs,
                )
                .map_err(|e| self.failed("write", &e))?;
                total += run.len;
                position += run.len;
            }
        }
        Ok(total)
    }

    fn len(&self) -> Result<u64> {
        Ok(self
            .file
            .metadata()
            .map_err(|e| self.failed("size of", &e))?
            .len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file
            .set_len(len)
            .map_err(|e| self.failed("set the size of", &e))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let failed = |e: Errno| self.failed("preallocate", &e.into());
        // A failed reservation keeps what it has got, so the space is reserved elsewhere first.
        drop(self.hold(len).map_err(failed)?);
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len) {
            // Extends it in one step, which never truncates concurrent writes.
            Ok(()) => penstock_host::fs::reserve(&self.file, len - 1, 1).map_err(failed),
            // A file system without reservations still sets the length. Nobody may write beyond the end between the
            // check and the extension, which would truncate it.
            Err(Errno::OPNOTSUPP) => {
                let _alone = self.record_lock(0..STEPS, true)?;
                if self.len()? < len {
                    self.set_len(len)
                } else {
                    Ok(())
                }
            }
            Err(e) => Err(failed(e)),
        }
    }

    fn start_writeback(&self, part: usize, _parts: usize) {
        if part == 0 {
            penstock_host::fs::start_writeback(&self.file);
        }
    }

    fn sync(&self, leads: bool) -> Result<()> {
        if !leads {
            return Ok(());
        }
        self.file.sync_all().map_err(|e| self.failed("sync", &e))
    }

    fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<Box<dyn Guard>> {
        self.record_lock(range, mode == LockMode::Exclusive)
    }

    fn writing(&self, range: Range<u64>) -> Result<Option<Box<dyn Guard>>> {
        self.record_lock(range, false).map(Some)
    }
}

/// The shared pointer of a file in direct mode: eight bytes in a separate file, changed under a record lock. The
/// separate file is in shared memory if all ranks are on one node, otherwise hidden beside the data. The first use
/// makes it, and closing removes it.
struct Sidecar {
    path: PathBuf,
    initial: i64,
    file: Mutex<Option<File>>,
    lock_wait: Duration,
}

impl Sidecar {
    fn new(path: &str, token: u128, initial: i64, one_node: bool) -> Result<Sidecar> {
        let path = Path::new(path);
        let name = path.file_name().ok_or_else(|| {
            Error::new(
                ErrorClass::BadFile,
                format!("{} has no file name; name a file", path.display()),
            )
        })?;
        let path = if one_node {
            Path::new("/dev/shm").join(format!("penstock-pointer-{token:032x}"))
        } else {
            let name: String = name.to_string_lossy().chars().take(64).collect();
            path.with_file_name(format!(".{name}.penstock-pointer-{token:032x}"))
        };
        Ok(Sidecar {
            path,
            initial,
            file: Mutex::new(None),
            lock_wait: LOCK_WAIT,
        })
    }

    fn failed(&self, e: &io::Error) -> Error {
        Error::os(format_args!("shared pointer {}", self.path.display()), e)
    }

    /// Applies `change` to the value; returns what it was before.
    fn change(&self, change: impl FnOnce(i64) -> Result<i64>) -> Result<i64> {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match slot.take() {
            Some(file) => file,
            None => File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
                .open(&self.path)
                .map_err(|e| self.failed(&e))?,
        };
        let file = await_record_lock(file, libc::F_WRLCK, &(0..8), self.lock_wait)
            .map_err(|e| self.failed(&e))?;
        let file = slot.insert(file);
        let result = self.change_locked(file, change);
        set_record_lock(file, libc::F_UNLCK, &(0..8), libc::F_OFD_SETLK)
            .map_err(|e| self.failed(&e))?;
        result
    }

    fn change_locked(&self, file: &File, change: impl FnOnce(i64) -> Result<i64>) -> Result<i64> {
        let mut bytes = [0; 8];
        let before = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => i64::from_le_bytes(bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => self.initial,
            Err(e) => return Err(self.failed(&e)),
        };
        let after = change(before)?;
        file.write_all_at(&after.to_le_bytes(), 0)
            .map_err(|e| self.failed(&e))?;
        Ok(before)
    }
}

impl Counter for Sidecar {
    fn add(&self, n: i64) -> Result<i64> {
        self.change(|before| advanced(before, n))
    }
    fn set(&self, value: i64) -> Result<()> {
        self.change(|_| Ok(value)).map(drop)
    }
    fn get(&self) -> Result<i64> {
        self.change(Ok)
    }
    fn free(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed(&e)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A file opened twice, as by two processes that wait `patience` for each other.
    fn twice(directory: &Path, patience: Duration) -> [DirectFile; 2] {
        let path = directory.join("f");
        std::fs::write(&path, [0; 100]).unwrap();
        [(), ()].map(|()| DirectFile {
            file: File::options().read(true).write(true).open(&path).unwrap(),
            readable: true,
            path: path.display().to_string(),
            idle: Arc::default(),
            lock_wait: patience,
        })
    }

    #[test]
    fn whoever_waits_for_a_stopped_process_goes_away_with_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = twice(directory.path(), Duration::from_millis(50));
        let held = one.record_lock(10..20, true).unwrap();
        let e = two.record_lock(15..30, true).err().unwrap().to_string();
        assert!(e.contains("bytes 15 to 30") && e.contains("lslocks"), "{e}");
        drop(two.record_lock(20..30, true).unwrap());
        drop(held);
        // The lock granted too late has ended with its descriptor.
        let patient = DirectFile {
            lock_wait: LOCK_WAIT,
            ..one
        };
        drop(patient.record_lock(0..100, true).unwrap());
    }

    #[test]
    fn a_lock_that_is_given_up_wakes_who_waits_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = twice(directory.path(), LOCK_WAIT);
        let held = one.record_lock(0..10, false).unwrap();
        drop(two.record_lock(0..10, false).unwrap());
        let start = Instant::now();
        std::thread::scope(|s| {
            s.spawn(|| drop(two.record_lock(5..6, true).unwrap()));
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        assert!(start.elapsed() < LOCK_WAIT);
    }

    #[test]
    fn a_file_is_one_tasks_of_each_step() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let name = path.to_str().unwrap();
        let open = |task: Option<Task>| {
            let how = OpenHow {
                write: true,
                create: Some(0o600),
                task,
                ..OpenHow::default()
            };
            Direct.open(name, &how).map(drop)
        };
        let task = Task::of_two;
        open(None).unwrap();
        open(Some(task(1, 1))).unwrap();
        open(Some(task(1, 1))).expect("again by the same task");
        let e = open(Some(task(1, 0))).unwrap_err();
        assert_eq!(e.class, ErrorClass::FileInUse);
        assert!(e.message.contains("task 1 of this step writes it"), "{e}");
        open(Some(task(2, 0))).expect("another step");
        Direct.claim(name, &task(1, 1)).unwrap();
        assert!(Direct.claim(name, &task(1, 0)).is_err());
        // A missing file, or something else than a file, cannot be claimed.
        Direct.claim("/no/such/file", &task(1, 0)).unwrap();
        let how = OpenHow {
            write: true,
            task: Some(task(1, 0)),
            ..OpenHow::default()
        };
        Direct.open("/dev/null", &how).unwrap();
        for step in 3..100 {
            open(Some(task(step, 0))).unwrap();
        }
        let mut names = [0; 4096];
        let len = rustix::fs::listxattr(&path, &mut names).unwrap();
        let marks = names[..len].split(|b| *b == 0);
        let marks = marks.filter(|name| name.starts_with(MARK.as_bytes()));
        assert_eq!(marks.count(), MAX_MARKS + 1);
    }

    #[test]
    fn the_shared_pointer_does_not_wait_for_ever_either() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let pointer = || {
            let mut pointer = Sidecar::new(path.to_str().unwrap(), 7, 0, false).unwrap();
            pointer.lock_wait = Duration::from_millis(50);
            pointer
        };
        let (one, two) = (pointer(), pointer());
        assert_eq!(one.add(5).unwrap(), 0);
        let e = one
            .change(|_| two.add(1))
            .expect_err("the other holds it")
            .to_string();
        assert!(
            e.contains("shared pointer") && e.contains("locked for"),
            "{e}"
        );
        assert_eq!(two.get().unwrap(), 5);
        one.free().unwrap();
    }
}
