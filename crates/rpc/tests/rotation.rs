//! Keys of two generations, and connections when keys are replaced.
use crate::common::{LEN, caller, identity, only_tcp, start_with, timeouts, wallet_of};
use penstock_rpc::deployment::Address;
use penstock_rpc::{Caller, Connection, Identity, Keyring, ServeLimits, connect};
use penstock_wire::message::DataReply;
use penstock_wire::{Envelope, Error, Key, KeyPair, Role};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit for the end of connections with removed keys.
const LIMIT: Duration = Duration::from_secs(5);

fn pair(byte: u8) -> KeyPair {
    KeyPair::from_seed(Key::from_bytes([byte; 32])).unwrap()
}

/// The server of `identity()` in the next generation of keys.
fn next() -> Identity {
    Identity {
        client_key: Key::from_bytes([11; 32]),
        pair: pair(13),
        authority: Some(pair(14).public()),
        ..identity()
    }
}

/// A client of that generation, with a credential of it.
fn next_caller() -> Caller {
    Caller {
        key: next().client_key,
        wallet: wallet_of(&pair(14), 7),
        ..caller(Role::Client)
    }
}

struct TestServer {
    keys: Arc<Keyring>,
    /// The server by TCP, and by its socket; for clients of either generation.
    former: [Address; 2],
    next: [Address; 2],
    _server: penstock_rpc::RunningServer,
    _dir: tempfile::TempDir,
}

fn site(identities: Vec<Identity>) -> TestServer {
    let dir = tempfile::tempdir().unwrap();
    let keys = Arc::new(Keyring::new(identities).unwrap());
    let server = start_with(dir.path(), None, keys.clone(), ServeLimits::default());
    let of = |identity: Identity| {
        let address = Address {
            identity: Some(identity.pair.public()),
            ..server.address().clone()
        };
        let unix = Address {
            tcp: None,
            ..address.clone()
        };
        [only_tcp(&address), unix]
    };
    TestServer {
        former: of(identity()),
        next: of(next()),
        keys,
        _server: server,
        _dir: dir,
    }
}

fn works(connection: &mut Connection) -> Result<(), Error> {
    let e = Envelope::default();
    connection
        .call::<_, DataReply>(&e, &LEN, &mut false)
        .map(drop)
}

fn open(to: &Address, caller: &Caller) -> Result<Connection, Error> {
    let mut connection = connect(to, caller, timeouts())?;
    works(&mut connection)?;
    Ok(connection)
}

#[test]
fn a_server_with_two_generations_answers_clients_of_both() {
    let site = site(vec![next(), identity()]);
    for (former, next) in site.former.iter().zip(&site.next) {
        open(former, &caller(Role::Client)).unwrap();
        open(next, &next_caller()).unwrap();
        // A credential of the former authority, shown by a program with the new deployment file; and the reverse.
        for (to, key, authority) in [(next, 11, 4), (former, 1, 14)] {
            let mixed = Caller {
                key: Key::from_bytes([key; 32]),
                wallet: wallet_of(&pair(authority), 7),
                ..caller(Role::Client)
            };
            open(to, &mixed).unwrap();
        }
    }
    // No other key is accepted.
    let stranger = Caller {
        key: Key::from_bytes([21; 32]),
        ..caller(Role::Client)
    };
    let e = open(&site.next[0], &stranger).unwrap_err();
    assert!(matches!(e, Error::BadKey(_)), "{e}");
}

#[test]
fn connections_end_with_the_keys_that_opened_them() {
    let site = site(vec![identity()]);
    let mut of_before: Vec<_> = site
        .former
        .iter()
        .map(|to| open(to, &caller(Role::Client)).unwrap())
        .collect();
    // The next generation is not known yet.
    assert!(open(&site.next[0], &next_caller()).is_err());
    site.keys.replace(vec![next(), identity()]).unwrap();
    let mut new: Vec<_> = site
        .next
        .iter()
        .map(|to| open(to, &next_caller()).unwrap())
        .collect();
    // Connections with former keys stay while both are accepted.
    sleep(Duration::from_millis(2500));
    of_before.iter_mut().try_for_each(works).unwrap();
    // A client with the new key, but a credential of the former authority, loses its connection too.
    let mixed = Caller {
        wallet: wallet_of(&pair(4), 7),
        ..next_caller()
    };
    of_before.push(open(&site.next[0], &mixed).unwrap());
    site.keys.replace(vec![next()]).unwrap();
    let begun = Instant::now();
    for connection in &mut of_before {
        while let Ok(()) = works(connection) {
            assert!(begun.elapsed() < LIMIT, "{} is served", connection.peer());
            sleep(Duration::from_millis(50));
        }
    }
    new.iter_mut().try_for_each(works).unwrap();
    for (to, client) in [
        (&site.former[0], caller(Role::Client)),
        (&site.former[1], caller(Role::Client)),
        (&site.next[0], mixed),
    ] {
        assert!(open(to, &client).is_err());
    }
    open(&site.next[0], &next_caller()).unwrap();
}
