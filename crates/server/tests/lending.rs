//! Passthrough: to whom objects are lent, and what waits for them.
use crate::common::*;
use penstock_layout::ServerId;
use penstock_server::Options;
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle, LockMode};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn ask(c: &mut Client, handle: Handle, write: bool) -> Result<File, String> {
    match c.ask(DataRequest::Lend { handle, write }) {
        DataReply::Lent => {
            let mut fds = c.connection.take_descriptors().into_iter();
            let file = File::from(fds.next().unwrap());
            assert!(fds.next().is_none());
            Ok(file)
        }
        DataReply::NoShortcut { reason } => Err(reason),
        other => panic!("{other:?}"),
    }
}

/// Lending takes root and a store on a local file system; elsewhere the refusal is all there is to see.
fn lends(c: &mut Client, handle: Handle) -> bool {
    match ask(c, handle, false) {
        Ok(_) => true,
        Err(why) => {
            assert!(why.contains("root") || why.contains("file system"), "{why}");
            eprintln!("nothing is lent here: {why}");
            false
        }
    }
}

#[test]
fn range_locks_wait_for_what_is_lent_for_writing() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    let (mut d, hd) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    if !lends(&mut c, h) {
        return;
    }
    let reader = ask(&mut c, h, false).unwrap();
    let mut text = [0; 4];
    reader.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"data");
    assert!(reader.write_all_at(b"x", 0).is_err(), "for reading");
    let lock = d.lock(hd, 0, 10);
    assert!(ask(&mut c, h, true).unwrap_err().contains("locked"));
    drop(ask(&mut c, h, false).unwrap());
    d.done(DataRequest::Unlock { handle: hd, lock });

    let writer = ask(&mut c, h, true).unwrap();
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        d.send_lock(hd, 0, 10, mode, 50);
        let e = d.lock_answer().unwrap_err();
        assert_eq!(e.kind, ErrorKind::LockTimeout);
        assert!(e.message.contains("--no-passthrough"), "{e}");
    }
    // Signs, writes and cuts do not wait.
    let sign = d.lock(hd, 1 << 62, (1 << 62) + 1);
    d.done(DataRequest::Unlock {
        handle: hd,
        lock: sign,
    });
    d.write(hd, contiguous(0, 4), b"DATA");
    d.done(DataRequest::SetLen { handle: hd, len: 2 });
    assert_eq!(c.read(h, contiguous(0, 4)), b"DA");
    // Its connection may end: the descriptor counts.
    drop(c);
    d.send_lock(hd, 0, 10, LockMode::Exclusive, 50);
    assert!(d.lock_answer().is_err());
    d.send_lock(hd, 0, 10, LockMode::Exclusive, 60_000);
    drop(writer);
    let lock = d.lock_answer().unwrap();
    d.done(DataRequest::Unlock { handle: hd, lock });
}

#[test]
fn another_server_on_the_store_knows_what_is_lent() {
    let mut site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    if !lends(&mut c, h) {
        return;
    }
    let writer = ask(&mut c, h, true).unwrap();
    drop(c);
    for server in site.servers.drain(..) {
        server.stop();
    }
    let again = penstock_server::start(&site.deployment, ServerId(0), Options::default());
    site.servers.push(again.unwrap());
    let (mut c, h) = site.open(0, 1);
    c.send_lock(h, 0, 10, LockMode::Exclusive, 50);
    assert_eq!(c.lock_answer().unwrap_err().kind, ErrorKind::LockTimeout);
    drop(writer);
    c.lock(h, 0, 10);
}

#[test]
fn circumstances_decide() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    if lends_nothing_yet(&mut c, h) {
        return;
    }
    // Over TCP, to nobody.
    let mut remote = site.client_as(0, Role::Client, true);
    let ht = remote.attach(site.capability(1, ALL)).unwrap();
    assert!(ask(&mut remote, ht, false).unwrap_err().contains("root"));
    // A reader's right is to read.
    let hr = c.attach(site.capability(1, READ)).unwrap();
    assert!(ask(&mut c, hr, true).unwrap_err().contains("writing"));
    let refusals = [
        ("memory", Options::default(), "memory"),
        (
            "dir",
            Options {
                shortcuts: false,
                ..Options::default()
            },
            "sees each request",
        ),
        (
            "dir",
            Options {
                tune: vec!["sched=aioli".into()],
                ..Options::default()
            },
            "sees each request",
        ),
        (
            "dir",
            Options {
                plain_write_wait: Duration::from_secs(1),
                read_only: true,
                ..Options::default()
            },
            "writing",
        ),
    ];
    for (store, options, why) in refusals {
        let site = TestDeployment::start(1, store, options);
        let (mut c, h) = site.open(0, 1);
        let refused = ask(&mut c, h, true).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let site = TestDeployment::start(2, "dir", Options::default());
    let (mut c, h) = site.open(0, 1);
    assert!(ask(&mut c, h, true).unwrap_err().contains("striped"));
}

/// True where nothing is lent at all.
fn lends_nothing_yet(c: &mut Client, handle: Handle) -> bool {
    let empty = ask(c, handle, false).unwrap_err();
    if !empty.contains("no bytes") {
        assert!(empty.contains("root"), "{empty}");
        return true;
    }
    c.write(handle, contiguous(0, 1), b"x");
    !lends(c, handle)
}
