//! Requests by id, for users, over a connection.
use crate::common::{Client, deployment};
use penstock_layout::FileId;
use penstock_meta::{Options, start};
use penstock_wire::Role;
use penstock_wire::message::{
    Attributes, CreateOptions, ErrorKind, LAYOUT_XATTR, MetaReply, MetaRequest, NodeReply,
    NodeRequest, User, XattrMode,
};

use std::time::Duration;

const ROOT: FileId = FileId(1);

fn user(uid: u32, groups: &[u32]) -> User {
    User {
        uid,
        gid: uid,
        groups: groups.to_vec(),
    }
}

fn ask(c: &mut Client, user: &User, request: NodeRequest) -> Result<NodeReply, ErrorKind> {
    let user = user.clone();
    match c.call(&MetaRequest::Node { user, request }).unwrap() {
        MetaReply::Node(reply) => Ok(reply),
        MetaReply::Error(e) => Err(e.kind),
        other => panic!("{other:?}"),
    }
}

fn create(c: &mut Client, user: &User, name: &str, mode: u32) -> Result<Attributes, ErrorKind> {
    let request = NodeRequest::Create {
        parent: ROOT,
        name: name.into(),
        options: CreateOptions {
            mode,
            ..CreateOptions::default()
        },
        read: true,
        write: true,
        exclusive: true,
    };
    match ask(c, user, request)? {
        NodeReply::Opened { attributes, .. } => Ok(attributes),
        other => panic!("{other:?}"),
    }
}

fn open(c: &mut Client, user: &User, id: FileId, write: bool) -> Result<NodeReply, ErrorKind> {
    let request = NodeRequest::Open {
        id,
        read: !write,
        write,
        execute: false,
    };
    ask(c, user, request)
}

#[test]
fn users_have_the_rights_of_their_groups_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::connect(&d, Role::Admin).unwrap();
    let (alice, bob) = (user(10, &[]), user(20, &[]));
    let f = create(&mut c, &alice, "f", 0o640).unwrap();
    assert_eq!((f.uid, f.gid), (10, 10));
    assert_eq!(
        open(&mut c, &bob, f.id, false).map(drop),
        Err(ErrorKind::Permission)
    );
    let member = user(20, &[5, 10]);
    assert!(open(&mut c, &member, f.id, false).is_ok());
    assert_eq!(
        open(&mut c, &member, f.id, true).map(drop),
        Err(ErrorKind::Permission)
    );
    assert!(open(&mut c, &user(0, &[]), f.id, true).is_ok());
    let take = |name: &str| NodeRequest::Unlink {
        parent: ROOT,
        name: name.into(),
        keep: false,
    };
    assert_eq!(
        ask(&mut c, &bob, take("f")).map(drop),
        Err(ErrorKind::NotOwner),
        "sticky root"
    );
    assert!(ask(&mut c, &alice, take("f")).is_ok());
}

fn keep_unlink(name: &str) -> NodeRequest {
    NodeRequest::Unlink {
        parent: ROOT,
        name: name.into(),
        keep: true,
    }
}

/// Says that these files are open; returns those without a name.
fn keep(c: &mut Client, ids: &[FileId]) -> Vec<FileId> {
    let ids = ids.to_vec();
    match ask(c, &user(0, &[]), NodeRequest::Keep { ids }) {
        Ok(NodeReply::Kept(kept)) => kept,
        other => panic!("{other:?}"),
    }
}

fn reap(c: &mut Client, id: FileId) -> NodeReply {
    ask(c, &user(0, &[]), NodeRequest::Reap { id }).unwrap()
}

fn exists(c: &mut Client, id: FileId) -> bool {
    match ask(c, &user(0, &[]), NodeRequest::Stat { id }) {
        Ok(_) => true,
        Err(ErrorKind::NotFound) => false,
        Err(e) => panic!("{e:?}"),
    }
}

/// Waits for a condition without a fixed time.
fn eventually(mut condition: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < end, "it did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const NOTHING: NodeReply = NodeReply::Unlinked {
    file: None,
    capability: None,
};

#[test]
fn kept_files_outlive_connections_and_restarts_until_their_last_close() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let root = user(0, &[]);
    let mut c = Client::admin(&d);
    let mut holder = Client::admin(&d);
    let mut ids = Vec::new();
    for name in ["closed", "open", "everywhere"] {
        let id = create(&mut c, &root, name, 0o600).unwrap().id;
        let kept = ask(&mut holder, &root, keep_unlink(name)).unwrap();
        let expected = NodeReply::Unlinked {
            file: Some(id),
            capability: None,
        };
        assert_eq!(kept, expected);
        assert_eq!(c.list("/", 10), []);
        assert!(open(&mut c, &root, id, true).is_ok(), "by id it goes on");
        ids.push(id);
    }
    let named = create(&mut c, &root, "named", 0o600).unwrap().id;
    let &[closed, open_one, everywhere] = &ids[..] else {
        panic!()
    };
    let gone = reap(&mut holder, closed);
    assert!(matches!(gone, NodeReply::Unlinked { capability: Some(c), .. } if c.remove));
    assert!(!exists(&mut c, closed));
    assert_eq!(reap(&mut holder, named), NOTHING, "it has a name");
    // The connection is lost: its client says over another one what is open.
    drop(holder);
    let mut holder = Client::admin(&d);
    let all = [closed, open_one, everywhere, named, FileId(1 << 40)];
    assert_eq!(keep(&mut holder, &all), [open_one, everywhere]);
    drop((c, holder));
    server.stop();
    // The server restarts too.
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    let (mut one, mut two) = (Client::admin(&d), Client::admin(&d));
    assert_eq!(keep(&mut one, &all), [open_one, everywhere]);
    assert_eq!(keep(&mut two, &[everywhere]), [everywhere]);
    assert!(open(&mut c, &root, everywhere, true).is_ok());
    assert_eq!(reap(&mut one, everywhere), NOTHING, "the other has it open");
    assert!(exists(&mut c, everywhere));
    for (holder, id) in [(&mut two, everywhere), (&mut one, open_one)] {
        let gone = reap(holder, id);
        assert!(matches!(gone, NodeReply::Unlinked { capability: Some(c), .. } if c.remove));
        assert!(!exists(&mut c, id));
    }
    let MetaReply::Status(status) = c.ok(MetaRequest::Status) else {
        panic!()
    };
    assert_eq!((status.files, status.directories), (1, 1));
}

#[test]
fn kept_files_whose_holders_do_not_come_back_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let options = Options {
        keep_grace: Duration::from_millis(100),
        ..Options::default()
    };
    let server = start(&d, options.clone()).unwrap();
    let root = user(0, &[]);
    let mut c = Client::admin(&d);
    let mut holder = Client::admin(&d);
    let mut brief = Client::admin(&d);
    let removed = |name: &str, holder: &mut Client, c: &mut Client| {
        let id = create(c, &root, name, 0o600).unwrap().id;
        ask(holder, &root, keep_unlink(name)).unwrap();
        id
    };
    let long = removed("long", &mut holder, &mut c);
    let short = removed("short", &mut brief, &mut c);
    drop(brief);
    eventually(|| !exists(&mut c, short));
    assert!(exists(&mut c, long), "its holder is there");
    drop((c, holder));
    server.stop();
    let server = start(&d, options).unwrap();
    let mut c = Client::admin(&d);
    eventually(|| !exists(&mut c, long));
    // It stays so.
    drop(c);
    server.stop();
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    assert!(!exists(&mut c, long) && !exists(&mut c, short));
}

#[test]
fn links_attributes_and_striping_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let root = user(0, &[]);
    {
        let server = start(&d, Options::default()).unwrap();
        let mut c = Client::admin(&d);
        let id = create(&mut c, &root, "a", 0o600).unwrap().id;
        for name in ["b", "c"] {
            let name = name.into();
            let link = NodeRequest::Link {
                id,
                parent: ROOT,
                name,
            };
            ask(&mut c, &root, link).unwrap();
        }
        let symlink = NodeRequest::Symlink {
            parent: ROOT,
            name: "s".into(),
            target: "./a".into(),
        };
        ask(&mut c, &root, symlink).unwrap();
        for (name, value) in [
            ("user.x", "y"),
            (LAYOUT_XATTR, "unit=128KiB count=2 start=3"),
        ] {
            let set = NodeRequest::SetXattr {
                id,
                name: name.into(),
                value: value.into(),
                mode: XattrMode::Any,
            };
            ask(&mut c, &root, set).unwrap();
        }
        let unlink = NodeRequest::Unlink {
            parent: ROOT,
            name: "a".into(),
            keep: false,
        };
        let left = ask(&mut c, &root, unlink).unwrap();
        assert!(matches!(
            left,
            NodeReply::Unlinked {
                file: None,
                capability: None
            }
        ));
        let back = NodeRequest::Rename {
            parent: ROOT,
            name: "c".into(),
            new_parent: ROOT,
            new_name: "a".into(),
            exclusive: true,
            keep: false,
        };
        ask(&mut c, &root, back).unwrap();
        drop(c);
        server.stop();
    }
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    let names: Vec<String> = c.list("/", 10).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b", "s"]);
    // By path, over the symbolic link.
    let (attributes, capability, _) = c.open(crate::common::open("/s", true, false));
    assert_eq!(attributes.nlink, 2);
    assert_eq!(capability.layout.stripe_unit, 128 << 10);
    assert_eq!(capability.layout.servers.len(), 2);
    let get = NodeRequest::GetXattr {
        id: attributes.id,
        name: "user.x".into(),
    };
    assert_eq!(ask(&mut c, &root, get), Ok(NodeReply::Xattr(b"y".to_vec())));
}
