//! Shortcuts: granted, used, revoked under load, never in the way of a lock.
use crate::common::*;
use penstock_rpc::grant::GrantPage;
use penstock_server::Options;
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

struct Grant {
    file: File,
    page: GrantPage,
    writable: bool,
}

fn ask(c: &mut Client, handle: Handle) -> Result<Grant, String> {
    match c.ask(DataRequest::Shortcut { handle }) {
        DataReply::Shortcut { writable } => {
            let mut fds = c.connection.take_descriptors().into_iter();
            let file = File::from(fds.next().unwrap());
            let page = GrantPage::open(fds.next().unwrap()).unwrap();
            assert!(fds.next().is_none());
            Ok(Grant {
                file,
                page,
                writable,
            })
        }
        DataReply::NoShortcut { reason } => Err(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_descriptor_shows_and_changes_the_same_bytes() {
    for store in ["dir", "memory"] {
        let site = TestDeployment::start(1, store, Options::default());
        let (mut c, h) = site.open(0, 1);
        let grant = ask(&mut c, h).unwrap();
        assert!(grant.writable);
        let operation = grant.page.enter().unwrap();
        grant.file.write_all_at(b"straight", 5).unwrap();
        drop(operation);
        assert_eq!(c.read(h, contiguous(5, 100)), b"straight");
        c.write(h, contiguous(5, 3), b"STR");
        let mut text = [0; 8];
        grant.file.read_exact_at(&mut text, 5).unwrap();
        assert_eq!(&text, b"STRaight");
    }
}

#[test]
fn rights_and_circumstances_decide() {
    let site = TestDeployment::one();
    // A reader's descriptor cannot write; where nothing is there is nothing to pass.
    let mut reader = site.client(0);
    let hr = reader.attach(site.capability(1, READ)).unwrap();
    assert!(
        ask(&mut reader, hr)
            .err()
            .unwrap()
            .contains("no descriptor yet")
    );
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    let grant = ask(&mut reader, hr).unwrap();
    assert!(!grant.writable);
    assert!(grant.file.write_all_at(b"x", 0).is_err());
    let mut text = [0; 4];
    grant.file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"data");
    // Not over TCP, not when the server says no, not without end.
    let mut remote = site.client_as(0, Role::Client, true);
    let ht = remote.attach(site.capability(1, ALL)).unwrap();
    assert!(ask(&mut remote, ht).err().unwrap().contains("Unix socket"));
    let grants: Vec<_> = (0..4).map(|_| ask(&mut c, h).unwrap()).collect();
    assert!(ask(&mut c, h).err().unwrap().contains("already"));
    drop(grants);
    let options = Options {
        shortcuts: false,
        ..Options::default()
    };
    let site = TestDeployment::start(1, "dir", options);
    let (mut c, h) = site.open(0, 1);
    assert!(ask(&mut c, h).err().unwrap().contains("sees each request"));
}

#[test]
fn a_lock_takes_every_shortcut_back_and_keeps_new_ones_away() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    let (mut d, hd) = site.open(0, 1);
    let theirs = ask(&mut c, h).unwrap();
    let own = ask(&mut d, hd).unwrap();
    let lock = d.lock(hd, 0, 10);
    assert!(theirs.page.is_revoked() && own.page.is_revoked());
    assert!(theirs.page.enter().is_none());
    assert!(ask(&mut c, h).err().unwrap().contains("locked"));
    d.done(DataRequest::Unlock { handle: hd, lock });
    assert!(ask(&mut c, h).is_ok());
    // Cutting the object short does the same; extending does not.
    let again = ask(&mut c, h).unwrap();
    d.done(DataRequest::SetLen {
        handle: hd,
        len: 100,
    });
    assert!(!again.page.is_revoked());
    d.done(DataRequest::SetLen {
        handle: hd,
        len: 50,
    });
    assert!(again.page.is_revoked());
}

#[test]
fn an_operation_that_does_not_end_refuses_the_lock_until_its_client_is_gone() {
    let options = Options {
        revoke_wait: Duration::from_millis(30),
        ..Options::default()
    };
    let site = TestDeployment::start(1, "dir", options);
    let (mut c, h) = site.open(0, 1);
    let grant = ask(&mut c, h).unwrap();
    std::mem::forget(grant.page.enter().unwrap());
    let (mut d, hd) = site.open(0, 1);
    for _ in 0..2 {
        // Also the second time, although the grant has been revoked by then.
        d.send_lock(
            hd,
            0,
            10,
            penstock_wire::message::LockMode::Exclusive,
            20_000,
        );
        let e = d.lock_answer().unwrap_err();
        assert_eq!(e.kind, ErrorKind::LockTimeout);
        assert!(e.message.contains("shortcut"), "{e}");
    }
    // A new grant of the same connection does not make the server forget the old one.
    let _new = ask(&mut c, h).unwrap();
    d.send_lock(
        hd,
        0,
        10,
        penstock_wire::message::LockMode::Exclusive,
        20_000,
    );
    assert_eq!(d.lock_answer().unwrap_err().kind, ErrorKind::LockTimeout);
    drop(c);
    let lock = loop {
        // Until the server has seen the end of the connection.
        d.send_lock(
            hd,
            0,
            10,
            penstock_wire::message::LockMode::Exclusive,
            20_000,
        );
        match d.lock_answer() {
            Ok(lock) => break lock,
            Err(e) => assert_eq!(e.kind, ErrorKind::LockTimeout),
        }
    };
    d.done(DataRequest::Unlock { handle: hd, lock });
}

/// Clients work through their descriptors as fast as they can while others do data sieving under locks. No byte is
/// lost, so no operation ran concurrently with a lock.
#[test]
fn revocation_under_load_loses_no_byte() {
    let site = TestDeployment::one();
    let len = 1024usize;
    let (stop, direct) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut setup, hs) = site.open(0, 1);
    setup.write(hs, contiguous(0, len as u64), &vec![0; len]);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..3usize)
            .map(|w| {
                let (site, stop, direct) = (&site, &stop, &direct);
                s.spawn(move || {
                    let (mut c, h) = site.open(0, 1);
                    let mut grant = None;
                    // Each writer owns every fourth byte; it counts in each of its bytes in turn.
                    let mut mine = vec![0u8; len / 4];
                    let mut at = 0;
                    while !stop.load(SeqCst) {
                        let offset = at * 4 + w;
                        let value = mine[at].wrapping_add(1);
                        if grant.is_none() {
                            grant = ask(&mut c, h).ok();
                        }
                        let written = grant.as_ref().is_some_and(|g: &Grant| {
                            let Some(_operation) = g.page.enter() else {
                                return false;
                            };
                            // Now and then the system takes its time with one.
                            if at % 16 == 0 {
                                std::thread::sleep(Duration::from_micros(200));
                            }
                            g.file.write_all_at(&[value], offset as u64).unwrap();
                            true
                        });
                        if written {
                            direct.fetch_add(1, SeqCst);
                        } else {
                            grant = None;
                            c.write(h, contiguous(offset as u64, 1), &[value]);
                        }
                        mine[at] = value;
                        at = (at + 1) % mine.len();
                    }
                    mine
                })
            })
            .collect();
        let (mut c, h) = site.open(0, 1);
        let mut sieved = 0u64;
        // Until enough of both has happened, whatever the speed of this machine.
        while sieved < 60 || direct.load(SeqCst) < 1500 {
            let lock = c.lock(h, 0, len as u64);
            let mut bytes = c.read(h, contiguous(0, len as u64));
            for b in bytes.iter_mut().skip(3).step_by(4) {
                *b = b.wrapping_add(1);
            }
            let reply = c.write_with(h, contiguous(0, len as u64), Some(lock), &bytes, 1 << 20);
            assert_eq!(reply, DataReply::Written { bytes: len as u64 });
            c.done(DataRequest::Unlock { handle: h, lock });
            sieved += 1;
            // Leave the writers a moment to get shortcuts again.
            std::thread::sleep(Duration::from_micros(300));
        }
        stop.store(true, SeqCst);
        let bytes = c.read(h, contiguous(0, len as u64));
        assert!(bytes.iter().skip(3).step_by(4).all(|b| *b == sieved as u8));
        for (w, writer) in writers.into_iter().enumerate() {
            let mine = writer.join().unwrap();
            let bytes = c.read(h, contiguous(0, len as u64));
            let got: Vec<u8> = bytes.iter().skip(w).step_by(4).copied().collect();
            assert_eq!(got, mine);
        }
    });
}
