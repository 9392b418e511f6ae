//! Group commit: when collected changes go to stable storage.
//!
//! Problem: a durable commit costs a disk flush (about a millisecond), a change in memory costs a microsecond. Idea:
//! changes are collected in generations. One commit makes a whole generation durable for all its waiters, while the
//! next generation is being collected. When it pays: whenever more than one request arrives within a flush. Without
//! waiters there is a commit at most every `interval`.
//!
//! A plain state machine: times are nanoseconds of any steady clock.
use crate::error::Result;
use penstock_wire::message::WireError;
use std::collections::VecDeque;

/// Time between attempts while the store refuses commits.
const RETRY_NS: u64 = 1_000_000_000;

/// Failed attempts whose reason is kept; a waiter that missed more gets the oldest of these.
const REASONS: usize = 16;

/// A generation of changes, which become durable together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Commit,
    WaitUntil(u64),
    Idle,
    /// Stopped, and everything that can be made durable is.
    Stop,
}

/// The generation and attempt that a waiter waits for.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    generation: Generation,
    failures: u64,
}

#[derive(Debug)]
pub struct GroupCommit {
    interval_ns: u64,
    collecting: Generation,
    /// Time of the first change of the generation being collected.
    dirty_since: Option<u64>,
    /// Whether somebody waits for it.
    wanted: bool,
    /// The generation being committed, or whose commit failed.
    committing: Option<Generation>,
    in_flight: bool,
    committed: Generation,
    commits: u64,
    failures: u64,
    failed: Option<Failure>,
    /// Reasons of the newest failed attempts, in order.
    reasons: VecDeque<WireError>,
    stopping: bool,
}

#[derive(Debug)]
struct Failure {
    error: WireError,
    retry_at: u64,
}

impl GroupCommit {
    pub fn new(interval_ns: u64) -> GroupCommit {
        GroupCommit {
            interval_ns,
            collecting: Generation(1),
            dirty_since: None,
            wanted: false,
            committing: None,
            in_flight: false,
            committed: Generation(0),
            commits: 0,
            failures: 0,
            failed: None,
            reasons: VecDeque::new(),
            stopping: false,
        }
    }

    /// A change was made; returns true if the committing thread must be woken.
    pub fn changed(&mut self, now: u64) -> bool {
        let first = self.dirty_since.is_none();
        self.dirty_since.get_or_insert(now);
        first
    }

    /// Why changes are refused at present.
    pub fn refusal(&self) -> Option<&WireError> {
        self.failed.as_ref().map(|f| &f.error)
    }

    /// Asks for the durability of all changes so far; the caller must wake the committing thread.
    pub fn want(&mut self) -> Waiter {
        let generation = if self.dirty_since.is_some() {
            self.wanted = true;
            self.collecting
        } else {
            Generation(self.collecting.0 - 1)
        };
        if let Some(failed) = &mut self.failed {
            failed.retry_at = 0;
        }
        Waiter {
            generation,
            failures: self.failures,
        }
    }

    /// The result of the first attempt that ended since the waiter came; later attempts do not concern it. `None`: keep
    /// waiting.
    pub fn settled(&self, waiter: Waiter) -> Option<Result<()>> {
        if self.committed >= waiter.generation {
            return Some(Ok(()));
        }
        let since = usize::try_from(self.failures - waiter.failures).unwrap_or(usize::MAX);
        let first = self.reasons.len().saturating_sub(since);
        self.reasons.get(first).map(|e| Err(e.clone()))
    }

    pub fn next(&self, now: u64) -> Next {
        if self.in_flight {
            return Next::Idle;
        }
        if let Some(failed) = &self.failed {
            return if self.stopping {
                Next::Stop
            } else if now >= failed.retry_at {
                Next::Commit
            } else {
                Next::WaitUntil(failed.retry_at)
            };
        }
        match self.dirty_since {
            None if self.stopping => Next::Stop,
            None => Next::Idle,
            Some(_) if self.wanted || self.stopping => Next::Commit,
            Some(since) => {
                let due = since.saturating_add(self.interval_ns);
                if now >= due {
                    Next::Commit
                } else {
                    Next::WaitUntil(due)
                }
            }
        }
    }

    /// A commit begins: of the failed generation if there is one, otherwise of the collected one; true for a new one.
    pub fn started(&mut self) -> bool {
        self.in_flight = true;
        let new = self.committing.is_none();
        if new {
            self.committing = Some(self.collecting);
            self.collecting = Generation(self.collecting.0 + 1);
            self.dirty_since = None;
            self.wanted = false;
        }
        new
    }

    pub fn finished(&mut self) {
        self.in_flight = false;
        self.failed = None;
        self.commits += 1;
        if let Some(generation) = self.committing.take() {
            self.committed = generation;
        }
    }

    pub fn failed(&mut self, now: u64, error: WireError) {
        self.in_flight = false;
        self.failures += 1;
        if self.reasons.len() == REASONS {
            self.reasons.pop_front();
        }
        self.reasons.push_back(error.clone());
        self.failed = Some(Failure {
            error,
            retry_at: now.saturating_add(RETRY_NS),
        });
    }

    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn commits(&self) -> u64 {
        self.commits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::error;
    use penstock_wire::message::ErrorKind;

    const INTERVAL: u64 = 200;

    #[test]
    fn nothing_to_do_without_changes() {
        let mut g = GroupCommit::new(INTERVAL);
        assert_eq!(g.next(0), Next::Idle);
        let waiter = g.want();
        assert!(matches!(g.settled(waiter), Some(Ok(()))));
        assert_eq!(g.next(0), Next::Idle);
    }

    #[test]
    fn unwaited_changes_commit_after_the_interval() {
        let mut g = GroupCommit::new(INTERVAL);
        assert!(g.changed(10));
        assert!(!g.changed(50), "told once");
        assert_eq!(g.next(60), Next::WaitUntil(210));
        assert_eq!(g.next(210), Next::Commit);
        g.started();
        assert_eq!(g.next(211), Next::Idle);
        g.finished();
        assert_eq!(g.next(212), Next::Idle);
        assert_eq!(g.commits(), 1);
    }

    #[test]
    fn waiters_share_commits() {
        let mut g = GroupCommit::new(INTERVAL);
        g.changed(0);
        let a = g.want();
        g.changed(1);
        let b = g.want();
        assert_eq!(g.next(1), Next::Commit);
        g.started();
        g.changed(2);
        let c = g.want();
        assert!(g.settled(a).is_none() && g.settled(b).is_none());
        g.finished();
        assert!(g.settled(a).is_some() && g.settled(b).is_some());
        assert!(g.settled(c).is_none(), "changed after the commit began");
        assert_eq!(g.next(3), Next::Commit, "at once, c waits");
        g.started();
        g.finished();
        assert!(matches!(g.settled(c), Some(Ok(()))));
        assert_eq!(g.commits(), 2);
    }

    #[test]
    fn waiting_for_what_is_under_way_takes_no_further_commit() {
        let mut g = GroupCommit::new(INTERVAL);
        g.changed(0);
        g.want();
        g.started();
        let late = g.want();
        assert!(g.settled(late).is_none());
        g.finished();
        assert!(g.settled(late).is_some());
        assert_eq!(g.next(1), Next::Idle);
    }

    #[test]
    fn failure_is_told_refused_retried_and_recovered_from() {
        let mut g = GroupCommit::new(INTERVAL);
        g.changed(0);
        let a = g.want();
        g.started();
        g.failed(5, error(ErrorKind::NoSpace, "full"));
        assert!(matches!(g.settled(a), Some(Err(e)) if e.kind == ErrorKind::NoSpace));
        assert_eq!(g.refusal().unwrap().kind, ErrorKind::NoSpace);
        assert_eq!(g.next(5), Next::WaitUntil(5 + RETRY_NS));
        let b = g.want();
        assert!(g.settled(b).is_none(), "a new waiter gets its own attempt");
        assert_eq!(g.next(6), Next::Commit);
        g.started();
        g.finished();
        assert!(matches!(g.settled(a), Some(Ok(()))));
        assert!(matches!(g.settled(b), Some(Ok(()))));
        assert!(g.refusal().is_none());
    }

    #[test]
    fn each_waiter_is_told_of_its_own_attempt() {
        let mut g = GroupCommit::new(INTERVAL);
        g.changed(0);
        let a = g.want();
        g.started();
        g.failed(5, error(ErrorKind::NoSpace, "full"));
        g.changed(6);
        let b = g.want();
        g.started();
        g.failed(7, error(ErrorKind::Io, "gone"));
        // They wake only now.
        assert!(matches!(g.settled(a), Some(Err(e)) if e.kind == ErrorKind::NoSpace));
        assert!(matches!(g.settled(b), Some(Err(e)) if e.kind == ErrorKind::Io));
        g.started();
        g.finished();
        assert!(matches!(g.settled(a), Some(Ok(()))), "durable by now");
        assert!(matches!(g.settled(b), Some(Err(e)) if e.kind == ErrorKind::Io));
        let c = g.want();
        assert!(g.settled(c).is_none());
        for _ in 0..2 * REASONS {
            g.started();
            g.failed(9, error(ErrorKind::Io, "again"));
        }
        assert!(matches!(g.settled(c), Some(Err(_))));
    }

    #[test]
    fn stopping_commits_what_is_left() {
        let mut g = GroupCommit::new(INTERVAL);
        g.changed(0);
        g.stop();
        assert_eq!(g.next(1), Next::Commit);
        g.started();
        assert_eq!(g.next(1), Next::Idle);
        g.finished();
        assert_eq!(g.next(1), Next::Stop);
    }

    #[test]
    fn stopping_gives_up_on_a_failing_store() {
        let mut g = GroupCommit::new(INTERVAL);
        g.changed(0);
        g.stop();
        g.started();
        g.failed(1, error(ErrorKind::Io, "gone"));
        assert_eq!(g.next(1), Next::Stop);
    }
}
