//! Advisory locks: flock(2) and fcntl(2), shared with all other mounts through the metadata server.
//!
//! The kernel asks for each lock. A lock that somebody else holds is either refused at once or waited for: not by the
//! thread that serves the kernel, but by one thread for all who wait, which asks the metadata server to tell when locks
//! are given up. A wait ends when the lock is had, or with a signal: the kernel's word of it cannot be relied on here,
//! so the thread looks every [`SIGNALS`] for signals that the waiting process has.
//! Locks end with the mount's connection, so no dead mount holds any.
//! Parameters: [`MAX_WAITING`], [`MAX_HOLDERS`], [`SIGNALS`].
use fuser::{Errno, ReplyEmpty};
use penstock_client::{Client, Error, ErrorKind, Keeper, Result};
use penstock_layout::FileId;
use penstock_wire::message::{Advisory, AdvisoryMode, MetaReply, NodeReply, NodeRequest, User};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Processes that wait for locks in one mount.
const MAX_WAITING: usize = 1024;
/// Owners of locks on files in one mount.
const MAX_HOLDERS: usize = 1 << 16;
/// How long a signal may go unseen by somebody who waits.
const SIGNALS: Duration = Duration::from_millis(100);

/// The error of a lock that cannot be kept account of, and of all others.
pub(crate) fn errno(e: &Error) -> Errno {
    match e.kind() {
        ErrorKind::Busy => Errno::ENOLCK,
        _ => crate::operations::errno(e),
    }
}

/// Somebody who waits.
struct Waiting {
    file: FileId,
    lock: Advisory,
    /// The thread that called.
    thread: u32,
    /// Locks given up when it was refused.
    seen: u64,
    reply: ReplyEmpty,
}

#[derive(Default)]
struct State {
    /// Files and owners that may hold locks.
    holders: HashSet<(FileId, u64)>,
    /// Who has come since the thread looked last.
    arrived: Vec<Waiting>,
    /// Those and the others that it knows.
    waiting: usize,
}

struct Shared {
    client: Client,
    keeper: Arc<Keeper>,
    state: Mutex<State>,
}

/// The locks of a mount.
pub(crate) struct Locks(Arc<Shared>);

/// What came of asking.
enum Asked {
    Done,
    Refused { by: Advisory, given_up: u64 },
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, id: FileId, lock: Advisory, test: bool) -> Result<Asked> {
        let request = NodeRequest::Lock { id, lock, test };
        match self.keeper.request(&User::default(), request)? {
            NodeReply::Done => Ok(Asked::Done),
            NodeReply::LockedBy { lock, given_up } => Ok(Asked::Refused { by: lock, given_up }),
            other => Err(self.client.unexpected("lock", &MetaReply::Node(other))),
        }
    }

    fn take(&self, file: FileId, lock: Advisory) -> Result<Asked> {
        let holder = (file, lock.owner);
        if lock.mode != AdvisoryMode::Free {
            // Before it is had, so that no close in between overlooks it.
            let mut state = self.state();
            if state.holders.len() >= MAX_HOLDERS && !state.holders.contains(&holder) {
                return Err(Error::Local {
                    what: "lock".into(),
                    kind: ErrorKind::Busy,
                    detail: format!("{MAX_HOLDERS} locks are held through this mount"),
                });
            }
            state.holders.insert(holder);
        }
        self.ask(file, lock, false)
    }

    /// Waits until the metadata server tells of locks given up since `seen`, or it is time to look for signals.
    fn await_unlock(&self, seen: u64) -> Result<u64> {
        let request = NodeRequest::AwaitUnlock {
            seen,
            wait_ms: SIGNALS.as_millis() as u32,
        };
        match self.client.node(&User::default(), request)? {
            NodeReply::GivenUp(count) => Ok(count),
            other => Err(self.client.unexpected("lock", &MetaReply::Node(other))),
        }
    }

    /// One look at somebody who waits; `None`: it has its answer.
    fn serve(&self, mut waiting: Waiting, given_up: Option<u64>) -> Option<Waiting> {
        if is_interrupted(waiting.thread) {
            waiting.reply.error(Errno::EINTR);
            return None;
        }
        if given_up.is_some_and(|count| count == waiting.seen) {
            return Some(waiting);
        }
        match self.take(waiting.file, waiting.lock) {
            Ok(Asked::Done) => waiting.reply.ok(),
            Ok(Asked::Refused { given_up, .. }) => {
                waiting.seen = given_up;
                return Some(waiting);
            }
            Err(e) => waiting.reply.error(errno(&e)),
        }
        None
    }

    /// Until nobody waits.
    fn wait(&self) {
        let mut all: Vec<Waiting> = Vec::new();
        let mut told = None;
        loop {
            {
                let mut state = self.state();
                all.append(&mut state.arrived);
                state.waiting = all.len();
                if all.is_empty() {
                    return;
                }
            }
            let looked = all.into_iter();
            all = looked.filter_map(|w| self.serve(w, told)).collect();
            let Some(seen) = all.iter().map(|w| w.seen).min() else {
                continue;
            };
            match self.await_unlock(seen) {
                Ok(count) => told = Some(count),
                Err(e) => {
                    for waiting in all.drain(..) {
                        waiting.reply.error(errno(&e));
                    }
                }
            }
        }
    }
}

impl Locks {
    pub(crate) fn new(client: &Client, keeper: Arc<Keeper>) -> Locks {
        Locks(Arc::new(Shared {
            client: client.clone(),
            keeper,
            state: Mutex::default(),
        }))
    }

    /// Takes, changes or gives up a lock; `wait`: until it can be had.
    pub(crate) fn set(
        &self,
        file: FileId,
        lock: Advisory,
        thread: u32,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        match self.0.take(file, lock) {
            Ok(Asked::Done) => reply.ok(),
            Ok(Asked::Refused { given_up, .. }) if wait => {
                let waiting = Waiting {
                    file,
                    lock,
                    thread,
                    seen: given_up,
                    reply,
                };
                self.queue(waiting);
            }
            Ok(Asked::Refused { .. }) => reply.error(Errno::EAGAIN),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn queue(&self, waiting: Waiting) {
        let mut state = self.0.state();
        if state.waiting >= MAX_WAITING {
            return waiting.reply.error(Errno::ENOLCK);
        }
        if state.waiting == 0 {
            let shared = self.0.clone();
            let thread = std::thread::Builder::new().name("locks".into());
            if let Err(e) = thread.spawn(move || shared.wait()) {
                log::warn!("no thread for those who wait for locks: {e}");
                return waiting.reply.error(Errno::ENOLCK);
            }
        }
        state.waiting += 1;
        state.arrived.push(waiting);
    }

    /// The lock that keeps this one from being taken.
    pub(crate) fn test(&self, file: FileId, lock: Advisory) -> Result<Option<Advisory>> {
        Ok(match self.0.ask(file, lock, true)? {
            Asked::Done => None,
            Asked::Refused { by, .. } => Some(by),
        })
    }

    /// An owner has closed the file: its locks are given up.
    pub(crate) fn closed(&self, file: FileId, owner: u64) -> Result<()> {
        if !self.0.state().holders.remove(&(file, owner)) {
            return Ok(());
        }
        let all = Advisory {
            owner,
            start: 0,
            last: u64::MAX,
            mode: AdvisoryMode::Free,
            pid: 0,
        };
        self.0.ask(file, all, false).map(drop)
    }
}

/// Whether a thread has signals to deal with, or is gone.
fn is_interrupted(thread: u32) -> bool {
    if thread == 0 {
        // Of a process namespace that is not seen from here.
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_signals(&status),
        Err(_) => true,
    }
}

fn has_signals(status: &str) -> bool {
    let mask = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_seen_unless_they_are_blocked() {
        let status = |own: &str, shared: &str, blocked: &str| {
            format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t0\n")
        };
        let none = "0000000000000000";
        let two = "0000000000000002";
        assert!(!has_signals(&status(none, none, none)));
        assert!(has_signals(&status(two, none, none)));
        assert!(has_signals(&status(none, two, none)));
        assert!(!has_signals(&status(none, two, two)));
        assert!(!has_signals(""));
        assert!(is_interrupted(u32::MAX), "nobody is there");
        assert!(!is_interrupted(0));
    }
}
