//! A whole deployment in one process and a temporary directory.
#![allow(dead_code, clippy::unwrap_used)]
pub mod net;

use penstock_client::{Client, ClientOptions, CreateOptions, Identity, OpenOptions};
use penstock_layout::ServerId;
use penstock_rpc::RunningServer;
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_wire::{Key, Role};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// What the servers of a test deployment look like.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub servers: u32,
    pub stripe_unit: u64,
    pub memory: bool,
    pub tcp: bool,
    /// Whoever is between client and server ([`net::Net`]) reads what they say.
    pub plain: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            servers: 4,
            stripe_unit: 64 << 10,
            memory: false,
            tcp: false,
            plain: false,
        }
    }
}

/// Keys, sockets and stores under `dir`.
pub fn deployment(dir: &Path, plan: Plan) -> Deployment {
    let key = |name: &str| {
        let path = dir.join(name);
        Key::generate().unwrap().save(&path).unwrap();
        path
    };
    let address = |name: &str| {
        if plan.tcp {
            // Ports are found by binding: free now, and taken again at once.
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            Address {
                unix: None,
                tcp: Some(free.local_addr().unwrap().to_string()),
                identity: None,
            }
        } else {
            Address {
                unix: Some(dir.join(name)),
                tcp: None,
                identity: None,
            }
        }
    };
    let mut deployment = Deployment {
        id: Deployment::new_id().unwrap(),
        name: "test".into(),
        stripe_unit: plan.stripe_unit,
        mount: None,
        tune: Vec::new(),
        client_key: key("client.key"),
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: None,
        meta: MetaServer {
            address: address("meta.sock"),
            store: dir.join("meta"),
            identity_key: None,
            host: None,
        },
        servers: (0..plan.servers)
            .map(|i| DataServer {
                id: ServerId(i),
                address: address(&format!("data{i}.sock")),
                store: if plan.memory {
                    "memory".into()
                } else {
                    format!("dir:{}", dir.join(format!("data{i}")).display())
                },
                identity_key: None,
                host: None,
            })
            .collect(),
        transport: if plan.plain {
            Transport::PlainTrustedNetwork
        } else {
            Transport::Tls
        },
    };
    deployment.make_keys(dir).unwrap();
    deployment
}

/// A directory in memory where the system has a place for that: tests need not wait for a disk.
pub fn temporary() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::with_prefix_in("penstock", memory).unwrap()
    } else {
        TempDir::with_prefix("penstock").unwrap()
    }
}

pub struct Cluster {
    pub deployment: Deployment,
    pub meta: Option<RunningServer>,
    pub data: Vec<Option<RunningServer>>,
    pub dir: TempDir,
}

impl Cluster {
    pub fn start(plan: Plan) -> Cluster {
        Cluster::start_in(temporary(), plan)
    }

    pub fn start_in(dir: TempDir, plan: Plan) -> Cluster {
        let deployment = deployment(dir.path(), plan);
        let mut cluster = Cluster {
            data: deployment.servers.iter().map(|_| None).collect(),
            meta: None,
            deployment,
            dir,
        };
        cluster.start_meta();
        for i in 0..plan.servers {
            cluster.start_data(i);
        }
        cluster
    }

    pub fn start_meta(&mut self) {
        self.meta = None;
        let server = penstock_meta::start(&self.deployment, penstock_meta::Options::default());
        self.meta = Some(server.unwrap());
    }

    pub fn start_data(&mut self, i: u32) {
        self.data[i as usize] = None;
        let server = start_data(&self.deployment, i);
        self.data[i as usize] = Some(server);
    }

    pub fn client(&self) -> Client {
        self.client_with(options())
    }

    pub fn client_with(&self, options: ClientOptions) -> Client {
        let who = Identity {
            program: 7,
            rank: 0,
        };
        Client::connect_with(&self.deployment, who, Role::Client, options).unwrap()
    }
}

pub fn start_data(deployment: &Deployment, i: u32) -> RunningServer {
    penstock_server::start(deployment, ServerId(i), penstock_server::Options::default()).unwrap()
}

/// Short enough that a test which waits for a limit ends soon.
pub fn options() -> ClientOptions {
    ClientOptions {
        retry_limit: Duration::from_secs(10),
        answer_timeout: Duration::from_secs(20),
        lock_timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    }
}

pub fn create(stripe_unit: u64, servers: u32) -> OpenOptions {
    OpenOptions {
        read: true,
        write: true,
        create: Some(CreateOptions {
            mode: 0o644,
            stripe_unit: Some(stripe_unit),
            stripe_count: Some(servers),
            start_server: None,
        }),
        exclusive: false,
    }
}
