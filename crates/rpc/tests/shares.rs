//! Shares of connections: one user leaves some for others.
use crate::common::*;
use penstock_rpc::{Caller, Connection, ServeLimits, connect};
use penstock_wire::message::ErrorKind;
use penstock_wire::{Error, Role};
use std::time::Duration;

const PLACES: usize = 8;

#[test]
fn one_user_leaves_places_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits {
        connections: PLACES,
        ..ServeLimits::default()
    };
    let server = start(dir.path(), limits);
    let tcp = only_tcp(server.address());
    let of_user = |uid| {
        let caller = Caller {
            wallet: wallet(uid),
            ..caller(Role::Client)
        };
        connect(&tcp, &caller, timeouts())
    };
    let refused = |got: Result<Connection, Error>| match got.unwrap_err() {
        Error::Refused(e) => {
            assert_eq!(e.kind, ErrorKind::Busy);
            e.message
        }
        other => panic!("{other}"),
    };
    // Ids other than this process's.
    let (greedy, honest) = (4_000_000_007, 4_000_000_008);
    let mut taken: Vec<Connection> = (0..6).map(|_| of_user(greedy).unwrap()).collect();
    let said = refused(of_user(greedy));
    assert!(
        said.contains(&format!("user {greedy} has 6 connections to data server 0")),
        "{said}"
    );
    let mut other = of_user(honest).unwrap();
    exchange(&mut other);
    // The server's owner on its host gets the last place; administrators get reserved ones.
    let mut owner = connect(server.address(), &caller(Role::Client), timeouts()).unwrap();
    exchange(&mut owner);
    let full = refused(connect(server.address(), &caller(Role::Client), timeouts()));
    assert!(full.contains("all 8 connections"), "{full}");
    exchange(&mut connect(server.address(), &caller(Role::Admin), timeouts()).unwrap());
    // A released place is free for others.
    taken.truncate(3);
    for _ in 0..200 {
        if server.connections() <= 6 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    exchange(&mut of_user(honest).unwrap());
    server.stop();
}
