//! The handshake, and deployment files.
use penstock_layout::ServerId;
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Target, Transport};
use penstock_rpc::{Caller, Connection, Identity, Peer, Timeouts, handshake};
use penstock_wire::handshake::{Challenge, Hello, Proof, Verdict};
use penstock_wire::message::ErrorKind;
use penstock_wire::{Error, Key, KeyPair, LinkName, Role};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn identity() -> Identity {
    Identity {
        deployment: "0123456789abcdef0123456789abcdef".into(),
        deployment_name: "lab".into(),
        server: "data server 0".into(),
        client_key: Key::from_bytes([1; 32]),
        servers: [(ServerId(3), Key::from_bytes([2; 32]))].into(),
        transport: Transport::PlainTrustedNetwork,
        pair: KeyPair::from_seed(Key::from_bytes([8; 32])).unwrap(),
        authority: None,
        voucher: None,
    }
}

fn caller(key: [u8; 32], role: Role) -> Caller {
    Caller {
        deployment: identity().deployment,
        deployment_name: "lab".into(),
        role,
        key: Key::from_bytes(key),
        program: 5,
        rank: 6,
        transport: Transport::PlainTrustedNetwork,
        wallet: Arc::default(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn pair() -> (Connection, Connection) {
    let (a, b) = UnixStream::pair().unwrap();
    let new = |s, name| Connection::unix(s, name, Timeouts::default()).unwrap();
    (new(a, "the server"), new(b, "the client"))
}

/// Both ends of a handshake.
fn shake(caller: Caller) -> (Result<(), Error>, Result<Peer, Error>) {
    shake_with(caller, identity())
}

fn shake_with(caller: Caller, identity: Identity) -> (Result<(), Error>, Result<Peer, Error>) {
    let (mut client, mut server) = pair();
    std::thread::scope(|s| {
        let served =
            s.spawn(move || handshake::answer(&mut server, &[identity], soon(), || 0, |_| Ok(())));
        let introduced =
            handshake::introduce(&mut client, &caller, LinkName::new().unwrap(), soon());
        drop(client);
        (introduced, served.join().unwrap())
    })
}

#[test]
fn both_sides_prove_their_key() {
    let server = Role::Server(ServerId(3));
    for (key, role) in [
        ([1; 32], Role::Client),
        ([1; 32], Role::Admin),
        ([2; 32], server),
    ] {
        let (client, server) = shake(caller(key, role));
        client.unwrap();
        let peer = server.unwrap();
        assert_eq!((peer.role, peer.program, peer.rank), (role, 5, 6));
        let me = peer.credentials.unwrap();
        assert_eq!(me.pid, std::process::id() as i32);
    }
    for (key, role) in [
        ([9; 32], Role::Client),
        ([9; 32], Role::Admin),
        ([1; 32], server),
        ([2; 32], Role::Client),
    ] {
        let (client, server) = shake(caller(key, role));
        let e = client.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadKey);
        assert!(e.to_string().contains("deployment lab"), "{e}");
        assert!(server.is_err());
    }
}

#[test]
fn a_client_that_skips_its_proof_is_refused_by_name() {
    let (mut client, mut server) = pair();
    std::thread::scope(|s| {
        let served = s
            .spawn(move || handshake::answer(&mut server, &[identity()], soon(), || 0, |_| Ok(())));
        let e = penstock_wire::Envelope::default();
        let hello = hello(&caller([9; 32], Role::Client));
        client.queue(&e, &hello).unwrap();
        let Challenge::Accepted { proof, .. } = client.receive().unwrap().body.unwrap() else {
            panic!()
        };
        // The server's own proof, reflected.
        let signature = None;
        client.queue(&e, &Proof { proof, signature }).unwrap();
        let verdict = client.receive().unwrap().body.unwrap();
        let Verdict::Refused(e) = verdict else {
            panic!()
        };
        assert_eq!(e.kind, ErrorKind::BadKey);
        assert!(
            e.message.contains("deployment lab") && !e.message.contains("(memory)"),
            "{e}"
        );
        assert_eq!(
            served.join().unwrap().unwrap_err().kind(),
            ErrorKind::BadKey
        );
    });
}

fn hello(caller: &Caller) -> Hello {
    Hello {
        oldest: penstock_wire::frame::OLDEST_VERSION,
        newest: penstock_wire::frame::VERSION,
        deployment: caller.deployment.clone(),
        role: caller.role,
        program: caller.program,
        rank: caller.rank,
        link: LinkName {
            link: [5; 32],
            generation: 3,
        },
        key: caller.key.name(),
        nonce: [7; 32],
        credential: None,
    }
}

#[test]
fn every_field_of_the_exchange_is_proven() {
    let base = hello(&caller([1; 32], Role::Client));
    let bound = |hello: &Hello, nonce, binding| {
        let (_, expected) = handshake::challenge(&[identity()], hello, nonce, binding).unwrap();
        expected.unwrap()
    };
    let proof = |hello: &Hello, nonce| bound(hello, nonce, None);
    let reference = proof(&base, [3; 32]);
    let changes: [fn(&mut Hello); 9] = [
        |h| h.nonce[0] ^= 1,
        |h| h.key = Key::from_bytes([9; 32]).name(),
        |h| h.rank += 1,
        |h| h.program += 1,
        |h| h.role = Role::Admin,
        |h| h.newest += 1,
        |h| h.oldest -= 1,
        |h| h.link.link[9] ^= 1,
        |h| h.link.generation += 1,
    ];
    for change in changes {
        let mut other = base.clone();
        change(&mut other);
        let other = proof(&other, [3; 32]);
        assert!(other.proof != reference.proof && other.exchange != reference.exchange);
    }
    // Nor is it valid on another connection.
    let first = bound(&base, [3; 32], Some([0; 32]));
    assert_ne!(first.proof, reference.proof);
    assert_ne!(first.proof, bound(&base, [3; 32], Some([1; 32])).proof);
    assert_ne!(proof(&base, [4; 32]), reference);
    assert_eq!(proof(&base, [3; 32]), reference);
}

/// A client that says hello as `claimed` and proves it as `proven`. Returns the server's verdict, and the client's.
fn claim(
    ends: (Connection, Connection),
    claimed: &Hello,
    proven: &Hello,
    key: [u8; 32],
) -> (Result<Peer, Error>, Result<Verdict, Error>) {
    let (mut client, mut server) = ends;
    std::thread::scope(|s| {
        let served = s
            .spawn(move || handshake::answer(&mut server, &[identity()], soon(), || 0, |_| Ok(())));
        let e = penstock_wire::Envelope::default();
        client.queue(&e, claimed).unwrap();
        let Challenge::Accepted { nonce, .. } = client.receive().unwrap().body.unwrap() else {
            panic!()
        };
        let mine = Identity {
            client_key: Key::from_bytes(key),
            servers: [(ServerId(3), Key::from_bytes(key))].into(),
            ..identity()
        };
        let (_, expected) =
            handshake::challenge(std::slice::from_ref(&mine), proven, nonce, None).unwrap();
        let proof = *expected.unwrap().proof.as_bytes();
        let signature = None;
        client.queue(&e, &Proof { proof, signature }).unwrap();
        let verdict = client.receive().map(|r| r.body.unwrap());
        (served.join().unwrap(), verdict)
    })
}

fn tcp_pair() -> (Connection, Connection) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    let new = |s, name| Connection::tcp(s, name, Timeouts::default()).unwrap();
    (new(far, "the server"), new(near, "the client"))
}

/// On this host the kernel says which user it is. Over TCP nobody is authenticated without a credential
/// (credentials.rs).
#[test]
fn a_claim_to_be_an_administrator_is_not_enough() {
    let client = hello(&caller([1; 32], Role::Client));
    let admin = hello(&caller([1; 32], Role::Admin));
    // The server's own user on its host.
    let (peer, verdict) = claim(pair(), &admin, &admin, [1; 32]);
    assert_eq!(verdict.unwrap(), Verdict::Welcome);
    let peer = peer.unwrap();
    assert_eq!((peer.role, peer.user.uid), (Role::Admin, my_uid()));
    let refused = |claimed: &Hello, proven: &Hello, key, kind| {
        let (peer, verdict) = claim(tcp_pair(), claimed, proven, key);
        let Ok(Verdict::Refused(told)) = verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!(told.kind, kind);
        assert_eq!(peer.unwrap_err().kind(), kind);
    };
    refused(&admin, &admin, [1; 32], ErrorKind::Permission);
    // Without the key nobody is accepted; nor with somebody else's proof, changed in transit.
    refused(&client, &client, [9; 32], ErrorKind::BadKey);
    refused(&admin, &client, [1; 32], ErrorKind::BadKey);
}

/// This process's user, as the kernel sees it.
fn my_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn versions_without_overlap_part_with_a_word() {
    let mut future = hello(&caller([1; 32], Role::Client));
    (future.oldest, future.newest) = (40, 50);
    let (answer, proof) = handshake::challenge(&[identity()], &future, [0; 32], None).unwrap();
    assert!(proof.is_none());
    let Challenge::Refused(e) = answer else {
        panic!()
    };
    assert_eq!(e.kind, ErrorKind::Version);
    assert!(e.message.contains("40 to 50"), "{e}");
    (future.oldest, future.newest) = (0, 50);
    let (answer, _) = handshake::challenge(&[identity()], &future, [0; 32], None).unwrap();
    let newest = penstock_wire::frame::VERSION;
    assert!(matches!(answer, Challenge::Accepted { version, .. } if version == newest));
    future.deployment = "\u{1b}[31mevil\n".repeat(30);
    let (answer, _) = handshake::challenge(&[identity()], &future, [0; 32], None).unwrap();
    let Challenge::Refused(e) = answer else {
        panic!()
    };
    assert!(
        !e.message.contains(char::is_control) && e.message.len() < 1500,
        "{e}"
    );
}

#[test]
fn a_handshake_ends_by_its_deadline_however_slowly_bytes_drip() {
    let (client, mut server) = pair();
    std::thread::scope(|s| {
        let deadline = Instant::now() + Duration::from_millis(60);
        let served = s.spawn(move || {
            handshake::answer(&mut server, &[identity()], deadline, || 0, |_| Ok(()))
        });
        let fd = std::os::fd::AsFd::as_fd(&client)
            .try_clone_to_owned()
            .unwrap();
        let mut drip = UnixStream::from(fd);
        let header = penstock_wire::frame::MAGIC.to_le_bytes();
        let mut sent = 0;
        while std::io::Write::write(&mut drip, &header[sent % 4..=sent % 4]).is_ok() && sent < 40 {
            sent += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        let e = served.join().unwrap().unwrap_err();
        assert!(matches!(e, Error::TimedOut { .. }), "{e}");
    });
}

fn deployment(dir: &Path) -> Deployment {
    let address = |name: &str| Address {
        unix: Some(dir.join(name)),
        tcp: None,
        identity: None,
    };
    Deployment {
        id: Deployment::new_id().unwrap(),
        name: "lab".into(),
        stripe_unit: 65_536,
        mount: Some("/penstock".into()),
        tune: vec!["sched=to".into()],
        client_key: "/etc/penstock/client.key".into(),
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
        servers: vec![
            DataServer {
                id: ServerId(0),
                address: address("0.sock"),
                store: format!("dir:{}", dir.join("store0").display()),
                identity_key: None,
                host: None,
            },
            DataServer {
                id: ServerId(7),
                address: Address {
                    unix: None,
                    tcp: Some("host:700".into()),
                    identity: None,
                },
                store: "memory".into(),
                identity_key: None,
                host: None,
            },
        ],
        transport: Transport::default(),
    }
}

#[test]
fn a_deployment_moves_with_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    let saved = deployment(&old);
    saved.save(&old.join("deployment.toml")).unwrap();
    assert_eq!(
        Deployment::load(&old.join("deployment.toml")).unwrap(),
        saved
    );
    std::fs::rename(&old, &new).unwrap();
    let moved = Deployment::load(&new.join("deployment.toml")).unwrap();
    assert_eq!(moved.client_key, PathBuf::from("/etc/penstock/client.key"));
    assert_eq!(moved.meta.address.unix, Some(new.join("meta.sock")));
    assert_eq!(moved.mount, Some("/penstock".into()));
    let store = moved.server(ServerId(0)).unwrap().target().unwrap();
    assert_eq!(store, Target::Dir(new.join("store0")));
    assert_eq!(moved.servers[1].target().unwrap(), Target::Memory);
    assert_eq!(moved.server_ids(), [ServerId(0), ServerId(7)]);
    assert!(moved.server(ServerId(1)).is_none());
    // Saving over a file leaves nothing else behind.
    moved.save(&new.join("deployment.toml")).unwrap();
    assert_eq!(std::fs::read_dir(&new).unwrap().count(), 1);
}

#[test]
fn a_wrong_deployment_file_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let good = deployment(dir.path());
    type Change = fn(&mut Deployment);
    let cases: [(Change, &str); 13] = [
        (|d| d.id = "xyz".into(), "32 hex digits"),
        (|d| d.name.clear(), "name"),
        (|d| d.stripe_unit = 0, "stripe_unit is 0"),
        (|d| d.stripe_unit = 1 << 31, "stripe_unit"),
        (|d| d.mount = Some("relative".into()), "must be absolute"),
        (|d| d.servers.clear(), "[[server]]"),
        (|d| d.servers[1].id = ServerId(0), "appears twice"),
        (|d| d.servers[1].address.tcp = None, "needs unix"),
        (
            |d| d.servers[1].address.tcp = Some("port".into()),
            "host:port",
        ),
        (
            |d| d.servers[1].address.tcp = Some(":80".into()),
            "host:port",
        ),
        (
            |d| d.servers[0].address.unix = Some("/x".repeat(80).into()),
            "allows 107",
        ),
        (
            |d| d.servers[0].address = d.meta.address.clone(),
            "used twice",
        ),
        (
            |d| d.servers[1].store = d.servers[0].store.clone(),
            "another server",
        ),
    ];
    for (change, words) in cases {
        let mut bad = good.clone();
        change(&mut bad);
        let e = bad.save(&dir.path().join("bad.toml")).unwrap_err();
        assert!(e.to_string().contains(words), "{e}");
        assert!(e.to_string().contains("bad.toml"), "{e}");
    }
    let mut bad = good.clone();
    bad.servers[0].store = "disk".into();
    assert!(bad.validate().unwrap_err().contains("dir:/path"));
    let path = dir.path().join("deployment.toml");
    assert!(
        Deployment::load(&path)
            .unwrap_err()
            .to_string()
            .contains("cannot read")
    );
    std::fs::write(&path, "id = 3\nfoo = \"bar\"").unwrap();
    let e = Deployment::load(&path).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("deployment.toml"), "{e}");
    std::fs::write(&path, vec![b'#'; 5 << 20]).unwrap();
    assert!(
        Deployment::load(&path)
            .unwrap_err()
            .to_string()
            .contains("at most")
    );
}

#[test]
fn keys_come_from_where_the_deployment_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = deployment(dir.path());
    d.client_key = dir.path().join("client.key");
    let e = d.caller(Role::Client, 1, 2).unwrap_err();
    assert!(e.to_string().contains("client.key"), "{e}");
    Key::generate().unwrap().save(&d.client_key).unwrap();
    assert_eq!(d.caller(Role::Client, 1, 2).unwrap().deployment, d.id);
    // A client host has no server's key.
    assert!(d.meta_identity().is_err());
    assert!(d.make_keys(dir.path()).unwrap());
    let meta = d.meta_identity().unwrap();
    assert_eq!(meta.deployment_name, "lab");
    // Each server shares another secret with the metadata server; each host needs only its own key.
    for id in [ServerId(0), ServerId(7)] {
        let caller = d.caller(Role::Server(id), 0, 0).unwrap();
        let (client, server) = shake_with(caller, meta.clone());
        client.unwrap();
        assert_eq!(server.unwrap().role, Role::Server(id));
    }
    let mut wrong = d.caller(Role::Server(ServerId(0)), 0, 0).unwrap();
    wrong.role = Role::Server(ServerId(7));
    assert_eq!(
        shake_with(wrong, meta).0.unwrap_err().kind(),
        ErrorKind::BadKey
    );
    // A server has the key of its address, or none.
    let mut moved = d.clone();
    moved.meta.address.identity = Some(KeyPair::generate().unwrap().public());
    let e = moved.meta_identity().unwrap_err().to_string();
    assert!(e.contains("not the private half"), "{e}");
    moved.meta.address.identity = None;
    let e = moved.meta_identity().unwrap_err().to_string();
    assert!(e.contains("no identity key"), "{e}");
    std::fs::remove_file(dir.path().join("meta.key")).unwrap();
    d.caller(Role::Server(ServerId(0)), 0, 0).unwrap();
    std::fs::remove_file(dir.path().join("data-0.key")).unwrap();
    assert!(d.caller(Role::Server(ServerId(0)), 0, 0).is_err());
}
