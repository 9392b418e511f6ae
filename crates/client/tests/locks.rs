//! Range locks, and what they do to shortcuts and to others' writes.
use crate::common::{Cluster, Plan, create, options};
use penstock_client::{ClientOptions, ErrorKind, File, Form, LockMode};
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::ServerId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn write(file: &File, at: u64, bytes: &[u8], form: Form) {
    let access = Pattern::contiguous(at as i64, bytes.len() as u64);
    let n = file
        .write(&access, form, &mut Source::from_slice(bytes))
        .unwrap();
    assert_eq!(n, bytes.len() as u64);
}

fn read(file: &File, at: u64, n: usize, form: Form) -> Vec<u8> {
    let mut bytes = vec![0; n];
    let access = Pattern::contiguous(at as i64, n as u64);
    let got = file
        .read(&access, form, &mut Target::from_slice(&mut bytes))
        .unwrap();
    bytes.truncate(got as usize);
    bytes
}

#[test]
fn shortcuts_are_granted_revoked_by_a_lock_and_granted_again() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    let file = client.open("/s", &create(4096, 4)).unwrap();
    assert!(file.has_shortcut());
    let bytes: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    write(&file, 5, &bytes, Form::Shortcut);
    assert_eq!(read(&file, 5, bytes.len(), Form::Shortcut), bytes);
    let stats = file.stats();
    assert_eq!(stats.shortcut.operations, 2);
    assert_eq!(stats.shortcut.requests, 8);
    assert_eq!(stats.shortcut.bytes_written, 100_000);
    assert_eq!(stats.structured.requests, 0, "nothing went by request");
    // A loop goes the same way.
    let tile = Loop::bytes(10).resized(0, 30).unwrap();
    let access = Pattern::new(0, tile, 0, 20_000).unwrap();
    let mut picked = vec![0u8; 20_000];
    file.read(
        &access,
        Form::Shortcut,
        &mut Target::from_slice(&mut picked),
    )
    .unwrap();
    let whole = read(&file, 0, 100_005, Form::Structured);
    for (i, byte) in picked.iter().enumerate() {
        assert_eq!(*byte, whole[i / 10 * 30 + i % 10]);
    }
    assert_eq!(file.stats().shortcut.operations, 3);
    // Somebody else's lock takes the shortcut away; accesses go on by request.
    let other = cluster.client();
    let theirs = other.open("/s", &create(4096, 4)).unwrap();
    {
        let _lock = theirs.lock(0..10, LockMode::Shared).unwrap();
        assert!(!file.has_shortcut());
        assert_eq!(read(&file, 5, bytes.len(), Form::Shortcut), bytes);
        assert!(file.stats().structured.requests > 0);
        assert!(file.stats().shortcut_refused > 0);
    }
    let mut granted = false;
    for _ in 0..500 {
        granted = file.has_shortcut();
        if granted {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(granted, "after the lock has gone the shortcut comes back");
}

#[test]
fn a_client_without_shortcuts_sends_requests() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client_with(ClientOptions {
        shortcuts: false,
        ..options()
    });
    let file = client.open("/s", &create(4096, 4)).unwrap();
    assert!(!file.has_shortcut());
    write(&file, 0, &[1; 50_000], Form::Shortcut);
    assert_eq!(file.stats().shortcut.requests, 0);
    assert_eq!(file.stats().structured.requests, 4);
}

/// Data-sieving writers under exclusive locks beside plain strided writers, of all forms, with shortcuts granted and
/// revoked: no byte is ever lost.
#[test]
fn read_modify_write_under_a_lock_loses_nothing() {
    let cluster = Cluster::start(Plan {
        servers: 3,
        ..Plan::default()
    });
    const RECORD: u64 = 16;
    const WRITERS: u64 = 6;
    const RECORDS: u64 = 120;
    let span = RECORD * WRITERS;
    for round in 0..3u8 {
        let name = format!("/r{round}");
        std::thread::scope(|s| {
            for w in 0..WRITERS {
                let (cluster, name) = (&cluster, &name);
                s.spawn(move || {
                    let client = cluster.client();
                    let file = client.open(name, &create(100, 3)).unwrap();
                    let value = w as u8 + 1 + 16 * round;
                    if w % 2 == 0 {
                        // Whole extents, read, changed and written back.
                        for chunk in 0..RECORDS / 10 {
                            let range = chunk * 10 * span..(chunk + 1) * 10 * span;
                            let _lock = file.lock(range.clone(), LockMode::Exclusive).unwrap();
                            let n = (range.end - range.start) as usize;
                            let mut extent = read(&file, range.start, n, Form::Contiguous);
                            extent.resize(n, 0);
                            for r in 0..10 {
                                let at = (r * span + w * RECORD) as usize;
                                extent[at..at + RECORD as usize].fill(value);
                            }
                            write(&file, range.start, &extent, Form::Shortcut);
                        }
                    } else {
                        let form = [Form::Contiguous, Form::Shortcut, Form::List][w as usize / 2];
                        let tile = Loop::bytes(RECORD).resized(0, span as i64).unwrap();
                        let bytes = vec![value; (RECORD * 10) as usize];
                        for chunk in 0..RECORDS / 10 {
                            let at = (chunk * 10 * span + w * RECORD) as i64;
                            let access = Pattern::new(at, tile.clone(), 0, RECORD * 10).unwrap();
                            file.write(&access, form, &mut Source::from_slice(&bytes))
                                .unwrap();
                        }
                    }
                });
            }
        });
        let client = cluster.client();
        let file = client.open(&name, &create(100, 3)).unwrap();
        let all = read(&file, 0, (span * RECORDS) as usize, Form::Structured);
        assert_eq!(all.len() as u64, span * RECORDS);
        for (i, byte) in all.iter().enumerate() {
            let w = (i as u64 / RECORD % WRITERS) as u8;
            assert_eq!(*byte, w + 1 + 16 * round, "byte {i} of round {round}");
        }
    }
}

#[test]
fn exclusive_locks_exclude_and_are_released_on_drop_and_panic() {
    let cluster = Cluster::start(Plan::default());
    let inside = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            let (cluster, inside) = (&cluster, &inside);
            s.spawn(move || {
                let client = cluster.client();
                let file = client.open("/x", &create(10, 4)).unwrap();
                for i in 0..20u64 {
                    // Ranges in different orders over all servers.
                    let range = i % 7..1000 + i;
                    let _lock = file.lock(range, LockMode::Exclusive).unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                }
            });
        }
    });
    let client = cluster.client();
    let file = client.open("/x", &create(10, 4)).unwrap();
    let theirs = file.clone();
    let panicked = std::thread::spawn(move || {
        let _lock = theirs.lock(0..100, LockMode::Exclusive).unwrap();
        panic!("with a lock in hand");
    });
    assert!(panicked.join().is_err());
    drop(file.lock(0..100, LockMode::Exclusive).unwrap());
}

#[test]
fn a_lock_that_is_not_to_be_had_times_out_with_a_reason() {
    let cluster = Cluster::start(Plan::default());
    let holder = cluster.client();
    let held = holder.open("/t", &create(10, 4)).unwrap();
    let _lock = held.lock(0..100, LockMode::Exclusive).unwrap();
    let client = cluster.client_with(ClientOptions {
        lock_timeout: Duration::from_millis(50),
        ..options()
    });
    let file = client.open("/t", &create(10, 4)).unwrap();
    let e = file.lock(50..60, LockMode::Shared).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::LockTimeout, "{e}");
    // What lies beside is free, and nothing of the failed lock is left.
    drop(file.lock(200..300, LockMode::Exclusive).unwrap());
    drop(_lock);
    drop(file.lock(0..1000, LockMode::Exclusive).unwrap());
}

#[test]
fn a_plain_write_waits_for_the_holder() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    let file = client.open("/w", &create(1000, 4)).unwrap();
    let other = cluster.client();
    let theirs = other.open("/w", &create(1000, 4)).unwrap();
    let released = AtomicBool::new(false);
    std::thread::scope(|s| {
        let lock = file.lock(0..8000, LockMode::Exclusive).unwrap();
        let waiter = s.spawn(|| {
            write(&theirs, 100, &[2; 50], Form::Structured);
            assert!(released.load(SeqCst), "the write did not wait");
        });
        // The holder's own accesses pass, also those through clones.
        write(&file.clone(), 0, &[1; 8000], Form::Structured);
        assert_eq!(read(&file, 0, 8000, Form::Structured), [1; 8000]);
        std::thread::sleep(Duration::from_millis(30));
        released.store(true, SeqCst);
        drop(lock);
        waiter.join().unwrap();
    });
    assert_eq!(read(&file, 100, 50, Form::Structured), [2; 50]);
}

#[test]
fn allocating_extends_and_never_cuts() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    let file = client.open("/a", &create(1000, 4)).unwrap();
    file.allocate(10_500).unwrap();
    assert_eq!(file.len().unwrap(), 10_500);
    write(&file, 20_000, &[1], Form::Structured);
    file.allocate(500).unwrap();
    assert_eq!(file.len().unwrap(), 20_001);
    std::thread::scope(|s| {
        s.spawn(|| (0..50u64).for_each(|i| file.allocate(21_000 + i * 10).unwrap()));
        s.spawn(|| (0..50u64).for_each(|i| write(&file, 30_000 + i * 100, &[7], Form::Shortcut)));
    });
    assert_eq!(file.len().unwrap(), 34_901);
    for i in 0..50u64 {
        assert_eq!(read(&file, 30_000 + i * 100, 1, Form::Structured), [7]);
    }
}

#[test]
fn a_length_that_one_server_refuses_is_refused() {
    let mut cluster = Cluster::start(Plan::default());
    cluster.data[1].take().unwrap().stop();
    let read_only = penstock_server::Options {
        read_only: true,
        ..penstock_server::Options::default()
    };
    let server = penstock_server::start(&cluster.deployment, ServerId(1), read_only);
    cluster.data[1] = Some(server.unwrap());
    let file = cluster.client().open("/r", &create(1000, 4)).unwrap();
    for refused in [
        file.set_len(50_000),
        file.extend(50_000),
        file.allocate(50_000),
    ] {
        let e = refused.unwrap_err().to_string();
        assert!(e.contains("read-only"), "{e}");
    }
}

#[test]
fn growing_by_any_call_cuts_off_nothing_that_others_append() {
    let cluster = Cluster::start(Plan::default());
    let (one, two) = (cluster.client(), cluster.client());
    let file = one.open("/g", &create(1000, 4)).unwrap();
    let theirs = two.open("/g", &create(1000, 4)).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 1..=200u64 {
                let form = [Form::Shortcut, Form::Structured][i as usize % 2];
                write(&theirs, i * 700, &[7], form);
            }
        });
        for i in 1..=200u64 {
            match i % 2 {
                0 => file.extend(i * 700).unwrap(),
                _ => file.allocate(i * 700).unwrap(),
            }
        }
    });
    assert_eq!(file.len().unwrap(), 200 * 700 + 1);
    for i in 1..=200u64 {
        assert_eq!(read(&file, i * 700, 1, Form::Structured), [7], "{i}");
    }
    // A length that is set cuts what is there, and what is not there yet becomes a hole.
    file.set_len(5).unwrap();
    assert_eq!(theirs.len().unwrap(), 5);
    file.set_len(5000).unwrap();
    assert_eq!(read(&theirs, 0, 5000, Form::Structured), [0; 5000]);
    assert!(file.extend(10).is_ok() && file.len().unwrap() == 5000);
}
