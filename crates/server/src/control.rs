//! The data server's end of the control channel ([`penstock_rpc::control`]): what programs did, reported by a thread.
//!
//! *Problem*: the metadata server is to know who moves how much now, and an idle deployment is to cost nothing. *Idea*: each
//! access is on an account of the ledger ([`crate::load`]). The thread takes what is new there once a
//! [`PERIOD`] while there is something to say. Else it sleeps, and the next request that is served wakes it; after
//! [`LINGER`] it ends the connection as well, unless others use it. While clients may move bytes past the server it looks each [`PASSED`].
//! *Bounds*: those of the ledger; one report under way.
use crate::channel::{Channel, LINGER, Need, unexpected};
use crate::error::Error;
use crate::load::Load;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time::since_boot;
use penstock_layout::ServerId;
use penstock_rpc::Background;
use penstock_rpc::control::{Follower, PERIOD};
use penstock_wire::message::{Decision, MetaReply, MetaRequest, Report};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest sleep without looking at the ledger: only a wake-up that was lost depends on it.
const IDLE: Duration = Duration::from_secs(10);
/// The same while there are shortcuts, which wake nobody.
const PASSED: Duration = Duration::from_secs(1);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Control {
    shared: Arc<Shared>,
    thread: Background,
}

#[derive(Debug)]
struct Shared {
    load: Arc<Load>,
    state: Mutex<State>,
    changed: Condvar,
    /// The thread sleeps until an access is served.
    idle: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
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
        // One flag.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Whoever serves an access later finds the flag: the ledger's mutex orders the two.
        if self.load.has_news() {
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
    /// Of a server with this ledger.
    pub(crate) fn new(load: Arc<Load>) -> Control {
        let shared = Arc::new(Shared {
            load,
            state: Mutex::default(),
            changed: Condvar::default(),
            idle: AtomicBool::new(false),
        });
        Control {
            shared,
            thread: Background::default(),
        }
    }

    /// Reports from now on, on a thread of its own. Returns the random number of this start of the server.
    pub(crate) fn follow(&self, id: ServerId, channel: Arc<Channel>) -> Result<u64, Error> {
        let failed = |source| {
            Error::Wire(penstock_wire::Error::Io {
                what: "start the reports of",
                peer: format!("data server {}", id.0),
                source,
            })
        };
        let incarnation = self.shared.load.incarnation();
        let follower = Follower::new(incarnation);
        let shared = self.shared.clone();
        let run = move || run(&shared, &channel, follower);
        self.thread.start("control", run).map_err(failed)?;
        Ok(incarnation)
    }

    /// An access is on the ledger.
    pub(crate) fn wake(&self) {
        let shared = &self.shared;
        if shared.idle.load(Relaxed) && shared.idle.swap(false, SeqCst) {
            drop(shared.state());
            shared.changed.notify_all();
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

fn send(channel: &Channel, report: &Report) -> penstock_wire::Result<Decision> {
    match channel.ask(Need::Regular, &MetaRequest::Report(report.clone()))? {
        MetaReply::Decision(decision) => Ok(decision),
        other => Err(unexpected(&other)),
    }
}

fn run(shared: &Shared, channel: &Channel, mut follower: Follower) {
    let mut from = since_boot();
    let mut quiet = Duration::ZERO;
    loop {
        let now = since_boot();
        if follower.pending().is_none() {
            let figures = shared.load.news();
            if figures.is_empty() && !follower.owes() {
                let passed = shared.load.is_passed();
                let most = match (channel.is_kept(), passed) {
                    (_, true) => PASSED,
                    (true, false) => LINGER,
                    (false, false) => IDLE,
                };
                match shared.rest(most) {
                    Rest::Stop => return,
                    Rest::Over => {
                        quiet += most;
                        if quiet >= LINGER {
                            channel.hang_up();
                        }
                        // What goes past the server is of the time of the rest.
                        from = if passed { now } else { since_boot() };
                    }
                    Rest::Counted => {
                        from = since_boot();
                        if !shared.sleep(from + PERIOD) {
                            return;
                        }
                    }
                }
                continue;
            }
            quiet = Duration::ZERO;
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
    use penstock_sched::Op;
    use penstock_sched::ledger::{Access, Program};
    use penstock_wire::message::MAX_REPORT_ROWS;

    fn serve(control: &Control, number: u64, op: Op, bytes: u64) {
        control.shared.load.serve(&Access {
            program: Program { number, user: 7 },
            file: 1,
            op,
            offset: 0,
            end: bytes,
            bytes,
            arrived: 0,
            ended: 1,
            queue: 0,
            device: 0,
        });
        control.wake();
    }

    #[test]
    fn the_largest_are_told_apart_and_nothing_is_counted_twice() {
        let control = Control::new(Arc::new(Load::begin().unwrap()));
        for i in 0..20 {
            serve(&control, i, Op::Write, i);
            serve(&control, i, Op::Read, 1);
        }
        let figures = control.shared.load.news();
        let first = &figures.programs[0];
        assert_eq!(
            (figures.programs.len(), first.program, first.uid),
            (MAX_REPORT_ROWS, 19, 7)
        );
        assert_eq!((first.traffic.read, first.traffic.written), (1, 19));
        assert_eq!(
            (figures.others.requests, figures.others.bytes()),
            (8, 4 + 6)
        );
        assert!(control.shared.load.news().is_empty());
        serve(&control, 3, Op::Read, 2);
        serve(&control, 3, Op::Read, 3);
        let figures = control.shared.load.news();
        assert_eq!(
            (figures.programs.len(), figures.programs[0].traffic.read),
            (1, 5)
        );
    }

    #[test]
    fn what_is_counted_wakes_the_one_who_rests() {
        let control = Control::new(Arc::new(Load::begin().unwrap()));
        let shared = control.shared.clone();
        let rests = std::thread::spawn(move || shared.rest(IDLE));
        while !control.shared.idle.load(SeqCst) {
            std::thread::yield_now();
        }
        let began = since_boot();
        serve(&control, 1, Op::Read, 1);
        assert_eq!(rests.join().unwrap(), Rest::Counted);
        assert!(since_boot() - began < IDLE / 2);
        let pause = Duration::from_millis(1);
        control.shared.load.news();
        assert_eq!(control.shared.rest(pause), Rest::Over);
        control.stop();
        assert_eq!(control.shared.rest(pause), Rest::Stop);
    }
}
