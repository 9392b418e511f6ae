//! Costs of the forms of access on this machine, compared with plain system calls on the same file system. Run
//! `cargo run --release -p penstock-client --example measure -- [PART [DIRECTORY]]`.
#![allow(clippy::unwrap_used)]
#[path = "../tests/common/mod.rs"]
mod common;

use common::{Cluster, Plan, create};
use penstock_client::{File, Form};
use penstock_datatype::{Loop, Pattern, Source, Target};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time by the clock, and processor time of clients and servers together.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Took {
    clock: Duration,
    processor: f64,
}

fn processor() -> f64 {
    // SAFETY: rusage is plain data, and the pointer is valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn timed(f: impl FnOnce()) -> Took {
    let (began, before) = (Instant::now(), processor());
    f();
    Took {
        clock: began.elapsed(),
        processor: processor() - before,
    }
}

/// The fastest of seven runs: other load only adds time.
fn best(mut f: impl FnMut()) -> Took {
    let mut runs: Vec<_> = (0..7).map(|_| timed(&mut f)).collect();
    runs.sort_by_key(|t| t.clock);
    runs[0]
}

fn rate(name: &str, bytes: u64, took: Took) {
    let gb = bytes as f64 / 1e9;
    println!(
        "{name:<52} {:>8.2} GB/s {:>8.3} CPU-s/GB",
        gb / took.clock.as_secs_f64(),
        took.processor / gb
    );
}

fn each(name: &str, n: u64, took: Took) {
    println!(
        "{name:<52} {:>8.2} us each {:>6.2} us CPU",
        took.clock.as_secs_f64() * 1e6 / n as f64,
        took.processor * 1e6 / n as f64
    );
}

fn chunks(total: u64, chunk: u64) -> impl Iterator<Item = (u64, Pattern)> {
    (0..total / chunk).map(move |i| (i * chunk, Pattern::contiguous((i * chunk) as i64, chunk)))
}

fn contiguous(file: &File, plain: &std::fs::File, chunk: u64, form: Form) {
    const TOTAL: u64 = 64 << 20;
    let mut bytes = vec![1u8; TOTAL as usize];
    let name = format!("contiguous {} KiB, {form:?}", chunk >> 10);
    let took = best(|| {
        for (at, access) in chunks(TOTAL, chunk) {
            let piece = &bytes[at as usize..(at + chunk) as usize];
            file.write(&access, form, &mut Source::from_slice(piece))
                .unwrap();
        }
    });
    rate(&format!("{name}, write"), TOTAL, took);
    let took = best(|| {
        for (at, access) in chunks(TOTAL, chunk) {
            let piece = &mut bytes[at as usize..(at + chunk) as usize];
            file.read(&access, form, &mut Target::from_slice(piece))
                .unwrap();
        }
    });
    rate(&format!("{name}, read"), TOTAL, took);
    if form == Form::Shortcut {
        let took = best(|| {
            for (at, _) in chunks(TOTAL, chunk) {
                plain
                    .write_all_at(&bytes[at as usize..(at + chunk) as usize], at)
                    .unwrap();
            }
        });
        rate(
            &format!("contiguous {} KiB, pwrite", chunk >> 10),
            TOTAL,
            took,
        );
        let took = best(|| {
            for (at, _) in chunks(TOTAL, chunk) {
                plain
                    .read_exact_at(&mut bytes[at as usize..(at + chunk) as usize], at)
                    .unwrap();
            }
        });
        rate(
            &format!("contiguous {} KiB, pread", chunk >> 10),
            TOTAL,
            took,
        );
    }
}

fn small(file: &File, form: Form, n: u64) {
    let mut bytes = vec![1u8; 8 * n as usize];
    let accesses = |n: u64| (0..n).map(|i| (i * 8, Pattern::contiguous(i as i64 * 24, 8)));
    let took = timed(|| {
        file.write_each(&mut accesses(n), form, &mut Source::from_slice(&bytes))
            .unwrap();
    });
    each(&format!("8 B writes, write_each, {form:?}"), n, took);
    let took = timed(|| {
        file.read_each(&mut accesses(n), form, &mut Target::from_slice(&mut bytes))
            .unwrap();
    });
    each(&format!("8 B reads, read_each, {form:?}"), n, took);
}

fn strided(file: &File, form: Form, piece: u64, gap: u64) {
    let total = (16u64 << 20) / piece * piece;
    let tile = Loop::bytes(piece).resized(0, (piece + gap) as i64).unwrap();
    let access = Pattern::new(0, tile, 0, total).unwrap();
    let mut bytes = vec![1u8; total as usize];
    let name = format!("strided {piece} B every {} B, {form:?}", piece + gap);
    let took = best(|| {
        file.write(&access, form, &mut Source::from_slice(&bytes))
            .unwrap();
    });
    rate(&format!("{name}, write"), total, took);
    let took = best(|| {
        file.read(&access, form, &mut Target::from_slice(&mut bytes))
            .unwrap();
    });
    rate(&format!("{name}, read"), total, took);
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let dir = match std::env::args().nth(2) {
        Some(place) => tempfile::TempDir::with_prefix_in("penstock", place).unwrap(),
        None => common::temporary(),
    };
    let cluster = Cluster::start_in(dir, Plan::default());
    let client = cluster.client();
    let path = cluster.dir.path().join("plain");
    let plain = std::fs::File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let open = |name: &str| client.open(name, &create(64 << 10, 4)).unwrap();
    if only.is_empty() || only == "contiguous" {
        let file = open("/contiguous");
        for chunk in [64 << 10, 1 << 20, 4 << 20] {
            for form in [Form::Shortcut, Form::Structured] {
                contiguous(&file, &plain, chunk, form);
            }
        }
    }
    if only.is_empty() || only == "small" {
        let file = open("/small");
        for (form, n) in [(Form::Contiguous, 1_000_000), (Form::Shortcut, 1_000_000)] {
            small(&file, form, n);
        }
        let took = timed(|| {
            for i in 0..1_000_000u64 {
                plain.write_all_at(&[0; 8], i * 24).unwrap();
            }
        });
        each("8 B, pwrite", 1_000_000, took);
        let mut one = [0u8; 8];
        let access = Pattern::contiguous(0, 8);
        for form in [Form::Contiguous, Form::Shortcut] {
            let took = timed(|| {
                for _ in 0..20_000 {
                    file.read(&access, form, &mut Target::from_slice(&mut one))
                        .unwrap();
                }
            });
            each(&format!("8 B, one at a time, {form:?}"), 20_000, took);
        }
    }
    if only.is_empty() || only == "strided" {
        for (piece, gap) in [(64, 64), (256, 768), (4096, 4096), (65536, 65536)] {
            let file = open(&format!("/strided{piece}"));
            for form in [Form::Shortcut, Form::Structured] {
                strided(&file, form, piece, gap);
            }
        }
    }
    if only.is_empty() || only == "names" {
        names(&client);
    }
}

fn names(client: &penstock_client::Client) {
    let all = |f: &dyn Fn(&str)| timed(|| (0..1000).for_each(|i| f(&format!("/many{i}"))));
    let how = create(64 << 10, 4);
    let took = all(&|name| drop(client.open(name, &how).unwrap()));
    each("create, close", 1000, took);
    let took = all(&|name| drop(client.stat(name).unwrap()));
    each("stat with size", 1000, took);
    let took = all(&|name| client.unlink(name).unwrap());
    each("unlink", 1000, took);
}
