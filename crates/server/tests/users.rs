//! Users of one host: who gets descriptors, and how long one may keep another waiting. As root: it takes two users.
use crate::common::*;
use penstock_rpc::grant::GrantPage;
use penstock_server::Options;
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle, LockMode};
use rustix::fs::{FlockOperation, flock};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const OWNER: u32 = 61_001;
const OTHER: u32 = 61_002;
/// Nobody waits longer than a second for another user's good will; a busy machine adds to it.
const A_SECOND: Duration = Duration::from_secs(4);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Why there is no descriptor, or that there is one.
fn shortcut(c: &mut Client, handle: Handle) -> Result<GrantPage, String> {
    let [_, page] = passed(c, handle)?;
    Ok(GrantPage::open(page).unwrap())
}

/// The descriptors of a shortcut: of the object, and of its grant page.
fn passed(c: &mut Client, handle: Handle) -> Result<[OwnedFd; 2], String> {
    match c.ask(DataRequest::Shortcut { handle }) {
        DataReply::Shortcut { .. } => Ok(c.connection.take_descriptors().try_into().unwrap()),
        DataReply::NoShortcut { reason } => Err(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_owner_and_root_get_descriptors() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    // A file that was another user's is for nobody, root included.
    let h = c.attach(site.capability_of(me(), 1, READ, None)).unwrap();
    let reason = shortcut(&mut c, h).unwrap_err();
    assert!(reason.contains("another user"), "{reason}");
    if !is_root() {
        return;
    }
    let given = |uid| site.capability_of(uid, 1, ALL, Some(OWNER));
    let lend = |handle| DataRequest::Lend {
        handle,
        write: false,
    };
    for (uid, lent) in [(OWNER, true), (OTHER, false), (65534, false), (0, true)] {
        let mut c = site.client_of(0, uid);
        let h = c.attach(given(uid)).unwrap();
        let got = shortcut(&mut c, h);
        assert_eq!(got.is_ok(), lent, "{uid}: {:?}", got.err());
        assert_eq!(c.read(h, contiguous(0, 4)), b"data");
        if uid != 0 {
            assert!(matches!(c.ask(lend(h)), DataReply::NoShortcut { .. }));
        }
    }
}

#[test]
fn a_capability_is_good_for_the_user_that_it_was_given_to() {
    let site = TestDeployment::one();
    let foreign = site.capability_of(me() + 1, 1, ALL, None);
    // Over TCP the credential says who one is, and whom one speaks for.
    let mut all = site.client_as(0, Role::Client, true);
    all.attach(foreign.clone()).unwrap();
    let mut tcp = site.client_with(0, me(), |_| {});
    let e = tcp.attach(foreign.clone()).unwrap_err();
    assert_eq!(e.kind, ErrorKind::BadCapability);
    assert!(e.message.contains(&format!("user {}", me() + 1)), "{e}");
    for request in [
        DataRequest::Remove {
            capability: foreign.clone(),
        },
        DataRequest::Look {
            capability: foreign.clone(),
        },
    ] {
        assert_eq!(tcp.refused(request).kind, ErrorKind::BadCapability);
    }
    tcp.attach(site.capability_of(me(), 1, ALL, None)).unwrap();
    let mut admin = site.client_as(0, Role::Admin, true);
    admin.attach(foreign.clone()).unwrap();
    if is_root() {
        let e = site
            .client_of(0, OTHER)
            .attach(foreign.clone())
            .unwrap_err();
        assert_eq!(e.kind, ErrorKind::BadCapability);
        // Root of the server's host.
        site.client(0).attach(foreign).unwrap();
    }
}

#[test]
fn a_stopped_owner_delays_others_for_a_second() {
    if !is_root() {
        return;
    }
    let options = Options {
        revoke_wait: Duration::from_secs(60),
        ..Options::default()
    };
    let site = TestDeployment::start(1, "dir", options);
    let given = |uid| site.capability_of(uid, 1, ALL, Some(OWNER));
    let mut owner = site.client_of(0, OWNER);
    let h = owner.attach(given(OWNER)).unwrap();
    owner.write(h, contiguous(0, 8), b"all of i");
    let page = shortcut(&mut owner, h).unwrap();
    // For ever, as a process does that was stopped.
    std::mem::forget(page.enter().unwrap());
    let mut other = site.client_of(0, OTHER);
    let h = other.attach(given(OTHER)).unwrap();
    let began = Instant::now();
    let e = other.refused(lock(h));
    assert_eq!(e.kind, ErrorKind::LockTimeout);
    let owner_is = format!("process {} of user {OWNER}", std::process::id());
    assert!(e.message.contains(&owner_is), "{e}");
    assert!(began.elapsed() < A_SECOND, "{:?}", began.elapsed());
    let began = Instant::now();
    other.done(DataRequest::SetLen { handle: h, len: 3 });
    assert!(began.elapsed() < A_SECOND, "{:?}", began.elapsed());
    assert_eq!(other.read(h, contiguous(0, 8)), b"all");
}

/// An exclusive lock, and patience for it.
fn lock(handle: Handle) -> DataRequest {
    DataRequest::Lock {
        handle,
        start: 0,
        end: 8,
        mode: LockMode::Exclusive,
        timeout_ms: 50_000,
    }
}

#[test]
fn an_owner_who_locks_a_descriptor_delays_others_for_a_second() {
    if !is_root() {
        return;
    }
    let site = TestDeployment::one();
    let given = |uid| site.capability_of(uid, 1, ALL, Some(OWNER));
    let mut owner = site.client_of(0, OWNER);
    let h = owner.attach(given(OWNER)).unwrap();
    owner.write(h, contiguous(0, 8), b"all of i");
    // As the kernel of a mount keeps it, for ever.
    let [object, _page] = passed(&mut owner, h).unwrap();
    flock(&object, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut other = site.client_of(0, OTHER);
    let h = other.attach(given(OTHER)).unwrap();
    let began = Instant::now();
    let e = other.refused(lock(h));
    assert_eq!(e.kind, ErrorKind::LockTimeout);
    assert!(e.message.contains(&format!("of user {OWNER}")), "{e}");
    assert!(began.elapsed() < A_SECOND, "{:?}", began.elapsed());
    let began = Instant::now();
    other.write(h, contiguous(0, 3), b"ALL");
    other.done(DataRequest::SetLen { handle: h, len: 3 });
    assert!(began.elapsed() < A_SECOND, "{:?}", began.elapsed());
    assert_eq!(other.read(h, contiguous(0, 8)), b"ALL");
    drop(object);
    assert!(matches!(other.ask(lock(h)), DataReply::Locked { .. }));
}
