//! Bounds on the memory of servers under faults: every allocation is charged to the simulated process that made it.
#![allow(clippy::unwrap_used)]
use penstock_faults::{Options, charged_to, quiet_panics, run};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Processes counted separately.
const PROCESSES: usize = 4096;

/// Bytes held now and at most, by process.
static HELD: [AtomicI64; PROCESSES] = [const { AtomicI64::new(0) }; PROCESSES];
static MOST: [AtomicI64; PROCESSES] = [const { AtomicI64::new(0) }; PROCESSES];

struct Charging;

/// Space before each allocation for the number of its process.
fn room(layout: Layout) -> usize {
    layout.align().max(16)
}

fn extended(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(room(layout))?;
    Layout::from_size_align(size, room(layout)).ok()
}

// SAFETY: `alloc` returns an address `room` bytes, a multiple of the alignment, behind the start of a system allocation
// that is larger by as much. `dealloc` computes that start and its layout from the layout that it is given.
unsafe impl GlobalAlloc for Charging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(all) = extended(layout) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the size is not zero, since it includes the room.
        let start = unsafe { System.alloc(all) };
        if start.is_null() {
            return start;
        }
        let process = charged_to().min(PROCESSES - 1);
        // SAFETY: the room is at least 16 bytes, aligned to 16.
        unsafe { start.cast::<usize>().write(process) };
        let size = layout.size() as i64;
        let held = HELD[process].fetch_add(size, Relaxed) + size;
        MOST[process].fetch_max(held, Relaxed);
        // SAFETY: within the allocation.
        unsafe { start.add(room(layout)) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some(all) = extended(layout) else {
            return;
        };
        // SAFETY: `at` came from `alloc` with this layout.
        let start = unsafe { at.sub(room(layout)) };
        // SAFETY: `alloc` has written it there.
        let process = unsafe { start.cast::<usize>().read() };
        HELD[process].fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: allocated with this layout.
        unsafe { System.dealloc(start, all) };
    }
}

#[global_allocator]
static ALLOCATOR: Charging = Charging;

/// Bytes that a process holds now, and has held at most.
fn meter(process: usize) -> (u64, u64) {
    let read = |of: &[AtomicI64]| of[process].load(Relaxed).max(0) as u64;
    (read(&HELD), read(&MOST))
}

#[test]
fn servers_under_faults_stay_within_their_bytes() {
    quiet_panics();
    let mut most = 0;
    for seed in 1..=12 {
        let report = run(&Options {
            seed,
            plant: None,
            print: false,
            meter: Some(meter),
        });
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        most = most.max(report.most_bytes);
    }
    println!("at most {most} bytes in a server");
    // Allocations are charged at all.
    assert!(most > 100_000, "{most}");
}

#[test]
fn a_server_that_holds_more_is_found() {
    quiet_panics();
    // As if every server had leaked.
    let report = run(&Options {
        seed: 1,
        plant: None,
        print: false,
        meter: Some(|process| {
            let (held, most) = meter(process);
            (held + (16 << 20), most)
        }),
    });
    let memory = |f: &String| f.contains("memory: server");
    assert!(report.failures.iter().any(memory), "{:?}", report.failures);
}
