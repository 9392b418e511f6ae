//! Common parts of the kernel's calls: their user, their answers, their transfers.
//!
//! Each call is carried out for the user who made it. The kernel does not pass supplementary groups. A call that is
//! refused without them is repeated with them, so that the common case costs nothing.
use crate::Options;
use crate::attributes::attributes;
use crate::errno::{errno, invalid};
use crate::handles::{Handles, Open};
use crate::locks::Locks;
use crate::passthrough::{Passthrough, Wanted, Way};
use fuser::{
    BackingId, Errno, FileHandle, Generation, INodeNo, OpenAccMode, OpenFlags, ReplyEntry, Request,
};
use penstock_client::{
    Client, CreateOptions, Error, ErrorKind, File, FileLeases, Looked, OpenFiles, Result,
};
use penstock_layout::FileId;
use penstock_wire::message::{
    Attributes, Change, LAYOUT_XATTR, MetaReply, MetaRequest, NodeKind, NodeReply, NodeRequest,
    User, XattrMode,
};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Entries whose lengths are requested together.
pub(crate) const TOGETHER: usize = 64;
/// Ids are never reused.
pub(crate) const GENERATION: Generation = Generation(0);
/// How long the servers' answer about free space is cached.
const SPACE: Duration = Duration::from_secs(1);

/// Total and free bytes, files.
pub(crate) type Space = (u64, u64, u64);

pub(crate) struct Penstock {
    pub(crate) client: Client,
    pub(crate) leases: Arc<FileLeases>,
    pub(crate) locks: Locks,
    pub(crate) handles: Arc<Handles>,
    pub(crate) passthrough: Passthrough,
    pub(crate) names: Duration,
    pub(crate) attributes: Duration,
    pub(crate) space: Mutex<Option<(Instant, Space)>>,
}

pub(crate) fn text(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or_else(|| Error::Local {
        what: format!("name {}", name.to_string_lossy()),
        kind: ErrorKind::NotText,
        detail: "names are UTF-8 here".into(),
    })
}

pub(crate) fn id(ino: INodeNo) -> FileId {
    FileId(ino.0)
}

pub(crate) fn access(flags: OpenFlags) -> (bool, bool) {
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => (true, false),
        OpenAccMode::O_WRONLY => (false, true),
        OpenAccMode::O_RDWR => (true, true),
    }
}

/// Supplementary groups of a thread, from /proc.
pub(crate) fn groups(thread: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Groups:"));
    let mut groups: Vec<u32> = line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|g| g.parse().ok())
        .collect();
    groups.truncate(penstock_wire::message::MAX_GROUPS);
    groups
}
impl Penstock {
    pub(crate) fn new(client: Client, options: &Options) -> Penstock {
        let handles = Arc::new(Handles::default());
        let leases = Arc::new(FileLeases::new(&client, handles.clone()));
        Penstock {
            locks: Locks::new(&client, leases.clone()),
            leases,
            client,
            handles,
            passthrough: Passthrough::new(options.passthrough),
            names: options.names,
            attributes: options.attributes,
            space: Mutex::new(None),
        }
    }

    /// Runs `f` for the caller, first without supplementary groups.
    pub(crate) fn with_user<T>(
        &self,
        request: &Request,
        f: impl Fn(&User) -> Result<T>,
    ) -> Result<T> {
        let mut user = User {
            uid: request.uid(),
            gid: request.gid(),
            groups: Vec::new(),
        };
        match f(&user) {
            Err(e) if matches!(e.kind(), ErrorKind::Permission | ErrorKind::NotOwner) => {
                user.groups = groups(request.pid());
                if user.groups.is_empty() {
                    return Err(e);
                }
                f(&user)
            }
            done => done,
        }
    }

    pub(crate) fn node(&self, request: &Request, what: &NodeRequest) -> Result<NodeReply> {
        self.with_user(request, |user| self.client.node(user, what.clone()))
    }

    pub(crate) fn unexpected(&self, reply: NodeReply) -> Error {
        self.client.unexpected("mount", &MetaReply::Node(reply))
    }

    pub(crate) fn stat(
        &self,
        request: &Request,
        what: &NodeRequest,
    ) -> Result<(Attributes, Looked)> {
        self.client.look_by(|| self.node(request, what))
    }

    pub(crate) fn ttl(&self, attributes: &Attributes) -> Duration {
        match attributes.kind {
            NodeKind::File => self.attributes,
            NodeKind::Directory | NodeKind::Symlink => self.names,
        }
    }

    pub(crate) fn entry(&self, stat: Result<(Attributes, Looked)>, reply: ReplyEntry) {
        match stat {
            Ok((a, looked)) => {
                let attr = attributes(&a, &looked);
                reply.entry_with_ttls(&self.ttl(&a), &self.names, &attr, GENERATION);
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    /// A name whose file has no known length: only the name is cached.
    pub(crate) fn entry_without_length(&self, found: Result<NodeReply>, reply: ReplyEntry) {
        match found {
            Ok(NodeReply::Look { attributes: a, .. } | NodeReply::Node(a)) => {
                let attr = attributes(&a, &Looked::default());
                reply.entry_with_ttls(&Duration::ZERO, &self.names, &attr, GENERATION);
            }
            Ok(_) => reply.error(Errno::EIO),
            Err(e) => reply.error(errno(&e)),
        }
    }

    pub(crate) fn open_file(&self, handle: FileHandle) -> Result<Arc<Open>> {
        self.handles
            .file(handle.0)
            .ok_or_else(|| invalid("no such open file"))
    }

    /// Assigns a number to an open file, and decides whether the kernel or the daemon transfers its bytes.
    pub(crate) fn admit(
        &self,
        request: &Request,
        file: File,
        flags: i32,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> Result<(u64, Way)> {
        let id = file.id();
        let attributes = file.attributes();
        let wanted = Wanted {
            write: file.access().1,
            owner: request.uid() == 0 || (request.uid() == attributes.uid && !attributes.given),
            append: flags & libc::O_APPEND != 0,
        };
        let way = self.passthrough.open(&file, wanted, register);
        match self.handles.add_file(Open::new(file, way.clone())) {
            Ok(handle) => Ok((handle, way)),
            Err(e) => {
                self.passthrough.close(id, &way);
                Err(e)
            }
        }
    }

    /// Creates a file, or opens an existing one.
    pub(crate) fn created(
        &self,
        request: &Request,
        place: (FileId, &str),
        mode: u32,
        flags: i32,
    ) -> Result<(File, Attributes, Looked)> {
        let (read, write) = access(OpenFlags(flags));
        let exclusive = flags & libc::O_EXCL != 0;
        let options = CreateOptions {
            mode: mode & 0o7777,
            ..CreateOptions::default()
        };
        let file = self.with_user(request, |user| {
            self.client
                .create_node(user, place, options.clone(), (read, write), exclusive)
        })?;
        if file.created() {
            let a = file.attributes().clone();
            return Ok((file, a, Looked::default()));
        }
        if flags & libc::O_TRUNC != 0 && write {
            self.cut(request, &file)?;
        }
        let (a, looked) = self.stat(request, &NodeRequest::Look { id: file.id() })?;
        Ok((file, a, looked))
    }

    /// Handles a file that lost a name.
    pub(crate) fn gone(&self, reply: NodeReply) -> Result<()> {
        match reply {
            NodeReply::Unlinked {
                capability: Some(capability),
                ..
            } => self.client.remove_bytes(&capability),
            NodeReply::Unlinked {
                file: Some(file),
                capability: None,
            } if self.handles.is_removed(file) => self.reap(file),
            NodeReply::Unlinked { .. } | NodeReply::Done => {}
            other => return Err(self.unexpected(other)),
        }
        Ok(())
    }

    /// The last handle of an open-unlinked file is closed.
    pub(crate) fn reap(&self, file: FileId) {
        let reaped = self
            .leases
            .request(&User::default(), NodeRequest::Reap { id: file });
        match reaped {
            Ok(NodeReply::Unlinked {
                capability: Some(capability),
                ..
            }) => self.client.remove_bytes(&capability),
            Ok(_) => {}
            Err(e) => log::warn!("removed file {} stays until `penstock check`: {e}", file.0),
        }
    }

    /// A request that removes a name; the file is kept if anything is open.
    pub(crate) fn removing(
        &self,
        request: &Request,
        make: impl Fn(bool) -> NodeRequest,
    ) -> Result<()> {
        let keep = self.handles.any_open();
        let reply = self.with_user(request, |user| {
            if keep {
                self.leases.request(user, make(true))
            } else {
                self.client.node(user, make(false))
            }
        })?;
        self.gone(reply)?;
        if self.handles.any_removed() {
            self.locks.look_after();
        }
        Ok(())
    }

    /// A write by a user without the privilege clears the set-user-ID and set-group-ID bits.
    pub(crate) fn clear_set_id(&self, open: &Open) -> Result<()> {
        if !open.set_id.swap(false, Relaxed) {
            return Ok(());
        }
        let mode = open.file().attributes().mode & !0o6000;
        let change = Change {
            mode: Some(mode),
            ..Change::default()
        };
        let request = NodeRequest::SetAttr {
            id: open.node,
            change,
        };
        self.client.node(&User::default(), request).map(drop)
    }

    /// Truncates on open (O_TRUNC).
    pub(crate) fn cut(&self, request: &Request, file: &File) -> Result<()> {
        file.set_len(0)?;
        self.drop_set_id(request, file.id(), file.attributes().mode)
    }

    /// A truncation by a user without the privilege clears the set-user-ID and set-group-ID bits.
    pub(crate) fn drop_set_id(&self, request: &Request, id: FileId, mode: u32) -> Result<()> {
        if request.uid() == 0 || mode & 0o6000 == 0 {
            return Ok(());
        }
        let change = Change {
            mode: Some(mode & 0o7777 & !0o6000),
            ..Change::default()
        };
        let request = NodeRequest::SetAttr { id, change };
        self.client.node(&User::default(), request).map(drop)
    }

    pub(crate) fn truncate(
        &self,
        request: &Request,
        node: FileId,
        handle: Option<FileHandle>,
        len: u64,
    ) -> Result<()> {
        if i64::try_from(len).is_err() {
            return Err(invalid("a length beyond 2^63"));
        }
        let open = handle.and_then(|h| self.handles.file(h.0));
        if let Some(open) = open {
            match open.file().set_len(len) {
                // Opened for reading: truncate(2) by path makes its own request.
                Err(e) if e.kind() == ErrorKind::Permission => {}
                done => return done,
            }
        }
        let file = self.with_user(request, |user| {
            self.client.open_node(user, node, (false, true), false)
        })?;
        file.set_len(len)
    }

    pub(crate) fn set_layout(&self, request: &Request, node: FileId, value: &[u8]) -> Result<()> {
        let (a, looked) = self.stat(request, &NodeRequest::Look { id: node })?;
        if a.kind == NodeKind::File && (looked.len > 0 || self.passthrough.stays(node)) {
            return Err(Error::Local {
                what: format!("set {LAYOUT_XATTR} of node {}", node.0),
                kind: ErrorKind::Busy,
                detail: "it has bytes, or the kernel has it open; copy it to a new file".into(),
            });
        }
        let set = NodeRequest::SetXattr {
            id: node,
            name: LAYOUT_XATTR.into(),
            value: value.to_owned(),
            mode: XattrMode::Any,
        };
        match self.node(request, &set)? {
            NodeReply::Done => {}
            left => self.gone(left)?,
        }
        for open in self.handles.of(node) {
            let how = open.file().access();
            let again = self.client.open_node(&User::default(), node, how, false)?;
            open.replace(again);
        }
        Ok(())
    }

    pub(crate) fn space(&self) -> Result<Space> {
        let mut cached = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, space)) = *cached
            && at.elapsed() < SPACE
        {
            return Ok(space);
        }
        // Servers on one host that report the same total are on one file system.
        let mut seen = Vec::new();
        let mut space = (0, 0, self.client.meta_status()?.files);
        for (server, status) in self.client.data_status() {
            let status = status?;
            let known = self.client.deployment().server(server);
            let host = known.and_then(|s| s.address.tcp.as_deref()).unwrap_or("");
            let host = host
                .rsplit_once(':')
                .map_or("", |(host, _)| host)
                .to_owned();
            let place = (host, status.total_bytes);
            if !seen.contains(&place) {
                space.0 += status.total_bytes;
                space.1 += status.free_bytes;
                seen.push(place);
            }
        }
        *cached = Some((Instant::now(), space));
        Ok(space)
    }

    /// Lengths and times of listed entries; `None`: its servers did not answer.
    pub(crate) fn look_all(
        &self,
        user: &User,
        entries: &[(String, Attributes)],
    ) -> Vec<(Attributes, Option<Looked>)> {
        let requests: Vec<MetaRequest> = entries
            .iter()
            .filter(|(_, a)| a.kind == NodeKind::File)
            .map(|(_, a)| MetaRequest::Node {
                user: user.clone(),
                request: NodeRequest::Look { id: a.id },
            })
            .collect();
        let replies = if requests.is_empty() {
            Vec::new()
        } else {
            self.client.batch(requests).unwrap_or_default()
        };
        let capabilities: Vec<_> = replies
            .iter()
            .filter_map(|reply| match reply {
                MetaReply::Node(NodeReply::Look {
                    capability: Some(capability),
                    ..
                }) => Some(capability),
                _ => None,
            })
            .collect();
        let looked = self.client.look(&capabilities);
        let mut known: std::collections::HashMap<FileId, Looked> = capabilities
            .iter()
            .zip(looked)
            .filter_map(|(capability, looked)| Some((capability.file, looked.ok()?)))
            .collect();
        entries
            .iter()
            .map(|(_, a)| {
                let mut a = a.clone();
                let looked = match &a.target {
                    Some(target) => Some(Looked {
                        len: target.len() as u64,
                        ..Looked::default()
                    }),
                    None if a.kind == NodeKind::File => known.remove(&a.id),
                    None => Some(Looked::default()),
                };
                if let Some(looked) = &looked {
                    looked.complete(&mut a);
                }
                (a, looked)
            })
            .collect()
    }

    /// Calls `add` with entries of an open directory from a position on, until it is full.
    pub(crate) fn list(
        &self,
        handle: FileHandle,
        offset: u64,
        together: usize,
        mut add: impl FnMut(u64, &[(String, Attributes)]) -> Option<usize>,
    ) -> Result<()> {
        let listing = self
            .handles
            .directory(handle.0)
            .ok_or_else(|| invalid("no such open directory"))?;
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
        loop {
            let entries = listing.from(&self.client, at)?;
            let some = &entries[..entries.len().min(together)];
            if some.is_empty() {
                return Ok(());
            }
            // `None`: all fitted.
            match add(at as u64, some) {
                None => at += some.len(),
                Some(_) => return Ok(()),
            }
        }
    }
}
