//! A data server on virtual time: programs as in the source, the scheduler, the modelled device.
//!
//! Programs read or write in a closed loop (TS section 3.2.2): 16 KiB or 256 KiB requests, contiguous portions or 1-D
//! strided in one file per program, or a file per process, 8 or 16 processes, 1 or 4 programs. What clients and network add is
//! random. Two set-ups ([`Setup`]):
//!
//! *The source's*: files are striped over four servers in units of 32 KiB, and reach a server as requests of 8 KiB. Server 0 is
//! played. The other three are taken to be as busy: a request there takes as long as one of the last ones did here, drawn at
//! random, and a large request, of which each server has a part, is done when the slowest is.
//!
//! *Ours*: one server, which gets requests as programs make them, as `experiments/scheduling/real.py` runs it in real time.

use penstock_device as device;
use penstock_device::{Allocation, AllocationOptions, Device, Model};
use penstock_sched::{
    Algorithm, Decision, Nanos, Next, Op, Options, Request, Scheduler, Selector, SelectorOptions,
    Situation,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Network and client between an answer and the next request: on average, exponentially distributed.
const THINK: Nanos = 150_000;
/// Processes begin at random within this time.
const START: u64 = 10_000_000;
/// How many times are kept to draw from.
const TIMES: usize = 256;
const SECOND: Nanos = 1_000_000_000;

/// Devices, and their sequential / random ratios at 8 KiB for write and read (TS table 3.4); memory in GB.
pub const DEVICES: [(&str, f64, f64, u64); 4] = [
    ("pastel", 21.29, 38.91, 8),
    ("graphene", 15.12, 40.68, 16),
    ("suno", 8.17, 25.46, 32),
    ("edel", 0.66, 2.37, 24),
];

/// Servers, and how requests reach them and their devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    servers: u64,
    /// Bytes of a file on one server before the next one.
    unit: u64,
    /// Bytes of a request at most, as it reaches a server.
    chunk: u64,
    /// The block queue sees each client's requests as those of a process of its own; otherwise all come from one.
    threads: bool,
    /// Disks' block queue.
    queue: &'static str,
    starvation_bound: Option<Nanos>,
}

impl Setup {
    /// As in the source.
    pub const SOURCE: Setup = Setup {
        servers: 4,
        unit: 32 << 10,
        chunk: 8 << 10,
        threads: false,
        queue: "cfq",
        starvation_bound: None,
    };
    /// One of Penstock's data servers, alone. Its threads each have a queue of their own under CFQ, which lets the device wait for
    /// them one after the other, whatever the scheduler has decided; so disks have the queue that present kernels give them.
    pub const ALONE: Setup = Setup {
        servers: 1,
        unit: 64 << 10,
        chunk: 256 << 10,
        threads: true,
        queue: "deadline",
        starvation_bound: Some(SECOND / 2),
    };

    /// One of four of them.
    pub const FOUR: Setup = Setup {
        servers: 4,
        chunk: 64 << 10,
        ..Setup::ALONE
    };

    /// The same with another block queue above disks.
    pub fn with(self, queue: &'static str) -> Setup {
        Setup { queue, ..self }
    }
}

/// One situation of the source's cross-product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    pub setup: Setup,
    /// Index into [`DEVICES`].
    pub device: usize,
    pub op: Op,
    pub programs: u64,
    /// A file per process.
    pub own: bool,
    pub contiguous: bool,
    pub large: bool,
    pub processes: u64,
}

impl Case {
    /// All 192.
    pub fn all(setup: Setup) -> Vec<Case> {
        let mut all = Vec::new();
        for device in 0..DEVICES.len() {
            for op in [Op::Write, Op::Read] {
                for programs in [1, 4] {
                    for (own, contiguous) in [(false, true), (false, false), (true, true)] {
                        for large in [false, true] {
                            for processes in [8, 16] {
                                all.push(Case {
                                    setup,
                                    device,
                                    op,
                                    programs,
                                    own,
                                    contiguous,
                                    large,
                                    processes,
                                });
                            }
                        }
                    }
                }
            }
        }
        all
    }

    /// What a tree sees of it.
    pub fn situation(&self) -> Situation {
        let (_, write, read, memory) = DEVICES[self.device];
        let megabytes = match (self.own, self.programs) {
            (true, 1) => 1024,
            (true, _) => 512,
            _ => 64 * self.processes,
        };
        Situation {
            op: self.op,
            files: (self.programs * if self.own { self.processes } else { 1 }) as u32,
            bytes_per_file: megabytes << 20,
            contiguous: self.contiguous,
            large: self.large,
            ratio: if self.op == Op::Write { write } else { read },
            memory: memory << 30,
            processes: (self.programs * self.processes) as u32,
            request_bytes: self.setup.chunk.min(self.size()),
            servers: self.setup.servers as u32,
        }
    }

    pub fn name(&self) -> String {
        format!(
            "{} {} x{} {} {} {} {}",
            DEVICES[self.device].0,
            if self.op == Op::Write {
                "write"
            } else {
                "read"
            },
            self.programs,
            if self.own { "N-N" } else { "N-1" },
            if self.contiguous { "contig" } else { "strided" },
            if self.large { "large" } else { "small" },
            self.processes
        )
    }

    fn size(&self) -> u64 {
        if self.large { 256 << 10 } else { 16 << 10 }
    }

    /// File and first byte of request `i` of process `p` of a program.
    fn place(&self, program: u64, p: u64, i: u64) -> (u64, u64) {
        let size = self.size();
        let portion = if self.own { 512 << 20 } else { 64 << 20 };
        let i = i % (portion / size);
        match (self.own, self.contiguous) {
            (true, _) => (program * self.processes + p, i * size),
            (false, true) => (program, p * portion + i * size),
            (false, false) => (program, (i * self.processes + p) * size),
        }
    }
}

/// Who decides.
#[derive(Debug, Clone)]
pub enum Policy {
    Fixed(Algorithm),
    Online(SelectorOptions),
}

/// What a run gave.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Bytes per second after the first second.
    pub rate: f64,
    /// Changes of algorithm.
    pub switches: u64,
}

struct Process {
    program: u64,
    rank: u64,
    next: u64,
    waiting: usize,
    began: Nanos,
}

struct Run<'a> {
    case: &'a Case,
    scheduler: Scheduler,
    selector: Option<Selector>,
    device: Box<dyn Device>,
    allocation: Allocation,
    processes: Vec<Process>,
    wake: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Requests under way: process and arrival.
    requests: BTreeMap<u64, (usize, Nanos)>,
    next_request: u64,
    /// Device requests: the virtual request they belong to.
    at_device: BTreeMap<u64, u64>,
    /// Virtual requests being served: device requests left.
    serving: BTreeMap<u64, usize>,
    next_device: u64,
    bytes: u64,
    /// How long requests took here lately.
    times: VecDeque<Nanos>,
    random: Random,
}

/// Pseudo-random numbers in (0, 1].
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// What the network and the client take this time.
    fn think(&mut self) -> Nanos {
        (-self.next().ln() * THINK as f64) as Nanos
    }
}

impl Run<'_> {
    /// How long a request takes at another server.
    fn elsewhere(&mut self) -> Nanos {
        let at = (self.random.next() * self.times.len() as f64) as usize;
        let last = self.times.len().saturating_sub(1);
        self.times.get(at.min(last)).copied().unwrap_or(THINK)
    }

    /// The process's next request goes out; what falls on other servers takes its time there.
    fn issue(&mut self, now: Nanos, p: usize) {
        let (case, size, setup) = (*self.case, self.case.size(), self.case.setup);
        let process = &mut self.processes[p];
        let (file, offset) = case.place(process.program, process.rank, process.next);
        process.next += 1;
        process.began = now;
        let mut chunks = Vec::new();
        let mut at = offset;
        let chunk = setup.chunk.min(size);
        while at < offset + size {
            let unit = at / setup.unit;
            if unit.is_multiple_of(setup.servers) {
                chunks.push(unit / setup.servers * setup.unit + at % setup.unit);
            }
            at += chunk;
        }
        if chunks.is_empty() {
            let away = self.elsewhere();
            let think = self.random.think();
            self.wake.push(Reverse((now + think + away, p)));
            return;
        }
        process.waiting = chunks.len();
        let program = process.program;
        for offset in chunks {
            let id = self.next_request;
            self.next_request += 1;
            self.requests.insert(id, (p, now));
            let request = Request {
                id,
                file,
                op: case.op,
                offset,
                bytes: chunk,
                program,
                process: process.rank as u32,
            };
            if self.scheduler.add(now, request).is_ok()
                && let Some(s) = &mut self.selector
            {
                s.arrived(now);
            }
        }
    }

    fn dispatch(&mut self, now: Nanos, workers: usize) -> Option<Nanos> {
        while self.serving.len() < workers {
            let v = match self.scheduler.next(now) {
                Next::Dispatch(v) => v,
                Next::WaitUntil(t) => return Some(t),
                Next::Idle => return None,
            };
            let mut ranges = Vec::new();
            self.allocation
                .map(v.file, v.offset, v.end - v.offset, |a, n| {
                    ranges.push((a, n))
                });
            // The thread of the first part serves all of them.
            let first = self.scheduler.parts(v.id).next();
            let process = match first {
                Some(part) if self.case.setup.threads => (part.program as u32) << 16 | part.process,
                _ => 0,
            };
            self.serving.insert(v.id, ranges.len());
            for (address, bytes) in ranges {
                let id = self.next_device;
                self.next_device += 1;
                self.at_device.insert(id, v.id);
                let request = device::Request {
                    id,
                    op: v.op,
                    address,
                    bytes,
                    process,
                };
                self.device.submit(now, request);
            }
        }
        None
    }

    fn served(&mut self, now: Nanos, id: u64, from: Nanos) {
        let Some(v) = self.at_device.remove(&id) else {
            return;
        };
        let left = self.serving.entry(v).or_insert(1);
        *left -= 1;
        if *left > 0 {
            return;
        }
        self.serving.remove(&v);
        let parts: Vec<Request> = self.scheduler.parts(v).collect();
        let known = self.scheduler.completed(now, v).is_ok();
        assert!(known, "the scheduler forgot a virtual request");
        for part in parts {
            let Some((p, arrived)) = self.requests.remove(&part.id) else {
                continue;
            };
            if now >= from {
                self.bytes += part.bytes;
            }
            if let Some(s) = &mut self.selector {
                s.completed(now, part.program, part.bytes, now - arrived);
            }
            let process = &mut self.processes[p];
            process.waiting -= 1;
            if process.waiting == 0 {
                let began = process.began;
                if self.times.len() == TIMES {
                    self.times.pop_front();
                }
                self.times.push_back(now - began);
                let others = match self.case.large {
                    true => self.case.setup.servers - 1,
                    false => 0,
                };
                let slowest = (0..others).map(|_| self.elsewhere()).max();
                let done = now.max(began + slowest.unwrap_or(0));
                let think = self.random.think();
                self.wake.push(Reverse((done + think, p)));
            }
        }
    }
}

/// Plays `seconds` of a case with `workers` requests at the device at once; rates count from the first second on.
/// The seed is that of the clients' times.
pub fn play(case: &Case, policy: &Policy, workers: usize, seconds: u64, seed: u64) -> Outcome {
    run(case, policy, workers, seconds, seed, |_| {})
}

/// What the online selector decides in such a run, and why.
pub fn decisions(
    case: &Case,
    options: SelectorOptions,
    workers: usize,
    seconds: u64,
    seed: u64,
) -> Vec<String> {
    let mut all = Vec::new();
    let policy = Policy::Online(options);
    run(case, &policy, workers, seconds, seed, |d| {
        let mut line = format!("{:>6} ms {:<7}", d.at / 1_000_000, d.algorithm.name());
        for (algorithm, score) in &d.scores {
            line += &format!(" {algorithm} {:.2}", score / 1e6);
        }
        all.push(format!("{line}: {}", d.reason));
    });
    all
}

fn run(
    case: &Case,
    policy: &Policy,
    workers: usize,
    seconds: u64,
    seed: u64,
    mut seen: impl FnMut(&Decision),
) -> Outcome {
    let setup = case.setup;
    let (name, flash) = (DEVICES[case.device].0, DEVICES[case.device].0 == "edel");
    let text = match flash {
        true => name.to_owned(),
        false => format!("{name},queue={}", setup.queue),
    };
    let model = Model::parse(&text).expect("a preset");
    let device = model.build();
    let mut allocation = Allocation::new(AllocationOptions::default(), device.capacity());
    let files = case.situation().files as u64;
    let portion = if case.own {
        512 << 20
    } else {
        case.processes * (64 << 20)
    };
    for file in 0..files {
        allocation.map(file, 0, portion / setup.servers, |_, _| {});
    }
    let (algorithm, selector) = match policy {
        Policy::Fixed(algorithm) => (*algorithm, None),
        Policy::Online(options) => {
            let s = Selector::new(0, options.clone(), Some(case.situation()));
            (s.algorithm(), Some(s))
        }
    };
    let options = Options {
        algorithm,
        starvation_bound: setup.starvation_bound,
        ..Options::default()
    };
    let processes: Vec<Process> = (0..case.programs * case.processes)
        .map(|i| Process {
            program: i / case.processes,
            rank: i % case.processes,
            next: 0,
            waiting: 0,
            began: 0,
        })
        .collect();
    let mut random = Random::new(seed);
    let mut run = Run {
        case,
        scheduler: Scheduler::new(options).expect("default options"),
        selector,
        device,
        allocation,
        wake: (0..processes.len())
            .map(|p| Reverse(((random.next() * START as f64) as Nanos, p)))
            .collect(),
        processes,
        requests: BTreeMap::new(),
        next_request: 0,
        at_device: BTreeMap::new(),
        serving: BTreeMap::new(),
        next_device: 0,
        bytes: 0,
        times: VecDeque::new(),
        random,
    };
    let end = seconds * SECOND;
    let mut timer: Option<Nanos> = None;
    let mut done = Vec::new();
    loop {
        let next = [
            run.wake.peek().map(|Reverse((t, _))| *t),
            run.device.wake(),
            timer,
        ];
        let Some(now) = next.into_iter().flatten().min().filter(|t| *t < end) else {
            break;
        };
        done.clear();
        run.device.advance(now, &mut done);
        for completion in std::mem::take(&mut done) {
            run.served(now, completion.id, SECOND);
        }
        while let Some(Reverse((t, p))) = run.wake.peek().copied()
            && t <= now
        {
            run.wake.pop();
            run.issue(now, p);
        }
        if let Some(decision) = run.selector.as_mut().and_then(|s| s.decide(now)) {
            seen(&decision);
            let switched = run.scheduler.switch(now, decision.algorithm).is_ok();
            assert!(switched, "the scheduler refused {}", decision.algorithm);
        }
        timer = run.dispatch(now, workers);
    }
    Outcome {
        rate: run.bytes as f64 / (seconds - 1) as f64,
        switches: run.selector.map_or(0, |s| s.switches()),
    }
}
