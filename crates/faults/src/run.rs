//! One run: a cluster, its clients, the faults of a seed, and the checks.
mod calm;
mod limits;
mod replace;
#[cfg(test)]
mod waiting;

use crate::bit_rot::{self, BitRot, Target};
use crate::cluster::{Cluster, RunSize, Status, deployment};
use crate::disk::Item;
use crate::effects::{Effect, Effects};
use crate::network;
use crate::plan::{self, Fault, StoreFault};
use crate::plant::Plant;
use crate::workload::program::{Program, Rank};
use crate::workload::{History, Phase, Worker};
use crate::world::{MachineId, Nanos, ProcessId, SECOND, Setup, Simulation, lock};
use penstock_base::Random;
use penstock_layout::FileId;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Determines everything in the run.
    pub seed: u64,
    /// A bug to plant in the simulated machines.
    pub plant: Option<Plant>,
    /// Whether to print events on standard error.
    pub print: bool,
    /// Bytes that a simulated process (see [`crate::charged_to`]) holds now and has held at most, if an allocator
    /// counts them.
    pub meter: Option<fn(usize) -> (u64, u64)>,
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// A hash of all events in order: two runs of one seed agree in it.
    pub hash: u64,
    /// Events.
    pub events: u64,
    /// Virtual milliseconds.
    pub virtual_ms: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Their effects.
    pub effects: Effects,
    /// Successful operations of clients.
    pub good: u64,
    /// Operations that failed because of a fault.
    pub failed: u64,
    /// Most threads of one server at a time.
    pub most_threads: u64,
    /// Most bytes of one server at a time; 0 if nothing counts them.
    pub most_bytes: u64,
    /// Violations of the checks; empty if the run is good.
    pub failures: Vec<String>,
}

/// Time after the faults until every operation that one of them may have affected has ended.
const SETTLE: Nanos = 30 * SECOND;
/// Purpose of the random numbers shared by all ranks of a program; the program's number is added.
const PROGRAM: u64 = 1_000_000;
/// Without faults every client has finished after this time.
const CALM: Nanos = 120 * SECOND;
/// Without faults a server is up after this time.
const START: Nanos = 60 * SECOND;

/// Runs one seed on a thread of its own. Threads of killed processes stay: run at most a few dozen seeds in one
/// process.
pub fn run(options: &Options) -> Report {
    let options = options.clone();
    let seed = options.seed;
    let failed = |what: String| Report {
        seed,
        failures: vec![what],
        ..Report::default()
    };
    let run = std::thread::Builder::new()
        .name("driver".into())
        .spawn(move || Driver::run(&options));
    match run.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(report))) => report,
        Ok(Ok(Err(e))) => failed(format!("the run could not begin: {e}")),
        Ok(Err(_)) => failed(format!("the driver panicked: {}", crate::last_panic())),
        Err(e) => failed(format!("no thread: {e}")),
    }
}

/// The directory of a run, removed when the value is dropped. It is locked (flock(2)) while its process lives, so that
/// a later run can recognise directories of killed runs.
struct Root {
    path: PathBuf,
    _lock: File,
}

/// Prefix of the names of runs' directories.
const ROOT: &str = "penstock-faults-";

impl Root {
    fn new() -> std::io::Result<Root> {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        Root::remove_dead(&base);
        // All paths have one length, so that messages with paths have too.
        for attempt in 0..1000 {
            let name = format!("{ROOT}{:08}-{attempt:03}", std::process::id());
            let path = base.join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            }
            // Between the two calls another run may have taken it for one of a killed run.
            if let Some(_lock) = Root::lock(&path).filter(|_| path.is_dir()) {
                return Ok(Root { path, _lock });
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }

    fn lock(path: &Path) -> Option<File> {
        let directory = File::open(path).ok()?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(directory)
    }

    /// Removes directories of killed runs in `base`.
    fn remove_dead(base: &Path) {
        for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|n| n.strip_prefix(ROOT));
            let Some(process) =
                process.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok())
            else {
                continue;
            };
            // A process makes its directory before it has locked it.
            if Path::new(&format!("/proc/{process}")).exists() {
                continue;
            }
            if let Some(_lock) = Root::lock(&entry.path()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Ends a fault, or continues it.
#[derive(Debug, Clone)]
enum Later {
    Start(MachineId),
    Heal(MachineId, MachineId),
    Network,
    Roomy(MachineId),
    FastDisk(MachineId),
    GoodDisk(MachineId),
    RightClock(MachineId),
    Client(usize),
    Program,
}

struct Driver {
    world: &'static Simulation,
    seed: u64,
    root: PathBuf,
    shape: RunSize,
    cluster: Cluster,
    history: Arc<Mutex<History>>,
    random: Random,
    clients: Vec<Option<Joining>>,
    later: Vec<(Nanos, Later)>,
    /// The flipped bit of a machine, and the number of power losses before.
    flipped: BTreeMap<MachineId, (BitRot, usize)>,
    meter: Option<fn(usize) -> (u64, u64)>,
    most_bytes: u64,
    /// Copies of stores.
    copies: BTreeMap<MachineId, Vec<Item>>,
    /// Replaced stores of servers that have not restarted since.
    replaced: BTreeMap<MachineId, replace::Replaced>,
    /// Servers that have started on a store that is not theirs.
    taken: Vec<(MachineId, StoreFault)>,
    /// Flipped records: machine, object, power losses before.
    records: Vec<(MachineId, FileId, usize)>,
    faults: u64,
    effects: Effects,
    lives: u64,
}

/// A client process, and its result.
struct Joining {
    process: ProcessId,
    said: Arc<Mutex<Option<Result<(), String>>>>,
}

impl Driver {
    fn run(options: &Options) -> Result<Report, String> {
        let io = |e: std::io::Error| e.to_string();
        let root = Root::new().map_err(io)?;
        let mut shape = plan::shape(options.seed);
        if options.plant == Some(Plant::TrustedClock) {
            // Servers that do not ask for the time do not ask for leases either.
            shape.limit = None;
        }
        if matches!(options.plant, Some(Plant::LostLog | Plant::LostHome)) {
            shape.fast = shape.fast.or(Some("on"));
        }
        let deployment = deployment(&root.path, &shape)?;
        let mut roots = Vec::new();
        for machine in 0..=shape.servers {
            let path = root.path.join(format!("machine-{machine}"));
            std::fs::create_dir(&path).map_err(io)?;
            roots.push(path);
        }
        let world = Simulation::begin(Setup {
            seed: options.seed,
            roots,
            plant: options.plant,
            print: options.print,
        })
        .map_err(io)?;
        world.state().net.tls = shape.tls;
        let cluster = Cluster::new(world, deployment, options.plant);
        let history = History::new(cluster.machines(), shape.clients);
        let mut driver = Driver {
            world,
            seed: options.seed,
            root: root.path.clone(),
            shape,
            cluster,
            history: Arc::new(Mutex::new(history)),
            random: Random::for_purpose(options.seed, 5),
            clients: (0..shape.clients + shape.ranks).map(|_| None).collect(),
            later: Vec::new(),
            flipped: BTreeMap::new(),
            meter: options.meter,
            most_bytes: 0,
            copies: BTreeMap::new(),
            replaced: BTreeMap::new(),
            taken: Vec::new(),
            records: Vec::new(),
            faults: 0,
            effects: Effects::default(),
            lives: 0,
        };
        let done = driver.all();
        let mut state = world.state();
        if let Err(e) = done {
            state.fail(e);
        }
        let mut effects = std::mem::take(&mut driver.effects);
        effects.add(&state.net.effects);
        effects.add(&state.effects);
        for disk in &state.disks {
            effects.add(&disk.effects);
        }
        let history = lock(&driver.history);
        effects.add(&history.effects);
        let servers = |p: &&crate::state::Process| p.machine <= shape.servers;
        Ok(Report {
            seed: options.seed,
            hash: state.log.hash,
            events: state.log.events,
            virtual_ms: state.now / 1_000_000,
            faults: driver.faults,
            effects,
            good: history.good,
            failed: history.failed,
            most_threads: state
                .processes
                .iter()
                .skip(1)
                .filter(servers)
                .map(|p| p.most_threads as u64)
                .max()
                .unwrap_or(0),
            most_bytes: driver.most_bytes,
            failures: state.failures.clone(),
        })
    }

    fn say(&self, text: &str) {
        let mut state = self.world.state();
        let now = state.now;
        state.log.say(now, text);
    }

    fn now(&self) -> Nanos {
        self.world.state().now
    }

    fn sleep(&self, time: Nanos) {
        penstock_host::thread::sleep(Duration::from_nanos(time));
    }

    /// Runs all phases in order.
    fn all(&mut self) -> Result<(), String> {
        self.say(&format!("{:?}", self.shape));
        let wrong = plan::clocks(self.seed, &self.shape);
        self.world.state().clocks.extend(wrong);
        for machine in 0..self.cluster.machines() {
            self.cluster.start(machine)?;
        }
        for machine in 0..self.cluster.machines() {
            self.cluster.wait_up(machine, START)?;
        }
        self.one_client("preparing", Worker::prepare)?;
        for c in 0..self.shape.clients {
            self.start_client(c)?;
        }
        self.start_program()?;
        self.suffer()?;
        self.recover()?;
        lock(&self.history).phase = Phase::Calm;
        self.say("calm");
        self.wait_clients()?;
        self.bytes_agree()?;
        self.lose_all_power()?;
        self.one_client("looking after the last loss of power", Worker::look)?;
        self.consistent()?;
        self.nothing_left()?;
        self.stop()?;
        match self.taken.first() {
            None => Ok(()),
            Some((machine, with)) => Err(format!(
                "server {machine} has started on what is not its store ({with:?})"
            )),
        }
    }

    // ---- clients ----

    fn worker(&mut self, index: usize) -> Worker {
        self.lives += 1;
        Worker {
            world: self.world,
            deployment: self.cluster.deployment.clone(),
            history: self.history.clone(),
            shape: self.shape,
            index,
            locked_in: None,
            life: self.lives,
            random: Random::for_purpose(self.seed, 1000 + self.lives),
        }
    }

    fn launch(
        &mut self,
        index: usize,
        work: fn(Worker) -> Result<(), String>,
    ) -> Result<Joining, String> {
        let worker = self.worker(index);
        self.join(index, index, move || work(worker))
    }

    /// Starts a client process on the machine with this number.
    fn join(
        &self,
        index: usize,
        machine: usize,
        work: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Joining, String> {
        let said = Arc::new(Mutex::new(None));
        let tell = said.clone();
        let machine = self.cluster.machines() + machine;
        let process = self
            .world
            .start(machine, &format!("client {index}"), move || {
                let result = work();
                *lock(&tell) = Some(result);
            })
            .map_err(|e| e.to_string())?;
        Ok(Joining { process, said })
    }

    /// Starts the parallel program, if the run has one. Ranks and nodes are numbered after the clients.
    fn start_program(&mut self) -> Result<(), String> {
        let (first, ranks) = (self.shape.clients, self.shape.ranks);
        let workers: Vec<Worker> = (first..first + ranks).map(|i| self.worker(i)).collect();
        let Some(life) = workers.first().map(|worker| worker.life) else {
            return Ok(());
        };
        let stream = Random::for_purpose(self.seed, PROGRAM + life);
        let program = Program::new(ranks, life, stream);
        for (rank, worker) in workers.into_iter().enumerate() {
            let program = program.clone();
            let node = first + if self.shape.one_node { 0 } else { rank % 2 };
            let work = move || Rank::run(worker, rank, program);
            self.clients[first + rank] = Some(self.join(first + rank, node, work)?);
        }
        Ok(())
    }

    /// kill -9 of a client, unless it has finished. Returns whether it was killed.
    fn kill_client(&mut self, index: usize) -> bool {
        let Some(client) = &self.clients[index] else {
            return false;
        };
        if lock(&client.said).is_some() {
            return false;
        }
        let mut state = self.world.state();
        state.kill(client.process);
        network::killed(&mut state, client.process, SECOND / 2);
        drop(state);
        self.clients[index] = None;
        self.effects.count(Effect::Crash);
        true
    }

    fn start_client(&mut self, index: usize) -> Result<(), String> {
        self.clients[index] = Some(self.launch(index, Worker::run)?);
        Ok(())
    }

    /// Fails as soon as a client has found a violation.
    fn look_at_clients(&self) -> Result<usize, String> {
        let mut running = 0;
        for (c, client) in self.clients.iter().enumerate() {
            let Some(client) = client else { continue };
            match &*lock(&client.said) {
                Some(Err(e)) => return Err(format!("client {c}: {e}")),
                Some(Ok(())) => {}
                None => running += 1,
            }
        }
        let state = self.world.state();
        match state.failures.first() {
            Some(failure) => Err(failure.clone()),
            None => Ok(running),
        }
    }

    fn wait_clients(&mut self) -> Result<(), String> {
        let end = self.now() + CALM;
        while self.look_at_clients()? > 0 {
            if self.now() > end {
                return Err(format!(
                    "no progress: {} s after the faults stopped, clients are not through: {}",
                    (SETTLE + CALM) / SECOND,
                    self.who_waits()
                ));
            }
            self.sleep(SECOND / 20);
        }
        Ok(())
    }

    fn who_waits(&self) -> String {
        let state = self.world.state();
        let mut all = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            if let Some(client) = client
                && lock(&client.said).is_none()
            {
                all.push(format!("client {c} {:?}", state.threads(client.process)));
            }
        }
        all.join(", ")
    }

    /// Runs a client alone, without faults.
    fn one_client(
        &mut self,
        what: &str,
        work: fn(Worker) -> Result<(), String>,
    ) -> Result<(), String> {
        for index in 0..self.shape.clients {
            let client = self.launch(index, work)?;
            let end = self.now() + CALM;
            loop {
                if let Some(said) = &*lock(&client.said) {
                    said.clone()
                        .map_err(|e| format!("{what}: client {index}: {e}"))?;
                    break;
                }
                if self.now() > end {
                    return Err(format!("no progress: {what}"));
                }
                self.sleep(SECOND / 50);
            }
            if what == "preparing" {
                break;
            }
        }
        Ok(())
    }

    // ---- faults ----

    fn suffer(&mut self) -> Result<(), String> {
        let began = self.now();
        let mut plan: VecDeque<_> = plan::plan(self.seed, &self.shape).into();
        let end = began + self.shape.time;
        loop {
            let now = self.now();
            self.look_at_clients()?;
            while plan.front().is_some_and(|(at, _)| began + *at <= now) {
                let Some((_, fault)) = plan.pop_front() else {
                    break;
                };
                self.say(&format!("{fault:?}"));
                self.faults += 1;
                self.inflict(fault)?;
            }
            self.carry_on(now)?;
            if now >= end && plan.is_empty() {
                return Ok(());
            }
            self.sleep(SECOND / 100);
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of fault")]
    fn inflict(&mut self, fault: Fault) -> Result<(), String> {
        let now = self.now();
        let mut later = |time, what| self.later.push((now + time, what));
        match fault {
            Fault::Break { share, late } => {
                let mut state = self.world.state();
                for id in state.net.all() {
                    if self.random.below(8) < share {
                        if late {
                            network::break_late(&mut state, id);
                        } else if self.random.one_in(2) {
                            network::drop_next(&mut state, id);
                        } else {
                            network::break_now(&mut state, id);
                        }
                    }
                }
            }
            Fault::Partition { a, b, time } => {
                network::partition(&mut self.world.state(), a, b, true);
                later(time, Later::Heal(a, b));
            }
            Fault::SlowNetwork { times, time } => {
                self.world.state().net.slow = times;
                later(time, Later::Network);
            }
            Fault::Kill { machine, down } => {
                if self.kill(machine)? {
                    self.later.push((now + down, Later::Start(machine)));
                }
            }
            Fault::Power {
                machine,
                accesses,
                down,
            } => {
                self.world.state().disks[machine].power = Some(accesses);
                // A machine that uses its disk less often than that is not affected.
                later(down, Later::Start(machine));
            }
            Fault::PowerBeforeSync { machine, down } => {
                self.world.state().disks[machine].before_sync = true;
                later(down, Later::Start(machine));
            }
            Fault::Full { machine, time } => {
                self.world.state().disks[machine].full = true;
                later(time, Later::Roomy(machine));
            }
            Fault::SlowDisk {
                machine,
                times,
                time,
            } => {
                self.world.state().disks[machine].slow = times;
                later(time, Later::FastDisk(machine));
            }
            Fault::BitRot {
                machine,
                target,
                down,
            } => {
                // If the journal cannot be written either, nothing shows that commits are missing.
                let full = machine == 0 && self.world.state().disks[0].full;
                if !full && !self.flipped.contains_key(&machine) && self.kill(machine)? {
                    self.flip(machine, target)?;
                    self.later.push((now + down, Later::Start(machine)));
                }
            }
            Fault::FailingSyncs { machine, time } => {
                self.world.state().disks[machine].failing = true;
                // The metadata server repairs its database itself.
                lock(&self.history).hurt |= machine > 0;
                later(time, Later::GoodDisk(machine));
            }
            Fault::FailingAccesses { machine, time } => {
                self.world.state().disks[machine].erring = true;
                lock(&self.history).hurt |= machine > 0;
                later(time, Later::GoodDisk(machine));
            }
            Fault::NoDescriptors { machine, time } => {
                self.world.state().disks[machine].without_descriptors = true;
                later(time, Later::GoodDisk(machine));
            }
            Fault::NoMemory { machine, time } => {
                self.world.state().disks[machine].starved = true;
                lock(&self.history).hurt |= machine > 0;
                later(time, Later::GoodDisk(machine));
            }
            Fault::Clock { machine, by, time } => {
                self.world.state().clocks.insert(machine, by);
                later(time, Later::RightClock(machine));
            }
            Fault::CopyStore { machine, down } => self.copy_store(machine, down)?,
            Fault::ReplaceStore {
                machine,
                with,
                renew,
            } => self.replace_store(machine, with, renew)?,
            Fault::KillClient { client } => {
                // A client that is down already is restarted anyway.
                if self.kill_client(client) {
                    self.later.push((now + SECOND, Later::Client(client)));
                }
            }
            Fault::KillProgram => {
                let first = self.shape.clients;
                let killed = (first..first + self.shape.ranks).map(|i| self.kill_client(i));
                if killed.filter(|killed| *killed).count() > 0 {
                    self.later.push((now + SECOND, Later::Program));
                }
            }
        }
        Ok(())
    }

    /// kill -9 of a server that is up; its page cache stays.
    fn kill(&mut self, machine: MachineId) -> Result<bool, String> {
        if self.cluster.status(machine) != Status::Up {
            return Ok(false);
        }
        self.cluster.gone(machine, SECOND / 20);
        self.effects.count(Effect::Crash);
        let mut state = self.world.state();
        let now = state.now;
        state.disks[machine]
            .forget_lock()
            .map_err(|e| e.to_string())?;
        drop(state);
        lock(&self.history).server_ended(machine, now, false);
        Ok(true)
    }

    /// Checks on the disks that users with quotas are within them.
    fn look_at_bytes(&self) -> Result<(), String> {
        let size = |id: FileId, machine| {
            // Objects of a replaced store do not count.
            if self.replaced.contains_key(&machine) {
                return 0;
            }
            let root = self.root.join(format!("machine-{machine}"));
            std::fs::metadata(bit_rot::object(&root, id)).map_or(0, |m| m.len())
        };
        match &lock(&self.history).ledger {
            Some(ledger) => ledger.within(size),
            None => Ok(()),
        }
    }

    /// Checks whether the power of a machine has failed, and does what is due.
    fn carry_on(&mut self, now: Nanos) -> Result<(), String> {
        self.look_at_bytes()?;
        for machine in 0..self.cluster.machines() {
            let Some(process) = self.cluster.process(machine) else {
                continue;
            };
            if !self.world.state().processes[process].alive {
                self.say(&format!("machine {machine} has lost its power"));
                self.cluster.gone(machine, 3 * SECOND);
                self.lose_power(machine)?;
                let down = SECOND / 2 + self.random.below(3 * SECOND);
                self.later.push((now + down, Later::Start(machine)));
                continue;
            }
            match self.cluster.status(machine) {
                Status::Failed(e) => {
                    self.say(&format!("server {machine} did not start: {e}"));
                    self.not_started(machine, &e)?;
                }
                Status::Up => self.has_started(machine),
                Status::Down | Status::Starting => {}
            }
        }
        let due: Vec<Later> = self
            .later
            .extract_if(.., |(at, _)| *at <= now)
            .map(|(_, what)| what)
            .collect();
        for what in due {
            self.undo(what)?;
        }
        Ok(())
    }

    fn undo(&mut self, what: Later) -> Result<(), String> {
        match what {
            Later::Start(machine) => {
                if self.cluster.process(machine).is_none() {
                    self.say(&format!("server {machine} starts"));
                    self.cluster.start(machine)?;
                }
            }
            Later::Heal(a, b) => network::partition(&mut self.world.state(), a, b, false),
            Later::Network => self.world.state().net.slow = 1,
            Later::Roomy(machine) => self.world.state().disks[machine].full = false,
            Later::FastDisk(machine) => self.world.state().disks[machine].slow = 1,
            Later::GoodDisk(machine) => self.world.state().disks[machine].heal(),
            Later::RightClock(machine) => {
                self.world.state().clocks.remove(&machine);
            }
            Later::Client(client) => self.start_client(client)?,
            Later::Program => self.start_program()?,
        }
        Ok(())
    }

    fn not_started(&mut self, machine: MachineId, why: &str) -> Result<(), String> {
        self.cluster.gone(machine, SECOND / 20);
        let now = self.now();
        let mut soon = SECOND;
        if self.refused(machine, why)? {
            return self.start_soon(machine, now + soon);
        }
        // It may have failed for another reason before it found the flipped bit; the disk may be good again by now. A
        // bit in a part of the journal that a commit covers is never read.
        let other = self.cluster.sync_failed(machine)
            || matches!(self.flipped.get(&machine), Some((flip, _)) if flip.target == Target::Journal);
        let flipped = if other && !why.contains("damaged") {
            None
        } else {
            self.flipped.remove(&machine)
        };
        if let Some((flip, _)) = flipped {
            // An administrator reads the message and restores the file.
            if !why.contains("damaged") {
                return Err(format!("a flipped bit was not called damage: {why}"));
            }
            bit_rot::undo(&flip).map_err(|e| e.to_string())?;
            let restored = self.world.state().disks[machine].restored(&flip.path);
            restored.map_err(|e| e.to_string())?;
            soon = 1;
        } else {
            let disk = &self.world.state().disks[machine];
            if !disk.full && disk.losses.is_empty() && disk.failed == 0 {
                return Err(format!("server {machine} does not start: {why}"));
            }
        }
        self.start_soon(machine, now + soon)
    }

    fn start_soon(&mut self, machine: MachineId, at: Nanos) -> Result<(), String> {
        let mut state = self.world.state();
        state.disks[machine]
            .forget_lock()
            .map_err(|e| e.to_string())?;
        drop(state);
        self.later.push((at, Later::Start(machine)));
        Ok(())
    }

    fn lose_power(&mut self, machine: MachineId) -> Result<(), String> {
        let mut state = self.world.state();
        let now = state.now;
        state.disks[machine]
            .lose_power(now)
            .map_err(|e| format!("simulated disk {machine}: {e}"))?;
        drop(state);
        lock(&self.history).server_ended(machine, now, true);
        Ok(())
    }

    fn losses(&self, machine: MachineId) -> usize {
        self.world.state().disks[machine].losses.len()
    }

    /// Flips one bit of the data of a machine's server, which is down.
    fn flip(&mut self, machine: MachineId, target: Target) -> Result<(), String> {
        let files: Vec<FileId> = lock(&self.history).files.iter().map(|f| f.id).collect();
        let root = self.root.join(format!("machine-{machine}"));
        let flip = bit_rot::flip(&root, target, &files, &mut self.random);
        let Some(flip) = flip.map_err(|e| e.to_string())? else {
            return Ok(());
        };
        let (at, name) = (flip.at, flip.path.strip_prefix(&self.root));
        self.say(&format!(
            "a bit of byte {at} of {name:?} flips ({target:?})"
        ));
        self.effects.count(Effect::BitFlip);
        let losses = self.losses(machine);
        let mut history = lock(&self.history);
        match (target, flip.object) {
            (Target::Database | Target::Superblock | Target::Journal, _) => {
                self.flipped.insert(machine, (flip, losses));
            }
            // The record's other header says what this one said.
            (Target::LogHeader, _) => {}
            (Target::Object, Some(object)) => {
                history.flipped(machine, object, at, flip.mask, self.shape.block);
            }
            (_, object) => {
                history.hurt = true;
                self.records.extend(object.map(|o| (machine, o, losses)));
            }
        }
        Ok(())
    }
}
