//! Threads: the part of std's interface that servers and clients use.
use crate::world::{World, current as world};
use std::time::Duration;

/// A started thread.
pub struct JoinHandle(Started);

enum Started {
    System(std::thread::JoinHandle<()>),
    Simulated(&'static dyn World, u64),
}

impl std::fmt::Debug for JoinHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinHandle")
    }
}

/// The joined thread panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked;

impl JoinHandle {
    /// The handle for waking it.
    pub fn thread(&self) -> Thread {
        Thread(match &self.0 {
            Started::System(thread) => Running::System(thread.thread().clone()),
            Started::Simulated(world, thread) => Running::Simulated(*world, *thread),
        })
    }

    /// Waits until the thread has ended.
    pub fn join(self) -> Result<(), Panicked> {
        match self.0 {
            Started::System(thread) => thread.join().map_err(|_| Panicked),
            Started::Simulated(world, thread) => world.join(thread).then_some(()).ok_or(Panicked),
        }
    }
}

/// Starts a thread. `stack`: size in bytes, if not the system's default.
pub fn spawn(
    name: &str,
    stack: Option<usize>,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle> {
    if let Some(world) = world() {
        let thread = world.spawn(name, Box::new(body))?;
        return Ok(JoinHandle(Started::Simulated(world, thread)));
    }
    let mut builder = std::thread::Builder::new().name(name.to_owned());
    if let Some(bytes) = stack {
        builder = builder.stack_size(bytes);
    }
    builder
        .spawn(body)
        .map(|thread| JoinHandle(Started::System(thread)))
}

/// A handle to wake a thread.
#[derive(Clone)]
pub struct Thread(Running);

#[derive(Clone)]
enum Running {
    System(std::thread::Thread),
    Simulated(&'static dyn World, u64),
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Thread")
    }
}

impl Thread {
    /// Ends the thread's current or next [`park_timeout`].
    pub fn unpark(&self) {
        match &self.0 {
            Running::System(thread) => thread.unpark(),
            Running::Simulated(world, thread) => world.unpark(*thread),
        }
    }
}

/// The calling thread.
pub fn current() -> Thread {
    Thread(match world() {
        None => Running::System(std::thread::current()),
        Some(world) => Running::Simulated(world, world.current()),
    })
}

/// Sleeps until unparked, at most `limit`; may wake spuriously.
pub fn park_timeout(limit: Duration) {
    match world() {
        None => std::thread::park_timeout(limit),
        Some(world) => world.park(limit),
    }
}

/// Processors that this process may use; a world's machines have one.
pub fn processors() -> usize {
    match world() {
        None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Some(_) => 1,
    }
}

/// Sleeps.
pub fn sleep(time: Duration) {
    match world() {
        None => std::thread::sleep(time),
        Some(world) => world.sleep(time),
    }
}
