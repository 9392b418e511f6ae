//! A client of one deployment: its servers, connections, identity and limits.
use crate::admission::{Admission, Permit};
use crate::connection_pool::ConnectionPool;
use crate::descriptors::{DescriptorSlot, Descriptors};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::file::ended;
use crate::retry::{Backoff, Next, Retry};
use crate::slots::{Call, Slots};
use crate::stats::{Counters, Stats};
use crate::unsynced::Notes;
use penstock_host::thread::sleep;
use penstock_host::time::now;
use penstock_layout::{Layout, ServerId};
use penstock_rpc::Caller;
use penstock_rpc::deployment::Deployment;
use penstock_trace::{Layer, Operation, sink};
use penstock_wire::Role;
use penstock_wire::message::{
    DataReply, DataRequest, ErrorKind, MetaReply, MetaRequest, ProgramInfo, TraceContext,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The origin of I/O; sent in every request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// The parallel job; its ranks share it. 0: none. It is then not listed, and its traffic is counted for its user
    /// only.
    pub program: u64,
    /// The process within it.
    pub rank: u32,
}

/// Limits of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// How long calls are retried before they fail, if a server is away.
    pub retry_limit: Duration,
    /// Time limit of a server's answer.
    pub answer_timeout: Duration,
    /// How long [`crate::File::lock`] waits.
    pub lock_timeout: Duration,
    /// Operations at once over all threads, which bounds connections per server (locks have their own).
    pub connections: usize,
    /// Whether [`crate::Form::Shortcut`] asks for descriptors; without, it sends requests.
    pub shortcuts: bool,
    /// Whether shortcuts to the user's own files read out of mappings. A file that its owner truncates by a descriptor
    /// then ends this process with SIGBUS. A program that serves other users must therefore read by calls.
    pub mappings: bool,
    /// The program to register at the metadata server ([`crate::announce::program`]) while this client is connected.
    /// Without one, or if the program has no number, it is not listed.
    pub program: Option<ProgramInfo>,
}

impl Default for ClientOptions {
    /// 30 s, 60 s, 60 s, 4 connections, shortcuts, mappings; not listed.
    fn default() -> ClientOptions {
        ClientOptions {
            retry_limit: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            lock_timeout: Duration::from_secs(60),
            connections: 4,
            shortcuts: true,
            mappings: true,
            program: None,
        }
    }
}

/// A client of one deployment. Cheap to clone; usable by several threads at once.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    deployment: Deployment,
    who: Identity,
    options: ClientOptions,
    meta: Arc<ConnectionPool>,
    data: BTreeMap<ServerId, Arc<ConnectionPool>>,
    admission: Admission,
    meta_admission: Admission,
    slots: Slots,
    descriptors: Descriptors,
    counters: Counters,
    notes: Notes,
    mpi_call: AtomicU64,
    client_call: AtomicU64,
}

impl Client {
    /// A client of `deployment` with default limits. Contacts the metadata server once, so that a wrong key or address
    /// is reported here.
    pub fn connect(deployment: &Deployment, who: Identity) -> Result<Client> {
        Client::connect_with(deployment, who, Role::Client, ClientOptions::default())
    }

    /// The same with limits, and as an administrator if `role` says so ([`penstock_rpc::handshake`] says who may).
    pub fn connect_with(
        deployment: &Deployment,
        who: Identity,
        role: Role,
        options: ClientOptions,
    ) -> Result<Client> {
        sink::attach(who.program, who.rank);
        let client = Client::unconnected(deployment, who, role, options)?;
        client.reach_meta()?;
        Ok(client)
    }

    /// The same without reaching any server: for who asks each of them about itself, whether or not others answer.
    pub fn unconnected(
        deployment: &Deployment,
        who: Identity,
        role: Role,
        options: ClientOptions,
    ) -> Result<Client> {
        let local = |e: penstock_wire::Error| Error::Local {
            what: format!("deployment {}", deployment.name),
            kind: e.kind(),
            detail: e.to_string(),
        };
        deployment
            .validate()
            .map_err(|e| Error::Invalid(format!("deployment {}: {e}", deployment.name)))?;
        let caller: Arc<Caller> = Arc::new(
            deployment
                .caller(role, who.program, who.rank)
                .map_err(local)?,
        );
        let mut options = options;
        let sites = deployment.servers.len() + 1;
        let descriptors = Descriptors::share(sites, &mut options.connections);
        let listed = options.program.clone().filter(|_| who.program != 0);
        let site = |id: Option<ServerId>, address| {
            let answer = options.answer_timeout;
            let limit = options.connections;
            let caller = caller.clone();
            let listed = listed.clone().filter(|_| id.is_none());
            Arc::new(ConnectionPool::new(
                id, address, caller, answer, limit, listed,
            ))
        };
        Ok(Client(Arc::new(Inner {
            meta: site(None, &deployment.meta.address),
            data: deployment
                .servers
                .iter()
                .map(|s| (s.id, site(Some(s.id), &s.address)))
                .collect(),
            deployment: deployment.clone(),
            who,
            admission: Admission::new(options.connections),
            meta_admission: Admission::new(options.connections),
            slots: Slots::new(),
            descriptors,
            options,
            counters: Counters::default(),
            notes: Notes::default(),
            mpi_call: AtomicU64::new(0),
            client_call: AtomicU64::new(0),
        })))
    }

    /// A place for one more descriptor of an object, if this client's share allows it.
    pub(crate) fn descriptor(&self) -> Option<DescriptorSlot> {
        self.0.descriptors.place()
    }

    fn reach_meta(&self) -> Result<()> {
        let meta = &self.0.meta;
        let mut retry = Retry::new(self.backoff());
        loop {
            match meta.dial("connect") {
                Ok(link) => {
                    meta.put(link);
                    return Ok(());
                }
                Err(fault) => self.pause(meta, "connect", fault, &mut retry)?,
            }
        }
    }

    /// The deployment.
    pub fn deployment(&self) -> &Deployment {
        &self.0.deployment
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        self.0.who
    }

    /// Its limits.
    pub fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    /// What has been done through all its files.
    pub fn stats(&self) -> Stats {
        self.0.counters.read()
    }

    /// Names the MPI call that later requests belong to, for traces.
    pub fn set_mpi_call(&self, call: u64) {
        self.0.mpi_call.store(call, Relaxed);
    }

    // ---- for the other modules ----

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The record of unsynced writes.
    pub(crate) fn notes(&self) -> &Notes {
        &self.0.notes
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::until(self.0.options.retry_limit)
    }

    /// The trace context of a new client call.
    pub(crate) fn trace(&self) -> TraceContext {
        TraceContext {
            program: self.0.who.program,
            rank: self.0.who.rank,
            mpi_call: self.0.mpi_call.load(Relaxed),
            client_call: match sink::next_id() {
                0 => self.0.client_call.fetch_add(1, Relaxed) + 1,
                id => id,
            },
        }
    }

    /// The trace context of a call that is recorded, if calls are.
    pub(crate) fn trace_of(&self, call: Option<&sink::Call>) -> TraceContext {
        match call {
            Some(call) => TraceContext {
                program: self.0.who.program,
                rank: self.0.who.rank,
                mpi_call: self.0.mpi_call.load(Relaxed),
                client_call: call.id(),
            },
            None => self.trace(),
        }
    }

    /// Admission of one operation; waits for others to end.
    pub(crate) fn permit(&self) -> Result<Permit<'_>> {
        let limit = self.0.options.answer_timeout + self.0.options.retry_limit;
        self.0.admission.take(limit).ok_or_else(|| {
            let running = self.0.options.connections;
            Error::Local {
                what: "wait for a connection".into(),
                kind: ErrorKind::Busy,
                detail: format!(
                    "all {running} operations of this client have run for {} s; \
                     allow more connections or use fewer threads",
                    limit.as_secs()
                ),
            }
        })
    }

    /// The same for optional work: does not wait.
    pub(crate) fn permit_soon(&self) -> Option<Permit<'_>> {
        self.0.admission.take(Duration::from_secs(2))
    }

    /// All data servers of the deployment.
    pub(crate) fn data_sites(&self) -> impl Iterator<Item = (ServerId, &Arc<ConnectionPool>)> {
        self.0.data.iter().map(|(id, site)| (*id, site))
    }

    /// One request to the metadata server, to be sent once or again.
    pub(crate) fn meta_call(&self, operation: &'static str, request: MetaRequest) -> Call<'_> {
        let Inner {
            slots,
            meta,
            options,
            ..
        } = &*self.0;
        let limit = options.answer_timeout + options.retry_limit;
        Call::new(slots, &meta.peer, limit, operation, self.trace(), request)
    }

    pub(crate) fn meta_site(&self) -> &Arc<ConnectionPool> {
        &self.0.meta
    }

    /// The data servers of a layout, in its order.
    pub(crate) fn sites(&self, layout: &Layout) -> Result<Vec<Arc<ConnectionPool>>> {
        layout
            .servers
            .iter()
            .map(|id| {
                self.0.data.get(id).cloned().ok_or_else(|| {
                    Error::Invalid(format!(
                        "the file is on data server {}, which is not in the deployment file of {}; \
                         use the current file",
                        id.0, self.0.deployment.name
                    ))
                })
            })
            .collect()
    }

    /// After a failed attempt: waits for the next one, or gives up.
    pub(crate) fn pause(
        &self,
        site: &ConnectionPool,
        operation: &'static str,
        fault: Fault,
        retry: &mut Retry,
    ) -> Result<()> {
        let detail = match fault {
            Fault::Final(e) => return Err(e),
            Fault::Away(detail) => detail,
        };
        site.lost();
        match retry.failed(now()) {
            Next::TryAt(at) => {
                sleep(at.saturating_duration_since(now()));
                Ok(())
            }
            Next::GiveUp { tried } => Err(Error::Unreachable {
                peer: site.peer.clone(),
                operation,
                detail,
                tried,
            }),
        }
    }

    /// One request to the metadata server. After a lost connection it is sent again; a change takes effect once
    /// nevertheless ([`crate::slots`]).
    pub(crate) fn meta(&self, operation: &'static str, request: &MetaRequest) -> Result<MetaReply> {
        let meta = &self.0.meta;
        let limit = self.0.options.answer_timeout + self.0.options.retry_limit;
        let Some(_permit) = self.0.meta_admission.take(limit) else {
            return Err(Error::Timeout {
                peer: meta.peer.clone(),
                operation,
                waited: limit,
            });
        };
        let recorded = Operation::from_name(operation).unwrap_or(Operation::CONTROL);
        let recorded = sink::Call::begin(Layer::Client, recorded);
        let reply = self.meta_until(operation, request);
        ended(recorded, 0, &reply);
        reply
    }

    /// The same, without a record.
    fn meta_until(&self, operation: &'static str, request: &MetaRequest) -> Result<MetaReply> {
        let meta = &self.0.meta;
        let mut retry = Retry::new(self.backoff());
        let mut call = self.meta_call(operation, request.clone());
        loop {
            let mut once = || {
                let mut link = meta.connect(operation)?;
                let reply = call.send(&mut link)?;
                meta.put(link);
                match reply {
                    MetaReply::Error(e) => Err(meta.unexpected(operation, DataReply::Error(e))),
                    reply => Ok(reply),
                }
            };
            match once() {
                Ok(reply) => return Ok(reply),
                Err(fault) => self.pause(meta, operation, fault, &mut retry)?,
            }
        }
    }

    pub(crate) fn meta_protocol(&self, operation: &'static str, reply: &MetaReply) -> Error {
        Error::Protocol {
            peer: self.0.meta.peer.clone(),
            operation,
            detail: format!("unexpected answer {reply:?}"),
        }
    }

    /// One question to a data server about itself: asked once, whatever else this client does.
    pub(crate) fn ask(
        &self,
        site: &Arc<ConnectionPool>,
        operation: &'static str,
        request: &DataRequest,
    ) -> Result<DataReply> {
        let once = || {
            let mut link = site.connect(operation)?;
            let reply = link.call(operation, self.trace(), request)?;
            site.put(link);
            match reply {
                DataReply::Error(e) => Err(site.unexpected(operation, DataReply::Error(e))),
                reply => Ok(reply),
            }
        };
        once().map_err(|fault: Fault| {
            site.lost();
            fault.into_final(&site.peer, operation)
        })
    }

    /// One request that needs no open file to a data server. Must be idempotent.
    pub(crate) fn data(
        &self,
        site: &Arc<ConnectionPool>,
        operation: &'static str,
        request: &DataRequest,
    ) -> Result<DataReply> {
        let _permit = self.permit()?;
        let mut retry = Retry::new(self.backoff());
        let trace = self.trace();
        loop {
            let once = || {
                let mut link = site.connect(operation)?;
                let reply = link.call(operation, trace, request)?;
                site.put(link);
                match reply {
                    DataReply::Error(e) => Err(site.unexpected(operation, DataReply::Error(e))),
                    reply => Ok(reply),
                }
            };
            match once() {
                Ok(reply) => return Ok(reply),
                Err(fault) => self.pause(site, operation, fault, &mut retry)?,
            }
        }
    }
}
