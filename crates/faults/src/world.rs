//! The world: threads of which one runs at a time, virtual time, and what happens when.
//!
//! Problem: servers and clients are ordinary blocking threads; a test of what they do under faults must be able to do it
//! again. Idea: every thread of every process is a thread of this process, but only the one that holds the baton
//! runs. It gives it up where the program waits ([`World`]'s calls); then the seed's generator picks the next of
//! those that can run, and if none can, time jumps to the next thing that is due. Nothing outside is asked: no clock,
//! no randomness, no other thread. So a seed decides every interleaving.
//!
//! A process that is killed never runs again: its threads stay where they are until this process ends.
mod host;

use crate::charge::{self, Aside};
use crate::disk::Disk;
use crate::effects::{Effect, Effects};
use crate::network::Network;
use crate::plant::Plant;
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use crate::units::{MS, MachineId, Nanos, ProcessId, SECOND};

/// The time of day when a world begins, seconds since the epoch.
const BEGINNING: u64 = 1_700_000_000;
/// Machines have been up for so long when a world begins.
const UP: Nanos = 1_000 * SECOND;
/// Steps of one run; more mean that something spins.
const MAX_STEPS: u64 = 6_000_000;
/// Stack of a simulated thread.
const STACK: usize = 1 << 20;

/// A thread, by number.
pub(crate) type TaskId = usize;

thread_local! {
    static TASK: Cell<TaskId> = const { Cell::new(usize::MAX) };
}

/// The right to run, handed from thread to thread.
struct Baton {
    given: AtomicBool,
    thread: Mutex<Option<std::thread::Thread>>,
}

impl Baton {
    fn new() -> Arc<Baton> {
        Arc::new(Baton {
            given: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    fn give(&self) {
        self.given.store(true, Ordering::Release);
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    fn take(&self) {
        {
            let mut thread = lock(&self.thread);
            thread.get_or_insert_with(std::thread::current);
        }
        while !self.given.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, PartialEq)]
enum Wait {
    Ready,
    Place(usize),
    Parked,
    Sleep,
    Join(TaskId),
    Io(Vec<RawFd>),
    /// Of a killed process.
    Dead,
    Ended {
        panicked: bool,
    },
}

struct Task {
    name: String,
    process: ProcessId,
    wait: Wait,
    /// Raised by each wait, so that an old timer wakes nobody.
    stamp: u64,
    timed_out: bool,
    /// Unparked before it parked.
    token: bool,
    baton: Arc<Baton>,
}

/// What a process is.
pub(crate) struct Process {
    pub machine: MachineId,
    /// Its number among those of all runs.
    pub charged: usize,
    pub alive: bool,
    /// Threads that have not ended.
    pub threads: usize,
    /// Most threads at once.
    pub most_threads: usize,
}

/// Something that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A wait's limit.
    Limit { task: TaskId, stamp: u64 },
    /// Bytes arrive at one end of a connection.
    Arrival { connection: u64, end: usize },
    /// A new connection reaches its listener.
    Call { connection: u64 },
    /// A connection breaks.
    Break { connection: u64 },
    /// A connection breaks at its client's end.
    Sever { connection: u64 },
}

/// Everything that happens, as a running hash and, if wanted, as lines.
pub(crate) struct Log {
    pub hash: u64,
    pub events: u64,
    print: bool,
}

impl Log {
    /// Adds one event.
    pub fn note(&mut self, now: Nanos, kind: u8, a: u64, b: u64) {
        let mut hash = self.hash;
        for word in [now, u64::from(kind), a, b] {
            hash = penstock_base::Random::mix(hash ^ word);
        }
        self.hash = hash;
        self.events += 1;
    }

    /// A line for people; part of the log too.
    pub fn say(&mut self, now: Nanos, text: &str) {
        let sum = text
            .bytes()
            .fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        self.note(now, 1, sum, text.len() as u64);
        if self.print {
            eprintln!("{:>10.6} s  {text}", now as f64 / SECOND as f64);
        }
    }
}

/// All that changes, under one lock that only the running thread takes.
pub(crate) struct State {
    pub now: Nanos,
    pub random: Random,
    pub log: Log,
    pub processes: Vec<Process>,
    pub net: Network,
    /// By machine.
    pub disks: Vec<Disk>,
    pub plant: Option<Plant>,
    /// By how much a machine's time of day is wrong.
    pub clocks: BTreeMap<MachineId, i64>,
    pub effects: Effects,
    /// What went wrong, first things first.
    pub failures: Vec<String>,
    tasks: Vec<Task>,
    ready: BTreeSet<TaskId>,
    /// Those who wait at places or for descriptors.
    waiting: BTreeSet<TaskId>,
    timers: BinaryHeap<Reverse<(Nanos, u64, Due)>>,
    timer_count: u64,
    steps: u64,
    /// Time that each thread's disk accesses took but that it has not waited for.
    owed: Vec<Nanos>,
}

/// The state, held; meanwhile the thread works for the simulation.
pub(crate) struct Held<'a> {
    state: MutexGuard<'a, State>,
    _aside: Aside,
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// See the module's text.
pub(crate) struct Simulation {
    state: Mutex<State>,
    base: Instant,
}

impl State {
    /// Adds something that is due at `at`.
    pub fn at(&mut self, at: Nanos, due: Due) {
        self.timer_count += 1;
        self.timers.push(Reverse((at, self.timer_count, due)));
    }

    /// The descriptor has changed: whoever polls it looks again.
    pub fn wake_io(&mut self, fd: RawFd) {
        let waiting: Vec<TaskId> = self
            .waiting
            .iter()
            .copied()
            .filter(|t| matches!(&self.tasks[*t].wait, Wait::Io(fds) if fds.contains(&fd)))
            .collect();
        for task in waiting {
            self.make_ready(task);
        }
    }

    /// Wakes all who wait at a place.
    pub fn wake_place(&mut self, place: usize) {
        for task in self.waiting.clone() {
            if self.tasks[task].wait == Wait::Place(place) {
                self.make_ready(task);
            }
        }
    }

    fn make_ready(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        if matches!(t.wait, Wait::Dead | Wait::Ended { .. }) {
            return;
        }
        t.wait = Wait::Ready;
        self.waiting.remove(&task);
        self.ready.insert(task);
    }

    /// The machine that a thread runs on.
    pub fn machine_of(&self, task: TaskId) -> MachineId {
        self.processes[self.tasks[task].process].machine
    }

    pub fn fail(&mut self, what: String) {
        let now = self.now;
        self.log.say(now, &format!("FAILURE {what}"));
        if self.failures.len() < 20 {
            self.failures.push(what);
        }
    }

    /// Ends a process at once, as kill -9 does.
    pub fn kill(&mut self, process: ProcessId) {
        self.processes[process].alive = false;
        for (id, task) in self.tasks.iter_mut().enumerate() {
            if task.process == process && !matches!(task.wait, Wait::Ended { .. }) {
                task.wait = Wait::Dead;
                self.ready.remove(&id);
                self.waiting.remove(&id);
            }
        }
        let (now, machine) = (self.now, self.processes[process].machine);
        self.log.note(now, 2, process as u64, machine as u64);
    }

    /// Threads of a living process that have not ended.
    pub fn threads(&self, process: ProcessId) -> Vec<&str> {
        let of =
            |t: &&Task| t.process == process && !matches!(t.wait, Wait::Ended { .. } | Wait::Dead);
        self.tasks.iter().filter(of).map(|t| &*t.name).collect()
    }

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
            Due::Arrival { connection, end } => crate::network::arrive(self, connection, end),
            Due::Call { connection } => crate::network::call(self, connection),
            Due::Break { connection } => crate::network::break_now(self, connection),
            Due::Sever { connection } => crate::network::sever(self, connection),
        }
    }

    /// The next thread to run. The network is looked after first; if nobody can run, time passes.
    fn pick(&mut self) -> TaskId {
        loop {
            crate::network::pump(self);
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
                // The driver always waits for a time.
                None => unreachable!("nobody can ever run again"),
            }
        }
    }
}

/// How a world is made.
pub(crate) struct Setup {
    pub seed: u64,
    pub roots: Vec<PathBuf>,
    pub plant: Option<Plant>,
    pub print: bool,
}

impl Simulation {
    /// A world whose first thread is the calling one: the driver, a process of its own that is never killed.
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
        // Threads of killed processes may look at it as long as this process lives.
        let world: &'static Simulation = Box::leak(Box::new(Simulation {
            state: Mutex::new(state),
            base: Instant::now(),
        }));
        TASK.set(0);
        penstock_host::enter(world);
        Ok(world)
    }

    pub fn state(&self) -> Held<'_> {
        Held {
            _aside: Aside::new(),
            state: lock(&self.state),
        }
    }

    fn me(&self) -> TaskId {
        TASK.get()
    }

    /// Gives the baton up as `wait` says and comes back with it. True: the limit passed.
    fn block(&self, mut state: Held<'_>, wait: Wait, limit: Option<Nanos>) -> bool {
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
        // A killed thread waits here for ever.
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

    /// The calling thread is over.
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
            // The system closes what it has left open.
            crate::network::exited(&mut state, process);
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
