//! Measures how fast decisions are:
//! `cargo run --release -p penstock-sched --example decisions -- [--algorithm NAME] [--files N] [--json]`.
//!
//! For each algorithm and number of files, 100,000 requests of 4 KiB are queued. Then one is added for each that is
//! completed, so that the queue keeps its length. It prints requests per second through add, next and completed, by the
//! clock and by processor time. Processor time leaves out what other programs take from a busy machine. It also prints
//! the median and 99th percentile of one decision (one call of `next`) in ns, and allocations per request.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    missing_docs
)]
use penstock_sched::{Algorithm, Histogram, Next, Op, Options, Request, Scheduler};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; only a count is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const QUEUED: usize = 100_000;
const REQUESTS: u64 = 500_000;
/// Time between two arrivals, nanoseconds.
const STEP: u64 = 1_000;

/// Requests of each file at scattered offsets, some of them adjacent; the same on every run.
struct Source {
    files: u64,
    id: u64,
    state: u64,
}

impl Source {
    fn next(&mut self) -> Request {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.id += 1;
        Request {
            id: self.id,
            file: self.state % self.files,
            op: if self.state >> 60 < 8 {
                Op::Read
            } else {
                Op::Write
            },
            offset: (self.state >> 20) % 4_000_000 * 4096,
            bytes: 4096,
            program: (self.state >> 40) % 4,
            process: 0,
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (mut only, mut counts, mut json) = (None, vec![1, 16, 10_000], false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--algorithm" => only = args.next(),
            "--files" => counts = vec![args.next().unwrap().parse().unwrap()],
            "--json" => json = true,
            other => panic!("{other}: give --algorithm NAME, --files N or --json"),
        }
    }
    let only: Option<Algorithm> = only.map(|name| name.parse().unwrap());
    for algorithm in Algorithm::ALL {
        if only.is_some_and(|o| o != algorithm) {
            continue;
        }
        for &files in &counts {
            let Measured {
                rate,
                cpu_rate,
                p50,
                p99,
                allocations,
            } = measure(algorithm, files);
            if json {
                println!(
                    "{{\"algorithm\": \"{algorithm}\", \"files\": {files}, \"queued\": {QUEUED}, \
                     \"per_s\": {rate:.0}, \"per_cpu_s\": {cpu_rate:.0}, \"p50_ns\": {p50}, \"p99_ns\": {p99}, \"allocations\": {allocations:.6}}}"
                );
            } else {
                println!(
                    "{:8} {files:>6} files {:>6.2} M requests/s, {:>6.2} M by processor time, decision p50 {p50:>5} ns, p99 {p99:>6} ns, {allocations:.5} allocations/request",
                    algorithm.name(),
                    rate / 1e6,
                    cpu_rate / 1e6
                );
            }
        }
    }
}

struct Measured {
    rate: f64,
    cpu_rate: f64,
    p50: u64,
    p99: u64,
    allocations: f64,
}

/// Processor seconds of the calling thread so far; elapsed seconds where the system does not report them.
fn processor_seconds(began: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    ns.map_or_else(|| began.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

fn measure(algorithm: Algorithm, files: u64) -> Measured {
    let options = Options {
        algorithm,
        // Decisions are measured: with waits there would be none.
        shift_wait: 0,
        aggregation_wait: 0,
        twins_window: 50_000,
        ..Options::default()
    };
    let mut scheduler = Scheduler::new(options).unwrap();
    let mut source = Source {
        files,
        id: 0,
        state: 0x9e37_79b9_7f4a_7c15,
    };
    let mut now = 0;
    let mut run = |requests: u64, decisions: Option<&mut Histogram>| {
        let mut decisions = decisions;
        let end = source.id + requests;
        while source.id < end {
            while scheduler.len() < QUEUED && source.id < end {
                now += STEP;
                scheduler.add(now, source.next()).unwrap();
            }
            let next = match &mut decisions {
                None => scheduler.next(now),
                Some(decisions) => {
                    let began = Instant::now();
                    let next = scheduler.next(now);
                    decisions.record(began.elapsed().as_nanos() as u64);
                    next
                }
            };
            match next {
                Next::Dispatch(v) => scheduler.completed(now, v.id).unwrap(),
                Next::WaitUntil(until) => now = until,
                Next::Idle => {}
            }
        }
    };
    run(3 * QUEUED as u64, None);
    let began = Instant::now();
    let (busy, before) = (processor_seconds(began), ALLOCATIONS.load(Relaxed));
    run(REQUESTS, None);
    let allocations = (ALLOCATIONS.load(Relaxed) - before) as f64 / REQUESTS as f64;
    let took = began.elapsed().as_secs_f64();
    let busy = processor_seconds(began) - busy;
    let mut decisions = Histogram::default();
    run(REQUESTS / 4, Some(&mut decisions));
    Measured {
        rate: REQUESTS as f64 / took,
        cpu_rate: REQUESTS as f64 / busy,
        p50: decisions.percentile(50.0),
        p99: decisions.percentile(99.0),
        allocations,
    }
}
