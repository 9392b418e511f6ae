//! A hostile user who may read one file, against the users who write it.
//!
//! `stranger DEPLOYMENT PATH SECONDS` opens PATH for reading, over and over until the time is over, and
//!
//! - asks each data server for a descriptor; enters the grant page of what it gets and stays, and locks the object with
//!   flock(2);
//! - holds and wants shared locks over the whole file, on several connections at once;
//! - takes all counters of the metadata server that it gets.
//!
//! Prints one JSON line: what it got. It holds everything until the end.
//!
//! `stranger take DEPLOYMENT PATH SECONDS` takes as many connections to all servers as it gets. By those to the first
//! data server it takes as many shared locks on bytes of PATH as it gets in that time. Prints one JSON line and holds
//! everything until the end of its input.
//!
//! `stranger cut DEPLOYMENT PATH SECONDS` is the owner of PATH. It gets descriptors of the file's objects, and
//! repeatedly truncates them to nothing and extends them again, without the servers. Prints one JSON line: how many it
//! got, and how often it cut.
mod raw;

use penstock_rpc::deployment::Deployment;
use penstock_rpc::grant::GrantPage;
use penstock_rpc::{Connection, Timeouts, connect};
use penstock_wire::Role;
use penstock_wire::message::{
    Capability, DataReply, DataRequest, LockMode, MetaReply, MetaRequest,
};
use raw::{Result, ask};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connections to each data server that want locks.
const LOCKERS: usize = 8;
/// Beyond what the metadata server has.
const COUNTERS: u128 = 70_000;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Default, Serialize)]
struct Got {
    descriptors: u64,
    refusals: Vec<String>,
    locks: u64,
    lost_locks: u64,
    counters: u64,
}

#[derive(Debug, Default, Serialize)]
struct Taken {
    /// To each server, the metadata server last.
    connections: Vec<usize>,
    locks: u64,
    /// What it was told when it got no more connections, and no more locks.
    refusals: Vec<String>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["take", directory, path, seconds] => take(directory, path, seconds),
        ["cut", directory, path, seconds] => cut(directory, path, seconds),
        [directory, path, seconds] => disturb(directory, path, seconds),
        _ => Err("usage: stranger [take|cut] DEPLOYMENT PATH SECONDS".into()),
    }
}

fn until(seconds: &str) -> Result<Instant> {
    Ok(Instant::now() + Duration::from_secs_f64(seconds.parse()?))
}

fn take(directory: &str, path: &str, seconds: &str) -> Result<()> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit {
        current: most,
        maximum: most,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
    let deployment = Deployment::load(Path::new(directory))?;
    let mut taken = Taken::default();
    let capability = opened(&mut connected(&deployment, None)?, path, false)?;
    let mut kept = Vec::new();
    let servers = (0..deployment.servers.len()).map(Some);
    for server in servers.chain([None]) {
        let mut connections = Vec::new();
        let refusal = loop {
            match connected(&deployment, server) {
                Ok(connection) => connections.push(connection),
                Err(e) => break e.to_string(),
            }
        };
        taken.refusals.push(refusal);
        taken.connections.push(connections.len());
        kept.push(connections);
    }
    let until = until(seconds)?;
    'taking: for connection in &mut kept[0] {
        let attach = DataRequest::Attach {
            capability: capability.clone(),
        };
        let DataReply::Attached { handle, .. } = ask(connection, &attach)? else {
            break;
        };
        for start in 0.. {
            let lock = DataRequest::Lock {
                handle,
                start,
                end: start + 1,
                mode: LockMode::Shared,
                timeout_ms: 60_000,
            };
            match ask(connection, &lock)? {
                DataReply::Locked { .. } => taken.locks += 1,
                // A connection may have some, and the user too.
                DataReply::Error(e) if e.message.contains("this connection") => break,
                DataReply::Error(e) => {
                    taken.refusals.push(e.message);
                    break 'taking;
                }
                other => return Err(format!("{other:?}").into()),
            }
            if Instant::now() >= until {
                break 'taking;
            }
        }
    }
    println!("{}", serde_json::to_string(&taken)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn disturb(directory: &str, path: &str, seconds: &str) -> Result<()> {
    let deployment = Deployment::load(Path::new(directory))?;
    let until = until(seconds)?;
    let mut got = Got::default();
    let mut meta = connected(&deployment, None)?;
    let capability = opened(&mut meta, path, false)?;
    let _kept = descriptors(&deployment, &capability, &mut got)?;
    std::thread::scope(|scope| {
        let capability = &capability;
        let lockers: Vec<_> = (0..deployment.servers.len())
            .flat_map(|server| (0..LOCKERS).map(move |_| server))
            .map(|server| {
                let deployment = &deployment;
                scope.spawn(move || lock_over_and_over(deployment, server, capability, until))
            })
            .collect();
        for token in 0..COUNTERS {
            if Instant::now() >= until {
                break;
            }
            let create = MetaRequest::CounterCreate { token, value: 0 };
            match ask(&mut meta, &create)? {
                MetaReply::Error(_) => break,
                _ => got.counters += 1,
            }
        }
        for locker in lockers {
            let (locks, lost) = locker.join().map_err(|_| "a locker panicked")??;
            got.locks += locks;
            got.lost_locks += lost;
        }
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    })?;
    println!("{}", serde_json::to_string(&got)?);
    Ok(())
}

fn cut(directory: &str, path: &str, seconds: &str) -> Result<()> {
    let deployment = Deployment::load(Path::new(directory))?;
    let until = until(seconds)?;
    let capability = opened(&mut connected(&deployment, None)?, path, true)?;
    let mut objects = Vec::new();
    for server in &capability.layout.servers {
        let mut connection = connected(&deployment, Some(server.0 as usize))?;
        let attach = DataRequest::Attach {
            capability: capability.clone(),
        };
        let DataReply::Attached { handle, .. } = ask(&mut connection, &attach)? else {
            continue;
        };
        let DataReply::Shortcut { .. } = ask(&mut connection, &DataRequest::Shortcut { handle })?
        else {
            continue;
        };
        if let Some(object) = connection.take_descriptors().into_iter().next() {
            let len = rustix::fs::fstat(&object)?.st_size;
            objects.push((object, u64::try_from(len)?, connection));
        }
    }
    let mut cuts = 0u64;
    while Instant::now() < until {
        for (object, len, _) in &objects {
            for len in [0, *len] {
                rustix::fs::ftruncate(object, len)?;
            }
            cuts += 1;
        }
    }
    println!(
        "{}",
        serde_json::json!({ "descriptors": objects.len(), "cuts": cuts })
    );
    Ok(())
}

fn opened(meta: &mut Connection, path: &str, write: bool) -> Result<Capability> {
    let open = MetaRequest::Open {
        path: path.into(),
        read: true,
        write,
        create: None,
        exclusive: false,
    };
    match ask(meta, &open)? {
        MetaReply::Opened { capability, .. } => Ok(capability),
        other => Err(format!("{other:?}").into()),
    }
}

/// Whatever descriptors there are to be had, each locked and in use for good.
fn descriptors(
    deployment: &Deployment,
    capability: &Capability,
    got: &mut Got,
) -> Result<Vec<Box<dyn std::any::Any>>> {
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    for server in 0..deployment.servers.len() {
        let mut connection = connected(deployment, Some(server))?;
        let attach = DataRequest::Attach {
            capability: capability.clone(),
        };
        let DataReply::Attached { handle, .. } = ask(&mut connection, &attach)? else {
            continue;
        };
        let asked = [
            DataRequest::Shortcut { handle },
            DataRequest::Lend {
                handle,
                write: false,
            },
        ];
        for request in asked {
            if let DataReply::NoShortcut { reason } = ask(&mut connection, &request)? {
                got.refusals.push(reason);
                continue;
            }
            let mut passed = connection.take_descriptors().into_iter();
            let Some(object) = passed.next() else {
                continue;
            };
            got.descriptors += 1;
            flock(&object, FlockOperation::NonBlockingLockExclusive)?;
            if let Some(page) = passed.next() {
                let page = GrantPage::open(page)?;
                std::mem::forget(page.enter());
                kept.push(Box::new(page));
            }
            kept.push(Box::new(object));
        }
        kept.push(Box::new(connection));
    }
    Ok(kept)
}

/// Locks granted, and how many of them were gone when it wanted to give them back.
fn lock_over_and_over(
    deployment: &Deployment,
    server: usize,
    capability: &Capability,
    until: Instant,
) -> Result<(u64, u64)> {
    let mut connection = connected(deployment, Some(server))?;
    let attach = DataRequest::Attach {
        capability: capability.clone(),
    };
    let DataReply::Attached { handle, .. } = ask(&mut connection, &attach)? else {
        return Ok((0, 0));
    };
    let (mut locks, mut lost) = (0, 0);
    while Instant::now() < until {
        let lock = DataRequest::Lock {
            handle,
            start: 0,
            end: 1 << 62,
            mode: LockMode::Shared,
            timeout_ms: 60_000,
        };
        let DataReply::Locked { lock } = ask(&mut connection, &lock)? else {
            std::thread::sleep(PAUSE);
            continue;
        };
        locks += 1;
        // Used again and again, which makes a lock last.
        while Instant::now() < until {
            std::thread::sleep(PAUSE);
            let read = DataRequest::Read {
                handle,
                region: penstock_wire::message::Region::Contiguous { offset: 0, len: 1 },
                lock: Some(lock),
            };
            if let DataReply::Error(_) = ask(&mut connection, &read)? {
                lost += 1;
                break;
            }
        }
    }
    Ok((locks, lost))
}

/// To a data server, or to the metadata server.
fn connected(deployment: &Deployment, server: Option<usize>) -> Result<Connection> {
    let address = match server {
        Some(server) => &deployment.servers[server].address,
        None => &deployment.meta.address,
    };
    let timeouts = Timeouts {
        read: Some(Duration::from_secs(90)),
        write: Some(Duration::from_secs(5)),
    };
    Ok(connect(
        address,
        &deployment.caller(Role::Client, 1, 0)?,
        timeouts,
    )?)
}
