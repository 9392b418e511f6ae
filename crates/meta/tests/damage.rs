//! Stores that are damaged, foreign or in use: never a wrong answer, always a clear error.

use crate::common::{Client, create, deployment};
use penstock_layout::FileId;
use penstock_meta::{Error, Options, StoreError, start};
use penstock_rpc::deployment::Deployment;
use penstock_wire::message::{MetaReply, MetaRequest};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

const FILES: usize = 300;

/// A store with some files after a clean shutdown, and the files.
fn filled(d: &Deployment) -> BTreeMap<String, FileId> {
    let server = start(d, Options::default()).unwrap();
    let mut c = Client::new(d);
    let files = (0..FILES)
        .map(|i| {
            let (attributes, ..) = c.open(create(format!("/file-{i}")));
            (format!("file-{i}"), attributes.id)
        })
        .collect();
    c.ok(MetaRequest::Sync);
    drop(c);
    server.stop();
    files
}

fn database(dir: &Path) -> std::path::PathBuf {
    dir.join("meta/namespace.redb")
}

/// An older database comes without the journal, which would show that commits are missing.
fn remove_journal(dir: &Path) {
    for entry in std::fs::read_dir(dir.join("meta")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("journal-") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Starts on the store as it is: either all files are there, or it is reported as damaged with advice.
fn whole_or_damaged(d: &Deployment, files: &BTreeMap<String, FileId>) -> bool {
    match start(d, Options::default()) {
        Ok(_server) => {
            let found: BTreeMap<_, _> = Client::new(d).list("/", 1000).into_iter().collect();
            assert_eq!(&found, files);
            true
        }
        Err(e @ Error::Store(StoreError::Damaged { .. })) => {
            let text = e.to_string();
            assert!(
                text.contains("namespace.redb") && text.contains("restore"),
                "{text}"
            );
            false
        }
        Err(e) => panic!("{e}"),
    }
}

struct Sample {
    dir: tempfile::TempDir,
    deployment: Deployment,
    files: BTreeMap<String, FileId>,
    image: Vec<u8>,
}

static SAMPLE: LazyLock<Sample> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let deployment = deployment(dir.path());
    let files = filled(&deployment);
    let image = std::fs::read(database(dir.path())).unwrap();
    Sample {
        dir,
        deployment,
        files,
        image,
    }
});

#[derive(Debug, Clone)]
enum Harm {
    /// Overwrites bytes at a place (per mille of the file).
    Overwrite(usize, Vec<u8>),
    /// A page of zeros.
    Zero(usize),
    Truncate(usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        3 => (0..1000usize, prop::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(at, bytes)| Harm::Overwrite(at, bytes)),
        2 => (0..1000usize).prop_map(Harm::Zero),
        2 => (0..1000usize).prop_map(Harm::Truncate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn damage_is_found_or_harmless(harm in harm()) {
        let sample = &*SAMPLE;
        let mut image = sample.image.clone();
        let len = image.len();
        match &harm {
            Harm::Overwrite(at, bytes) => {
                let at = len * at / 1000;
                let n = bytes.len().min(len - at);
                image[at..at + n].copy_from_slice(&bytes[..n]);
            }
            Harm::Zero(at) => {
                let page = len * at / 1000 / 4096 * 4096;
                let end = (page + 4096).min(len);
                image[page..end].fill(0);
            }
            Harm::Truncate(at) => image.truncate(len * at / 1000),
        }
        let changed = image != sample.image;
        remove_journal(sample.dir.path());
        std::fs::write(database(sample.dir.path()), &image).unwrap();
        let whole = whole_or_damaged(&sample.deployment, &sample.files);
        prop_assert!(whole || changed);
        if let Harm::Truncate(at) = harm && at < 500 {
            prop_assert!(!whole, "half a file cannot be whole");
        }
    }
}

/// Bytes of a name in a live page: must be detected.
#[test]
fn a_changed_record_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let files = filled(&d);
    let path = database(dir.path());
    let image = std::fs::read(&path).unwrap();
    let name = b"file-123";
    let places: Vec<usize> = (0..image.len() - name.len())
        .filter(|at| image[*at..].starts_with(name))
        .collect();
    assert!(places.len() >= 2, "in its node and in its entry");
    let mut found = 0;
    for at in places {
        let mut harmed = image.clone();
        harmed[at] ^= 1;
        remove_journal(dir.path());
        std::fs::write(&path, &harmed).unwrap();
        found += usize::from(!whole_or_damaged(&d, &files));
    }
    assert!(found >= 2);
}

/// A store that is too large to be read completely first is served, and damage is reported.
#[test]
fn damage_of_a_large_store_is_found_beside_the_service() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    filled(&d);
    let large = Options {
        read_through: 0,
        ..Options::default()
    };
    // The reported damage.
    let look = || {
        let server = start(&d, large.clone()).unwrap();
        let mut c = Client::new(&d);
        loop {
            let MetaReply::Status(status) = c.ok(MetaRequest::Status) else {
                panic!()
            };
            if status.looked_through {
                assert_eq!(status.damaged > 0, !status.damage.is_empty());
                drop(c);
                server.stop();
                return status.damage.concat();
            }
            std::thread::yield_now();
        }
    };
    assert_eq!(look(), "");
    let path = database(dir.path());
    let image = std::fs::read(&path).unwrap();
    // Each name is once in its node and once in its entry.
    let mut found = 0;
    for name in [b"file-123", b"file-200", b"file-299"] {
        for at in (0..image.len() - name.len()).filter(|at| image[*at..].starts_with(name)) {
            let mut harmed = image.clone();
            harmed[at + 5] ^= 1;
            remove_journal(dir.path());
            std::fs::write(&path, &harmed).unwrap();
            let said = look();
            found += usize::from(said.contains("file-") || said.contains("checksum"));
        }
    }
    assert!(found >= 6, "{found}");
}

#[test]
fn a_checked_copy_can_be_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let files = filled(&d);
    let path = database(dir.path());
    let copy = dir.path().join("meta/namespace.checked");
    assert!(!copy.exists());
    // A start that finds everything in order leaves a copy; later changes are not in it.
    let server = start(&d, Options::default()).unwrap();
    let (later, ..) = Client::new(&d).open(create("/later"));
    server.stop();
    assert!(copy.exists());
    for damage in ["gone", "garbage", "empty"] {
        match damage {
            "gone" => std::fs::remove_file(&path).unwrap(),
            "garbage" => std::fs::write(&path, vec![7; 100_000]).unwrap(),
            _ => std::fs::write(&path, []).unwrap(),
        }
        let Err(e) = start(&d, Options::default()) else {
            panic!("started although {damage}")
        };
        assert!(e.to_string().contains("namespace.checked"), "{damage}: {e}");
    }
    std::fs::copy(&copy, &path).unwrap();
    let Err(e) = start(&d, Options::default()) else {
        panic!("started without the commits that the journal tells of")
    };
    assert!(e.to_string().contains("journal-"), "{e}");
    remove_journal(dir.path());
    let _server = start(&d, Options::default()).unwrap();
    let mut c = Client::new(&d);
    let found: BTreeMap<_, _> = c.list("/", 1000).into_iter().collect();
    assert_eq!(found, files);
    let (new, ..) = c.open(create("/new"));
    assert!(new.id > later.id, "ids of lost files are not used again");
    let reply = Client::admin(&d).ok(MetaRequest::GivenIds);
    let MetaReply::Ids { ranges, .. } = reply else {
        panic!()
    };
    let given = |id: FileId| {
        ranges
            .iter()
            .any(|(first, end)| (*first..*end).contains(&id))
    };
    assert!(files.values().all(|id| given(*id)) && given(new.id));
    assert!(!given(later.id), "the copy does not know of it");
}

#[test]
fn a_store_in_use_or_of_another_deployment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let server = start(&d, Options::default()).unwrap();
    let mut second = d.clone();
    second.meta.address.unix = Some(dir.path().join("second.sock"));
    let Err(e) = start(&second, Options::default()) else {
        panic!("started twice")
    };
    let pid = std::process::id().to_string();
    assert!(matches!(e, Error::Store(StoreError::InUse { .. })), "{e}");
    assert!(e.to_string().contains(&pid), "{e}");
    server.stop();
    second.id = Deployment::new_id().unwrap();
    let Err(e) = start(&second, Options::default()) else {
        panic!("started on a foreign store")
    };
    assert!(
        matches!(e, Error::Store(StoreError::WrongDeployment { .. })),
        "{e}"
    );
    assert!(e.to_string().contains(&d.id), "{e}");
}

/// The store of a server as a kill would leave it now, for a deployment of its own.
fn killed(d: &Deployment, dir: &Path) -> Deployment {
    let mut copy = d.clone();
    copy.meta.store = dir.to_owned();
    copy.meta.address.unix = Some(dir.with_extension("sock"));
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir(dir).unwrap();
    for entry in std::fs::read_dir(&d.meta.store).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
    }
    copy
}

fn journals(dir: &Path) -> Vec<std::path::PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    paths
        .filter(|p| {
            p.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("journal-")
        })
        .collect()
}

#[test]
fn a_journal_that_cannot_be_read_is_neither_empty_nor_removed() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    // No commits by timer.
    let options = Options {
        commit_interval: std::time::Duration::from_secs(3600),
        ..Options::default()
    };
    let _server = start(&d, options).unwrap();
    let mut c = Client::new(&d);
    for name in ["/a", "/b", "/c"] {
        c.open(create(name));
    }
    let store = dir.path().join("copy");
    let lost = |copy: &Deployment| {
        let _server = start(copy, Options::default()).unwrap();
        let mut c = Client::new(copy);
        let MetaReply::Status(status) = c.ok(MetaRequest::Status) else {
            panic!("no status")
        };
        (c.list("/", 10).len(), status.journal_lost > 0)
    };
    assert_eq!(lost(&killed(&d, &store)), (3, false));
    let refused = |copy: &Deployment, journal: &Path| {
        let e = start(copy, Options::default()).map(drop).unwrap_err();
        let text = e.to_string();
        assert!(text.contains(journal.to_str().unwrap()), "{text}");
        assert!(journal.exists());
        text
    };
    // A changed byte.
    let copy = killed(&d, &store);
    let journal = journals(&store).pop().unwrap();
    let mut bytes = std::fs::read(&journal).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    let text = refused(&copy, &journal);
    assert!(
        text.contains("is damaged") && text.contains("restore"),
        "{text}"
    );
    assert_eq!(std::fs::read(&journal).unwrap(), bytes);
    // The same after another boot of the system: as far as it can be read.
    let database = redb::Database::open(store.join("namespace.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let about = redb::TableDefinition::<&str, &[u8]>::new("about");
    let other: &[u8] = &[7; 16];
    let boot = transaction
        .open_table(about)
        .unwrap()
        .insert("boot", other)
        .is_ok();
    assert!(boot);
    transaction.commit().unwrap();
    drop(database);
    let (names, told) = lost(&copy);
    assert!(names < 3 && told);
    // An unreadable file.
    let copy = killed(&d, &store);
    std::fs::remove_file(&journal).unwrap();
    std::fs::create_dir(&journal).unwrap();
    refused(&copy, &journal);
    // As the advice says.
    std::fs::remove_dir(&journal).unwrap();
    assert_eq!(lost(&copy), (0, false));
}
