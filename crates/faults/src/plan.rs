//! The faults of a seed with their times: drawn before a run begins, so that a plan can be printed.
use crate::bit_rot::Target;
use crate::cluster::RunSize;
use crate::world::{MS, MachineId, Nanos, SECOND};
use penstock_base::Random;

/// One fault.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// This share (of 8) of all connections breaks, at once or with the next bytes in flight. `late`: what clients sent
    /// arrives nevertheless.
    Break { share: u64, late: bool },
    /// Two machines are partitioned.
    Partition {
        a: MachineId,
        b: MachineId,
        time: Nanos,
    },
    /// All messages take longer.
    SlowNetwork { times: u64, time: Nanos },
    /// kill -9 of a server, restarted later.
    Kill { machine: MachineId, down: Nanos },
    /// The power of a server's machine fails after this many accesses to its disk.
    Power {
        machine: MachineId,
        accesses: u64,
        down: Nanos,
    },
    /// The power of a data server's machine fails when it is about to sync a file with unsynced writes.
    PowerBeforeSync { machine: MachineId, down: Nanos },
    /// A machine's disk is full: no file can grow.
    Full { machine: MachineId, time: Nanos },
    /// A disk is slow.
    SlowDisk {
        machine: MachineId,
        times: u64,
        time: Nanos,
    },
    /// A stored bit flips while the server is down (bit rot).
    BitRot {
        machine: MachineId,
        target: Target,
        down: Nanos,
    },
    /// One sync in two of a machine's disk fails, and half of its data is lost.
    FailingSyncs { machine: MachineId, time: Nanos },
    /// Some reads and writes of a machine's disk fail.
    FailingAccesses { machine: MachineId, time: Nanos },
    /// Half of the descriptors that a machine's server asks for are refused.
    NoDescriptors { machine: MachineId, time: Nanos },
    /// A machine has too little memory for some of its server's requests.
    NoMemory { machine: MachineId, time: Nanos },
    /// A machine's time of day is wrong by this much, then corrected.
    Clock {
        machine: MachineId,
        by: i64,
        time: Nanos,
    },
    /// kill -9 of a client; another replaces it.
    KillClient { client: usize },
    /// kill -9 of all ranks of the parallel program, as its launcher does when it loses one; another program replaces
    /// it.
    KillProgram,
    /// A data server is down for a moment, and its store is copied.
    CopyStore { machine: MachineId, down: Nanos },
    /// A data server is killed, and finds something else in place of its store. It must refuse it. Then the right store
    /// is put back, or (`renew`) a new one replaces it.
    ReplaceStore {
        machine: MachineId,
        with: StoreFault,
        renew: bool,
    },
}

/// What is found in place of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// An empty disk.
    Lost,
    /// A copy that was made before the server's last start.
    Older,
    /// A copy of another server's store.
    Anothers,
}

/// One run in so many has users with quotas on bytes.
const LIMITED: u64 = 4;

/// One run in so many has users with credentials of their own, half of them with TLS.
const USERS: u64 = 4;

/// In one run in so many the data servers have fast tiers.
const FAST: u64 = 4;

/// One run in so many has a parallel program beside the clients.
const PROGRAMS: u64 = 8;

/// In one run in so many, stores are lost or exchanged.
const STORES: u64 = 4;

/// Half of the wrong clocks are wrong by at most this; the others by hours.
const CLOCK: Nanos = 100 * SECOND;
/// The largest error of a clock.
const HOURS: Nanos = 3 * 3600 * SECOND;

/// The error of a clock.
fn wrong(r: &mut Random) -> i64 {
    let most = if r.one_in(2) { CLOCK } else { HOURS };
    r.below(2 * most) as i64 - most as i64
}

/// Servers whose clocks are wrong during the whole run: every second one in one run of four.
pub(crate) fn clocks(seed: u64, shape: &RunSize) -> Vec<(MachineId, i64)> {
    let mut r = Random::for_purpose(seed, 6);
    if !r.one_in(4) {
        return Vec::new();
    }
    let mut clocks = Vec::new();
    for machine in 0..=shape.servers {
        if r.one_in(2) {
            clocks.push((machine, wrong(&mut r)));
        }
    }
    clocks
}

/// The data servers' scheduling algorithms; none in half of the runs. One request is served at a time; otherwise none
/// would wait.
const SCHEDULERS: [&str; 24] = [
    "noop", "noop", "noop", "noop", "noop", "noop", "noop", "noop", "noop", "noop", "noop", "noop",
    "to", "to-agg", "sjf", "mlf", "aioli", "sw", "twins", "wfq", "srtf", "tree", "online", "aioli",
];

/// The size of a run.
pub(crate) fn shape(seed: u64) -> RunSize {
    let mut r = Random::for_purpose(seed, 3);
    let shape = RunSize {
        servers: r.from_to(2, 4) as usize,
        clients: r.from_to(2, 4) as usize,
        files: r.from_to(1, 3) as usize,
        blocks: r.from_to(8, 40),
        block: [512, 1000, 1000, 4096, 5000, 5000, 20_000, 70_000][r.index(8)],
        time: r.from_to(3, 9) * SECOND,
        pause: r.from_to(10, 100) * MS,
        scheduler: SCHEDULERS[r.index(SCHEDULERS.len())],
        tls: seed.is_multiple_of(8),
        users: seed.is_multiple_of(USERS),
        ranks: 0,
        one_node: true,
        limit: None,
        fast: None,
    };
    // Drawn separately, so that the rest of a seed's plan stays the same.
    let mut r = Random::for_purpose(seed, 7);
    let blocks = r.from_to(2, 24);
    let limit = r.one_in(LIMITED).then_some(blocks * shape.block);
    let mut r = Random::for_purpose(seed, 8);
    let ranks = r.from_to(2, 4) as usize;
    let mut r = Random::for_purpose(seed, 10);
    let modes = ["on", "on", "auto"];
    let mode = modes[r.index(3)];
    RunSize {
        fast: r.one_in(FAST).then_some(mode),
        limit,
        ranks: if r.one_in(PROGRAMS) { ranks } else { 0 },
        one_node: r.one_in(2),
        ..shape
    }
}

/// The faults of a run in order of time.
#[expect(
    clippy::too_many_lines,
    reason = "one arm for each kind of fault, in the order of its draws"
)]
pub(crate) fn plan(seed: u64, shape: &RunSize) -> Vec<(Nanos, Fault)> {
    let mut r = Random::for_purpose(seed, 4);
    // Some runs have only some kinds of faults, some none at all.
    let kinds: u64 = match r.below(8) {
        0 => 0,
        1..=3 => r.bits() & r.bits(),
        _ => r.bits() | r.bits(),
    };
    let faults = r.from_to(2, 16);
    let mut plan = Vec::new();
    for _ in 0..faults {
        let at = r.below(shape.time);
        let machine = r.index(shape.servers + 1);
        let time = r.from_to(SECOND / 5, 6 * SECOND);
        // Failed syncs are visible only together with a power loss.
        let kind = match r.below(17) {
            16 => 9,
            kind => kind,
        };
        let fault = match kind {
            0 => Fault::Break {
                share: r.from_to(1, 8),
                late: r.one_in(2),
            },
            1 => Fault::Partition {
                a: machine,
                b: shape.servers + 1 + r.index(shape.clients),
                time: 3 * time,
            },
            2 => Fault::SlowNetwork {
                times: r.from_to(5, 100),
                time,
            },
            3 => Fault::Kill {
                machine,
                down: time,
            },
            4 => Fault::Power {
                machine,
                accesses: r.below(200),
                down: time,
            },
            5 => Fault::Full { machine, time },
            6 => Fault::SlowDisk {
                machine,
                times: r.from_to(10, 200),
                time,
            },
            7 => Fault::BitRot {
                machine: 0,
                target: if r.one_in(4) {
                    Target::Journal
                } else {
                    Target::Database
                },
                down: time,
            },
            8 => Fault::BitRot {
                machine: 1 + r.index(shape.servers),
                target: [
                    Target::Superblock,
                    Target::Record,
                    Target::Object,
                    Target::Object,
                ][r.index(4)],
                down: time,
            },
            9 => {
                if machine == 0 && kinds >> kind & 1 == 1 {
                    // What a failed sync lost shows after a power loss.
                    let accesses = r.below(100);
                    let down = r.from_to(SECOND / 5, 2 * SECOND);
                    let power = Fault::Power {
                        machine,
                        accesses,
                        down,
                    };
                    plan.push((at + time / 2, power));
                }
                Fault::FailingSyncs { machine, time }
            }
            10 => {
                let data = 1 + r.index(shape.servers);
                let machine = if machine == 0 { 0 } else { data };
                Fault::FailingAccesses { machine, time }
            }
            11 => Fault::NoDescriptors { machine, time },
            12 => Fault::NoMemory {
                machine: 1 + r.index(shape.servers),
                time,
            },
            13 => Fault::Clock {
                machine: r.index(shape.servers + 1 + shape.clients),
                by: wrong(&mut r),
                time,
            },
            14 => Fault::PowerBeforeSync {
                machine: 1 + r.index(shape.servers),
                down: time,
            },
            _ => Fault::KillClient {
                client: r.index(shape.clients),
            },
        };
        if kinds >> kind & 1 == 1 {
            plan.push((at, fault));
        }
    }
    if shape.fast.is_some() {
        // Drawn separately too.
        let mut r = Random::for_purpose(seed, 11);
        for (_, fault) in &mut plan {
            if let Fault::BitRot { target, .. } = fault
                && *target == Target::Object
                && r.one_in(2)
            {
                *target = Target::LogHeader;
            }
        }
    }
    plan.extend(replaced_store(seed, shape));
    plan.extend(program(seed, shape));
    plan.sort_by_key(|(at, _)| *at);
    plan
}

/// Faults of the ranks of a parallel program. Drawn separately too.
fn program(seed: u64, shape: &RunSize) -> Vec<(Nanos, Fault)> {
    if shape.ranks == 0 {
        return Vec::new();
    }
    let mut r = Random::for_purpose(seed, 9);
    let mut plan = Vec::new();
    if r.one_in(2) {
        plan.push((r.below(shape.time), Fault::KillProgram));
    }
    if r.one_in(2) {
        let fault = Fault::Partition {
            a: r.index(shape.servers + 1),
            b: shape.servers + 1 + shape.clients,
            time: r.from_to(SECOND / 2, 18 * SECOND),
        };
        plan.push((r.below(shape.time), fault));
    }
    plan
}

/// In some runs, a store is replaced. Drawn separately, so that all other faults of a seed stay the same.
fn replaced_store(seed: u64, shape: &RunSize) -> Vec<(Nanos, Fault)> {
    let mut r = Random::for_purpose(seed, 6);
    if !r.one_in(STORES) {
        return Vec::new();
    }
    let machine = 1 + r.index(shape.servers);
    let with = [StoreFault::Lost, StoreFault::Older, StoreFault::Anothers][r.index(3)];
    let renew = r.one_in(2);
    let at = r.from_to(shape.time / 2, shape.time);
    let replace = Fault::ReplaceStore {
        machine,
        with,
        renew,
    };
    let mut plan = vec![(at, replace)];
    if with == StoreFault::Older {
        let down = SECOND / 5;
        plan.push((r.below(shape.time / 3), Fault::CopyStore { machine, down }));
    }
    plan
}
