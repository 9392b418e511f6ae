//! The metadata server over its socket.

use crate::common::{Client, create, deployment, mkdir, open, rename, stat, unlink};
use penstock_layout::{FileId, ServerId};
use penstock_meta::{Options, start};
use penstock_wire::message::{
    CreateOptions, ErrorKind, MAX_BATCH, MetaReply, MetaRequest, NodeKind,
};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

#[test]
fn opening_gives_a_capability_that_data_servers_accept() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let options = Options {
        capability_lifetime: Duration::from_secs(100),
        ..Options::default()
    };
    let _server = start(&d, options).unwrap();
    let at = ServerId(2);
    let seals = d.meta_identity().unwrap().seals();
    let key = &seals[&at];
    let mut c = Client::new(&d);

    let (attributes, capability, created) = c.open(create("/f"));
    assert!(created && attributes.kind == NodeKind::File && attributes.nlink == 1);
    capability.verify(at, key, now_ms()).unwrap();
    // By the server's own time, which began with the wall clock.
    assert_eq!(capability.expires_ms - capability.issued_ms, 100_000);
    assert!(capability.issued_ms.abs_diff(now_ms()) < 60_000);
    assert_eq!(capability.file, attributes.id);
    assert_eq!(Some(&capability.layout), attributes.layout.as_ref());
    assert!(capability.read && capability.write && !capability.remove);
    assert_eq!(capability.layout.servers.len(), 4);

    let (_, capability, created) = c.open(open("/f", true, false));
    assert!(!created && capability.read && !capability.write);

    let renew = |file, read, write| MetaRequest::Renew { file, read, write };
    let MetaReply::Renewed { capability } = c.ok(renew(attributes.id, true, true)) else {
        panic!()
    };
    capability.verify(at, key, now_ms()).unwrap();
    let mut other = Client::new(&d);
    let id = attributes.id;
    assert_eq!(other.err(renew(id, true, false)), ErrorKind::BadCapability);
    other.open(open("/f", true, false));
    other.ok(renew(id, true, false));
    assert_eq!(other.err(renew(id, true, true)), ErrorKind::BadCapability);

    let sync = MetaRequest::SyncFile { file: id };
    c.ok(sync.clone());
    let MetaReply::Unlinked { capability } = other.ok(unlink("/f")) else {
        panic!()
    };
    let capability = capability.unwrap();
    capability.verify(at, key, now_ms()).unwrap();
    assert!(capability.remove && !capability.read && capability.file == id);
    assert_eq!(c.err(renew(id, true, true)), ErrorKind::NotFound);
    assert_eq!(c.err(sync), ErrorKind::NotFound);
}

/// A former owner of a file may hold descriptors of it for ever. Root may too, which does no harm.
#[test]
fn a_file_that_was_given_away_is_lent_to_nobody() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let chown = |uid| MetaRequest::SetAttr {
        path: "/f".into(),
        mode: None,
        uid: Some(uid),
        gid: None,
        mtime_ns: None,
        atime_ns: None,
    };
    let (attributes, capability, _) = c.open(create("/f"));
    assert_eq!(capability.lend_to, Some(0));
    let file = attributes.id;
    let renewed = |c: &mut Client| {
        let (read, write) = (true, true);
        match c.ok(MetaRequest::Renew { file, read, write }) {
            MetaReply::Renewed { capability } => capability.lend_to,
            other => panic!("{other:?}"),
        }
    };
    for (uid, lend_to) in [
        (1000, Some(1000)),
        (1000, Some(1000)),
        (1001, None),
        (0, None),
        (1000, None),
    ] {
        c.ok(chown(uid));
        assert_eq!(renewed(&mut c), lend_to, "{uid}");
    }
    // This survives a restart.
    server.stop();
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let (_, capability, _) = c.open(open("/f", true, false));
    assert_eq!(capability.lend_to, None);
    // The user for nobody has no rights.
    c.open(create("/g"));
    let MetaRequest::SetAttr {
        mode,
        uid: _,
        gid,
        mtime_ns,
        atime_ns,
        ..
    } = chown(0)
    else {
        panic!()
    };
    let (path, uid) = ("/g".to_owned(), Some(65534));
    c.ok(MetaRequest::SetAttr {
        path,
        mode,
        uid,
        gid,
        mtime_ns,
        atime_ns,
    });
    assert_eq!(c.open(open("/g", true, false)).1.lend_to, None);
}

#[test]
fn replaced_files_are_handed_to_the_caller_for_removal() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let (old, ..) = c.open(create("/old"));
    let (new, ..) = c.open(create("/new"));
    let MetaReply::Unlinked { capability } = c.ok(rename("/new", "/old")) else {
        panic!()
    };
    assert_eq!(capability.unwrap().file, old.id);
    assert_eq!(c.stat("/old").id, new.id);
    let reply = c.ok(rename("/old", "/free"));
    assert_eq!(reply, MetaReply::Unlinked { capability: None });
}

#[test]
fn striping_follows_the_options_and_turns_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let first = |c: &mut Client, path: &str| {
        let (attributes, ..) = c.open(create(path));
        attributes.layout.unwrap().servers[0].0
    };
    let starts: Vec<u32> = (0..8).map(|i| first(&mut c, &format!("/{i}"))).collect();
    let turn: Vec<u32> = (0..8).map(|i| (starts[0] + i) % 4).collect();
    assert_eq!(starts, turn);
    let wrong = MetaRequest::Open {
        path: "/x".into(),
        read: true,
        write: true,
        create: Some(CreateOptions {
            stripe_count: Some(5),
            ..CreateOptions::default()
        }),
        exclusive: false,
    };
    assert_eq!(c.err(wrong), ErrorKind::InvalidArgument);
    assert_eq!(c.err(stat("/x")), ErrorKind::NotFound, "nothing was made");
}

#[test]
fn exclusive_creation_has_one_winner() {
    const RACERS: usize = 8;
    const NAMES: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let barrier = Barrier::new(RACERS);
    let wins: Vec<AtomicUsize> = (0..NAMES).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                let mut c = Client::new(&d);
                for (i, won) in wins.iter().enumerate() {
                    barrier.wait();
                    match c.call(&create(format!("/{i}"))).unwrap() {
                        MetaReply::Opened { created, .. } => {
                            assert!(created);
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                        MetaReply::Error(e) => assert_eq!(e.kind, ErrorKind::Exists),
                        reply => panic!("{reply:?}"),
                    }
                }
            });
        }
    });
    assert!(wins.iter().all(|w| w.load(Ordering::Relaxed) == 1));
}

#[test]
fn batches_run_in_order_and_past_errors() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let MetaReply::Batch(replies) = c.ok(MetaRequest::Batch(vec![
        mkdir("/d"),
        create("/d/f"),
        create("/d/f"),
        stat("/d/f"),
        unlink("/d/f"),
        stat("/d/f"),
        MetaRequest::Sync,
    ])) else {
        panic!()
    };
    let kinds: Vec<_> = replies
        .iter()
        .map(|r| match r {
            MetaReply::Error(e) => Some(e.kind),
            _ => None,
        })
        .collect();
    use ErrorKind::{Exists, NotFound};
    let expected = [None, None, Some(Exists), None, None, Some(NotFound), None];
    assert_eq!(kinds, expected);
}

/// The connection ends with an error message; others continue.
#[test]
fn malformed_requests_are_told_off() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut other = Client::new(&d);
    let too_many = vec![MetaRequest::Status; MAX_BATCH + 1];
    for bad in [vec![MetaRequest::Batch(vec![])], too_many] {
        let mut c = Client::new(&d);
        let kind = c.err(MetaRequest::Batch(bad));
        assert_eq!(kind, ErrorKind::Malformed);
        assert!(c.call(&MetaRequest::Status).is_err());
    }
    other.ok(MetaRequest::Status);
}

/// The largest batch of the largest replies gets a reply that fits; requests that were not carried out say so.
#[test]
fn replies_of_a_batch_fit_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let long = "x".repeat(200);
    let creates = (0..MAX_BATCH / 2)
        .map(|i| create(format!("/{long}{i}")))
        .collect();
    let MetaReply::Batch(replies) = c.ok(MetaRequest::Batch(creates)) else {
        panic!()
    };
    let made = |r: &&MetaReply| matches!(r, MetaReply::Opened { created: true, .. });
    assert_eq!(replies.iter().filter(made).count(), MAX_BATCH / 2);
    let list = || MetaRequest::Readdir {
        path: "/".into(),
        after: None,
        limit: u32::MAX,
    };
    let wrong = || stat(format!("/{}", "y/".repeat(100)));
    let pages = (0..MAX_BATCH)
        .map(|i| if i % 2 == 0 { list() } else { wrong() })
        .collect();
    let MetaReply::Batch(replies) = c.ok(MetaRequest::Batch(pages)) else {
        panic!()
    };
    assert_eq!(replies.len(), MAX_BATCH);
    let refused = |r: &MetaReply| matches!(r, MetaReply::Error(e) if e.kind == ErrorKind::TooLarge);
    assert!(replies[MAX_BATCH / 2..].iter().any(refused));
    // The client's paging returns all.
    assert_eq!(c.list("/", u32::MAX).len(), MAX_BATCH / 2);
    assert_eq!(c.list("/", 100).len(), MAX_BATCH / 2);
}

#[test]
fn counters_are_shared_and_end_with_their_connection() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let token = 0x1234_5678_9abc_def0_1234_5678_9abc_def0;
    let mut owner = Client::new(&d);
    owner.ok(MetaRequest::CounterCreate { token, value: 100 });
    // Concurrent additions return disjoint ranges.
    let mut all: Vec<i64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut c = Client::new(&d);
                    let mut add = || match c.ok(MetaRequest::CounterAdd { token, add: 7 }) {
                        MetaReply::Counter { before } => before,
                        reply => panic!("{reply:?}"),
                    };
                    (0..100).map(|_| add()).collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    });
    all.sort_unstable();
    assert_eq!(all, (0..400).map(|i| 100 + 7 * i).collect::<Vec<_>>());
    drop(owner);
    let mut c = Client::new(&d);
    // The server notices the end of the connection after a while.
    let mut gone = false;
    for _ in 0..500 {
        let reply = c.call(&MetaRequest::CounterGet { token }).unwrap();
        gone = matches!(reply, MetaReply::Error(e) if e.kind == ErrorKind::NotFound);
        if gone {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(gone);
}

#[test]
fn administrators_list_all_files_and_stop_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    c.ok(mkdir("/d"));
    let ids: Vec<FileId> = (0..5)
        .map(|i| c.open(create(format!("/d/{i}"))).0.id)
        .collect();
    let files = |after, limit| MetaRequest::ListFiles { after, limit };
    assert_eq!(c.err(files(None, 3)), ErrorKind::Permission);
    assert_eq!(c.err(MetaRequest::Shutdown), ErrorKind::Permission);
    let mut admin = Client::admin(&d);
    let mut listed = Vec::<(FileId, String, penstock_layout::Layout)>::new();
    loop {
        let after = listed.last().map(|(id, ..)| *id);
        let MetaReply::Files { files, more } = admin.ok(files(after, 2)) else {
            panic!()
        };
        listed.extend(files);
        if !more {
            break;
        }
    }
    let found: Vec<_> = listed
        .iter()
        .map(|(id, path, _)| (*id, path.as_str()))
        .collect();
    let expected = ["/d/0", "/d/1", "/d/2", "/d/3", "/d/4"];
    assert_eq!(found, ids.into_iter().zip(expected).collect::<Vec<_>>());
    c.ok(MetaRequest::Sync);
    let MetaReply::Status(status) = c.ok(MetaRequest::Status) else {
        panic!()
    };
    assert_eq!(
        (status.files, status.directories, status.connections),
        (5, 2, 2)
    );
    assert!(status.requests >= 6 && status.commits >= 1);
    assert_eq!(admin.ok(MetaRequest::Shutdown), MetaReply::Done);
    server.wait();
    assert!(Client::connect(&d, penstock_wire::Role::Client).is_err());
}

#[test]
fn an_orderly_stop_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let options = Options {
        commit_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let mut last = FileId(0);
    for round in 0..3 {
        let server = start(&d, options.clone()).unwrap();
        let mut c = Client::new(&d);
        for i in 0..100 {
            let (attributes, ..) = c.open(create(format!("/{round}-{i}")));
            assert!(attributes.id > last, "ids only grow");
            last = attributes.id;
        }
        drop(c);
        server.stop();
    }
    let _server = start(&d, options).unwrap();
    assert_eq!(Client::new(&d).list("/", 1000).len(), 300);
}

#[test]
fn limits_of_names_and_paths() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let name = "n".repeat(255);
    c.open(create(format!("/{name}")));
    assert_eq!(c.list("/", 10)[0].0, name);
    assert_eq!(c.err(create(format!("/{name}n"))), ErrorKind::NameTooLong);
    // The deepest possible path.
    let mut path = String::new();
    for _ in 0..15 {
        path = format!("{path}/{}", "d".repeat(255));
        c.ok(mkdir(&path));
    }
    let file = format!("{path}/{}", "f".repeat(255));
    assert_eq!(file.len(), 4096);
    c.open(create(&file));
    assert_eq!(c.err(create(format!("{file}f"))), ErrorKind::NameTooLong);
    // Renaming can make it deeper than any path; it is still listed completely.
    c.ok(mkdir("/deeper"));
    c.ok(rename(format!("/{}", "d".repeat(255)), "/deeper/d"));
    let reply = Client::admin(&d).ok(MetaRequest::ListFiles {
        after: None,
        limit: 10,
    });
    let MetaReply::Files { files, .. } = reply else {
        panic!()
    };
    assert!(
        files
            .iter()
            .any(|(_, path, _)| path.starts_with("/deeper/d/d"))
    );
}
