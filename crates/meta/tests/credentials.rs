//! What a credential allows over TCP, and for how long.
use penstock_layout::{FileId, ServerId};
use penstock_meta::{Options, start};
use penstock_rpc::deployment::{Address, Deployment};
use penstock_rpc::{Connection, RunningServer, Timeouts, Wallet, connect};
use penstock_wire::credential::{Credential, Statement, Uids};
use penstock_wire::message::{
    Attributes, ErrorKind, MetaReply, MetaRequest, NOBODY, NodeReply, NodeRequest, StoreReport,
    StoreState, TraceContext, User,
};
use penstock_wire::{Envelope, KeyPair, Role};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const ROOT: FileId = FileId(1);

/// A metadata server that listens on TCP only.
struct Cluster {
    deployment: Deployment,
    _server: RunningServer,
    _dir: tempfile::TempDir,
}

fn cluster() -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let mut deployment = crate::common::deployment(dir.path());
    deployment.meta.address = Address {
        tcp: Some("127.0.0.1:0".into()),
        unix: None,
        ..deployment.meta.address
    };
    let server = start(&deployment, Options::default()).unwrap();
    deployment
        .meta
        .address
        .tcp
        .clone_from(&server.address().tcp);
    Cluster {
        deployment,
        _server: server,
        _dir: dir,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_millis() as u64
}

fn user(uid: u32) -> User {
    User {
        uid,
        gid: uid,
        groups: Vec::new(),
    }
}

/// A connection to the metadata server with a credential of user `uid`, adapted by `change`.
fn connected(cluster: &Cluster, uid: u32, change: impl FnOnce(&mut Statement)) -> Connection {
    let deployment = &cluster.deployment;
    let authority = KeyPair::load(deployment.authority_key.as_ref().unwrap()).unwrap();
    let life = now_ms()..now_ms() + 600_000;
    let mut statement = Statement::new(&deployment.id, user(uid), life);
    change(&mut statement);
    let credential = Credential::issue(&authority, statement).unwrap();
    let mut caller = deployment.caller(Role::Client, 1, 0).unwrap();
    caller.wallet = Arc::new(Wallet::holding(credential));
    connect(&deployment.meta.address, &caller, Timeouts::default()).unwrap()
}

/// The owner, with the authority's key.
fn owner(cluster: &Cluster) -> Connection {
    let deployment = &cluster.deployment;
    let caller = deployment.caller(Role::Client, 1, 0).unwrap();
    connect(&deployment.meta.address, &caller, Timeouts::default()).unwrap()
}

fn stat(connection: &mut Connection, path: &str) -> Attributes {
    let request = MetaRequest::Stat { path: path.into() };
    match ask(connection, &request).unwrap() {
        MetaReply::Attributes(attributes) => attributes,
        other => panic!("{other:?}"),
    }
}

fn ask(connection: &mut Connection, request: &MetaRequest) -> penstock_wire::Result<MetaReply> {
    let envelope = Envelope::request(1, TraceContext::default());
    let got = connection.call(&envelope, request, &mut false)?;
    Ok(got.body.unwrap())
}

fn mkdir(path: &str, mode: u32) -> MetaRequest {
    MetaRequest::Mkdir {
        path: path.into(),
        mode,
    }
}

fn made(connection: &mut Connection, path: &str, mode: u32) {
    assert_eq!(
        ask(connection, &mkdir(path, mode)).unwrap(),
        MetaReply::Done
    );
}

#[track_caller]
fn refused(reply: &MetaReply, kind: ErrorKind) -> &str {
    match reply {
        MetaReply::Error(e) if e.kind == kind => &e.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_data_server_is_no_user() {
    let cluster = cluster();
    let deployment = &cluster.deployment;
    let mut owner = owner(&cluster);
    made(&mut owner, "/open", 0o777);
    let caller = deployment.caller(Role::Server(ServerId(2)), 0, 0).unwrap();
    let mut server = connect(&deployment.meta.address, &caller, Timeouts::default()).unwrap();
    let report = |server| {
        MetaRequest::Store(StoreReport {
            server,
            place: "/disk".into(),
            state: StoreState::Empty,
            mounted: false,
            renew: false,
            adopt: false,
            highest: 0,
        })
    };
    assert!(matches!(
        ask(&mut server, &report(2)).unwrap(),
        MetaReply::Store { .. }
    ));
    assert!(matches!(
        ask(&mut server, &MetaRequest::Time).unwrap(),
        MetaReply::Time { .. }
    ));
    let others = [
        report(1),
        mkdir("/open/d", 0o755),
        MetaRequest::Stat {
            path: "/open".into(),
        },
        MetaRequest::GivenIds,
        MetaRequest::Shutdown,
        MetaRequest::LoadKeys,
        MetaRequest::Node {
            user: user(7),
            request: NodeRequest::Stat { id: ROOT },
        },
    ];
    for request in others {
        let batch = MetaRequest::Batch(vec![request.clone()]);
        refused(&ask(&mut server, &request).unwrap(), ErrorKind::Permission);
        let MetaReply::Batch(replies) = ask(&mut server, &batch).unwrap() else {
            panic!()
        };
        refused(&replies[0], ErrorKind::Permission);
    }
    // With another server's secret it is refused before that.
    let mut caller = deployment.caller(Role::Server(ServerId(2)), 0, 0).unwrap();
    caller.role = Role::Server(ServerId(1));
    let e = connect(&deployment.meta.address, &caller, Timeouts::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BadKey);
}

#[test]
fn a_user_has_the_rights_of_his_credential_alone() {
    let cluster = cluster();
    let mut owner = owner(&cluster);
    made(&mut owner, "/closed", 0o700);
    made(&mut owner, "/open", 0o777);
    for uid in [7, 0] {
        let mut stranger = connected(&cluster, uid, |_| {});
        let reply = ask(&mut stranger, &mkdir("/closed/d", 0o755)).unwrap();
        refused(&reply, ErrorKind::Permission);
        let path = format!("/open/{uid}");
        let reply = ask(&mut stranger, &mkdir(&path, 0o755)).unwrap();
        assert_eq!(reply, MetaReply::Done);
        let made = stat(&mut owner, &path);
        let expected = if uid == 0 { NOBODY } else { uid };
        assert_eq!((made.uid, made.gid), (expected, expected));
        // It may only make its own requests.
        let node = MetaRequest::Node {
            user: user(uid),
            request: NodeRequest::Stat { id: ROOT },
        };
        let reply = ask(&mut stranger, &node).unwrap();
        assert!(refused(&reply, ErrorKind::Permission).contains("may not act for"));
    }
    let mut root = connected(&cluster, 0, |s| s.root = true);
    let reply = ask(&mut root, &mkdir("/closed/d", 0o755)).unwrap();
    assert_eq!(reply, MetaReply::Done);
}

#[test]
fn a_mount_acts_for_the_users_of_its_credential() {
    let cluster = cluster();
    let mut owner = owner(&cluster);
    made(&mut owner, "/open", 0o777);
    let mut mount = connected(&cluster, 0, |s| {
        s.speaks_for = vec![Uids {
            first: 1000,
            last: 1999,
        }];
    });
    let looked = MetaRequest::Node {
        user: user(1000),
        request: NodeRequest::Lookup {
            parent: ROOT,
            name: "open".into(),
        },
    };
    let reply = ask(&mut mount, &looked).unwrap();
    let MetaReply::Node(NodeReply::Look {
        attributes: open, ..
    }) = reply
    else {
        panic!("{reply:?}")
    };
    let mut create = |uid: u32| {
        let request = MetaRequest::Node {
            user: user(uid),
            request: NodeRequest::Mkdir {
                parent: open.id,
                name: uid.to_string(),
                mode: 0o755,
            },
        };
        ask(&mut mount, &request).unwrap()
    };
    for (uid, made) in [
        (1000, Some(1000)),
        (1999, Some(1999)),
        (0, Some(NOBODY)),
        (999, None),
        (2000, None),
    ] {
        let reply = create(uid);
        match (made, &reply) {
            (Some(made), MetaReply::Node(NodeReply::Node(node))) => assert_eq!(node.uid, made),
            (None, reply) => {
                let told = refused(reply, ErrorKind::Permission);
                assert!(told.contains("--speaks-for"), "{told}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_ends_with_its_credential() {
    let cluster = cluster();
    let mut owner = owner(&cluster);
    made(&mut owner, "/open", 0o777);
    let end_ms = now_ms() + 1500;
    let mut short = connected(&cluster, 7, |s| s.end_ms = end_ms);
    let reply = ask(&mut short, &mkdir("/open/first", 0o755)).unwrap();
    assert_eq!(reply, MetaReply::Done);
    let (token, value) = (4711, 0);
    let counted = MetaRequest::CounterCreate { token, value };
    assert_eq!(ask(&mut short, &counted).unwrap(), MetaReply::Done);
    while now_ms() <= end_ms + 20 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let freed = MetaRequest::CounterFree { token };
    assert_eq!(ask(&mut short, &freed).unwrap(), MetaReply::Done);
    // As if the server had gone away: clients reconnect with the credential they have then.
    let e = ask(&mut short, &mkdir("/open/second", 0o755)).unwrap_err();
    assert!(e.is_disconnect(), "{e}");
    let request = MetaRequest::Stat {
        path: "/open/second".into(),
    };
    refused(&ask(&mut owner, &request).unwrap(), ErrorKind::NotFound);
}
