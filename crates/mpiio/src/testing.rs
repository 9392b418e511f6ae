//! Ranks as threads of one process: what the tests of this crate, and of anyone who builds on it, run over.
use crate::comm::Comm;
use crate::error::{Error, ErrorClass, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A collective operation that is not complete after this long fails on every rank that waits in it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// One thread's side of a communicator.
pub struct ThreadComm {
    rank: usize,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What each rank gave to the operation under way.
    given: Vec<Option<Vec<Vec<u8>>>>,
    /// The complete operation's contributions, until every rank has taken them.
    complete: Option<Arc<Vec<Vec<Vec<u8>>>>>,
    taken: usize,
    /// A rank is gone without having finished.
    broken: bool,
}

impl ThreadComm {
    /// The `size` sides of a new communicator.
    pub fn group(size: usize) -> Vec<ThreadComm> {
        let shared = Arc::new(Shared {
            size,
            state: Mutex::new(State {
                given: (0..size).map(|_| None).collect(),
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

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        blocked: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        let deadline = Instant::now() + MAX_WAIT;
        let mut state = state;
        while blocked(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.broken || left.is_zero() {
                return Err(Error::new(
                    ErrorClass::Comm,
                    format!("rank {} waited for a rank that is gone", self.rank),
                ));
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(state)
    }

    /// Everyone gives; everyone gets all that was given.
    fn exchange(&self, mine: Vec<Vec<u8>>) -> Result<Arc<Vec<Vec<Vec<u8>>>>> {
        let shared = &*self.shared;
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The previous operation may still have readers.
        let mut state = self.wait(state, |s| s.complete.is_some())?;
        state.given[self.rank] = Some(mine);
        if state.given.iter().all(Option::is_some) {
            let all = state.given.iter_mut().filter_map(Option::take).collect();
            state.complete = Some(Arc::new(all));
            state.taken = 0;
            shared.changed.notify_all();
        }
        let mut state = self.wait(state, |s| s.complete.is_none())?;
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
        if std::thread::panicking() {
            let mut state = self
                .shared
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            state.broken = true;
            self.shared.changed.notify_all();
        }
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
}

/// Runs `body` on `size` ranks, each a thread, and returns what each returned, by rank. A panic of one rank ends the
/// others' waits and is passed on.
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
