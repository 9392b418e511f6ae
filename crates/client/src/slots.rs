//! Changes of names that take effect once, however often their connection breaks.
//!
//! *Problem*: a change whose answer was lost may have been carried out. Sent again it would fail, or be done twice.
//! *Idea*: the client opens a session with the metadata server at its first change. Each change takes one of the
//! session's slots and that slot's next number; its repetitions carry the same. If the server has carried a number out,
//! it answers with the stored outcome, also after a restart (`crates/meta/src/slots.rs`). A session that the server has
//! dropped is replaced by a new one. A change that may have arrived before that fails: whether it took effect is
//! unknown. *Bounds*: [`SLOTS`] changes at once; further ones wait.
use crate::error::{Error, Peer};
use crate::fault::Fault;
use crate::guard::guard;
use crate::link::Link;
use penstock_host::sync::{Condvar, Mutex};
use penstock_host::time::now;
use penstock_wire::message::{
    DataReply, ErrorKind, MetaReply, MetaRequest, SLOTS, SlotAt, TraceContext, WireError,
};
use std::sync::PoisonError;
use std::time::Duration;

/// The session of a client, and which of its slots are free.
#[derive(Debug)]
pub(crate) struct Slots {
    session: Mutex<Option<u128>>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<u16>,
    /// Of each slot, the number of its last request. Numbers continue over sessions.
    last: Vec<u64>,
}

impl Slots {
    pub fn new() -> Slots {
        Slots {
            session: Mutex::new(None),
            state: Mutex::new(State {
                free: (0..SLOTS).rev().collect(),
                last: vec![0; usize::from(SLOTS)],
            }),
            freed: Condvar::new(),
        }
    }

    /// So many slots at once, each with the number of its next request; waits at most `limit`.
    fn take(&self, count: usize, limit: Duration) -> Option<Vec<(u16, u64)>> {
        let end = now() + limit;
        let mut state = guard(&self.state);
        while state.free.len() < count {
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return None;
            }
            (state, _) = self
                .freed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let at = state.free.len() - count;
        let slots = state.free.split_off(at);
        let mut taken = Vec::with_capacity(count);
        for slot in slots {
            let last = &mut state.last[usize::from(slot)];
            *last += 1;
            taken.push((slot, *last));
        }
        Some(taken)
    }

    fn give_back(&self, slots: &[(u16, u64)]) {
        guard(&self.state).free.extend(slots.iter().map(|s| s.0));
        self.freed.notify_all();
    }

    /// The session is known no more; the next change opens another.
    fn forget(&self, session: u128) {
        let mut current = guard(&self.session);
        if *current == Some(session) {
            *current = None;
        }
    }
}

/// One request to the metadata server and all its repetitions.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    of: &'a Slots,
    /// The metadata server.
    peer: &'a Peer,
    /// How long it waits for slots.
    limit: Duration,
    operation: &'static str,
    trace: TraceContext,
    request: MetaRequest,
    /// Whether it is a change, which needs slots.
    changes: bool,
    slots: Vec<(u16, u64)>,
    session: Option<u128>,
    /// Whether it may have been carried out.
    sent: bool,
}

impl<'a> Call<'a> {
    /// `peer` is the metadata server; `limit` is how long a change waits for slots.
    pub fn new(
        of: &'a Slots,
        peer: &'a Peer,
        limit: Duration,
        operation: &'static str,
        trace: TraceContext,
        request: MetaRequest,
    ) -> Call<'a> {
        Call {
            of,
            peer,
            limit,
            operation,
            trace,
            changes: request.changes(),
            request,
            slots: Vec::new(),
            session: None,
            sent: false,
        }
    }

    /// Sends it over `link`, for the first time or again. Errors of the server are in the reply.
    pub fn send(&mut self, link: &mut Link) -> std::result::Result<MetaReply, Fault> {
        loop {
            if self.changes && self.session.is_none() {
                self.enter(link)?;
            }
            let before = self.sent;
            let reply: MetaReply =
                link.converse(self.operation, self.trace, &self.request, &mut self.sent)?;
            match (refusal(&reply), self.session) {
                (Some(e), Some(session)) if e.kind == ErrorKind::NoSession => {
                    self.of.forget(session);
                    if before {
                        return Err(Fault::Final(self.doubt(&e.message)));
                    }
                    // This was the first copy, and it was not carried out.
                    (self.session, self.sent) = (None, false);
                }
                (Some(e), _) if matches!(e.kind, ErrorKind::Busy | ErrorKind::ShuttingDown) => {
                    self.sent = before;
                    return Ok(reply);
                }
                _ => return Ok(reply),
            }
        }
    }

    fn doubt(&self, why: &str) -> Error {
        Error::Local {
            what: format!("{} at {}", self.operation, self.peer),
            kind: ErrorKind::Io,
            detail: format!(
                "the connection broke, and it is unknown whether this took effect ({why}); check before you try again"
            ),
        }
    }

    /// Enters the client's session, which is opened if there is none, and numbers the request's changes.
    fn enter(&mut self, link: &mut Link) -> std::result::Result<(), Fault> {
        let slots = self.of;
        if self.slots.is_empty() {
            let mut count = 0;
            each_change(&mut self.request, &mut |_: &mut MetaRequest| count += 1);
            let taken = slots.take(count.min(usize::from(SLOTS)), self.limit);
            self.slots = taken.ok_or_else(|| {
                Fault::Final(Error::Timeout {
                    peer: self.peer.clone(),
                    operation: self.operation,
                    waited: self.limit,
                })
            })?;
        }
        // Held while the session is opened: the others need it as well.
        let mut current = guard(&slots.session);
        let session = match *current {
            Some(session) => session,
            None => {
                let session = open(link, self.trace)?;
                *current = Some(session);
                session
            }
        };
        drop(current);
        self.session = Some(session);
        let mut next = self.slots.iter();
        each_change(&mut self.request, &mut |change: &mut MetaRequest| {
            let Some(&(slot, sequence)) = next.next() else {
                return;
            };
            let to = SlotAt {
                session,
                slot,
                sequence,
            };
            if let MetaRequest::Once { at, .. } = change {
                *at = to;
                return;
            }
            let request = Box::new(std::mem::replace(change, MetaRequest::Sync));
            *change = MetaRequest::Once { at: to, request };
        });
        Ok(())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            self.of.give_back(&self.slots);
        }
    }
}

fn open(link: &mut Link, trace: TraceContext) -> std::result::Result<u128, Fault> {
    const OPEN: &str = "open a session";
    let mut id = [0; 16];
    penstock_host::random(&mut id).map_err(|e| {
        Fault::Final(Error::Local {
            what: OPEN.into(),
            kind: ErrorKind::Io,
            detail: e.to_string(),
        })
    })?;
    let session = u128::from_le_bytes(id);
    let request = MetaRequest::OpenSession { session };
    match link.converse(OPEN, trace, &request, &mut false)? {
        MetaReply::Done => Ok(session),
        MetaReply::Error(e) => Err(link.server.unexpected(OPEN, DataReply::Error(e))),
        other => Err(Fault::Final(Error::Protocol {
            peer: link.server.peer.clone(),
            operation: OPEN,
            detail: format!("unexpected answer {other:?}"),
        })),
    }
}

/// Calls `f` with the request if it is a change, and with each change of a batch.
fn each_change(request: &mut MetaRequest, f: &mut impl FnMut(&mut MetaRequest)) {
    if let MetaRequest::Batch(requests) = request {
        requests
            .iter_mut()
            .for_each(|request| each_change(request, f));
    } else if request.changes() {
        f(request);
    }
}

/// Why the server did not carry out a request, or the changes of a batch.
fn refusal(reply: &MetaReply) -> Option<&WireError> {
    match reply {
        MetaReply::Error(e) => Some(e),
        MetaReply::Batch(replies) => replies.iter().find_map(|reply| match reply {
            MetaReply::Error(e) if e.kind == ErrorKind::NoSession => Some(e),
            _ => None,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_and_numbers_rise() {
        let slots = Slots::new();
        let none = Duration::ZERO;
        let all = slots.take(usize::from(SLOTS), none).unwrap();
        assert!(all.iter().all(|(_, sequence)| *sequence == 1));
        assert!(slots.take(1, none).is_none());
        slots.give_back(&all[3..5]);
        let again = slots.take(2, none).unwrap();
        assert!(again.iter().all(|(_, sequence)| *sequence == 2));
        assert!(slots.take(1, none).is_none());
    }

    #[test]
    fn changes_of_a_batch_are_found() {
        let mkdir = MetaRequest::Mkdir {
            path: "/d".into(),
            mode: 0o755,
        };
        let mut batch = MetaRequest::Batch(vec![mkdir.clone(), MetaRequest::Status, mkdir]);
        let mut found = 0;
        each_change(&mut batch, &mut |_: &mut MetaRequest| found += 1);
        assert_eq!(found, 2);
    }
}
