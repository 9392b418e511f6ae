//! The world: threads of which one runs at a time, virtual time, and the event loop.
//!
//! Problem: servers and clients are ordinary blocking threads. A test of their behaviour under faults must be
//! repeatable. Idea: every thread of every process is a thread of this process, but only the one that holds the baton
//! runs. It passes the baton on where the program waits ([`World`]'s calls). The seed's generator then picks the next
//! runnable thread; if there is none, time advances to the next event. Nothing external has an influence: no clock, no
//! randomness, no other thread. So a seed determines every interleaving.
//!
//! A killed process never runs again: its threads stay blocked until this process ends.
mod host;

use crate::charge::{self, Aside};
use crate::connections::Network;
use crate::disk::Disk;
use crate::effects::{Effect, Effects};
use crate::network;
use crate::plant::Plant;
use crate::state::{Baton, Due, Log, Process, State, Task, TaskId, Wait};
use penstock_base::Random;
use penstock_host::{Access, Pace, World};
use rustix::event::PollFd;
use rustix::io::Errno;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use crate::state::lock;
pub(crate) use crate::units::{MS, MachineId, Nanos, ProcessId, SECOND};

/// The time of day when a world begins, seconds since the epoch.
const BEGINNING: u64 = 1_700_000_000;
/// Uptime of machines when a world begins.
const UP: Nanos = 1_000 * SECOND;
/// Most steps of one run; more mean that something loops.
const MAX_STEPS: u64 = 6_000_000;
/// Stack of a simulated thread.
const STACK: usize = 1 << 20;

thread_local! {
    static TASK: Cell<TaskId> = const { Cell::new(usize::MAX) };
}

/// The locked state; while it is held, the thread's allocations are charged to the simulation.
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    _aside: Aside,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// A simulated world.
pub(crate) struct Simulation {
    state: Mutex<State>,
    base: Instant,
}

impl State {
    fn fire(&mut self, due: Due) {
        match due {
            Due::Limit { task, stamp } => {
                let t = &mut self.tasks[task];
                if t.stamp == stamp
                    && !matches!(t.wait, Wait::Ready | Wait::Dead | Wait::Ended { .. })
                {
                    t.timed_out = true;
                    self.make_ready(task);
                }
            }
            Due::Arrival { connection, end } => network::arrive(self, connection, end),
            Due::Call { connection } => network::call(self, connection),
            Due::Break { connection } => network::break_now(self, connection),
            Due::Sever { connection } => network::sever(self, connection),
        }
    }

    /// Picks the next thread to run. Moves network bytes first; if no thread can run, advances the time.
    fn pick(&mut self) -> TaskId {
        loop {
            network::pump(self);
            while let Some(Reverse((at, _, due))) = self.timers.peek().copied() {
                if at > self.now {
                    break;
                }
                self.timers.pop();
                self.fire(due);
            }
            if !self.ready.is_empty() {
                let n = self.random.index(self.ready.len());
                let task = self.ready.iter().nth(n).copied().unwrap_or_default();
                self.ready.remove(&task);
                self.now += 500 + self.random.below(3_000);
                let now = self.now;
                self.log.note(now, 3, task as u64, self.ready.len() as u64);
                return task;
            }
            match self.timers.peek() {
                Some(Reverse((at, _, _))) => self.now = self.now.max(*at),
                // The driver always waits with a time limit.
                None => unreachable!("nobody can ever run again"),
            }
        }
    }
}

/// Parameters of a world.
pub(crate) struct Setup {
    pub seed: u64,
    pub roots: Vec<PathBuf>,
    pub plant: Option<Plant>,
    pub print: bool,
}

impl Simulation {
    /// Makes a world whose first thread is the caller: the driver, a process of its own that is never killed.
    pub fn begin(setup: Setup) -> std::io::Result<&'static Simulation> {
        let baton = Baton::new();
        let machines = setup.roots.len();
        let state = State {
            now: 0,
            random: Random::for_purpose(setup.seed, 1),
            log: Log {
                hash: setup.seed,
                events: 0,
                print: setup.print,
            },
            processes: vec![Process {
                machine: machines,
                charged: 0,
                alive: true,
                threads: 1,
                most_threads: 1,
            }],
            net: Network::new(setup.seed)?,
            disks: setup
                .roots
                .into_iter()
                .enumerate()
                .map(|(i, root)| Disk::new(setup.seed, i, root, setup.plant))
                .collect(),
            plant: setup.plant,
            clocks: BTreeMap::new(),
            effects: Effects::default(),
            failures: Vec::new(),
            tasks: vec![Task {
                name: "driver".into(),
                process: 0,
                wait: Wait::Ready,
                stamp: 0,
                timed_out: false,
                token: false,
                baton,
            }],
            ready: BTreeSet::new(),
            waiting: BTreeSet::new(),
            timers: BinaryHeap::new(),
            timer_count: 0,
            steps: 0,
            owed: vec![0],
        };
        // Threads of killed processes may refer to it as long as this process lives.
        let world: &'static Simulation = Box::leak(Box::new(Simulation {
            state: Mutex::new(state),
            base: Instant::now(),
        }));
        TASK.set(0);
        penstock_host::enter(world);
        Ok(world)
    }

    pub fn state(&self) -> StateGuard<'_> {
        StateGuard {
            _aside: Aside::new(),
            state: lock(&self.state),
        }
    }

    fn me(&self) -> TaskId {
        TASK.get()
    }

    /// Passes the baton on as `wait` says, and returns when it comes back. Returns true if the time limit passed.
    fn block(&self, mut state: StateGuard<'_>, wait: Wait, limit: Option<Nanos>) -> bool {
        let me = self.me();
        let task = &mut state.tasks[me];
        let dead = task.wait == Wait::Dead;
        if !dead {
            task.stamp += 1;
            task.timed_out = false;
            let stamp = task.stamp;
            match wait {
                Wait::Ready => state.ready.insert(me),
                Wait::Place(_) | Wait::Io(_) => state.waiting.insert(me),
                _ => false,
            };
            state.tasks[me].wait = wait;
            if let Some(limit) = limit {
                let at = state.now.saturating_add(limit);
                state.at(at, Due::Limit { task: me, stamp });
            }
        }
        state.steps += 1;
        if state.steps == MAX_STEPS {
            let name = state.tasks[me].name.clone();
            state.fail(format!(
                "{MAX_STEPS} steps and no end: somebody spins ({name} ran last)"
            ));
        }
        let next = state.pick();
        if next == me {
            return state.tasks[me].timed_out;
        }
        let theirs = state.tasks[next].baton.clone();
        let mine = state.tasks[me].baton.clone();
        drop(state);
        theirs.give();
        // A thread of a killed process blocks here for ever.
        mine.take();
        self.state().tasks[me].timed_out
    }

    fn nanos(time: Duration) -> Nanos {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Starts a process on `machine`; `body` is its main thread.
    pub fn start(
        &'static self,
        machine: MachineId,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<ProcessId> {
        let process = {
            let mut state = self.state();
            state.processes.push(Process {
                machine,
                charged: charge::new_process(),
                alive: true,
                threads: 0,
                most_threads: 0,
            });
            state.processes.len() - 1
        };
        self.thread(process, name, Box::new(body))?;
        Ok(process)
    }

    fn thread(
        &'static self,
        process: ProcessId,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<TaskId> {
        let baton = Baton::new();
        let (id, charged) = {
            let mut state = self.state();
            let id = state.tasks.len();
            let charged = state.processes[process].charged;
            state.tasks.push(Task {
                name: name.to_owned(),
                process,
                wait: Wait::Ready,
                stamp: 0,
                timed_out: false,
                token: false,
                baton: baton.clone(),
            });
            state.owed.push(0);
            state.ready.insert(id);
            let p = &mut state.processes[process];
            p.threads += 1;
            p.most_threads = p.most_threads.max(p.threads);
            (id, charged)
        };
        std::thread::Builder::new()
            .name(format!("task {id}"))
            .stack_size(STACK)
            .spawn(move || {
                TASK.set(id);
                penstock_host::enter(self);
                baton.take();
                charge::belong(charged);
                let panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
                charge::belong(0);
                self.end(id, panicked);
            })?;
        Ok(id)
    }

    /// Ends the calling thread.
    fn end(&self, id: TaskId, panicked: bool) {
        let mut state = self.state();
        let process = state.tasks[id].process;
        if panicked {
            let name = state.tasks[id].name.clone();
            state.fail(format!("thread {name:?} panicked: {}", crate::last_panic()));
        }
        state.tasks[id].wait = Wait::Ended { panicked };
        state.processes[process].threads -= 1;
        if state.processes[process].threads == 0 {
            // The system closes its open descriptors.
            network::exited(&mut state, process);
        }
        let joining: Vec<TaskId> = (0..state.tasks.len())
            .filter(|t| state.tasks[*t].wait == Wait::Join(id))
            .collect();
        for task in joining {
            state.make_ready(task);
        }
        let next = state.pick();
        let baton = state.tasks[next].baton.clone();
        drop(state);
        baton.give();
    }
}
