//! The figures of docs/understand/flash.md: fixed devices, fixed loads, fixed seeds.
//!
//! Devices, loads and parameters are constants here, not options, so that nobody can tune them after seeing a result.
//! The parameters were committed before the first run.

use super::{
    Collect, Condition, Counters, Ftl, Multiplane, Nand, NandError, NandGeometry, NandOptions,
};
use crate::load::{closed_loop_from, random_addresses};
use crate::{Device, Nanos, Op, Request, write_amplification};

/// A closed-loop load of the 24 orders and of the memories.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The load's name.
    pub name: &'static str,
    /// Percent of requests that read.
    pub reads: u64,
    /// At random multiples of the size, or sequential.
    pub random: bool,
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests under way at a time (queue depth).
    pub depth: u64,
}

/// Six loads: both orders of access, reads, writes and both, small and large requests.
pub const LOADS: [Load; 6] = [
    Load {
        name: "sequential write 256 KiB, depth 4",
        reads: 0,
        random: false,
        bytes: 256 << 10,
        depth: 4,
    },
    Load {
        name: "random write 16 KiB, depth 16",
        reads: 0,
        random: true,
        bytes: 16 << 10,
        depth: 16,
    },
    Load {
        name: "random read 16 KiB, depth 16",
        reads: 100,
        random: true,
        bytes: 16 << 10,
        depth: 16,
    },
    Load {
        name: "sequential read 256 KiB, depth 4",
        reads: 100,
        random: false,
        bytes: 256 << 10,
        depth: 4,
    },
    Load {
        name: "random 70% read 16 KiB, depth 16",
        reads: 70,
        random: true,
        bytes: 16 << 10,
        depth: 16,
    },
    Load {
        name: "random 70% read 64 KiB, depth 4",
        reads: 70,
        random: true,
        bytes: 64 << 10,
        depth: 4,
    },
];

/// Requests of each load.
const REQUESTS: u64 = 3_000;

/// The result of one load.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Bytes per second.
    pub rate: f64,
    /// Mean time of a request, nanoseconds.
    pub mean: f64,
    /// 99% of requests took no longer.
    pub p99: Nanos,
    /// What the device counted.
    pub counters: Counters,
    /// How long it took.
    pub elapsed: Nanos,
}

/// The value below which a share of sorted values lies.
pub fn quantile(sorted: &[Nanos], share: f64) -> Nanos {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.max(1) - 1).copied().unwrap_or(0)
}

/// Runs one load on a new device.
pub fn run(options: &NandOptions, load: &Load) -> Result<Outcome, NandError> {
    let mut nand = Nand::new(options.clone())?;
    let span = nand.capacity();
    let mut address = random_addresses(11, span, load.bytes);
    let mut choice = random_addresses(13, 100, 1);
    let mut all = closed_loop_from(&mut nand, 0, load.depth, 0, |i| {
        let op = if choice() < load.reads {
            Op::Read
        } else {
            Op::Write
        };
        (i < REQUESTS).then(|| Request {
            id: 0,
            op,
            address: if load.random {
                address()
            } else {
                i * load.bytes % (span / load.bytes * load.bytes)
            },
            bytes: load.bytes,
            process: 0,
        })
    });
    all.latencies.sort_unstable();
    Ok(Outcome {
        rate: all.measured.rate(),
        mean: mean(&all.latencies),
        p99: quantile(&all.latencies, 0.99),
        counters: nand.counters(),
        elapsed: all.measured.elapsed,
    })
}

fn mean(times: &[Nanos]) -> f64 {
    times.iter().sum::<Nanos>() as f64 / times.len().max(1) as f64
}

/// The device for the comparison of the 24 orders. It has no buffer and no read-ahead, so that only the array is
/// compared. It is full, with enough spare room that nothing is collected.
pub fn order_device(nand: &NandOptions) -> NandOptions {
    NandOptions {
        buffer: 0,
        read_ahead: 0,
        condition: Condition::Full,
        spare: 0.28,
        multiplane: Multiplane::Aligned,
        ..nand.clone()
    }
}

/// A collection policy, for the comparison with P-FTL, L-FTL and H-FTL.
#[derive(Debug, Clone, Copy)]
pub struct Collector {
    /// Its name.
    pub name: &'static str,
    /// Mapping.
    pub ftl: Ftl,
    /// When it collects.
    pub collect: Collect,
}

/// The baselines, then Penstock's policies; the last one is the one proposed.
pub const COLLECTORS: [Collector; 7] = [
    Collector {
        name: "P-FTL (pages, preemptible)",
        ftl: Ftl::Page,
        collect: Collect::Preempt,
    },
    Collector {
        name: "L-FTL (shared log blocks)",
        ftl: Ftl::Log,
        collect: Collect::Demand,
    },
    Collector {
        name: "H-FTL (own log blocks)",
        ftl: Ftl::Hybrid,
        collect: Collect::Demand,
    },
    Collector {
        name: "pages, on demand",
        ftl: Ftl::Page,
        collect: Collect::Demand,
    },
    Collector {
        name: "advanced",
        ftl: Ftl::Page,
        collect: Collect::Advanced,
    },
    Collector {
        name: "delayed",
        ftl: Ftl::Page,
        collect: Collect::Delayed,
    },
    Collector {
        name: "advanced and delayed",
        ftl: Ftl::Page,
        collect: Collect::Both,
    },
];

/// Bursts of requests with idle periods between them, as programs alternate computation and I/O.
#[derive(Debug, Clone, Copy)]
pub struct Bursts {
    /// Its name.
    pub name: &'static str,
    /// Percent of requests that read.
    pub reads: u64,
    /// Percent of requests at random places; the others are sequential.
    pub random: u64,
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests of a burst.
    pub requests: u64,
    /// From the end of a burst to the next one.
    pub idle: Nanos,
}

/// Four loads: checkpoints, small updates, reads and updates, and a load with hardly any idle time.
pub const BURSTS: [Bursts; 4] = [
    Bursts {
        name: "checkpoint: 64 KiB in order, 10% elsewhere, 500 ms idle",
        reads: 0,
        random: 10,
        bytes: 64 << 10,
        requests: 96,
        idle: 500_000_000,
    },
    Bursts {
        name: "updates: random 8 KiB, 200 ms idle",
        reads: 0,
        random: 100,
        bytes: 8 << 10,
        requests: 256,
        idle: 200_000_000,
    },
    Bursts {
        name: "reads and updates: random 8 KiB, 70% reads, 100 ms idle",
        reads: 70,
        random: 100,
        bytes: 8 << 10,
        requests: 512,
        idle: 100_000_000,
    },
    Bursts {
        name: "busy: random 8 KiB, 30% reads, 5 ms idle",
        reads: 30,
        random: 100,
        bytes: 8 << 10,
        requests: 256,
        idle: 5_000_000,
    },
];

/// Bursts of each load, of which the first tenth is not counted.
const COUNT: u64 = 200;
/// Requests of a burst that are under way together.
const DEPTH: u64 = 32;

/// The device on which collectors are compared: 32 planes of 64 blocks of 64 pages, 15% spare, in the steady state.
pub fn collection_device(nand: &NandOptions, collector: &Collector) -> NandOptions {
    NandOptions {
        geometry: NandGeometry {
            channels: 4,
            ways: 2,
            dies: 2,
            planes: 2,
            blocks: 64,
            pages: 64,
            page: 8 << 10,
        },
        spare: 0.15,
        buffer: 0,
        read_ahead: 0,
        condition: Condition::Steady,
        ftl: collector.ftl,
        collect: collector.collect,
        ..nand.clone()
    }
}

/// The result of a bursty load under one collection policy.
#[derive(Debug, Clone, Copy)]
pub struct Burdened {
    /// Time per page spent waiting for collection, nanoseconds: the overhead.
    pub waited: f64,
    /// Mean time of a request, nanoseconds.
    pub mean: f64,
    /// 99% of requests took no longer.
    pub p99: Nanos,
    /// Programs per page written by the host.
    pub amplification: f64,
}

/// Runs bursts on a new device.
pub fn burst(options: &NandOptions, load: &Bursts) -> Result<Burdened, NandError> {
    let mut nand = Nand::new(options.clone())?;
    let span = nand.capacity() / load.bytes * load.bytes;
    let mut address = random_addresses(11, span, load.bytes);
    let mut choice = random_addresses(13, 100, 1);
    let (mut now, mut place) = (0, 0);
    let mut latencies = Vec::new();
    let mut before = nand.counters();
    for burst in 0..COUNT {
        if burst == COUNT / 10 {
            before = nand.counters();
            latencies.clear();
        }
        let one = closed_loop_from(&mut nand, now, DEPTH, 0, |i| {
            let op = if choice() < load.reads {
                Op::Read
            } else {
                Op::Write
            };
            let address = if choice() < load.random {
                address()
            } else {
                place = (place + load.bytes) % span;
                place
            };
            (i < load.requests).then_some(Request {
                id: 0,
                op,
                address,
                bytes: load.bytes,
                process: 0,
            })
        });
        latencies.extend_from_slice(&one.latencies);
        now += one.measured.elapsed + load.idle;
        nand.advance(now, &mut Vec::new());
    }
    let counters = nand.counters().since(&before);
    latencies.sort_unstable();
    Ok(Burdened {
        waited: counters.spent.collection as f64 / counters.spent.pages.max(1) as f64,
        mean: mean(&latencies),
        p99: quantile(&latencies, 0.99),
        amplification: counters.write_amplification(),
    })
}

/// From flash to resistive memory in four steps: the cells, parallelism, the data interface.
pub fn memories(nand: &NandOptions, rram: &NandOptions) -> Vec<(&'static str, NandOptions)> {
    let bare = |o: &NandOptions| NandOptions {
        buffer: 0,
        read_ahead: 0,
        link: rram.link,
        ..o.clone()
    };
    let flash = NandOptions {
        condition: Condition::Full,
        spare: 0.28,
        ..bare(nand)
    };
    let full = bare(rram);
    let mut cells = full.clone();
    cells.timing.channel = nand.timing.channel;
    cells.interleave = false;
    let mut parallel = full.clone();
    parallel.timing.channel = nand.timing.channel;
    if let Some(slabs) = &mut cells.timing.slabs {
        slabs.parallel = 1;
    }
    vec![
        ("NAND", flash),
        ("RRAM, one slab at a time, flash channel", cells),
        ("and slabs and dies in parallel", parallel),
        ("and fast channels", full),
    ]
}

/// Write amplification: (simulated, closed form). The device is one plane of 512 blocks of `pages` pages with greedy
/// collection. Pages are written uniformly at random, one capacity in all, from the steady state on.
pub fn amplification(nand: &NandOptions, spare: f64, pages: u32) -> Result<(f64, f64), NandError> {
    let options = NandOptions {
        geometry: NandGeometry {
            channels: 1,
            ways: 1,
            dies: 1,
            planes: 1,
            blocks: 512,
            pages,
            page: 4096,
        },
        spare,
        buffer: 0,
        read_ahead: 0,
        condition: Condition::Steady,
        ..nand.clone()
    };
    let mut device = Nand::new(options)?;
    let pages = device.capacity() / 4096;
    let mut address = random_addresses(3, device.capacity(), 4096);
    closed_loop_from(&mut device, 0, 4, 0, |i| {
        (i < pages).then(|| Request {
            id: 0,
            op: Op::Write,
            address: address(),
            bytes: 4096,
            process: 0,
        })
    });
    Ok((
        device.counters().write_amplification(),
        write_amplification(spare),
    ))
}
