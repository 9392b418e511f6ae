//! Measures how long a large trace takes: two repetitions are written, read back and merged.
//!
//!     cargo run --release -p penstock-sched --example large_traces -- DIR [REQUESTS]
//!
//! Leaves DIR/1.trace and DIR/2.trace, for `penstock trace merge DIR/1.trace DIR/2.trace -o DIR/merged.trace`. REQUESTS
//! is the number in both traces [10000000]. 64 processes take turns in one file, have a file each, or access random
//! places of one; the second run is slightly later.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
use penstock_sched::learn::merge;
use penstock_trace::{Event, Header, Kind, Op, Writer, read_all};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PROCESSES: u64 = 64;
const BYTES: u64 = 8192;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let directory = PathBuf::from(words.next().ok_or("large DIR [REQUESTS]")?);
    let requests: u64 = words.next().map_or(Ok(10_000_000), |n| n.parse())?;
    let paths = [1, 2].map(|run| directory.join(format!("{run}.trace")));
    let began = Instant::now();
    for (run, path) in paths.iter().enumerate() {
        write(path, requests / 2, run as u64)?;
    }
    let bytes: u64 = paths
        .iter()
        .flat_map(std::fs::metadata)
        .map(|m| m.len())
        .sum();
    let wrote = began.elapsed();
    println!("{requests} requests, {bytes} bytes: written in {wrote:.2?}");
    let began = Instant::now();
    let traces = paths.iter().map(|path| Ok(read_all(path)?.1));
    let traces: Result<Vec<_>, penstock_trace::Error> = traces.collect();
    let traces = traces?;
    let read = began.elapsed();
    let began = Instant::now();
    let merged = merge(traces, 1);
    let (took, common) = (began.elapsed(), merged.common);
    println!("read in {read:.2?}, merged in {took:.2?}: {common} are in both");
    Ok(())
}

/// One run: each request arrives, is dispatched and completed.
fn write(path: &Path, requests: u64, run: u64) -> penstock_trace::Result<()> {
    let header = Header {
        server: 0,
        servers: 4,
        unit: 65536,
        began: run,
        repetitions: 1,
    };
    let mut writer = Writer::create(path, &header)?;
    let mut random = 1 + run;
    for i in 0..requests {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (process, turn) = (i % PROCESSES, i / PROCESSES);
        let (file, offset) = match process % 3 {
            0 => (1, i * BYTES),
            1 => (1 + process, turn * BYTES),
            // The same places in both runs.
            _ => (2, (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 34) * BYTES),
        };
        let at = i * 10_000 + random % 5_000;
        let event = |at, kind| Event {
            at,
            request: i,
            kind,
            op: if process.is_multiple_of(2) {
                Op::Write
            } else {
                Op::Read
            },
            file,
            offset,
            bytes: BYTES,
            program: 1,
            rank: process as u32,
            mpi_call: turn,
            client_call: turn,
        };
        writer.push(event(at, Kind::Arrival))?;
        writer.push(event(at + 1_000, Kind::Dispatch))?;
        writer.push(event(at + 2_000, Kind::Completion))?;
    }
    writer.finish(0).map(|_| ())
}
