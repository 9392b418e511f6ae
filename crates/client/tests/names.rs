//! Names, attributes, removal and counters.
use crate::common::{Cluster, Plan, create};
use penstock_client::{Client, ErrorKind, Form, Identity, OpenOptions, SetAttributes};
use penstock_datatype::{Pattern, Source};
use penstock_layout::ServerId;
use penstock_wire::Role;
use penstock_wire::message::{MetaReply, MetaRequest, NodeKind};

fn put(client: &Client, path: &str, n: u64) {
    let file = client.open(path, &create(1000, 3)).unwrap();
    let bytes = vec![1u8; n as usize];
    let access = Pattern::contiguous(0, n);
    file.write(&access, Form::Structured, &mut Source::from_slice(&bytes))
        .unwrap();
}

/// Objects at all data servers.
fn objects(cluster: &Cluster) -> u64 {
    let admin = Client::connect_with(
        &cluster.deployment,
        Identity::default(),
        Role::Admin,
        crate::common::options(),
    )
    .unwrap();
    admin
        .data_status()
        .into_iter()
        .map(|(_, s)| s.unwrap().objects)
        .sum()
}

#[test]
fn names_come_move_and_go() {
    let cluster = Cluster::start(Plan {
        servers: 3,
        ..Plan::default()
    });
    let client = cluster.client();
    client.mkdir("/a", 0o755).unwrap();
    client.mkdir("/a/b", 0o700).unwrap();
    put(&client, "/a/b/../f", 2500);
    let stat = client.stat("a/./f").unwrap();
    assert_eq!(stat.size, 2500);
    assert_eq!(stat.attributes.kind, NodeKind::File);
    assert_eq!(stat.attributes.layout.as_ref().unwrap().stripe_unit, 1000);
    assert_eq!(client.stat("/a").unwrap().size, 0);

    client.rename("/a/f", "/a/b/g").unwrap();
    assert_eq!(client.stat("/a/f").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(client.stat("/a/b/g").unwrap().size, 2500);
    assert_eq!(
        client.rmdir("/a/b").unwrap_err().kind(),
        ErrorKind::NotEmpty
    );
    assert_eq!(
        client.unlink("/a/b").unwrap_err().kind(),
        ErrorKind::IsDirectory
    );
    assert_eq!(
        client.mkdir("/a", 0o755).unwrap_err().kind(),
        ErrorKind::Exists
    );

    let change = SetAttributes {
        mode: Some(0o600),
        mtime_ns: Some(123),
        ..SetAttributes::default()
    };
    client.set_attributes("/a/b/g", &change).unwrap();
    let attributes = client.stat("/a/b/g").unwrap().attributes;
    assert_eq!((attributes.mode & 0o777, attributes.mtime_ns), (0o600, 123));

    client.unlink("/a/b/g").unwrap();
    client.rmdir("/a/b").unwrap();
    client.rmdir("/a").unwrap();
    client.sync_metadata().unwrap();
    assert_eq!(client.readdir("/").unwrap(), []);
    assert_eq!(objects(&cluster), 0);
    let status = client.meta_status().unwrap();
    assert_eq!(status.files, 0);
}

#[test]
fn a_long_directory_is_read_page_by_page() {
    let cluster = Cluster::start(Plan {
        servers: 1,
        ..Plan::default()
    });
    let client = cluster.client();
    const N: usize = 2500;
    let mut requests: Vec<_> = (0..N)
        .map(|i| MetaRequest::Mkdir {
            path: format!("/d{i:05}"),
            mode: 0o755,
        })
        .collect();
    requests.push(MetaRequest::Mkdir {
        path: "/d00000".into(),
        mode: 0o755,
    });
    let replies = client.batch(requests).unwrap();
    assert!(replies[..N].iter().all(|r| *r == MetaReply::Done));
    assert!(matches!(&replies[N], MetaReply::Error(e) if e.kind == ErrorKind::Exists));
    let names: Vec<String> = client
        .readdir("/")
        .unwrap()
        .into_iter()
        .map(|e| e.0)
        .collect();
    let expect: Vec<String> = (0..N).map(|i| format!("d{i:05}")).collect();
    assert_eq!(names, expect);
}

#[test]
fn removed_and_replaced_files_give_their_space_back() {
    let cluster = Cluster::start(Plan {
        servers: 3,
        ..Plan::default()
    });
    let client = cluster.client();
    put(&client, "/one", 5000);
    put(&client, "/two", 5000);
    assert_eq!(objects(&cluster), 6);
    client.rename("/one", "/two").unwrap();
    assert_eq!(objects(&cluster), 3);
    client.unlink("/two").unwrap();
    assert_eq!(objects(&cluster), 0);
}

#[test]
fn a_removal_does_not_wait_for_a_missing_server() {
    let mut cluster = Cluster::start(Plan {
        servers: 3,
        ..Plan::default()
    });
    let client = cluster.client();
    put(&client, "/f", 5000);
    cluster.data[1] = None;
    client.unlink("/f").unwrap();
    assert_eq!(client.stat("/f").unwrap_err().kind(), ErrorKind::NotFound);
    cluster.start_data(1);
    assert_eq!(objects(&cluster), 1, "left for the check");
}

#[test]
fn striping_is_as_asked() {
    let cluster = Cluster::start(Plan {
        servers: 4,
        ..Plan::default()
    });
    let client = cluster.client();
    let mut how = create(4096, 2);
    how.create.as_mut().unwrap().start_server = Some(ServerId(3));
    let file = client.open("/f", &how).unwrap();
    assert!(file.created());
    assert_eq!(file.layout().stripe_unit, 4096);
    assert_eq!(file.layout().servers.len(), 2);
    assert_eq!(file.layout().servers[0], ServerId(3));
    // Defaults, and an existing file's striping stays.
    let again = client
        .open("/f", &OpenOptions::read_write_create())
        .unwrap();
    assert!(!again.created());
    assert_eq!(again.layout(), file.layout());
    let default = client
        .open("/g", &OpenOptions::read_write_create())
        .unwrap();
    assert_eq!(default.layout().stripe_unit, 64 << 10);
    assert_eq!(default.layout().servers.len(), 4);
}

#[test]
fn counters_are_shared_and_end_with_their_creator() {
    let cluster = Cluster::start(Plan {
        servers: 1,
        ..Plan::default()
    });
    let (a, b) = (cluster.client(), cluster.client());
    let counter = a.counter(1);
    assert_eq!(counter.get().unwrap_err().kind(), ErrorKind::NotFound);
    counter.create(100).unwrap();
    let theirs = b.counter(1);
    std::thread::scope(|s| {
        for c in [&counter, &theirs] {
            s.spawn(move || {
                for _ in 0..500 {
                    c.add(2).unwrap();
                }
            });
        }
    });
    assert_eq!(theirs.get().unwrap(), 2100);
    theirs.set(-5).unwrap();
    assert_eq!(counter.add(1).unwrap(), -5);
    assert_eq!(
        theirs.free().unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    counter.free().unwrap();
    assert_eq!(theirs.get().unwrap_err().kind(), ErrorKind::NotFound);
    counter.create(1).unwrap();
    drop(counter);
    let mut gone = false;
    for _ in 0..500 {
        gone = theirs.get().is_err();
        if gone {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(gone, "the creator has gone");
}

#[test]
fn a_wrong_key_is_refused_at_once() {
    let cluster = Cluster::start(Plan {
        servers: 1,
        ..Plan::default()
    });
    let mut stranger = cluster.deployment.clone();
    stranger.client_key = cluster.dir.path().join("other.key");
    penstock_wire::Key::generate()
        .unwrap()
        .save(&stranger.client_key)
        .unwrap();
    let e = Client::connect(&stranger, Identity::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BadKey, "{e}");
    stranger.client_key = cluster.dir.path().join("none.key");
    let e = Client::connect(&stranger, Identity::default()).unwrap_err();
    assert!(e.to_string().contains("none.key"), "{e}");
}
