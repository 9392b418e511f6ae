//! Many clients at once, and many threads of one client: all of them succeed, within bounds.
use crate::common::{Cluster, Plan, create, options};
use penstock_client::{Client, ClientOptions, Form, Identity};
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_wire::Role;
use std::sync::Barrier;

const RECORD: u64 = 100;
const RECORDS: u64 = 50;

/// Writes and reads back every `of`-th record from the `i`-th on.
fn work(client: &Client, i: u64, of: u64, form: Form) {
    let file = client.open("/shared", &create(1000, 2)).unwrap();
    let tile = Loop::bytes(RECORD)
        .resized(0, (RECORD * of) as i64)
        .unwrap();
    let access = Pattern::new((i * RECORD) as i64, tile, 0, RECORD * RECORDS).unwrap();
    let bytes: Vec<u8> = (0..RECORD * RECORDS).map(|b| (b ^ i) as u8).collect();
    file.write(&access, form, &mut Source::from_slice(&bytes))
        .unwrap();
    let mut back = vec![0; bytes.len()];
    let n = file
        .read(&access, form, &mut Target::from_slice(&mut back))
        .unwrap();
    assert_eq!(n, bytes.len() as u64);
    assert!(back == bytes);
}

fn connections(cluster: &Cluster) -> Vec<usize> {
    cluster
        .data
        .iter()
        .flatten()
        .map(|s| s.connections())
        .collect()
}

#[test]
fn two_hundred_clients() {
    const CLIENTS: u64 = 200;
    let cluster = Cluster::start(Plan {
        servers: 2,
        ..Plan::default()
    });
    let all_done = Barrier::new(CLIENTS as usize + 1);
    std::thread::scope(|s| {
        for i in 0..CLIENTS {
            let (cluster, all_done) = (&cluster, &all_done);
            s.spawn(move || {
                let who = Identity {
                    program: 1,
                    rank: i as u32,
                };
                let one = ClientOptions {
                    connections: 1,
                    shortcuts: false,
                    ..options()
                };
                let client =
                    Client::connect_with(&cluster.deployment, who, Role::Client, one).unwrap();
                let form = [Form::Contiguous, Form::List, Form::Structured][i as usize % 3];
                work(&client, i, CLIENTS, form);
                all_done.wait();
                all_done.wait();
            });
        }
        all_done.wait();
        for n in connections(&cluster) {
            assert!(
                n <= CLIENTS as usize,
                "{n} connections of {CLIENTS} clients"
            );
        }
        all_done.wait();
    });
}

#[test]
fn fifty_threads_of_one_client() {
    const THREADS: u64 = 50;
    let cluster = Cluster::start(Plan {
        servers: 2,
        ..Plan::default()
    });
    let client = cluster.client();
    std::thread::scope(|s| {
        for i in 0..THREADS {
            let client = &client;
            s.spawn(move || {
                let form = [
                    Form::Contiguous,
                    Form::List,
                    Form::Structured,
                    Form::Shortcut,
                ];
                work(client, i, THREADS, form[i as usize % 4]);
            });
        }
    });
    // Four for operations, one for descriptors.
    for n in connections(&cluster) {
        assert!(n <= 5, "{n} connections of one client");
    }
    // Four for operations; of each data server one for its reports and counts of bytes, two while both ask.
    let n = cluster.meta.as_ref().unwrap().connections();
    assert!(n <= 4 + 2 * 2, "{n} connections to the metadata server");
}

#[test]
fn over_tcp_there_are_no_shortcuts_and_all_else_is_the_same() {
    let cluster = Cluster::start(Plan {
        servers: 2,
        tcp: true,
        ..Plan::default()
    });
    let client = cluster.client();
    for form in [
        Form::Contiguous,
        Form::List,
        Form::Structured,
        Form::Shortcut,
    ] {
        work(&client, 1, 3, form);
    }
    assert_eq!(client.stats().shortcut.requests, 0);
    let file = client.open("/large", &create(64 << 10, 2)).unwrap();
    assert!(!file.has_shortcut());
    let bytes: Vec<u8> = (0..20_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let access = Pattern::contiguous(3, bytes.len() as u64);
    file.write(&access, Form::Structured, &mut Source::from_slice(&bytes))
        .unwrap();
    let mut back = vec![0; bytes.len()];
    file.read(
        &access,
        Form::Structured,
        &mut Target::from_slice(&mut back),
    )
    .unwrap();
    assert!(back == bytes);
}
