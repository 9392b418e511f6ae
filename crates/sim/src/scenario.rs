//! Scenarios as TOML: a cluster, its programs, and the comparison of runs (docs/understand/simulator.md).
use crate::error::{Error, Result};
use crate::program::{self, Benchmark, Setup};
use crate::units::{Bytes, Rate, Time};
use penstock_base::{Nanos, Op};
use penstock_device::profile::{self, ModelTarget};
use penstock_layout::{Layout, ServerId};
use penstock_mpiio::Method;
use penstock_mpiio::planning::{DELAY, Groups, Rules, Tuning};
use penstock_sched::learn::Cost;
use penstock_sched::orchestrator::Slicing;
use penstock_sched::{Mode, ServerInfo, Settings};
use serde::Deserialize;

/// One cluster and its programs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the run.
    pub name: String,
    /// Description of the run.
    #[serde(default)]
    pub about: String,
    /// Seed of all random numbers.
    #[serde(default = "one")]
    pub seed: u64,
    /// A run with more events ends with an error.
    #[serde(default = "most_events")]
    pub max_events: u64,
    /// Servers, nodes, striping.
    pub cluster: Cluster,
    /// Cards, latency, switch.
    #[serde(default)]
    pub network: Network,
    /// Costs of I/O on compute nodes.
    #[serde(default)]
    pub client: Client,
    /// The data servers.
    #[serde(default)]
    pub server: Server,
    /// IOrchestrator, if servers take turns of programs.
    pub orchestrator: Option<Orchestrator>,
    /// The device under each data server, as `--store model:` takes it.
    pub device: Device,
    /// The part of the run that is measured; all of it by default.
    pub measured: Option<Measured>,
    /// The programs.
    pub program: Vec<Program>,
}

/// A part of a run: programs that would continue end with it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Bytes count for the throughput from this time on.
    #[serde(default)]
    pub from: Time,
    /// The run ends at this time, if not before.
    pub until: Time,
}

fn one() -> u64 {
    1
}
fn most_events() -> u64 {
    2_000_000_000
}

/// Servers, nodes, striping.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Data servers, one node each.
    pub servers: u32,
    /// Stripe unit in bytes.
    #[serde(default = "stripe_unit")]
    pub stripe_unit: Bytes,
    /// Ranks on each compute node.
    #[serde(default = "one_rank")]
    pub ranks_per_node: u32,
}

fn stripe_unit() -> Bytes {
    Bytes(64 << 10)
}
fn one_rank() -> u32 {
    1
}

/// Cards, latency, switch. The defaults are a switched gigabit Ethernet.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Latency from card to card.
    pub latency: Time,
    /// Rate of a card in each direction.
    pub rate: Rate,
    /// Rate of a data server's card, if it differs.
    pub server_rate: Option<Rate>,
    /// Rate of the switch for all traffic; without it the switch is never the bottleneck.
    pub switch: Option<Rate>,
    /// Rate of copies within a node.
    pub memory: Rate,
    /// Bytes of a message besides its payload.
    pub header: Bytes,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            latency: Time(50_000),
            rate: Rate(117_000_000),
            server_rate: None,
            switch: None,
            memory: Rate(2_000_000_000),
            header: Bytes(128),
        }
    }
}

/// Costs of I/O on compute nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// Processor time of an operation.
    pub operation: Time,
    /// Processor time of each of its regions, in file and memory jointly.
    pub region: Time,
    /// Mean delay of an operation by other activity of its node; exponentially distributed, independent.
    pub jitter: Time,
    /// Mean delay of a rank's start, exponentially distributed: ranks leave the barrier before their program one by
    /// one.
    pub start: Time,
    /// Buffer size of data sieving.
    pub sieve_buffer: Bytes,
    /// Buffer size of a two-phase aggregator.
    pub collective_buffer: Bytes,
    /// Number of two-phase aggregators; all ranks by default.
    pub aggregators: Option<u32>,
    /// Whose two-phase rules: `ours`, or `romio`, with which published figures were measured.
    pub two_phase: Rules,
    /// How the method resonant works.
    pub resonant: Resonant,
}

/// How the method resonant works.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resonant {
    /// `ours`, or `romio`: as its source built it on ADIO, whose I/O blocks. Published figures were measured with that.
    pub rules: Rules,
    /// What an agent asks of its server in a round.
    pub buffer: Bytes,
    /// Time between two ranks in turn.
    pub delay: Time,
    /// Which ranks begin together: `as-many-as-servers` groups, or groups `as-large-as-servers`.
    pub groups: Groups,
}

impl Default for Resonant {
    fn default() -> Resonant {
        Resonant {
            rules: Rules::Ours,
            buffer: Bytes(16 << 20),
            delay: Time(DELAY),
            groups: Groups::default(),
        }
    }
}

impl Resonant {
    pub(crate) fn tuning(&self) -> Tuning {
        Tuning {
            buffer: self.buffer.0,
            delay: self.delay.0,
            groups: self.groups,
        }
    }
}

impl Default for Client {
    fn default() -> Client {
        Client {
            operation: Time(20_000),
            region: Time(200),
            jitter: Time(0),
            start: Time(0),
            sieve_buffer: Bytes(4 << 20),
            collective_buffer: Bytes(4 << 20),
            aggregators: None,
            two_phase: Rules::Ours,
            resonant: Resonant::default(),
        }
    }
}

/// IOrchestrator: all servers serve one program at a time, where that pays (RS 5.2).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Orchestrator {
    /// Time in which each object has its slice once.
    pub window: Time,
    /// `reuse-distance`: slices inverse to it; `even`.
    pub slices: Slices,
    /// It dies at this time.
    pub stops: Option<Time>,
}

/// How windows are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slices {
    /// Inversely to reuse distances.
    ReuseDistance,
    /// Evenly.
    Even,
}

impl Default for Orchestrator {
    fn default() -> Orchestrator {
        Orchestrator {
            window: Time(penstock_sched::orchestrator::Options::default().window),
            slices: Slices::ReuseDistance,
            stops: None,
        }
    }
}

impl Orchestrator {
    pub(crate) fn options(&self) -> penstock_sched::orchestrator::Options {
        penstock_sched::orchestrator::Options {
            window: self.window.0,
            slicing: match self.slices {
                Slices::ReuseDistance => Slicing::ReuseDistance,
                Slices::Even => Slicing::Even,
            },
            ..Default::default()
        }
    }
}

/// The data servers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// An algorithm of crates/sched, or `tree` or `online`, which select one.
    pub scheduler: String,
    /// More settings, each as `penstock tune` takes it: `"ratio=20"`. `tree` and `online` begin with a server's
    /// defaults. An algorithm has no starvation bound, and `depth` requests at a time.
    pub tune: Vec<String>,
    /// Requests of earlier runs, with other random numbers, give a prediction.
    pub predict: bool,
    /// Processor time of one scheduling decision.
    pub decision: Time,
    /// Processor time of a request.
    pub request: Time,
    /// Processor time of each region of its pattern on the server.
    pub region: Time,
    /// Mean time from the arrival of a request until the server handles it, exponentially distributed, on each server
    /// independently. Server threads look up the object's attributes first and may be late. Requests of several clients
    /// then change their order on one server and not on another.
    pub jitter: Time,
    /// Mean time from the end of a device access until the waiting thread runs, exponentially distributed.
    pub wake: Time,
    /// Requests of one rank that a server serves at a time; 0: any number. Penstock's data server serves those of a
    /// connection one after the other.
    pub connection: u32,
    /// Virtual requests that a server serves at a time. Default 16; with `tree` and `online` any number.
    pub depth: Option<u32>,
    /// Size of the parts in which a request moves through the server; each is one slice for the scheduler.
    pub buffer: Bytes,
    /// Most runs of a part; unbounded in Penstock's data server.
    pub most_runs: Option<usize>,
    /// Parts of a request in flight at a time.
    pub window: u32,
    /// How the runs of a virtual request are served.
    pub runs: Runs,
    /// Reads without a page cache: gaps between runs of at most this size are read through.
    pub gap: Bytes,
    /// Size of the page cache; 0: every access goes to the device.
    pub cache: Bytes,
    /// Read-ahead of a sequential reader, bytes.
    pub read_ahead: Bytes,
    /// Dirty bytes from which writers wait.
    pub dirty: Bytes,
    /// Dirty bytes from which they are written back in the background; without it only by `dirty` and `flush`.
    pub background: Option<Bytes>,
    /// How often dirty pages are written back.
    pub flush: Time,
    /// Which process a request belongs to, for the block queue.
    pub processes: Processes,
    /// aIOLi and MLF: their quantum.
    pub quantum: Option<Bytes>,
}

/// How the runs of a virtual request are served once the scheduler has started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runs {
    /// All are submitted to the device at once, as with asynchronous I/O.
    Together,
    /// One after the other, as by a thread that waits for each; Penstock's data server does this.
    InTurn,
}

/// Which process a request belongs to, for the block queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// The server's single process.
    Server,
    /// The client's rank, as if a server thread served each rank.
    Rank,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            scheduler: "noop".into(),
            tune: Vec::new(),
            predict: false,
            decision: Time(1_000),
            request: Time(20_000),
            region: Time(200),
            jitter: Time(0),
            wake: Time(0),
            connection: 0,
            depth: None,
            buffer: Bytes(penstock_sched::SLICE),
            most_runs: None,
            window: 2,
            runs: Runs::Together,
            gap: Bytes(0),
            cache: Bytes(0),
            read_ahead: Bytes(128 << 10),
            dirty: Bytes(64 << 20),
            background: None,
            flush: Time(1_000_000_000),
            processes: Processes::Server,
            quantum: None,
        }
    }
}

/// One program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// One of [`crate::BENCHMARKS`].
    pub benchmark: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of instances, each with its own files.
    #[serde(default = "one_rank")]
    pub instances: u32,
    /// `read` or `write`.
    #[serde(default = "read")]
    pub op: Direction,
    /// How an access becomes operations.
    #[serde(default = "datatype")]
    pub method: Method,
    /// Whether I/O calls are collective: two-phase may exchange data.
    #[serde(default)]
    pub collective: bool,
    /// Atomic mode: each call locks its whole range, shared for reads and exclusively for writes. Two-phase and data
    /// sieving are then off.
    #[serde(default)]
    pub atomic: bool,
    /// Two-phase only where ranks' ranges interleave, as ROMIO decides by itself; other calls are independent.
    #[serde(default)]
    pub only_interleaved: bool,
    /// A barrier after each call.
    #[serde(default)]
    pub barrier: bool,
    /// Computation before each call.
    #[serde(default)]
    pub compute: Time,
    /// Sync before the program ends.
    #[serde(default)]
    pub sync: bool,
    /// Operations that a rank has in flight at a time.
    #[serde(default = "one_rank")]
    pub in_flight: u32,
    /// Operations of one call that a rank has in flight at a time, for the methods posix and list.
    #[serde(default = "one_rank")]
    pub pipeline: u32,
    /// Consecutive ranks that are simulated as one.
    #[serde(default = "one_rank")]
    pub cohort: u32,
    /// When it starts, virtual time.
    #[serde(default)]
    pub start: Time,
    /// Bytes left free on each device before the files of each instance but the first.
    #[serde(default)]
    pub distance: Bytes,
    /// The benchmark's own parameters.
    #[serde(default)]
    pub parameters: toml::Table,
}

fn read() -> Direction {
    Direction::Read
}
fn datatype() -> Method {
    Method::DATATYPE
}

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Bytes come from the servers.
    Read,
    /// Bytes go to the servers.
    Write,
}

impl From<Direction> for Op {
    fn from(direction: Direction) -> Op {
        match direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
        }
    }
}

/// Default of virtual requests at a time under one algorithm.
const THREADS: u32 = 16;

/// Upper limit of everything that is simulated individually: servers, nodes, ranks or cohorts, instances.
const MOST: u64 = 1 << 20;

/// Checks that a number is within the range of its key.
fn within(key: &str, n: u64, low: u64, high: u64) -> Result<()> {
    if (low..=high).contains(&n) {
        return Ok(());
    }
    Err(Error::key(key, format!("{n} is outside {low}..={high}")))
}

impl Scenario {
    /// Parses TOML; errors name `path` and the key.
    pub fn parse(text: &str, path: &str) -> Result<Scenario> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| Error::Syntax {
            path: path.into(),
            reason: e.to_string().trim_end().replace('\n', "\n  "),
        })?;
        scenario.check().map_err(|e| e.within(path))?;
        Ok(scenario)
    }

    /// Checks all values; the error names the key and what is allowed.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_machines()?;
        if let Some(Measured { from, until }) = self.measured
            && until.0 <= from.0
        {
            let says = format!(
                "ends at {} ns and begins at {} ns; it has to end later",
                until.0, from.0
            );
            return Err(Error::key("measured.until", says));
        }
        self.settings()?;
        self.device
            .build(0.0)
            .map_err(|says| Error::key("device", says))?;
        self.check_programs()?;
        self.layout().map(drop)
    }

    /// The cluster, its network, clients and servers.
    fn check_machines(&self) -> Result<()> {
        within("cluster.servers", self.cluster.servers.into(), 1, 65_536)?;
        within(
            "cluster.ranks_per_node",
            self.cluster.ranks_per_node.into(),
            1,
            MOST,
        )?;
        within(
            "cluster.stripe_unit",
            self.cluster.stripe_unit.0,
            1,
            Layout::MAX_STRIPE_UNIT,
        )?;
        let network = &self.network;
        for (key, rate) in [
            ("network.rate", Some(network.rate)),
            ("network.server_rate", network.server_rate),
            ("network.switch", network.switch),
            ("network.memory", Some(network.memory)),
        ] {
            if let Some(Rate(rate)) = rate {
                within(key, rate, 1000, 1_000_000_000_000)?;
            }
        }
        within("network.header", network.header.0, 0, 1 << 20)?;
        within(
            "client.sieve_buffer",
            self.client.sieve_buffer.0,
            1,
            1 << 40,
        )?;
        within(
            "client.collective_buffer",
            self.client.collective_buffer.0,
            1,
            1 << 40,
        )?;
        if let Some(o) = &self.orchestrator {
            within("orchestrator.window", o.window.0, 10_000_000, 1 << 40)?;
        }
        within(
            "client.resonant.buffer",
            self.client.resonant.buffer.0,
            4096,
            1 << 30,
        )?;
        within(
            "server.depth",
            self.server.depth.unwrap_or(1).into(),
            1,
            MOST,
        )?;
        within("server.window", self.server.window.into(), 1, 1024)?;
        within("server.buffer", self.server.buffer.0, 4096, 1 << 30)?;
        if let Some(runs) = self.server.most_runs {
            within("server.most_runs", runs as u64, 1, 1 << 20)?;
        }
        within("server.gap", self.server.gap.0, 0, 1 << 20)?;
        within("server.dirty", self.server.dirty.0, 1 << 20, 1 << 50)?;
        within("server.flush", self.server.flush.0, 1_000_000, 1 << 50)?;
        within("server.read_ahead", self.server.read_ahead.0, 0, 1 << 30)
    }

    fn check_programs(&self) -> Result<()> {
        if self.program.is_empty() {
            return Err(Error::key("program", "no program; add a [[program]]"));
        }
        let mut ranks = 0u64;
        for (i, program) in self.program.iter().enumerate() {
            let at = |key: &str| format!("program.{i}.{key}");
            within(
                &at("cohort"),
                program.cohort.into(),
                1,
                program.ranks.max(1).into(),
            )?;
            if !program.ranks.is_multiple_of(program.cohort) {
                let says = format!(
                    "{} ranks are no multiple of {}",
                    program.ranks, program.cohort
                );
                return Err(Error::key(at("cohort"), says));
            }
            let simulated = program.ranks / program.cohort;
            within(&at("ranks"), simulated.into(), 1, MOST)?;
            within(&at("instances"), program.instances.into(), 1, 4096)?;
            within(&at("in_flight"), program.in_flight.into(), 1, 65_536)?;
            ranks += u64::from(simulated) * u64::from(program.instances);
            if program.atomic && (program.cohort > 1 || program.in_flight > 1) {
                let says = "an atomic call is one rank's, and holds its range until it is done; leave cohort and in_flight at 1";
                return Err(Error::key(at("atomic"), says));
            }
            let name = program.method.name();
            if program.method.is_collective() && !program.collective {
                let says = format!("{name} needs collective calls; add `collective = true`");
                return Err(Error::key(at("method"), says));
            }
            if program.method.needs_shared_memory()
                && (program.ranks > self.cluster.ranks_per_node || program.cohort > 1)
            {
                let says = format!(
                    "{name} needs ranks that share memory; let cluster.ranks_per_node be at least {}, and leave cohort at 1",
                    program.ranks
                );
                return Err(Error::key(at("method"), says));
            }
            let benchmark = self.benchmark(i)?;
            if program.method.is_collective() && benchmark.files().count > 1 {
                let says = format!(
                    "each rank has a file of its own here, and {name} exchanges within one; take another method"
                );
                return Err(Error::key(at("method"), says));
            }
        }
        within("program: ranks and cohorts of all programs", ranks, 1, MOST)
    }

    pub(crate) fn layout(&self) -> Result<Layout> {
        let servers = (0..self.cluster.servers).map(ServerId).collect();
        Ok(Layout::new(self.cluster.stripe_unit.0, servers)?)
    }

    /// The settings of each server's scheduler.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let server = &self.server;
        let named =
            |key: &'static str| move |e: penstock_sched::Error| Error::key(key, e.to_string());
        let chosen = format!("sched={}", server.scheduler);
        let mut settings = Settings::default()
            .with(&[chosen])
            .map_err(named("server.scheduler"))?;
        if settings.choosing.mode == Mode::Fixed {
            settings.options.starvation_bound = None;
            settings.depth = u32::MAX;
        }
        if let Some(quantum) = server.quantum {
            settings.options.quantum = quantum.0;
        }
        settings.with(&server.tune).map_err(named("server.tune"))
    }

    /// Device times for predictions: those that are set, or a profile of the device, as users would make one.
    pub(crate) fn times(&self) -> Result<Cost> {
        if let Some(times) = self.settings()?.times {
            return Ok(times);
        }
        let device = |says: String| Error::key("device", says);
        let built = self.device.build(0.0).map_err(device)?;
        let mut target = ModelTarget::new(self.device.model.as_str(), built);
        let options = profile::Options::default();
        let profile = profile::profile(&mut target, &options, &mut |_| true)
            .map_err(|e| device(e.to_string()))?;
        let curve = |op| {
            let curves = profile.curves.iter();
            let of_op = curves.filter(|c| c.test.op == op && c.test.random);
            let times = of_op.flat_map(|c| &c.estimated);
            times
                .map(|(bytes, time)| (*bytes, *time as Nanos))
                .collect()
        };
        let (read, write): (Vec<_>, Vec<_>) = (curve(Op::Read), curve(Op::Write));
        Cost::from_points(&read, &write).map_err(|e| device(e.to_string()))
    }

    /// What server `number` knows about itself.
    pub(crate) fn site(&self, number: u32, settings: &Settings) -> ServerInfo {
        let usual = match settings.choosing.mode {
            Mode::Fixed => THREADS,
            Mode::Tree | Mode::Online => u32::MAX,
        };
        ServerInfo {
            server: number,
            servers: self.cluster.servers,
            unit: self.cluster.stripe_unit.0,
            memory: self.server.cache.0,
            threads: self.server.depth.unwrap_or(usual),
        }
    }

    /// The benchmark of program `i`.
    pub(crate) fn benchmark(&self, i: usize) -> Result<Box<dyn Benchmark>> {
        let program = &self.program[i];
        let setup = Setup {
            ranks: program.ranks,
            cohort: program.cohort,
            collective: program.collective,
            seed: self.seed,
        };
        program::benchmark(
            &program.benchmark,
            &program.parameters,
            &setup,
            &format!("program.{i}"),
        )
    }
}

/// A device with its block queue.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// `NAME[,key=value]...`, as `--store model:` takes it: `hdd,queue=deadline`.
    pub model: String,
}
