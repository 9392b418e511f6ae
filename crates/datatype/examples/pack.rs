//! Packing and unpacking of eight shapes; `bench/pack.c` is the same with `MPI_Pack` and `MPI_Unpack`.
//!
//! `pack [-s MIB] [-t SECONDS] [SHAPE]` with packed megabytes of the regular shapes (16) and the
//! least time per measurement (0.3). Prints one JSON object per line: name, bytes packed per
//! repetition, seconds and CPU seconds per repetition, repetitions.

use penstock_datatype::{Loop, Order, Pattern, Result, Source, Target};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Instant;

struct Options {
    mib: u64,
    least: f64,
    only: Option<String>,
}

fn options() -> Option<Options> {
    let mut found = Options {
        mib: 16,
        least: 0.3,
        only: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-s" => found.mib = args.next()?.parse().ok()?,
            "-t" => found.least = args.next()?.parse().ok()?,
            _ => found.only = Some(arg),
        }
    }
    Some(found)
}

fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + 1e-9 * t.tv_nsec as f64
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Page-aligned memory, written to.
fn memory(bytes: u64) -> Vec<Page> {
    // A page more than needed: the FLASH shape shifts its base.
    vec![Page([1; 4096]); (bytes / 4096 + 2) as usize]
}

fn bytes_of(pages: &mut [Page]) -> &mut [u8] {
    // SAFETY: pages are plain bytes without padding, back to back.
    unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), size_of_val(pages)) }
}

/// `variables` > 1: each repetition takes the data one double further on.
fn measure(options: &Options, name: &str, tile: &Loop, count: u64, variables: i64) -> Result<()> {
    let bytes = tile.size() * count;
    let whole = Pattern::new(0, tile.clone(), 0, bytes)?;
    let mut user = memory(whole.bounds().1 as u64);
    let mut packed = memory(bytes);
    let user = bytes_of(&mut user);
    let packed = &mut bytes_of(&mut packed)[..bytes as usize];
    for unpack in [false, true] {
        let mut repetitions = -1; // the first one warms up
        let mut start = Instant::now();
        let mut cpu = 0.0;
        let mut seconds = 0.0;
        while repetitions < 1 || seconds < options.least {
            if repetitions == 0 {
                (start, cpu) = (Instant::now(), cpu_seconds());
            }
            let shifted = Pattern {
                disp: 8 * ((repetitions + 1) % variables),
                ..whole.clone()
            };
            let packed = black_box(&mut *packed);
            if unpack {
                // SAFETY: `user` covers the pattern's bounds and a page.
                unsafe { Target::new(user.as_mut_ptr(), shifted) }.scatter(0, packed);
            } else {
                // SAFETY: as above.
                unsafe { Source::new(user.as_ptr(), shifted) }.gather(0, packed);
            }
            repetitions += 1;
            if repetitions > 0 {
                seconds = start.elapsed().as_secs_f64();
            }
        }
        cpu = cpu_seconds() - cpu;
        println!(
            "{{\"name\":\"{}/{name}\",\"bytes\":{bytes},\"seconds\":{:.9},\"cpu_seconds\":{:.9},\
             \"repetitions\":{repetitions}}}",
            if unpack { "unpack" } else { "pack" },
            seconds / repetitions as f64,
            cpu / repetitions as f64,
        );
    }
    Ok(())
}

/// The same random numbers as in `bench/pack.c`.
struct Draw(u64);
impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn main() -> Result<()> {
    let Some(options) = options() else {
        eprintln!("usage: pack [-s MIB] [-t SECONDS] [SHAPE]");
        std::process::exit(2);
    };
    let bytes = options.mib << 20;
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let double = Loop::bytes(8);
    if wanted("contig") {
        measure(&options, "contig", &double, bytes / 8, 1)?;
    }
    for (name, doubles) in [("vector-8B", 1), ("vector-64B", 8), ("vector-4KiB", 512)] {
        if wanted(name) {
            let tile = Loop::vector(bytes / 8 / doubles, doubles, 16 * doubles as i64, &double)?;
            measure(&options, name, &tile, 1, 1)?;
        }
    }
    if wanted("subarray-3d") {
        let mut edge = 1;
        while 8 * edge * edge * edge * 8 <= bytes {
            edge *= 2;
        }
        let tile = Loop::subarray(
            &[2 * edge; 3],
            &[edge; 3],
            &[edge / 2; 3],
            Order::C,
            &double,
        )?;
        measure(&options, "subarray-3d", &tile, 1, 1)?;
    }
    if wanted("indexed") {
        let mut draw = Draw(1);
        let (mut lengths, mut places, mut at) = (Vec::new(), Vec::new(), 0);
        for _ in 0..bytes / 68 {
            let length = 1 + draw.below(16);
            lengths.push(length);
            places.push(8 * at as i64);
            at += length + 1 + draw.below(16);
        }
        let tile = Loop::indexed(&lengths, &places, &double)?;
        measure(&options, "indexed", &tile, 1, 1)?;
    }
    if wanted("struct") {
        let (int, char, float) = (Loop::bytes(4), Loop::bytes(1), Loop::bytes(4));
        let fields = Loop::structure(&[
            (1, 0, int),
            (3, 8, double.clone()),
            (1, 32, char),
            (1, 36, float),
        ])?;
        measure(&options, "struct", &fields.resized(0, 40)?, bytes / 40, 1)?;
    }
    if wanted("flash") {
        let cell = double.resized(0, 24 * 8)?;
        let tile = Loop::subarray(&[16; 3], &[8; 3], &[4; 3], Order::C, &cell)?;
        measure(&options, "flash", &tile, 80, 24)?;
    }
    Ok(())
}
