//! Slots of sessions, as a client uses and misuses them.

use crate::common::{Client, create, deployment, mkdir, stat, unlink};
use penstock_meta::Options;
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use penstock_wire::message::{ErrorKind, MetaReply, MetaRequest, SLOTS, SlotAt};

const SESSION: u128 = 77;

fn once(slot: u16, sequence: u64, request: MetaRequest) -> MetaRequest {
    MetaRequest::Once {
        at: SlotAt {
            session: SESSION,
            slot,
            sequence,
        },
        request: Box::new(request),
    }
}

fn start(d: &Deployment) -> penstock_rpc::RunningServer {
    penstock_meta::start(d, Options::default()).unwrap()
}

fn opened(d: &Deployment) -> Client {
    let mut c = Client::new(d);
    c.ok(MetaRequest::OpenSession { session: SESSION });
    c
}

#[test]
fn a_number_is_carried_out_once_and_says_so_again() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d);
    let mut c = opened(&d);
    c.ok(once(0, 1, mkdir("/d")));
    c.ok(once(0, 1, mkdir("/d")));
    assert_eq!(c.err(once(0, 2, mkdir("/d"))), ErrorKind::Exists);
    c.ok(MetaRequest::Rmdir { path: "/d".into() });
    assert_eq!(c.err(once(0, 2, mkdir("/d"))), ErrorKind::Exists);
    assert_eq!(c.err(once(0, 2, mkdir("/e"))), ErrorKind::InvalidArgument);
    assert_eq!(c.err(once(0, 1, mkdir("/d"))), ErrorKind::InvalidArgument);
    assert_eq!(
        c.err(once(SLOTS, 1, mkdir("/d"))),
        ErrorKind::InvalidArgument
    );
    assert_eq!(c.err(once(1, 1, stat("/"))), ErrorKind::InvalidArgument);
    c.ok(once(1, 9, mkdir("/d")));
    let (made, ..) = c.open(once(2, 1, create("/f")));
    let (again, capability, created) = c.open(once(2, 1, create("/f")));
    assert!(created && again.id == made.id && capability.file == made.id);
    let removed = c.ok(once(2, 2, unlink("/f")));
    c.ok(create("/f"));
    let MetaReply::Unlinked { capability } = removed else {
        panic!("{removed:?}");
    };
    let MetaReply::Unlinked { capability: again } = c.ok(once(2, 2, unlink("/f"))) else {
        panic!("no answer to an unlink");
    };
    assert_eq!(capability.unwrap().file, again.unwrap().file);
    assert_ne!(c.stat("/f").id, made.id);
    drop(server);
}

#[test]
fn sessions_are_their_users_and_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d);
    let mut c = Client::new(&d);
    assert_eq!(c.err(once(0, 1, mkdir("/d"))), ErrorKind::NoSession);
    assert_eq!(c.err(stat("/d")), ErrorKind::NotFound, "not carried out");
    c.ok(MetaRequest::OpenSession { session: SESSION });
    c.ok(MetaRequest::OpenSession { session: SESSION });
    c.ok(once(0, 1, mkdir("/d")));
    let batch = vec![once(1, 1, mkdir("/b")), once(2, 1, create("/f")), stat("/")];
    let first = c.ok(MetaRequest::Batch(batch.clone()));
    let mut stranger = Client::connect(&d, Role::Admin).unwrap();
    for request in [
        once(0, 1, mkdir("/d")),
        MetaRequest::OpenSession { session: SESSION },
    ] {
        assert_eq!(stranger.err(request), ErrorKind::Permission);
    }
    drop((c, stranger, server));
    let server = start(&d);
    let mut c = Client::new(&d);
    c.ok(MetaRequest::Rmdir { path: "/d".into() });
    c.ok(once(0, 1, mkdir("/d")));
    assert_eq!(
        c.err(stat("/d")),
        ErrorKind::NotFound,
        "not carried out again"
    );
    let again = c.ok(MetaRequest::Batch(batch));
    let made = |reply: &MetaReply| match reply {
        MetaReply::Batch(replies) => match &replies[..] {
            [MetaReply::Done, MetaReply::Opened { attributes, .. }, _] => attributes.id,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(made(&first), made(&again));
    drop(server);
}
