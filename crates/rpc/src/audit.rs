//! The audit log of refusals and of administrators' actions (docs/administer/security.md, decisions/0025).
//!
//! Problem: investigations need durable records, and attackers want the log full, slow or in the way. Idea: a thread
//! that serves a request only offers a record. Similar records are folded at once ([`folding`]). The others go into a
//! bounded queue, and one thread writes it to files of bounded size ([`files`]). Records that do not fit are counted,
//! and the count is written when there is room again. No request waits for a disk.
//!
//! Without a directory nothing is written and there is no thread; refusals are still counted.
mod files;
mod folding;
mod record;

pub use files::{FILE_LIMIT, OLD_FILES, path_of};
pub use record::{Event, Outcome, Subject, time_text};

use crate::background::Background;
use crate::connection::Connection;
use files::Files;
use folding::Folding;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::{now, since_epoch};
use penstock_wire::Error;
use penstock_wire::message::{AuditStatus, ErrorKind};
use record::Record;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Records that wait to be written.
const QUEUE: usize = 1024;
/// Pause after a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The audit log of one server.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
    writer: Background,
}

#[derive(Debug)]
struct Shared {
    name: String,
    files: Option<Files>,
    refused: AtomicU64,
    dropped: AtomicU64,
    errors: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    folding: Folding,
    queue: VecDeque<Record>,
    stopping: bool,
}

impl Audit {
    /// Starts a log in the directory, if there is one. `name`: `meta`, `data-0`. An audit log that cannot be written
    /// does not stop the server.
    pub fn start(directory: Option<&Path>, name: &str) -> Audit {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            files: directory.map(|directory| Files::new(directory, name)),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let audit = Audit {
            shared: shared.clone(),
            writer: Background::default(),
        };
        if directory.is_some()
            && let Err(e) = audit.writer.start("audit", move || shared.write())
        {
            log::warn!("{name}: no thread for the audit log, nothing is written to it: {e}");
        }
        audit
    }

    /// Records an action. Returns at once.
    pub fn note(
        &self,
        event: Event,
        outcome: Outcome,
        subject: &Subject,
        object: Option<&[u8]>,
        reason: &str,
    ) {
        let shared = &self.shared;
        if outcome == Outcome::Refused {
            shared.refused.fetch_add(1, Relaxed);
        }
        if shared.files.is_none() {
            return;
        }
        let record = Record::new(&shared.name, event, outcome, subject, object, reason);
        shared.offer(record, &subject.origin);
    }

    /// Records a request refused with this error, if errors of its kind are recorded. `act` is the administrative
    /// action that was tried: a missing right, or any other failure, is recorded under it.
    pub fn refused(
        &self,
        act: Option<Event>,
        subject: &Subject,
        object: Option<&[u8]>,
        kind: ErrorKind,
        reason: &str,
    ) {
        if let Some(event) = act.or_else(|| event_of(kind)) {
            self.note(event, Outcome::Refused, subject, object, reason);
        }
    }

    /// Records a handshake that failed.
    pub(crate) fn turned_away(&self, connection: &Connection, why: &Error) {
        let left = "it closed the connection after the server's proof: it holds another key, or it was ended";
        let closed = connection.closer().is_closed();
        let event = match why {
            // Closed by this server.
            Error::Closed { .. } if closed => Some(Event::Limit),
            Error::Closed { .. } => connection.claim().map(|_| Event::Key),
            Error::BadKey(_) => Some(Event::Key),
            Error::Refused(e) => match e.kind {
                ErrorKind::BadKey => Some(Event::Key),
                ErrorKind::InvalidArgument => Some(Event::Deployment),
                ErrorKind::Permission => Some(Event::Credential),
                ErrorKind::Busy => Some(Event::Limit),
                ErrorKind::ShuttingDown => None,
                _ => Some(Event::Handshake),
            },
            _ => Some(Event::Handshake),
        };
        let reason = match why {
            Error::Closed { .. } if closed => {
                "too many connections wait for their handshake".into()
            }
            Error::Closed { .. } => left.into(),
            why => why.to_string(),
        };
        if let Some(event) = event {
            let subject = Subject::stranger(connection);
            self.note(event, Outcome::Refused, &subject, None, &reason);
        }
    }

    /// Counts since the start.
    pub fn status(&self) -> AuditStatus {
        AuditStatus {
            refused: self.shared.refused.load(Relaxed),
            dropped: self.shared.dropped.load(Relaxed),
            write_errors: self.shared.errors.load(Relaxed),
        }
    }

    /// Tries once to write the remaining records, and ends.
    pub fn stop(&self) {
        if self.shared.files.is_none() {
            return;
        }
        self.shared.state().stopping = true;
        self.shared.changed.notify_all();
        self.writer.join("writes the audit log");
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The event of a refusal of this kind. `None` for errors that are mistakes or happen to honest programs.
fn event_of(kind: ErrorKind) -> Option<Event> {
    match kind {
        ErrorKind::Permission | ErrorKind::NotOwner => Some(Event::Permission),
        ErrorKind::BadCapability | ErrorKind::ExpiredCapability => Some(Event::Capability),
        ErrorKind::Busy => Some(Event::Limit),
        ErrorKind::Malformed => Some(Event::Protocol),
        _ => None,
    }
}

fn time() -> String {
    time_text(u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX))
}

impl State {
    /// Queues a record; returns false if there is no room.
    fn push(&mut self, record: Record, time: &str) -> bool {
        let room = self.queue.len() < QUEUE;
        if room {
            self.queue.push_back(record.at(time));
        }
        room
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Queue and table are consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&self, record: Record, origin: &str) {
        let mut state = self.state();
        let first = state.queue.is_empty() && state.folding.due().is_none();
        let wake = match state.folding.offer(now(), record, origin) {
            None => first,
            Some(record) => {
                let idle = state.queue.is_empty();
                if !state.push(record, &time()) {
                    self.dropped.fetch_add(1, Relaxed);
                }
                idle
            }
        };
        drop(state);
        if wake {
            self.changed.notify_all();
        }
    }

    /// The writing thread's loop.
    fn write(&self) {
        let Some(files) = &self.files else { return };
        let mut told = 0;
        let mut failing = false;
        // Records of a failed write, if any; the queue fills meanwhile.
        let mut batch: Vec<Record> = Vec::new();
        loop {
            let stopping = self.collect(&mut batch, failing);
            let dropped = self.dropped.load(Relaxed);
            if !batch.is_empty() || dropped > told {
                let mut lines: String = batch.iter().map(Record::line).collect();
                if dropped > told {
                    lines += &self.gap(dropped - told).line();
                }
                match files.append(lines.as_bytes()) {
                    Ok(()) => {
                        if failing {
                            log::info!("{}: the audit log is written again", self.name);
                        }
                        (failing, told) = (false, dropped);
                        batch.clear();
                    }
                    Err(e) => {
                        self.errors.fetch_add(1, Relaxed);
                        if !failing {
                            log::warn!(
                                "{}: the audit log {} cannot be written: {e}; up to {QUEUE} records wait, further ones are lost and counted",
                                self.name,
                                files.path().display()
                            );
                        }
                        failing = true;
                    }
                }
            }
            if stopping {
                self.dropped.fetch_add(batch.len() as u64, Relaxed);
                return;
            }
        }
    }

    /// Waits for records, or after a failure for a while; returns whether the log is to end.
    fn collect(&self, batch: &mut Vec<Record>, failing: bool) -> bool {
        let mut state = self.state();
        let retry = failing.then(|| now() + RETRY);
        loop {
            let due = state.folding.due();
            if state.stopping || due.is_some_and(|due| now() >= due) {
                let time = time();
                let left = state.folding.close().into_iter();
                let lost = left.filter_map(|record| (!state.push(record, &time)).then_some(()));
                self.dropped.fetch_add(lost.count() as u64, Relaxed);
            }
            let again = retry.is_some_and(|retry| now() >= retry);
            let new = retry.is_none() && !state.queue.is_empty();
            if state.stopping || again || new {
                if batch.is_empty() {
                    batch.extend(state.queue.drain(..));
                }
                return state.stopping;
            }
            let until = retry.into_iter().chain(due).min();
            state = match until {
                Some(until) => {
                    let limit = until.saturating_duration_since(now());
                    self.changed
                        .wait_timeout(state, limit)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The record of a number of lost records.
    fn gap(&self, count: u64) -> Record {
        let subject = Subject::itself(None, "server");
        let reason = "records were lost: they came faster than they could be written";
        Record {
            count: Some(count),
            ..Record::new(
                &self.name,
                Event::Dropped,
                Outcome::Done,
                &subject,
                None,
                reason,
            )
        }
        .at(&time())
    }
}

#[cfg(test)]
mod tests;
