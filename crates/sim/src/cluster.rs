//! A simulated cluster: all state, and the event loop.
//!
//! `ranks` runs the programs, `collective` the collective steps of their ranks, `server` the data servers.
use crate::connection::Connections;
use crate::error::{Error, Result};
use crate::event::EventQueue;
use crate::locks::{Locks, Span};
use crate::network::{Network, Node};
use crate::operation::Operation;
use crate::orchestration::Orchestration;
use crate::pages::{Needs, Range};
use crate::placement::Files;
use crate::program::Benchmark;
use crate::random::{delay, hash};
use crate::report::{Latencies, ProgramReport, Report, Samples, Timeline};
use crate::scenario::{Program, Scenario};
use crate::server::Server;
use crate::slab::Slab;
use penstock_base::Random;
use penstock_base::{Nanos, Op};
use penstock_layout::{Layout, Pieces};
use penstock_mpiio::Method;
use penstock_mpiio::planning::{self, Operate, Outcome, Plan, Seat, Words};
use penstock_sched::learn::merge;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// An event. Numbers are indices of the cluster's tables.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A rank continues its program.
    Step(u32),
    /// A rank's processor has prepared an operation.
    Issue(u32),
    /// A read request has arrived at its server.
    Request(u32),
    /// A part of a write has arrived at its server.
    Part(u32),
    /// A server's processor has handled a part of a request.
    Ready(u32),
    /// A server's processor has made a decision.
    Serve(u32),
    /// The time until which a server's scheduler wanted to wait.
    Schedule(u32),
    /// A server's thread runs again after waiting for the device.
    Woken(u32),
    /// An event inside a server's device.
    Device(u32),
    /// A server writes back dirty pages.
    Flush(u32),
    /// A part, or the acknowledgement of a write, has arrived at its rank.
    Reply(u32),
    /// A collective step of a program is complete.
    Met(u32),
    /// A rank has copied its parts into or out of shared windows.
    Shared(u32),
    /// A rank has waited as long as its plan wanted.
    Waited(u32),
    /// A server's word that it has a request to fetch has arrived at the rank.
    Taken(u32),
    /// A message from one rank to another has arrived.
    Message(u32),
    /// The orchestrator goes on.
    Orchestrate,
    /// A turn of the orchestrator has arrived at all servers.
    Turn,
    /// A server's gate may have to open by itself.
    Gate(u32),
}

/// The state of a rank between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Compute,
    Access,
    Barrier,
    Done,
}

pub(crate) struct Rank {
    pub program: u32,
    /// Its number among the cohorts of its program.
    pub number: u32,
    pub node: Node,
    pub stage: Stage,
    pub call: u64,
    pub file: u32,
    /// The rest of the plan of the current call.
    pub plan: Option<Box<dyn Plan>>,
    /// The rest of the plan's current step.
    pub operate: Option<Operate>,
    /// What the step asks for is fetched only.
    pub fetches: bool,
    /// The collective step in which it waits for all ranks of its program.
    pub together: Option<Together>,
    /// Messages from other ranks, by the senders' numbers in the cluster, and the sender it waits for.
    pub heard: VecDeque<(u32, Words)>,
    pub hears: Option<u32>,
    /// Bytes of the current call, and the number of their pieces in memory.
    pub wanted: u64,
    pub memory_regions: u64,
    /// The operation that its processor is preparing.
    pub prepared: Option<Operation>,
    /// The range that its next operations need locked.
    pub lock: Option<Span>,
    /// Whether it holds the lock that its operations need.
    pub locked: bool,
    /// In atomic mode: the range of its call, locked until the call is done.
    pub guard: Option<Span>,
    /// Operations under way.
    pub flying: u32,
    /// When the current call began.
    pub began: Nanos,
    pub io_time: Nanos,
    /// Whether it has its place in a collective call.
    pub seated: bool,
}

/// A program instance.
pub(crate) struct Running {
    pub spec: usize,
    pub instance: u32,
    pub benchmark: Arc<dyn Benchmark>,
    pub method: Method,
    pub op: Op,
    pub collective: bool,
    pub atomic: bool,
    pub only_interleaved: bool,
    pub barrier: bool,
    pub compute: Nanos,
    pub sync: bool,
    pub in_flight: u32,
    pub pipeline: u32,
    pub cohort: u32,
    pub start: Nanos,
    pub end: Nanos,
    pub first_rank: u32,
    pub ranks: u32,
    /// Index of its first file among the cluster's files.
    pub first_file: u32,
    /// Ranks that wait for the others.
    pub waiting: u32,
    pub done: u32,
    pub bytes: u64,
}

/// An operation under way.
pub(crate) struct Flight {
    pub rank: u32,
    pub requests: u32,
    pub began: Nanos,
    pub bytes: u64,
    pub op: Op,
}

/// The rest of a request on its server.
pub(crate) enum Left {
    Extent(u64),
    Pieces(Box<Pieces>),
}

/// A request to one server.
pub(crate) struct Request {
    pub flight: u32,
    pub rank: u32,
    pub server: u32,
    pub file: u32,
    pub op: Op,
    /// Only fetched into the server's cache.
    pub fetch: bool,
    pub left: Left,
    pub bytes: u64,
    /// Parts under way.
    pub parts: u32,
    pub structured: bool,
    /// Whether the server has seen its first part.
    pub seen: bool,
    /// Parts that the server is handling.
    pub serving: u32,
    /// Ranks that it stands for.
    pub weight: u32,
}

/// A part of a request: the unit of transfer, and one slice for the scheduler.
pub(crate) struct Part {
    pub request: u32,
    pub bytes: u64,
    /// Runs of the object.
    pub runs: Vec<(u64, u64)>,
    pub regions: u32,
}

/// A virtual request in service at a server.
pub(crate) struct Service {
    pub server: u32,
    pub virtual_id: u64,
    /// Parts of requests, by offset.
    pub slices: Vec<u32>,
    /// The ranges read or written for them, and how many have begun.
    pub ranges: Vec<Range>,
    pub begun: usize,
    pub op: Op,
    pub rank: u32,
    /// Fetches and accesses that it waits for.
    pub pending: u32,
}

/// Pages being read into a server's memory.
pub(crate) struct Fetch {
    pub server: u32,
    pub range: Range,
    /// Device requests that are not answered yet.
    pub pieces: u32,
    pub waiting: Vec<u32>,
}

/// A collective step.
pub(crate) enum Together {
    /// Parts for and from the ranks of its program.
    Exchange {
        send: Vec<(usize, planning::Part)>,
        receive: Vec<(usize, planning::Part)>,
    },
    Barrier,
    Confer {
        times: u32,
    },
}

/// A message from one rank to another, in flight.
pub(crate) struct Message {
    pub from: u32,
    pub to: u32,
    pub words: Words,
}

/// Counters of a run.
#[derive(Default)]
pub(crate) struct Totals {
    pub bytes: u64,
    pub accessed: u64,
    pub resent: u64,
    pub operations: u64,
    pub requests: u64,
    pub decisions: u64,
    pub events: u64,
}

/// Reports progress: virtual time, events so far, ranks that have finished, all ranks.
pub type Progress<'a> = &'a mut dyn FnMut(Nanos, u64, usize, usize);

pub(crate) struct Cluster<'s> {
    pub scenario: &'s Scenario,
    pub now: Nanos,
    pub events: EventQueue<Event>,
    pub network: Network,
    pub layout: Layout,
    pub files: Files,
    /// The program instance of each file.
    pub file_programs: Vec<u32>,
    pub orchestration: Option<Orchestration>,
    pub ranks: Vec<Rank>,
    pub programs: Vec<Running>,
    pub servers: Vec<Server>,
    pub connections: Connections,
    pub locks: Locks,
    pub flights: Slab<Flight>,
    pub requests: Slab<Request>,
    pub parts: Slab<Part>,
    pub services: Slab<Service>,
    pub fetches: Slab<Fetch>,
    pub messages: Slab<Message>,
    /// When the last message from one rank to another arrives.
    pub told: BTreeMap<(u32, u32), Nanos>,
    /// Makes a rank's plan for a collective call.
    pub plan: fn(Method, Seat) -> Option<Box<dyn Plan>>,
    pub random: Random,
    pub totals: Totals,
    pub timeline: Timeline,
    pub head: Samples,
    pub latencies: Latencies,
    pub done: usize,
    /// Programs whose writes are being synced, and servers that still have dirty data.
    pub draining: Vec<u32>,
    pub needs: Needs,
    /// The first error inside an event.
    pub failed: Option<Error>,
}

/// Events between two reports of progress.
const REPORT: u64 = 1 << 18;

/// Runs a scenario.
pub fn run(scenario: &Scenario, progress: Progress<'_>) -> Result<Report> {
    let mut cluster = Cluster::new(scenario)?;
    if scenario.server.predict {
        foretell(&mut cluster, scenario, progress)?;
    }
    cluster.run(progress)?;
    Ok(cluster.report())
}

/// Earlier runs whose traces give the prediction: as many as in the source, whose users had six repetitions.
const REPETITIONS: u64 = 6;

/// Simulates the scenario without prediction and with other random numbers; the merged traces of each server give the
/// prediction.
fn foretell(cluster: &mut Cluster, scenario: &Scenario, progress: Progress<'_>) -> Result<()> {
    let mut traces = vec![Vec::new(); cluster.servers.len()];
    for number in 1..=REPETITIONS {
        let mut earlier = scenario.clone();
        earlier.seed = hash(scenario.seed, number, 0);
        let mut before = Cluster::new(&earlier)?;
        before
            .servers
            .iter_mut()
            .for_each(|s| s.seen = Some(Vec::new()));
        before.run(progress)?;
        for (of_server, server) in traces.iter_mut().zip(before.servers) {
            of_server.push(server.seen.unwrap_or_default());
        }
    }
    let cost = scenario.times()?;
    for (server, traces) in cluster.servers.iter_mut().zip(traces) {
        server.expect(&merge(traces, 1).events, &cost)?;
    }
    Ok(())
}

impl Rank {
    /// A rank that has not begun.
    fn new(program: u32, number: u32, node: Node) -> Rank {
        Rank {
            program,
            number,
            node,
            stage: Stage::Compute,
            call: 0,
            file: 0,
            plan: None,
            operate: None,
            fetches: false,
            together: None,
            heard: VecDeque::new(),
            hears: None,
            wanted: 0,
            memory_regions: 1,
            prepared: None,
            lock: None,
            locked: false,
            guard: None,
            flying: 0,
            began: 0,
            io_time: 0,
            seated: false,
        }
    }
}

impl Running {
    /// Instance `instance` of program `spec`, not yet begun. `first_file` is the index of its first file.
    fn new(
        program: &Program,
        (spec, instance): (usize, u32),
        benchmark: &Arc<dyn Benchmark>,
        (first_rank, ranks, first_file): (u32, u32, u32),
    ) -> Running {
        Running {
            spec,
            instance,
            benchmark: benchmark.clone(),
            method: program.method,
            op: program.op.into(),
            collective: program.collective && ranks > 1,
            atomic: program.atomic,
            only_interleaved: program.only_interleaved,
            barrier: program.barrier,
            compute: program.compute.0,
            sync: program.sync,
            in_flight: program.in_flight,
            pipeline: match program.method {
                Method::POSIX | Method::LIST => program.pipeline,
                _ => 1,
            },
            cohort: program.cohort,
            start: program.start.0,
            end: 0,
            first_rank,
            ranks,
            first_file,
            waiting: 0,
            done: 0,
            bytes: 0,
        }
    }
}

impl<'s> Cluster<'s> {
    pub(crate) fn new(scenario: &'s Scenario) -> Result<Cluster<'s>> {
        scenario.check()?;
        let layout = scenario.layout()?;
        let net = &scenario.network;
        let mut network = Network::new(net.latency.0, net.switch.map(|r| r.0), net.memory.0);
        let device = |says: String| Error::key("device", says);
        let capacity = scenario.device.build(0.0).map_err(device)?.capacity();
        let allocation = scenario.device.allocation().map_err(device)?;
        let mut files = Files::new(allocation, capacity);
        let mut programs = Vec::new();
        let mut file_programs = Vec::new();
        let mut ranks = Vec::new();
        let per_node = scenario.cluster.ranks_per_node;
        for (spec, program) in scenario.program.iter().enumerate() {
            let benchmark: Arc<dyn Benchmark> = scenario.benchmark(spec)?.into();
            for instance in 0..program.instances {
                let mine = benchmark.files();
                let gap = if instance > 0 || spec > 0 {
                    program.distance.0
                } else {
                    0
                };
                let first_file = files.add(mine.count, mine.bytes, gap, &layout);
                file_programs.resize(
                    file_programs.len() + mine.count as usize,
                    programs.len() as u32,
                );
                let count = program.ranks / program.cohort;
                let first_rank = ranks.len() as u32;
                let mut node = 0;
                for number in 0..count {
                    // A cohort larger than a node has the network cards of as many nodes.
                    let cards = (program.cohort / per_node).max(1);
                    let on_node = (per_node / program.cohort).max(1);
                    if number.is_multiple_of(on_node) {
                        node = network.node(net.rate.0.saturating_mul(cards.into()));
                    }
                    ranks.push(Rank::new(programs.len() as u32, number, node));
                }
                let at = (first_rank, count, first_file);
                programs.push(Running::new(program, (spec, instance), &benchmark, at));
            }
        }
        let rate = net.server_rate.unwrap_or(net.rate).0;
        // A random sequence of its own, so that the ranks' numbers do not depend on the number of servers.
        let mut angles = Random::new(hash(scenario.seed, 0, u64::from(u32::MAX)));
        let servers = (0..scenario.cluster.servers)
            .map(|number| Server::new(scenario, number, network.node(rate), angles.unit()))
            .collect::<Result<Vec<_>>>()?;
        files.check(servers.iter().map(Server::capacity).min().unwrap_or(0))?;
        let orchestration = Orchestration::new(scenario, programs.len())?;
        let mut cluster = Cluster {
            scenario,
            now: 0,
            events: EventQueue::new(),
            network,
            layout,
            files,
            file_programs,
            orchestration,
            ranks,
            programs,
            servers,
            connections: Connections::new(scenario.server.connection),
            locks: Locks::default(),
            flights: Slab::new(),
            requests: Slab::new(),
            parts: Slab::new(),
            services: Slab::new(),
            fetches: Slab::new(),
            messages: Slab::new(),
            told: BTreeMap::new(),
            plan: Method::plan_together,
            random: Random::new(scenario.seed),
            totals: Totals::default(),
            timeline: Timeline {
                from: scenario.measured.map_or(0, |m| m.from.0),
                ..Timeline::default()
            },
            head: Samples::new(),
            latencies: Latencies::new(),
            done: 0,
            draining: Vec::new(),
            needs: Needs::default(),
            failed: None,
        };
        if let Some(o) = &cluster.orchestration {
            cluster.events.push(o.wake(), Event::Orchestrate);
        }
        for rank in 0..cluster.ranks.len() as u32 {
            let late = delay(&mut cluster.random, scenario.client.start.0);
            let start = cluster.program_of(rank).start + late;
            cluster.events.push(start, Event::Step(rank));
        }
        Ok(cluster)
    }

    pub(crate) fn program_of(&self, rank: u32) -> &Running {
        &self.programs[self.ranks[rank as usize].program as usize]
    }

    pub(crate) fn run(&mut self, progress: Progress<'_>) -> Result<()> {
        let limit = self.scenario.max_events;
        while let Some((at, event)) = self.events.pop() {
            if self.scenario.measured.is_some_and(|m| at >= m.until.0) {
                self.cut_off();
                return Ok(());
            }
            self.now = at;
            self.totals.events += 1;
            if self.totals.events > limit {
                return Err(Error::TooLong { limit });
            }
            if self.totals.events.is_multiple_of(REPORT) {
                progress(at, self.totals.events, self.done, self.ranks.len());
            }
            match event {
                Event::Step(rank) => self.step(rank),
                Event::Issue(rank) => self.issue(rank),
                Event::Request(request) => self.request_arrives(request),
                Event::Part(part) => self.part_arrives(part),
                Event::Ready(part) => self.part_ready(part),
                Event::Serve(service) => self.serve(service),
                Event::Schedule(server) => self.scheduler_wakes(server),
                Event::Woken(service) => self.serve(service),
                Event::Device(server) => self.device_wakes(server),
                Event::Flush(server) => self.flush_time(server),
                Event::Reply(part) => self.reply_arrives(part),
                Event::Met(program) => self.met(program),
                Event::Message(message) => self.message_arrives(message),
                Event::Orchestrate => self.orchestrate(),
                Event::Turn => self.turn_arrives(),
                Event::Gate(server) => self.gate_wakes(server),
                Event::Shared(rank) | Event::Waited(rank) => self.go_on(rank, Outcome::Done(0)),
                Event::Taken(flight) => self.answered(flight),
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
        }
        if self.done < self.ranks.len() || !self.draining.is_empty() {
            return Err(Error::Stuck {
                at: self.now,
                waiting: self.ranks.len() - self.done,
            });
        }
        Ok(())
    }

    /// The measured part of the run is over: programs that would continue end here.
    fn cut_off(&mut self) {
        let until = self.scenario.measured.map_or(self.now, |m| m.until.0);
        for program in self.programs.iter_mut().filter(|p| p.end == 0) {
            program.end = until.max(program.start);
        }
    }

    /// Returns the value, or records the error and returns nothing.
    pub(crate) fn ok<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        }
    }

    pub(crate) fn report(self) -> Report {
        let rate = |bytes: u64, time: Nanos| bytes as f64 / (time.max(1) as f64 / 1e9);
        let makespan = self.programs.iter().map(|p| p.end).max().unwrap_or(0);
        let programs = self
            .programs
            .iter()
            .enumerate()
            .map(|(number, p)| {
                let ranks = &self.ranks[p.first_rank as usize..][..p.ranks as usize];
                let io: u64 = ranks.iter().map(|r| r.io_time).sum();
                let time = p.end - p.start;
                ProgramReport {
                    benchmark: self.scenario.program[p.spec].benchmark.clone(),
                    program: p.spec,
                    instance: p.instance,
                    start: p.start,
                    end: p.end,
                    bytes: p.bytes,
                    throughput: rate(p.bytes, time),
                    io_share: io as f64 / (time.max(1) as f64 * f64::from(p.ranks)),
                    orchestrated: self.orchestration.as_ref().map(|o| o.of(number)),
                }
            })
            .collect();
        let throughput = match self.scenario.measured {
            Some(m) => rate(self.timeline.counted, makespan.saturating_sub(m.from.0)),
            None => rate(self.totals.bytes, makespan),
        };
        let decided: Vec<(u64, u64)> = self.servers.iter().map(Server::decided).collect();
        let device_requests: u64 = self.servers.iter().map(|s| s.device_requests).sum();
        let seeks: u128 = self.servers.iter().map(|s| s.seeks).sum();
        let moved: Vec<f64> = self.servers.iter().map(|s| s.moved as f64).collect();
        let (sum, squares) = moved
            .iter()
            .fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
        Report {
            name: self.scenario.name.clone(),
            makespan,
            bytes: self.totals.bytes,
            accessed: self.totals.accessed,
            resent: self.totals.resent,
            throughput,
            operations: self.totals.operations,
            requests: self.totals.requests,
            decisions: self.totals.decisions,
            choices: decided.iter().map(|d| d.0).sum(),
            predicted_waits: decided.iter().map(|d| d.1).sum(),
            device_requests,
            device_bytes: self.servers.iter().map(|s| s.device_bytes).sum(),
            seek_distance: seeks as f64 / device_requests.max(1) as f64,
            latency_p50: self.latencies.quantile(0.5),
            latency_p99: self.latencies.quantile(0.99),
            balance: if squares > 0.0 {
                sum * sum / (squares * moved.len() as f64)
            } else {
                1.0
            },
            events: self.totals.events,
            programs,
            timeline: self.timeline,
            head: self.head.kept,
        }
    }
}
