//! Connections and servers over real sockets.
#![allow(clippy::unwrap_used)]
use penstock_wire::credential::Statement;
use penstock_wire::deployment::{Address, Transport};
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, TraceContext, User};
use penstock_wire::{
    After, Caller, Connection, Credential, Envelope, Error, Identity, Key, KeyPair, Peer, Role,
    RunningServer, ServeLimits, Service, Timeouts, Wallet, connect, serve,
};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Answers `Len` with the request id, echoes the payload of everything else.
struct Echo;

impl Service for Echo {
    fn session(&self, connection: &mut Connection, _: &Peer) -> penstock_wire::Result<After> {
        let mut buffer = Vec::new();
        loop {
            let Some(got) = connection.receive_unless_idle::<DataRequest>()? else {
                connection.shrink();
                continue;
            };
            let answer = got.envelope.answer();
            match got.body {
                Some(DataRequest::Shutdown) => {
                    connection.queue(&answer, &DataReply::Done)?;
                    connection.flush()?;
                    return Ok(After::StopServer);
                }
                Some(DataRequest::Len { .. }) => {
                    let len = got.envelope.request;
                    connection.queue(&answer, &DataReply::Len { len })?;
                }
                _ => {
                    buffer.resize(got.payload_len, 0);
                    connection.read_payload(&mut buffer)?;
                    connection.queue_payload(&answer, &DataReply::Done, &buffer)?;
                }
            }
        }
    }
}

fn identity() -> Identity {
    Identity {
        deployment: "0123456789abcdef0123456789abcdef".into(),
        deployment_name: "test".into(),
        server: "data server 0".into(),
        client_key: Key::from_bytes([1; 32]),
        server_key: Key::from_bytes([2; 32]),
        transport: Transport::PlainTrustedNetwork,
        pair: None,
        authority: Some(authority().public()),
    }
}

/// Whoever it trusts.
fn authority() -> KeyPair {
    KeyPair::from_seed(Key::from_bytes([3; 32])).unwrap()
}

/// A credential of user 7 for all time.
fn wallet() -> Arc<Wallet> {
    let user = User {
        uid: 7,
        ..User::default()
    };
    let statement = Statement::new(&identity().deployment, user, 0..i64::MAX as u64);
    let credential = Credential::issue(&authority(), statement).unwrap();
    Arc::new(Wallet::holding(credential))
}

fn caller(role: Role) -> Caller {
    let identity = identity();
    Caller {
        deployment: identity.deployment,
        deployment_name: identity.deployment_name,
        role,
        key: match role {
            Role::Client => identity.client_key,
            Role::Admin => identity.server_key,
        },
        program: 7,
        rank: 3,
        transport: Transport::PlainTrustedNetwork,
        wallet: wallet(),
    }
}

fn start(dir: &Path, limits: ServeLimits) -> RunningServer {
    let address = Address {
        unix: Some(dir.join("s/echo.sock")),
        tcp: Some("127.0.0.1:0".into()),
        identity: None,
    };
    serve(&address, Arc::new(Echo), identity(), limits).unwrap()
}

fn only_tcp(address: &Address) -> Address {
    Address {
        unix: None,
        tcp: address.tcp.clone(),
        identity: None,
    }
}

fn timeouts() -> Timeouts {
    Timeouts {
        read: Some(Duration::from_secs(20)),
        write: Some(Duration::from_secs(20)),
    }
}

const LEN: DataRequest = DataRequest::Len {
    handle: penstock_wire::message::Handle(0),
};

fn exchange(connection: &mut Connection) {
    // Small ones, pipelined.
    for i in 0..64 {
        let e = Envelope::request(i, TraceContext::default());
        connection.queue(&e, &LEN).unwrap();
    }
    for i in 0..64 {
        let got = connection.receive::<DataReply>().unwrap();
        assert_eq!(got.envelope.request, i);
        assert!(got.envelope.reply);
        assert_eq!(got.body, Some(DataReply::Len { len: i }));
    }
    // Payloads around every buffer size, gathered and whole; some left unread.
    for (i, len) in [0usize, 1, 8191, 8192, 8193, 32768, 100_000, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let payload: Vec<u8> = (0..len).map(|b| (b * 7 + i) as u8).collect();
        let trace = TraceContext {
            program: 1,
            rank: 2,
            mpi_call: 3,
            client_call: 4,
        };
        let e = Envelope::request(100 + i as u64, trace);
        let parts: Vec<&[u8]> = payload.chunks(777).collect();
        for turn in 0..2 {
            // One at a time: neither side reads while it writes.
            if turn == 0 {
                connection.queue_payload(&e, &DataRequest::Status, &payload)
            } else {
                connection.queue_gathered(&e, Some(&DataRequest::Status), &parts)
            }
            .unwrap();
            let got = connection.receive::<DataReply>().unwrap();
            assert_eq!(got.envelope, e.answer());
            assert_eq!(got.payload_len, len);
            if turn == 0 {
                let mut back = vec![0; len];
                let (a, b) = back.split_at_mut(len / 3);
                connection.read_payload(a).unwrap();
                connection.read_payload(b).unwrap();
                assert_eq!(back, payload);
            } else {
                let half = len / 2;
                let mut back = vec![0; half];
                connection.read_payload(&mut back).unwrap();
                assert_eq!(back, payload[..half]);
            }
        }
    }
}

#[test]
fn frames_cross_both_kinds_of_socket() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let socket = server.address().unix.clone().unwrap();
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    for address in [server.address().clone(), only_tcp(server.address())] {
        let mut connection = connect(&address, &caller(Role::Client), timeouts()).unwrap();
        assert!(
            connection.peer().contains("data server 0"),
            "{}",
            connection.peer()
        );
        exchange(&mut connection);
    }
    server.stop();
    assert!(!socket.exists());
}

#[test]
fn an_administrator_stops_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let mut bystander = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    let mut admin = connect(server.address(), &caller(Role::Admin), timeouts()).unwrap();
    let e = Envelope::request(1, TraceContext::default());
    admin.queue(&e, &DataRequest::Shutdown).unwrap();
    assert_eq!(
        admin.receive::<DataReply>().unwrap().body,
        Some(DataReply::Done)
    );
    server.wait();
    let end = bystander.receive::<DataReply>().unwrap_err();
    assert!(end.is_disconnect(), "{end}");
}

#[test]
fn a_wrong_key_is_named_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    // The client key does not make an administrator.
    let mut wrong = caller(Role::Client);
    wrong.role = Role::Admin;
    let e = connect(server.address(), &wrong, timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BadKey);
    assert!(e.to_string().contains("deployment test"), "{e}");
    assert!(e.to_string().contains("(memory)"), "{e}");
    // Another deployment's client is told so.
    let mut stranger = caller(Role::Client);
    stranger.deployment = "ffffffffffffffffffffffffffffffff".into();
    let e = connect(server.address(), &stranger, timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("belongs to deployment test"), "{e}");
}

#[test]
fn one_connection_too_many_is_told_busy_but_an_administrator_gets_in() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits {
        connections: 2,
        ..ServeLimits::default()
    };
    let server = start(dir.path(), limits);
    let _one = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    let two = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    let e = connect(server.address(), &caller(Role::Client), timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    let admin = connect(server.address(), &caller(Role::Admin), timeouts()).unwrap();
    drop((two, admin));
    // A place is free once the server has seen the two ends.
    let mut again = connect(server.address(), &caller(Role::Client), timeouts());
    while matches!(&again, Err(e) if e.kind() == ErrorKind::Busy) {
        std::thread::yield_now();
        again = connect(server.address(), &caller(Role::Client), timeouts());
    }
    exchange(&mut again.unwrap());
}

#[test]
fn silent_strangers_do_not_keep_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits {
        half_open: 4,
        grace: Duration::from_millis(20),
        ..ServeLimits::default()
    };
    let server = start(dir.path(), limits);
    let socket = server.address().unix.clone().unwrap();
    let strangers: Vec<_> = (0..12)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    let mut good = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    exchange(&mut good);
    drop(strangers);
}

#[test]
fn a_stranger_is_dropped_when_its_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits {
        handshake: Duration::from_millis(30),
        ..ServeLimits::default()
    };
    let server = start(dir.path(), limits);
    let mut silent = UnixStream::connect(server.address().unix.as_ref().unwrap()).unwrap();
    let mut nothing = [0u8; 1];
    assert_eq!(std::io::Read::read(&mut silent, &mut nothing).unwrap(), 0);
}

#[test]
fn stale_sockets_are_replaced_and_live_ones_respected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s/echo.sock");
    std::fs::create_dir(dir.path().join("s")).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    let server = start(dir.path(), ServeLimits::default());
    let address = server.address().clone();
    let second = serve(&address, Arc::new(Echo), identity(), ServeLimits::default());
    let e = second.err().unwrap();
    assert!(e.to_string().contains("another server answers"), "{e}");
    drop(server);
    std::fs::write(&path, "mine").unwrap();
    let address = Address {
        unix: Some(path.clone()),
        tcp: None,
        identity: None,
    };
    let third = serve(&address, Arc::new(Echo), identity(), ServeLimits::default());
    assert!(third.err().unwrap().to_string().contains("no socket"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn garbage_ends_its_own_connection_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let mut good = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    let mut bad = UnixStream::connect(server.address().unix.as_ref().unwrap()).unwrap();
    std::io::Write::write_all(&mut bad, &[0xa5; 4096]).unwrap();
    // The server ends it; whether a reset or an end arrives depends on what was still unread.
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut bad, &mut rest);
    exchange(&mut good);
}

#[test]
fn descriptors_travel_beside_their_frame() {
    let (a, b) = UnixStream::pair().unwrap();
    let mut sender = Connection::unix(a, "sender", timeouts()).unwrap();
    let mut receiver = Connection::unix(b, "receiver", timeouts()).unwrap();
    receiver.accept_descriptors();
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"through", 0).unwrap();
    let e = Envelope::default().answer();
    sender.queue(&e, &DataReply::Done).unwrap();
    let grant = DataReply::Shortcut { writable: true };
    sender
        .send_descriptors(&e, &grant, &[file.as_fd(), file.as_fd()])
        .unwrap();
    sender.queue(&e, &DataReply::Done).unwrap();
    sender.flush().unwrap();
    assert_eq!(
        receiver.receive::<DataReply>().unwrap().body,
        Some(DataReply::Done)
    );
    assert_eq!(receiver.receive::<DataReply>().unwrap().body, Some(grant));
    let fds = receiver.take_descriptors();
    assert_eq!(fds.len(), 2);
    let mut text = [0u8; 7];
    let passed = std::fs::File::from(fds.into_iter().next().unwrap());
    std::os::unix::fs::FileExt::read_exact_at(&passed, &mut text, 0).unwrap();
    assert_eq!(&text, b"through");
    assert_eq!(
        receiver.receive::<DataReply>().unwrap().body,
        Some(DataReply::Done)
    );
    drop(sender);
    let end = receiver.receive::<DataReply>().unwrap_err();
    assert!(matches!(end, Error::Closed { .. }), "{end}");
}

#[test]
fn an_idle_peer_and_a_stuck_frame_are_told_apart() {
    let (a, b) = UnixStream::pair().unwrap();
    let short = Timeouts {
        read: Some(Duration::from_millis(20)),
        write: None,
    };
    let mut receiver = Connection::unix(b, "the peer", short).unwrap();
    assert!(
        receiver
            .receive_unless_idle::<DataReply>()
            .unwrap()
            .is_none()
    );
    let e = receiver.receive::<DataReply>().unwrap_err();
    assert!(e.to_string().contains("the peer did not answer"), "{e}");
    let mut a = a;
    std::io::Write::write_all(&mut a, &penstock_wire::frame::MAGIC.to_le_bytes()).unwrap();
    let e = receiver.receive::<DataReply>().unwrap_err();
    assert!(e.to_string().contains("finish a frame"), "{e}");
}
