//! Fencing: after a newer connection was accepted, no request of the older one is carried out.
use penstock_rpc::deployment::{Address, Transport};
use penstock_rpc::{
    After, Caller, Connection, Identity, Keyring, Peer, RunningServer, ServeLimits, Service,
    Timeouts, connect_as, serve,
};
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle, TraceContext};
use penstock_wire::{Envelope, Key, KeyPair, LinkName, Role};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Carries a request out when told to, and reports which.
struct Slow {
    begun: Mutex<Sender<u64>>,
    go_on: Mutex<Receiver<()>>,
    done: Arc<Mutex<Vec<u64>>>,
}

impl Service for Slow {
    fn session(&self, connection: &mut Connection, _: &Peer) -> penstock_wire::Result<After> {
        loop {
            let Some(got) = connection.receive_unless_idle::<DataRequest>()? else {
                continue;
            };
            let id = got.envelope.request;
            self.begun.lock().unwrap().send(id).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
            self.done.lock().unwrap().push(id);
            connection.queue(&got.envelope.answer(), &DataReply::Done)?;
        }
    }
}

struct Bench {
    server: RunningServer,
    begun: Receiver<u64>,
    go_on: Sender<()>,
    done: Arc<Mutex<Vec<u64>>>,
}

fn identity() -> Identity {
    Identity {
        deployment: "0123456789abcdef0123456789abcdef".into(),
        deployment_name: "test".into(),
        server: "data server 0".into(),
        client_key: Key::from_bytes([1; 32]),
        servers: std::collections::HashMap::new(),
        transport: Transport::PlainTrustedNetwork,
        pair: KeyPair::from_seed(Key::from_bytes([8; 32])).unwrap(),
        authority: None,
        voucher: None,
    }
}

fn bench(dir: &Path, fence: Duration) -> Bench {
    let (begun, begins) = channel();
    let (go_on, gate) = channel();
    let done = Arc::new(Mutex::new(Vec::new()));
    let service = Slow {
        begun: Mutex::new(begun),
        go_on: Mutex::new(gate),
        done: done.clone(),
    };
    let address = Address {
        unix: Some(dir.join("s/slow.sock")),
        tcp: None,
        identity: None,
    };
    let limits = ServeLimits {
        fence: Some(fence),
        ..ServeLimits::default()
    };
    Bench {
        server: serve(
            &address,
            Arc::new(service),
            Arc::new(Keyring::new(vec![identity()]).unwrap()),
            limits,
        )
        .unwrap(),
        begun: begins,
        go_on,
        done,
    }
}

fn connect(server: &RunningServer, name: LinkName) -> penstock_wire::Result<Connection> {
    let caller = Caller {
        deployment: identity().deployment,
        deployment_name: "test".into(),
        role: Role::Client,
        key: Key::from_bytes([1; 32]),
        program: 7,
        rank: 3,
        transport: Transport::PlainTrustedNetwork,
        wallet: Arc::default(),
    };
    let limit = Some(Duration::from_secs(60));
    let timeouts = Timeouts {
        read: limit,
        write: limit,
    };
    connect_as(server.address(), &caller, name, timeouts)
}

fn send(connection: &mut Connection, ids: std::ops::Range<u64>) {
    for id in ids {
        let request = DataRequest::Len { handle: Handle(0) };
        let envelope = Envelope::request(id, TraceContext::default());
        connection.queue(&envelope, &request).unwrap();
    }
    connection.flush().unwrap();
}

#[test]
fn a_successor_is_welcomed_when_its_predecessor_has_ended_and_has_nothing_left() {
    let dir = tempfile::tempdir().unwrap();
    let bench = bench(dir.path(), Duration::from_secs(60));
    let name = LinkName::new().unwrap();
    let mut old = connect(&bench.server, name).unwrap();
    let mut other = connect(&bench.server, LinkName::new().unwrap()).unwrap();
    send(&mut old, 0..8);
    assert_eq!(bench.begun.recv().unwrap(), 0);
    std::thread::scope(|s| {
        let new = s.spawn(|| {
            let connection = connect(&bench.server, name.successor());
            // Request 0 has ended before this connection is accepted.
            (connection, bench.done.lock().unwrap().clone())
        });
        // The old connection is closed first.
        assert!(old.receive::<DataReply>().is_err());
        bench.go_on.send(()).unwrap();
        let (new, done) = new.join().unwrap();
        assert_eq!(done, [0]);
        // Other requests that the old one had delivered are not carried out, and other links are not affected.
        let mut new = new.unwrap();
        send(&mut new, 100..101);
        assert_eq!(bench.begun.recv().unwrap(), 100);
        bench.go_on.send(()).unwrap();
        assert!(new.receive::<DataReply>().is_ok());
        send(&mut other, 200..201);
        assert_eq!(bench.begun.recv().unwrap(), 200);
        bench.go_on.send(()).unwrap();
        assert!(other.receive::<DataReply>().is_ok());
    });
    assert_eq!(*bench.done.lock().unwrap(), [0, 100, 200]);
}

#[test]
fn a_connection_that_comes_late_is_refused_and_one_that_cannot_wait_is_told_to_try_again() {
    let dir = tempfile::tempdir().unwrap();
    let bench = bench(dir.path(), Duration::from_millis(50));
    let first = LinkName::new().unwrap();
    let second = first.successor();
    let mut open = connect(&bench.server, second).unwrap();
    for late in [first, second] {
        let e = connect(&bench.server, late).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Busy);
        assert!(e.to_string().contains("newer connection"), "{e}");
    }
    send(&mut open, 0..2);
    assert_eq!(bench.begun.recv().unwrap(), 0, "it is open still");
    let e = connect(&bench.server, second.successor()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert!(e.to_string().contains("try again"), "{e}");
    bench.go_on.send(()).unwrap();
    let mut name = second.successor();
    let mut last = loop {
        name = name.successor();
        match connect(&bench.server, name) {
            Ok(connection) => break connection,
            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy),
        }
    };
    assert_eq!(*bench.done.lock().unwrap(), [0], "request 1 was dropped");
    send(&mut last, 7..8);
    assert_eq!(bench.begun.recv().unwrap(), 7);
    bench.go_on.send(()).unwrap();
    assert!(last.receive::<DataReply>().is_ok());
}
