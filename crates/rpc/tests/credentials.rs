//! Credentials in the handshake over TCP, and where clients find them.
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_rpc::{Caller, Connection, Identity, Peer, Timeouts, Wallet, handshake};
use penstock_wire::credential::{Credential, MAX_RANGES, Signed, Statement, Uids};
use penstock_wire::handshake::{Challenge, Hello, Proof, Verdict};
use penstock_wire::message::{ErrorKind, MAX_GROUPS, NOBODY, User};
use penstock_wire::{Envelope, Error, Key, KeyPair, LinkName, Role};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEPLOYMENT: &str = "0123456789abcdef0123456789abcdef";
/// The server's time.
const NOW_MS: u64 = 1_000_000_000;

fn authority() -> KeyPair {
    KeyPair::from_seed(Key::from_bytes([3; 32])).unwrap()
}

fn identity() -> Identity {
    Identity {
        deployment: DEPLOYMENT.into(),
        deployment_name: "lab".into(),
        server: "data server 0".into(),
        client_key: Key::from_bytes([1; 32]),
        servers: std::collections::HashMap::new(),
        transport: Transport::PlainTrustedNetwork,
        pair: KeyPair::from_seed(Key::from_bytes([8; 32])).unwrap(),
        authority: Some(authority().public()),
        voucher: None,
    }
}

fn statement() -> Statement {
    let user = User {
        uid: 500,
        gid: 600,
        groups: vec![601, 602],
    };
    Statement::new(DEPLOYMENT, user, NOW_MS - 1000..NOW_MS + 1000)
}

fn issued(statement: Statement) -> Credential {
    Credential::issue(&authority(), statement).unwrap()
}

fn caller(wallet: Wallet) -> Caller {
    Caller {
        deployment: DEPLOYMENT.into(),
        deployment_name: "lab".into(),
        role: Role::Client,
        key: Key::from_bytes([1; 32]),
        program: 5,
        rank: 6,
        transport: Transport::PlainTrustedNetwork,
        wallet: Arc::new(wallet),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn tcp_pair() -> (Connection, Connection) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    let new = |s, name| Connection::tcp(s, name, Timeouts::default()).unwrap();
    (new(far, "the server"), new(near, "the client"))
}

/// Both ends of a handshake over TCP; the client must be told what the server finds.
fn shake(identity: &Identity, wallet: Wallet) -> Result<Peer, Error> {
    let (mut client, mut server) = tcp_pair();
    std::thread::scope(|s| {
        let served = s.spawn(move || {
            handshake::answer(
                &mut server,
                std::slice::from_ref(identity),
                soon(),
                || NOW_MS,
                |_| Ok(()),
            )
        });
        let name = LinkName::new().unwrap();
        let told = handshake::introduce(&mut client, &caller(wallet), name, soon());
        drop(client);
        let found = served.join().unwrap();
        assert_eq!(told.is_ok(), found.is_ok());
        told.and(found)
    })
}

#[track_caller]
fn refused(what: Result<Peer, Error>, words: &str) {
    let e = what.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Permission, "{e}");
    assert!(e.to_string().contains(words), "{e}");
}

#[test]
fn the_authority_says_who_one_is() {
    let peer = shake(&identity(), Wallet::holding(issued(statement()))).unwrap();
    assert_eq!(peer.role, Role::Client);
    let user = User {
        uid: 500,
        gid: 600,
        groups: vec![601, 602],
    };
    assert_eq!((&peer.user, peer.subject()), (&user, 500));
    // Root is mapped to nobody, unless its credential says that it keeps its rights.
    let mut root = statement();
    root.uid = 0;
    let peer = shake(&identity(), Wallet::holding(issued(root.clone()))).unwrap();
    assert_eq!((peer.user.uid, peer.subject()), (NOBODY, 0));
    root.root = true;
    let peer = shake(&identity(), Wallet::holding(issued(root))).unwrap();
    assert_eq!((peer.user.uid, peer.subject()), (0, 0));
}

#[test]
fn administrators_over_tcp_have_a_credential_that_says_so() {
    let shake_as = |statement| {
        let (mut client, mut server) = tcp_pair();
        let caller = Caller {
            role: Role::Admin,
            ..caller(Wallet::holding(issued(statement)))
        };
        std::thread::scope(|s| {
            let served = s.spawn(move || {
                handshake::answer(&mut server, &[identity()], soon(), || NOW_MS, |_| Ok(()))
            });
            let told = handshake::introduce(&mut client, &caller, LinkName::new().unwrap(), soon());
            drop(client);
            told.and(served.join().unwrap())
        })
    };
    refused(shake_as(statement()), "user 500 is not an administrator");
    let mut administrator = statement();
    administrator.administrator = true;
    let peer = shake_as(administrator.clone()).unwrap();
    assert_eq!((peer.role, peer.user.uid), (Role::Admin, 500));
    administrator.end_ms = NOW_MS;
    refused(shake_as(administrator), "it ended");
}

#[test]
fn the_largest_credential_fits() {
    let mut largest = statement();
    largest.groups = vec![u32::MAX; MAX_GROUPS];
    largest.speaks_for = vec![
        Uids {
            first: u32::MAX,
            last: u32::MAX,
        };
        MAX_RANGES
    ];
    largest.job = Some("j".repeat(64));
    (largest.not_before_ms, largest.end_ms) = (NOW_MS, i64::MAX as u64);
    let credential = issued(largest);
    assert_eq!(
        Credential::parse(&credential.text().unwrap())
            .unwrap()
            .signed(),
        credential.signed()
    );
    shake(&identity(), Wallet::holding(credential)).unwrap();
}

#[test]
fn whom_nobody_vouches_for_is_refused() {
    // The client's own claim is not used.
    refused(
        shake(&identity(), Wallet::holding(issued(statement()))).and_then(|_| {
            let stranger = KeyPair::generate().unwrap();
            let foreign = Credential::issue(&stranger, statement()).unwrap();
            shake(&identity(), Wallet::holding(foreign))
        }),
        "was not signed by the authority of deployment lab",
    );
    let mut elsewhere = statement();
    elsewhere.deployment = "f".repeat(32);
    refused(
        shake(&identity(), Wallet::holding(issued(elsewhere))),
        "of another deployment",
    );
    let without = Identity {
        authority: None,
        ..identity()
    };
    refused(
        shake(&without, Wallet::holding(issued(statement()))),
        "knows no authority",
    );
}

#[test]
fn a_credential_has_its_time() {
    let at = |life: std::ops::Range<u64>| {
        let mut limited = statement();
        (limited.not_before_ms, limited.end_ms) = (life.start, life.end);
        shake(&identity(), Wallet::holding(issued(limited)))
    };
    refused(at(NOW_MS - 9000..NOW_MS), "it ended 0 s ago");
    refused(at(NOW_MS - 9000..NOW_MS - 5000), "it ended 5 s ago");
    refused(at(NOW_MS + 60_000..NOW_MS + 90_000), "it begins in 60 s");
    // Clocks may differ a little.
    at(NOW_MS + 10_000..NOW_MS + 90_000).unwrap();
    at(NOW_MS - 9000..NOW_MS + 1).unwrap();
}

/// How a client proves itself.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Well,
    /// With no signature.
    Unsigned,
    /// With a signature by another key.
    Otherwise,
    /// With the proof of an earlier handshake.
    Again,
}

/// A client that shows `shown`: its proof, and the server's answer.
fn claim(
    shown: Option<Signed>,
    holder: &Credential,
    way: Way,
    earlier: Option<&Proof>,
) -> (Proof, Verdict) {
    let (mut client, mut server) = tcp_pair();
    std::thread::scope(|s| {
        let served = s.spawn(move || {
            handshake::answer(&mut server, &[identity()], soon(), || NOW_MS, |_| Ok(()))
        });
        let hello = Hello {
            oldest: penstock_wire::frame::OLDEST_VERSION,
            newest: penstock_wire::frame::VERSION,
            deployment: DEPLOYMENT.into(),
            role: Role::Client,
            program: 0,
            rank: 0,
            link: LinkName::new().unwrap(),
            key: identity().client_key.name(),
            nonce: [7; 32],
            credential: shown,
        };
        let e = Envelope::default();
        client.queue(&e, &hello).unwrap();
        let Challenge::Accepted { nonce, .. } = client.receive().unwrap().body.unwrap() else {
            panic!()
        };
        let (_, expected) = handshake::challenge(&[identity()], &hello, nonce, None).unwrap();
        let expected = expected.unwrap();
        let proof = *expected.proof.as_bytes();
        let own = issued(statement());
        let signature = match way {
            Way::Well => Some(holder.sign_exchange(&expected.exchange)),
            Way::Unsigned => None,
            Way::Otherwise => Some(own.sign_exchange(&expected.exchange)),
            Way::Again => earlier.unwrap().signature.clone(),
        };
        let given = Proof { proof, signature };
        client.queue(&e, &given).unwrap();
        let verdict = client.receive().unwrap().body.unwrap();
        assert_eq!(served.join().unwrap().is_ok(), verdict == Verdict::Welcome);
        (given, verdict)
    })
}

#[test]
fn what_is_shown_must_be_proven() {
    let holder = issued(statement());
    let shown = || Some(holder.signed().clone());
    let (earlier, verdict) = claim(shown(), &holder, Way::Well, None);
    assert_eq!(verdict, Verdict::Welcome);
    let mut richer = holder.signed().clone();
    richer.statement.uid = 0;
    richer.statement.root = true;
    let mut larger = holder.signed().clone();
    larger.statement.groups.push(0);
    for (shown, way, words) in [
        (None, Way::Well, "penstock credential --user NAME"),
        (shown(), Way::Unsigned, "asks for a credential"),
        (shown(), Way::Otherwise, "has not proven its private key"),
        (shown(), Way::Again, "has not proven its private key"),
        (Some(richer), Way::Well, "was changed since"),
        (Some(larger), Way::Well, "was changed since"),
    ] {
        let (_, verdict) = claim(shown, &holder, way, Some(&earlier));
        let Verdict::Refused(e) = verdict else {
            panic!("{words}: {verdict:?}")
        };
        assert_eq!(e.kind, ErrorKind::Permission, "{e}");
        assert!(e.message.contains(words), "{e}");
    }
}

#[test]
fn too_many_groups_are_not_even_decoded() {
    let holder = issued(statement());
    let mut shown = holder.signed().clone();
    shown.statement.groups = vec![1; MAX_GROUPS + 1];
    let (mut client, mut server) = tcp_pair();
    let served = std::thread::spawn(move || {
        handshake::answer(&mut server, &[identity()], soon(), || NOW_MS, |_| Ok(()))
    });
    let hello = Hello {
        oldest: 0,
        newest: 0,
        deployment: String::new(),
        role: Role::Client,
        program: 0,
        rank: 0,
        link: LinkName::new().unwrap(),
        key: identity().client_key.name(),
        nonce: [7; 32],
        credential: Some(shown),
    };
    client.queue(&Envelope::default(), &hello).unwrap();
    client.flush().unwrap();
    let e = served.join().unwrap().unwrap_err();
    assert!(matches!(e, Error::Malformed { .. }), "{e}");
    let mut large = statement();
    large.groups = vec![1; MAX_GROUPS + 1];
    let e = Credential::issue(&authority(), large).unwrap_err();
    assert!(e.to_string().contains("groups"), "{e}");
}

#[test]
fn over_a_unix_socket_nothing_is_looked_for() {
    let (a, b) = UnixStream::pair().unwrap();
    let new = |s, name| Connection::unix(s, name, Timeouts::default()).unwrap();
    let (mut client, mut server) = (new(a, "the server"), new(b, "the client"));
    std::thread::scope(|s| {
        let served = s.spawn(move || {
            handshake::answer(&mut server, &[identity()], soon(), || NOW_MS, |_| Ok(()))
        });
        let name = LinkName::new().unwrap();
        let empty = caller(Wallet::default());
        handshake::introduce(&mut client, &empty, name, soon()).unwrap();
        let peer = served.join().unwrap().unwrap();
        assert!(peer.statement.is_none());
        assert_eq!(peer.subject(), peer.user.uid);
    });
}

/// A deployment of one server on TCP, with its keys.
fn deployment(dir: &Path) -> Deployment {
    let address = |port: u16| Address {
        unix: None,
        tcp: Some(format!("localhost:{port}")),
        identity: None,
    };
    let mut deployment = Deployment {
        id: DEPLOYMENT.into(),
        name: "lab".into(),
        stripe_unit: 65_536,
        mount: None,
        tune: Vec::new(),
        client_key: dir.join("client.key"),
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: None,
        meta: MetaServer {
            address: address(7400),
            store: dir.join("meta"),
            identity_key: None,
            host: None,
        },
        servers: vec![DataServer {
            id: penstock_layout::ServerId(0),
            address: address(7401),
            store: "memory".into(),
            identity_key: None,
            host: None,
        }],
        transport: Transport::default(),
    };
    assert!(deployment.make_keys(dir).unwrap());
    assert!(!deployment.make_keys(dir).unwrap());
    deployment
}

#[test]
fn whoever_reads_the_authoritys_key_needs_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let deployment = deployment(dir.path());
    let path = dir.path().join("authority.key");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let file = dir.path().join("deployment.toml");
    deployment.save(&file).unwrap();
    let loaded = Deployment::load(&file).unwrap();
    assert_eq!(loaded, deployment);
    let wallet = Wallet::new(&loaded, None);
    let own = wallet.credential().unwrap();
    assert!(own.signed().is_of(&deployment.authority.unwrap()));
    let said = own.statement();
    assert_eq!(said.uid, rustix::process::geteuid().as_raw());
    assert!(said.root && said.speaks_for == [Uids::ALL]);
    // Made once.
    assert_eq!(wallet.credential().unwrap().statement(), said);
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    let e = Wallet::new(&loaded, None)
        .credential()
        .unwrap_err()
        .to_string();
    for words in [
        "authority.key is not there",
        "PENSTOCK_CREDENTIAL",
        "penstock credential --user",
    ] {
        assert!(e.contains(words), "{e}");
    }
    // Another deployment's key does not help.
    KeyPair::generate().unwrap().save(&path).unwrap();
    let e = Wallet::new(&loaded, None)
        .credential()
        .unwrap_err()
        .to_string();
    assert!(e.contains("not the key of the deployment's"), "{e}");
}

#[test]
fn servers_believe_the_metadata_server_only_where_the_deployment_takes_munge() {
    let voucher = || KeyPair::from_seed(Key::from_bytes([5; 32])).unwrap();
    let shake_with = |believed| {
        let pair = KeyPair::generate().unwrap();
        let signed = Signed::vouch(&voucher(), statement(), pair.public()).unwrap();
        let identity = Identity {
            voucher: believed,
            ..identity()
        };
        let credential = Credential::of(signed, pair).unwrap();
        shake(&identity, Wallet::holding(credential))
    };
    let peer = shake_with(Some(voucher().public())).unwrap();
    assert_eq!(peer.user.uid, 500);
    for believed in [None, Some(KeyPair::generate().unwrap().public())] {
        refused(shake_with(believed), "not signed by the authority");
    }
}
