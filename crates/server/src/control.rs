//! The data server's end of the control channel ([`penstock_rpc::control`]): what programs did, reported by a thread.
//!
//! *Problem*: the metadata server must know the current traffic of each program, and an idle deployment must cost
//! nothing. *Idea*: each connection counts in the tally of its program and user, two additions per request. The thread
//! collects the tallies once a [`PERIOD`] while there is something to report. Otherwise it sleeps, and the next counted
//! request wakes it. After [`LINGER`] it also closes the connection, unless others use it. *Bounds*: one tally for each
//! connected program and user; one report in flight.
use crate::channel::{Channel, LINGER, Need, unexpected};
use crate::error::Error;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::since_boot;
use penstock_layout::ServerId;
use penstock_rpc::Background;
use penstock_rpc::control::{Figures, Follower, PERIOD};
use penstock_wire::message::{
    Decision, MAX_REPORT_ROWS, MetaReply, MetaRequest, ProgramTraffic, Report, Traffic,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest sleep without checking the tallies: only a lost wake-up depends on it.
const IDLE: Duration = Duration::from_secs(10);

/// The data server's end of the control channel.
#[derive(Debug, Default)]
pub(crate) struct Control {
    shared: Arc<Shared>,
    thread: Background,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The thread sleeps until something is counted.
    idle: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By program and user.
    tallies: BTreeMap<(u64, u32), Arc<Tally>>,
    stop: bool,
}

#[derive(Debug, Default)]
struct Tally {
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Tally {
    fn take(&self) -> Traffic {
        Traffic {
            requests: self.requests.swap(0, Relaxed),
            read: self.read.swap(0, Relaxed),
            written: self.written.swap(0, Relaxed),
        }
    }
}

/// The tally of one connection.
#[derive(Debug)]
pub(crate) struct Counted {
    shared: Arc<Shared>,
    tally: Arc<Tally>,
}

impl Counted {
    pub(crate) fn read(&self, bytes: u64) {
        self.tally.read.fetch_add(bytes, Relaxed);
        self.request();
    }

    pub(crate) fn written(&self, bytes: u64) {
        self.tally.written.fetch_add(bytes, Relaxed);
        self.request();
    }

    fn request(&self) {
        self.tally.requests.fetch_add(1, Relaxed);
        let shared = &self.shared;
        if shared.idle.load(Relaxed) && shared.idle.swap(false, SeqCst) {
            drop(shared.state());
            shared.changed.notify_all();
        }
    }
}

/// How a rest ended.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Counted,
    Over,
    Stop,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Tallies are added and removed as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts since the last call; those with the most bytes separately.
    fn take(&self) -> Figures {
        let mut all = Vec::new();
        self.state().tallies.retain(|(program, uid), tally| {
            let traffic = tally.take();
            if !traffic.is_empty() {
                all.push(ProgramTraffic {
                    program: *program,
                    uid: *uid,
                    traffic,
                });
            }
            // Of a connection that is still open.
            Arc::strong_count(tally) > 1 || !traffic.is_empty()
        });
        all.sort_by_key(|row| Reverse(row.traffic.bytes()));
        let others = all.split_off(all.len().min(MAX_REPORT_ROWS));
        Figures {
            programs: all,
            others: others
                .iter()
                .fold(Traffic::default(), |sum, row| sum.plus(&row.traffic)),
        }
    }

    /// Sleeps for so long, unless the server stops: then false.
    fn sleep(&self, end: Duration) -> bool {
        let mut state = self.state();
        loop {
            let left = end.saturating_sub(since_boot());
            if state.stop || left.is_zero() {
                return !state.stop;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sleeps until something is counted, at most for so long.
    fn rest(&self, most: Duration) -> Rest {
        let end = since_boot() + most;
        let mut state = self.state();
        self.idle.store(true, SeqCst);
        let counted = |tally: &Arc<Tally>| tally.requests.load(SeqCst) > 0;
        if state.tallies.values().any(counted) {
            self.idle.store(false, SeqCst);
        }
        loop {
            let left = end.saturating_sub(since_boot());
            let counted = !self.idle.load(SeqCst);
            if state.stop || left.is_zero() || counted {
                self.idle.store(false, SeqCst);
                return match (state.stop, counted) {
                    (true, _) => Rest::Stop,
                    (false, true) => Rest::Counted,
                    (false, false) => Rest::Over,
                };
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Control {
    /// Reports from now on, on a thread of its own. Returns the random number of this start of the server.
    pub(crate) fn follow(&self, id: ServerId, channel: Arc<Channel>) -> Result<u64, Error> {
        let failed = |source| {
            Error::Wire(penstock_wire::Error::Io {
                what: "start the reports of",
                peer: format!("data server {}", id.0),
                source,
            })
        };
        let mut incarnation = [0; 8];
        penstock_host::random(&mut incarnation).map_err(failed)?;
        let incarnation = u64::from_le_bytes(incarnation);
        let follower = Follower::new(incarnation);
        let shared = self.shared.clone();
        let run = move || run(&shared, &channel, follower);
        self.thread.start("control", run).map_err(failed)?;
        Ok(incarnation)
    }

    /// Where a connection of this program and user counts.
    pub(crate) fn counted(&self, program: u64, uid: u32) -> Counted {
        let tally = self
            .shared
            .state()
            .tallies
            .entry((program, uid))
            .or_default()
            .clone();
        Counted {
            shared: self.shared.clone(),
            tally,
        }
    }

    /// Ends the thread and waits for it. The channel has stopped before.
    pub(crate) fn stop(&self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        self.thread.join("reports to the metadata server");
    }
}

impl Drop for Control {
    /// Of a server that has not been started after all.
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Counted {
    /// What nobody takes, because there is no thread, goes with its last connection.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let unused =
            |tally: &Arc<Tally>| Arc::strong_count(tally) == 2 && tally.requests.load(Relaxed) == 0;
        let own = |tally: &Arc<Tally>| Arc::ptr_eq(tally, &self.tally) && unused(tally);
        state.tallies.retain(|_, tally| !own(tally));
    }
}

fn send(channel: &Channel, report: &Report) -> penstock_wire::Result<Decision> {
    match channel.ask(Need::Regular, &MetaRequest::Report(report.clone()))? {
        MetaReply::Decision(decision) => Ok(decision),
        other => Err(unexpected(&other)),
    }
}

fn run(shared: &Shared, channel: &Channel, mut follower: Follower) {
    let mut from = since_boot();
    loop {
        let now = since_boot();
        if follower.pending().is_none() {
            let figures = shared.take();
            if figures.is_empty() && !follower.owes() {
                let most = if channel.is_kept() { LINGER } else { IDLE };
                let woken = match shared.rest(most) {
                    Rest::Stop => return,
                    Rest::Over => {
                        channel.hang_up();
                        false
                    }
                    Rest::Counted => true,
                };
                from = since_boot();
                if woken && !shared.sleep(from + PERIOD) {
                    return;
                }
                continue;
            }
            follower.report(now, now.saturating_sub(from).max(PERIOD), figures);
            from = now;
        }
        match follower.pending().map(|report| send(channel, report)) {
            Some(Err(e)) => {
                log::debug!("the metadata server is not there to take a report: {e}");
            }
            Some(Ok(decision)) => follower.told(decision),
            None => {}
        }
        let back = since_boot() + channel.again_in();
        if !shared.sleep(back.max(now + PERIOD)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_told_apart_and_nothing_is_counted_twice() {
        let control = Control::default();
        let counted: Vec<Counted> = (0..20).map(|i| control.counted(i, 7)).collect();
        for (i, counted) in (0..).zip(&counted) {
            counted.written(i);
            counted.read(1);
        }
        let figures = control.shared.take();
        let first = &figures.programs[0];
        assert_eq!(
            (figures.programs.len(), first.program),
            (MAX_REPORT_ROWS, 19)
        );
        assert_eq!((first.traffic.read, first.traffic.written), (1, 19));
        assert_eq!(
            (figures.others.requests, figures.others.bytes()),
            (8, 4 + 6)
        );
        assert!(control.shared.take().is_empty());
        // Two connections of one program and user count into one tally, which goes with the last.
        let second = control.counted(3, 7);
        second.read(2);
        counted[3].read(3);
        let figures = control.shared.take();
        assert_eq!(
            (figures.programs.len(), figures.programs[0].traffic.read),
            (1, 5)
        );
        drop(second);
        assert_eq!(control.shared.state().tallies.len(), 20);
        drop(counted);
        assert!(control.shared.state().tallies.is_empty());
    }

    #[test]
    fn what_is_counted_wakes_the_one_who_rests() {
        let control = Control::default();
        let counted = control.counted(1, 1);
        let shared = control.shared.clone();
        let rests = std::thread::spawn(move || shared.rest(IDLE));
        while !control.shared.idle.load(SeqCst) {
            std::thread::yield_now();
        }
        let began = since_boot();
        counted.read(1);
        assert_eq!(rests.join().unwrap(), Rest::Counted);
        assert!(since_boot() - began < IDLE / 2);
        let pause = Duration::from_millis(1);
        control.shared.take();
        assert_eq!(control.shared.rest(pause), Rest::Over);
        control.stop();
        assert_eq!(control.shared.rest(pause), Rest::Stop);
    }
}
