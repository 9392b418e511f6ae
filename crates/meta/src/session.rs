//! One connection: its caller, open files and counters, and the answers to its requests.
mod programs;
mod quota;

use crate::access::Caller;
use crate::audited::Audited;
use crate::control::Control;
use crate::counters::ConnectionId;
use crate::engine::Engine;
use crate::error::{Result, error};
use crate::issue::{Issue, wall_ms};
use crate::keys::Keys;
use crate::namespace::{Change, How, When, attributes_size};
use crate::nodes::Outcome;
use crate::recent::Recent;
use crate::registry::{self, Registry};
use crate::removal::{Gone, Removed};
use crate::revoked;
use crate::slots::{Once, Owner};
use crate::stores::Stores;
use crate::task_writers::TaskWriters;
use penstock_host::sync::Mutex;
use penstock_layout::{FileId, Layout, ServerId};
use penstock_rpc::Audit;
use penstock_wire::Rights;
use penstock_wire::message::{
    Attributes, Capability, ErrorKind, MAX_BATCH, MAX_BODY, MAX_TARGET, MAX_UNLOCK_WAIT_MS,
    MAX_XATTR_VALUE, MAX_XATTRS, MetaReply, MetaRequest, MetaStatus, NOBODY, NodeReply,
    NodeRequest, SEAL_LEN, User, WireError,
};
use penstock_wire::revocation::MAX_REVOCATIONS;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub use programs::Program;

/// Files of one connection whose capabilities can be renewed; beyond it, the least recently used must be opened again.
const OPEN_FILES: usize = 1 << 16;
/// Most bytes of one encoded revocation.
const REVOCATION: usize = 40;
/// Bytes of a reply reserved for uncounted parts, and for a refusal of each request of a batch.
const SPARE: usize = 4096;
const REFUSAL: usize = 48;
/// Most bytes of any reply except a page or a successful open: an error with two paths in it.
const SMALL: usize = 2560;

/// Shared by all sessions.
pub struct Granting {
    pub engine: Engine,
    pub stores: Stores,
    pub keys: Keys,
    pub issue: Issue,
    pub revoked: revoked::List,
    pub audit: Arc<Audit>,
    pub registry: Mutex<Registry>,
    pub steps: Mutex<TaskWriters>,
    pub control: Control,
    /// Life of a capability.
    pub lifetime: Duration,
    /// Number of sessions.
    pub connections: AtomicU64,
}

pub struct Session {
    shared: Arc<Granting>,
    caller: Caller,
    /// The user that capabilities are issued for, unless the peer acts for another.
    subject: u32,
    id: ConnectionId,
    audited: Audited,
    /// The program that it claims to be part of, and the user charged for its resources.
    program: programs::Program,
    /// Open files with the mode in which they were opened.
    open: Recent<FileId, Opened>,
}

/// How a file was opened on a connection.
#[derive(Debug, Clone, Copy)]
struct Opened {
    read: bool,
    write: bool,
    /// The user of the last open.
    subject: u32,
}

/// A reply, and whether it must wait until everything so far is durable.
struct Answer {
    reply: MetaReply,
    durable: bool,
}

impl From<MetaReply> for Answer {
    fn from(reply: MetaReply) -> Answer {
        Answer {
            reply,
            durable: false,
        }
    }
}

impl Session {
    pub fn new(
        shared: Arc<Granting>,
        caller: Caller,
        subject: u32,
        id: ConnectionId,
        audited: Audited,
        program: programs::Program,
    ) -> Session {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Session {
            shared,
            caller,
            subject,
            id,
            audited,
            program,
            open: Recent::new(OPEN_FILES),
        }
    }

    /// Answers one request; may wait for a commit.
    pub fn answer(&mut self, request: MetaRequest) -> MetaReply {
        let answer = match request {
            MetaRequest::Batch(requests) => self.batch(requests),
            request => self.single(request, MAX_BODY - SPARE),
        };
        if !answer.durable {
            return answer.reply;
        }
        match self.shared.engine.sync() {
            Ok(()) => answer.reply,
            Err(e) => MetaReply::Error(e),
        }
    }

    /// Carries out the requests in order; those that need durability share one commit.
    fn batch(&mut self, requests: Vec<MetaRequest>) -> Answer {
        let count = requests.len();
        if count > MAX_BATCH {
            return MetaReply::Error(error(
                ErrorKind::TooLarge,
                format!("a batch of {count} requests; send at most {MAX_BATCH} at a time"),
            ))
            .into();
        }
        let mut replies = Vec::with_capacity(count);
        let mut durable = false;
        let mut used = SPARE;
        for (i, request) in requests.into_iter().enumerate() {
            let room = MAX_BODY.saturating_sub(used + REFUSAL * (count - i));
            let answer = if room < self.most(&request) {
                MetaReply::Error(error(
                    ErrorKind::TooLarge,
                    "not run, reply full: send it again",
                ))
                .into()
            } else {
                self.single(request, room)
            };
            used += postcard::experimental::serialized_size(&answer.reply).unwrap_or(MAX_BODY);
            durable |= answer.durable;
            replies.push(answer.reply);
        }
        Answer {
            reply: MetaReply::Batch(replies),
            durable,
        }
    }

    /// Upper bound of the reply to a request of a batch; pages adapt to the available space.
    fn most(&self, request: &MetaRequest) -> usize {
        // With its seals.
        let layout = (5 + SEAL_LEN) * self.shared.engine.servers();
        let most = match request {
            MetaRequest::Open { .. } => 2 * (attributes_size(None) + layout),
            MetaRequest::Node {
                request: NodeRequest::GetXattr { .. } | NodeRequest::ListXattr { .. },
                ..
            } => MAX_XATTRS.max(MAX_XATTR_VALUE),
            MetaRequest::GivenIds => 20 * (crate::snapshot::PAST_IDS + 1),
            MetaRequest::Quota(_) | MetaRequest::Usage(_) => quota::MAX_REPLY,
            MetaRequest::Owners(files) => quota::OWNER * files.len(),
            MetaRequest::Programs => registry::MAX_REPLY,
            MetaRequest::Revoke { .. } | MetaRequest::Revocations { .. } => {
                REVOCATION * MAX_REVOCATIONS
            }
            MetaRequest::Readdir { .. } | MetaRequest::ListFiles { .. } => {
                attributes_size(None) + layout + crate::path::MAX_PATH + MAX_TARGET
            }
            _ => 2 * (attributes_size(None) + layout) + MAX_TARGET,
        };
        most.max(SMALL)
    }

    fn single(&mut self, request: MetaRequest, room: usize) -> Answer {
        self.audited.begins(&request);
        let done = self.run(request, room);
        self.audited
            .ended(done.as_ref().map(|answer| &answer.reply));
        done.unwrap_or_else(|e| MetaReply::Error(e).into())
    }

    fn run(&mut self, request: MetaRequest, room: usize) -> Result<Answer> {
        self.require_user(&request)?;
        let MetaRequest::Once { at, request } = request else {
            return self.carry_out(None, request, room);
        };
        let once = Once {
            connection: self.id,
            owner: self.owner(),
            at,
            digest: request.digest(),
        };
        if !request.changes() {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("{request:?} changes nothing; send it without a slot"),
            ));
        }
        self.carry_out(Some(&once), *request, room)
    }

    fn owner(&self) -> Owner {
        Owner {
            uid: self.caller.uid,
            admin: self.caller.admin,
        }
    }

    /// Carries out a request, or returns its earlier outcome if it has a slot and was carried out.
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    fn carry_out(
        &mut self,
        once: Option<&Once>,
        request: MetaRequest,
        room: usize,
    ) -> Result<Answer> {
        let shared = self.shared.clone();
        let engine = &shared.engine;
        let caller = &self.caller;
        let reply = match request {
            MetaRequest::Open {
                path,
                read,
                write,
                create,
                exclusive,
            } => {
                let how = How {
                    read,
                    write,
                    create: create.as_ref(),
                    exclusive,
                };
                let outcome = engine.change(once, |space, now| {
                    let (attributes, created) = space.open(now, caller, &path, &how)?;
                    Ok(Outcome::Opened(attributes, created))
                })?;
                let Outcome::Opened(attributes, created) = outcome else {
                    return Err(outcome.unexpected());
                };
                let file = attributes.id;
                self.opened(file, read, write, self.subject);
                let rights = to_use(read, write);
                MetaReply::Opened {
                    capability: shared.grant(self.subject, &attributes, rights)?,
                    attributes,
                    created,
                }
            }
            MetaRequest::Renew { file, read, write } => {
                let may = |o: &Opened| (o.read || !read) && (o.write || !write);
                let opened = self.open.get(&file).filter(may);
                let Some(opened) = opened.filter(|_| read || write) else {
                    return Err(error(
                        ErrorKind::BadCapability,
                        format!(
                            "file {} is not open that way on this connection; open it again",
                            file.0
                        ),
                    ));
                };
                let attributes = engine.read(|space| space.file(file))?;
                let rights = to_use(read, write);
                MetaReply::Renewed {
                    capability: shared.grant(opened.subject, &attributes, rights)?,
                }
            }
            MetaRequest::Stat { path } => {
                MetaReply::Attributes(engine.read(|space| space.stat(caller, &path, false))?)
            }
            MetaRequest::Unlink { path } => {
                let outcome = engine.change(once, |space, now| {
                    Ok(space.unlink(now, caller, &path)?.into())
                })?;
                return shared.unlinked(self.subject, outcome.removed()?);
            }
            MetaRequest::Rename { from, to } => {
                let outcome = engine.change(once, |space, now| {
                    Ok(space.rename(now, caller, &from, &to)?.into())
                })?;
                return shared.unlinked(self.subject, outcome.removed()?);
            }
            MetaRequest::Mkdir { path, mode } => {
                engine.change(once, |space, now| {
                    space.mkdir(now, caller, &path, mode)?;
                    Ok(Outcome::Done)
                })?;
                MetaReply::Done
            }
            MetaRequest::Rmdir { path } => {
                engine.change(once, |space, now| {
                    space.rmdir(now, caller, &path)?;
                    Ok(Outcome::Done)
                })?;
                MetaReply::Done
            }
            MetaRequest::Readdir { path, after, limit } => {
                let page = engine
                    .read(|space| space.readdir(caller, &path, after.as_deref(), limit, room))?;
                MetaReply::Entries {
                    entries: page.items,
                    more: page.more,
                }
            }
            MetaRequest::SetAttr {
                path,
                mode,
                uid,
                gid,
                mtime_ns,
                atime_ns,
            } => {
                let change = Change {
                    mode,
                    uid,
                    gid,
                    mtime: mtime_ns.map(When::At),
                    atime: atime_ns.map(When::At),
                };
                let outcome = engine.change(once, |space, now| {
                    let attributes = space.set_attributes(now, caller, &path, &change)?;
                    Ok(Outcome::Node(attributes))
                })?;
                MetaReply::Attributes(outcome.attributes()?)
            }
            MetaRequest::Sync => {
                return Ok(Answer {
                    reply: MetaReply::Done,
                    durable: true,
                });
            }
            MetaRequest::SyncFile { file } => {
                engine.read(|space| space.file(file))?;
                return Ok(Answer {
                    reply: MetaReply::Done,
                    durable: true,
                });
            }
            MetaRequest::Batch(_) => {
                return Err(error(
                    ErrorKind::InvalidArgument,
                    "a batch inside a batch; send its requests one after the other",
                ));
            }
            MetaRequest::CounterCreate { token, value } => {
                let id = self.id;
                engine.counters(|c| c.create(id, caller.uid, token, value))?;
                MetaReply::Done
            }
            MetaRequest::CounterAdd { token, add } => MetaReply::Counter {
                before: engine.count(once, |c| c.add(token, add))?,
            },
            MetaRequest::CounterSet { token, value } => MetaReply::Counter {
                before: engine.count(once, |c| c.set(token, value))?,
            },
            MetaRequest::CounterGet { token } => MetaReply::Counter {
                before: engine.counters(|c| c.get(token))?,
            },
            MetaRequest::CounterFree { token } => {
                let id = self.id;
                engine.counters(|c| c.free(id, token))?;
                MetaReply::Done
            }
            MetaRequest::ListFiles { after, limit } => {
                self.require_admin("list all files")?;
                let page = engine.read(|space| space.files(after, limit, room))?;
                MetaReply::Files {
                    files: page.items,
                    more: page.more,
                }
            }
            MetaRequest::GivenIds => {
                self.require_admin("ask for the ids of all files")?;
                MetaReply::Ids {
                    ranges: engine.read(|space| space.names().given_ids())?,
                    stores: shared.stores.list(),
                }
            }
            MetaRequest::Store(report) => {
                if caller.server != Some(ServerId(report.server)) {
                    self.require_admin("report on another server's store")?;
                }
                MetaReply::Store {
                    new: shared.stores.report(&report, engine)?,
                }
            }
            MetaRequest::Quota(request) => return self.quota(&request),
            MetaRequest::Usage(report) => self.usage(&report)?,
            MetaRequest::Owners(files) => self.owners(&files)?,
            MetaRequest::Revoke { what, until_ms } => {
                self.require_admin("take credentials back")?;
                shared
                    .revoked
                    .revoke(what, shared.issue.now_ms(), until_ms)?;
                MetaReply::Revoked(shared.revoked.since(None))
            }
            MetaRequest::Revocations { known } => {
                if caller.server.is_none() {
                    self.require_admin("list the revoked credentials")?;
                }
                MetaReply::Revoked(shared.revoked.since(known))
            }
            MetaRequest::Time => MetaReply::Time {
                issue_ms: shared.issue.now_ms(),
                wall_ms: wall_ms(),
            },
            MetaRequest::Status => {
                let figures = engine.figures()?;
                MetaReply::Status(MetaStatus {
                    files: figures.totals.files,
                    directories: figures.totals.directories,
                    requests: figures.requests,
                    commits: figures.commits,
                    connections: shared.connections.load(Ordering::Relaxed),
                    uptime_ms: u64::try_from(figures.uptime.as_millis()).unwrap_or(u64::MAX),
                    journal_lost: figures.unreadable,
                    looked_through: figures.looked.through,
                    damaged: figures.looked.damaged,
                    damage: figures.looked.first,
                    store: engine.store_name().to_owned(),
                    audit: shared.audit.status(),
                    over_soft: figures.at_limits.0,
                    at_hard: figures.at_limits.1,
                    counted: figures.counted,
                    bytes_over_soft: figures.at_byte_limits.0,
                    bytes_at_hard: figures.at_byte_limits.1,
                    bytes_uncounted: figures.at_byte_limits.2,
                })
            }
            MetaRequest::Look { path, follow } => {
                let attributes = engine.read(|space| space.stat(caller, &path, follow))?;
                MetaReply::Node(shared.look(self.subject, attributes)?)
            }
            MetaRequest::Node { user, request } => return self.node(once, user, request, room),
            MetaRequest::Symlink { path, target } => {
                engine.change(once, |space, now| {
                    space.symlink(now, caller, &path, &target)?;
                    Ok(Outcome::Done)
                })?;
                MetaReply::Done
            }
            MetaRequest::OpenSession { session } => {
                engine.open_session(self.id, self.owner(), session)?;
                // Otherwise a power loss could make the session unknown, and with it whether its first changes took
                // effect.
                return Ok(Answer {
                    reply: MetaReply::Done,
                    durable: true,
                });
            }
            MetaRequest::Once { .. } => {
                return Err(error(ErrorKind::InvalidArgument, "a slot within a slot"));
            }
            MetaRequest::Register(info) => self.register(info)?,
            MetaRequest::Programs => self.programs(),
            MetaRequest::Writes { path, step, task } => {
                let mut steps = shared.steps.lock().unwrap_or_else(PoisonError::into_inner);
                MetaReply::Writer(steps.writer(self.subject, step, &path, task))
            }
            MetaRequest::Report(report) => self.reported(report)?,
            MetaRequest::LoadKeys => {
                self.require_admin("have keys read again")?;
                MetaReply::Keys(shared.keys.load_again()?)
            }
            MetaRequest::Shutdown => {
                self.require_admin("stop the metadata server")?;
                MetaReply::Done
            }
        };
        Ok(reply.into())
    }

    /// Records how a file was opened.
    fn opened(&mut self, file: FileId, read: bool, write: bool, subject: u32) {
        let before = self.open.get(&file);
        let opened = Opened {
            read: read || before.is_some_and(|o| o.read),
            write: write || before.is_some_and(|o| o.write),
            subject,
        };
        self.open.insert(file, opened);
    }

    /// A request by id, for a user.
    fn node(
        &mut self,
        once: Option<&Once>,
        user: User,
        mut request: NodeRequest,
        room: usize,
    ) -> Result<Answer> {
        let uid = user.uid;
        let Some(user) = self.caller.delegation.acts_for(user) else {
            return Err(error(
                ErrorKind::Permission,
                format!(
                    "user {} may not act for user {uid}; on the servers' hosts root and the owner of the deployment may, elsewhere those whose credential says so (`penstock credential --speaks-for`)",
                    self.caller.uid
                ),
            ));
        };
        let shared = self.shared.clone();
        let engine = &shared.engine;
        let caller = Caller::of(user);
        let subject = caller.uid;
        match &request {
            NodeRequest::Lock { id, lock, how } => {
                let reply = engine.lock((self.id, caller.uid), *id, lock, *how)?;
                return Ok(MetaReply::Node(reply).into());
            }
            NodeRequest::AwaitUnlock { seen, wait_ms } => {
                let wait = Duration::from_millis(u64::from((*wait_ms).min(MAX_UNLOCK_WAIT_MS)));
                let given_up = engine.await_unlock(*seen, wait)?;
                return Ok(MetaReply::Node(NodeReply::GivenUp(given_up)).into());
            }
            NodeRequest::Reap { id } => {
                return shared.gone(subject, engine.reap(once, self.id, *id)?.removed()?);
            }
            NodeRequest::Keep { ids } => {
                let kept = engine.keep(self.id, caller.uid, ids)?;
                return Ok(MetaReply::Node(NodeReply::Kept(kept)).into());
            }
            _ => {}
        }
        if let NodeRequest::Unlink { keep, .. } | NodeRequest::Rename { keep, .. } = &mut request {
            *keep &= engine.may_keep(caller.uid);
        }
        let outcome = match &request {
            NodeRequest::Lookup { .. }
            | NodeRequest::Stat { .. }
            | NodeRequest::Look { .. }
            | NodeRequest::Open { .. }
            | NodeRequest::Readdir { .. }
            | NodeRequest::GetXattr { .. }
            | NodeRequest::ListXattr { .. } => {
                engine.read(|space| space.node_read(&caller, &request, room))?
            }
            _ => engine.change(once, |space, now| {
                space.node_request(now, &caller, &request, room)
            })?,
        };
        let reply = match outcome {
            Outcome::Node(attributes) => NodeReply::Node(attributes),
            Outcome::Look(attributes) => shared.look(subject, attributes)?,
            Outcome::Opened(attributes, created) => {
                let (NodeRequest::Open { read, write, .. }
                | NodeRequest::Create { read, write, .. }) = request
                else {
                    return Err(Outcome::Opened(attributes, created).unexpected());
                };
                let file = attributes.id;
                self.opened(file, read, write, subject);
                let rights = to_use(read, write);
                NodeReply::Opened {
                    capability: shared.grant(subject, &attributes, rights)?,
                    attributes,
                    created,
                }
            }
            Outcome::Unlinked(gone) => {
                return match gone {
                    Gone::Kept(file) => {
                        // A repetition: held again, unless it is gone by now.
                        engine.keep(self.id, caller.uid, &[file])?;
                        Ok(MetaReply::Node(NodeReply::Unlinked {
                            file: Some(file),
                            capability: None,
                        })
                        .into())
                    }
                    gone => shared.gone(subject, gone.removed()),
                };
            }
            Outcome::Entries(page) => NodeReply::Entries {
                entries: page.items,
                more: page.more,
            },
            Outcome::Xattr(value) => NodeReply::Xattr(value),
            Outcome::Xattrs(names) => NodeReply::Xattrs(names),
            Outcome::Done => NodeReply::Done,
            other @ Outcome::Counter(_) => return Err(other.unexpected()),
        };
        Ok(MetaReply::Node(reply).into())
    }

    /// A data server may only make its own requests: a thief of its key gets nothing else.
    fn require_user(&self, request: &MetaRequest) -> Result<()> {
        match (self.caller.server, request) {
            (None, _)
            | (
                _,
                MetaRequest::Time
                | MetaRequest::Store(_)
                | MetaRequest::Revocations { .. }
                | MetaRequest::Report(_)
                | MetaRequest::Usage(_)
                | MetaRequest::Owners(_),
            ) => Ok(()),
            (Some(server), _) => Err(error(
                ErrorKind::Permission,
                format!(
                    "data server {} may report its store, its work and users' bytes, and ask for owners, the time and revocations, no more; connect as a user",
                    server.0
                ),
            )),
        }
    }

    fn require_admin(&self, what: &str) -> Result<()> {
        if self.caller.admin {
            return Ok(());
        }
        Err(error(
            ErrorKind::Permission,
            format!("only an administrator may {what}; connect as one"),
        ))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        let id = self.id;
        self.shared.engine.leave(id);
        self.unregister();
        // Fails only if the server stops, and its counters and locks with it.
        let _ = self.shared.engine.counters(|c| {
            c.connection_closed(id);
            Ok(())
        });
        self.shared.engine.release_locks(id);
    }
}

impl Granting {
    /// Issues a capability. Descriptors may be held by the user who has always owned the file.
    fn grant(&self, subject: u32, file: &Attributes, rights: Rights) -> Result<Capability> {
        // User 65534 stands for nobody; the kernel also shows it for unmapped owners in user name spaces.
        let lend_to = (!file.given && file.uid != NOBODY).then_some(file.uid);
        self.sign(subject, file.id, rights, lend_to, layout_of(file)?)
    }

    fn sign(
        &self,
        subject: u32,
        file: FileId,
        rights: Rights,
        lend_to: Option<u32>,
        layout: Layout,
    ) -> Result<Capability> {
        let now_ms = self.issue.now_ms();
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        let life = now_ms..now_ms.saturating_add(lifetime);
        Capability::grant(
            &self.keys.seals(),
            subject,
            file,
            rights,
            life,
            lend_to,
            layout,
        )
    }

    /// A node; for a file, with a capability to query its data servers.
    fn look(&self, subject: u32, attributes: Attributes) -> Result<NodeReply> {
        let capability = match attributes.layout {
            Some(_) => Some(self.grant(subject, &attributes, Rights::default())?),
            None => None,
        };
        Ok(NodeReply::Look {
            attributes,
            capability,
        })
    }

    /// [`Granting::unlinked`] for a request by node id.
    fn gone(&self, subject: u32, removed: Option<Removed>) -> Result<Answer> {
        let file = removed.as_ref().map(|r| r.file);
        let answer = self.unlinked(subject, removed)?;
        let MetaReply::Unlinked { capability } = answer.reply else {
            return Ok(answer);
        };
        Ok(Answer {
            reply: MetaReply::Node(NodeReply::Unlinked { file, capability }),
            durable: answer.durable,
        })
    }

    /// The reply to a request that removed a file from the name space: the capability to remove its objects.
    fn unlinked(
        &self,
        subject: u32,
        removed: Option<Removed>,
    ) -> std::result::Result<Answer, WireError> {
        let durable = removed.as_ref().is_some_and(|r| r.wait);
        let rights = Rights {
            remove: true,
            ..Rights::default()
        };
        let capability = removed
            .map(|r| self.sign(subject, r.file, rights, None, r.layout))
            .transpose()?;
        Ok(Answer {
            reply: MetaReply::Unlinked { capability },
            durable,
        })
    }
}

fn to_use(read: bool, write: bool) -> Rights {
    Rights {
        read,
        write,
        remove: false,
    }
}

fn layout_of(attributes: &Attributes) -> Result<Layout> {
    attributes
        .layout
        .clone()
        .ok_or_else(|| crate::error::damaged(format!("file {} has no layout", attributes.id.0)))
}
