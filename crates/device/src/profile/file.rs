//! A file with direct I/O as a target.
//!
//! In a directory, the file is unnamed: its space is freed when the process ends, even if it is killed. An existing
//! file is only read.
use super::{ProfileError, Target};
use crate::{Nanos, Op};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Direct I/O works in these units on all common devices and file systems.
const ALIGNMENT: u64 = 4096;
/// Bytes of one request while the file is written.
const CHUNK: usize = 1 << 20;
/// The free space that a profile leaves: one part in so many.
const LEAVE: u64 = 10;

/// A file that is profiled, with one access at a time.
pub struct FileTarget {
    file: File,
    path: PathBuf,
    /// Made here, and therefore writable.
    ours: bool,
    direct: bool,
    buffer: Vec<u8>,
}

impl FileTarget {
    /// Opens a directory, in which an unnamed file is made, or an existing file, which is only read.
    pub fn open(path: &Path, direct: bool) -> Result<FileTarget, ProfileError> {
        let meta = std::fs::metadata(path).map_err(|e| failed("look at", path, e))?;
        let ours = meta.is_dir();
        let mut flags = if ours {
            OFlags::TMPFILE | OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        flags |= OFlags::CLOEXEC;
        if direct {
            flags |= OFlags::DIRECT;
        }
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| failed("make a file in or open", path, e.into()))?;
        Ok(FileTarget {
            file: fd.into(),
            path: path.to_owned(),
            ours,
            direct,
            buffer: Vec::new(),
        })
    }

    /// The same file for another thread.
    pub fn another(&self) -> Result<FileTarget, ProfileError> {
        Ok(FileTarget {
            file: self
                .file
                .try_clone()
                .map_err(|e| failed("open once more", &self.path, e))?,
            path: self.path.clone(),
            ours: self.ours,
            direct: self.direct,
            buffer: Vec::new(),
        })
    }

    /// Punches a hole in the file and returns how long that took. A file system mounted with `discard` passes it on to
    /// the device as TRIM. `None` where it is not supported, or where the file existed before.
    pub fn punch(&mut self, at: u64, bytes: u64) -> Result<Option<Nanos>, ProfileError> {
        if !self.ours {
            return Ok(None);
        }
        let began = Instant::now();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, at, bytes) {
            Ok(()) => {
                let took = began.elapsed().as_nanos();
                Ok(Some(u64::try_from(took).unwrap_or(Nanos::MAX)))
            }
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(None),
            Err(e) => Err(failed("free a part of", &self.path, e.into())),
        }
    }

    /// A part of the buffer whose memory address is a multiple of the alignment. Its bytes are such that no device
    /// stores them compressed to nothing.
    fn part(&mut self, bytes: usize) -> Range<usize> {
        let room = bytes + ALIGNMENT as usize;
        if self.buffer.len() < room {
            let mut state = 0x9e37_79b9_7f4a_7c15u64;
            self.buffer = (0..room)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
        }
        let address = self.buffer.as_ptr() as usize;
        let start = address.next_multiple_of(ALIGNMENT as usize) - address;
        start..start + bytes
    }
}

fn failed(doing: &'static str, path: &Path, source: std::io::Error) -> ProfileError {
    ProfileError::Io {
        doing,
        what: path.display().to_string(),
        source,
    }
}

impl Target for FileTarget {
    fn describe(&self) -> String {
        if self.direct {
            self.path.display().to_string()
        } else {
            format!("{} through the page cache", self.path.display())
        }
    }

    fn writable(&self) -> bool {
        self.ours
    }

    fn alignment(&self) -> u64 {
        if self.direct { ALIGNMENT } else { 1 }
    }

    fn prepare(
        &mut self,
        bytes: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ProfileError> {
        let path = self.path.clone();
        if !self.ours {
            let len = self
                .file
                .metadata()
                .map_err(|e| failed("look at", &path, e))?
                .len();
            return if len >= bytes {
                Ok(())
            } else {
                Err(ProfileError::Options(format!(
                    "{} has {len} bytes: choose --file-size no larger, or name a directory",
                    path.display()
                )))
            };
        }
        let space =
            rustix::fs::fstatvfs(&self.file).map_err(|e| failed("look at", &path, e.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if bytes > free - free / LEAVE {
            return Err(ProfileError::Space {
                what: path.display().to_string(),
                free,
                wanted: bytes,
            });
        }
        let mut at = 0;
        while at < bytes {
            let n = (bytes - at).min(CHUNK as u64) as usize;
            // A last chunk that is no multiple of the alignment is written whole, as direct I/O requires.
            let n = n.next_multiple_of(ALIGNMENT as usize);
            let part = self.part(n);
            self.file
                .write_all_at(&self.buffer[part], at)
                .map_err(|e| failed("write", &path, e))?;
            at = (at + n as u64).min(bytes);
            if !done(at) {
                return Err(ProfileError::Stopped);
            }
        }
        self.file.sync_all().map_err(|e| failed("sync", &path, e))
    }

    fn access(&mut self, op: Op, offset: u64, bytes: u64) -> Result<Nanos, ProfileError> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let part = self.part(len);
        let buffer = &mut self.buffer[part];
        let began = Instant::now();
        let (doing, result) = match op {
            Op::Read => ("read", self.file.read_exact_at(buffer, offset)),
            Op::Write => ("write", self.file.write_all_at(buffer, offset)),
        };
        let took = began.elapsed();
        result.map_err(|e| failed(doing, &self.path, e))?;
        Ok(u64::try_from(took.as_nanos()).unwrap_or(Nanos::MAX))
    }
}
