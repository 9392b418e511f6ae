//! Program models: what each rank of a parallel program does, step by step. One file per benchmark, with its name.
//!
//! A rank computes, makes an I/O call, waits at a barrier, and repeats. A benchmark describes each call of each rank as
//! a loop. Nothing is listed in advance, so a program costs no memory, whatever its length.
//!
//! A *cohort* simulates several consecutive ranks as one: its call covers what theirs cover together, and each cost per
//! process is paid as often.
mod btio;
mod coll_perf;
mod demo;
mod flash;
mod hpio;
mod ior_mpi_io;
mod iozone;
mod mpi_io_test;
mod mpi_tile_io;
mod noncontig;
mod s3asim;

use crate::error::{Error, Result};
use penstock_base::Nanos;
use penstock_datatype::{Loop, Pattern};
use serde::de::DeserializeOwned;

/// One I/O call of a rank.
pub(crate) struct Call {
    /// Index of the program's file.
    pub file: u32,
    /// Pattern in the file.
    pub pattern: Pattern,
    /// Pattern in memory; `None` if contiguous.
    pub memory: Option<Pattern>,
}

impl Call {
    fn of(pattern: Pattern) -> Call {
        Call {
            file: 0,
            pattern,
            memory: None,
        }
    }

    fn contiguous(offset: u64, len: u64) -> Call {
        Call::of(Pattern::contiguous(offset as i64, len))
    }
}

/// The properties of the program that a benchmark depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Ranks of the real program.
    pub ranks: u32,
    /// Consecutive ranks that one cohort stands for; divides `ranks`.
    pub cohort: u32,
    /// Whether I/O calls are collective.
    pub collective: bool,
    pub seed: u64,
}

/// The files of a program, all of the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Files {
    pub count: u32,
    pub bytes: u64,
}

/// The I/O pattern of a benchmark. `cohort` counts cohorts; by default a cohort is one rank.
pub(crate) trait Benchmark {
    fn files(&self) -> Files;
    /// I/O calls of each rank.
    fn calls(&self) -> u64;
    /// What call number `call` covers; an error if no loop describes it.
    fn call(&self, cohort: u32, call: u64) -> Result<Call>;
    /// Computation before this call, in addition to the program's.
    fn compute(&self, _cohort: u32, _call: u64) -> Nanos {
        0
    }
}

/// Names of the benchmarks, as scenarios write them.
pub const BENCHMARKS: [&str; 11] = [
    "demo",
    "mpi-io-test",
    "ior-mpi-io",
    "noncontig",
    "hpio",
    "mpi-tile-io",
    "coll_perf",
    "btio",
    "s3asim",
    "flash",
    "iozone",
];

/// The benchmark of this name; `at` is where the scenario names its parameters.
pub(crate) fn benchmark(
    name: &str,
    parameters: &toml::Table,
    setup: &Setup,
    at: &str,
) -> Result<Box<dyn Benchmark>> {
    fn read<P: DeserializeOwned>(parameters: &toml::Table, at: &str) -> Result<P> {
        let read: std::result::Result<P, _> = parameters.clone().try_into();
        read.map_err(|e| Error::key(format!("{at}.parameters"), e.message()))
    }
    let refused = |(key, says): Refused| Error::key(format!("{at}.{key}"), says);
    macro_rules! boxed {
        ($module:ident) => {
            Box::new(
                $module::Model::new(read::<$module::Parameters>(parameters, at)?, setup)
                    .map_err(refused)?,
            )
        };
    }
    let benchmark: Box<dyn Benchmark> = match name {
        "demo" => boxed!(demo),
        "mpi-io-test" => boxed!(mpi_io_test),
        "ior-mpi-io" => boxed!(ior_mpi_io),
        "noncontig" => boxed!(noncontig),
        "hpio" => boxed!(hpio),
        "mpi-tile-io" => boxed!(mpi_tile_io),
        "coll_perf" => boxed!(coll_perf),
        "btio" => boxed!(btio),
        "s3asim" => boxed!(s3asim),
        "flash" => boxed!(flash),
        "iozone" => boxed!(iozone),
        other => {
            let known = BENCHMARKS.join(", ");
            return Err(Error::key(
                format!("{at}.benchmark"),
                format!("no benchmark is called \"{other}\"; there are {known}"),
            ));
        }
    };
    let Files { bytes, .. } = benchmark.files();
    if bytes == 0 || benchmark.calls() == 0 {
        return Err(Error::key(
            format!("{at}.parameters"),
            "the program moves no byte: its file is shorter than one call of all ranks",
        ));
    }
    if bytes > MAX_FILE {
        return Err(Error::key(
            format!("{at}.parameters"),
            format!("files of {bytes} B; at most {MAX_FILE} B (1 PiB)"),
        ));
    }
    Ok(benchmark)
}

/// Longest file of a program.
const MAX_FILE: u64 = 1 << 50;

/// Why a parameter is refused: its key, and what is allowed.
type Refused = (String, String);

fn refused<T>(key: &str, says: impl Into<String>) -> std::result::Result<T, Refused> {
    Err((format!("parameters.{key}"), says.into()))
}

/// Checks a size parameter: not zero, and not larger than a file may be.
fn size(key: &str, bytes: u64) -> std::result::Result<u64, Refused> {
    const LARGEST: u64 = 1 << 40;
    if !(1..=LARGEST).contains(&bytes) {
        return refused(key, format!("{bytes} B is outside 1 B..=1 TiB"));
    }
    Ok(bytes)
}

/// Checks a count: not zero, and within its limit.
fn number(key: &str, n: u64) -> std::result::Result<u64, Refused> {
    const MOST: u64 = 1 << 32;
    if !(1..=MOST).contains(&n) {
        return refused(key, format!("{n} is outside 1..={MOST}"));
    }
    Ok(n)
}

/// Refuses cohorts for programs whose neighbouring accesses are together no loop.
fn unfolded(setup: &Setup, name: &str) -> std::result::Result<(), Refused> {
    if setup.cohort > 1 {
        return Err((
            "cohort".into(),
            format!(
                "ranks of {name} are not alike; 1 is the only cohort size, larger ones are for demo, mpi-io-test, \
                 ior-mpi-io, noncontig, hpio and flash"
            ),
        ));
    }
    Ok(())
}

/// `count` pieces of `len` bytes, `stride` apart, from `offset` on.
fn strided(offset: u64, count: u64, len: u64, stride: u64) -> Result<Pattern> {
    if count == 1 || stride == len {
        return Ok(Pattern::contiguous(offset as i64, len * count));
    }
    let tile = Loop::vector(count, 1, stride as i64, &Loop::bytes(len))?;
    Ok(Pattern::new(offset as i64, tile, 0, len * count)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn make(
        name: &str,
        parameters: &str,
        ranks: u32,
        cohort: u32,
    ) -> Box<dyn Benchmark> {
        let setup = Setup {
            ranks,
            cohort,
            collective: true,
            seed: 1,
        };
        benchmark(
            name,
            &toml::from_str(parameters).unwrap(),
            &setup,
            "program",
        )
        .unwrap()
    }

    /// How often all calls of all cohorts cover each byte of the file.
    fn coverage(benchmark: &dyn Benchmark, cohorts: u32) -> Vec<u8> {
        let mut covered = vec![0u8; benchmark.files().bytes as usize];
        for cohort in 0..cohorts {
            for call in 0..benchmark.calls() {
                let call = benchmark.call(cohort, call).unwrap();
                if let Some(memory) = &call.memory {
                    assert_eq!(memory.len, call.pattern.len, "memory and file bytes");
                }
                call.pattern.for_each_run(|_, run| {
                    for at in run.offset..run.offset + run.len as i64 {
                        covered[at as usize] += 1;
                    }
                });
            }
        }
        covered
    }

    #[test]
    fn programs_cover_each_byte_of_their_file_once() {
        for (name, parameters, ranks) in [
            ("demo", "segment = 64\nfile_size = 4096", 4),
            ("mpi-io-test", "segment = 64\nfile_size = 4096", 4),
            (
                "mpi-io-test",
                "segment = 64\nfile_size = 4096\nlayout = 'segmented'",
                4,
            ),
            (
                "ior-mpi-io",
                "transfer = 64\nfile_size = 4096\nsegments = 2",
                4,
            ),
            (
                "noncontig",
                "elements = 8\nfile_size = 4096\nper_call = 512",
                4,
            ),
            ("coll_perf", "size = 12", 8),
            ("btio", "grid = 12\ndumps = 2", 9),
            ("flash", "blocks = 3\nvariables = 5\ncells = 4", 4),
            ("s3asim", "queries = 3\nresults = 4", 4),
        ] {
            let program = make(name, parameters, ranks, 1);
            let covered = coverage(program.as_ref(), ranks);
            assert!(covered.iter().all(|n| *n == 1), "{name}: {covered:?}");
        }
    }

    #[test]
    fn a_cohort_covers_what_its_ranks_cover() {
        for (name, parameters) in [
            ("demo", "segment = 64\nfile_size = 4096"),
            ("mpi-io-test", "segment = 64\nfile_size = 4096"),
            (
                "mpi-io-test",
                "segment = 64\nfile_size = 4096\nlayout = 'segmented'",
            ),
            ("ior-mpi-io", "transfer = 64\nfile_size = 4096"),
            (
                "noncontig",
                "elements = 8\nfile_size = 4096\nper_call = 512",
            ),
            (
                "hpio",
                "region_count = 16\nregion_size = 32\nregion_spacing = 16",
            ),
            ("flash", "blocks = 3\nvariables = 5\ncells = 4"),
        ] {
            let single = coverage(make(name, parameters, 8, 1).as_ref(), 8);
            let folded = coverage(make(name, parameters, 8, 4).as_ref(), 2);
            assert_eq!(single, folded, "{name}");
        }
    }

    /// With the sources' parameters: file bytes, and calls of a rank; of one call the first byte, bytes and regions.
    #[test]
    #[expect(
        clippy::too_many_lines,
        reason = "the papers' programs, one after the other"
    )]
    fn programs_are_those_of_the_papers() {
        const KI: u64 = 1 << 10;
        const GI: u64 = 1 << 30;
        for (name, parameters, ranks, rank, call, expected) in [
            // RS 4.1.2: call 5 begins with segment 5 · 4 · 4 of the file.
            (
                "demo",
                "",
                4,
                3,
                5,
                [10 * GI, 10_240, 83 * 64 * KI, 256 * KI, 4],
            ),
            // RS 3.4.1: 64 ranks, 20 GB in segments of 16 KB.
            (
                "mpi-io-test",
                "",
                64,
                3,
                2,
                [20 * GI, 20_480, 131 * 16 * KI, 16 * KI, 1],
            ),
            // RS 5.3.1: 5 ranks, 64 KB; the file is the whole number of calls in 10 GB.
            (
                "mpi-io-test",
                "segment = '64KiB'\nfile_size = '10GiB'",
                5,
                4,
                1,
                [32_768 * 5 * 64 * KI, 32_768, 9 * 64 * KI, 64 * KI, 1],
            ),
            // RS 3.4.1: 64 ranks, 16 GB; a rank has 256 MB of its own.
            (
                "ior-mpi-io",
                "",
                64,
                5,
                7,
                [16 * GI, 8192, 5 * (256 << 20) + 7 * 32 * KI, 32 * KI, 1],
            ),
            // RS 3.4.1: 64 columns of 512 integers, 4 MB a call: 32 rows of 128 KB.
            (
                "noncontig",
                "",
                64,
                2,
                1,
                [GI, 256, 4096 * KI + 2 * 2 * KI, 64 * KI, 32],
            ),
            // RS 3.4.1: 4096 regions of 32 KB, 1 KB apart from the next rank's.
            (
                "hpio",
                "",
                64,
                1,
                0,
                [4096 * 64 * 33 * KI, 1, 33 * KI, 4096 * 32 * KI, 4096],
            ),
            (
                "hpio",
                "file_contiguous = true",
                64,
                1,
                0,
                [4096 * 64 * 32 * KI, 1, 4096 * 32 * KI, 4096 * 32 * KI, 1],
            ),
            // DT V.B: 6 tiles of 1024 by 768 pixels of 3 B, 100 frames; the last one begins 754 pixels across twice.
            (
                "mpi-tile-io",
                "frames = 100",
                6,
                2,
                1,
                [
                    100 * 10_695_168,
                    100,
                    10_695_168 + 2 * 754 * 3,
                    1024 * 768 * 3,
                    768,
                ],
            ),
            // DT V.C: 600³ integers; 8 ranks have 300³ each, in 300 · 300 rows.
            (
                "coll_perf",
                "",
                8,
                1,
                0,
                [864_000_000, 1, 300 * 4, 27_000_000 * 4, 90_000],
            ),
            // RS 6.3.5: class C, 162³ points of 40 B in 40 dumps: 6.8 GB. The first of 16 ranks has cells of 40³, 41³,
            // 40³ and 41³ points.
            (
                "btio",
                "",
                16,
                0,
                1,
                [
                    162 * 162 * 162 * 40 * 40,
                    40,
                    162 * 162 * 162 * 40,
                    10_633_680,
                    6562,
                ],
            ),
            // DT V.D: 7.5 MB of each rank: 24 variables, each of 80 blocks of 8³ doubles in one piece.
            (
                "flash",
                "",
                2,
                1,
                0,
                [2 * 7_864_320, 1, 80 * 512 * 8, 7_864_320, 24],
            ),
        ] {
            let program = make(name, parameters, ranks, 1);
            let call = program.call(rank, call).unwrap();
            let found = [
                program.files().bytes,
                program.calls(),
                call.pattern.bounds().0 as u64,
                call.pattern.len,
                call.pattern.regions(),
            ];
            assert_eq!(found, expected, "{name} {parameters}");
        }
        let own = make(
            "mpi-io-test",
            "files = 'per-process'\nfile_size = '64MiB'",
            8,
            1,
        );
        assert_eq!((own.files().count, own.files().bytes), (8, 64 << 20));
        assert_eq!(own.call(7, 0).unwrap().file, 7);
    }

    #[test]
    fn s3asim_results_are_of_the_published_sizes_and_lie_in_their_querys_part() {
        // RS 6.3.6: results of 100 B to 10 kB.
        let program = make("s3asim", "search = '10ms'", 16, 1);
        assert_eq!(program.calls(), 20);
        let mut end = 0;
        for query in 0..program.calls() {
            let mut bytes = 0;
            let begin = end;
            for rank in 0..16 {
                let call = program.call(rank, query).unwrap();
                let mut results = 0;
                call.pattern.for_each_run(|_, run| {
                    // Neighbours of one rank are one run.
                    assert!(run.len >= 100 && run.offset >= begin);
                    results += 1;
                });
                assert!((2..=32).contains(&results));
                bytes += call.pattern.len;
                let search = program.compute(rank, query);
                assert!((5_000_000..15_000_000).contains(&search));
            }
            assert!((16 * 32 * 100..=16 * 32 * 10_000).contains(&bytes));
            end += bytes as i64;
        }
        assert_eq!(end as u64, program.files().bytes);
    }

    #[test]
    fn tiles_overlap_as_the_source_says() {
        let program = make("mpi-tile-io", "", 6, 1);
        // DT V.B: a frame is 10.2 MB, each client reads 2.25 MB in 768 rows.
        assert_eq!(program.files().bytes, 3 * 2532 * 1408);
        let call = program.call(0, 0).unwrap();
        assert_eq!(
            (call.pattern.len, call.pattern.regions()),
            (3 * 1024 * 768, 768)
        );
    }

    #[test]
    fn flash_is_noncontiguous_in_memory_as_the_source_says() {
        let program = make("flash", "", 2, 1);
        let call = program.call(1, 0).unwrap();
        assert_eq!(call.pattern.len, 7_864_320);
        // DT table IV: 983,040 pieces of 8 bytes.
        assert_eq!(call.memory.unwrap().regions(), 983_040);
    }

    #[test]
    fn bad_parameters_name_the_key() {
        let setup = Setup {
            ranks: 4,
            cohort: 1,
            collective: false,
            seed: 1,
        };
        for (name, parameters, says) in [
            ("demo", "segment = 0", "parameters.segment"),
            ("demo", "segments = 3\nsegmnet = 1", "segmnet"),
            ("demo", "segment = '1TiB'", "moves no byte"),
            ("ior", "", "ior-mpi-io"),
            ("btio", "grid = 8", "cells"),
            ("mpi-tile-io", "columns = 3\nrows = 2", "ranks"),
        ] {
            let parameters = toml::from_str(parameters).unwrap();
            let error = benchmark(
                name,
                &parameters,
                &Setup {
                    ranks: if name == "btio" { 100 } else { 4 },
                    ..setup
                },
                "program.0",
            );
            let error = error.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
