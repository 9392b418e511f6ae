//! Generates what data servers see of programs with a known pattern: training data for the detection, and traces for
//! experiments.
//!
//! A run is one case of the source's cross-product. Its factors are {read, write}, {one file, a file per process},
//! {contiguous, strided}, {small, large}, {8, 16, 32} processes and {1, 4} programs. Random accesses are added to it.
//! Each process makes its accesses one after the other. An access is one request to each server that holds some of its
//! bytes. A request arrives in slices, one, two or four at a time; a server serves one slice at a time. Random
//! parameters are those in which real runs differ:
//!
//! - the number of servers, the request sizes (small: below the stripe unit; large: reaching all servers), the length
//!   of the run, strides and starts;
//! - network, time between accesses, slow and fast processes and devices, and processors that are taken away for a
//!   while;
//! - whether the processes of a program wait for each other before each access.
//!
//! The same seed gives the same run.
use super::detect::{Look, looks};
use super::features::{MIN_WINDOW, WINDOW};
use super::pattern::{AccessPattern, Order};
use penstock_base::Random;
use penstock_base::{Nanos, Op};
use penstock_trace::{Event, Kind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Number of data servers of a generated run, unless given: one of these.
const SERVERS: [u64; 4] = [1, 2, 4, 8];
/// Stripe unit of a generated run, bytes.
pub(crate) const UNIT: u64 = 64 << 10;

/// Bytes that a server accepts of a request at a time; the rest arrives when they are served, as in data servers.
const SLICE: u64 = 256 << 10;

/// One case of the cross-product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// The operation of all requests.
    pub op: Op,
    /// Each process has a file of its own.
    pub many_files: bool,
    /// How a process accesses its file.
    pub pattern: AccessPattern,
    /// Processes of each program.
    pub processes: u32,
    /// Programs that run at the same time, each on files of its own.
    pub programs: u32,
}

impl Scenario {
    /// The source's cross-product of 96 cases, and random accesses in place of strided ones: 144 in all.
    pub fn all() -> impl Iterator<Item = Scenario> {
        let ops = [Op::Read, Op::Write].into_iter();
        ops.flat_map(|op| [false, true].map(|many_files| (op, many_files)))
            .flat_map(|(op, files)| AccessPattern::ALL.map(|pattern| (op, files, pattern)))
            .flat_map(|(op, files, pattern)| [8, 16, 32].map(|p| (op, files, pattern, p)))
            .flat_map(|(op, many_files, pattern, processes)| {
                [1, 4].map(|programs| Scenario {
                    op,
                    many_files,
                    pattern,
                    processes,
                    programs,
                })
            })
    }
}

/// A generated run.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// The case.
    pub scenario: Scenario,
    /// Stripe unit, bytes.
    pub unit: u64,
    /// What each data server saw, in the order of arrival.
    pub servers: Vec<Vec<Event>>,
}

/// A device and the network to it; times in nanoseconds.
struct Hardware {
    network: f64,
    setup: f64,
    seek: f64,
    per_byte: f64,
    think: f64,
    /// How often, and how long, a process loses its processor between two accesses.
    stalls: f64,
    stall: f64,
    /// Slices of a request that a server has at once.
    in_flight: u64,
}

impl Hardware {
    fn random(random: &mut Random) -> Hardware {
        let setup = random.magnitude(20e3, 500e3);
        Hardware {
            network: random.magnitude(10e3, 200e3),
            setup,
            // From flash, where seeks cost nothing, to disks.
            seek: setup * random.between(0.0, 20.0),
            per_byte: 1e9 / random.magnitude(50e6, 2e9),
            think: random.magnitude(1e3, 1e6),
            stalls: random.pick(&[0.0, 0.01, 0.05]),
            stall: random.magnitude(1e6, 10e6),
            in_flight: random.pick(&[1, 1, 2, 4]),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Server {
    free: f64,
    file: u64,
    end: u64,
}

/// The state of a process.
struct Process {
    file: u64,
    program: u64,
    base: u64,
    stride: u64,
    /// Where its accesses begin, for random patterns.
    places: Vec<u64>,
    size: u64,
    done: u64,
    total: u64,
    /// Its time between accesses, relative to the others'.
    slow: f64,
    /// Chains of slices of the current access that have not ended, and when the last of the others ended.
    waits_for: u32,
    answered: f64,
}

/// An event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A process makes its next access.
    Access(usize),
    /// A slice of a process's request reaches a server: the first one of `low..high` of the file's object.
    Slice {
        process: usize,
        server: usize,
        low: u64,
        high: u64,
    },
}

/// Events by time; equal times in the order in which they were added.
#[derive(Default)]
struct Agenda {
    steps: BinaryHeap<Reverse<(Nanos, u64, Step)>>,
    planned: u64,
}

impl Agenda {
    fn plan(&mut self, at: f64, step: Step) {
        self.planned += 1;
        self.steps.push(Reverse((at as Nanos, self.planned, step)));
    }

    fn next(&mut self) -> Option<(Nanos, Step)> {
        self.steps.pop().map(|Reverse((at, _, step))| (at, step))
    }
}

/// A program whose processes wait for each other before each access.
#[derive(Clone, Copy)]
struct Barrier {
    processes: u32,
    arrived: u32,
    last: f64,
    /// How far apart the processes leave it, nanoseconds; at 0 they leave in the order of their ranks.
    skew: f64,
}

fn program(scenario: &Scenario, number: u64, servers: u64, random: &mut Random) -> Vec<Process> {
    let processes = u64::from(scenario.processes);
    let small = scenario.pattern.is_small() == Some(true);
    let kib = 1024;
    let size = match (small, random.bits() % 4) {
        // One in four programs uses sizes that are no powers of two.
        (true, 0) => random.between(2048.0, UNIT as f64 - 1.0) as u64,
        (true, _) => random.pick(&[4, 8, 12, 16, 24, 32, 40, 48]) * kib,
        (false, 0) => random.between((servers * UNIT) as f64, 4e6) as u64,
        (false, _) => {
            random
                .pick(&[256, 320, 512, 1024, 2048, 4096])
                .max(servers * UNIT / kib)
                * kib
        }
    };
    // A file of one process fills windows only in long runs.
    let total = if small {
        random.magnitude(128.0, 2048.0)
    } else {
        random.magnitude(24.0, 384.0)
    } as u64;
    let gap = random.pick(&[2, 3, 4, 8, 16, 32]);
    let uneven = random.between(1.0, 4.0);
    let is_random = scenario.pattern.order() == Order::Random;
    let anywhere = is_random.then(|| Anywhere::drawn(size, random));
    let mut shared = match &anywhere {
        Some(anywhere) if !scenario.many_files => anywhere.places(total * processes, random),
        _ => Vec::new(),
    };
    (0..processes)
        .map(|rank| {
            let contiguous = scenario.pattern.order() == Order::Contiguous;
            let (base, stride) = match (contiguous, scenario.many_files) {
                (true, true) => (0, size),
                (true, false) => (rank * total * size, size),
                (false, true) => (0, gap * size),
                (false, false) => (rank * size, processes * size),
            };
            let places = match &anywhere {
                Some(anywhere) if scenario.many_files => anywhere.places(total, random),
                _ => shared.split_off(shared.len().saturating_sub(total as usize)),
            };
            let own = if scenario.many_files { rank } else { 0 };
            Process {
                file: number * 1000 + own + 1,
                program: number + 1,
                base,
                stride,
                places,
                size,
                done: 0,
                total,
                slow: random.magnitude(1.0, uneven),
                waits_for: 0,
                answered: 0.0,
            }
        })
        .collect()
}

/// The choice of places in a program with random accesses.
struct Anywhere {
    size: u64,
    /// Number of places in the file per access.
    spread: f64,
    /// Places are multiples of this, in bytes.
    grain: u64,
    /// Each record of the file once, in random order.
    once: bool,
}

impl Anywhere {
    fn drawn(size: u64, random: &mut Random) -> Anywhere {
        let grain = random.pick(&[size, size, 4096, 1]);
        let once = random.bits().is_multiple_of(3);
        Anywhere {
            size,
            spread: random.magnitude(if once { 1.0 } else { 0.25 }, 64.0),
            grain: if once { size } else { grain },
            once,
        }
    }

    fn places(&self, accesses: u64, random: &mut Random) -> Vec<u64> {
        let records = ((accesses as f64 * self.spread) as u64).max(accesses.min(16));
        let last = records * self.size / self.grain;
        if !self.once {
            let place = |_| random.bits() % last * self.grain;
            return (0..accesses).map(place).collect();
        }
        // The beginning of a random permutation of all records.
        let mut moved: BTreeMap<u64, u64> = BTreeMap::new();
        (0..accesses)
            .map(|i| {
                let other = i + random.bits() % (records - i);
                let here = moved.get(&i).copied().unwrap_or(i);
                let there = moved.insert(other, here).unwrap_or(other);
                there * self.size
            })
            .collect()
    }
}

/// Runs a case on the given number of data servers, or on a number drawn from the seed.
#[expect(
    clippy::too_many_lines,
    reason = "the loop of one small simulation over state of its own"
)]
pub fn generate(scenario: &Scenario, seed: u64, servers: Option<u64>) -> Labelled {
    let mut random = Random::new(seed);
    let hardware = Hardware::random(&mut random);
    let drawn = random.pick(&SERVERS);
    let striped_over = servers.map_or(drawn, |n| n.max(1));
    let mut processes: Vec<Process> = Vec::new();
    let mut starts = Vec::new();
    let mut barriers: Vec<Option<Barrier>> = Vec::new();
    for number in 0..u64::from(scenario.programs) {
        let begin = number as f64 * random.between(0.0, 5e6);
        barriers.push(random.bits().is_multiple_of(3).then_some(Barrier {
            processes: scenario.processes,
            arrived: 0,
            last: 0.0,
            skew: random.pick(&[0.0, 5e3, 50e3]),
        }));
        for process in program(scenario, number, striped_over, &mut random) {
            processes.push(process);
            starts.push(begin + random.exponential(300e3));
        }
    }
    let mut servers = vec![Server::default(); striped_over as usize];
    let mut seen: Vec<Vec<Event>> = vec![Vec::new(); striped_over as usize];
    let mut agenda = Agenda::default();
    for (i, start) in starts.into_iter().enumerate() {
        agenda.plan(start, Step::Access(i));
    }
    let mut request = 0;
    while let Some((now, step)) = agenda.next() {
        let (i, server, low, high) = match step {
            Step::Access(i) => {
                let process = &mut processes[i];
                let place = process.places.get(process.done as usize).copied();
                let offset = place.unwrap_or(process.base + process.done * process.stride);
                process.answered = 0.0;
                for (server, (low, high)) in parts(offset, process.size, striped_over).enumerate() {
                    let way = hardware.network + random.exponential(hardware.network / 4.0);
                    let begins = (low..high).step_by(SLICE as usize);
                    for low in begins.take(hardware.in_flight as usize) {
                        process.waits_for += 1;
                        let slice = Step::Slice {
                            process: i,
                            server,
                            low,
                            high,
                        };
                        agenda.plan(now as f64 + way, slice);
                    }
                }
                continue;
            }
            Step::Slice {
                process,
                server,
                low,
                high,
            } => (process, server, low, high),
        };
        let process = &mut processes[i];
        let end = high.min(low + SLICE);
        request += 1;
        seen[server].push(Event {
            at: now,
            request,
            kind: Kind::Arrival,
            op: scenario.op,
            file: process.file,
            offset: low,
            bytes: end - low,
            program: process.program,
            rank: i as u32 % scenario.processes,
            mpi_call: 0,
            client_call: 0,
        });
        let state = &mut servers[server];
        let moves = state.file != process.file || state.end != low;
        let service = hardware.setup
            + if moves { hardware.seek } else { 0.0 }
            + (end - low) as f64 * hardware.per_byte;
        state.free = state.free.max(now as f64) + service * random.between(0.8, 1.2);
        state.file = process.file;
        state.end = end;
        let next = low + hardware.in_flight * SLICE;
        if next < high {
            let rest = Step::Slice {
                process: i,
                server,
                low: next,
                high,
            };
            agenda.plan(state.free, rest);
            continue;
        }
        process.answered = process.answered.max(state.free + hardware.network);
        process.waits_for -= 1;
        if process.waits_for > 0 {
            continue;
        }
        process.done += 1;
        if process.done == process.total {
            continue;
        }
        let mut ready = process.answered + random.exponential(hardware.think) * process.slow;
        if random.unit() < hardware.stalls {
            ready += random.exponential(hardware.stall);
        }
        match &mut barriers[process.program as usize - 1] {
            None => agenda.plan(ready, Step::Access(i)),
            Some(barrier) => {
                barrier.arrived += 1;
                barrier.last = barrier.last.max(ready);
                if barrier.arrived == barrier.processes {
                    barrier.arrived = 0;
                    let first = i / barrier.processes as usize * barrier.processes as usize;
                    for member in first..first + barrier.processes as usize {
                        let leaves = barrier.last + random.exponential(barrier.skew);
                        agenda.plan(leaves, Step::Access(member));
                    }
                }
            }
        }
    }
    Labelled {
        scenario: *scenario,
        unit: UNIT,
        servers: seen,
    }
}

/// A window of a generated run, as the detection sees it.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// The data server.
    pub server: usize,
    /// The window and its features.
    pub look: Look,
}

impl Labelled {
    /// At most `most` random windows of this run for training: windows of the whole run, and incomplete ones of its
    /// beginning.
    pub fn examples(&self, seed: u64, most: usize) -> Vec<Example> {
        let mut random = Random::new(seed);
        let mut examples = Vec::new();
        for (server, events) in self.servers.iter().enumerate() {
            let files: BTreeSet<u64> = events.iter().map(|e| e.file).collect();
            let each = random.between(MIN_WINDOW as f64, WINDOW as f64);
            let begun = events.len().min((files.len() as f64 * each) as usize);
            let looks = [looks(events, self.unit), looks(&events[..begun], self.unit)];
            examples.extend(
                looks
                    .into_iter()
                    .flatten()
                    .map(|look| Example { server, look }),
            );
        }
        for i in 0..examples.len().min(most) {
            let other = i + (random.bits() % (examples.len() - i) as u64) as usize;
            examples.swap(i, other);
        }
        examples.truncate(most);
        examples
    }
}

/// The part of a file range on each server, as a range of its object. Contiguous ranges stay contiguous.
fn parts(offset: u64, size: u64, servers: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + size;
    (0..servers).map(move |server| {
        (
            object(offset, server, servers),
            object(end, server, servers),
        )
    })
}

/// Bytes on a server of the first `end` bytes of a file.
fn object(end: u64, server: u64, servers: u64) -> u64 {
    let stripe = servers * UNIT;
    let within = (end % stripe).saturating_sub(server * UNIT).min(UNIT);
    end / stripe * UNIT + within
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_run_again() {
        let scenario = Scenario::all().nth(17).unwrap();
        let (a, b) = (generate(&scenario, 1, None), generate(&scenario, 1, None));
        assert_eq!(a.servers, b.servers);
        assert_ne!(a.servers, generate(&scenario, 2, None).servers);
    }

    #[test]
    fn servers_see_each_byte_once() {
        assert_eq!(Scenario::all().count(), 144);
        for (i, scenario) in Scenario::all().enumerate() {
            // Random accesses hit some bytes twice and others never.
            if scenario.processes > 8 || scenario.pattern.order() == Order::Random {
                continue;
            }
            let run = generate(&scenario, i as u64, None);
            for events in &run.servers {
                assert!(events.is_sorted_by_key(|e| e.at));
                let mut ranges: Vec<_> =
                    events.iter().map(|e| (e.file, e.offset, e.end())).collect();
                ranges.sort_unstable();
                assert!(
                    ranges
                        .windows(2)
                        .all(|w| w[0].0 < w[1].0 || w[0].2 <= w[1].1)
                );
            }
            // A stride of whole stripes may reach one server only.
            let total: usize = run.servers.iter().map(Vec::len).sum();
            assert!(total >= 8 * 24, "{scenario:?} {total}");
            let files: BTreeSet<_> = run.servers.iter().flatten().map(|e| e.file).collect();
            let per_program = if scenario.many_files { 8 } else { 1 };
            assert_eq!(files.len(), per_program * scenario.programs as usize);
        }
    }

    #[test]
    fn striping_is_that_of_the_file_system() {
        let parts = |offset, size| parts(offset, size, 4).collect::<Vec<_>>();
        assert_eq!(parts(0, 64 << 10)[0], (0, 64 << 10));
        assert_eq!(parts(100 << 10, 256 << 10)[0], (64 << 10, 128 << 10));
        assert_eq!(parts(100 << 10, 256 << 10)[1], (36 << 10, 100 << 10));
        let total: u64 = parts(12345, 999_999).iter().map(|(a, b)| b - a).sum();
        assert_eq!(total, 999_999);
    }
}
