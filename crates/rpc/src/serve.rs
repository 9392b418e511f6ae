//! The server loop: sockets, threads and their bounds. One thread accepts. Each connection has a thread of its own that
//! does the handshake and then runs the [`Service`]'s session.
//!
//! The number of open connections is bounded, with a share for each user; one more is answered `Busy`. So is the number
//! of half-open ones. When too many are half-open, new ones wait in the kernel's queue for a moment; then the oldest
//! half-open one is dropped. A handshake that exceeds its deadline is dropped too. So slow or silent peers take a
//! bounded number of threads and never keep others out.
use crate::audit::{Event, Outcome, Subject};
use crate::closer::Closer;
use crate::connection::{Connection, Credentials, Timeouts};
use crate::deployment::Address;
use crate::fence::{Before, Fence};
use crate::keyring::{Generations, Keyring};
use crate::listen::Listener;
use crate::quota::{Line, LogQuota};
use crate::service::{After, Service};
use crate::share::{Charge, Pool, Share, payer};
use crate::{handshake, newcomer};
use penstock_host::net;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::thread::{self, JoinHandle, sleep};
use penstock_host::time::now;
use penstock_wire::handshake::{Hello, Role};
use penstock_wire::message::{ErrorKind, WireError};
use penstock_wire::{Error, LinkName, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Connections beyond the limit that are reserved for administrators, so that a full server can be queried and stopped.
const ADMIN_PLACES: usize = 8;
/// Stack of a connection's thread.
const STACK: usize = 512 << 10;
/// How often a server checks that its socket's file exists and its keys are unchanged.
const RENEW: Duration = Duration::from_secs(2);
/// How long a stop waits for sessions to end after their connections were closed.
const STOP: Duration = Duration::from_secs(30);

/// Bounds of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Most open connections. One user's share is three quarters of them, 1152 of the default 1536: enough for 256
    /// ranks with four each.
    pub connections: usize,
    /// Most connections in their handshake.
    pub half_open: usize,
    /// Time limit of a handshake.
    pub handshake: Duration,
    /// A half-open connection older than this is dropped when there are too many.
    pub grace: Duration,
    /// How long a connection waits for the older one of its link to end its work; after that the client is told to try
    /// again. `None`: no fencing, and what its client repeats may be carried out again later (to show that tests
    /// notice).
    pub fence: Option<Duration>,
    /// Of each connection. The read time-out bounds the arrival of a frame, not the pause between frames.
    pub timeouts: Timeouts,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
            connections: 1536,
            half_open: 128,
            handshake: Duration::from_secs(5),
            grace: Duration::from_millis(250),
            fence: Some(Duration::from_secs(5)),
            timeouts: Timeouts {
                read: Some(Duration::from_secs(30)),
                write: Some(Duration::from_secs(30)),
            },
        }
    }
}

impl ServeLimits {
    /// The same limits with at most as many connections as there are descriptors for.
    #[must_use]
    pub fn within(self, descriptors: usize) -> ServeLimits {
        let half_open = self.half_open.min(descriptors / 4).max(1);
        ServeLimits {
            half_open,
            connections: self
                .connections
                .min(descriptors - half_open.min(descriptors))
                .max(1),
            ..self
        }
    }
}

#[derive(Debug)]
struct Entry {
    closer: Closer,
    /// Set once it has been accepted.
    link: Option<LinkName>,
    /// The hello by which it was authenticated.
    shown: Option<Box<Hello>>,
    since: Instant,
    thread: Option<JoinHandle>,
    /// The user's share of an open connection, unless it is a reserved one.
    charge: Option<Charge>,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    /// Whether the acceptor waits for a half-open place.
    waiting_for_place: bool,
    next: u64,
    open: usize,
    connections: HashMap<u64, Entry>,
    fence: Fence,
    ended: Vec<JoinHandle>,
}

impl State {
    fn half_open(&self) -> usize {
        self.connections.len() - self.open
    }
}

struct Shared {
    /// Its name, for messages.
    name: String,
    keys: Arc<Keyring>,
    limits: ServeLimits,
    /// For open connections.
    places: Pool,
    service: Arc<dyn Service>,
    state: Mutex<State>,
    /// Rate limit of log lines about failed connections.
    quota: Mutex<LogQuota>,
    changed: Condvar,
    wake: OwnedFd,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every update of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs why a connection failed, within the rate limit.
    fn complain(&self, what: std::fmt::Arguments<'_>) {
        let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        let line = quota.line(now());
        drop(quota);
        let server = &self.name;
        match line {
            Line::Write => log::warn!("{server}: {what}"),
            Line::WriteAfter(n) => {
                log::warn!("{server}: {what} ({n} lines about connections were left out)");
            }
            Line::LeaveOut => {}
        }
    }

    /// Records an action of the server itself in the audit log.
    fn note(&self, event: Event, outcome: Outcome, reason: &str) {
        if let Some(audit) = self.service.audit() {
            let itself = Subject::itself(None, "server");
            audit.note(event, outcome, &itself, None, reason);
        }
    }

    fn wake_acceptor(&self) {
        net::signal(&self.wake);
    }

    fn request_stop(&self) {
        let mut state = self.state();
        if !state.stopping {
            state.stopping = true;
            drop(state);
            self.changed.notify_all();
            self.wake_acceptor();
        }
    }
}

/// Asks a running server to stop, from any thread or a signal watcher.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Returns at once; [`RunningServer::wait`] returns when the server has stopped.
    pub fn stop(&self) {
        self.0.request_stop();
    }
}

/// A running server. Dropping it stops it.
pub struct RunningServer {
    shared: Arc<Shared>,
    address: Address,
    acceptor: Option<JoinHandle>,
}

impl RunningServer {
    /// Its addresses, with the actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.shared.state().open
    }

    /// A handle that stops it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until the server is asked to stop and has stopped.
    pub fn wait(mut self) {
        self.finish();
    }

    /// Closes the sockets, ends all connections and waits for their threads.
    pub fn stop(mut self) {
        self.shared.request_stop();
        self.finish();
    }

    fn finish(&mut self) {
        if let Some(acceptor) = self.acceptor.take()
            && acceptor.join().is_err()
        {
            log::error!("{}: the accepting thread panicked", self.shared.name);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if self.acceptor.is_some() {
            self.shared.request_stop();
            self.finish();
        }
    }
}

/// Listens at `address` (on both sockets if both are given) and serves until stopped; errors name the address.
///
/// When `keys` are replaced, connections that were authenticated with a removed key are closed.
pub fn serve(
    address: &Address,
    service: Arc<dyn Service>,
    keys: Arc<Keyring>,
    limits: ServeLimits,
) -> Result<RunningServer> {
    let mut bound = Address::default();
    let mut listeners = Vec::new();
    if let Some(path) = &address.unix {
        listeners.push(Listener::unix(path)?);
        bound.unix = Some(path.clone());
    }
    let current = keys.now();
    let identity = current.current();
    if let Some(tcp) = &address.tcp {
        if identity.transport.is_tls() {
            bound.identity = Some(identity.pair.public());
        }
        let (listener, actual) = Listener::tcp(tcp)?;
        listeners.push(listener);
        bound.tcp = Some(actual);
    }
    if listeners.is_empty() {
        return Err(Error::Listen {
            address: "(none)".into(),
            what: "the server has neither a Unix socket nor a TCP address".into(),
        });
    }
    let system = |source: std::io::Error| Error::Io {
        what: "start",
        peer: identity.server.clone(),
        source,
    };
    let wake =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| system(e.into()))?;
    let places = Share::elastic(
        limits.connections,
        format!("connections to {}", identity.server),
        "end programs, use fewer threads or processes, or try again later",
    );
    let shared = Arc::new(Shared {
        name: identity.server.clone(),
        keys: keys.clone(),
        limits,
        places: Pool::new(places),
        service,
        state: Mutex::new(State::default()),
        quota: Mutex::new(LogQuota::default()),
        changed: Condvar::new(),
        wake,
    });
    let acceptor = thread::spawn("accept", None, {
        let shared = shared.clone();
        move || accept_loop(&shared, listeners)
    })
    .map_err(system)?;
    shared.note(Event::Start, Outcome::Done, "it begins to serve");
    Ok(RunningServer {
        shared,
        address: bound,
        acceptor: Some(acceptor),
    })
}

// ---- accepting ----

fn accept_loop(shared: &Arc<Shared>, mut listeners: Vec<Listener>) {
    let mut keys = shared.keys.now();
    loop {
        let now_keys = shared.keys.now();
        if !Arc::ptr_eq(&keys, &now_keys) {
            keys = now_keys;
            end_former(shared, &keys);
        }
        let (pause, ended) = {
            let mut state = shared.state();
            if state.stopping {
                break;
            }
            let pause = make_place(&mut state, &shared.limits, now());
            state.waiting_for_place = pause.is_some();
            (pause, std::mem::take(&mut state.ended))
        };
        join_all(ended);
        if !wait_for_event(shared, &listeners, pause) {
            // Poll failed: pause, so as not to loop.
            sleep(Duration::from_millis(50));
        }
        for listener in &mut listeners {
            if let Err(e) = listener.renew() {
                shared.complain(format_args!("{e}"));
            }
        }
        if pause.is_some() {
            continue;
        }
        for listener in &listeners {
            match listener.accept(shared.limits.timeouts) {
                Ok(Ok(connection)) => start_session(shared, connection),
                Ok(Err(e)) => log::info!("{}: {e}", shared.name),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    // No descriptors or memory: the connection stays queued and is tried again soon.
                    shared.complain(format_args!("cannot accept: {e}"));
                    shared.note(
                        Event::Limit,
                        Outcome::Refused,
                        &format!("cannot accept: {e}"),
                    );
                    shared.service.relieve();
                    sleep(Duration::from_millis(50));
                }
            }
        }
    }
    drop(listeners);
    finish_sessions(shared);
    shared.note(Event::Stop, Outcome::Done, "it ends");
    if let Some(audit) = shared.service.audit() {
        audit.stop();
    }
}

/// Closes the connections that none of `keys` would accept.
fn end_former(shared: &Shared, keys: &Generations) {
    for entry in shared.state().connections.values() {
        let shown = entry.shown.as_ref();
        if shown.is_some_and(|hello| !keys.accept(hello)) {
            entry.closer.close();
        }
    }
}

/// `None` when a half-open place is free; otherwise how long to wait before trying again. Drops the oldest half-open
/// connection past its grace to make a place.
fn make_place(state: &mut State, limits: &ServeLimits, now: Instant) -> Option<Duration> {
    if state.half_open() < limits.half_open {
        return None;
    }
    let oldest = state
        .connections
        .values()
        .filter(|c| c.link.is_none())
        .min_by_key(|c| c.since)?;
    let age = now.saturating_duration_since(oldest.since);
    if age >= limits.grace {
        log::info!("dropping the oldest half-open connection: too many wait");
        oldest.closer.close();
        // Its thread wakes the acceptor when it has ended.
        return Some(limits.grace.max(Duration::from_millis(10)));
    }
    Some(limits.grace - age)
}

/// Waits for a connection (unless paused), a wake-up, or the end of the pause; at most [`RENEW`].
fn wait_for_event(shared: &Shared, listeners: &[Listener], pause: Option<Duration>) -> bool {
    let mut fds = vec![PollFd::new(&shared.wake, PollFlags::IN)];
    if pause.is_none() {
        fds.extend(listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)));
    }
    match net::poll(&mut fds, Some(pause.unwrap_or(RENEW).min(RENEW))) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => {
            log::error!("{}: poll: {e}", shared.name);
            return false;
        }
    }
    let mut counter = [0u8; 8];
    // Nonblocking: empty if nobody woke the thread.
    let _ = rustix::io::read(&shared.wake, &mut counter);
    true
}

fn start_session(shared: &Arc<Shared>, connection: Connection) {
    let closer = connection.closer();
    let mut state = shared.state();
    let id = state.next;
    state.next += 1;
    let spawned = thread::spawn(&format!("connection {id}"), Some(STACK), {
        let shared = shared.clone();
        move || {
            let ended = Ended {
                shared: &shared,
                id,
            };
            run_session(&shared, id, connection);
            drop(ended);
        }
    });
    match spawned {
        Ok(thread) => {
            state.connections.insert(
                id,
                Entry {
                    closer,
                    link: None,
                    shown: None,
                    since: now(),
                    thread: Some(thread),
                    charge: None,
                },
            );
        }
        Err(e) => {
            drop(state);
            log::warn!("{}: no thread for a connection: {e}", shared.name);
            sleep(Duration::from_millis(50));
        }
    }
}

/// Takes the connection off the list when its thread ends, even by a panic.
struct Ended<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(entry) = state.connections.remove(&self.id) {
            if let Some(link) = &entry.link {
                state.open -= 1;
                state.fence.ended(link, self.id);
            }
            state.ended.extend(entry.thread);
        }
        let wake = state.waiting_for_place || state.ended.len() >= 16;
        drop(state);
        self.shared.changed.notify_all();
        if wake {
            self.shared.wake_acceptor();
        }
    }
}

fn run_session(shared: &Shared, id: u64, mut connection: Connection) {
    let server = &shared.name;
    let deadline = now() + shared.limits.handshake;
    let time = || shared.service.now_ms();
    let credentials = connection.credentials();
    let keys = shared.keys.now();
    let admit = |hello: &Hello| admit(shared, id, &keys, hello, credentials);
    let secured = match keys.acceptor() {
        Some(acceptor) if !connection.is_unix() => connection.secure_from(acceptor, deadline),
        _ => Ok(()),
    };
    let answered = secured.and_then(|()| {
        handshake::answer(&mut connection, keys.identities(), deadline, time, admit)
    });
    let answered = answered.and_then(|peer| match peer.role {
        Role::Newcomer => {
            newcomer::serve(&mut connection, &*shared.service, keys.current()).map(|()| None)
        }
        _ => Ok(Some(peer)),
    });
    // A connection holds no reference to keys that may be replaced.
    drop(keys);
    let peer = match answered {
        Ok(Some(peer)) => peer,
        Ok(None) => return,
        Err(e) => {
            if let Some(audit) = shared.service.audit() {
                audit.turned_away(&connection, &e);
            }
            // Otherwise somebody only checked that the server listens.
            if !matches!(e, Error::Closed { .. }) {
                shared.complain(format_args!("refused {}: {e}", connection.peer()));
            }
            return;
        }
    };
    log::debug!("{server}: {} connected", connection.peer());
    connection.serve_nearby();
    let served = shared.service.session(&mut connection, &peer);
    let note = |event, outcome, reason: &str| {
        if let Some(audit) = shared.service.audit() {
            let subject = Subject::of(&peer, &connection);
            audit.note(event, outcome, &subject, None, reason);
        }
    };
    match served {
        Ok(After::Continue) => {}
        Ok(After::StopServer) => {
            note(Event::Stop, Outcome::Done, "told to stop by request");
            shared.request_stop();
        }
        // Possibly an attack on the network: it is logged.
        Err(e) if e.is_disconnect() && !matches!(e, Error::Broken { .. }) => {
            log::debug!("{server}: {e}");
        }
        Err(e) => {
            note(Event::Protocol, Outcome::Refused, &e.to_string());
            shared.complain(format_args!("ended the connection: {e}"));
        }
    }
}

/// Closes the older connection of a link and waits until its requests have ended.
fn succeed<'a>(
    shared: &'a Shared,
    mut state: MutexGuard<'a, State>,
    link: &LinkName,
) -> std::result::Result<MutexGuard<'a, State>, WireError> {
    let Some(limit) = shared.limits.fence else {
        return Ok(state);
    };
    let until = now() + limit;
    let server = &shared.name;
    let busy = |what: &str| Err(WireError::new(ErrorKind::Busy, format!("{server}: {what}")));
    loop {
        match state.fence.look(link) {
            Before::Nothing => return Ok(state),
            Before::Newer => return busy("a newer connection of this link is open"),
            Before::Older(older) => {
                if let Some(entry) = state.connections.get(&older) {
                    entry.closer.close();
                    if let Some(thread) = &entry.thread {
                        thread.thread().unpark();
                    }
                }
            }
        }
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return busy("a request of the connection before this one has not ended; try again");
        }
        state = shared
            .changed
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

/// Decides about a client that is authenticated by one of `keys`.
fn admit(
    shared: &Shared,
    id: u64,
    keys: &Arc<Generations>,
    hello: &Hello,
    credentials: Option<Credentials>,
) -> std::result::Result<(), WireError> {
    if hello.role == Role::Newcomer {
        // It stays half-open, so that the limits on unauthenticated peers hold for it.
        return Ok(());
    }
    if let Some(shown) = &hello.credential {
        shared.service.require(&shown.statement)?;
    }
    let mut state = succeed(shared, shared.state(), &hello.link)?;
    if state.stopping {
        return Err(WireError::new(
            ErrorKind::ShuttingDown,
            format!("{} is shutting down", shared.name),
        ));
    }
    // A connection that opens later is found when the acceptor checks the keys.
    let now = shared.keys.now();
    if !Arc::ptr_eq(keys, &now) && !now.accept(hello) {
        return Err(WireError::new(
            ErrorKind::BadKey,
            format!(
                "{} has new keys; get the deployment file again",
                shared.name
            ),
        ));
    }
    let statement = hello.credential.as_ref().map(|shown| &shown.statement);
    let charge = match shared
        .places
        .take(payer(hello.role, credentials, statement))
    {
        Ok(charge) => Some(charge),
        Err(_)
            if hello.role != Role::Client
                && state.open < shared.limits.connections + ADMIN_PLACES =>
        {
            None
        }
        Err(e) => return Err(e),
    };
    if let Some(entry) = state.connections.get_mut(&id) {
        entry.link = Some(hello.link);
        entry.shown = Some(Box::new(hello.clone()));
        entry.charge = charge;
        state.open += 1;
        state.fence.open(&hello.link, id);
    }
    let wake = state.waiting_for_place;
    drop(state);
    if wake {
        shared.wake_acceptor();
    }
    Ok(())
}

fn finish_sessions(shared: &Shared) {
    shared.service.stopping();
    let until = now() + STOP;
    let mut state = shared.state();
    for entry in state.connections.values() {
        entry.closer.close();
    }
    let mut all = true;
    while !state.connections.is_empty() {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            log::error!(
                "{}: {} sessions did not end; not waiting any longer",
                shared.name,
                state.connections.len()
            );
            all = false;
            break;
        }
        state = shared
            .changed
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    let ended = std::mem::take(&mut state.ended);
    drop(state);
    join_all(ended);
    if all {
        shared.service.stopped();
    }
}

fn join_all(threads: Vec<JoinHandle>) {
    for thread in threads {
        if thread.join().is_err() {
            log::error!("a session panicked");
        }
    }
}
