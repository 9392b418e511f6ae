//! Counts the files of all users in the background: once in a store without counts, and for `penstock check`.
use super::{Engine, Shared, State, wall_clock_ns};
use crate::error::Result;
use crate::layers::milliseconds;
use crate::quota::Counted;
use penstock_host::thread::{self, JoinHandle};
use penstock_host::time::now;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files counted in one go, under the lock.
const SLICE: usize = 256;
/// Pause between two slices, which leaves the lock to requests.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a request for a count works before it is answered.
const WORK: Duration = Duration::from_secs(1);
/// A count that nobody continues for this long is abandoned.
const LEFT: Duration = Duration::from_secs(30);

/// A count in progress, and when it was last continued.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    number: u64,
    touched: Instant,
}

/// The progress of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The number to continue with. `None`: another count must end first.
    pub count: Option<u64>,
    /// Set when it is complete.
    pub found: Option<Counted>,
}

/// Starts the thread that counts all files once.
pub(super) fn start(shared: &Arc<Shared>) -> Option<JoinHandle> {
    let body = {
        let shared = shared.clone();
        move || count_once(&shared)
    };
    thread::spawn("count", None, body)
        .map_err(|e| {
            log::warn!("no thread counts files, so nothing is limited: {e}; run `penstock check`")
        })
        .ok()
}

fn count_once(shared: &Shared) {
    log::info!("the files of each user are counted, once; until then no limits hold");
    let mut state = shared.state();
    let mut number = None;
    while state.closed.is_none() {
        let count = match number.take().or_else(|| state.begin_count()) {
            Some(count) => count,
            // An administrator's count serves as well.
            None if !state.space.names().accounts().are_counted() => {
                state = shared.wait_unlocked(state, WORK);
                continue;
            }
            None => return,
        };
        match shared.count_on(&mut state, count, false) {
            Ok(None) => number = Some(count),
            Ok(Some(_)) => {
                log::info!("the files of each user are counted: limits hold from now on");
                return;
            }
            Err(e) if e.kind == penstock_wire::message::ErrorKind::Io => number = Some(count),
            Err(e) => {
                state.end_count();
                log::error!("the files of users cannot be counted, so nothing is limited: {e}");
                return;
            }
        }
        state = shared.wait_unlocked(state, PAUSE);
    }
}

impl State {
    /// `None`: another count is in progress.
    fn begin_count(&mut self) -> Option<u64> {
        let left = |count: &Count| now().saturating_duration_since(count.touched) >= LEFT;
        if !self.count.as_ref().is_none_or(left) {
            return None;
        }
        let number = self.space.names_mut().accounts_mut().begin_count();
        self.count = Some(Count {
            number,
            touched: now(),
        });
        Some(number)
    }

    fn end_count(&mut self) {
        self.count = None;
        self.space.names_mut().accounts_mut().give_up_count();
    }
}

impl Shared {
    /// Counts a slice. `None`: there is more.
    fn count_on(&self, state: &mut State, number: u64, repair: bool) -> Result<Option<Counted>> {
        state.count = Some(Count {
            number,
            touched: now(),
        });
        let result = state.guarded(|state| {
            let now_ms = milliseconds(wall_clock_ns());
            state
                .space
                .names_mut()
                .count_files(number, SLICE, repair, now_ms)
        });
        self.heed(state, &result);
        if let Ok(Some(_)) = &result {
            state.count = None;
            if state.space.names().collected() > 0 && state.group.changed(self.now()) {
                self.work.notify_one();
            }
        }
        result
    }
}

impl Engine {
    /// Continues count number `count` for a while, or begins one. Corrections are durable after an [`Engine::sync`].
    pub fn count_files(&self, count: Option<u64>, repair: bool) -> Result<Progress> {
        let shared = &*self.shared;
        let mut state = shared.open_state()?;
        state.requests += 1;
        let until = now() + WORK;
        let under_way =
            |state: &State, number: &u64| state.count.as_ref().is_some_and(|c| c.number == *number);
        let mut count = count.filter(|number| under_way(&state, number));
        loop {
            if let Some(why) = &state.closed {
                return Err(why.clone());
            }
            count = match count {
                Some(number) if under_way(&state, &number) => Some(number),
                _ => state.begin_count(),
            };
            if let Some(number) = count {
                match shared.count_on(&mut state, number, repair) {
                    Ok(None) => {}
                    Ok(found) => return Ok(Progress { count, found }),
                    Err(e) => {
                        state.end_count();
                        return Err(e);
                    }
                }
            }
            if now() >= until {
                return Ok(Progress { count, found: None });
            }
            state = shared.wait_unlocked(state, PAUSE);
        }
    }
}
