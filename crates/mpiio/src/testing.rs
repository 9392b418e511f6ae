//! Ranks as threads, for tests of this crate and of its users. They also work in a simulated world, where a rank may be
//! a separate process: time and waits are those of [`penstock_host`].
use crate::comm::{AHEAD, Comm, check_peer};
use crate::error::{Error, ErrorClass, Result};
use crate::methods::Method;
use crate::methods::domains::Seat;
use crate::methods::plan::{Alone, Outcome, Plan, Step, Words};
use penstock_datatype::Pattern;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::time;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// An operation that is incomplete after this time fails on every rank that waits in it, unless a communicator has a
/// longer limit.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// One rank's end of a communicator. Ranks that wait for a dropped end get an error.
pub struct ThreadComm {
    rank: usize,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    /// The longest wait for other ranks.
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Contributions of each rank to the current operation.
    given: Vec<Option<Vec<Vec<u8>>>>,
    /// The completed operation's contributions, until every rank has taken them.
    complete: Option<Arc<Vec<Vec<Vec<u8>>>>>,
    taken: usize,
    /// Messages from one rank to another, by sender and receiver.
    told: Vec<Vec<VecDeque<Vec<u8>>>>,
    /// Ranks whose ends were dropped.
    gone: Vec<bool>,
}

impl ThreadComm {
    /// The `size` ends of a new communicator.
    pub fn group(size: usize) -> Vec<ThreadComm> {
        ThreadComm::patient(size, MAX_WAIT)
    }

    /// The same with this limit on waiting for other ranks.
    pub fn patient(size: usize, patience: Duration) -> Vec<ThreadComm> {
        let shared = Arc::new(Shared {
            size,
            patience,
            state: Mutex::new(State {
                given: vec![None; size],
                told: vec![vec![VecDeque::new(); size]; size],
                gone: vec![false; size],
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        (0..size)
            .map(|rank| ThreadComm {
                rank,
                shared: Arc::clone(&shared),
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `blocked`; fails if ranks that are gone `hinder` its end.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        blocked: impl Fn(&State) -> bool,
        hinder: impl Fn(&[bool]) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        let deadline = time::now() + self.shared.patience;
        while blocked(&state) {
            let left = deadline.saturating_duration_since(time::now());
            if hinder(&state.gone) || left.is_zero() {
                return Err(Error::new(
                    ErrorClass::Comm,
                    format!("rank {} waited for a rank that is gone", self.rank),
                ));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    /// Each rank contributes; each gets all contributions.
    fn exchange(&self, mine: Vec<Vec<u8>>) -> Result<Arc<Vec<Vec<Vec<u8>>>>> {
        let shared = &*self.shared;
        let any = |gone: &[bool]| gone.contains(&true);
        // The previous operation may still have readers.
        let mut state = self.wait(self.lock(), |s| s.complete.is_some(), any)?;
        state.given[self.rank] = Some(mine);
        if state.given.iter().all(Option::is_some) {
            let all = state.given.iter_mut().filter_map(Option::take).collect();
            state.complete = Some(Arc::new(all));
            state.taken = 0;
            shared.changed.notify_all();
        }
        let mut state = self.wait(state, |s| s.complete.is_none(), any)?;
        let all = state.complete.clone().unwrap_or_default();
        state.taken += 1;
        if state.taken == shared.size {
            state.complete = None;
            shared.changed.notify_all();
        }
        Ok(all)
    }
}

impl Drop for ThreadComm {
    fn drop(&mut self) {
        self.lock().gone[self.rank] = true;
        self.shared.changed.notify_all();
    }
}

impl Comm for ThreadComm {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.shared.size
    }
    fn barrier(&self) -> Result<()> {
        self.exchange(Vec::new()).map(drop)
    }
    fn bcast(&self, root: usize, data: &mut Vec<u8>) -> Result<()> {
        let mine = if self.rank == root {
            vec![std::mem::take(data)]
        } else {
            Vec::new()
        };
        data.clone_from(&self.exchange(mine)?[root][0]);
        Ok(())
    }
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = self.exchange(vec![mine.to_vec()])?;
        Ok(all.iter().map(|given| given[0].clone()).collect())
    }
    fn alltoallv(&self, send: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let all = self.exchange(send)?;
        Ok(all.iter().map(|given| given[self.rank].clone()).collect())
    }
    fn tell(&self, peer: usize, message: &[u8]) -> Result<()> {
        check_peer(self, peer, message.len())?;
        let full = |s: &State| s.told[self.rank].iter().map(VecDeque::len).sum::<usize>() >= AHEAD;
        let mut state = self.wait(self.lock(), full, |gone| gone.contains(&true))?;
        state.told[self.rank][peer].push_back(message.to_vec());
        self.shared.changed.notify_all();
        Ok(())
    }
    fn hear(&self, peer: usize) -> Result<Vec<u8>> {
        check_peer(self, peer, 0)?;
        let silent = |s: &State| s.told[peer][self.rank].is_empty();
        let mut state = self.wait(self.lock(), silent, |gone| gone[peer])?;
        let message = state.told[peer][self.rank].pop_front();
        self.shared.changed.notify_all();
        Ok(message.unwrap_or_default())
    }
}

/// Runs `body` on `size` ranks, each a thread, and returns the results by rank. A panic of one rank ends the others'
/// waits and is passed on.
pub fn run<T: Send>(size: usize, body: impl Fn(ThreadComm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ThreadComm::group(size)
            .into_iter()
            .map(|comm| scope.spawn(|| body(comm)))
            .collect();
        let results: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Removes the error that a rank owes from its message in a meeting, like a library that swallows it; false if there is
/// none.
pub fn forget_debt(message: &mut Vec<u8>) -> bool {
    crate::meeting::forget_debt(message)
}

/// A method's plan for tests: ranks perform their parts one after another. A rank receives from the one before it how
/// many ranks have finished and how many bytes they moved. It sends the same to the next one.
pub struct Turns {
    rank: usize,
    ranks: usize,
    /// This rank's own plan; `None` if it wants nothing.
    own: Option<Box<dyn Plan>>,
    stage: Stage,
    moved: u64,
    /// The message of the ranks before this one.
    before: Words,
}

enum Stage {
    Begin,
    Heard,
    Own,
    Told,
}

impl Turns {
    /// The plan of a rank.
    pub fn plan(seat: Seat) -> Box<dyn Plan> {
        let file = seat.schedule.patterns[seat.rank].clone();
        let access = Alone {
            op: seat.op,
            memory: Pattern::contiguous(0, file.len),
            buffer: file.len,
            file,
        };
        let own = Method::POSIX.plan_alone(&access);
        Box::new(Turns {
            rank: seat.rank,
            ranks: seat.schedule.patterns.len(),
            own: own.filter(|_| access.file.len > 0),
            stage: Stage::Begin,
            moved: 0,
            before: Words::default(),
        })
    }

    fn pass_on(&mut self) -> Step {
        self.stage = Stage::Told;
        let [ranks, bytes, ..] = self.before;
        let words = [ranks + 1, bytes + self.moved, 0, 0];
        match self.rank + 1 {
            peer if peer < self.ranks => Step::Tell { peer, words },
            _ => Step::Finish { moved: self.moved },
        }
    }
}

impl Plan for Turns {
    fn next(&mut self, last: Outcome) -> Step {
        match self.stage {
            Stage::Begin if self.rank > 0 => {
                self.stage = Stage::Heard;
                Step::Hear {
                    peer: self.rank - 1,
                }
            }
            Stage::Begin => {
                self.stage = Stage::Own;
                self.next(Outcome::Done(0))
            }
            // After a failure no more is done, but the next rank gets its message.
            Stage::Heard if last.has_failed() => self.pass_on(),
            Stage::Heard => {
                self.before = last.words().unwrap_or_default();
                self.stage = Stage::Own;
                self.next(Outcome::Done(0))
            }
            Stage::Own => match self.own.as_mut().map(|own| own.next(last)) {
                Some(Step::Finish { moved }) => {
                    self.moved = moved;
                    self.pass_on()
                }
                Some(step) => step,
                None => self.pass_on(),
            },
            Stage::Told => Step::Finish { moved: self.moved },
        }
    }

    fn hearers(&self) -> Vec<usize> {
        (self.rank + 1..self.ranks).take(1).collect()
    }
}
