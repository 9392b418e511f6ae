//! Quotas on files, over a connection. The tests cover what counts, what is refused, who may see and set them, and what
//! happens to a store of an older release.
use crate::common::{Client, create, deployment, mkdir, unlink};
use penstock_layout::FileId;
use penstock_meta::{Options, start};
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use penstock_wire::message::{
    Bound, Change, CreateOptions, ErrorKind, LimitsChange, MetaReply, MetaRequest, MetaStatus,
    NodeReply, NodeRequest, QuotaReply, QuotaRequest, User, UserFiles, WireError, WrongCount,
};
use redb::{Database, TableDefinition};
use std::time::{Duration, Instant};

const ROOT: FileId = FileId(1);
const ALICE: u32 = 1010;
const BOB: u32 = 1020;
const USERS: TableDefinition<u32, &[u8]> = TableDefinition::new("users");
const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");

/// A request by node id, as root's mount sends it.
fn ask(c: &mut Client, uid: u32, request: NodeRequest) -> Result<NodeReply, WireError> {
    let user = User {
        uid,
        gid: uid,
        groups: Vec::new(),
    };
    match c.call(&MetaRequest::Node { user, request }).unwrap() {
        MetaReply::Node(reply) => Ok(reply),
        MetaReply::Error(e) => Err(e),
        other => panic!("{other:?}"),
    }
}

fn make(c: &mut Client, uid: u32, name: &str) -> Result<FileId, WireError> {
    let request = NodeRequest::Create {
        parent: ROOT,
        name: name.into(),
        options: CreateOptions {
            mode: 0o600,
            ..CreateOptions::default()
        },
        read: true,
        write: true,
        exclusive: true,
    };
    match ask(c, uid, request)? {
        NodeReply::Opened { attributes, .. } => Ok(attributes.id),
        other => panic!("{other:?}"),
    }
}

fn remove(c: &mut Client, uid: u32, name: &str, keep: bool) {
    let request = NodeRequest::Unlink {
        parent: ROOT,
        name: name.into(),
        keep,
    };
    ask(c, uid, request).unwrap();
}

fn give(c: &mut Client, id: FileId, to: u32) -> Result<NodeReply, WireError> {
    let change = Change {
        uid: Some(to),
        ..Change::default()
    };
    ask(c, 0, NodeRequest::SetAttr { id, change })
}

fn users(c: &mut Client, request: QuotaRequest) -> Vec<UserFiles> {
    match c.ok(MetaRequest::Quota(request)) {
        MetaReply::Quota(QuotaReply::Users { users, .. }) => users,
        other => panic!("{other:?}"),
    }
}

fn files(c: &mut Client, uid: u32) -> u64 {
    users(c, QuotaRequest::Of(uid))[0].files
}

fn set(c: &mut Client, user: Option<u32>, soft: u64, hard: u64, grace_s: Option<u64>) {
    let change = LimitsChange {
        soft: Some(Bound::At(soft)),
        hard: Some(Bound::At(hard)),
        grace_s,
        ..LimitsChange::default()
    };
    c.ok(MetaRequest::Quota(QuotaRequest::Set { user, change }));
}

/// Counts all files; returns wrong counts.
fn count(c: &mut Client, repair: bool) -> Vec<WrongCount> {
    let mut count = None;
    loop {
        let request = QuotaRequest::Count { count, repair };
        match c.ok(MetaRequest::Quota(request)) {
            MetaReply::Quota(QuotaReply::Counted {
                through: true,
                wrong,
                ..
            }) => return wrong,
            MetaReply::Quota(QuotaReply::Counted { count: next, .. }) => count = next,
            other => panic!("{other:?}"),
        }
    }
}

fn status(c: &mut Client) -> MetaStatus {
    match c.ok(MetaRequest::Status) {
        MetaReply::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

fn is_quota<T>(result: Result<T, WireError>) -> String {
    let e = result.map(drop).unwrap_err();
    assert_eq!(e.kind, ErrorKind::Quota, "{e}");
    e.message
}

#[test]
fn what_users_have_is_counted_until_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    let f = make(&mut c, ALICE, "f").unwrap();
    make(&mut c, ALICE, "g").unwrap();
    let parent = ROOT;
    let directory = NodeRequest::Mkdir {
        parent,
        name: "d".into(),
        mode: 0o700,
    };
    ask(&mut c, ALICE, directory).unwrap();
    let symlink = NodeRequest::Symlink {
        parent,
        name: "s".into(),
        target: "f".into(),
    };
    ask(&mut c, ALICE, symlink).unwrap();
    assert_eq!(files(&mut c, ALICE), 4);
    // A second name is not a second file.
    let link = NodeRequest::Link {
        id: f,
        parent,
        name: "f2".into(),
    };
    ask(&mut c, ALICE, link).unwrap();
    remove(&mut c, ALICE, "f", false);
    assert_eq!(files(&mut c, ALICE), 4);
    // Replaced by a rename, and given away.
    let rename = NodeRequest::Rename {
        parent,
        name: "g".into(),
        new_parent: parent,
        new_name: "f2".into(),
        exclusive: false,
        keep: false,
    };
    ask(&mut c, ALICE, rename).unwrap();
    assert_eq!(files(&mut c, ALICE), 3);
    let g = make(&mut c, ALICE, "given").unwrap();
    give(&mut c, g, BOB).unwrap();
    give(&mut c, g, BOB).unwrap();
    assert_eq!((files(&mut c, ALICE), files(&mut c, BOB)), (3, 1));
    // An open-unlinked file counts until it is closed.
    remove(&mut c, BOB, "given", true);
    assert_eq!(files(&mut c, BOB), 1);
    ask(&mut c, BOB, NodeRequest::Reap { id: g }).unwrap();
    assert_eq!(files(&mut c, BOB), 0);
    let name = "d".into();
    ask(&mut c, ALICE, NodeRequest::Rmdir { parent, name }).unwrap();
    remove(&mut c, ALICE, "s", false);
    remove(&mut c, ALICE, "f2", true);
    assert_eq!(files(&mut c, ALICE), 1, "kept");
    assert_eq!(count(&mut c, false), []);
}

#[test]
fn nothing_can_be_made_or_given_beyond_the_hard_limit() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    set(&mut c, Some(ALICE), 1, 2, None);
    make(&mut c, ALICE, "a").unwrap();
    make(&mut c, ALICE, "b").unwrap();
    let message = is_quota(make(&mut c, ALICE, "c"));
    for word in ["user 1010 has 2 files", "hard limit is 2", "penstock quota"] {
        assert!(message.contains(word), "{message}");
    }
    let parent = ROOT;
    let name = || "n".to_owned();
    let mkdir = NodeRequest::Mkdir {
        parent,
        name: name(),
        mode: 0o700,
    };
    is_quota(ask(&mut c, ALICE, mkdir));
    let symlink = NodeRequest::Symlink {
        parent,
        name: name(),
        target: "a".into(),
    };
    is_quota(ask(&mut c, ALICE, symlink));
    let of_bob = make(&mut c, BOB, "of-bob").unwrap();
    is_quota(give(&mut c, of_bob, ALICE));
    let of_root = make(&mut c, 0, "of-root").unwrap();
    is_quota(give(&mut c, of_root, ALICE));
    assert_eq!((files(&mut c, ALICE), files(&mut c, BOB)), (2, 1));
    let found = status(&mut c);
    assert_eq!(
        (found.over_soft, found.at_hard, found.counted),
        (1, 1, true)
    );
    // Existing files can be used, and free space when they are removed.
    let open = NodeRequest::Open {
        id: of_bob,
        read: true,
        write: true,
        execute: false,
    };
    ask(&mut c, BOB, open).unwrap();
    remove(&mut c, ALICE, "a", false);
    make(&mut c, ALICE, "c").unwrap();
    // Limits and counts survive the server.
    drop(c);
    drop(server);
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    is_quota(make(&mut c, ALICE, "d"));
    let user = Some(ALICE);
    c.ok(MetaRequest::Quota(QuotaRequest::Remove { user }));
    make(&mut c, ALICE, "d").unwrap();
    assert_eq!(count(&mut c, false), []);
}

#[test]
fn a_soft_limit_becomes_a_hard_one_and_the_default_is_everybodys() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    set(&mut c, None, 1, 100, Some(1));
    make(&mut c, ALICE, "a").unwrap();
    make(&mut c, ALICE, "b").unwrap();
    let before = Instant::now();
    while let Ok(made) = make(&mut c, ALICE, &format!("{:?}", before.elapsed())) {
        assert!(made.0 > 0 && before.elapsed() < Duration::from_secs(30));
        remove(&mut c, ALICE, "b", false);
        make(&mut c, ALICE, "b").unwrap_or(made);
        std::thread::sleep(Duration::from_millis(100));
    }
    let message = is_quota(make(&mut c, ALICE, "late"));
    assert!(message.contains("grace period is over"), "{message}");
    set(&mut c, Some(BOB), 500, 500, None);
    for i in 0..110 {
        make(&mut c, BOB, &format!("bob-{i}")).unwrap();
        make(&mut c, 0, &format!("root-{i}")).unwrap();
    }
    let all = users(
        &mut c,
        QuotaRequest::All {
            after: Some(ALICE),
            limit: 10,
        },
    );
    let bob = all.iter().find(|user| user.uid == BOB).unwrap();
    assert_eq!(
        (bob.files, bob.own, bob.limits.hard),
        (110, true, Some(500))
    );
    assert!(all.iter().all(|user| user.uid > ALICE));
}

#[test]
fn others_are_seen_and_limited_by_administrators_alone() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let own = rustix::process::geteuid().as_raw();
    let mut c = Client::new(&d);
    c.ok(mkdir("/mine"));
    c.ok(create("/mine/f"));
    let mine = users(&mut c, QuotaRequest::Own);
    // The root directory belongs to the deployment's owner.
    assert_eq!((mine[0].uid, mine[0].files, mine.len()), (own, 3, 1));
    assert_eq!(users(&mut c, QuotaRequest::Of(own)), mine);
    c.ok(unlink("/mine/f"));
    let (user, change) = (Some(own), LimitsChange::default());
    let (after, limit) = (None, 10);
    for request in [
        QuotaRequest::Of(own + 1),
        QuotaRequest::All { after, limit },
        QuotaRequest::Set { user, change },
        QuotaRequest::Remove { user },
        QuotaRequest::Count {
            count: None,
            repair: false,
        },
    ] {
        let refused = c.err(MetaRequest::Quota(request));
        assert_eq!(refused, ErrorKind::Permission);
    }
    let mut admin = Client::connect(&d, Role::Admin).unwrap();
    assert!(!users(&mut admin, QuotaRequest::All { after, limit }).is_empty());
    let change = LimitsChange {
        soft: Some(Bound::At(2)),
        hard: Some(Bound::At(1)),
        ..LimitsChange::default()
    };
    let user = Some(ALICE);
    let request = MetaRequest::Quota(QuotaRequest::Set { user, change });
    assert_eq!(admin.err(request), ErrorKind::InvalidArgument);
}

/// Changes the database of a stopped server.
fn change_store(d: &Deployment, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = Database::open(d.meta.store.join("namespace.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    change(&transaction);
    transaction.commit().unwrap();
}

#[test]
fn files_of_an_older_release_are_counted_beside_the_service() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    for i in 0..1500 {
        make(&mut c, [ALICE, BOB, 0][i % 3], &format!("{i}")).unwrap();
    }
    set(&mut c, Some(BOB), 400, 400, None);
    drop(c);
    drop(server);
    change_store(&d, |transaction| {
        let mut users = transaction.open_table(USERS).unwrap();
        let before: usize = users.extract_if(|_, _| true).unwrap().count();
        assert!(before >= 3);
        drop(users);
        let mut about = transaction.open_table(ABOUT).unwrap();
        assert!(about.remove("rules").unwrap().is_some());
    });
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    // Names change while they are counted.
    for i in 0..100 {
        make(&mut c, ALICE, &format!("late-{i}")).unwrap();
        remove(&mut c, BOB, &format!("{}", 3 * i + 1), false);
    }
    let start = Instant::now();
    while !status(&mut c).counted {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((files(&mut c, ALICE), files(&mut c, BOB)), (600, 400));
    assert_eq!(count(&mut c, false), []);
    set(&mut c, Some(ALICE), 600, 600, None);
    is_quota(make(&mut c, ALICE, "more"));
}

#[test]
fn wrong_numbers_are_found_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    make(&mut c, ALICE, "a").unwrap();
    make(&mut c, ALICE, "b").unwrap();
    drop(c);
    drop(server);
    change_store(&d, |transaction| {
        let mut users = transaction.open_table(USERS).unwrap();
        // Nine files, no limits, never above a limit.
        users.insert(ALICE, [9, 0, 0].as_slice()).unwrap();
    });
    let wrong = [WrongCount {
        uid: ALICE,
        noted: 9,
        counted: 2,
    }];
    let server = start(&d, Options::default()).unwrap();
    let mut c = Client::admin(&d);
    assert_eq!(count(&mut c, false), wrong);
    assert_eq!(count(&mut c, true), wrong);
    assert_eq!(count(&mut c, false), []);
    drop(c);
    drop(server);
    let _server = start(&d, Options::default()).unwrap();
    assert_eq!(files(&mut Client::admin(&d), ALICE), 2);
}
