//! An open file: accesses and length.
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::guard::guard;
use crate::lean;
use crate::link::{Attachment, Link, OpenAs};
use crate::lock::Held;
use crate::memory::Memory;
use crate::retry::{Next, Retry};
use crate::shortcut::Shortcut;
use crate::site::Site;
use crate::stats::{Counters, Form, Stats};
use crate::sync::Behind;
use crate::unsynced::{Note, Taken};
use penstock_datatype::{Pattern, Source, Target};
use penstock_host::sync::Mutex;
use penstock_host::thread::sleep;
use penstock_host::time::now;
use penstock_layout::{FileId, Layout, ServerIndex};
use penstock_wire::message::{
    Attributes, Capability, CreateOptions, DataReply, DataRequest, ErrorKind, Handle, MetaReply,
    MetaRequest, NodeReply, NodeRequest, TraceContext, User,
};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Instant;

/// How to open a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Reading is wanted.
    pub read: bool,
    /// Writing is wanted.
    pub write: bool,
    /// Create it if it does not exist, like this.
    pub create: Option<CreateOptions>,
    /// With `create`: it must not exist.
    pub exclusive: bool,
}

impl OpenOptions {
    /// For reading only.
    pub fn read() -> OpenOptions {
        OpenOptions {
            read: true,
            ..OpenOptions::default()
        }
    }

    /// For reading and writing; created with the deployment's defaults if it does not exist.
    pub fn read_write_create() -> OpenOptions {
        OpenOptions {
            read: true,
            write: true,
            create: Some(CreateOptions {
                mode: 0o644,
                ..CreateOptions::default()
            }),
            exclusive: false,
        }
    }
}

/// An open file. Cheap to clone; usable by several threads at once.
#[derive(Debug, Clone)]
pub struct File(pub(crate) Arc<FileInner>);

#[derive(Debug)]
pub(crate) struct FileInner {
    pub client: Client,
    pub path: String,
    origin: Origin,
    pub id: FileId,
    pub layout: Arc<Layout>,
    /// The servers of the layout, in its order.
    pub sites: Vec<Arc<Site>>,
    pub locks: Mutex<Vec<Arc<Held>>>,
    pub shortcuts: Vec<Mutex<Shortcut>>,
    attributes: Attributes,
    created: bool,
    read: bool,
    pub write: bool,
    capability: Mutex<Lasting>,
    /// What of the file each server has taken that no sync has covered, shared by all handles of this client.
    pub notes: Vec<Arc<Note>>,
    /// Losses that this handle has been told of, or that were known before it.
    pub told: Vec<AtomicU32>,
    /// A kernel writes by this handle.
    pub written_by_kernel: AtomicBool,
    pub behind: Behind,
    counters: Counters,
    /// What was attached for this file lasts as long as this does.
    open: Arc<()>,
}

/// How a file was opened, and can be again.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Path,
    /// By id, for a user of whoever acts for others.
    Node(User),
}

/// What a direct access did.
pub(crate) struct Done {
    pub bytes: u64,
    /// The object ended: bytes are missing from this stream position on.
    pub short: Option<u64>,
}

/// A capability and when it ends, counted from its arrival: this machine's wall clock may be wrong, and servers judge by the
/// metadata server's time.
#[derive(Debug, Clone)]
struct Lasting {
    capability: Capability,
    ends: Option<Instant>,
}

impl Lasting {
    fn new(capability: Capability) -> Lasting {
        let ends = now().checked_add(capability.lifetime());
        Lasting { capability, ends }
    }
}

fn ended(ends: Option<Instant>) -> bool {
    ends.is_some_and(|ends| ends <= now())
}

impl Client {
    /// Opens a file, creating it if `how` says so.
    pub fn open(&self, path: &str, how: &OpenOptions) -> Result<File> {
        File::open(self, path, how)
    }
}

impl File {
    pub(crate) fn open(client: &Client, path: &str, how: &OpenOptions) -> Result<File> {
        let path = crate::path::normalise(path)?;
        let reply = client.meta(
            "open",
            &MetaRequest::Open {
                path: path.clone(),
                read: how.read,
                write: how.write,
                create: how.create.clone(),
                exclusive: how.exclusive,
            },
        )?;
        let MetaReply::Opened {
            attributes,
            capability,
            created,
        } = reply
        else {
            return Err(client.meta_protocol("open", &reply));
        };
        File::of(
            client,
            path,
            how,
            attributes,
            capability,
            created,
            Origin::Path,
        )
    }

    /// A file that the metadata server has opened.
    pub(crate) fn of(
        client: &Client,
        path: String,
        how: &OpenOptions,
        attributes: Attributes,
        capability: Capability,
        created: bool,
        origin: Origin,
    ) -> Result<File> {
        let layout = Arc::new(capability.layout.clone());
        let sites = client.sites(&layout)?;
        let n = sites.len();
        let notes = client.notes().open(attributes.id, &layout.servers);
        Ok(File(Arc::new(FileInner {
            client: client.clone(),
            path,
            origin,
            id: attributes.id,
            layout,
            sites,
            locks: Mutex::new(Vec::new()),
            shortcuts: (0..n).map(|_| Mutex::new(Shortcut::default())).collect(),
            attributes,
            created,
            read: how.read,
            write: how.write,
            capability: Mutex::new(Lasting::new(capability)),
            behind: Behind::default(),
            told: notes.iter().map(|n| AtomicU32::new(n.losses())).collect(),
            notes,
            written_by_kernel: AtomicBool::new(false),
            counters: Counters::default(),
            open: Arc::default(),
        })))
    }

    /// The same open file with the same rights, and locks of its own.
    pub fn beside(&self) -> Result<File> {
        let this = &*self.0;
        let lasting = guard(&this.capability).clone();
        let how = OpenOptions {
            read: this.read,
            write: this.write,
            ..OpenOptions::default()
        };
        let file = File::of(
            &this.client,
            this.path.clone(),
            &how,
            this.attributes.clone(),
            lasting.capability.clone(),
            false,
            this.origin.clone(),
        )?;
        *guard(&file.0.capability) = lasting;
        Ok(file)
    }

    /// How it is striped, and over which servers.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Its normalised path at open.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Its id, unique in the deployment for ever.
    pub fn id(&self) -> FileId {
        self.0.id
    }

    /// Its attributes at open.
    pub fn attributes(&self) -> &Attributes {
        &self.0.attributes
    }

    /// Whether it is open for reading, and for writing.
    pub fn access(&self) -> (bool, bool) {
        (self.0.read, self.0.write)
    }

    /// Whether the open created it.
    pub fn created(&self) -> bool {
        self.0.created
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// What has been done through this file.
    pub fn stats(&self) -> Stats {
        self.0.counters.read()
    }

    /// Whether [`Form::Shortcut`] would use descriptors on every server now.
    pub fn has_shortcut(&self) -> bool {
        let trace = self.0.client.trace();
        guard(&self.0.locks).is_empty()
            && (0..self.0.sites.len()).all(|i| self.0.grant(ServerIndex(i as u32), trace).is_some())
    }

    /// Reads `access` into `into`: one file system operation. Returns the stream bytes before the end
    /// of the file (before the first that lies behind it); their holes read as zeros. The memory of
    /// the others is left alone. (Where offsets do not ascend along the stream, each request counts for
    /// itself, and memory behind the end may be changed.)
    pub fn read(&self, access: &Pattern, form: Form, into: &mut Target<'_>) -> Result<u64> {
        if let Some(offset) = lean::start_of(access, form, into.pattern()) {
            let mut done = false;
            into.pieces(0, access.len, |memory| {
                done = self.read_lean(offset, memory);
            });
            if done {
                return Ok(access.len);
            }
        }
        self.read_each(&mut iter::once((0, access.clone())), form, into)
    }

    /// Writes `access` from `from`: one file system operation. Returns the stream bytes written,
    /// which is all of them.
    pub fn write(&self, access: &Pattern, form: Form, from: &mut Source<'_>) -> Result<u64> {
        if let Some(offset) = lean::start_of(access, form, from.pattern()) {
            let mut done = false;
            from.pieces(0, access.len, |memory| {
                done = self.write_lean(offset, memory);
            });
            if done {
                return Ok(access.len);
            }
        }
        self.write_each(&mut iter::once((0, access.clone())), form, from)
    }

    /// Many reads kept in flight, each (position in the memory side's stream, file pattern). Returns
    /// the sum of what [`File::read`] would return for each.
    pub fn read_each(
        &self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
        form: Form,
        into: &mut Target<'_>,
    ) -> Result<u64> {
        self.0.may("read", self.0.read)?;
        self.each(accesses, form, Memory::Into(into))
    }

    /// Many writes kept in flight, each (position in the memory side's stream, file pattern). Where
    /// they overlap, each byte ends as one of the written values.
    pub fn write_each(
        &self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
        form: Form,
        from: &mut Source<'_>,
    ) -> Result<u64> {
        self.0.may("write", self.0.write)?;
        self.each(accesses, form, Memory::From(from))
    }

    fn each(
        &self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
        form: Form,
        memory: Memory<'_, '_>,
    ) -> Result<u64> {
        let file = &*self.0;
        let mut first = accesses.next();
        let held = first.as_ref().and_then(|(_, access)| file.held(access));
        let mut all = iter::from_fn(|| first.take().or_else(|| accesses.next()));
        let trace = file.client.trace();
        // Under a lock the connections are the lock's own, so nothing is taken from other calls, and a
        // call that waits for the lock cannot keep its holder from going on.
        let (_busy, _permit) = match &held {
            Some(held) => (Some(held.enter()), None),
            None => (None, Some(file.client.permit()?)),
        };
        Exchange::new(file, held.as_deref(), form, memory, trace).run(&mut all)
    }

    /// Length in bytes: the furthest that any server's object proves.
    pub fn len(&self) -> Result<u64> {
        let _permit = self.0.client.permit()?;
        let lens = self.0.object_lens(self.0.client.trace())?;
        Ok(self.0.len_of(&lens))
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends (with a hole) to `len` bytes. A file that is shorter when this begins is not cut, whoever writes
    /// behind `len` meanwhile.
    pub fn set_len(&self, len: u64) -> Result<()> {
        let file = &*self.0;
        file.may("set the length", file.write)?;
        let trace = file.client.trace();
        // To nothing is always a cut.
        let longer = len > 0 && {
            let _permit = file.client.permit()?;
            file.len_of(&file.object_lens(trace)?) < len
        };
        if longer {
            return self.extend(len);
        }
        let _permit = file.client.permit()?;
        let replies = file.call_each("set the length", trace, true, |i, handle| {
            DataRequest::SetLen {
                handle,
                len: file.layout.object_len(len, i),
            }
        })?;
        file.all_done("set the length", replies)
    }

    /// Makes the file at least `len` bytes long (with a hole). Nothing is cut off, whoever else writes or extends.
    pub fn extend(&self, len: u64) -> Result<()> {
        let file = &*self.0;
        file.may("extend", file.write)?;
        let _permit = file.client.permit()?;
        let replies = file.call_each("extend", file.client.trace(), true, |i, handle| {
            DataRequest::Extend {
                handle,
                len: file.layout.object_len(len, i),
            }
        })?;
        file.all_done("extend", replies)
    }

    /// A fresh look at the attributes of the file's path.
    pub fn refresh(&self) -> Result<Attributes> {
        self.0.client.attributes(&self.0.path)
    }
}

impl FileInner {
    pub fn open_as(&self) -> OpenAs {
        (self.id, self.read, self.write)
    }

    pub fn counters(&self) -> [&Counters; 2] {
        [&self.counters, self.client.counters()]
    }

    pub fn may(&self, what: &str, allowed: bool) -> Result<()> {
        if allowed {
            return Ok(());
        }
        Err(Error::Local {
            what: format!("{what} {}", self.path),
            kind: ErrorKind::Permission,
            detail: "the file was not opened for that".into(),
        })
    }

    /// The held lock that an access carries.
    fn held(&self, access: &Pattern) -> Option<Arc<Held>> {
        let locks = guard(&self.locks);
        if locks.len() <= 1 {
            return locks.first().cloned();
        }
        let (lo, hi) = access.bounds();
        let overlaps = |held: &&Arc<Held>| {
            lo < i64::try_from(held.range.end).unwrap_or(i64::MAX)
                && i64::try_from(held.range.start).unwrap_or(i64::MAX) < hi
        };
        locks.iter().rev().find(overlaps).cloned()
    }

    // ---- capability and handles ----

    /// Whose processes get descriptors of the file.
    pub(crate) fn lend_to(&self) -> Option<u32> {
        guard(&self.capability).capability.lend_to
    }

    /// A capability that has not ended, other than the one that ends at `stale`.
    fn capability(&self, stale: Option<u64>) -> Result<(Capability, Option<Instant>)> {
        let mut held = guard(&self.capability);
        if ended(held.ends) || stale == Some(held.capability.expires_ms) {
            *held = Lasting::new(self.renew()?);
        }
        Ok((held.capability.clone(), held.ends))
    }

    fn renew(&self) -> Result<Capability> {
        const RENEW: &str = "renew a capability";
        let renew = MetaRequest::Renew {
            file: self.id,
            read: self.read,
            write: self.write,
        };
        match self.client.meta(RENEW, &renew) {
            Ok(MetaReply::Renewed { capability }) => return Ok(capability),
            Ok(other) => return Err(self.client.meta_protocol(RENEW, &other)),
            // Opened over another connection: permissions must be looked at again.
            Err(e) if e.kind() == ErrorKind::BadCapability => {}
            Err(e) => return Err(e),
        }
        if let Origin::Node(user) = &self.origin {
            let request = NodeRequest::Open {
                id: self.id,
                read: self.read,
                write: self.write,
                execute: false,
            };
            let opened = match self.client.node(user, request.clone()) {
                // Whether its user may was found out when it was opened; as everywhere, the open file stays usable.
                Err(e) if e.kind() == ErrorKind::Permission => {
                    self.client.node(&User::default(), request)?
                }
                // As the user: limits hold the user, and not root.
                opened => opened?,
            };
            return match opened {
                NodeReply::Opened { capability, .. } => Ok(capability),
                other => Err(self.client.meta_protocol(RENEW, &MetaReply::Node(other))),
            };
        }
        let open = MetaRequest::Open {
            path: self.path.clone(),
            read: self.read,
            write: self.write,
            create: None,
            exclusive: false,
        };
        let changed = |kind, detail: &str| Error::Local {
            what: format!("{RENEW} for {}", self.path),
            kind,
            detail: format!("{detail}; open the file again"),
        };
        match self.client.meta(RENEW, &open) {
            Ok(MetaReply::Opened { capability, .. }) if capability.file == self.id => {
                Ok(capability)
            }
            Ok(MetaReply::Opened { .. }) => {
                let now = "another file has this name now";
                Err(changed(ErrorKind::ExpiredCapability, now))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let gone = "nothing has this name any more: since it was opened the file was renamed or removed, or its \
                            name was lost with the metadata server's host";
                Err(changed(ErrorKind::NotFound, gone))
            }
            Ok(other) => Err(self.client.meta_protocol(RENEW, &other)),
            Err(e) => Err(e),
        }
    }

    /// The file's handle on this connection.
    pub fn attach(
        &self,
        link: &mut Link,
        trace: TraceContext,
    ) -> std::result::Result<Handle, Fault> {
        match link.attached.get(&self.open_as()) {
            Some(at) if !ended(at.ends) => Ok(at.handle),
            _ => self.present(link, trace, None),
        }
    }

    /// The same after the server has called the capability expired.
    pub fn attach_again(
        &self,
        link: &mut Link,
        trace: TraceContext,
    ) -> std::result::Result<Handle, Fault> {
        let stale = link.attached.get(&self.open_as()).map(|at| at.expires_ms);
        self.present(link, trace, stale)
    }

    /// The incarnation that takes this file's writes on a connection on which it is open.
    pub fn taken(&self, link: &Link) -> Taken {
        link.attached.get(&self.open_as()).map_or(0, |at| at.taken)
    }

    fn present(
        &self,
        link: &mut Link,
        trace: TraceContext,
        mut stale: Option<u64>,
    ) -> std::result::Result<Handle, Fault> {
        loop {
            let (capability, ends) = self.capability(stale)?;
            let expires_ms = capability.expires_ms;
            match link.call("attach", trace, &DataRequest::Attach { capability })? {
                DataReply::Attached {
                    handle,
                    incarnation,
                } => {
                    let taken = link.server.incarnations.of(incarnation);
                    let at = Attachment {
                        handle,
                        expires_ms,
                        ends,
                        taken,
                        open: Arc::downgrade(&self.open),
                    };
                    link.attached.insert(self.open_as(), at);
                    return Ok(handle);
                }
                DataReply::Error(e)
                    if e.kind == ErrorKind::ExpiredCapability && stale.is_none() =>
                {
                    stale = Some(expires_ms);
                }
                other => return Err(link.server.unexpected("attach", other)),
            }
        }
    }

    // ---- calls to all servers ----

    /// One request to each server, all at once; lost connections are made again until the retry limit. `writes`: what is
    /// done has to be synced.
    pub fn call_each(
        &self,
        operation: &'static str,
        trace: TraceContext,
        writes: bool,
        make: impl Fn(ServerIndex, Handle) -> DataRequest,
    ) -> Result<Vec<DataReply>> {
        let mut replies: Vec<Option<DataReply>> = self.sites.iter().map(|_| None).collect();
        let mut retry = Retry::new(self.client.backoff());
        let mut stale = false;
        loop {
            let mut away = None;
            let mut refused = None;
            let mut asked = Vec::new();
            for i in (0..self.sites.len()).filter(|&i| replies[i].is_none()) {
                let server = ServerIndex(i as u32);
                let ask = || -> std::result::Result<(Link, u64, Taken), Fault> {
                    let mut link = self.sites[i].connect(operation)?;
                    let handle = if stale {
                        self.attach_again(&mut link, trace)?
                    } else {
                        self.attach(&mut link, trace)?
                    };
                    let id = link.ask(operation, trace, &make(server, handle))?;
                    let taken = self.taken(&link);
                    Ok((link, id, taken))
                };
                match ask() {
                    Ok((link, id, taken)) => asked.push((i, link, id, taken)),
                    Err(Fault::Away(detail)) => away = Some((i, detail)),
                    Err(Fault::Final(e)) => refused = Some(e),
                }
            }
            let mut expired = false;
            // All answers are taken even after a refusal: the connections stay usable.
            for (i, mut link, id, taken) in asked {
                match link.answer::<DataReply>(operation, id) {
                    Ok(DataReply::Error(e)) if e.kind == ErrorKind::ExpiredCapability && !stale => {
                        expired = true;
                        self.sites[i].put(link);
                    }
                    Ok(DataReply::Error(e)) => {
                        match self.sites[i].unexpected(operation, DataReply::Error(e)) {
                            Fault::Away(detail) => away = Some((i, detail)),
                            Fault::Final(e) => {
                                refused = Some(e);
                                self.sites[i].put(link);
                            }
                        }
                    }
                    Ok(reply) => {
                        if writes {
                            self.notes[i].wrote(taken, 0);
                        }
                        replies[i] = Some(reply);
                        self.sites[i].put(link);
                    }
                    Err(Fault::Away(detail)) => away = Some((i, detail)),
                    Err(Fault::Final(e)) => refused = Some(e),
                }
            }
            if let Some(e) = refused {
                return Err(e);
            }
            stale = expired;
            if let Some((i, detail)) = away {
                let site = &self.sites[i];
                site.lost();
                match retry.failed(now()) {
                    Next::TryAt(at) => {
                        sleep(at.saturating_duration_since(now()));
                    }
                    Next::GiveUp { tried } => {
                        return Err(Error::Unreachable {
                            peer: site.peer.clone(),
                            operation,
                            detail,
                            tried,
                        });
                    }
                }
            } else if !expired {
                return Ok(replies.into_iter().flatten().collect());
            }
        }
    }

    pub fn all_done(&self, operation: &'static str, replies: Vec<DataReply>) -> Result<()> {
        for (site, reply) in self.sites.iter().zip(replies) {
            if reply != DataReply::Done {
                return Err(site
                    .unexpected(operation, reply)
                    .into_final(&site.peer, operation));
            }
        }
        Ok(())
    }

    /// Object length at each server.
    pub fn object_lens(&self, trace: TraceContext) -> Result<Vec<u64>> {
        let replies = self.call_each("length", trace, false, |_, handle| DataRequest::Len {
            handle,
        })?;
        self.sites
            .iter()
            .zip(replies)
            .map(|(site, reply)| match reply {
                DataReply::Len { len } => Ok(len),
                other => Err(site
                    .unexpected("length", other)
                    .into_final(&site.peer, "length")),
            })
            .collect()
    }

    /// The file length that these object lengths prove.
    pub fn len_of(&self, lens: &[u64]) -> u64 {
        (0..)
            .map(ServerIndex)
            .zip(lens)
            .map(|(i, &len)| self.layout.file_len(i, len))
            .max()
            .unwrap_or(0)
    }
}

impl Drop for FileInner {
    /// Closes the file at the servers, so that a removed file's space is not kept. Where that fails, it
    /// is closed with the connection.
    fn drop(&mut self) {
        self.quiesce_grants();
        if *self.written_by_kernel.get_mut() {
            self.notes.iter().for_each(|note| note.lend(false));
        }
        let notes = std::mem::take(&mut self.notes);
        self.client
            .notes()
            .close(self.id, &self.layout.servers, notes);
        // From here on its attachments are void. Connections that are in use close them when they come back.
        self.open = Arc::default();
        for site in &self.sites {
            site.closed();
            site.close_left_by_grants();
        }
        let Some(_permit) = self.client.permit_soon() else {
            return;
        };
        for site in &self.sites {
            let left: Vec<_> = iter::from_fn(|| site.take_closed(self.open_as())).collect();
            left.into_iter().for_each(|link| site.put(link));
        }
    }
}
