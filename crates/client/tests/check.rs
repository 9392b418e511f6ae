//! The check of a real deployment: servers in this process, stores in a temporary directory.

use penstock_client::{
    CheckOptions, CheckReport, Client, ClientOptions, CreateOptions, ErrorKind, FindingKind, Form,
    Identity, OpenOptions, check,
};
use penstock_datatype::{Pattern, Source};
use penstock_layout::ServerId;
use penstock_rpc::RunningServer;
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_wire::{Key, Role};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const SERVERS: u32 = 2;
const UNIT: u64 = 4096;

struct Cluster {
    dir: TempDir,
    deployment: Deployment,
    meta: Option<RunningServer>,
    data: Vec<Option<RunningServer>>,
}

impl Cluster {
    fn start() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let key = |name| {
            Key::generate().unwrap().save(&at(name)).unwrap();
            at(name)
        };
        let address = |name: String| Address {
            unix: Some(at(&name)),
            tcp: None,
            identity: None,
        };
        let mut deployment = Deployment {
            id: Deployment::new_id().unwrap(),
            name: "check".into(),
            stripe_unit: UNIT,
            mount: None,
            tune: Vec::new(),
            client_key: key("client.key"),
            former_server_key: None,
            generation: 1,
            other_keys: None,
            authority: None,
            authority_key: None,
            munge: None,
            meta: MetaServer {
                address: address("meta.sock".into()),
                store: at("meta"),
                identity_key: None,
                host: None,
            },
            servers: (0..SERVERS)
                .map(|i| DataServer {
                    id: ServerId(i),
                    address: address(format!("data{i}.sock")),
                    store: format!("dir:{}", at(&format!("data{i}")).display()),
                    identity_key: None,
                    host: None,
                })
                .collect(),
            transport: Transport::default(),
        };
        deployment.make_keys(dir.path()).unwrap();
        let mut cluster = Cluster {
            dir,
            deployment,
            meta: None,
            data: (0..SERVERS).map(|_| None).collect(),
        };
        cluster.start_meta();
        (0..SERVERS).for_each(|i| cluster.start_data(i));
        cluster
    }

    fn start_meta(&mut self) {
        let options = penstock_meta::Options {
            // Only a sync makes names durable here.
            commit_interval: Duration::from_secs(3600),
            ..penstock_meta::Options::default()
        };
        self.meta = Some(penstock_meta::start(&self.deployment, options).unwrap());
    }

    fn start_data(&mut self, i: u32) {
        let options = penstock_server::Options::default();
        let server = penstock_server::start(&self.deployment, ServerId(i), options);
        self.data[i as usize] = Some(server.unwrap());
    }

    fn stop_meta(&mut self) {
        self.meta.take().unwrap().stop();
    }

    fn stop_data(&mut self, i: u32) {
        self.data[i as usize].take().unwrap().stop();
    }

    fn client(&self, role: Role) -> Client {
        let options = ClientOptions {
            retry_limit: Duration::ZERO,
            ..ClientOptions::default()
        };
        Client::connect_with(&self.deployment, Identity::default(), role, options).unwrap()
    }

    fn check(&self, repair: bool) -> CheckReport {
        let options = CheckOptions {
            repair,
            grace: Duration::from_millis(10),
            ..CheckOptions::default()
        };
        check(&self.client(Role::Admin), &options, &mut |_| {}).unwrap()
    }

    fn store(&self, i: u32) -> PathBuf {
        self.dir.path().join(format!("data{i}"))
    }
}

/// A file with some bytes on each server, synced.
fn write(client: &Client, path: &str) -> u64 {
    let how = OpenOptions {
        read: true,
        write: true,
        create: Some(CreateOptions {
            mode: 0o600,
            ..CreateOptions::default()
        }),
        exclusive: true,
    };
    let file = client.open(path, &how).unwrap();
    let bytes = vec![7; SERVERS as usize * UNIT as usize];
    let access = Pattern::contiguous(0, bytes.len() as u64);
    let mut from = Source::from_slice(&bytes);
    file.write(&access, Form::Contiguous, &mut from).unwrap();
    file.sync().unwrap();
    file.id().0
}

fn kinds(report: &CheckReport) -> Vec<FindingKind> {
    report.findings.iter().map(|f| f.kind).collect()
}

/// The file of an object: the largest regular file whose name tells its id.
fn object_file(store: &Path, id: u64) -> PathBuf {
    let mut found = Vec::new();
    let mut directories = vec![store.join("objects")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                directories.push(path);
            } else if name.ends_with(&format!("{id:x}")[2..]) {
                found.push(path);
            }
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn orphans_left_by_a_server_that_was_down_are_found_and_freed() {
    let mut cluster = Cluster::start();
    let client = cluster.client(Role::Client);
    client.mkdir("/d", 0o700).unwrap();
    for name in ["/d/a", "/d/b", "/c"] {
        write(&client, name);
    }
    let report = cluster.check(false);
    assert!(report.clean && report.complete, "{report:?}");
    assert_eq!((report.files, report.directories), (3, 2));
    assert_eq!((report.objects, report.object_bytes), (6, 6 * UNIT));

    cluster.stop_data(1);
    client.unlink("/d/a").unwrap();
    let report = cluster.check(true);
    assert_eq!(kinds(&report), [FindingKind::SilentServer]);
    assert!(!report.clean && !report.complete && report.freed == 0);

    cluster.start_data(1);
    let report = cluster.check(false);
    assert_eq!(kinds(&report), [FindingKind::Orphan]);
    assert_eq!(report.findings[0].server, Some(ServerId(1)));
    assert_eq!(
        (report.orphans, report.orphan_bytes, report.freed),
        (1, UNIT, 0)
    );
    let report = cluster.check(true);
    assert!(report.clean && report.freed == 1, "{report:?}");
    let report = cluster.check(false);
    assert!(report.clean && report.findings.is_empty() && report.objects == 4);
}

#[test]
fn truncated_objects_are_reported_and_can_be_accepted() {
    let mut cluster = Cluster::start();
    let client = cluster.client(Role::Client);
    let id = write(&client, "/f");
    cluster.stop_data(1);
    let object = object_file(&cluster.store(1), id);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(object)
        .unwrap();
    file.set_len(100).unwrap();
    cluster.start_data(1);
    let report = cluster.check(true);
    assert_eq!(kinds(&report), [FindingKind::TruncatedObject]);
    let finding = &report.findings[0];
    assert_eq!(finding.path.as_deref(), Some("/f"));
    assert_eq!(
        (finding.server, finding.bytes),
        (Some(ServerId(1)), Some(100))
    );
    assert!(!report.clean);
    let options = CheckOptions {
        accept_damaged: true,
        ..CheckOptions::default()
    };
    let report = check(&cluster.client(Role::Admin), &options, &mut |_| {}).unwrap();
    assert!(report.clean && report.findings[0].mended, "{report:?}");
    assert!(cluster.check(false).findings.is_empty());
}

#[test]
fn an_older_copy_of_the_metadata_frees_nothing() {
    let mut cluster = Cluster::start();
    write(&cluster.client(Role::Client), "/old");
    cluster.stop_meta();
    let database = cluster.dir.path().join("meta/namespace.redb");
    let copy = cluster.dir.path().join("copy");
    std::fs::copy(&database, &copy).unwrap();
    cluster.start_meta();
    write(&cluster.client(Role::Client), "/new");
    cluster.stop_meta();
    std::fs::copy(&copy, &database).unwrap();
    // A copy from elsewhere comes without the journal, which would bring the new name back.
    for entry in std::fs::read_dir(cluster.dir.path().join("meta")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("journal-")
        {
            std::fs::remove_file(path).unwrap();
        }
    }
    cluster.start_meta();
    let report = cluster.check(true);
    assert_eq!(
        kinds(&report),
        [FindingKind::UnknownObject; SERVERS as usize]
    );
    assert!(!report.clean && report.freed == 0);
    assert_eq!(cluster.check(false).objects, 2 * u64::from(SERVERS));
}

#[test]
fn only_administrators_check() {
    let cluster = Cluster::start();
    let client = cluster.client(Role::Client);
    let refused = check(&client, &CheckOptions::default(), &mut |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Permission);
}

/// What a sync promises for the bytes it also promises for the name.
#[test]
fn a_sync_covers_the_name_of_the_file() {
    let cluster = Cluster::start();
    let client = cluster.client(Role::Client);
    let commits = || client.meta_status().unwrap().commits;
    // The first change opens the client's session, which waits for stable storage.
    client.mkdir("/first", 0o700).unwrap();
    let before = commits();
    client.mkdir("/not-synced", 0o700).unwrap();
    assert_eq!(commits(), before);
    write(&client, "/synced");
    assert_eq!(commits(), before + 1);
}
