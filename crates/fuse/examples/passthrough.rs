//! A minimal FUSE file system: shows one directory at another place, and passes each call on to it.
//!
//! Its cost is the cost of FUSE; the benchmarks compare mounts with it. Like mounts of Penstock it bypasses the page
//! cache. `passthrough SOURCE MOUNTPOINT` runs until it is unmounted.
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, SessionACL, WriteFlags,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const TTL: Duration = Duration::from_millis(100);
const THREADS: usize = 8;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Tables {
    paths: HashMap<u64, PathBuf>,
    files: HashMap<u64, Arc<File>>,
    next: u64,
}

struct Passthrough {
    root: PathBuf,
    tables: Mutex<Tables>,
}

fn errno(e: &io::Error) -> Errno {
    Errno::from_i32(e.raw_os_error().unwrap_or(5))
}

impl Passthrough {
    fn with<T>(&self, f: impl FnOnce(&mut Tables) -> T) -> T {
        f(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn path(&self, ino: INodeNo) -> PathBuf {
        match ino.0 {
            1 => self.root.clone(),
            ino => self
                .with(|t| t.paths.get(&ino).cloned())
                .unwrap_or_default(),
        }
    }

    fn attributes(&self, path: PathBuf, root: bool) -> io::Result<FileAttr> {
        let m = path.symlink_metadata()?;
        let ino = if root { 1 } else { m.ino() };
        self.with(|t| t.paths.insert(ino, path));
        Ok(FileAttr {
            ino: INodeNo(ino),
            size: m.len(),
            blocks: m.blocks(),
            atime: m.accessed()?,
            mtime: m.modified()?,
            ctime: m.modified()?,
            crtime: m.modified()?,
            kind: FileType::from_std(m.file_type()).unwrap_or(FileType::RegularFile),
            perm: (m.mode() & 0o7777) as u16,
            nlink: m.nlink() as u32,
            uid: m.uid(),
            gid: m.gid(),
            rdev: 0,
            blksize: 1 << 20,
            flags: 0,
        })
    }

    fn add(&self, file: File) -> FileHandle {
        self.with(|t| {
            t.next += 1;
            t.files.insert(t.next, Arc::new(file));
            FileHandle(t.next)
        })
    }

    fn file(&self, handle: FileHandle) -> Option<Arc<File>> {
        self.with(|t| t.files.get(&handle.0).cloned())
    }
}

fn flags() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut fuser::KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(self.path(parent).join(name), false) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(self.path(ino), ino.0 == 1) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        match std::fs::create_dir(&path).and_then(|()| self.attributes(path, false)) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, how: OpenFlags, reply: ReplyOpen) {
        let write = how.0 & 3 != 0;
        match File::options().read(true).write(write).open(self.path(ino)) {
            Ok(file) => reply.opened(self.add(file), flags()),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let path = self.path(parent).join(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).mode(mode);
        let made = options
            .open(&path)
            .and_then(|file| Ok((self.attributes(path, false)?, file)));
        match made {
            Ok((attr, file)) => {
                reply.created(&TTL, &attr, Generation(0), self.add(file), flags());
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(handle) else {
            return reply.error(Errno::EBADF);
        };
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(buffer.len().max(size as usize), 0);
            match file.read_at(&mut buffer[..size as usize], offset) {
                Ok(n) => reply.data(&buffer[..n]),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(handle).map(|f| f.write_all_at(data, offset)) {
            Some(Ok(())) => reply.written(data.len() as u32),
            Some(Err(e)) => reply.error(errno(&e)),
            None => reply.error(Errno::EBADF),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.with(|t| t.files.remove(&handle.0));
        reply.ok();
    }
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(source), Some(point)) = (words.next(), words.next()) else {
        return Err(io::Error::other("passthrough SOURCE MOUNTPOINT"));
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("passthrough".into())];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    let filesystem = Passthrough {
        root: PathBuf::from(source).canonicalize()?,
        tables: Mutex::default(),
    };
    Session::new(filesystem, point, &config)?.run()
}
