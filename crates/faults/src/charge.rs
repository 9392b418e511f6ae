//! Which simulated process the running thread's memory is charged to.
//!
//! All processes share one heap. An allocator that counts may ask here whose an allocation is: a process from 1 on, or 0 for
//! what the simulation itself holds (the page cache, bytes on the wire, the history).
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static PROCESS: Cell<usize> = const { Cell::new(0) };
}

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A number for a new process, which no other in this program has had.
pub(crate) fn new_process() -> usize {
    NEXT.fetch_add(1, Relaxed)
}

/// The calling thread belongs to this process.
pub(crate) fn belong(process: usize) {
    PROCESS.set(process);
}

/// The simulated process that the calling thread works for; 0: none.
pub fn charged_to() -> usize {
    PROCESS.try_with(Cell::get).unwrap_or(0)
}

/// While it lives the calling thread works for the simulation.
pub(crate) struct Aside(usize);

impl Aside {
    pub(crate) fn new() -> Aside {
        Aside(PROCESS.replace(0))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        PROCESS.set(self.0);
    }
}
