//! The mutable state of a world: time, processes and threads, network, disks, and pending events.
use crate::connections::Network;
use crate::disk::Disk;
use crate::effects::Effects;
use crate::plant::Plant;
use crate::units::{MachineId, Nanos, ProcessId, SECOND};
use penstock_base::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A thread, by number.
pub(crate) type TaskId = usize;

/// The right to run, passed from thread to thread.
pub(crate) struct Baton {
    given: AtomicBool,
    thread: Mutex<Option<std::thread::Thread>>,
}

impl Baton {
    pub fn new() -> Arc<Baton> {
        Arc::new(Baton {
            given: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    pub fn give(&self) {
        self.given.store(true, Ordering::Release);
        if let Some(thread) = &*lock(&self.thread) {
            thread.unpark();
        }
    }

    pub fn take(&self) {
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
pub(crate) enum Wait {
    Ready,
    Place(usize),
    Parked,
    Sleep,
    Join(TaskId),
    Io(Vec<RawFd>),
    /// Its process was killed.
    Dead,
    Ended {
        panicked: bool,
    },
}

pub(crate) struct Task {
    pub name: String,
    pub process: ProcessId,
    pub wait: Wait,
    /// Incremented by each wait, so that an old timer wakes no thread.
    pub stamp: u64,
    pub timed_out: bool,
    /// Unparked before it parked.
    pub token: bool,
    pub baton: Arc<Baton>,
}

/// A process.
pub(crate) struct Process {
    pub machine: MachineId,
    /// Its number among the processes of all runs.
    pub charged: usize,
    pub alive: bool,
    /// Threads that have not ended.
    pub threads: usize,
    /// Most threads at once.
    pub most_threads: usize,
}

/// A pending event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The time limit of a wait.
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

/// A log of all events: a running hash and, if wanted, lines of text.
pub(crate) struct Log {
    pub hash: u64,
    pub events: u64,
    pub print: bool,
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

    /// Adds a line of text; it is part of the hash too.
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

/// The whole mutable state, under one lock that only the running thread takes.
pub(crate) struct State {
    pub now: Nanos,
    pub random: Random,
    pub log: Log,
    pub processes: Vec<Process>,
    pub net: Network,
    /// By machine.
    pub disks: Vec<Disk>,
    pub plant: Option<Plant>,
    /// The error of each machine's time of day.
    pub clocks: BTreeMap<MachineId, i64>,
    pub effects: Effects,
    /// Violations of the checks, in order.
    pub failures: Vec<String>,
    pub tasks: Vec<Task>,
    pub ready: BTreeSet<TaskId>,
    /// Threads that wait at places or for descriptors.
    pub waiting: BTreeSet<TaskId>,
    pub timers: BinaryHeap<Reverse<(Nanos, u64, Due)>>,
    pub timer_count: u64,
    pub steps: u64,
    /// Time of each thread's disk accesses for which it has not waited yet.
    pub owed: Vec<Nanos>,
}

impl State {
    /// Adds an event at `at`.
    pub fn at(&mut self, at: Nanos, due: Due) {
        self.timer_count += 1;
        self.timers.push(Reverse((at, self.timer_count, due)));
    }

    /// The descriptor has changed: threads that poll it check again.
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

    /// Wakes all threads that wait at a place.
    pub fn wake_place(&mut self, place: usize) {
        for task in self.waiting.clone() {
            if self.tasks[task].wait == Wait::Place(place) {
                self.make_ready(task);
            }
        }
    }

    pub fn make_ready(&mut self, task: TaskId) {
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

    /// Ends a process at once (kill -9).
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
}
