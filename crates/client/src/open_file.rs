//! An open file: its state, its capability and handles, and calls to all its servers.
use crate::client::Client;
use crate::connection_pool::ConnectionPool;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::grant::Shortcut;
use crate::guard::guard;
use crate::held_lock::HeldLock;
use crate::link::{Attachment, Link, OpenAs};
use crate::retry::{Next, Retry};
use crate::stats::Counters;
use crate::unsynced::{Note, Taken};
use penstock_datatype::Pattern;
use penstock_host::fs::start_writeback;
use penstock_host::sync::Mutex;
use penstock_host::thread::sleep;
use penstock_host::time::now;
use penstock_layout::{FileId, Layout, ServerIndex};
use penstock_store::Object;
use penstock_trace::{Layer, Operation, sink};
use penstock_wire::message::{
    Attributes, Capability, DataReply, DataRequest, ErrorKind, Handle, MetaReply, MetaRequest,
    NodeReply, NodeRequest, TraceContext, User,
};
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What the clones of a [`crate::File`] share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub client: Client,
    pub path: String,
    pub origin: Origin,
    pub id: FileId,
    pub layout: Arc<Layout>,
    /// The servers of the layout, in its order.
    pub sites: Vec<Arc<ConnectionPool>>,
    pub locks: Mutex<Vec<Arc<HeldLock>>>,
    pub shortcuts: Vec<Mutex<Shortcut>>,
    pub attributes: Attributes,
    pub created: bool,
    pub read: bool,
    pub write: bool,
    capability: Mutex<Lasting>,
    /// For each server, the record of unsynced writes to the file, shared by all handles of this client.
    pub notes: Vec<Arc<Note>>,
    /// Losses that were reported to this handle, or were known before it.
    pub told: Vec<AtomicU32>,
    /// A kernel writes by this handle.
    pub written_by_kernel: AtomicBool,
    pub counters: Counters,
    /// Its number in this process's trace.
    traced: OnceLock<u32>,
    /// What was attached for this file lasts as long as this does.
    open: Arc<()>,
}

const ATTACH: &str = "attach";

/// A file on its way to a handle on a connection.
#[derive(Debug)]
pub(crate) enum Attaching {
    Done(Handle),
    Asked {
        /// Number of the request.
        id: u64,
        /// Of the capability that was sent.
        expires_ms: u64,
        ends: Option<Instant>,
        /// It was sent in place of an expired one.
        renewed: bool,
    },
}

/// How a file was opened, and can be again.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Path,
    /// By id, for a user of whoever acts for others.
    Node(User),
}

/// A capability and its end, counted from its arrival: this machine's wall clock may be wrong, and servers judge by the
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

impl OpenFile {
    /// A call on this file begins; `None`: it is not recorded.
    #[inline(always)]
    pub fn begin_call(&self, operation: Operation) -> Option<sink::Call> {
        let mut call = sink::Call::begin(Layer::Client, operation)?;
        let number = self.traced.get_or_init(|| {
            call.about(&self.path, self.id.0);
            call.file()
        });
        call.about_number(*number);
        Some(call)
    }

    /// A file that the metadata server has opened for (reading, writing).
    pub fn new(
        client: &Client,
        path: String,
        rights: (bool, bool),
        attributes: Attributes,
        capability: Capability,
        created: bool,
        origin: Origin,
    ) -> Result<OpenFile> {
        let layout = Arc::new(capability.layout.clone());
        let sites = client.sites(&layout)?;
        let n = sites.len();
        let notes = client.notes().open(attributes.id, &layout.servers);
        Ok(OpenFile {
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
            read: rights.0,
            write: rights.1,
            capability: Mutex::new(Lasting::new(capability)),
            told: notes.iter().map(|n| AtomicU32::new(n.losses())).collect(),
            notes,
            written_by_kernel: AtomicBool::new(false),
            counters: Counters::default(),
            traced: OnceLock::new(),
            open: Arc::default(),
        })
    }

    /// The same open file with the same rights, and locks of its own.
    pub fn beside(&self) -> Result<OpenFile> {
        let lasting = guard(&self.capability).clone();
        let mut beside = OpenFile::new(
            &self.client,
            self.path.clone(),
            (self.read, self.write),
            self.attributes.clone(),
            lasting.capability.clone(),
            false,
            self.origin.clone(),
        )?;
        beside.capability = Mutex::new(lasting);
        Ok(beside)
    }

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
            detail: "the file was not opened for this access".into(),
        })
    }

    /// The held lock that an access carries.
    pub fn held(&self, access: &Pattern) -> Option<Arc<HeldLock>> {
        let locks = guard(&self.locks);
        if locks.len() <= 1 {
            return locks.first().cloned();
        }
        let (lo, hi) = access.bounds();
        let overlaps = |held: &&Arc<HeldLock>| {
            lo < i64::try_from(held.range.end).unwrap_or(i64::MAX)
                && i64::try_from(held.range.start).unwrap_or(i64::MAX) < hi
        };
        locks.iter().rev().find(overlaps).cloned()
    }

    // ---- capability and handles ----

    /// The user whose processes may get descriptors of the file.
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
                // As the user: quotas apply to the user, and not to root.
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
                let gone = "no file has this name any more: since it was opened the file was renamed or removed, or its name was lost with the metadata server's host";
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
        let begun = self.begin_attach(link, trace)?;
        self.end_attach(link, trace, begun)
    }

    /// The same after the server has called the capability expired.
    pub fn attach_again(
        &self,
        link: &mut Link,
        trace: TraceContext,
    ) -> std::result::Result<Handle, Fault> {
        let begun = self.begin_attach_again(link, trace)?;
        self.end_attach(link, trace, begun)
    }

    /// The incarnation that takes this file's writes on a connection on which it is open.
    pub fn taken(&self, link: &Link) -> Taken {
        link.attached.get(&self.open_as()).map_or(0, |at| at.taken)
    }

    /// Sends the capability, unless the file is attached. Several servers can be asked before one answers.
    pub fn begin_attach(
        &self,
        link: &mut Link,
        trace: TraceContext,
    ) -> std::result::Result<Attaching, Fault> {
        match link.attached.get(&self.open_as()) {
            Some(at) if !ended(at.ends) => Ok(Attaching::Done(at.handle)),
            _ => self.present(link, trace, None),
        }
    }

    fn begin_attach_again(
        &self,
        link: &mut Link,
        trace: TraceContext,
    ) -> std::result::Result<Attaching, Fault> {
        let stale = link.attached.get(&self.open_as()).map(|at| at.expires_ms);
        self.present(link, trace, stale)
    }

    /// Sends a capability that ends later than `stale`.
    fn present(
        &self,
        link: &mut Link,
        trace: TraceContext,
        stale: Option<u64>,
    ) -> std::result::Result<Attaching, Fault> {
        let (capability, ends) = self.capability(stale)?;
        let expires_ms = capability.expires_ms;
        let id = link.ask(ATTACH, trace, &DataRequest::Attach { capability })?;
        Ok(Attaching::Asked {
            id,
            expires_ms,
            ends,
            renewed: stale.is_some(),
        })
    }

    /// Takes the answer. A capability that has expired meanwhile is renewed once.
    pub fn end_attach(
        &self,
        link: &mut Link,
        trace: TraceContext,
        mut begun: Attaching,
    ) -> std::result::Result<Handle, Fault> {
        loop {
            let (id, expires_ms, ends, renewed) = match begun {
                Attaching::Done(handle) => return Ok(handle),
                Attaching::Asked {
                    id,
                    expires_ms,
                    ends,
                    renewed,
                } => (id, expires_ms, ends, renewed),
            };
            match link.answer(ATTACH, id)? {
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
                DataReply::Error(e) if e.kind == ErrorKind::ExpiredCapability && !renewed => {
                    begun = self.present(link, trace, Some(expires_ms))?;
                }
                other => return Err(link.server.unexpected(ATTACH, other)),
            }
        }
    }

    // ---- calls to all servers ----

    /// One request to each server, all at once, after the file was attached at all at once. Lost connections are made again until the retry limit. `writes`: what
    /// is done must be synced.
    pub fn call_each(
        &self,
        operation: &'static str,
        trace: TraceContext,
        writes: bool,
        make: impl Fn(ServerIndex, Handle) -> DataRequest,
    ) -> Result<Vec<DataReply>> {
        self.call_some(operation, trace, writes, |_| true, make)
    }

    /// The same to those servers that are wanted; their answers in their order.
    pub fn call_some(
        &self,
        operation: &'static str,
        trace: TraceContext,
        writes: bool,
        wanted: impl Fn(ServerIndex) -> bool,
        make: impl Fn(ServerIndex, Handle) -> DataRequest,
    ) -> Result<Vec<DataReply>> {
        let mut replies: Vec<Option<DataReply>> = self.sites.iter().map(|_| None).collect();
        let mut retry = Retry::new(self.client.backoff());
        let mut stale = false;
        loop {
            let mut away = None;
            let mut refused = None;
            let mut attaching = Vec::new();
            let mut asked = Vec::new();
            for i in (0..self.sites.len()).filter(|&i| replies[i].is_none()) {
                let begin = || -> std::result::Result<_, Fault> {
                    let mut link = self.sites[i].connect(operation)?;
                    let begun = if stale {
                        self.begin_attach_again(&mut link, trace)?
                    } else {
                        self.begin_attach(&mut link, trace)?
                    };
                    Ok((link, begun))
                };
                match begin() {
                    Ok((link, begun)) => attaching.push((i, link, begun)),
                    Err(Fault::Away(detail)) => away = Some((i, detail)),
                    Err(Fault::Final(e)) => refused = Some(e),
                }
            }
            for (i, mut link, begun) in attaching {
                let server = ServerIndex(i as u32);
                if !wanted(server) {
                    continue;
                }
                let ask = || -> std::result::Result<(Link, u64, Taken), Fault> {
                    let handle = self.end_attach(&mut link, trace, begun)?;
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

    /// The file length that these object lengths imply.
    pub fn len_of(&self, lens: &[u64]) -> u64 {
        (0..)
            .map(ServerIndex)
            .zip(lens)
            .map(|(i, &len)| self.layout.file_len(i, len))
            .max()
            .unwrap_or(0)
    }

    // ---- writes by descriptors ----

    /// Starts write-back of every `parts`-th object from `part` on.
    pub fn start_writeback(&self, part: usize, parts: usize) {
        for shortcut in self.shortcuts.iter().skip(part).step_by(parts.max(1)) {
            if let Some(grant) = guard(shortcut).at_hand() {
                grant.operate(|object| object.mappable().map(|file| start_writeback(file.fd())));
            }
        }
    }
}

impl Drop for OpenFile {
    /// Closes the file at the servers, so that an open-unlinked file's space is freed. Where that fails, it is closed
    /// with the connection.
    fn drop(&mut self) {
        for (site, shortcut) in self.sites.iter().zip(&self.shortcuts) {
            if !guard(shortcut).quiesce() {
                log::warn!("{}: a shortcut at {} is still in use", self.path, site.peer);
            }
        }
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
