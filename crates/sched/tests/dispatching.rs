//! The dispatcher decides as data servers did when `data/dispatching.txt` was recorded, before it was a separate
//! module.
//!
//! Requests come in bursts and are served for a time that depends on their bytes. The dispatcher is asked again when it
//! wants to be. For each stream the file has the dispatches, a hash of the scheduler's journal, and a hash of what was
//! started when. A change that is meant to decide differently records the streams again: the failing test prints the
//! new content.
use crate::streams::{Lines, Random};
use penstock_sched::journal::{Call, Journal};
use penstock_sched::learn::{Cost, Limits, Predictor};
use penstock_sched::{
    Arrival, Dispatcher, Nanos, Op, Options, Request, ServerInfo, Settings, Verdict, VirtualRequest,
};
use penstock_trace::{Event, Kind};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const RECORDED: &str = include_str!("data/dispatching.txt");
/// Requests of a stream.
const REQUESTS: u64 = 16_000;

struct Stream {
    name: String,
    /// Settings, each with the request from which it holds.
    settings: Vec<(u64, Vec<String>)>,
    predicted: bool,
}

/// The interface under test.
trait Driven {
    fn set(&mut self, now: Nanos, words: &[String]);
    /// Returns the virtual request that is started at once, alone.
    fn arrive(&mut self, now: Nanos, request: Request, end: u64) -> Option<u64>;
    fn done(&mut self, now: Nanos, v: u64);
    /// Time has passed.
    fn poll(&mut self, now: Nanos);
    /// When it wants to be asked again.
    fn wake(&self) -> Option<Nanos>;
    /// Virtual requests that began since the last call: number, bytes, parts.
    fn started(&mut self) -> Vec<(u64, u64, Vec<u64>)>;
}

struct Coming {
    at: Nanos,
    request: Request,
    end: u64,
}

/// Three programs: one shares a file by turns, one has a file per process, one reads at random.
fn arrivals() -> Vec<Coming> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut ends = [0u64; 24];
    let mut at = 0;
    let mut all = Vec::new();
    while (all.len() as u64) < REQUESTS {
        let phase = all.len() as u64 / 4000;
        at += 4_000_000 + random.below(12_000_000);
        for _ in 0..=random.below(140) {
            at += random.below(30_000);
            let process = random.below(8);
            let program = random.below(3) as u32;
            let bytes = [4096, 16 << 10, 256 << 10][((process + phase) % 3) as usize];
            let (file, offset) = match program {
                0 => {
                    let end = &mut ends[0];
                    *end += bytes;
                    (1, *end - bytes)
                }
                1 => {
                    let end = &mut ends[1 + process as usize];
                    *end += bytes * (1 + phase % 2);
                    (10 + process, *end - bytes)
                }
                _ => (30 + phase, random.below(1 << 14) << 12),
            };
            let spread = [0, 0, 0, 8192][random.below(4) as usize];
            let request = Request {
                id: all.len() as u64,
                file,
                op: [Op::Read, Op::Write][((u64::from(program) + phase) % 2) as usize],
                offset,
                bytes,
                program: u64::from(program) + 7,
                process: process as u32,
            };
            let end = offset + bytes + spread;
            all.push(Coming { at, request, end });
        }
    }
    all
}

/// The prediction from a trace of the same program.
fn predictor(arrivals: &[Coming]) -> Predictor {
    let event = |a: &Coming| Event {
        at: a.at,
        request: a.request.id,
        kind: Kind::Arrival,
        op: a.request.op,
        file: a.request.file,
        offset: a.request.offset,
        bytes: a.request.bytes,
        program: a.request.program,
        rank: a.request.process,
        mpi_call: 0,
        client_call: 0,
    };
    let events: Vec<Event> = arrivals.iter().map(event).collect();
    Predictor::new(&events, Cost::default(), Limits::default()).unwrap()
}

fn streams() -> Vec<Stream> {
    let one = |words: &str, predicted: bool| Stream {
        name: words.replace(' ', "+") + if predicted { "+predicted" } else { "" },
        settings: vec![(0, words.split(' ').map(str::to_owned).collect())],
        predicted,
    };
    let mut all: Vec<Stream> = penstock_sched::Algorithm::ALL
        .iter()
        .map(|a| one(&format!("sched={a}"), false))
        .collect();
    all.extend([
        one("sched=noop", true),
        one("sched=to-agg", true),
        one("sched=mlf depth=2", true),
        one("sched=aioli", true),
        one("sched=srtf depth=1", true),
        one("sched=sjf starvation_bound=2000000", false),
        one("sched=to-agg order_conflicts=on", false),
        one("sched=tree", false),
        one("sched=tree ratio=20", false),
        one("sched=tree ratio=38.9:21.3 tree=T2 depth=2", true),
        one("sched=online", false),
        one("sched=online objective=p99 depth=2", false),
        one("sched=online objective=fairness ratio=20", true),
    ]);
    let change = |from: u64, words: &str| (from, words.split(' ').map(str::to_owned).collect());
    all.push(Stream {
        name: "changes".into(),
        settings: vec![
            change(0, "sched=noop"),
            change(1000, "sched=online depth=3"),
            change(5000, "sched=aioli"),
            change(8000, "sched=tree ratio=20"),
            change(11_000, "depth=1"),
            change(13_000, "sched=noop"),
        ],
        predicted: true,
    });
    all
}

/// Plays a stream. `looks`: it is also asked after each event, as by threads that wait. Returns a hash of what was
/// started when, and the number of virtual requests.
fn play(driven: &mut dyn Driven, stream: &Stream, all: &[Coming], looks: bool) -> (u64, u64) {
    let lines = Lines::default();
    let mut ends: BTreeSet<(Nanos, u64)> = BTreeSet::new();
    let mut settings = stream.settings.iter().peekable();
    let (mut now, mut next, mut count, mut free) = (0, 0, 0, 0u64);
    let mut wake = None;
    loop {
        let arrival = all.get(next);
        let times = [arrival.map(|a| a.at), ends.first().map(|e| e.0), wake];
        let Some(time) = times.iter().flatten().min() else {
            break;
        };
        now = now.max(*time);
        let mut asks = false;
        if times[2] == Some(*time) {
            driven.poll(now);
        } else if let (Some((at, v)), true) = (ends.first().copied(), times[1] == Some(*time)) {
            ends.remove(&(at, v));
            driven.done(now, v);
            asks = looks;
        } else if let Some(Coming { request, end, .. }) = arrival {
            if let Some((_, words)) = settings.next_if(|s| s.0 <= request.id) {
                driven.set(now, words);
            }
            next += 1;
            if let Some(v) = driven.arrive(now, *request, *end) {
                lines.add(&format!("{now} {} goes on as {v}", request.id));
            }
            asks = looks;
        }
        if asks {
            driven.poll(now);
        }
        wake = driven.wake().map(|at| at.max(now + 1));
        for (v, bytes, parts) in driven.started() {
            lines.add(&format!("{now} {v} {parts:?}"));
            count += 1;
            // One device: a call and its bytes.
            free = free.max(now) + 60_000 + bytes / 2;
            ends.insert((free, v));
        }
    }
    assert!(ends.is_empty());
    (count, lines.hash())
}

struct Under {
    dispatcher: Dispatcher,
    settings: Settings,
    started: Vec<VirtualRequest>,
}

impl Driven for Under {
    fn set(&mut self, now: Nanos, words: &[String]) {
        self.settings = self.settings.with(words).unwrap();
        self.dispatcher.set(now, &self.settings).unwrap();
        self.dispatcher.poll(now, &mut self.started);
    }

    fn arrive(&mut self, now: Nanos, request: Request, end: u64) -> Option<u64> {
        let arrival = Arrival { request, end };
        let verdict = self.dispatcher.arrive(now, &arrival, &mut self.started);
        match verdict.unwrap() {
            Verdict::Go(v) => Some(v),
            Verdict::Wait => None,
        }
    }

    fn done(&mut self, now: Nanos, v: u64) {
        self.dispatcher.done(now, v, &mut self.started).unwrap();
    }

    fn poll(&mut self, now: Nanos) {
        self.dispatcher.poll(now, &mut self.started);
    }

    fn wake(&self) -> Option<Nanos> {
        self.dispatcher.wake()
    }

    fn started(&mut self) -> Vec<(u64, u64, Vec<u64>)> {
        let parts = |v: u64| self.dispatcher.parts(v).map(|part| part.id).collect();
        self.started.sort_by_key(|v| v.id);
        let started = self.started.drain(..);
        started.map(|v| (v.id, v.bytes, parts(v.id))).collect()
    }
}

const SITE: ServerInfo = ServerInfo {
    server: 0,
    servers: 4,
    unit: 64 << 10,
    memory: 8 << 30,
    threads: u32::MAX,
};

/// The journal without the settings at the start, which were not recorded.
#[derive(Debug, Default)]
struct Kept {
    calls: AtomicU64,
    lines: Lines,
}

impl Journal for Kept {
    fn call(&self, call: Call) {
        if !(1..=2).contains(&self.calls.fetch_add(1, Relaxed)) {
            self.lines.call(call);
        }
    }
}

#[test]
fn a_dispatcher_decides_as_the_servers_did() {
    let all = arrivals();
    let mut found = String::new();
    for stream in streams() {
        let of = |looks: bool| {
            let lines = Arc::new(Kept::default());
            let first = Settings {
                options: Options::default(),
                ..Settings::default()
            };
            let mut dispatcher = Dispatcher::new(0, &first, SITE, Some(lines.clone())).unwrap();
            dispatcher.predict(stream.predicted.then(|| predictor(&all)));
            let mut under = Under {
                dispatcher,
                settings: Settings::default(),
                started: Vec::new(),
            };
            let (count, outcome) = play(&mut under, &stream, &all, looks);
            let s = under.dispatcher.scheduler().statistics();
            assert_eq!((s.queued, s.serving, s.completed), (0, 0, all.len() as u64));
            (count, lines.lines.hash(), outcome)
        };
        let (count, journal, outcome) = of(true);
        writeln!(
            found,
            "{} {count} {journal:016x} {outcome:016x}",
            stream.name
        )
        .unwrap();
        // Asking more often than it wants changes nothing, except that a question moves the turn of groups that wait.
        let (again, _, alike) = of(false);
        if !stream.name.starts_with("sched=online+objective=fairness") {
            assert_eq!((count, outcome), (again, alike), "{}", stream.name);
        }
    }
    let recorded: String = RECORDED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(
        found == recorded,
        "decisions have changed. If that is meant, write this into data/dispatching.txt:\n{found}"
    );
}
