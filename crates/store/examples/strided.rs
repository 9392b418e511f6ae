//! Strided reads and writes of one page-cached object: the figures in the head of `execute.rs`. GB/s by CPU time (of
//! both threads together), which other load on the machine hardly disturbs; median of 5.
//! `cargo run --release -p penstock-store --example strided [dir:PATH | memory]`
#![allow(clippy::unwrap_used)]
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::{FileId, Layout, ObjectOffset, ServerId, ServerIndex};
use penstock_store::{Execution, Object, Scratch, open};
use rustix::time::{ClockId, clock_gettime};

const SIZE: u64 = 128 << 20;
const REPEAT: usize = 5;

/// One thread's part of the object.
fn work(
    object: &dyn Object,
    form: &str,
    (thread, threads): (u64, u64),
    (piece, density): (u64, u64),
    memory: &mut [u8],
) {
    let layout = Layout::new(65536, vec![ServerId(0)]).unwrap();
    let tile = Loop::bytes(piece)
        .resized(0, (piece * density) as i64)
        .unwrap();
    let part = SIZE / threads;
    let access = Pattern::new((part * thread) as i64, tile, 0, part / density).unwrap();
    let mut execution = Execution::new(&layout, ServerIndex(0), &access);
    let mut scratch = Scratch::new();
    match form {
        "read" => {
            for chunk in memory.chunks_mut(1 << 20) {
                execution.read(object, chunk, &mut scratch).unwrap();
            }
        }
        "write" | "fresh" => {
            for chunk in memory.chunks(1 << 20) {
                execution.write(object, chunk, &mut scratch).unwrap();
            }
        }
        "read8" => {
            // Memory in pieces of 8 bytes every 16.
            let len = memory.len() as u64 / 2;
            let tile = Loop::bytes(8).resized(0, 16).unwrap();
            let pattern = Pattern::new(0, tile, 0, len).unwrap();
            let access = access.slice(0, len);
            let mut execution = Execution::new(&layout, ServerIndex(0), &access);
            // SAFETY: the pattern stays within `memory`.
            let mut target = unsafe { Target::new(memory.as_mut_ptr(), pattern) };
            while execution
                .read_into(object, &mut target, 0, 1 << 20, &mut scratch)
                .unwrap()
                > 0
            {}
        }
        _ => {
            let mut source = Source::from_slice(memory);
            while execution
                .write_from(object, &mut source, 0, 1 << 20, &mut scratch)
                .unwrap()
                > 0
            {}
        }
    }
}

/// CPU seconds used by this process.
fn used() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + 1e-9 * t.tv_nsec as f64
}

fn main() {
    let spec = std::env::args().nth(1);
    let dir = tempfile::tempdir().unwrap();
    let spec = spec.unwrap_or_else(|| format!("dir:{}", dir.path().display()));
    let store = open(&spec, "bench", 0).unwrap();
    let pieces = [64, 256, 1024, 4096, 16384, 65536];
    for (threads, density) in [(1, 4), (2, 4)] {
        for piece in pieces {
            print!("{threads} threads, 1/{density}, {piece:>6} B:");
            for form in ["read", "read8", "write", "fresh"] {
                let mut times = Vec::new();
                let object = store.open(FileId(1), true).unwrap();
                for at in (0..SIZE).step_by(1 << 20) {
                    object.write_at(ObjectOffset(at), &[7; 1 << 20]).unwrap();
                }
                let mut memory =
                    vec![vec![3u8; (SIZE / density / threads) as usize]; threads as usize];
                for _ in 0..REPEAT {
                    if form == "fresh" {
                        object.set_len(0).unwrap();
                        object.set_len(SIZE).unwrap();
                    }
                    let start = used();
                    std::thread::scope(|scope| {
                        for (t, memory) in memory.iter_mut().enumerate() {
                            let object = &*object;
                            scope.spawn(move || {
                                work(object, form, (t as u64, threads), (piece, density), memory);
                            });
                        }
                    });
                    times.push(used() - start);
                }
                times.sort_by(f64::total_cmp);
                let bytes = SIZE / density / if form == "read8" { 2 } else { 1 };
                print!("  {form} {:6.2}", bytes as f64 / times[REPEAT / 2] / 1e9);
                store.remove(FileId(1)).unwrap();
            }
            println!();
        }
    }
}
