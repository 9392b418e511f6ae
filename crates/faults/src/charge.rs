//! The simulated process to which the running thread's allocations are charged.
//!
//! All processes share one heap. A counting allocator may ask here which process an allocation belongs to. Processes
//! count from 1; 0 is the simulation itself (the page cache, bytes in flight, the history).
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static PROCESS: Cell<usize> = const { Cell::new(0) };
}

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A number for a new process, unique within this program.
pub(crate) fn new_process() -> usize {
    NEXT.fetch_add(1, Relaxed)
}

/// Assigns the calling thread to this process.
pub(crate) fn belong(process: usize) {
    PROCESS.set(process);
}

/// The simulated process that the calling thread belongs to; 0: none.
pub fn charged_to() -> usize {
    PROCESS.try_with(Cell::get).unwrap_or(0)
}

/// While it lives, the calling thread's allocations are charged to the simulation.
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
