//! Advisory locks: flock(2) and fcntl(2), shared with all other mounts through the metadata server.
//!
//! Locks of the two calls are independent. The kernel says which call it was, but the FUSE library does not pass that
//! on. So the mount looks up in which system call the calling thread waits (/proc). Where that is impossible (another
//! process namespace, a mount by a user who may not look), the lock counts for both. The kernel forwards each lock
//! request. A lock that conflicts is either refused at once or waited for. Not the thread that serves the kernel waits,
//! but one thread for all waiters, which asks the metadata server to report when locks are released. A wait ends when
//! the lock is granted, or with a signal. The kernel's notice of a signal is not reliable here, so the thread checks
//! every [`SIGNALS`] whether the waiting process has signals. A wait that would be a deadlock, over any number of
//! owners, is refused at once by the server (EDEADLK). Locks end with the mount's connection, so that no dead mount
//! holds any. While a lock is held, or an open-unlinked file is open, another thread checks the connection every
//! [`LOOK`]. If it is lost, the thread claims everything over the next one. Parameters: [`MAX_WAITING`], [`SIGNALS`],
//! [`LOOK`], [`ASLEEP`].
use fuser::{Errno, LockOwner, ReplyEmpty};
use penstock_client::{Client, Error, ErrorKind, FileLeases, Locked, Result};
use penstock_layout::FileId;
use penstock_wire::message::{
    Advisory, AdvisoryFamily, AdvisoryHow, AdvisoryMode, MetaReply, NodeReply, NodeRequest, User,
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

/// Most waiting processes of one mount.
const MAX_WAITING: usize = 1024;
/// Longest delay until a signal of a waiting process is noticed.
const SIGNALS: Duration = Duration::from_millis(100);
/// Longest delay until the loss of the connection is noticed while locks are held. It is well below the time in which a
/// restarted metadata server serves claims only.
const LOOK: Duration = Duration::from_millis(250);

/// Longest time until a thread that has asked for a lock is asleep; after it the lock counts for both calls.
const ASLEEP: Duration = Duration::from_millis(200);

/// The errors of a lock that cannot be recorded, of a lost lock, and of all others.
pub(crate) fn errno(e: &Error) -> Errno {
    match e.kind() {
        ErrorKind::Busy => Errno::ENOLCK,
        ErrorKind::LockLost => {
            log::warn!("{e}");
            Errno::EIO
        }
        _ => crate::errno::errno(e),
    }
}

/// A lock from the kernel's description.
pub(crate) fn advisory(
    owner: LockOwner,
    (start, last): (u64, u64),
    typ: i32,
    family: AdvisoryFamily,
    pid: u32,
) -> Advisory {
    Advisory {
        family,
        owner: owner.0,
        start,
        last,
        mode: match typ {
            libc::F_RDLCK => AdvisoryMode::Shared,
            libc::F_WRLCK => AdvisoryMode::Exclusive,
            _ => AdvisoryMode::Free,
        },
        pid,
    }
}

/// The call by which a thread asks for a lock. The thread waits for the answer, or is about to.
pub(crate) fn family(thread: u32, typ: i32) -> AdvisoryFamily {
    if thread == 0 || typ == libc::F_UNLCK {
        return AdvisoryFamily::Any;
    }
    let path = format!("/proc/{thread}/syscall");
    let mut pause = Duration::from_micros(20);
    let mut slept = Duration::ZERO;
    loop {
        let call = std::fs::read_to_string(&path).unwrap_or_default();
        if !call.starts_with("running") || slept >= ASLEEP {
            return family_of(&call);
        }
        std::thread::sleep(pause);
        slept += pause;
        pause *= 2;
    }
}

/// The call with this number, in the text of /proc.
fn family_of(call: &str) -> AdvisoryFamily {
    let number = call.split_whitespace().next().map(str::parse::<i64>);
    match number {
        Some(Ok(libc::SYS_flock)) => AdvisoryFamily::Flock,
        Some(Ok(libc::SYS_fcntl)) => AdvisoryFamily::Fcntl,
        _ => AdvisoryFamily::Any,
    }
}

/// A waiting request.
struct Waiting {
    file: FileId,
    lock: Advisory,
    /// The thread that called.
    thread: u32,
    /// Count of released locks when it was refused.
    seen: u64,
    reply: ReplyEmpty,
}

#[derive(Default)]
struct State {
    /// Requests that arrived since the thread's last check.
    arrived: Vec<Waiting>,
    /// Number of these and of the others that it knows.
    waiting: usize,
}

struct Shared {
    client: Client,
    leases: Arc<FileLeases>,
    state: Mutex<State>,
    /// Whether nothing was held when the tending thread checked.
    idle: AtomicBool,
}

/// The locks of a mount.
pub(crate) struct Locks {
    shared: Arc<Shared>,
    /// The thread that reclaims locks, from the first lock on.
    tender: OnceLock<Option<Thread>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the metadata server reports locks released since `seen`, or it is time to check signals.
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

    /// The server no longer counts it as waiting.
    fn leave(&self, file: FileId, lock: Advisory) {
        if let Err(e) = self.leases.lock(file, lock, AdvisoryHow::Leave) {
            log::debug!("{e}");
        }
    }

    /// Checks a waiting request once; `None`: it has its answer.
    fn serve(&self, mut waiting: Waiting, given_up: Option<u64>) -> Option<Waiting> {
        let (file, lock) = (waiting.file, waiting.lock);
        if is_interrupted(waiting.thread) {
            self.leave(file, lock);
            waiting.reply.error(Errno::EINTR);
            return None;
        }
        if given_up.is_some_and(|count| count == waiting.seen) {
            return Some(waiting);
        }
        match self.leases.lock(file, lock, AdvisoryHow::Wait) {
            Ok(Locked::Done) => waiting.reply.ok(),
            Ok(Locked::By { given_up, .. }) => {
                waiting.seen = given_up;
                return Some(waiting);
            }
            Ok(Locked::Deadlock) => waiting.reply.error(Errno::EDEADLK),
            Err(e) => waiting.reply.error(errno(&e)),
        }
        None
    }

    /// Runs until no request waits.
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

/// Runs until the mount is gone: sleeps while nothing is held, and is woken by each lock.
fn tend(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let tended = shared.leases.tend();
        // A lock taken after this check finds `idle` set.
        let slept = tended.as_ref().is_ok_and(|any| !any) && shared.idle.swap(true, SeqCst);
        drop(shared);
        match tended {
            Ok(false) if slept => std::thread::park(),
            Ok(false) => {}
            Ok(true) => std::thread::park_timeout(LOOK),
            Err(e) => {
                log::warn!("locks and removed open files may be lost: {e}");
                std::thread::park_timeout(LOOK);
            }
        }
    }
}

impl Locks {
    pub(crate) fn new(client: &Client, leases: Arc<FileLeases>) -> Locks {
        Locks {
            shared: Arc::new(Shared {
                client: client.clone(),
                leases,
                state: Mutex::default(),
                idle: AtomicBool::new(false),
            }),
            tender: OnceLock::new(),
        }
    }

    /// Takes, changes or releases a lock; `wait`: until it is granted.
    pub(crate) fn set(
        &self,
        file: FileId,
        lock: Advisory,
        thread: u32,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        let how = if wait {
            AdvisoryHow::Wait
        } else {
            AdvisoryHow::Try
        };
        match self.shared.leases.lock(file, lock, how) {
            Ok(Locked::Done) => {
                if lock.mode != AdvisoryMode::Free {
                    self.look_after();
                }
                reply.ok();
            }
            Ok(Locked::By { given_up, .. }) if wait => {
                // It will hold the lock eventually.
                self.look_after();
                let waiting = Waiting {
                    file,
                    lock,
                    thread,
                    seen: given_up,
                    reply,
                };
                self.queue(waiting);
            }
            Ok(Locked::By { .. }) => reply.error(Errno::EAGAIN),
            Ok(Locked::Deadlock) => reply.error(Errno::EDEADLK),
            Err(e) => reply.error(errno(&e)),
        }
    }

    /// From now on there is something to reclaim.
    pub(crate) fn look_after(&self) {
        let thread = self.tender.get_or_init(|| {
            let shared = Arc::downgrade(&self.shared);
            let builder = std::thread::Builder::new().name("tend locks".into());
            match builder.spawn(move || tend(&shared)) {
                Ok(handle) => Some(handle.thread().clone()),
                Err(e) => {
                    log::warn!(
                        "locks and removed open files do not outlive a restart of the metadata server: {e}"
                    );
                    None
                }
            }
        });
        if let Some(thread) = thread
            && self.shared.idle.swap(false, SeqCst)
        {
            thread.unpark();
        }
    }

    fn queue(&self, waiting: Waiting) {
        let mut state = self.shared.state();
        let mut room = state.waiting < MAX_WAITING;
        if room && state.waiting == 0 {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("locks".into());
            if let Err(e) = thread.spawn(move || shared.wait()) {
                log::warn!("no thread for those who wait for locks: {e}");
                room = false;
            }
        }
        if !room {
            drop(state);
            self.shared.leave(waiting.file, waiting.lock);
            return waiting.reply.error(Errno::ENOLCK);
        }
        state.waiting += 1;
        state.arrived.push(waiting);
    }

    /// The conflicting lock, if any.
    pub(crate) fn test(&self, file: FileId, lock: Advisory) -> Result<Option<Advisory>> {
        Ok(
            match self.shared.leases.lock(file, lock, AdvisoryHow::Test)? {
                Locked::By { lock, .. } => Some(lock),
                Locked::Done | Locked::Deadlock => None,
            },
        )
    }

    /// An owner has closed the file: its locks are released.
    pub(crate) fn closed(&self, file: FileId, owner: u64) -> Result<()> {
        if !self.shared.leases.holds(file, owner) {
            return Ok(());
        }
        let all = Advisory {
            owner,
            start: 0,
            last: u64::MAX,
            mode: AdvisoryMode::Free,
            family: AdvisoryFamily::Any,
            pid: 0,
        };
        self.shared
            .leases
            .lock(file, all, AdvisoryHow::Try)
            .map(drop)
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if let Some(Some(thread)) = self.tender.get() {
            thread.unpark();
        }
    }
}

/// Whether a thread has pending signals, or has ended.
fn is_interrupted(thread: u32) -> bool {
    if thread == 0 {
        // In a process namespace that is not visible here.
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
    fn calls_are_told_apart_by_their_number() {
        for (call, expected) in [
            (libc::SYS_flock, AdvisoryFamily::Flock),
            (libc::SYS_fcntl, AdvisoryFamily::Fcntl),
            (libc::SYS_read, AdvisoryFamily::Any),
        ] {
            let text = format!("{call} 0x3 0x2 0x0 0x0 0x0 0x0 0x7ffe 0x7f9c\n");
            assert_eq!(family_of(&text), expected);
        }
        for text in ["", "running\n", "-1 0x7ffe 0x7f9c\n"] {
            assert_eq!(family_of(text), AdvisoryFamily::Any);
        }
        // This thread does not ask for a lock, and no thread has this number.
        assert_eq!(family(u32::MAX, libc::F_WRLCK), AdvisoryFamily::Any);
        assert_eq!(family(0, libc::F_WRLCK), AdvisoryFamily::Any);
    }

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
