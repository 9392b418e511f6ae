//! Nonblocking accesses: two threads per file, one for independent and one for collective calls. Each performs its
//! calls in the order in which they were started.
//!
//! Collective calls keep MPI's order this way without a separate communicator. A blocking collective call first waits
//! for the started ones, which every rank has started before it. Independent calls have a separate thread because they
//! must complete whatever the other ranks do.
use crate::error::{Error, ErrorClass, Result};
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// Most started calls that wait for a thread.
const MAX_WAITING: usize = 1 << 16;

/// A started call.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs jobs in order; started with the first.
pub(crate) struct Worker {
    name: &'static str,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<JobQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct JobQueue {
    waiting: VecDeque<Job>,
    running: bool,
    closed: bool,
}

impl Worker {
    pub(crate) fn new(name: &'static str) -> Worker {
        Worker {
            name,
            shared: Arc::default(),
            thread: Mutex::new(None),
        }
    }

    /// Queues a job.
    pub(crate) fn start(&self, job: Job) -> Result<()> {
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.shared.lock();
        if queue.waiting.len() >= MAX_WAITING {
            return Err(Error::new(
                ErrorClass::Other,
                format!(
                    "{MAX_WAITING} nonblocking accesses are waiting; complete some before starting more"
                ),
            ));
        }
        queue.waiting.push_back(job);
        drop(queue);
        self.shared.changed.notify_all();
        if running.is_none() {
            let shared = Arc::clone(&self.shared);
            match thread::spawn(self.name, None, move || shared.run()) {
                Ok(handle) => *running = Some(handle),
                Err(e) => {
                    self.shared.lock().waiting.pop_back();
                    return Err(Error::os("start a thread for nonblocking accesses", &e));
                }
            }
        }
        Ok(())
    }

    /// Waits until every started job has ended. Each ends: its file system operations have time-outs, and other ranks
    /// take part or fail.
    pub(crate) fn drain(&self) {
        let mut queue = self.shared.lock();
        while queue.running || !queue.waiting.is_empty() {
            queue = self.shared.wait(queue);
        }
    }

    /// Completes started jobs and ends the thread.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let running = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = running {
            // A job that panicked has been reported on standard error by its thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, JobQueue>) -> MutexGuard<'a, JobQueue> {
        self.changed
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.waiting.pop_front() {
                queue.running = true;
                drop(queue);
                // The flag is cleared even if the job panics, so that nobody waits for ever.
                let _running = Running(self);
                job();
                drop(_running);
                queue = self.lock();
            } else if queue.closed {
                return;
            } else {
                queue = self.wait(queue);
            }
        }
    }
}

struct Running<'a>(&'a Shared);
impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.running = false;
        if std::thread::panicking() {
            // Dropped jobs never call back; their requests would wait for ever in a program that panics anyway.
            queue.waiting.clear();
        }
        drop(queue);
        self.0.changed.notify_all();
    }
}
