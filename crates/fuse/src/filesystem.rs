//! The kernel's calls, one by one.
use crate::attributes::{attributes, kind, nanoseconds};
use crate::bytes;
use crate::errno::{errno, stale};
use crate::listing::Listing;
use crate::locks::{advisory, family};
use crate::operations::{GENERATION, Penstock, TOGETHER, access, groups, id, text};
use crate::passthrough::Way;
use crate::replies::{dot, empty, xattr};
use fuser::{
    BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, Filesystem,
    FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use penstock_client::{CreateOptions, Error, ErrorKind, Looked};
use penstock_wire::message::{
    AdvisoryFamily, AdvisoryMode, Attributes, Change, LAYOUT_XATTR, NodeReply, NodeRequest, User,
    When, XattrMode,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Flag of open(2) inside the kernel: to run it.
const FOR_EXECUTION: i32 = 0x20;

/// Files are opened without the page cache, so that each read shows what the servers have.
fn daemon_flags() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

/// Flags and descriptor of an open that is passed through to the kernel.
fn passed(way: &Way) -> Option<(FopenFlags, &BackingId)> {
    match way {
        Way::Daemon => None,
        Way::Writer(backing) | Way::Reader(backing) => Some((FopenFlags::empty(), backing)),
        Way::Beside(backing) => Some((daemon_flags(), backing)),
    }
}

fn when(time: TimeOrNow) -> When {
    match time {
        TimeOrNow::Now => When::Now,
        TimeOrNow::SpecificTime(time) => When::At(nanoseconds(time)),
    }
}

/// Extended attribute that shows how a file is open in this mount. Not listed, so that copies do not include it.
const WAY_XATTR: &str = "user.penstock.way";

/// An error: attributes of this kind are not supported.
fn unsupported(name: &str) -> Error {
    Error::Local {
        what: format!("attribute {name}"),
        kind: ErrorKind::Unsupported,
        detail: "attributes begin with user. or trusted.".into(),
    }
}

/// Positions of `.` and `..` come first.
const DOTS: u64 = 2;

impl Filesystem for Penstock {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            // Writers need not ask first whether the file has capabilities of its own.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for flag in wanted {
            if let Err(missing) = config.add_capabilities(flag) {
                log::info!("this kernel lacks {missing:?}");
            }
        }
        if config
            .add_capabilities(InitFlags::FUSE_PASSTHROUGH)
            .is_err()
        {
            self.passthrough.disable("this kernel has none");
        }
        // The passed-through file is on a file system of its own, not on a stacked one.
        let _ = config.set_max_stack_depth(1);
        // Values that are too large are reduced.
        let _ = config.set_max_write(bytes::MAX_IO);
        let _ = config.set_max_readahead(bytes::MAX_IO);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Ok(name) = text(name) else {
            // Nothing has such a name.
            return reply.error(Errno::ENOENT);
        };
        let what = NodeRequest::Lookup {
            parent: id(parent),
            name: name.to_owned(),
        };
        match self.stat(request, &what) {
            // It still has a name, by which it can be removed. The error appears when its length is needed.
            Err(e) if e.kind() == ErrorKind::Damaged => {
                self.entry_without_length(self.node(request, &what), reply);
            }
            found => self.entry(found, reply),
        }
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.stat(request, &NodeRequest::Look { id: id(ino) }) {
            Ok((a, looked)) => reply.attr(&self.ttl(&a), &attributes(&a, &looked)),
            Err(e) => reply.error(stale(&e)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = id(ino);
        // A new length changes the time by itself.
        let mtime = mtime.filter(|t| size.is_none() || *t != TimeOrNow::Now);
        let change = Change {
            mode: mode.map(|m| m & 0o7777),
            uid,
            gid,
            mtime: mtime.map(when),
            atime: atime.map(when),
        };
        let done = (|| {
            if let Some(len) = size {
                self.truncate(request, node, handle, len)?;
            }
            let what = if change == Change::default() {
                NodeRequest::Look { id: node }
            } else {
                NodeRequest::SetAttr { id: node, change }
            };
            let (mut a, looked) = self.stat(request, &what)?;
            if size.is_some() {
                self.drop_set_id(request, node, a.mode)?;
                if request.uid() != 0 {
                    a.mode &= !0o6000;
                }
            }
            Ok((a, looked))
        })();
        match done {
            Ok((a, looked)) => reply.attr(&self.ttl(&a), &attributes(&a, &looked)),
            Err(e) => reply.error(stale(&e)),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(request, &NodeRequest::Stat { id: id(ino) }) {
            Ok(NodeReply::Node(Attributes {
                target: Some(target),
                ..
            })) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(e) => reply.error(stale(&e)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        // Pipes, sockets and devices belong to one host and are not supported.
        if !matches!(mode & libc::S_IFMT, 0 | libc::S_IFREG) {
            reply.error(Errno::EPERM);
            return;
        }
        let made = text(name).and_then(|name| {
            let options = CreateOptions {
                mode: mode & 0o7777,
                ..CreateOptions::default()
            };
            let file = self.with_user(request, |user| {
                let place = (id(parent), name);
                self.client
                    .create_node(user, place, options.clone(), (false, true), true)
            })?;
            Ok((file.attributes().clone(), Looked::default()))
        });
        self.entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = text(name).and_then(|name| {
            let what = NodeRequest::Mkdir {
                parent: id(parent),
                name: name.to_owned(),
                mode: mode & 0o7777,
            };
            self.stat(request, &what)
        });
        self.entry(made, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = text(name).and_then(|name| {
            self.removing(request, |keep| NodeRequest::Unlink {
                parent: id(parent),
                name: name.to_owned(),
                keep,
            })
        });
        empty(done, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = text(name).and_then(|name| {
            let what = NodeRequest::Rmdir {
                parent: id(parent),
                name: name.to_owned(),
            };
            self.node(request, &what).map(drop)
        });
        empty(done, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = text(name).and_then(|name| {
            let what = NodeRequest::Symlink {
                parent: id(parent),
                name: name.to_owned(),
                target: text(target.as_os_str())?.to_owned(),
            };
            self.stat(request, &what)
        });
        self.entry(made, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(!RenameFlags::RENAME_NOREPLACE) {
            reply.error(Errno::EINVAL);
            return;
        }
        let done = (|| {
            let (name, new_name) = (text(name)?, text(new_name)?);
            self.removing(request, |keep| NodeRequest::Rename {
                parent: id(parent),
                name: name.to_owned(),
                new_parent: id(new_parent),
                new_name: new_name.to_owned(),
                exclusive: flags.contains(RenameFlags::RENAME_NOREPLACE),
                keep,
            })
        })();
        empty(done, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = text(new_name).and_then(|name| {
            let what = NodeRequest::Link {
                id: id(ino),
                parent: id(new_parent),
                name: name.to_owned(),
            };
            self.stat(request, &what)
        });
        self.entry(made, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (read, write) = access(flags);
        let execute = flags.0 & FOR_EXECUTION != 0;
        let opened = self
            .with_user(request, |user| {
                self.client.open_node(user, id(ino), (read, write), execute)
            })
            .and_then(|file| {
                if flags.0 & libc::O_TRUNC != 0 && write {
                    self.cut(request, &file)?;
                }
                self.admit(request, file, flags.0, |fd| reply.open_backing(fd))
            });
        match opened {
            Ok((handle, way)) => match passed(&way) {
                None => reply.opened(FileHandle(handle), daemon_flags()),
                Some((flags, backing)) => {
                    reply.opened_passthrough(FileHandle(handle), flags, backing);
                }
            },
            Err(e) => reply.error(stale(&e)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = text(name)
            .and_then(|name| self.created(request, (id(parent), name), mode, flags))
            .and_then(|(file, a, looked)| {
                let (handle, way) =
                    self.admit(request, file, flags, |fd| reply.open_backing(fd))?;
                Ok((FileHandle(handle), way, attributes(&a, &looked)))
            });
        match created {
            Ok((handle, way, attr)) => match passed(&way) {
                None => reply.created(&self.names, &attr, GENERATION, handle, daemon_flags()),
                Some((flags, backing)) => {
                    reply.created_passthrough(
                        &self.names,
                        &attr,
                        GENERATION,
                        handle,
                        flags,
                        backing,
                    );
                }
            },
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
        let open = match self.open_file(handle) {
            Ok(open) => open,
            Err(e) => return reply.error(errno(&e)),
        };
        bytes::read(&open.file(), offset, size as usize, reply);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = (|| {
            let open = self.open_file(handle)?;
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                self.clear_set_id(&open)?;
            }
            let n = match flags.0 & libc::O_APPEND {
                0 => bytes::write(&open.file(), offset, data)?,
                _ => open.append(|file, end| bytes::write(file, end, data))?,
            };
            // O_SYNC has this bit too. The kernel leaves this to the file system.
            if flags.0 & libc::O_DSYNC != 0 {
                self.handles.sync(&open)?;
            }
            Ok(n)
        })();
        match written {
            Ok(n) => reply.written(n),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        // No bytes are buffered: each write was acknowledged by the servers.
        empty(self.locks.closed(id(ino), owner.0), reply);
    }

    fn getlk(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        match self.locks.test(
            id(ino),
            advisory(owner, (start, end), typ, AdvisoryFamily::Fcntl, pid),
        ) {
            Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
            Ok(Some(by)) => {
                let typ = match by.mode {
                    AdvisoryMode::Exclusive => libc::F_WRLCK,
                    _ => libc::F_RDLCK,
                };
                reply.locked(by.start, by.last, typ, by.pid);
            }
            Err(e) => reply.error(crate::locks::errno(&e)),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let family = family(request.pid(), typ);
        let lock = advisory(owner, (start, end), typ, family, pid);
        self.locks.set(id(ino), lock, request.pid(), sleep, reply);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(owner) = owner
            && let Err(e) = self.locks.closed(id(ino), owner.0)
        {
            log::warn!("a lock of a closed file stays as long as the mount: {e}");
        }
        if let Some((open, removed)) = self.handles.close_file(handle.0) {
            self.passthrough.close(open.node, &open.way);
            if removed {
                self.reap(open.node);
            }
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = self
            .open_file(handle)
            .and_then(|open| self.handles.sync(&open));
        empty(done, reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel has checked permissions; the first page is requested with all groups of the caller.
        let user = User {
            uid: request.uid(),
            gid: request.gid(),
            groups: match request.uid() {
                0 => Vec::new(),
                _ => groups(request.pid()),
            },
        };
        match self.handles.add_directory(Listing::new(id(ino), user)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (position, name) in [(0, "."), (1, "..")] {
            if position >= offset && reply.add(ino, position + 1, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let first = offset.saturating_sub(DOTS);
        let listed = self.list(handle, first, usize::MAX, |at, entries| {
            (at + DOTS..)
                .zip(entries)
                .position(|(p, (name, a))| reply.add(INodeNo(a.id.0), p + 1, kind(a.kind), name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        // The kernel ignores the attributes of these two.
        let dot = dot(ino);
        for (position, name) in [(0, "."), (1, "..")] {
            if position >= offset
                && reply.add(ino, position + 1, name, &Duration::ZERO, &dot, GENERATION)
            {
                return reply.ok();
            }
        }
        let user = User {
            uid: request.uid(),
            gid: request.gid(),
            groups: Vec::new(),
        };
        let first = offset.saturating_sub(DOTS);
        let listed = self.list(handle, first, TOGETHER, |at, entries| {
            let looked = self.look_all(&user, entries);
            (at + DOTS..).zip(entries.iter().zip(&looked)).position(
                |(p, ((name, _), (a, looked)))| {
                    // Attributes that are unknown are not cached: the kernel asks again and gets the error.
                    let ttl = looked.map_or(Duration::ZERO, |_| self.ttl(a));
                    let attr = attributes(a, &looked.unwrap_or_default());
                    reply.add(attr.ino, p + 1, name, &ttl, &attr, GENERATION)
                },
            )
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles.close_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.client.sync_metadata(), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const UNIT: u32 = 4096;
        match self.space() {
            Ok((total, free, files)) => {
                let (total, free) = (total / u64::from(UNIT), free / u64::from(UNIT));
                let room = u64::MAX >> 1;
                reply.statfs(total, free, free, files + room, room, UNIT, 255, UNIT);
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done = text(name).and_then(|name| {
            if name == LAYOUT_XATTR {
                return self.set_layout(request, id(ino), value);
            }
            let what = NodeRequest::SetXattr {
                id: id(ino),
                name: name.to_owned(),
                value: value.to_owned(),
                mode: match flags {
                    libc::XATTR_CREATE => XattrMode::Create,
                    libc::XATTR_REPLACE => XattrMode::Replace,
                    _ => XattrMode::Any,
                },
            };
            self.node(request, &what).map(drop)
        });
        empty(done, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let found = text(name).and_then(|name| {
            if name == WAY_XATTR {
                return Ok(self.passthrough.describe(id(ino)).into_bytes());
            }
            // Programs that do not know the file system ask for these again and again.
            if !["user.", "trusted."].iter().any(|n| name.starts_with(n)) {
                return Err(unsupported(name));
            }
            let what = NodeRequest::GetXattr {
                id: id(ino),
                name: name.to_owned(),
            };
            match self.node(request, &what)? {
                NodeReply::Xattr(value) => Ok(value),
                other => Err(self.unexpected(other)),
            }
        });
        xattr(found, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let found = match self.node(request, &NodeRequest::ListXattr { id: id(ino) }) {
            Ok(NodeReply::Xattrs(names)) => Ok(names
                .iter()
                .flat_map(|n| [n.as_bytes(), b"\0"].concat())
                .collect()),
            Ok(other) => Err(self.unexpected(other)),
            Err(e) => Err(e),
        };
        xattr(found, size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = text(name).and_then(|name| {
            let what = NodeRequest::RemoveXattr {
                id: id(ino),
                name: name.to_owned(),
            };
            self.node(request, &what).map(drop)
        });
        empty(done, reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        let done = self
            .open_file(handle)
            .and_then(|open| bytes::allocate(&open.file(), offset, length));
        empty(done, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel then treats the file as one run of data, as POSIX allows.
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = (|| {
            let from = self.open_file(handle_in)?.file();
            let to = self.open_file(handle_out)?.file();
            bytes::copy((&from, offset_in), (&to, offset_out), len)
        })();
        match copied {
            Ok(n) => reply.written(n),
            Err(e) => reply.error(errno(&e)),
        }
    }
}
