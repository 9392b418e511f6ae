//! Leases: open-unlinked files and advisory locks, which the metadata server keeps as long as a connection lasts.
//!
//! Problem: a connection ends with the server, and a restarted server knows no locks and no open files. Yet their
//! holders continue. Idea: all of them use one connection. Granted locks are recorded here, by the same rules as at the
//! server. When another connection must be made, they are claimed on it before any other request. The server is also
//! told which files are open, so that it keeps those without a name. For some seconds after a restart the server only
//! accepts claims of locks, and it waits a minute for those of files. So [`FileLeases::tend`] must be called often enough
//! while anything is held. A lock that somebody else has got meanwhile is lost: this is logged, and the next call of
//! its owner fails with [`ErrorKind::LockLost`]. The owner's other locks on that file are then released, so that it can
//! begin again.
use crate::client::Client;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::guard::guard;
use crate::link::Link;
use crate::nodes::name_of;
use crate::retry::Retry;
use penstock_host::sync::Mutex;
use penstock_layout::FileId;
use penstock_wire::advisory::replace;
use penstock_wire::message::{
    Advisory, AdvisoryFamily, AdvisoryHow, AdvisoryMode, DataReply, ErrorKind, MAX_KEEP, MetaReply,
    MetaRequest, NodeReply, NodeRequest, User,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An owner of locks on a file.
type Owner = (FileId, u64);

/// What must be known about the files that are open through it.
pub trait OpenFiles: std::fmt::Debug + Send + Sync {
    /// All of them.
    fn ids(&self) -> Vec<FileId>;
    /// A file has lost its name and is open-unlinked, until [`NodeRequest::Reap`]; returns whether nobody has it open.
    fn is_removed(&self, file: FileId) -> bool;
    /// Whether any of them has no name.
    fn any_removed(&self) -> bool;
}

/// The holder of leases, with its own connection to the metadata server.
#[derive(Debug)]
pub struct FileLeases {
    client: Client,
    open: Arc<dyn OpenFiles>,
    link: Mutex<Option<Link>>,
    /// Changed by the thread that has the connection.
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// What the server has granted, at most; empty while an answer is awaited.
    held: BTreeMap<Owner, Vec<Advisory>>,
    /// Owners that do not know yet that their locks are lost.
    lost: BTreeSet<Owner>,
}

impl Ledger {
    fn tidy(&mut self, owner: Owner) {
        if self.held.get(&owner).is_some_and(Vec::is_empty) {
            self.held.remove(&owner);
        }
    }
}

/// The result of a request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// It is as wanted.
    Done,
    /// Another owner's lock conflicts.
    By {
        /// That one.
        lock: Advisory,
        /// Locks released so far: [`NodeRequest::AwaitUnlock`] waits for more.
        given_up: u64,
    },
    /// The same, and that owner waits for the caller.
    Deadlock,
}

impl FileLeases {
    /// A holder without leases.
    pub fn new(client: &Client, open: Arc<dyn OpenFiles>) -> FileLeases {
        FileLeases {
            client: client.clone(),
            open,
            link: Mutex::new(None),
            ledger: Mutex::new(Ledger::default()),
        }
    }

    /// An `Unlink` or `Rename` that keeps, or a `Reap`.
    pub fn request(&self, user: &User, request: NodeRequest) -> Result<NodeReply> {
        self.send(&mut guard(&self.link), user, request)
    }

    /// Asks about an advisory lock of a file.
    pub fn lock(&self, file: FileId, lock: Advisory, how: AdvisoryHow) -> Result<Locked> {
        let mut link = guard(&self.link);
        let request = |lock, how| NodeRequest::Lock {
            id: file,
            lock,
            how,
        };
        if link.as_ref().is_some_and(|link| !link.is_open()) {
            *link = None;
        }
        let nobody = User::default();
        let owner = (file, lock.owner);
        let changes = matches!(how, AdvisoryHow::Try | AdvisoryHow::Wait);
        if changes && lock.mode != AdvisoryMode::Free {
            // Recorded before it is granted, so that no close in between overlooks it.
            guard(&self.ledger).held.entry(owner).or_default();
        }
        let reply = self.send(&mut link, &nobody, request(lock, how));
        let mut ledger = guard(&self.ledger);
        if let (true, Ok(NodeReply::Done)) = (changes, &reply) {
            replace(ledger.held.entry(owner).or_default(), &lock);
        }
        ledger.tidy(owner);
        if changes && ledger.lost.remove(&owner) {
            // What has just been taken goes the way of the rest.
            ledger.held.remove(&owner);
            drop(ledger);
            self.send(
                &mut link,
                &nobody,
                request(all_of(lock.owner), AdvisoryHow::Try),
            )?;
            return Err(Error::Local {
                what: format!("lock node {} (process {})", file.0, lock.pid),
                kind: ErrorKind::LockLost,
                detail: "the metadata server was away, and others got this lock; lock again and read the file again".into(),
            });
        }
        drop(ledger);
        match reply? {
            NodeReply::Done => Ok(Locked::Done),
            NodeReply::LockedBy { lock, given_up } => Ok(Locked::By { lock, given_up }),
            NodeReply::Deadlock => Ok(Locked::Deadlock),
            other => Err(self.client.meta_protocol("lock", &MetaReply::Node(other))),
        }
    }

    /// Whether an owner may have something to release: locks, or the news that they are lost.
    pub fn holds(&self, file: FileId, owner: u64) -> bool {
        let ledger = guard(&self.ledger);
        ledger.held.contains_key(&(file, owner)) || ledger.lost.contains(&(file, owner))
    }

    /// Keeps locks and open-unlinked files alive: if the connection has ended, another is made. Returns whether
    /// anything is held.
    pub fn tend(&self) -> Result<bool> {
        // A thread that uses the connection finds out by itself.
        let Some(mut link) = self.link.try_lock() else {
            return Ok(true);
        };
        if guard(&self.ledger).held.is_empty() && !self.open.any_removed() {
            return Ok(false);
        }
        if !link.as_ref().is_some_and(Link::is_open) {
            *link = None;
            let greeting = NodeRequest::AwaitUnlock {
                seen: u64::MAX,
                wait_ms: 0,
            };
            self.send(&mut link, &User::default(), greeting)?;
        }
        Ok(true)
    }

    fn send(
        &self,
        slot: &mut Option<Link>,
        user: &User,
        request: NodeRequest,
    ) -> Result<NodeReply> {
        let operation = name_of(&request);
        let site = self.client.meta_site();
        let request = MetaRequest::Node {
            user: user.clone(),
            request,
        };
        let mut retry = Retry::new(self.client.backoff());
        let mut call = self.client.meta_call(operation, request);
        loop {
            let mut once = || -> std::result::Result<MetaReply, Fault> {
                let link = match slot {
                    Some(link) => link,
                    None => {
                        let mut link = site.dial(operation)?;
                        self.claim(&mut link)?;
                        self.keep(&mut link)?;
                        slot.insert(link)
                    }
                };
                call.send(link)
            };
            match once() {
                Ok(MetaReply::Node(reply)) => return Ok(reply),
                Ok(MetaReply::Error(e)) => {
                    let fault = site.unexpected(operation, DataReply::Error(e));
                    return Err(fault.into_final(&site.peer, operation));
                }
                Ok(other) => return Err(self.client.meta_protocol(operation, &other)),
                Err(fault) => {
                    *slot = None;
                    self.client.pause(site, operation, fault, &mut retry)?;
                }
            }
        }
    }

    /// Says on a new connection what is open, so that files without a name stay. Which those are may be news: the answer
    /// to their removal was lost with the connection before.
    fn keep(&self, link: &mut Link) -> std::result::Result<(), Fault> {
        const KEEP: &str = "keep open files";
        let mut ask = |request: NodeRequest| {
            let request = MetaRequest::Node {
                user: User::default(),
                request,
            };
            let id = link.ask(KEEP, self.client.trace(), &request)?;
            match link.answer::<MetaReply>(KEEP, id)? {
                MetaReply::Node(reply) => Ok(reply),
                MetaReply::Error(e) if e.kind == ErrorKind::ShuttingDown => {
                    Err(Fault::Away(e.message))
                }
                other => Err(Fault::Final(self.client.meta_protocol(KEEP, &other))),
            }
        };
        let mut closed = Vec::new();
        for ids in self.open.ids().chunks(MAX_KEEP) {
            let NodeReply::Kept(kept) = ask(NodeRequest::Keep { ids: ids.to_vec() })? else {
                continue;
            };
            closed.extend(kept.into_iter().filter(|id| self.open.is_removed(*id)));
        }
        for id in closed {
            let reaped = ask(NodeRequest::Reap { id })?;
            if let NodeReply::Unlinked {
                capability: Some(capability),
                ..
            } = reaped
            {
                self.client.remove_bytes(&capability);
            }
        }
        Ok(())
    }

    /// Takes on a new connection what was held over the one before.
    fn claim(&self, link: &mut Link) -> std::result::Result<(), Fault> {
        let held = guard(&self.ledger).held.clone();
        let mut ask = |file: FileId, lock: Advisory, how: AdvisoryHow| {
            let request = MetaRequest::Node {
                user: User::default(),
                request: NodeRequest::Lock {
                    id: file,
                    lock,
                    how,
                },
            };
            let id = link.ask("lock", self.client.trace(), &request)?;
            link.answer::<MetaReply>("lock", id)
        };
        let mut gone = Vec::new();
        for (&owner, locks) in &held {
            for &lock in locks {
                let why = match ask(owner.0, lock, AdvisoryHow::Claim)? {
                    MetaReply::Node(NodeReply::Done) => continue,
                    MetaReply::Node(NodeReply::LockedBy { lock: by, .. }) => {
                        format!("process {} of another mount has it now", by.pid)
                    }
                    MetaReply::Error(e) if e.kind == ErrorKind::ShuttingDown => {
                        return Err(Fault::Away(e.message));
                    }
                    MetaReply::Error(e) => e.message,
                    other => return Err(Fault::Final(self.client.meta_protocol("lock", &other))),
                };
                log::warn!(
                    "process {} has lost its lock on node {}, bytes {} to {}, while the metadata server was away: {why}",
                    lock.pid,
                    owner.0.0,
                    lock.start,
                    lock.last
                );
                ask(owner.0, all_of(owner.1), AdvisoryHow::Try)?;
                gone.push(owner);
                break;
            }
        }
        let mut ledger = guard(&self.ledger);
        for owner in gone {
            ledger.held.remove(&owner);
            ledger.lost.insert(owner);
        }
        Ok(())
    }
}

/// A request that releases all locks of an owner on a file.
fn all_of(owner: u64) -> Advisory {
    Advisory {
        owner,
        start: 0,
        last: u64::MAX,
        mode: AdvisoryMode::Free,
        family: AdvisoryFamily::Any,
        pid: 0,
    }
}
