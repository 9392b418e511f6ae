//! Who may do what: capabilities, keys, roles, read-only servers, two servers on one store.
use crate::common::*;
use penstock_layout::{FileId, Layout, ServerId};
use penstock_rpc::{Timeouts, Wallet, connect};
use penstock_server::{Error, Options, start};
use penstock_wire::credential::Statement;
use penstock_wire::message::{Capability, DataReply, DataRequest, ErrorKind, LockMode, User};
use penstock_wire::{Credential, Envelope, Key, KeyPair, Rights, Role, SealKey, SealKeys};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn forged_changed_and_expired_capabilities_are_refused() {
    let site = TestDeployment::one();
    let mut c = site.client(0);
    let good = site.capability(1, READ);
    let stranger = Key::generate().unwrap();
    let strangers: SealKeys = [(ServerId(0), SealKey::of(&stranger))].into();
    let forged = Capability::grant(
        &strangers,
        rustix::process::geteuid().as_raw(),
        FileId(1),
        ALL,
        0..now_ms() + 1000,
        None,
        site.layout(64),
    )
    .unwrap();
    let changes: [fn(&mut Capability); 8] = [
        |c| c.write = true,
        |c| c.remove = true,
        |c| c.file = FileId(2),
        |c| c.issued_ms += 1,
        |c| c.expires_ms += 1,
        |c| c.lend_to = Some(12345),
        |c| c.layout = Layout::new(65, c.layout.servers.clone()).unwrap(),
        |c| c.seals[0].0[15] ^= 1,
    ];
    let changed = changes.map(|change| {
        let mut c = good.clone();
        change(&mut c);
        c
    });
    for bad in changed.into_iter().chain([forged]) {
        assert_eq!(c.attach(bad).unwrap_err().kind, ErrorKind::BadCapability);
    }
    let old = Capability::grant(
        &site.seals,
        rustix::process::geteuid().as_raw(),
        FileId(1),
        ALL,
        0..now_ms() - 1000,
        None,
        site.layout(64),
    )
    .unwrap();
    let e = c.attach(old.clone()).unwrap_err();
    assert_eq!(e.kind, ErrorKind::ExpiredCapability);
    assert!(e.message.contains("renew"), "{e}");
    let e = c.refused(DataRequest::Remove { capability: old });
    assert_eq!(e.kind, ErrorKind::ExpiredCapability);
    let e = c.refused(DataRequest::Remove {
        capability: good.clone(),
    });
    assert_eq!(e.kind, ErrorKind::Permission);
    assert!(c.attach(good).is_ok());
    // A file that has no part here.
    let elsewhere = Layout::new(64, vec![ServerId(5)]).unwrap();
    let life = 0..now_ms() + 1000;
    let other = Capability::grant(
        &site.seals,
        rustix::process::geteuid().as_raw(),
        FileId(1),
        ALL,
        life,
        None,
        elsewhere,
    )
    .unwrap();
    assert_eq!(
        c.attach(other).unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
}

#[test]
fn a_capability_that_expires_in_use_can_be_renewed() {
    let site = TestDeployment::one();
    let mut c = site.client(0);
    let layout = site.layout(64);
    let sign = |ms| {
        Capability::grant(
            &site.seals,
            rustix::process::geteuid().as_raw(),
            FileId(1),
            ALL,
            0..ms,
            None,
            layout.clone(),
        )
        .unwrap()
    };
    let soon = now_ms() + 500;
    let h = c.attach(sign(soon)).unwrap();
    // The server follows a clock of its own.
    while now_ms() <= soon + 50 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let reply = c.write_with(h, contiguous(0, 300), None, &[1; 300], 7);
    assert_eq!(kind(&reply), ErrorKind::ExpiredCapability);
    let renewed = c.attach(sign(now_ms() + 60_000)).unwrap();
    assert_eq!(renewed, h);
    c.write(h, contiguous(0, 3), b"yes");
    // An older one presented later takes nothing away.
    assert_eq!(c.attach(sign(now_ms() + 1000)).unwrap(), h);
    // Other rights, another handle; both live on.
    let r = c.attach(site.capability(1, READ)).unwrap();
    assert_ne!(r, h);
    c.done(DataRequest::Detach { handle: r });
    c.write(h, contiguous(0, 3), b"YES");
}

#[test]
fn rights_are_checked_per_request() {
    let site = TestDeployment::one();
    let (mut w, hw) = site.open(0, 1);
    w.write(hw, contiguous(0, 4), b"data");
    let mut c = site.client(0);
    let r = c.attach(site.capability(1, READ)).unwrap();
    assert_eq!(c.read(r, contiguous(0, 9)), b"data");
    let reply = c.write_with(r, contiguous(0, 30), None, &[1; 30], 7);
    assert_eq!(kind(&reply), ErrorKind::Permission);
    for request in [
        DataRequest::SetLen { handle: r, len: 0 },
        DataRequest::Allocate { handle: r, len: 9 },
        DataRequest::Lock {
            handle: r,
            start: 0,
            end: 1,
            mode: LockMode::Exclusive,
            timeout_ms: 10,
        },
    ] {
        assert_eq!(c.refused(request).kind, ErrorKind::Permission);
    }
    c.send_lock(r, 0, 1, LockMode::Shared, 1000);
    c.lock_answer().unwrap();
    let only_write = Rights {
        read: false,
        write: true,
        remove: false,
    };
    let o = c.attach(site.capability(2, only_write)).unwrap();
    c.write(o, contiguous(0, 1), b"x");
    let e = c.refused(DataRequest::Read {
        handle: o,
        region: contiguous(0, 1),
        lock: None,
    });
    assert_eq!(e.kind, ErrorKind::Permission);
    // Requests of administrators.
    for request in [
        DataRequest::ListObjects {
            after: None,
            limit: 1,
        },
        DataRequest::RemoveObject { file: FileId(1) },
        DataRequest::Verify,
        DataRequest::Accept { file: FileId(1) },
        DataRequest::Shutdown,
        DataRequest::LoadKeys,
    ] {
        let e = c.refused(request);
        assert_eq!(e.kind, ErrorKind::Permission);
        assert!(e.message.contains("only an administrator"), "{e}");
    }
    assert_eq!(w.read(hw, contiguous(0, 9)), b"data");
}

#[test]
fn a_read_only_server_serves_reads() {
    let mut site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    site.servers.pop().unwrap().stop();
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let server = start(&site.deployment, ServerId(0), options).unwrap();
    site.servers.push(server);
    let (mut c, h) = site.open(0, 1);
    assert_eq!(c.read(h, contiguous(0, 9)), b"data");
    c.synced(h);
    let reply = c.write_with(h, contiguous(0, 4), None, b"DATA", 1);
    assert_eq!(kind(&reply), ErrorKind::ReadOnly);
    let DataReply::Error(e) = reply else { panic!() };
    assert!(e.message.contains("data server 0"), "{e}");
    let capability = site.capability(1, ALL);
    for request in [
        DataRequest::SetLen { handle: h, len: 0 },
        DataRequest::Allocate { handle: h, len: 9 },
        DataRequest::Remove { capability },
    ] {
        assert_eq!(c.refused(request).kind, ErrorKind::ReadOnly);
    }
    assert_eq!(
        c.ask(DataRequest::Shortcut { handle: h }),
        DataReply::Shortcut { writable: false }
    );
    assert_eq!(c.read(h, contiguous(0, 9)), b"data");
}

#[test]
fn data_survives_a_restart_and_an_administrator_stops_the_server() {
    let mut site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    c.synced(h);
    let mut admin = site.client_as(0, Role::Admin, false);
    let found = admin.ask(DataRequest::Verify);
    assert_eq!(
        found,
        DataReply::Findings {
            findings: vec![],
            more: false
        }
    );
    admin.done(DataRequest::Shutdown);
    site.servers.pop().unwrap().wait();
    let end = c.connection.receive::<DataReply>().unwrap_err();
    assert!(end.is_disconnect());
    let server = start(&site.deployment, ServerId(0), Options::default()).unwrap();
    site.servers.push(server);
    let (mut c, h) = site.open(0, 1);
    assert_eq!(c.read(h, contiguous(0, 9)), b"data");
}

#[test]
fn a_truncated_object_is_found_refused_and_accepted() {
    let mut site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 100), &[7; 100]);
    c.synced(h);
    drop(c);
    site.servers.pop().unwrap().stop();
    let object = site.dir.path().join("store0/objects/01/0000000000000001");
    std::fs::OpenOptions::new()
        .write(true)
        .open(object)
        .unwrap()
        .set_len(30)
        .unwrap();
    let server = start(&site.deployment, ServerId(0), Options::default()).unwrap();
    site.servers.push(server);
    let mut admin = site.client_as(0, Role::Admin, false);
    let DataReply::Findings { findings, .. } = admin.ask(DataRequest::Verify) else {
        panic!()
    };
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].object, Some(FileId(1)));
    let (mut c, h) = site.open(0, 1);
    let e = c.refused(DataRequest::Read {
        handle: h,
        region: contiguous(0, 100),
        lock: None,
    });
    assert_eq!(e.kind, ErrorKind::Damaged);
    admin.done(DataRequest::Accept { file: FileId(1) });
    assert_eq!(c.read(h, contiguous(0, 100)), [7; 30]);
    assert_eq!(
        admin.ask(DataRequest::Verify),
        DataReply::Findings {
            findings: vec![],
            more: false
        }
    );
}

#[test]
fn two_servers_never_share_a_store() {
    let site = TestDeployment::one();
    let mut second = site.deployment.clone();
    second.servers[0].address.unix = Some(site.dir.path().join("other.sock"));
    let e = start(&second, ServerId(0), Options::default())
        .err()
        .unwrap();
    assert!(e.to_string().contains("in use by another server"), "{e}");
    // Another deployment neither, also when nobody uses it.
    let mut foreign = second.clone();
    drop(site.servers.into_iter().next().unwrap());
    foreign.id = "ffffffffffffffffffffffffffffffff".into();
    let e = start(&foreign, ServerId(0), Options::default())
        .err()
        .unwrap();
    assert!(e.to_string().contains("belongs to"), "{e}");
    let e = start(&second, ServerId(9), Options::default())
        .err()
        .unwrap();
    assert!(matches!(e, Error::UnknownServer { .. }), "{e}");
    start(&second, ServerId(0), Options::default()).unwrap();
}

#[test]
fn an_administrator_is_one_until_the_credential_ends() {
    let site = TestDeployment::one();
    let authority = KeyPair::load(site.deployment.authority_key.as_ref().unwrap()).unwrap();
    let end_ms = now_ms() + 1500;
    let life = now_ms() - 1000..end_ms;
    let mut statement = Statement::new(&site.deployment.id, User::nobody(), life);
    statement.administrator = true;
    let credential = Credential::issue(&authority, statement).unwrap();
    let mut caller = site.deployment.caller(Role::Admin, 1, 0).unwrap();
    caller.wallet = Arc::new(Wallet::holding(credential));
    let mut address = site.servers[0].address().clone();
    address.unix = None;
    let mut admin = connect(&address, &caller, Timeouts::default()).unwrap();
    let mut ask = || {
        let request = DataRequest::Verify;
        let answer = admin.call::<_, DataReply>(&Envelope::default(), &request, &mut false);
        answer.unwrap().body.unwrap()
    };
    assert!(!matches!(ask(), DataReply::Error(_)));
    while now_ms() <= end_ms + 50 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let DataReply::Error(e) = ask() else {
        panic!("an ended credential administers")
    };
    assert_eq!(e.kind, ErrorKind::Permission, "{e}");
}
