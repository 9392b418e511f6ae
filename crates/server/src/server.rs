//! A data server: the state that its connections share.
use crate::background_sync::BackgroundSync;
use crate::channel::Channel;
use crate::clock::Clock;
use crate::control::Control;
use crate::error::{Error, refuse, store_error};
use crate::events::Observer;
use crate::keys::Keys;
use crate::load::Load;
use crate::locks::LockLimits;
use crate::loops::Loops;
use crate::objects::{Objects, Waits};
use crate::queue::{RequestQueue, memory};
use crate::register::{self, Registrar, Registration};
use crate::revoked::Revoked;
use crate::settings::Settings;
use crate::tier;
use crate::usage::Counted;
use penstock_datatype::Loop;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::{FileId, ServerId};
use penstock_rpc::audit::Audit;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::share::{Pool, Share};
use penstock_rpc::{RunningServer, ServeLimits, serve};
use penstock_sched::ServerInfo;
use penstock_sched::journal::Journal;
use penstock_store::{FastTier, Note, Object, Problem, Store};
use penstock_wire::clock::Kept;
use penstock_wire::message::{
    DataReply, DataStatus, ErrorKind, Incarnation, MAX_FINDINGS, MAX_OBJECTS, ObjectFinding,
    ObjectProblem, WireError,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Most objects that `Status` counts, because it must not walk a large store.
const COUNT_LIMIT: u64 = 65_536;
/// Bytes of text of all findings in one answer: it must fit a body.
const MAX_FINDING_TEXT: usize = 512 << 10;

/// How long another user's request may delay a request.
const STRANGERS_WAIT: Duration = Duration::from_secs(1);
/// Locks of one connection on one object. A client's access takes one lock at a time per server.
const LOCKS_PER_OWNER: usize = 64;

/// How a data server runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hand descriptors to clients on the same host.
    pub shortcuts: bool,
    /// Refuse everything that changes the store.
    pub read_only: bool,
    /// A lock that is unused for this time can be taken by others.
    pub lock_lease: Duration,
    /// Requests waiting for locks of one object. A user has a share of these, and of each of the next three
    /// (docs/decisions/0028).
    pub lock_waiters: usize,
    /// Range locks of all objects, and requests for them.
    pub range_locks: usize,
    /// Files that connections have open.
    pub open_files: usize,
    /// Shortcuts that clients have. Each is a mapping of this process, of which Linux gives it 65,530.
    pub shortcut_grants: usize,
    /// Longest wait of a plain write for the holder of a lock on its range.
    pub plain_write_wait: Duration,
    /// Longest wait for an operation under a revoked shortcut; then the lock is refused.
    pub revoke_wait: Duration,
    /// Search steps for an access's bytes on this server; beyond it the access is refused (decisions/0017).
    pub search_steps: u64,
    /// Changes to the scheduler's settings, each `name=value`, after those of the deployment.
    pub tune: Vec<String>,
    /// Receives every arrival, dispatch and completion.
    pub observer: Option<Arc<dyn Observer>>,
    /// Receives each call of the scheduler.
    pub journal: Option<Arc<dyn Journal>>,
    /// Report the store to the metadata server before it is used, and run the background sync.
    pub registration: Option<Registration>,
    /// Pause before each round of the background sync. A round must also fit into the half minute that is promised.
    pub background_sync: Duration,
    /// Ask the metadata server for its time and for revocations, and report traffic to it. Without this, a server
    /// judges capabilities by its own wall clock after a start, and accepts revoked credentials.
    pub ask_time: bool,
    /// With `ask_time`: count the bytes of users with quotas on them, within leases of the metadata server. Without
    /// this, no quota on bytes is enforced.
    pub ask_leases: bool,
    /// The deployment file, for keys that are rotated while the server runs.
    pub deployment_file: Option<PathBuf>,
    /// Where the audit log is written, if it is.
    pub audit: Option<PathBuf>,
    /// Bounds of the accept loop.
    pub limits: ServeLimits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            shortcuts: true,
            read_only: false,
            lock_lease: Duration::from_secs(20),
            lock_waiters: 4096,
            range_locks: 1 << 16,
            open_files: 1 << 20,
            shortcut_grants: 1 << 15,
            plain_write_wait: Duration::from_secs(45),
            revoke_wait: Duration::from_secs(10),
            search_steps: 1 << 24,
            tune: Vec::new(),
            observer: None,
            journal: None,
            registration: None,
            background_sync: Duration::from_secs(15),
            ask_time: true,
            ask_leases: true,
            deployment_file: None,
            audit: None,
            limits: ServeLimits::default(),
        }
    }
}

/// Checks settings, each `name=value`; an error names one that no data server accepts.
pub fn check_settings(settings: &[String]) -> Result<(), Error> {
    Settings::default()
        .with(settings)
        .map(|_| ())
        .map_err(|e| Error::Setting(e.message))
}

/// Starts the data server `id` of a deployment on its store and its addresses; an error says why it does not start.
pub fn start(
    deployment: &Deployment,
    id: ServerId,
    options: Options,
) -> Result<RunningServer, Error> {
    let spec = &description(deployment, id)?.store;
    match &options.registration {
        Some(how) => {
            let keys = Arc::new(Keys::load(deployment, id, options.deployment_file.clone())?);
            let channel = Arc::new(Channel::new(deployment, keys.clone()));
            let (store, registrar) = register::open(deployment, id, spec, how, &channel)?;
            start_with(deployment, id, options, store, registrar, (keys, channel))
        }
        None => {
            let store = penstock_store::open(spec, &deployment.id, id.0)?;
            start_on(deployment, id, options, store)
        }
    }
}

/// The same on a store that is open already.
pub fn start_on(
    deployment: &Deployment,
    id: ServerId,
    options: Options,
    store: Box<dyn Store>,
) -> Result<RunningServer, Error> {
    let keys = Arc::new(Keys::load(deployment, id, options.deployment_file.clone())?);
    let channel = Arc::new(Channel::new(deployment, keys.clone()));
    start_with(deployment, id, options, store, None, (keys, channel))
}

fn start_with(
    deployment: &Deployment,
    id: ServerId,
    options: Options,
    store: Box<dyn Store>,
    registrar: Option<Registrar>,
    (keys, channel): (Arc<Keys>, Arc<Channel>),
) -> Result<RunningServer, Error> {
    let described = description(deployment, id)?;
    let address = &described.address;
    let limits = options.limits;
    let waits = Waits {
        locks: LockLimits {
            lease: options.lock_lease,
            strangers: STRANGERS_WAIT,
            waiters: options.lock_waiters,
            per_owner: LOCKS_PER_OWNER,
        },
        write: options.plain_write_wait,
        revoke: options.revoke_wait,
    };
    let settings = [&deployment.tune[..], &options.tune].concat();
    let site = ServerInfo {
        server: id.0,
        servers: deployment.servers.len() as u32,
        unit: deployment.stripe_unit,
        memory: memory(),
        // Each connection has its own.
        threads: u32::MAX,
    };
    let queue = Settings::default()
        .with(&settings)
        .and_then(|settings| RequestQueue::new(settings, site, options.journal.clone()))
        .map_err(|e| Error::Setting(e.message))?;
    queue
        .observe(options.observer.clone())
        .map_err(|e| Error::Setting(e.message))?;
    if let (Some(mode), Some(fast)) = (tier::mode(&settings), store.fast()) {
        fast.set_mode(mode);
    }
    let clock = Clock::begin(store.kept(Note::Clock).as_deref());
    let audit = Audit::start(options.audit.as_deref(), &format!("data-{}", id.0));
    let open_files = Share::elastic(
        options.open_files,
        format!("files of data server {}", id.0),
        "close some",
    );
    let shortcuts = Share::elastic(
        options.shortcut_grants,
        format!("shortcuts to files of data server {}", id.0),
        "close some files",
    );
    let load = Arc::new(Load::begin()?);
    let server = Arc::new(Server {
        audit,
        open_files: Pool::new(open_files),
        shortcuts: Pool::new(shortcuts),
        queue,
        id,
        keys: keys.clone(),
        objects: Objects::new(store, waits, options.range_locks),
        options,
        loops: Mutex::new(Loops::default()),
        long_searches: Arc::default(),
        counters: Counters::default(),
        began: penstock_host::time::now(),
        next_owner: AtomicU64::new(1),
        registrar,
        unheard: Mutex::new(false),
        settling: BackgroundSync::default(),
        clock,
        revoked: Revoked::default(),
        control: Control::new(load.clone()),
        load,
        channel: channel.clone(),
    });
    if server.registrar.is_some() && !server.options.read_only {
        let (rest, weak) = (server.options.background_sync, Arc::downgrade(&server));
        let round = move |go_on: &mut dyn FnMut(Duration) -> bool| {
            weak.upgrade()
                .map(|server| server.sync_unsynced(go_on))
                .is_some()
        };
        server.settling.start(rest, round).map_err(|source| {
            Error::Wire(penstock_wire::Error::Io {
                what: "start",
                peer: format!("data server {}", id.0),
                source,
            })
        })?;
    }
    if server.options.ask_time {
        let weak = Arc::downgrade(&server);
        let keep = move |kept: &Kept| weak.upgrade().map(|server| server.keep_clock(kept));
        server.clock.follow(id, channel.clone(), keep)?;
        let incarnation = server.control.follow(id, channel.clone())?;
        if server.options.ask_leases && !server.options.read_only {
            server
                .objects
                .usage()
                .follow(&server, channel.clone(), incarnation)?;
        }
        if address.tcp.is_some() {
            server.revoked.follow(id, channel)?;
        }
    }
    Ok(serve(address, server, keys.ring.clone(), limits)?)
}

fn description(
    deployment: &Deployment,
    id: ServerId,
) -> Result<&penstock_rpc::deployment::DataServer, Error> {
    deployment.server(id).ok_or_else(|| Error::UnknownServer {
        id,
        known: deployment.servers.iter().map(|s| s.id.0).collect(),
    })
}

/// Counts for `Status`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    busy_ns: AtomicU64,
}

impl Counters {
    /// A connection begins.
    pub(crate) fn connected(&self) -> Connected<'_> {
        self.connections.fetch_add(1, Relaxed);
        Connected(self)
    }

    pub(crate) fn request(&self, took: Duration) {
        self.requests.fetch_add(1, Relaxed);
        self.busy_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connections.load(Relaxed) > 0
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Relaxed);
    }
}

/// Counts a connection until it ends.
pub(crate) struct Connected<'a>(&'a Counters);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// The state of a data server.
pub(crate) struct Server {
    audit: Audit,
    pub(crate) id: ServerId,
    pub(crate) keys: Arc<Keys>,
    pub(crate) options: Options,
    pub(crate) open_files: Pool,
    pub(crate) shortcuts: Pool,
    pub(crate) objects: Objects,
    pub(crate) queue: Arc<RequestQueue>,
    pub(crate) counters: Counters,
    loops: Mutex<Loops>,
    /// Requests with long searches at the moment.
    pub(crate) long_searches: Arc<AtomicU32>,
    began: Instant,
    next_owner: AtomicU64,
    registrar: Option<Registrar>,
    /// Whether the metadata server could not be told of the present generation.
    unheard: Mutex<bool>,
    pub(crate) settling: BackgroundSync,
    pub(crate) clock: Clock,
    pub(crate) revoked: Revoked,
    pub(crate) control: Control,
    pub(crate) load: Arc<Load>,
    /// All of these ask over it.
    pub(crate) channel: Arc<Channel>,
}

impl Drop for Server {
    /// No connection is left: syncs what nobody has synced.
    fn drop(&mut self) {
        self.channel.stop();
        self.objects.usage().end();
        self.settling.stop();
        if self.registrar.is_some() && !self.options.read_only {
            self.sync_unsynced(&mut |_| true);
        }
    }
}

impl Counted for Server {
    fn number(&self) -> u32 {
        self.id.0
    }

    fn store(&self) -> &dyn Store {
        self.objects.store()
    }

    fn look(&self, file: FileId) -> Result<Option<Arc<dyn Object>>, WireError> {
        self.objects.look(file)
    }

    fn revoke_shortcuts(&self) {
        self.objects.revoke_shortcuts();
    }

    fn now_ms(&self) -> u64 {
        Server::now_ms(self)
    }

    fn is_connected(&self) -> bool {
        self.counters.is_connected()
    }
}

impl Server {
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Numbers connections.
    pub(crate) fn next_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Relaxed)
    }

    /// The metadata server's time, which is requested if it is unknown.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.judged(Ok).unwrap_or(0)
    }

    /// The incarnation of the page cache that its writes are in.
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation(self.objects.store().incarnation())
    }

    /// Refuses when the server was started read-only.
    pub(crate) fn writable(&self) -> Result<(), WireError> {
        if !self.options.read_only {
            return Ok(());
        }
        Err(refuse(
            ErrorKind::ReadOnly,
            format!(
                "data server {} serves {} read-only; start it without that option to write",
                self.id.0,
                self.objects.store().describe()
            ),
        ))
    }

    /// Records the time for the next server.
    fn keep_clock(&self, kept: &Kept) -> Result<(), penstock_store::StoreError> {
        if self.options.read_only {
            Ok(())
        } else {
            self.objects.store().keep(Note::Clock, &kept.encode())
        }
    }

    /// Runs the background sync; see [`Store::sync_unsynced`].
    pub(crate) fn sync_unsynced(&self, go_on: &mut dyn FnMut(Duration) -> bool) {
        let store = self.objects.store();
        let settled = store
            .sync_unsynced(go_on)
            .map_err(Error::Store)
            .and_then(|any| {
                let Some(registrar) = self.registrar.as_ref().filter(|_| any) else {
                    return Ok(());
                };
                // A generation that the metadata server does not know stays the newest until it does.
                let mut unheard = self.unheard.lock().unwrap_or_else(PoisonError::into_inner);
                if !*unheard {
                    store.next_generation()?;
                    *unheard = true;
                }
                registrar.tell(store.identity(), store.highest(false)?)?;
                *unheard = false;
                Ok(store.note_heard()?)
            });
        if let Err(e) = settled {
            log::warn!("data server {}: {e}", self.id.0);
        }
    }

    pub(crate) fn known_loop(&self, hash: &[u8; 16]) -> Option<Loop> {
        self.loops().get(hash)
    }

    /// Decodes a loop and caches it.
    pub(crate) fn learn_loop(&self, encoded: &[u8]) -> Result<Loop, WireError> {
        let decoded = Loop::decode(encoded)
            .map_err(|e| refuse(ErrorKind::Malformed, format!("the access pattern: {e}")))?;
        self.loops().insert(decoded.clone(), encoded.len());
        Ok(decoded)
    }

    fn loops(&self) -> MutexGuard<'_, Loops> {
        // A cache: any state that a panic left is usable.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fast tier; an error where there is none. `what` somebody wants of it.
    pub(crate) fn tier(&self, what: &str) -> Result<&dyn FastTier, WireError> {
        self.objects.store().fast().ok_or_else(|| {
            refuse(
                ErrorKind::InvalidArgument,
                format!(
                    "{what}: data server {} has no fast tier; `penstock up DIR --fast FASTDIR` gives it one",
                    self.id.0
                ),
            )
        })
    }

    /// Changes settings while it runs.
    pub(crate) fn tune(&self, settings: &[String]) -> Result<(), WireError> {
        let mode = tier::mode(settings);
        if mode.is_some() {
            self.tier("fast")?;
        }
        self.queue.tune(settings)?;
        if let (Some(mode), Some(fast)) = (mode, self.objects.store().fast()) {
            fast.set_mode(mode);
        }
        if self.queue.is_on() {
            self.objects.revoke_shortcuts();
        }
        log::info!("data server {}: {}", self.id.0, settings.join(" "));
        Ok(())
    }

    pub(crate) fn status(&self) -> Result<DataStatus, WireError> {
        let store = self.objects.store();
        let (total_bytes, free_bytes) = store.space().map_err(store_error)?;
        Ok(DataStatus {
            server: self.id.0,
            store: store.describe(),
            connections: self.counters.connections.load(Relaxed),
            requests: self.counters.requests.load(Relaxed),
            bytes_read: self.counters.bytes_read.load(Relaxed),
            bytes_written: self.counters.bytes_written.load(Relaxed),
            total_bytes,
            free_bytes,
            objects: self.count_objects()?,
            busy_ns: self.counters.busy_ns.load(Relaxed),
            sched: Box::new(self.queue.status()),
            uptime_ms: penstock_host::time::since(self.began).as_millis() as u64,
            lost_below: store.lost_below(),
            clock_ahead_ms: self.clock.wall_ahead_ms(),
            identity: store
                .identity()
                .filter(|identity| identity.registered)
                .map(|identity| register::there(Some(identity))),
            audit: self.audit.status(),
            direct: self.load.direct(),
            fast: store.fast().map(|fast| tier::status(&fast.status())),
        })
    }

    fn count_objects(&self) -> Result<u64, WireError> {
        let store = self.objects.store();
        let mut count = 0;
        let mut after = None;
        loop {
            let page = store.list_after(after, MAX_OBJECTS).map_err(store_error)?;
            count += page.len() as u64;
            after = page.last().map(|(id, _)| *id);
            if page.len() < MAX_OBJECTS || count >= COUNT_LIMIT {
                return Ok(count);
            }
        }
    }

    pub(crate) fn list(&self, after: Option<FileId>, limit: u32) -> Result<DataReply, WireError> {
        let limit = (limit as usize).clamp(1, MAX_OBJECTS);
        let store = self.objects.store();
        let objects = store.list_after(after, limit).map_err(store_error)?;
        Ok(DataReply::Objects {
            more: objects.len() == limit,
            objects,
        })
    }

    /// The findings of a check of the store.
    pub(crate) fn verify(&self) -> Result<DataReply, WireError> {
        let mut findings = Vec::new();
        let mut room = MAX_FINDING_TEXT;
        let mut more = false;
        self.objects
            .store()
            .verify(&mut |finding| {
                let message = finding.to_string();
                if findings.len() == MAX_FINDINGS || message.len() > room {
                    more = true;
                    return;
                }
                room -= message.len();
                findings.push(ObjectFinding {
                    object: finding.object,
                    problem: match finding.problem {
                        Problem::Truncated { recorded, actual } => {
                            ObjectProblem::Truncated { recorded, actual }
                        }
                        Problem::BadRecord(_) => ObjectProblem::BadRecord,
                        Problem::Missing(_) => ObjectProblem::Missing,
                        Problem::Foreign => ObjectProblem::Foreign,
                        Problem::Unreadable(_) => ObjectProblem::Unreadable,
                    },
                    message,
                });
            })
            .map_err(store_error)?;
        Ok(DataReply::Findings { findings, more })
    }
}
