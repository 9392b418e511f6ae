//! Decisions are those recorded in `data/streams.txt`, whatever containers the implementation uses.
//!
//! A stream is the scheduler's input and output (`journal`): each request, each choice with its parts in order, each
//! completion. Every algorithm runs every workload. For each stream the file has the numbers of requests and decisions,
//! and a hash of the stream's lines. A change that is meant to decide differently records the streams again: the
//! failing test prints the new content.
use penstock_sched::journal::{Call, Journal};
use penstock_sched::{Algorithm, Groups, Nanos, Next, Op, Options, Request, Scheduler};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

const RECORDED: &str = include_str!("data/streams.txt");

/// The same numbers on every run (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Hash of the lines so far (FNV-1a).
#[derive(Debug)]
pub struct Lines(Mutex<u64>);

impl Default for Lines {
    fn default() -> Lines {
        Lines(Mutex::new(0xcbf2_9ce4_8422_2325))
    }
}

impl Lines {
    pub fn hash(&self) -> u64 {
        *self.0.lock().unwrap()
    }

    pub fn add(&self, line: &str) {
        let mut sum = self.0.lock().unwrap();
        for byte in line.bytes().chain([b'\n']) {
            *sum = (*sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Journal for Lines {
    fn call(&self, call: Call) {
        self.add(&call.to_string());
    }
}

#[derive(Clone)]
struct Workload {
    name: &'static str,
    files: u64,
    requests: u64,
    /// Requests begin at so many places of a file, 4 KiB apart; 0: at or near the end of the file's last one.
    places: u64,
    /// Largest request.
    bytes: u64,
    /// Most arrivals in a burst, and time between bursts.
    burst: u64,
    gap: Nanos,
    /// Most choices after a burst, and virtual requests served at once.
    choices: u64,
    depth: usize,
    /// Another algorithm, or other groups, after so many bursts; 0: never.
    changes: u64,
    options: Options,
}

fn workloads() -> Vec<Workload> {
    let usual = Workload {
        name: "one-file",
        files: 1,
        requests: 12_000,
        places: 3000,
        bytes: 16 << 10,
        burst: 40,
        gap: 2_000,
        choices: 30,
        depth: 4,
        changes: 0,
        options: Options {
            twins_window: 50_000,
            sw_window: 1_000_000,
            ..Options::default()
        },
    };
    let with = |options: fn(&mut Options)| {
        let mut all = usual.options.clone();
        options(&mut all);
        all
    };
    vec![
        usual.clone(),
        Workload {
            name: "one-file-deep",
            requests: 30_000,
            places: 1 << 20,
            burst: 15_000,
            choices: 15_000,
            ..usual.clone()
        },
        Workload {
            name: "streams-of-sixteen-files",
            files: 16,
            places: 0,
            bytes: 256 << 10,
            gap: 100_000,
            ..usual.clone()
        },
        Workload {
            name: "sixteen-files-bounded",
            files: 16,
            places: 400,
            bytes: 1 << 20,
            options: with(|o| {
                o.starvation_bound = Some(300_000);
                o.aggregation = Some(3);
                o.aggregation_bytes = 64 << 10;
                o.quantum = 4096;
                o.weights = vec![(0, 3), (2, 7)];
            }),
            ..usual.clone()
        },
        Workload {
            name: "conflicts-in-order",
            files: 3,
            places: 300,
            burst: 60,
            depth: 8,
            options: with(|o| o.order_conflicts = true),
            ..usual.clone()
        },
        Workload {
            name: "more-files-than-are-kept",
            files: 900,
            places: 50,
            options: with(|o| {
                o.file_limit = 40;
                o.queue_limit = 150;
            }),
            ..usual.clone()
        },
        Workload {
            name: "ten-thousand-files",
            files: 10_000,
            requests: 40_000,
            places: 30,
            burst: 12_000,
            choices: 9_000,
            ..usual.clone()
        },
        Workload {
            name: "changes",
            files: 6,
            places: 500,
            changes: 7,
            options: with(|o| o.shift_wait = 20_000),
            ..usual.clone()
        },
        Workload {
            name: "changes-with-conflicts-in-order",
            files: 6,
            places: 500,
            changes: 5,
            depth: 7,
            options: with(|o| o.order_conflicts = true),
            ..usual
        },
    ]
}

struct Player {
    work: Workload,
    scheduler: Scheduler,
    random: Random,
    now: Nanos,
    id: u64,
    serving: Vec<u64>,
    /// Where the last request of a file has ended.
    ends: Vec<u64>,
    /// First parts for which the prediction was asked.
    asked: BTreeSet<u64>,
}

impl Player {
    fn arrive(&mut self) {
        let (work, random) = (&self.work, &mut self.random);
        let file = random.below(work.files);
        let bytes = match random.below(4) {
            0 => random.below(work.bytes) + 1,
            _ => 4096,
        };
        let end = &mut self.ends[file as usize];
        let offset = match work.places {
            // Sometimes one is left out, or comes late.
            0 => (*end + [0, 0, 0, 0, 0, 4096, 8192][random.below(7) as usize])
                .saturating_sub([0, 0, 0, 0, 20_480][random.below(5) as usize]),
            places => random.below(places) * 4096,
        };
        *end = offset + bytes;
        let request = Request {
            id: self.id,
            file,
            op: [Op::Read, Op::Write][random.below(5) as usize / 3],
            offset,
            bytes,
            program: random.below(4),
            process: random.below(9) as u32,
        };
        let spread = [0, 0, 0, 2048][random.below(4) as usize];
        self.id += 1;
        self.now += random.below(work.gap);
        if random.below(50) == 0 {
            let bytes = random.below(1 << 20);
            self.scheduler.predict_more(file, request.op, bytes);
        }
        // A full queue refuses some requests.
        let _ = self
            .scheduler
            .add_spread(self.now, request, offset + bytes + spread);
    }

    /// Returns false if there is nothing to do.
    fn choose(&mut self) -> bool {
        let asked = &mut self.asked;
        let mut company = |_: Nanos, parts: &mut dyn Iterator<Item = u64>| {
            let first = parts.next().unwrap();
            if first.is_multiple_of(9) && asked.insert(first) {
                30_000
            } else {
                0
            }
        };
        match self.scheduler.next_expecting(self.now, &mut company) {
            Next::Dispatch(v) => self.serving.push(v.id),
            Next::WaitUntil(until) if self.random.below(2) == 0 => self.now = until,
            Next::WaitUntil(_) => self.now += 1000,
            Next::Idle => return false,
        }
        true
    }

    fn complete(&mut self) {
        let which = self.random.below(self.serving.len() as u64) as usize;
        let id = self.serving.swap_remove(which);
        self.now += self.random.below(3000);
        self.scheduler.completed(self.now, id).unwrap();
    }

    fn change(&mut self) {
        let algorithm = |random: &mut Random| Algorithm::ALL[random.below(10) as usize];
        let first = algorithm(&mut self.random);
        if self.random.below(3) == 0 {
            self.scheduler.switch(self.now, first).unwrap();
            return;
        }
        let mut groups = Groups::all(first);
        for file in 0..3 {
            let own = algorithm(&mut self.random);
            groups.files.insert((file, Op::Read), own);
            groups.files.insert((file, Op::Write), own);
        }
        self.scheduler.regroup(self.now, groups).unwrap();
    }

    fn play(&mut self) {
        let mut bursts = 0;
        while self.id < self.work.requests {
            for _ in 0..=self.random.below(self.work.burst) {
                self.arrive();
            }
            for _ in 0..=self.random.below(self.work.choices) {
                if self.serving.len() == self.work.depth {
                    self.complete();
                }
                if !self.choose() && !self.serving.is_empty() {
                    self.complete();
                }
            }
            bursts += 1;
            if self.work.changes > 0 && bursts % self.work.changes == 0 {
                self.change();
            }
        }
        while !self.scheduler.is_empty() {
            if !self.choose() || self.serving.len() == self.work.depth {
                self.complete();
            }
        }
    }
}

/// A line of the file.
fn stream(work: &Workload, algorithm: Algorithm) -> String {
    let options = Options {
        algorithm,
        ..work.options.clone()
    };
    let lines = Arc::new(Lines::default());
    let mut player = Player {
        scheduler: Scheduler::new(options).unwrap(),
        random: Random(0x9e37_79b9_7f4a_7c15),
        now: 0,
        id: 0,
        serving: Vec::new(),
        ends: vec![1 << 20; work.files as usize],
        asked: BTreeSet::new(),
        work: work.clone(),
    };
    player.scheduler.keep(Some(lines.clone()));
    player.play();
    let s = player.scheduler.statistics();
    assert_eq!((s.queued, s.serving, s.arrived), (0, 0, s.completed));
    lines.add(&format!(
        "{:?} {} {} {} {}",
        s.aggregations, s.shift_waits, s.aggregation_waits, s.predicted_waits, s.conflicts
    ));
    let hash = lines.hash();
    format!(
        "{} {algorithm} {} {} {hash:016x}",
        work.name, s.completed, s.decisions
    )
}

#[test]
fn decisions_are_the_ones_recorded() {
    let mut found = String::new();
    for work in workloads() {
        for algorithm in Algorithm::ALL {
            writeln!(found, "{}", stream(&work, algorithm)).unwrap();
        }
    }
    let recorded: String = RECORDED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    let others: Vec<&str> = found
        .lines()
        .filter(|line| !recorded.lines().any(|known| known == *line))
        .collect();
    assert!(
        found == recorded,
        "decisions have changed: {others:#?}\nIf that is meant, write this into data/streams.txt:\n{found}"
    );
}
