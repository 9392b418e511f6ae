//! Connections and servers over real sockets.
use crate::common::{Echo, caller, exchange, identity, keys, only_tcp, start, start_as, timeouts};
use penstock_layout::ServerId;
use penstock_rpc::deployment::Address;
use penstock_rpc::{After, Connection, Peer, ServeLimits, Service, Timeouts, connect, serve};
use penstock_wire::frame::{self, OLDEST_VERSION, VERSION};
use penstock_wire::handshake::{Challenge, Hello, Proof, Verdict};
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, TraceContext};
use penstock_wire::{Envelope, Error, Key, LinkName, Role};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

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
    // No client is accepted as a data server.
    let mut wrong = caller(Role::Client);
    wrong.role = Role::Server(ServerId(0));
    let e = connect(server.address(), &wrong, timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BadKey);
    assert!(e.to_string().contains("deployment test"), "{e}");
    assert!(e.to_string().contains("(memory)"), "{e}");
    // Another deployment's client gets an error that says so.
    let mut stranger = caller(Role::Client);
    stranger.deployment = "ffffffffffffffffffffffffffffffff".into();
    let e = connect(server.address(), &stranger, timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("belongs to deployment test"), "{e}");
}

#[test]
fn who_cannot_prove_a_key_learns_no_path_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("where-keys-lie");
    std::fs::create_dir(&secret).unwrap();
    let mut identity = identity();
    identity
        .client_key
        .save(&secret.join("client.key"))
        .unwrap();
    let (_, server_key) = identity.servers.iter_mut().next().unwrap();
    server_key.save(&secret.join("server.key")).unwrap();
    let server = start_as(dir.path(), identity, ServeLimits::default());
    for role in [
        Role::Client,
        Role::Admin,
        Role::Server(ServerId(0)),
        Role::Newcomer,
    ] {
        let stream = UnixStream::connect(server.address().unix.as_ref().unwrap()).unwrap();
        let mut connection = Connection::unix(stream, "the server", timeouts()).unwrap();
        let caller = caller(role);
        let hello = Hello {
            oldest: OLDEST_VERSION,
            newest: VERSION,
            deployment: caller.deployment,
            role,
            program: 1,
            rank: 0,
            link: LinkName::new().unwrap(),
            key: Key::from_bytes([9; 32]).name(),
            nonce: [5; 32],
            credential: None,
        };
        connection.queue(&Envelope::default(), &hello).unwrap();
        connection.flush().unwrap();
        let challenge = connection.receive::<Challenge>().unwrap().body.unwrap();
        let wrong = Proof {
            proof: [6; 32],
            signature: None,
        };
        connection.queue(&Envelope::default(), &wrong).unwrap();
        connection.flush().unwrap();
        let verdict = connection.receive::<Verdict>().unwrap().body.unwrap();
        let told = format!("{challenge:?} {verdict:?}");
        assert!(told.contains("wrong key for deployment test"), "{told}");
        let place = dir.path().display().to_string();
        assert!(
            !told.contains("where-keys-lie") && !told.contains(&place),
            "{told}"
        );
    }
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
    // A place is free once the server has noticed the two ends.
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
    let second = serve(&address, Arc::new(Echo), keys(), ServeLimits::default());
    let e = second.err().unwrap();
    assert!(e.to_string().contains("another server answers"), "{e}");
    drop(server);
    std::fs::write(&path, "mine").unwrap();
    let address = Address {
        unix: Some(path.clone()),
        tcp: None,
        identity: None,
    };
    let third = serve(&address, Arc::new(Echo), keys(), ServeLimits::default());
    assert!(third.err().unwrap().to_string().contains("not a socket"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn garbage_ends_its_own_connection_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let mut good = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    let mut bad = UnixStream::connect(server.address().unix.as_ref().unwrap()).unwrap();
    std::io::Write::write_all(&mut bad, &[0xa5; 4096]).unwrap();
    // The server closes it; whether a reset or an end arrives depends on what was still unread.
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

/// Reports how much memory it allocated for the payload of its first message, and whether all of it arrived.
struct Receives(Mutex<mpsc::Sender<(usize, bool)>>);

impl Service for Receives {
    fn session(&self, connection: &mut Connection, _: &Peer) -> penstock_wire::Result<After> {
        let got = connection.receive::<DataRequest>()?;
        let mut payload = Vec::new();
        let whole = connection.read_payload_into(&mut payload, got.payload_len);
        let seen = (payload.capacity(), whole.is_ok());
        self.0.lock().unwrap().send(seen).unwrap();
        whole.map(|()| After::Continue)
    }
}

#[test]
fn room_is_made_for_what_has_come_not_for_what_is_announced() {
    let dir = tempfile::tempdir().unwrap();
    let (said, seen) = mpsc::channel();
    let service = Arc::new(Receives(Mutex::new(said)));
    let address = Address {
        unix: Some(dir.path().join("s/receives.sock")),
        ..Address::default()
    };
    let server = serve(&address, service, keys(), ServeLimits::default()).unwrap();
    for (sent, most) in [(57, 64 << 10), (100 << 10, 256 << 10)] {
        let client = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
        let mut message = Vec::new();
        let envelope = Envelope::request(1, TraceContext::default());
        let body = Some(&DataRequest::Status);
        let limits = &frame::Limits::FULL;
        frame::append(
            &mut message,
            frame::VERSION,
            &envelope,
            body,
            1 << 20,
            0,
            limits,
        )
        .unwrap();
        message.resize(message.len() + sent, 7);
        let mut stream = UnixStream::from(client.as_fd().try_clone_to_owned().unwrap());
        stream.write_all(&message).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let (room, whole) = seen.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(room <= most && !whole, "{room} bytes for {sent}");
    }
}
