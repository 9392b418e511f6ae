//! The servers of a run: they are started, killed and restarted.
use crate::plant::Plant;
use crate::world::{MachineId, Nanos, ProcessId, SECOND, Simulation, lock};
use penstock_layout::ServerId;
use penstock_rpc::ServeLimits;
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_server::Registration;
use penstock_wire::Key;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The size of a run, drawn from its seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSize {
    pub servers: usize,
    pub clients: usize,
    pub files: usize,
    pub blocks: u64,
    /// Bytes of a block.
    pub block: u64,
    /// Virtual time during which faults happen.
    pub time: Nanos,
    /// Longest pause between operations of a client.
    pub pause: Nanos,
    /// The algorithm of the data servers' schedulers.
    pub scheduler: &'static str,
    /// Whether connections are TLS sessions.
    pub tls: bool,
    /// Whether users have credentials of their own, which expire or are revoked.
    pub users: bool,
    /// Ranks of a parallel program beside the clients; 0: none.
    pub ranks: usize,
    /// Whether all its ranks are on one node; else they are on two.
    pub one_node: bool,
    /// Quota on bytes of some users.
    pub limit: Option<u64>,
    /// Whether data servers have fast tiers, on the same disks.
    pub fast: Option<&'static str>,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Down,
    Starting,
    Up,
    /// Its start failed, for this reason.
    Failed(String),
}

struct Server {
    process: Option<ProcessId>,
    status: Arc<Mutex<Status>>,
    /// Failed syncs of its machine before its start.
    failed: u64,
    /// Whether it makes a new store to replace a lost one.
    renew: bool,
    /// Whether it is a restart.
    again: bool,
}

/// The servers of a run.
pub(crate) struct Cluster {
    world: &'static Simulation,
    pub deployment: Deployment,
    /// By machine.
    servers: Vec<Server>,
    limits: ServeLimits,
    ask_time: bool,
    /// Whether data servers ask if their stores are the right ones.
    register: bool,
    /// Whether restarted data servers ask for leases on bytes.
    lease_again: bool,
}

/// Where the fast tier of a data server is in its store: a name that no store looks into.
pub(crate) const FAST: &str = "lost+found";
/// Bytes of its log.
const QUEUE: u64 = 1 << 20;

/// Life of a capability in a run.
const CAPABILITY: Duration = Duration::from_secs(4);
/// Connections of one server.
const CONNECTIONS: usize = 64;

/// The deployment file of a run; keys are in `root`.
pub(crate) fn deployment(root: &Path, shape: &RunSize) -> Result<Deployment, String> {
    let text = |e: penstock_wire::Error| e.to_string();
    let client_key = root.join("client.key");
    let identities = (0..shape.servers).map(|s| root.join(format!("data-{s}.key")));
    let keys = [
        client_key.clone(),
        root.join("authority.key"),
        root.join("meta.key"),
    ];
    for (n, path) in keys.into_iter().chain(identities).enumerate() {
        Key::from_bytes([n as u8 + 1; 32])
            .save(&path)
            .map_err(text)?;
    }
    let at = |machine: usize| Address {
        unix: None,
        tcp: Some(format!("machine-{machine}:7000")),
        identity: None,
    };
    let mut deployment = Deployment {
        id: "0123456789abcdef0123456789abcdef".into(),
        name: "faults".into(),
        stripe_unit: 4096,
        mount: None,
        tune: [
            Some(format!("sched={}", shape.scheduler)),
            Some("depth=1".to_owned()),
            shape.fast.map(|mode| format!("fast={mode}")),
        ]
        .into_iter()
        .flatten()
        .collect(),
        client_key,
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: None,
        meta: MetaServer {
            address: at(0),
            store: root.join("machine-0"),
            identity_key: None,
            host: None,
        },
        servers: (0..shape.servers)
            .map(|s| DataServer {
                id: ServerId(s as u32),
                address: at(s + 1),
                store: {
                    let machine = root.join(format!("machine-{}", s + 1));
                    let slow = format!("dir:{}", machine.display());
                    match shape.fast {
                        Some(_) => {
                            format!("fast:{},queue={QUEUE};{slow}", machine.join(FAST).display())
                        }
                        None => slow,
                    }
                },
                identity_key: None,
                host: None,
            })
            .collect(),
        transport: if shape.tls {
            Transport::Tls
        } else {
            Transport::PlainTrustedNetwork
        },
    };
    deployment.make_keys(root).map_err(text)?;
    deployment.validate()?;
    Ok(deployment)
}

impl Cluster {
    pub fn new(
        world: &'static Simulation,
        deployment: Deployment,
        plant: Option<Plant>,
    ) -> Cluster {
        let usual = ServeLimits::default();
        let servers = (0..=deployment.servers.len())
            .map(|_| Server {
                process: None,
                status: Arc::new(Mutex::new(Status::Down)),
                failed: 0,
                renew: false,
                again: false,
            })
            .collect();
        Cluster {
            world,
            deployment,
            servers,
            ask_time: plant != Some(Plant::TrustedClock),
            register: plant != Some(Plant::AnyStore),
            lease_again: plant != Some(Plant::NoLease),
            limits: ServeLimits {
                connections: CONNECTIONS,
                fence: usual.fence.filter(|_| plant != Some(Plant::NoFence)),
                ..usual
            },
        }
    }

    /// Metadata server and data servers.
    pub fn machines(&self) -> usize {
        self.servers.len()
    }

    /// Starts the server of a machine.
    pub fn start(&mut self, machine: MachineId) -> Result<(), String> {
        let status = Arc::new(Mutex::new(Status::Starting));
        let deployment = self.deployment.clone();
        let (limits, ask_time) = (self.limits, self.ask_time);
        let renew = self.servers[machine].renew;
        let ask_leases = self.lease_again || !self.servers[machine].again;
        let registration = self.register.then(|| Registration {
            renew,
            ..Registration::default()
        });
        let report = status.clone();
        let body = move || {
            let running = if machine == 0 {
                let options = penstock_meta::Options {
                    capability_lifetime: CAPABILITY,
                    limits,
                    ..penstock_meta::Options::default()
                };
                penstock_meta::start(&deployment, options).map_err(|e| e.to_string())
            } else {
                let options = penstock_server::Options {
                    lock_lease: Duration::from_secs(3),
                    ask_time,
                    ask_leases,
                    registration,
                    limits,
                    ..penstock_server::Options::default()
                };
                let id = ServerId(machine as u32 - 1);
                penstock_server::start(&deployment, id, options).map_err(|e| e.to_string())
            };
            match running {
                Ok(running) => {
                    *lock(&report) = Status::Up;
                    running.wait();
                    *lock(&report) = Status::Down;
                }
                Err(e) => *lock(&report) = Status::Failed(e),
            }
        };
        let failed = self.world.state().disks[machine].failed;
        let process = self
            .world
            .start(machine, &format!("server {machine}"), body)
            .map_err(|e| e.to_string())?;
        self.servers[machine] = Server {
            process: Some(process),
            status,
            failed,
            renew,
            again: true,
        };
        Ok(())
    }

    /// Sets whether the server of a machine makes a new store to replace a lost one from its next start on.
    pub fn renew(&mut self, machine: MachineId, renew: bool) {
        self.servers[machine].renew = renew;
    }

    pub fn status(&self, machine: MachineId) -> Status {
        lock(&self.servers[machine].status).clone()
    }

    /// Whether a sync of a machine has failed since its server started last.
    pub fn sync_failed(&self, machine: MachineId) -> bool {
        self.world.state().disks[machine].failed > self.servers[machine].failed
    }

    /// The running process on a machine; the end of a process is reported once.
    pub fn process(&self, machine: MachineId) -> Option<ProcessId> {
        self.servers[machine].process
    }

    /// The process on a machine has ended; its connections break within `linger`.
    pub fn gone(&mut self, machine: MachineId, linger: Nanos) {
        let Some(process) = self.servers[machine].process.take() else {
            return;
        };
        *lock(&self.servers[machine].status) = Status::Down;
        let mut state = self.world.state();
        if state.processes[process].alive {
            state.kill(process);
        }
        crate::network::killed(&mut state, process, linger);
    }

    /// Waits until a server is up, restarting it when its start fails; at most `limit`.
    pub fn wait_up(&mut self, machine: MachineId, limit: Nanos) -> Result<(), String> {
        let end = self.world.state().now + limit;
        loop {
            match self.status(machine) {
                Status::Up => return Ok(()),
                Status::Starting => {}
                Status::Failed(e) => {
                    if self.world.state().now > end {
                        return Err(format!("server {machine} does not start: {e}"));
                    }
                    self.pause(SECOND / 2);
                    self.start(machine)?;
                }
                Status::Down => self.start(machine)?,
            }
            if self.world.state().now > end {
                return Err(format!(
                    "server {machine} is not up after {} s: {:?}",
                    limit / SECOND,
                    self.status(machine)
                ));
            }
            self.pause(SECOND / 100);
        }
    }

    fn pause(&self, time: Nanos) {
        penstock_host::thread::sleep(Duration::from_nanos(time));
    }

    /// The bound on a server's threads: one per session, one per unauthenticated connection, and its own.
    pub fn most_threads(&self) -> usize {
        self.limits.connections + 8 + self.limits.half_open + 5
    }

    /// The bound on a server's memory without connections: its tables and what it keeps of files.
    pub const BYTES_AT_REST: u64 = 8 << 20;

    /// The bound on the memory of a server that had this many threads. It is the memory at rest, and for each
    /// connection a message, a chunk and the working memory of an access.
    pub fn most_bytes(threads: usize) -> u64 {
        Self::BYTES_AT_REST + threads as u64 * (3 << 20)
    }

    /// Threads of a server without connections.
    pub fn own_threads(machine: MachineId, shape: &RunSize) -> usize {
        // Both have a main thread and an acceptor. The metadata server has its committer, and two connections of each
        // data server (control channel, and reports on its store). A data server has a clock, revocations, reports,
        // background syncs, byte counts and the queue's timer.
        match machine {
            0 => 3 + 2 * shape.servers,
            // Its fast tier brings bytes home.
            _ => 8 + usize::from(shape.fast.is_some()),
        }
    }
}
