//! Turns, failures and the back-off, without a metadata server; with one: tests/channel.rs of this crate.
use super::*;
use penstock_layout::ServerId;
use penstock_rpc::deployment::{DataServer, MetaServer, Transport};
use std::path::Path;
use std::thread;

fn channel(dir: &Path) -> Channel {
    let address = |name: &str| Address {
        unix: Some(dir.join(name)),
        tcp: None,
        identity: None,
    };
    let mut deployment = Deployment {
        id: Deployment::new_id().unwrap(),
        name: "test".into(),
        stripe_unit: 64,
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
            address: address("meta.sock"),
            store: dir.join("meta"),
            host: None,
            identity_key: None,
        },
        servers: vec![DataServer {
            id: ServerId(0),
            address: address("0.sock"),
            store: "memory".into(),
            host: None,
            identity_key: None,
        }],
        transport: Transport::default(),
    };
    let mut key = penstock_wire::Key::generate().unwrap();
    key.save(&deployment.client_key).unwrap();
    deployment.make_keys(dir).unwrap();
    let keys = Keys::load(&deployment, ServerId(0), None).unwrap();
    Channel::new(&deployment, Arc::new(keys))
}

/// Until so many have the turn or wait for it.
fn await_queue(channel: &Channel, len: usize) {
    while channel.state().queue.len() != len {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn questions_take_the_connection_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let channel = channel(dir.path());
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let first = channel.turn(Need::Regular).unwrap();
        for i in 0..5 {
            let (channel, order) = (&channel, &order);
            scope.spawn(move || {
                let turn = channel.turn(Need::Regular).unwrap();
                order.lock().unwrap().push(i);
                drop(turn);
            });
            await_queue(channel, i + 2);
        }
        assert!(order.lock().unwrap().is_empty());
        drop(first);
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert!(channel.state().queue.is_empty());
}

#[test]
fn a_failure_is_told_to_those_who_wait_and_then_only_clients_try_again() {
    let dir = tempfile::tempdir().unwrap();
    let channel = channel(dir.path());
    thread::scope(|scope| {
        let turn = channel.turn(Need::Regular).unwrap();
        let waits = scope.spawn(|| channel.turn(Need::Client).map(drop));
        await_queue(&channel, 2);
        channel.failed(&unreachable("it burns"));
        drop(turn);
        let why = waits.join().unwrap().unwrap_err().to_string();
        assert!(why.contains("it burns"), "{why}");
    });
    // Each failure doubles the back-off, up to a limit.
    assert_eq!(channel.state().pause, FIRST_PAUSE);
    for _ in 0..20 {
        channel.failed(&unreachable("it burns"));
    }
    assert_eq!(channel.state().pause, LAST_PAUSE);
    let refused = channel.turn(Need::Regular).map(drop).unwrap_err();
    assert!(refused.to_string().contains("it burns"), "{refused}");
    assert!(channel.turn(Need::Seldom).is_err() && channel.turn(Need::Client).is_ok());
    assert!(channel.again_in() <= LAST_PAUSE);
    // A question that nobody answers is one more failure, and leaves its turn.
    let asked = channel.ask(Need::Client, &MetaRequest::Time);
    assert!(asked.is_err() && channel.state().failures == 22);
    assert!(channel.state().queue.is_empty() && !channel.is_kept());
}

#[test]
fn nothing_is_asked_after_the_stop_and_nobody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let channel = channel(dir.path());
    thread::scope(|scope| {
        let turn = channel.turn(Need::Regular).unwrap();
        let waits = scope.spawn(|| channel.turn(Need::Client).map(drop));
        await_queue(&channel, 2);
        channel.stop();
        assert!(waits.join().unwrap().is_err());
        drop(turn);
    });
    assert!(channel.turn(Need::Client).is_err() && channel.state().queue.is_empty());
}
