//! Data servers with a wrong time after a start. A server's record of the time is edited between two starts. It is then
//! as a wrong clock of its host or a copied store would have left it.
use crate::common::{Cluster, Plan, create, options};
use penstock_client::{Client, Identity, OpenOptions};
use penstock_datatype::{Pattern, Source, Target};
use penstock_host::time::{since_boot, since_epoch};
use penstock_rpc::{Timeouts, connect};
use penstock_wire::clock::Kept;
use penstock_wire::message::{
    Capability, DataReply, DataRequest, ErrorKind, MetaReply, MetaRequest,
};
use penstock_wire::{Envelope, Rights, Role};
use std::time::{Duration, Instant};

const HOUR_MS: u64 = 3_600_000;

fn wall_ms() -> u64 {
    since_epoch().as_millis() as u64
}

/// A deployment of one data server with a file `/f` that says "before".
fn cluster() -> Cluster {
    let cluster = Cluster::start(Plan {
        servers: 1,
        ..Plan::default()
    });
    write(&cluster.client(), b"before");
    cluster
}

fn open(client: &Client) -> penstock_client::File {
    let how = OpenOptions { ..create(1000, 1) };
    client.open("/f", &how).unwrap()
}

fn write(client: &Client, bytes: &[u8]) {
    let access = Pattern::contiguous(0, bytes.len() as u64);
    let form = penstock_client::Form::Contiguous;
    let done = open(client).write(&access, form, &mut Source::from_slice(bytes));
    done.unwrap();
}

fn read(client: &Client, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let access = Pattern::contiguous(0, len as u64);
    let form = penstock_client::Form::Contiguous;
    let mut target = Target::from_slice(&mut bytes);
    open(client).read(&access, form, &mut target).unwrap();
    drop(target);
    bytes
}

/// Starts the data server again after it has kept something else.
fn restart(cluster: &mut Cluster, kept: &str) {
    cluster.data[0] = None;
    std::fs::write(cluster.dir.path().join("data0/clock"), kept).unwrap();
    cluster.start_data(0);
}

fn kept(boot: u128, time_ms: u64) -> String {
    Kept {
        boot,
        steady_ms: since_boot().as_millis() as u64,
        time_ms,
    }
    .encode()
}

fn boot() -> u128 {
    penstock_host::boot().unwrap()
}

/// What the data server says to a capability that was given and ended at these times.
fn attach(cluster: &Cluster, issued_ms: u64, expires_ms: u64) -> DataReply {
    let seals = cluster.deployment.meta_identity().unwrap().seals();
    let client = cluster.client();
    let file = open(&client);
    let rights = Rights {
        read: true,
        ..Rights::default()
    };
    let life = issued_ms..expires_ms;
    let capability = Capability::grant(
        &seals,
        rustix::process::geteuid().as_raw(),
        file.id(),
        rights,
        life,
        None,
        file.layout().clone(),
    )
    .unwrap();
    let caller = cluster.deployment.caller(Role::Client, 1, 0).unwrap();
    let address = cluster.data[0].as_ref().unwrap().address().clone();
    let mut link = connect(&address, &caller, Timeouts::default()).unwrap();
    let request = DataRequest::Attach { capability };
    let answer = link.call(&Envelope::default(), &request, &mut false);
    answer.unwrap().body.unwrap()
}

#[track_caller]
fn expired(reply: DataReply) {
    assert!(
        matches!(&reply, DataReply::Error(e) if e.kind == ErrorKind::ExpiredCapability),
        "{reply:?}"
    );
}

#[test]
fn a_server_an_hour_ahead_takes_new_capabilities() {
    let mut cluster = cluster();
    // In this boot it would be sure of it, after another one it is a bound.
    for boot in [boot(), boot() ^ 1] {
        restart(&mut cluster, &kept(boot, wall_ms() + HOUR_MS));
        let client = cluster.client();
        assert_eq!(read(&client, 6), b"before");
        write(&client, b"before");
        expired(attach(&cluster, wall_ms() - 600_000, wall_ms() - 5_000));
    }
}

#[test]
fn a_server_an_hour_behind_refuses_what_has_expired() {
    let mut cluster = cluster();
    restart(&mut cluster, &kept(boot(), wall_ms() - HOUR_MS));
    expired(attach(&cluster, wall_ms() - 600_000, wall_ms() - 5_000));
    assert_eq!(read(&cluster.client(), 6), b"before");
}

#[test]
fn what_was_kept_may_be_missing_or_damaged() {
    let mut cluster = cluster();
    for bad in ["", "rubbish"] {
        restart(&mut cluster, bad);
        assert_eq!(read(&cluster.client(), 6), b"before");
    }
    let path = cluster.dir.path().join("data0/clock");
    cluster.data[0] = None;
    std::fs::remove_file(&path).unwrap();
    cluster.start_data(0);
    assert_eq!(read(&cluster.client(), 6), b"before");
    // The right time is kept as soon as it is known, and no check calls the file foreign.
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let now = Kept::decode(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(now.time_ms.abs_diff(wall_ms()) < HOUR_MS / 60);
    let who = Identity::default();
    let admin = Client::connect_with(&cluster.deployment, who, Role::Admin, options()).unwrap();
    let report = penstock_client::check(&admin, &Default::default(), &mut |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn without_the_metadata_server_a_server_judges_by_what_it_has() {
    let mut cluster = cluster();
    let client = cluster.client();
    let file = open(&client);
    let meta = cluster.meta.take();
    drop(meta);
    restart(&mut cluster, "");
    // Its wall clock is right. The wait for an answer is bounded, as is that of each request.
    let mut bytes = [0; 6];
    let access = Pattern::contiguous(0, 6);
    let form = penstock_client::Form::Contiguous;
    file.read(&access, form, &mut Target::from_slice(&mut bytes))
        .unwrap();
    assert_eq!(&bytes, b"before");
}

#[test]
fn the_metadata_servers_time_goes_on_after_a_restart() {
    let mut cluster = cluster();
    let ask = |cluster: &Cluster| {
        let caller = cluster.deployment.caller(Role::Client, 1, 0).unwrap();
        let address = &cluster.deployment.meta.address;
        let mut link = connect(address, &caller, Timeouts::default()).unwrap();
        let answer = link.call(&Envelope::default(), &MetaRequest::Time, &mut false);
        match answer.unwrap().body {
            Some(MetaReply::Time { issue_ms, wall_ms }) => (issue_ms, wall_ms),
            other => panic!("{other:?}"),
        }
    };
    let (before, wall) = ask(&cluster);
    assert!(before.abs_diff(wall) < HOUR_MS / 60);
    cluster.meta = None;
    // It was an hour ahead: its clock has been set since.
    let path = cluster.dir.path().join("meta/clock");
    std::fs::write(&path, kept(boot() ^ 1, wall_ms() + HOUR_MS)).unwrap();
    cluster.start_meta();
    let (after, wall) = ask(&cluster);
    assert!(after >= before + HOUR_MS && wall < after);
    // The data server goes with it: what it has got by then is taken, and ends when it has to.
    assert_eq!(read(&cluster.client(), 6), b"before");
    expired(attach(&cluster, after - 600_000, after - 5_000));
}
