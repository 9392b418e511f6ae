//! The time of a data server, by which it judges capabilities ([`penstock_wire::clock`]).
//!
//! A thread asks the metadata server: after the start, once a minute, and whenever a session needs it. It also records
//! the time in the store, once a minute. Sessions wait for an answer at most [`WAIT`]; then they judge by what is
//! known. Most requests take no lock: how far the time is ahead of the steady clock is in an atomic.
use crate::channel::{Channel, Need, unexpected};
use crate::error::Error;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::{now, since, since_boot, since_epoch};
use penstock_layout::ServerId;
use penstock_rpc::Background;
use penstock_store::StoreError;
use penstock_wire::clock::{ASK_UNANSWERED, Kept, ServerTime, TICK};
use penstock_wire::message::{ErrorKind, MetaReply, MetaRequest, WireError};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait of a request for the metadata server's time, from when it was asked.
const WAIT: Duration = Duration::from_secs(1);

/// The time of a data server.
pub(crate) struct Clock {
    shared: Arc<Shared>,
    thread: Background,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Of the state's time, for those who don't lock it.
    ahead_ms: AtomicI64,
    sure: AtomicBool,
}

struct State {
    time: ServerTime,
    /// Since when the metadata server is being asked.
    asking: Option<Instant>,
    /// Whether a thread asks it.
    follows: bool,
    stop: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Plain numbers: any state that a panic left is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called with the state that has changed.
    fn publish(&self, time: &ServerTime) {
        self.ahead_ms.store(time.ahead_ms(), Relaxed);
        self.sure.store(time.is_sure(), Relaxed);
    }

    fn now_ms(&self) -> u64 {
        let steady = u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX);
        steady.saturating_add_signed(self.ahead_ms.load(Relaxed))
    }
}

fn wall_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

impl Clock {
    /// Continues from the time recorded in the store, if any.
    pub(crate) fn begin(kept: Option<&str>) -> Clock {
        let kept = kept.and_then(Kept::decode);
        let time = ServerTime::begin(kept, penstock_host::boot(), wall_ms(), since_boot());
        let shared = Shared {
            ahead_ms: AtomicI64::new(time.ahead_ms()),
            sure: AtomicBool::new(time.is_sure()),
            state: Mutex::new(State {
                time,
                asking: None,
                follows: false,
                stop: false,
            }),
            changed: Condvar::new(),
        };
        Clock {
            shared: Arc::new(shared),
            thread: Background::default(),
        }
    }

    /// Asks the metadata server from now on, on a thread of its own. `keep` records the time for the next server;
    /// `None`: the server `id` is gone.
    pub(crate) fn follow(
        &self,
        id: ServerId,
        channel: Arc<Channel>,
        keep: impl Fn(&Kept) -> Option<Result<(), StoreError>> + Send + 'static,
    ) -> Result<(), Error> {
        let shared = self.shared.clone();
        self.shared.state().follows = true;
        let run = move || run(&shared, &channel, id, &keep);
        self.thread.start("clock", run).map_err(|e| {
            Error::Wire(penstock_wire::Error::Io {
                what: "start a thread for the time of",
                peer: format!("data server {}", id.0),
                source: e,
            })
        })
    }

    /// Ends the thread and waits for it. The channel has stopped before.
    pub(crate) fn stop(&self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        self.thread.join("asks for the time");
    }

    /// A genuine capability was issued at this time.
    pub(crate) fn saw(&self, issued_ms: u64) {
        if issued_ms > self.shared.now_ms() {
            let mut state = self.shared.state();
            state.time.saw(issued_ms, since_boot());
            self.shared.publish(&state.time);
        }
    }

    /// Runs `judge` at the present time. The metadata server is asked first if that time is unknown, and before
    /// something is called expired.
    pub(crate) fn judged<T>(
        &self,
        judge: impl Fn(u64) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let refuses = |r: &Result<T, WireError>| matches!(r, Err(e) if e.kind == ErrorKind::ExpiredCapability);
        let first = judge(self.shared.now_ms());
        if self.shared.sure.load(Relaxed) && !refuses(&first) {
            return first;
        }
        let refused = refuses(&first);
        drop(first);
        self.ask(refused);
        judge(self.shared.now_ms())
    }

    /// Asks the metadata server if its answer may change something, and waits for it. It is asked again before a
    /// refusal, because it may just have been restarted.
    fn ask(&self, refuses: bool) {
        let shared = &self.shared;
        let end = now() + WAIT;
        let mut asked = false;
        let mut state = shared.state();
        loop {
            let steady = since_boot();
            let mut left = end.saturating_duration_since(now());
            let over = state.stop || left.is_zero() || !state.follows;
            if over || !state.time.doubts(refuses, steady) {
                return;
            }
            let asking = state.asking;
            match asking {
                Some(began) if !refuses => left = left.min(WAIT.saturating_sub(since(began))),
                Some(_) => {}
                None if asked && !refuses => return,
                None if state.time.ask(steady) => {
                    state.asking = Some(now());
                    shared.changed.notify_all();
                }
                None if !refuses => return,
                None => left = left.min(ASK_UNANSWERED),
            }
            if left.is_zero() {
                return;
            }
            asked = true;
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// By how much this host's wall clock is ahead of the metadata server's.
    pub(crate) fn wall_ahead_ms(&self) -> Option<i64> {
        let state = self.shared.state();
        state.time.wall_ahead_ms(wall_ms(), since_boot())
    }
}

impl Drop for Clock {
    /// Of a server that has not been started after all. Its thread may be the one that drops it.
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
    }
}

/// The metadata server's time and its wall clock. Both are behind by the time that the answer was in flight.
fn ask(channel: &Channel, need: Need) -> penstock_wire::Result<(u64, u64)> {
    match channel.ask(need, &MetaRequest::Time)? {
        MetaReply::Time { issue_ms, wall_ms } => Ok((issue_ms, wall_ms)),
        other => Err(unexpected(&other)),
    }
}

fn run(
    shared: &Shared,
    channel: &Channel,
    id: ServerId,
    keep: &impl Fn(&Kept) -> Option<Result<(), StoreError>>,
) {
    let mut tick = since_boot();
    let mut warned = false;
    let mut state = shared.state();
    while !state.stop {
        let steady = since_boot();
        let (due, unsure) = (steady >= tick, !state.time.is_sure());
        // A session waits, or the next one will.
        let need = if unsure || state.asking.is_some() {
            Need::Client
        } else {
            Need::Seldom
        };
        if state.asking.is_none() && (due || unsure) && state.time.ask(steady) {
            state.asking = Some(now());
        }
        if state.asking.is_some() {
            drop(state);
            let answer = ask(channel, need);
            state = shared.state();
            match answer {
                Ok((issue_ms, wall_ms)) => {
                    state.time.told(issue_ms, wall_ms, since_boot());
                    shared.publish(&state.time);
                }
                Err(e) => log::debug!("the metadata server is not there to give its time: {e}"),
            }
            state.asking = None;
            shared.changed.notify_all();
        }
        let steady = since_boot();
        if steady >= tick && state.time.is_sure() {
            tick = steady + TICK;
            let known = state.time.keep(steady);
            drop(state);
            let Some(kept) = known.map_or(Some(Ok(())), |known| keep(&known)) else {
                return;
            };
            if let Err(e) = kept
                && !std::mem::replace(&mut warned, true)
            {
                log::warn!(
                    "data server {}: {e}; it asks for the time at its next start",
                    id.0
                );
            }
            state = shared.state();
            continue;
        }
        let pause = if state.time.is_sure() {
            tick.saturating_sub(steady)
        } else {
            ASK_UNANSWERED
        };
        if !state.stop && state.asking.is_none() {
            let waited = shared.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
