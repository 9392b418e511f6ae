//! The lock with which a server holds its directory for life.
//!
//! A file in the directory is locked (flock(2)) and contains the process's id, for error messages of others. The kernel
//! releases the lock when the process ends. It is also released explicitly. A child that another thread is about to
//! start has a copy of the descriptor until it executes its program. It would hold the lock until then. A killed
//! process holds its files until it has ended, so a lock that is taken is waited for, at most [`ENDING`].
use crate::thread::sleep;
use crate::time::now;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Longest time that a killed process takes to end.
const ENDING: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(20);

/// A locked directory; dropping it releases the lock.
#[derive(Debug)]
pub struct DirectoryLock(OwnedFd);

/// Why a directory could not be locked.
#[derive(Debug)]
pub enum Refused {
    /// Another process has it: "process N", or "another process" if its id is not in the file yet.
    Held(String),
    /// A call failed.
    Failed(Errno),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Refused::Failed(error)
    }
}

impl DirectoryLock {
    /// Locks file `name` in `directory`, made if missing, and writes this process's id into it.
    ///
    /// # Errors
    /// If another process or another part of this one has it, or a call fails.
    pub fn take(directory: BorrowedFd<'_>, name: &str) -> Result<Self, Refused> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
        let until = now() + ENDING;
        let try_lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut tried = try_lock();
        while tried == Err(Errno::AGAIN) && now() < until {
            sleep(STEP);
            tried = try_lock();
        }
        match tried {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                let mut text = [0; 20];
                // Only for the message.
                let n = rustix::io::pread(&file, &mut text, 0).unwrap_or(0);
                let holder = match String::from_utf8_lossy(&text[..n]).trim() {
                    "" => "another process".to_owned(),
                    pid => format!("process {pid}"),
                };
                return Err(Refused::Held(holder));
            }
            Err(error) => return Err(error.into()),
        }
        let held = DirectoryLock(file);
        rustix::fs::ftruncate(&held.0, 0)?;
        rustix::io::pwrite(&held.0, format!("{}\n", std::process::id()).as_bytes(), 0)?;
        Ok(held)
    }
}

/// The locked file.
impl AsFd for DirectoryLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing it does the same unless a child has a copy.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_let_go_is_free_though_a_copy_of_its_descriptor_is_open() {
        let at = std::env::temp_dir().join(format!("penstock-lock-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        let directory = std::fs::File::open(&at).unwrap();
        let first = DirectoryLock::take(directory.as_fd(), "lock").unwrap();
        let Err(Refused::Held(holder)) = DirectoryLock::take(directory.as_fd(), "lock") else {
            panic!("taken twice");
        };
        assert_eq!(holder, format!("process {}", std::process::id()));
        // What a child has between fork(2) and execve(2).
        let copy = first.0.try_clone().unwrap();
        drop(first);
        drop(DirectoryLock::take(directory.as_fd(), "lock").unwrap());
        drop(copy);
        // A process that is about to end is waited for.
        let last = DirectoryLock::take(directory.as_fd(), "lock").unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(STEP * 3);
            drop(last);
        });
        drop(DirectoryLock::take(directory.as_fd(), "lock").unwrap());
        ending.join().unwrap();
        std::fs::remove_dir_all(&at).unwrap();
    }
}
