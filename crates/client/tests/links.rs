//! Connections of a client: broken ones are fenced, unused ones end.
use crate::common::net::{LIMIT, Net};
use crate::common::{Cluster, Plan, create};
use penstock_client::{Client, File, Form, LockMode};
use penstock_datatype::{Pattern, Source, Target};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

/// One data server, a network before it that may keep what is sent, and a client there.
fn behind_a_net() -> (Cluster, Arc<Net>, Client) {
    let cluster = Cluster::start(Plan {
        servers: 1,
        tcp: true,
        plain: true,
        ..Plan::default()
    });
    let (net, far) = Net::before(&cluster.deployment);
    let client = Client::connect(&far, Default::default()).unwrap();
    (cluster, net, client)
}

fn write(file: &File, bytes: &[u8]) {
    let access = Pattern::contiguous(0, bytes.len() as u64);
    let done = file.write(&access, Form::Structured, &mut Source::from_slice(bytes));
    assert_eq!(done.unwrap(), bytes.len() as u64);
}

#[test]
fn a_write_that_arrives_after_its_repetition_changes_nothing() {
    let (cluster, net, client) = behind_a_net();
    let file = client.open("/f", &create(4096, 1)).unwrap();
    write(&file, &[1; 1000]);
    net.hold(0);
    let first = std::thread::scope(|s| {
        let writer = s.spawn(|| write(&file, &[2; 1000]));
        let mut state = net.wait(|held| held.ends_with(&[2; 1000]));
        // The client sees the connection gone; the server does not.
        state.holding = false;
        state.ends[state.of].0.shutdown(Shutdown::Both).unwrap();
        let server = state.ends[state.of].1.try_clone().unwrap();
        drop(state);
        writer.join().unwrap();
        server
    });
    // Acknowledged, and then somebody else's write of the same bytes.
    let other = cluster.client();
    let theirs = other.open("/f", &create(4096, 1)).unwrap();
    write(&theirs, &[3; 1000]);
    // Now the first copy arrives. Whatever the server makes of it, it has when it closes.
    let mut first = first;
    let held = std::mem::take(&mut net.state.lock().unwrap().held);
    let _ = first
        .write_all(&held)
        .and_then(|()| first.shutdown(Shutdown::Write));
    first.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = first.read_to_end(&mut Vec::new());
    let mut found = [0; 1000];
    let access = Pattern::contiguous(0, 1000);
    theirs
        .read(
            &access,
            Form::Structured,
            &mut Target::from_slice(&mut found),
        )
        .unwrap();
    assert_eq!(found, [3; 1000]);
}

/// Waits until the servers have so many connections in all.
fn wait_for_connections(cluster: &Cluster, wanted: usize) {
    let count = || {
        let data = cluster.data.iter().flatten();
        data.chain(&cluster.meta)
            .map(|s| s.connections())
            .sum::<usize>()
    };
    for _ in 0..LIMIT.as_millis() / 10 {
        if count() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} connections, {wanted} wanted", count());
}

#[test]
fn connections_end_with_their_last_user() {
    let cluster = Cluster::start(Plan {
        servers: 2,
        ..Plan::default()
    });
    wait_for_connections(&cluster, 0);
    let client = cluster.client();
    let file = client.open("/f", &create(4096, 2)).unwrap();
    for form in [Form::Structured, Form::Shortcut] {
        let access = Pattern::contiguous(0, 10_000);
        let bytes = vec![7; 10_000];
        file.write(&access, form, &mut Source::from_slice(&bytes))
            .unwrap();
    }
    let counter = client.counter(7);
    counter.create(1).unwrap();
    drop(file.lock(0..10_000, LockMode::Exclusive).unwrap());
    drop((file, counter));
    // An idle connection or two are kept as long as the client is there.
    drop(client);
    wait_for_connections(&cluster, 0);
}

/// A file is closed while another thread uses the connection on which it is open.
#[test]
fn a_removed_file_keeps_no_space_on_a_connection_that_was_in_use() {
    let (cluster, net, client) = behind_a_net();
    let gone = client.open("/gone", &create(4096, 1)).unwrap();
    let other = client.open("/other", &create(4096, 1)).unwrap();
    write(&gone, &[1; 1000]);
    let held = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        open.filter(|path| {
            path.starts_with(cluster.dir.path()) && path.to_string_lossy().ends_with(" (deleted)")
        })
        .count()
    };
    net.hold(0);
    std::thread::scope(|s| {
        let writer = s.spawn(|| write(&other, &[2; 1000]));
        drop(net.wait(|held| !held.is_empty()));
        client.unlink("/gone").unwrap();
        assert_eq!(held(), 1, "it is open");
        drop(gone);
        let mut state = net.state.lock().unwrap();
        state.holding = false;
        let kept = std::mem::take(&mut state.held);
        let of = state.of;
        state.ends[of].1.write_all(&kept).unwrap();
        drop(state);
        writer.join().unwrap();
    });
    for _ in 0..LIMIT.as_millis() / 10 {
        if held() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the removed file is still open");
}
