//! Allocations of a scheduler in the steady state: few per request, and none that stays.
use penstock_sched::{Algorithm, Next, Op, Options, Request, Scheduler};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

/// Counts an allocation, or none, and a change of bytes.
fn count(allocations: u64, bytes: i64) {
    // At a thread's end the counter is gone.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + allocations));
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes));
}

// SAFETY: everything is the system allocator's; only a count is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REQUESTS: u64 = 30_000;

#[test]
fn a_request_allocates_little_and_leaves_nothing() {
    for algorithm in Algorithm::ALL {
        for (files, order_conflicts) in [(1, false), (37, false), (37, true), (1500, false)] {
            for held in [1, 2000] {
                let most = match (algorithm, held) {
                    (Algorithm::Noop | Algorithm::To, _) => 0.0,
                    // A program's queue begins and ends with its only request.
                    (_, 1) => 1.0,
                    // Nodes of ordered sets are allocated and freed.
                    _ => 0.4,
                };
                let (allocations, bytes) = grown(algorithm, files, order_conflicts, held);
                let each = allocations as f64 / REQUESTS as f64;
                let case = format!("{algorithm}, {files} files, {held} held");
                assert!(each <= most, "{case}: {each} allocations per request");
                assert!(bytes <= 32 << 10, "{case}: {bytes} bytes more");
            }
        }
    }
}

/// Allocations and bytes of so many requests, measured after twice as many.
fn grown(algorithm: Algorithm, files: u64, order_conflicts: bool, held: usize) -> (u64, i64) {
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
            // The same places repeatedly, in another order each round.
            let place = id.wrapping_mul(7919 + id / 5000) % 5000;
            let request = Request {
                id,
                file: place % files,
                op: if place % 3 == 0 { Op::Write } else { Op::Read },
                offset: place * 4096,
                bytes: 4096,
                program: place % 5,
                process: 0,
            };
            s.add(now, request).unwrap();
            while s.len() > held {
                match s.next(now) {
                    Next::Dispatch(v) => s.completed(now, v.id).unwrap(),
                    Next::WaitUntil(until) => now = until,
                    Next::Idle => {}
                }
            }
        }
    };
    run(0, 2 * REQUESTS);
    let before = (ALLOCATIONS.get(), BYTES.get());
    run(2 * REQUESTS, 3 * REQUESTS);
    (ALLOCATIONS.get() - before.0, BYTES.get() - before.1)
}
