//! Rates of the metadata server over a Unix socket and a raw wire connection. One JSON line per figure:
//! {"name": …, "per_s": …}. Usage: rates [seconds per figure] [directory of the store] [part of a name]
use penstock_layout::ServerId;
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_rpc::{Connection, Timeouts};
use penstock_wire::message::{CreateOptions, MetaReply, MetaRequest, SlotAt};
use penstock_wire::{Envelope, Key, Role};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const FILES: u64 = 10_000;
const BATCH: u64 = 1000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |s| s.parse())?;
    let base = arguments.next().unwrap_or_else(|| "target".into());
    std::fs::create_dir_all(&base)?;
    let dir = tempfile::tempdir_in(base)?;
    let deployment = deployment(dir.path())?;
    let server = penstock_meta::start(&deployment, penstock_meta::Options::default())?;
    let only = arguments.next().unwrap_or_default();
    // Figures that were not requested get no time.
    let period = |name: &str| {
        let asked = name.contains(&only);
        Duration::from_secs_f64(if asked { seconds } else { 0.0 })
    };
    let mut c = Client::new(&deployment)?;

    c.call(mkdir("/stat"))?;
    for i in 0..FILES {
        c.call(create(format!("/stat/{i}")))?;
    }
    single(&mut c, "status/depth 1", &period, |_| MetaRequest::Status)?;
    single(&mut c, "stat/depth 1", &period, |i| MetaRequest::Stat {
        path: format!("/stat/{}", i % FILES),
    })?;
    single(&mut c, "open/depth 1", &period, |i| {
        open(format!("/stat/{}", i % FILES))
    })?;
    c.call(mkdir("/one"))?;
    single(&mut c, "create/depth 1", &period, |i| {
        create(format!("/one/{i}"))
    })?;
    let session = 1;
    c.call(MetaRequest::OpenSession { session })?;
    c.call(mkdir("/once"))?;
    single(&mut c, "create in a slot/depth 1", &period, |i| {
        MetaRequest::Once {
            at: SlotAt {
                session,
                slot: 0,
                sequence: i + 1,
            },
            request: Box::new(create(format!("/once/{i}"))),
        }
    })?;
    batches(&mut c, "stat/batch 1000", &period, |i| MetaRequest::Stat {
        path: format!("/stat/{}", i % FILES),
    })?;
    batches(&mut c, "open/batch 1000", &period, |i| {
        open(format!("/stat/{}", i % FILES))
    })?;
    c.call(mkdir("/many"))?;
    batches(&mut c, "create/batch 1000", &period, |i| {
        create(format!("/many/{i}"))
    })?;
    for connections in [1, 4, 16, 64] {
        durable(&deployment, connections, &period)?;
    }
    c.call(mkdir("/batches"))?;
    run("create and sync/batch 1000", &period, |i| {
        let from = i * BATCH;
        let mut requests: Vec<_> = (from..from + BATCH)
            .map(|i| create(format!("/batches/{i}")))
            .collect();
        requests.push(MetaRequest::Sync);
        c.call(MetaRequest::Batch(requests))?;
        Ok(BATCH)
    })?;
    server.stop();
    Ok(())
}

fn single(
    c: &mut Client,
    name: &str,
    period: &dyn Fn(&str) -> Duration,
    request: impl Fn(u64) -> MetaRequest,
) -> Result<()> {
    run(name, &period, |i| c.call(request(i)).map(|_| 1))
}

fn batches(
    c: &mut Client,
    name: &str,
    period: &dyn Fn(&str) -> Duration,
    request: impl Fn(u64) -> MetaRequest,
) -> Result<()> {
    run(name, &period, |i| {
        let from = i * BATCH;
        let requests = (from..from + BATCH).map(&request).collect();
        let MetaReply::Batch(replies) = c.call(MetaRequest::Batch(requests))? else {
            return Err("no batch came back".into());
        };
        for reply in replies {
            if let MetaReply::Error(e) = reply {
                return Err(e.into());
            }
        }
        Ok(BATCH)
    })
}

/// Calls `f` with 0, 1, … for the period and prints the rate of the returned counts.
fn run(
    name: &str,
    period: &dyn Fn(&str) -> Duration,
    mut f: impl FnMut(u64) -> Result<u64>,
) -> Result<()> {
    let (period, start) = (period(name), Instant::now());
    let (mut calls, mut done) = (0, 0);
    while start.elapsed() < period {
        done += f(calls)?;
        calls += 1;
    }
    if !period.is_zero() {
        print(name, done, start.elapsed());
    }
    Ok(())
}

fn print(name: &str, done: u64, time: Duration) {
    let per_s = done as f64 / time.as_secs_f64();
    println!("{{\"name\": \"{name}\", \"per_s\": {per_s:.0}}}");
}

/// Each connection creates and syncs, one file at a time.
fn durable(
    deployment: &Deployment,
    connections: u64,
    period: &dyn Fn(&str) -> Duration,
) -> Result<()> {
    let name = format!("create and sync/{connections} connections");
    let period = period(&name);
    if period.is_zero() {
        return Ok(());
    }
    let done = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|worker| {
                let done = &done;
                scope.spawn(move || -> Result<()> {
                    let mut c = Client::new(deployment)?;
                    let directory = format!("/durable-{connections}-{worker}");
                    c.call(mkdir(&directory))?;
                    let mut i = 0;
                    while start.elapsed() < period {
                        c.call(create(format!("{directory}/{i}")))?;
                        c.call(MetaRequest::Sync)?;
                        done.fetch_add(1, Ordering::Relaxed);
                        i += 1;
                    }
                    Ok(())
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    })?;
    print(&name, done.load(Ordering::Relaxed), start.elapsed());
    Ok(())
}

fn mkdir(path: &str) -> MetaRequest {
    MetaRequest::Mkdir {
        path: path.into(),
        mode: 0o700,
    }
}

fn create(path: String) -> MetaRequest {
    MetaRequest::Open {
        path,
        read: true,
        write: true,
        create: Some(CreateOptions {
            mode: 0o600,
            ..CreateOptions::default()
        }),
        exclusive: true,
    }
}

fn open(path: String) -> MetaRequest {
    MetaRequest::Open {
        path,
        read: true,
        write: true,
        create: None,
        exclusive: false,
    }
}

struct Client {
    connection: Connection,
    next: u64,
}

impl Client {
    fn new(deployment: &Deployment) -> Result<Client> {
        let caller = deployment.caller(Role::Client, 1, 0)?;
        let connection = penstock_rpc::connect(
            &deployment.meta.address,
            &caller,
            Timeouts {
                read: Some(Duration::from_secs(60)),
                write: Some(Duration::from_secs(60)),
            },
        )?;
        Ok(Client {
            connection,
            next: 0,
        })
    }

    fn call(&mut self, request: MetaRequest) -> Result<MetaReply> {
        let envelope = Envelope {
            request: self.next,
            ..Envelope::default()
        };
        self.next += 1;
        let answer = self.connection.call(&envelope, &request, &mut false)?;
        match answer.body {
            Some(MetaReply::Error(e)) => Err(e.into()),
            Some(reply) => Ok(reply),
            None => Err("an empty reply".into()),
        }
    }
}

fn deployment(dir: &Path) -> Result<Deployment> {
    let client_key = dir.join("client.key");
    Key::generate()?.save(&client_key)?;
    let address = |name: String| Address {
        unix: Some(dir.join(name)),
        tcp: None,
        identity: None,
    };
    let mut deployment = Deployment {
        id: Deployment::new_id()?,
        name: "rates".into(),
        stripe_unit: 65536,
        mount: None,
        tune: Vec::new(),
        client_key,
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: None,
        meta: MetaServer {
            address: address("meta.sock".into()),
            store: dir.join("meta"),
            identity_key: None,
            host: None,
        },
        servers: (0..4)
            .map(|i| DataServer {
                id: ServerId(i),
                address: address(format!("data-{i}.sock")),
                store: "memory".into(),
                identity_key: None,
                host: None,
            })
            .collect(),
        transport: Transport::default(),
    };
    deployment.make_keys(dir)?;
    Ok(deployment)
}
