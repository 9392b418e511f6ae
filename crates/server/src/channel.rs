//! A data server's channel to the metadata server: one connection for all requests between them.
//!
//! *Problem*: reports, bytes of users, owners, revocations and the time are requested by separate threads, and by
//! clients' sessions. With a connection for each, many data servers would hold many times as many at the metadata
//! server. *Idea*: one connection; requests take it in order of arrival. A request that does not reach the metadata
//! server fails all that wait behind it, which would fail too. Until a back-off is over, only requests on behalf of a
//! client try again. *Bounds*: a request waits [`TURN`] for its turn and [`ANSWER`] for its answer; at most one is in
//! progress. The connection is kept for [`LINGER`] after requests that recur soon, and closed at once after rare ones.
//! *Exception*: what a server reports on its store ([`Channel::apart`]). *Source*: docs/decisions/0033.
use crate::keys::Keys;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::since_boot;
use penstock_rpc::deployment::{Address, Deployment};
use penstock_rpc::{Closer, Connection, Timeouts, connect};
use penstock_wire::message::{MetaReply, MetaRequest};
use penstock_wire::{Envelope, Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Time limits of sending a request, and of its answer.
const ANSWER: Timeouts = Timeouts {
    read: Some(Duration::from_secs(2)),
    write: Some(Duration::from_secs(2)),
};
/// Longest wait for earlier requests.
const TURN: Duration = Duration::from_secs(10);
/// How long the connection is kept after its last use.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// The back-off after a failure, and after several.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Names the other end in errors.
const PEER: &str = "the metadata server";

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A client's request waits for it: it is sent whatever has failed just now.
    Client,
    /// It recurs within [`LINGER`].
    Regular,
    /// No other is expected soon.
    Seldom,
}

/// The channel of a data server.
pub(crate) struct Channel {
    meta: Address,
    keys: Arc<Keys>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` while a request uses it.
    connection: Option<Connection>,
    /// It is closed at this time.
    until: Duration,
    /// Closes the one that a request uses.
    closer: Option<Closer>,
    /// Waiting requests in order; the first has the turn.
    queue: VecDeque<u64>,
    /// Questions so far.
    count: u64,
    /// Failures so far, and why the last was one.
    failures: u64,
    why: String,
    /// The back-off, and when it is over.
    pause: Duration,
    again: Duration,
    stop: bool,
}

/// The access guard of the connection.
struct Turn<'a> {
    channel: &'a Channel,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        state.queue.retain(|number| *number != self.number);
        drop(state);
        self.channel.changed.notify_all();
    }
}

impl Channel {
    pub(crate) fn new(deployment: &Deployment, keys: Arc<Keys>) -> Channel {
        Channel {
            meta: deployment.meta.address.clone(),
            keys,
            state: Mutex::default(),
            changed: Condvar::default(),
        }
    }

    /// Sends a request; a refusal is an error. The request may arrive twice.
    pub(crate) fn ask(&self, need: Need, request: &MetaRequest) -> Result<MetaReply> {
        let _turn = self.turn(need)?;
        let kept = self.state().connection.take();
        // A kept connection may have ended with the metadata server.
        let answer = match kept.and_then(|kept| self.over(kept, need, request).ok()) {
            Some(answer) => Ok(answer),
            None => self
                .connect()
                .and_then(|connection| self.over(connection, need, request)),
        };
        if let Err(e) = &answer {
            self.failed(e);
        }
        answer?
    }

    /// The same over a separate connection, for requests that may take long, so that no other waits behind it.
    pub(crate) fn apart(&self, request: &MetaRequest) -> Result<MetaReply> {
        let mut connection = connect(&self.meta, &self.keys.caller(), Timeouts::default())?;
        exchange(&mut connection, request)?
    }

    /// A connection is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.state().connection.is_some()
    }

    /// Ends the connection if it has been kept for long enough.
    pub(crate) fn hang_up(&self) {
        let now = since_boot();
        let mut state = self.state();
        let until = state.until;
        state.connection.take_if(|_| until <= now);
    }

    /// How long the back-off lasts yet.
    pub(crate) fn again_in(&self) -> Duration {
        self.state().again.saturating_sub(since_boot())
    }

    /// Aborts the request in progress. From now on all fail except separate ones.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stop = true;
        if let Some(closer) = state.closer.take() {
            closer.close();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each request that has entered the queue leaves it; everything else is replaced as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all earlier requests have ended.
    fn turn(&self, need: Need) -> Result<Turn<'_>> {
        let end = since_boot() + TURN;
        let mut state = self.state();
        if need != Need::Client && since_boot() < state.again {
            return Err(unreachable(&state.why));
        }
        state.count += 1;
        let (number, failures) = (state.count, state.failures);
        state.queue.push_back(number);
        let turn = Turn {
            channel: self,
            number,
        };
        let refused = loop {
            if state.stop {
                break stopped();
            }
            if state.failures != failures {
                break unreachable(&state.why);
            }
            if state.queue.front() == Some(&number) {
                drop(state);
                return Ok(turn);
            }
            let left = end.saturating_sub(since_boot());
            if left.is_zero() {
                break Error::TimedOut {
                    peer: PEER.into(),
                    what: "answer the questions before this one",
                    after: TURN,
                };
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        // Dropping the guard takes the lock.
        drop(state);
        drop(turn);
        Err(refused)
    }

    fn connect(&self) -> Result<Connection> {
        if self.state().stop {
            return Err(stopped());
        }
        connect(&self.meta, &self.keys.caller(), ANSWER)
    }

    /// The outer error is the connection's, the inner one the server's. To be called with the guard.
    fn over(
        &self,
        mut connection: Connection,
        need: Need,
        request: &MetaRequest,
    ) -> Result<Result<MetaReply>> {
        {
            let mut state = self.state();
            if state.stop {
                return Err(stopped());
            }
            state.closer = Some(connection.closer());
        }
        let answer = exchange(&mut connection, request);
        let now = since_boot();
        let mut state = self.state();
        state.closer = None;
        let answer = answer?;
        (state.pause, state.again) = (Duration::ZERO, Duration::ZERO);
        if need != Need::Seldom {
            state.until = now + LINGER;
        }
        if now < state.until && !state.stop {
            state.connection = Some(connection);
        }
        Ok(answer)
    }

    /// Waiting requests fail too.
    fn failed(&self, why: &Error) {
        let mut state = self.state();
        state.failures += 1;
        state.why = why.to_string();
        state.pause = (2 * state.pause).clamp(FIRST_PAUSE, LAST_PAUSE);
        state.again = since_boot() + state.pause;
    }
}

/// The outer error is the connection's, the inner one the server's.
fn exchange(connection: &mut Connection, request: &MetaRequest) -> Result<Result<MetaReply>> {
    let answer = connection.call(&Envelope::default(), request, &mut false)?;
    match answer.body {
        Some(MetaReply::Error(why)) => Ok(Err(Error::Refused(why))),
        Some(reply) => Ok(Ok(reply)),
        None => Err(Error::Malformed {
            peer: connection.peer().to_owned(),
            what: "an answer without a body".into(),
        }),
    }
}

fn unreachable(why: &str) -> Error {
    Error::Io {
        what: "reach",
        peer: PEER.into(),
        source: std::io::Error::other(why.to_owned()),
    }
}

fn stopped() -> Error {
    unreachable("this data server stops")
}

/// An answer of another kind than the question.
pub(crate) fn unexpected(reply: &MetaReply) -> Error {
    Error::Malformed {
        peer: PEER.into(),
        what: format!("{reply:?} in answer to a data server"),
    }
}

#[cfg(test)]
mod tests;
