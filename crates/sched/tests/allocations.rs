//! Once it has grown to what is needed, a scheduler allocates nothing.
#![allow(clippy::unwrap_used)]
use penstock_sched::{Algorithm, Next, Op, Options, Request, Scheduler};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // At a thread's end there is nothing to count in.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: everything is the system allocator's; only a count is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_in_steady_state() {
    for algorithm in Algorithm::ALL {
        for (files, order_conflicts) in [(1, false), (37, false), (37, true), (1500, false)] {
            let allocated = allocations(algorithm, files, order_conflicts);
            // Arenas may still double once or twice; that is not per request.
            assert!(
                allocated <= 8,
                "{algorithm}, {files} files: {allocated} in 30,000 requests"
            );
        }
    }
}

/// Of 30,000 requests, after twice as many.
fn allocations(algorithm: Algorithm, files: u64, order_conflicts: bool) -> u64 {
    let options = Options {
        algorithm,
        order_conflicts,
        twins_window: 50_000,
        ..Options::default()
    };
    let mut s = Scheduler::new(options).unwrap();
    let mut now = 0;
    let mut run = |from: u64, to: u64| {
        for id in from..to {
            now += 1_000;
            // The same places again and again, in an order of their own each round.
            let place = id.wrapping_mul(7919 + id / 5000) % 5000;
            let request = Request {
                id,
                file: place % files,
                op: if place % 3 == 0 { Op::Write } else { Op::Read },
                offset: place * 4096,
                bytes: 4096,
                program: (place % 5) as u32,
                process: 0,
            };
            s.add(now, request).unwrap();
            while s.len() > 2000 {
                match s.next(now) {
                    Next::Dispatch(v) => s.completed(now, v.id).unwrap(),
                    Next::WaitUntil(until) => now = until,
                    Next::Idle => {}
                }
            }
        }
    };
    run(0, 60_000);
    let before = ALLOCATIONS.get();
    run(60_000, 90_000);
    ALLOCATIONS.get() - before
}
