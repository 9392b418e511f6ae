//! What one user may hold of a data server's, and how long one keeps another waiting, over TCP: users are those of credentials.
use crate::common::*;
use penstock_server::Options;
use penstock_wire::credential::Uids;
use penstock_wire::message::{Capability, DataReply, DataRequest, ErrorKind, LockMode, WireError};
use std::time::{Duration, Instant};

/// Beyond the ids of whoever runs this.
const GREEDY: u32 = 4_000_000_001;
const HONEST: u32 = 4_000_000_002;

fn few() -> Options {
    Options {
        open_files: 8,
        range_locks: 8,
        lock_waiters: 4,
        shortcut_grants: 8,
        ..Options::default()
    }
}

fn of(site: &TestDeployment, uid: u32) -> Client {
    site.client_with(0, uid, |_| {})
}

fn file_of(site: &TestDeployment, uid: u32, file: u64) -> Capability {
    site.capability_of(uid, file, ALL, Some(HONEST))
}

#[track_caller]
fn is_busy(e: &WireError, words: &str) {
    assert!(
        e.kind == ErrorKind::Busy && e.message.contains(words),
        "{e}"
    );
}

#[test]
fn open_files_are_shared_out() {
    let site = TestDeployment::start(1, "dir", few());
    let (mut a, mut b) = (of(&site, GREEDY), of(&site, GREEDY));
    let first = a.attach(file_of(&site, GREEDY, 1)).unwrap();
    for file in 2..4 {
        a.attach(file_of(&site, GREEDY, file)).unwrap();
    }
    for file in 1..4 {
        b.attach(file_of(&site, GREEDY, file)).unwrap();
    }
    let e = b.attach(file_of(&site, GREEDY, 4)).unwrap_err();
    is_busy(&e, &format!("user {GREEDY} has 6 files of data server 0"));
    // What is open can be renewed, and is used as before.
    a.attach(file_of(&site, GREEDY, 1)).unwrap();
    a.write(first, contiguous(0, 4), b"data");
    let mut honest = of(&site, HONEST);
    honest.attach(file_of(&site, HONEST, 1)).unwrap();
    a.done(DataRequest::Detach { handle: first });
    b.attach(file_of(&site, GREEDY, 4)).unwrap_err();
    drop(a);
    // Its session ends by and by.
    let until = Instant::now() + Duration::from_secs(20);
    while b.attach(file_of(&site, GREEDY, 4)).is_err() {
        assert!(Instant::now() < until, "what was open is not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_mount_opens_files_at_its_callers_cost() {
    let site = TestDeployment::start(1, "dir", few());
    let speaks = |statement: &mut penstock_wire::credential::Statement| {
        statement.speaks_for = vec![Uids {
            first: GREEDY,
            last: HONEST,
        }];
    };
    // Of the server's host, by the word of the kernel; of another, by its credential.
    for local in [true, false] {
        let mut mount = if local {
            site.client(0)
        } else {
            site.client_with(0, 0, speaks)
        };
        for file in 1..7 {
            mount.attach(file_of(&site, GREEDY, file)).unwrap();
        }
        let e = mount.attach(file_of(&site, GREEDY, 7)).unwrap_err();
        is_busy(&e, &format!("user {GREEDY} has 6"));
        mount.attach(file_of(&site, HONEST, 7)).unwrap();
        drop(mount);
        let until = Instant::now() + Duration::from_secs(20);
        while site.servers[0].connections() > 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let mut mount = site.client_with(0, 0, speaks);
    let e = mount.attach(file_of(&site, HONEST + 1, 1)).unwrap_err();
    assert_eq!(e.kind, ErrorKind::BadCapability);
}

#[test]
fn range_locks_are_shared_out() {
    let site = TestDeployment::start(1, "dir", few());
    let mut greedy = of(&site, GREEDY);
    let files: Vec<_> = (1..3)
        .map(|file| greedy.attach(file_of(&site, GREEDY, file)).unwrap())
        .collect();
    let locks: Vec<_> = (0..6)
        .map(|i| greedy.lock(files[i as usize % 2], i * 10, i * 10 + 5))
        .collect();
    greedy.send_lock(files[0], 100, 101, LockMode::Shared, 10);
    let e = greedy.lock_answer().unwrap_err();
    is_busy(&e, &format!("user {GREEDY} has 6 range locks"));
    // Bytes are written and read as before, without a lock and under one.
    greedy.write(files[0], contiguous(0, 5), b"bytes");
    let mut honest = of(&site, HONEST);
    let file = honest.attach(file_of(&site, HONEST, 1)).unwrap();
    honest.lock(file, 200, 300);
    honest.write(file, contiguous(200, 4), b"more");
    // Of the seven that are left for both, it may have five now.
    for (handle, lock) in [(files[0], locks[0]), (files[1], locks[1])] {
        greedy.done(DataRequest::Unlock { handle, lock });
    }
    greedy.lock(files[1], 400, 401);
    greedy.send_lock(files[1], 500, 501, LockMode::Shared, 10);
    is_busy(&greedy.lock_answer().unwrap_err(), "has 5 range locks");
}

#[test]
fn waits_for_one_object_are_shared_out() {
    let site = TestDeployment::start(1, "dir", few());
    let mut owner = site.client(0);
    let mine = owner.attach(site.capability(1, ALL)).unwrap();
    let held = owner.lock(mine, 0, 100);
    let waiting = |uid| {
        let mut client = of(&site, uid);
        let file = client.attach(file_of(&site, uid, 1)).unwrap();
        client.send_lock(file, 0, 1, LockMode::Exclusive, 15_000);
        client
    };
    // Three of four places; they need a moment to get there.
    let mut clients: Vec<Client> = (0..3).map(|_| waiting(GREEDY)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let e = waiting(GREEDY).lock_answer().unwrap_err();
    is_busy(&e, &format!("user {GREEDY} has too many requests"));
    let honest = waiting(HONEST);
    std::thread::sleep(Duration::from_millis(200));
    owner.done(DataRequest::Unlock {
        handle: mine,
        lock: held,
    });
    // Each ends with its connection.
    clients.push(honest);
    std::thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || client.lock_answer().unwrap());
        }
    });
}

#[test]
fn a_user_of_another_host_waits_a_second_for_another() {
    let site = TestDeployment::one();
    let mut reader = of(&site, GREEDY);
    let read = site.capability_of(GREEDY, 1, READ, Some(HONEST));
    let file = reader.attach(read).unwrap();
    reader.send_lock(file, 0, 1 << 40, LockMode::Shared, 1000);
    let lock = reader.lock_answer().unwrap();
    let mut writer = of(&site, HONEST);
    let handle = writer.attach(file_of(&site, HONEST, 1)).unwrap();
    let began = Instant::now();
    writer.write(handle, contiguous(0, 4), b"data");
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    let unlock = DataRequest::Unlock { handle: file, lock };
    assert_eq!(reader.refused(unlock).kind, ErrorKind::LockLost);
    // Of one user it lasts its lease, and the holder is named.
    let mut second = of(&site, HONEST);
    let own = second.attach(file_of(&site, HONEST, 1)).unwrap();
    let held = second.lock(own, 0, 8);
    writer.send_lock(handle, 0, 4, LockMode::Exclusive, 1500);
    let e = writer.lock_answer().unwrap_err();
    assert_eq!(e.kind, ErrorKind::LockTimeout);
    let holder = format!("a client of user {HONEST} on another host");
    assert!(e.message.contains(&holder), "{e}");
    second.done(DataRequest::Unlock {
        handle: own,
        lock: held,
    });
}

#[test]
fn shortcuts_are_shared_out() {
    let site = TestDeployment::start(1, "dir", few());
    // As a mount asks for a user: the process gets the descriptors, the user pays.
    let mut mount = site.client(0);
    let mut granted = |uid: u32, file: u64| {
        let me = rustix::process::geteuid().as_raw();
        let capability = site.capability_of(uid, file, ALL, Some(me));
        let handle = mount.attach(capability).unwrap();
        mount.write(handle, contiguous(0, 4), b"data");
        match mount.ask(DataRequest::Shortcut { handle }) {
            DataReply::Shortcut { .. } => {
                drop(mount.connection.take_descriptors());
                Ok(handle)
            }
            DataReply::NoShortcut { reason } => Err(reason),
            other => panic!("{other:?}"),
        }
    };
    let handles: Vec<_> = (1..3).map(|file| granted(GREEDY, file).unwrap()).collect();
    drop(handles);
    for file in [1, 2, 1, 2] {
        granted(GREEDY, file).unwrap();
    }
    let reason = granted(GREEDY, 1).unwrap_err();
    assert!(
        reason.contains(&format!("user {GREEDY} has 6 shortcuts")),
        "{reason}"
    );
    granted(HONEST, 3).unwrap();
}
