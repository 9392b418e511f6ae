//! Both backends against a vector of bytes; the directory backend against damage and unusable places.
use crate::dir::DirStore;
use crate::memory::MemoryStore;
use crate::record::Records;
use crate::{Descriptor, Execution, Finding, Object, Problem, Scratch, Store, StoreError, open};
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{FileId, Layout, ObjectOffset, ServerId, ServerIndex};
use proptest::prelude::*;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const ID: FileId = FileId(0x3f);
const KINDS: [Records; 2] = [Records::Attribute, Records::Beside];

/// In memory where possible, because tests that sync would wait for the disk.
fn place() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap())
}

fn dir(at: &Path, records: Records) -> DirStore {
    DirStore::open_with(at, "d1", 0, Some(records), None).unwrap()
}

fn object_file(at: &Path, id: FileId) -> PathBuf {
    at.join(format!("objects/{:02x}/{:016x}", id.0 & 0xf, id.0))
}

fn findings(store: &dyn Store) -> Vec<Finding> {
    let mut all = Vec::new();
    store.verify(&mut |finding| all.push(finding)).unwrap();
    all
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    WriteVectored(u64, Vec<Vec<u8>>),
    Read(u64, usize),
    ReadVectored(u64, Vec<usize>),
    SetLen(u64),
    Allocate(u64, u64),
    Sync,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0u64..20_000;
    let bytes = || prop::collection::vec(1u8..=255, 0..300);
    prop_oneof![
        4 => (at.clone(), bytes()).prop_map(|(a, b)| Step::Write(a, b)),
        2 => (at.clone(), prop::collection::vec(bytes(), 0..6))
            .prop_map(|(a, b)| Step::WriteVectored(a, b)),
        4 => (at.clone(), 0usize..3000).prop_map(|(a, n)| Step::Read(a, n)),
        2 => (at.clone(), prop::collection::vec(0usize..500, 0..6))
            .prop_map(|(a, n)| Step::ReadVectored(a, n)),
        1 => at.clone().prop_map(Step::SetLen),
        1 => (at, 0u64..5000).prop_map(|(a, n)| Step::Allocate(a, n)),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ]
}

/// The bytes of `model` from `at` on, at most `n`.
fn part(model: &[u8], at: u64, n: usize) -> &[u8] {
    let from = model.len().min(at as usize);
    &model[from..model.len().min(from + n)]
}

fn write(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if !bytes.is_empty() {
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(bytes);
    }
}

fn behaves_like_a_vector(
    mut reopen: impl FnMut(Option<Box<dyn Store>>) -> Box<dyn Store>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut store = reopen(None);
    let mut object = store.open(ID, true).unwrap();
    let mut model = Vec::new();
    for step in steps {
        match step {
            Step::Write(at, bytes) => {
                object.write_at(ObjectOffset(*at), bytes).unwrap();
                write(&mut model, *at, bytes);
            }
            Step::WriteVectored(at, parts) => {
                let slices: Vec<_> = parts.iter().map(|p| IoSlice::new(p)).collect();
                object
                    .write_vectored_at(ObjectOffset(*at), &slices)
                    .unwrap();
                write(&mut model, *at, &parts.concat());
            }
            Step::Read(at, n) => {
                let mut buf = vec![0xee; *n];
                let got = object.read_at(ObjectOffset(*at), &mut buf).unwrap();
                prop_assert_eq!(&buf[..got], part(&model, *at, *n));
            }
            Step::ReadVectored(at, lens) => {
                let mut parts: Vec<Vec<u8>> = lens.iter().map(|n| vec![0xee; *n]).collect();
                let mut slices: Vec<_> = parts.iter_mut().map(|p| IoSliceMut::new(p)).collect();
                let got = object
                    .read_vectored_at(ObjectOffset(*at), &mut slices)
                    .unwrap();
                let all = parts.concat();
                prop_assert_eq!(&all[..got], part(&model, *at, all.len()));
            }
            Step::SetLen(len) => {
                object.set_len(*len).unwrap();
                model.resize(*len as usize, 0);
            }
            Step::Allocate(at, len) => object.allocate(ObjectOffset(*at), *len).unwrap(),
            Step::Sync => object.sync().unwrap(),
            Step::Reopen => {
                drop(object);
                store = reopen(Some(store));
                object = store.open(ID, false).unwrap();
            }
        }
        prop_assert_eq!(object.len().unwrap(), model.len() as u64);
    }
    prop_assert_eq!(store.list().unwrap(), vec![(ID, model.len() as u64)]);
    prop_assert_eq!(findings(&*store), vec![]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn objects_behave_like_vectors(steps in prop::collection::vec(step(), 1..40)) {
        for records in KINDS {
            let at = place();
            behaves_like_a_vector(
                |old| {
                    drop(old);
                    Box::new(dir(at.path(), records))
                },
                &steps,
            )?;
        }
        behaves_like_a_vector(
            |old| old.unwrap_or_else(|| Box::new(MemoryStore::new().unwrap())),
            &steps,
        )?;
    }
}

#[test]
fn removed_objects_are_gone_but_stay_readable_for_their_holders() {
    let at = place();
    let stores: [Box<dyn Store>; 3] = [
        Box::new(dir(&at.path().join("a"), KINDS[0])),
        Box::new(dir(&at.path().join("b"), KINDS[1])),
        Box::new(MemoryStore::new().unwrap()),
    ];
    for store in stores {
        assert!(matches!(
            store.open(ID, false),
            Err(StoreError::NotFound(ID, _))
        ));
        assert!(matches!(store.remove(ID), Err(StoreError::NotFound(ID, _))));
        let held = store.open(ID, true).unwrap();
        held.write_at(ObjectOffset(0), b"abc").unwrap();
        held.sync().unwrap();
        store.remove(ID).unwrap();
        held.sync().unwrap();
        held.set_len(2).unwrap();
        let mut buf = [0; 9];
        assert_eq!(held.read_at(ObjectOffset(0), &mut buf).unwrap(), 2);
        assert!(matches!(
            store.open(ID, false),
            Err(StoreError::NotFound(ID, _))
        ));
        assert_eq!(store.open(ID, true).unwrap().len().unwrap(), 0);
        store.sync().unwrap();
        assert_eq!(findings(&*store), vec![]);
    }
}

#[test]
fn listing_pages_through_all_objects_once() {
    let at = place();
    let stores: [Box<dyn Store>; 3] = [
        Box::new(dir(&at.path().join("a"), KINDS[0])),
        Box::new(dir(&at.path().join("b"), KINDS[1])),
        Box::new(MemoryStore::new().unwrap()),
    ];
    for store in stores {
        let ids: Vec<u64> = (0..40).chain((1..20).map(|i| i << 8)).collect();
        for id in &ids {
            let object = store.open(FileId(*id), true).unwrap();
            object.set_len(*id).unwrap();
            object.sync().unwrap();
        }
        for limit in [1, 7, 59, 1000] {
            let mut seen: Vec<(FileId, u64)> = Vec::new();
            loop {
                let page = store
                    .list_after(seen.last().map(|(id, _)| *id), limit)
                    .unwrap();
                seen.extend(&page);
                if page.len() < limit {
                    break;
                }
            }
            // Ascending: `check` pages by id and expects each object.
            let expected: Vec<_> = {
                let mut ids = ids.clone();
                ids.sort_unstable();
                ids.iter().map(|id| (FileId(*id), *id)).collect()
            };
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn many_objects_do_not_use_up_descriptors() {
    let at = place();
    let store = dir(at.path(), KINDS[0]);
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(1 << 20) as usize;
    for id in 0..6000 {
        store.open(FileId(id), true).unwrap();
    }
    assert!(open_files() < limit.min(4096 + 500), "{}", open_files());
    assert_eq!(store.list().unwrap().len(), 6000);
}

/// Written objects are synced before they are closed; an object in use stays open.
#[test]
fn written_objects_are_synced_and_closed() {
    let at = place();
    let store = dir(at.path(), KINDS[0]);
    let objects = at.path().join("objects");
    let open_objects = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.filter(|to| to.starts_with(&objects)).count() - 1
    };
    let held = store.open(FileId(9999), true).unwrap();
    for id in 0..100 {
        let object = store.open(FileId(id), true).unwrap();
        object.write_at(ObjectOffset(0), b"byte").unwrap();
    }
    assert_eq!(open_objects(), 101);
    let mut rounds = 0;
    while store.relieve() {
        rounds += 1;
        assert!(rounds < 200);
    }
    // One object remains in each shard of the cache.
    assert!(open_objects() <= 17, "{}", open_objects());
    held.write_at(ObjectOffset(0), b"here").unwrap();
    let mut bytes = [0; 4];
    for id in 0..100 {
        let object = store.open(FileId(id), false).unwrap();
        assert_eq!(object.read_at(ObjectOffset(0), &mut bytes).unwrap(), 4);
        assert_eq!(&bytes, b"byte");
    }
}

#[test]
fn files_are_closed_to_others() {
    let at = place();
    let store = dir(at.path(), KINDS[0]);
    drop(store.open(ID, true).unwrap());
    for name in [
        at.path().join("superblock"),
        at.path().join("lock"),
        object_file(at.path(), ID),
    ] {
        let mode = name.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name:?}");
    }
}

#[test]
fn a_second_opener_learns_who_holds_the_store() {
    let at = place();
    let spec = format!("dir:{}", at.path().display());
    let first = open(&spec, "d1", 0).unwrap();
    let Err(StoreError::InUse { holder, .. }) = open(&spec, "d1", 0) else {
        panic!("opened twice");
    };
    assert_eq!(holder, format!("process {}", std::process::id()));
    // An object that outlives its store keeps the lock.
    let object = first.open(ID, true).unwrap();
    drop(first);
    assert!(matches!(
        open(&spec, "d1", 0),
        Err(StoreError::InUse { .. })
    ));
    drop(object);
    open(&spec, "d1", 0).unwrap();
}

#[test]
fn a_store_serves_its_deployment_and_server_only() {
    let at = place();
    let spec = format!("dir:{}", at.path().display());
    drop(open(&spec, "d1", 3).unwrap());
    for (deployment, server) in [("d2", 3), ("d1", 4)] {
        let Err(error) = open(&spec, deployment, server) else {
            panic!("opened by {deployment} {server}");
        };
        let text = error.to_string();
        assert!(
            text.contains("belongs to server 3 of deployment d1"),
            "{text}"
        );
    }
    assert!(open("dir:", "d1", 3).is_err());
    assert!(open("tape", "d1", 3).is_err());
    assert!(open(&spec, "two words", 3).is_err());
    open(&spec, "d1", 3).unwrap();
}

#[test]
fn a_damaged_or_missing_superblock_is_not_papered_over() {
    let at = place();
    let spec = format!("dir:{}", at.path().display());
    let file = at.path().join("superblock");
    {
        let store = open(&spec, "d1", 0).unwrap();
        store.open(ID, true).unwrap();
    }
    let good = std::fs::read(&file).unwrap();
    for bad in [&good[..20], b"", b"\xff\xfe", &vec![b'x'; 10_000]] {
        std::fs::write(&file, bad).unwrap();
        let Err(error) = open(&spec, "d1", 0) else {
            panic!("opened")
        };
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
    std::fs::remove_file(&file).unwrap();
    let Err(error) = open(&spec, "d1", 0) else {
        panic!("opened")
    };
    assert!(error.to_string().contains("superblock"), "{error}");
    assert!(error.to_string().contains("backup"), "{error}");
    std::fs::write(&file, good).unwrap();
    let store = open(&spec, "d1", 0).unwrap();
    assert_eq!(store.list().unwrap(), vec![(ID, 0)]);
}

/// An object of 3000 synced bytes whose file was then truncated to 1000 from outside.
fn truncated(records: Records) -> (TempDir, DirStore, Arc<dyn Object>) {
    let at = place();
    {
        let store = dir(at.path(), records);
        let object = store.open(ID, true).unwrap();
        object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
        object.sync().unwrap();
        // Unsynced: may be lost in a crash, which is no damage.
        object.write_at(ObjectOffset(3000), &[8; 500]).unwrap();
    }
    let file = OpenOptions::new()
        .write(true)
        .open(object_file(at.path(), ID))
        .unwrap();
    file.set_len(3000).unwrap();
    {
        let store = dir(at.path(), records);
        assert_eq!(findings(&store), vec![]);
        assert_eq!(store.open(ID, false).unwrap().len().unwrap(), 3000);
    }
    file.set_len(1000).unwrap();
    let store = dir(at.path(), records);
    let object = store.open(ID, false).unwrap();
    (at, store, object)
}

#[test]
fn a_truncated_object_is_found_and_never_reads_as_short_or_zero() {
    for records in KINDS {
        let (_at, store, object) = truncated(records);
        let found = findings(&store);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object, Some(ID));
        assert_eq!(
            found[0].problem,
            Problem::Truncated {
                recorded: 3000,
                actual: 1000
            }
        );
        let mut buf = [0; 1000];
        assert_eq!(object.read_at(ObjectOffset(0), &mut buf).unwrap(), 1000);
        assert_eq!(buf, [7; 1000]);
        let damaged = |r: Result<(), StoreError>| matches!(r, Err(StoreError::Damaged { .. }));
        assert!(damaged(object.read_at(ObjectOffset(1), &mut buf).map(drop)));
        assert!(damaged(
            object.read_at(ObjectOffset(2500), &mut buf).map(drop)
        ));
        let mut slices = [IoSliceMut::new(&mut buf)];
        assert!(damaged(
            object
                .read_vectored_at(ObjectOffset(900), &mut slices)
                .map(drop)
        ));
        // Writing beyond the loss would turn it into a hole.
        assert!(damaged(object.write_at(ObjectOffset(5000), &[1])));
        assert!(damaged(object.set_len(4000)));
        assert!(damaged(object.sync()));
        assert!(damaged(object.len().map(drop)));
        assert!(object.mappable().is_none());

        store.accept(ID).unwrap();
        assert_eq!(findings(&store), vec![]);
        assert_eq!(object.len().unwrap(), 1000);
        object.write_at(ObjectOffset(5000), &[1]).unwrap();
        object.sync().unwrap();
    }
}

#[test]
fn a_file_cut_while_in_use_is_noticed_by_reads_and_syncs() {
    for records in KINDS {
        let at = place();
        let store = dir(at.path(), records);
        let object = store.open(ID, true).unwrap();
        object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
        object.sync().unwrap();
        let file = OpenOptions::new()
            .write(true)
            .open(object_file(at.path(), ID))
            .unwrap();
        file.set_len(10).unwrap();
        let mut buf = [0; 20];
        let read = object.read_at(ObjectOffset(0), &mut buf);
        assert!(matches!(read, Err(StoreError::Damaged { .. })));
        assert!(matches!(object.sync(), Err(StoreError::Damaged { .. })));
        assert_eq!(findings(&store).len(), 1);
    }
}

#[test]
fn a_cut_lowers_the_record_and_a_crash_between_leaves_no_damage() {
    for records in KINDS {
        let at = place();
        let store = dir(at.path(), records);
        let object = store.open(ID, true).unwrap();
        object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
        object.sync().unwrap();
        object.set_len(500).unwrap();
        // As after a crash right after the truncation, and one right before it.
        let file = OpenOptions::new()
            .write(true)
            .open(object_file(at.path(), ID))
            .unwrap();
        drop((store, object));
        let store = dir(at.path(), records);
        assert_eq!(findings(&store), vec![]);
        file.set_len(3000).unwrap();
        drop(store);
        let store = dir(at.path(), records);
        assert_eq!(findings(&store), vec![]);
        assert_eq!(store.open(ID, false).unwrap().len().unwrap(), 3000);
    }
}

#[test]
fn a_damaged_record_is_reported_and_can_be_accepted() {
    for records in KINDS {
        let at = place();
        {
            let store = dir(at.path(), records);
            let object = store.open(ID, true).unwrap();
            object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
            object.sync().unwrap();
        }
        let path = object_file(at.path(), ID);
        match records {
            Records::Attribute => {
                let file = File::open(&path).unwrap();
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::fsetxattr(file, "user.penstock", &[1; 100], flags).unwrap();
            }
            Records::Beside => std::fs::write(path.with_extension("record"), b"PSR1").unwrap(),
        }
        let store = dir(at.path(), records);
        let found = findings(&store);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(matches!(found[0].problem, Problem::BadRecord(_)));
        let object = store.open(ID, false).unwrap();
        let mut buf = [0; 3000];
        assert_eq!(object.read_at(ObjectOffset(0), &mut buf).unwrap(), 3000);
        assert!(object.read_at(ObjectOffset(1), &mut buf).is_err());
        assert!(object.write_at(ObjectOffset(0), &[1]).is_err());
        store.accept(ID).unwrap();
        assert_eq!(object.read_at(ObjectOffset(1), &mut buf).unwrap(), 2999);
        object.write_at(ObjectOffset(0), &[1]).unwrap();
        assert_eq!(findings(&store), vec![]);
    }
}

#[test]
fn foreign_and_unreadable_files_are_reported() {
    let at = place();
    let store = dir(at.path(), KINDS[1]);
    let object = store.open(ID, true).unwrap();
    object.write_at(ObjectOffset(0), b"x").unwrap();
    object.sync().unwrap();
    assert_eq!(findings(&store), vec![]);
    let foreign = [
        "notes.txt",
        "objects/zz",
        "objects/0f/core",
        // Right name, wrong subdirectory; upper case; a record without its object.
        "objects/0e/000000000000003f",
        "objects/0f/00000000000000FF",
        "objects/01/0000000000000001.record",
    ];
    for name in foreign {
        std::fs::write(at.path().join(name), b"x").unwrap();
    }
    std::fs::create_dir(at.path().join("objects/02/0000000000000002")).unwrap();
    let mut found: Vec<_> = findings(&store)
        .into_iter()
        .map(|f| {
            let path = Path::new(&f.path).strip_prefix(at.path()).unwrap();
            (path.display().to_string(), f.problem == Problem::Foreign)
        })
        .collect();
    found.sort();
    let mut expected: Vec<_> = foreign.iter().map(|n| (n.to_string(), true)).collect();
    expected.push(("objects/02/0000000000000002".to_owned(), false));
    expected.sort();
    assert_eq!(found, expected);
}

/// Runs `f` in a thread without privileges, so that permissions hold for root too.
fn unprivileged<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            f()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_read_only_directory_is_named_as_the_reason() {
    let at = place();
    std::fs::set_permissions(at.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    for below in ["", "/new"] {
        let spec = format!("dir:{}{below}", at.path().display());
        let error = unprivileged(|| open(&spec, "d1", 0).map(drop)).unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
    }
}

#[test]
fn a_full_device_is_named_as_the_reason() {
    let full = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/full")
        .unwrap();
    let object = Descriptor::new(&full);
    let error = object.write_at(ObjectOffset(0), &[1; 10]).unwrap_err();
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    let error = object
        .write_vectored_at(ObjectOffset(0), &slices)
        .unwrap_err();
    assert!(matches!(error, StoreError::Full(_)), "{error}");
}

/// A small file system, where mounting is allowed.
struct Mounted(TempDir);

impl Mounted {
    fn new(options: &str) -> Option<Mounted> {
        Mounted::of("tmpfs", options, Path::new("tmpfs"))
    }

    fn of(kind: &str, options: &str, what: &Path) -> Option<Mounted> {
        let at = TempDir::new().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", kind, "-o", options])
            .args([what, at.path()])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then(|| Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
        assert!(done.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_full_store_refuses_writes_keeps_data_and_can_be_emptied() {
    let Some(mount) = Mounted::new("size=4m") else {
        return; // Not root: /dev/full above covers the error.
    };
    let store = open(&format!("dir:{}", mount.0.path().display()), "d1", 0).unwrap();
    let object = store.open(ID, true).unwrap();
    object.write_at(ObjectOffset(0), &[9; 1 << 20]).unwrap();
    object.sync().unwrap();
    let write = object.write_at(ObjectOffset(1 << 20), &vec![8; 8 << 20]);
    assert!(matches!(write, Err(StoreError::Full(_))), "{write:?}");
    let allocate = object.allocate(ObjectOffset(0), 64 << 20);
    assert!(matches!(allocate, Err(StoreError::Full(_))), "{allocate:?}");
    let mut buf = vec![0; 1 << 20];
    assert_eq!(object.read_at(ObjectOffset(0), &mut buf).unwrap(), 1 << 20);
    assert!(buf.iter().all(|b| *b == 9));
    let (total, free) = store.space().unwrap();
    assert!(total <= 4 << 20 && free < 1 << 20, "{total} {free}");
    object.set_len(100).unwrap();
    object.write_at(ObjectOffset(0), &[7; 1 << 20]).unwrap();
    assert_eq!(findings(&*store), vec![]);
}

#[test]
fn small_pieces_on_a_full_store_give_the_same_error() {
    let Some(mount) = Mounted::new("size=4m") else {
        return; // Not root: no smaller file system to fill.
    };
    let store = open(&format!("dir:{}", mount.0.path().display()), "d1", 0).unwrap();
    let object = store.open(ID, true).unwrap();
    object.set_len(64 << 20).unwrap(); // A hole: each write needs space.
    let layout = Layout::new(65536, vec![ServerId(0)]).unwrap();
    let tile = Loop::bytes(100).resized(0, 500).unwrap();
    let access = Pattern::new(0, tile, 0, 100 * 100_000).unwrap();
    let mut execution = Execution::new(&layout, ServerIndex(0), &access);
    let data = vec![3; access.len as usize];
    let write = execution.write(&*object, &data, &mut Scratch::new());
    assert!(matches!(write, Err(StoreError::Full(_))), "{write:?}");
    // Earlier writes are there.
    let mut execution = Execution::new(&layout, ServerIndex(0), &access);
    let mut found = vec![0; 1 << 19];
    execution
        .read(&*object, &mut found, &mut Scratch::new())
        .unwrap();
    assert!(found.iter().all(|b| *b == 3));
}

/// On a full device neither writes through mappings nor reads of missing data kill the process.
#[test]
fn mappings_on_full_file_systems_give_errors_and_no_signals() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(12 << 20).unwrap();
    let made = std::process::Command::new("mkfs.ext4")
        .args(["-q", "-O", "^has_journal"])
        .arg(image.path())
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let ext4 = made.then(|| Mounted::of("ext4", "loop", image.path()));
    let places = [ext4.flatten(), Mounted::new("size=4m")];
    for mount in places.iter().flatten() {
        let store = open(&format!("dir:{}", mount.0.path().display()), "d1", 0).unwrap();
        let object = store.open(ID, true).unwrap();
        object.set_len(64 << 20).unwrap();
        object.write_at(ObjectOffset(0), &[5; 100_000]).unwrap();
        // The rest of the space is used by another object.
        let other = store.open(FileId(1), true).unwrap();
        let mut at = 0;
        let full = loop {
            match other.write_at(ObjectOffset(at), &[1; 4096]) {
                Ok(()) => at += 4096,
                Err(e) => break e,
            }
        };
        assert!(matches!(full, StoreError::Full(_)), "{full}");
        let layout = Layout::new(65536, vec![ServerId(0)]).unwrap();
        let tile = Loop::bytes(100).resized(0, 500).unwrap();
        let access = Pattern::new(1 << 20, tile, 0, 100 * 20_000).unwrap();
        let data = vec![3; access.len as usize];
        for passed in [None, object.mappable().map(|m| m.fd())] {
            let passed = passed.as_ref().map(Descriptor::new);
            let object: &dyn Object = match &passed {
                Some(descriptor) => descriptor,
                None => &*object,
            };
            let mut execution = Execution::new(&layout, ServerIndex(0), &access);
            let write = execution.write(object, &data, &mut Scratch::new());
            assert!(matches!(write, Err(StoreError::Full(_))), "{write:?}");
        }
        let (fd, maps) = (object.mappable().unwrap().fd(), crate::Maps::default());
        for _ in 0..5 {
            for at in (0..64 << 20).step_by(20_000) {
                let mut some = [9; 100];
                let n = crate::Mapped::new(&fd, &maps)
                    .read_at(ObjectOffset(at), &mut some)
                    .unwrap();
                let expected = if at < 100_000 { 5 } else { 0 };
                assert!(at >= 1 << 20 || some[..n] == [expected; 100], "{at}");
            }
        }
        // Freed space is available to others: reading took none of it.
        other.set_len(at - 8192).unwrap();
        other.write_at(ObjectOffset(at - 8192), &[1; 4096]).unwrap();
    }
}

#[test]
fn a_store_on_a_read_only_file_system_is_refused() {
    let Some(mount) = Mounted::new("size=4m") else {
        return; // Not root: the directory without permission above covers the error.
    };
    let spec = format!("dir:{}", mount.0.path().display());
    drop(open(&spec, "d1", 0).unwrap());
    let status = std::process::Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(mount.0.path())
        .status();
    assert!(status.is_ok_and(|s| s.success()));
    let error = open(&spec, "d1", 0).map(drop).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
}

#[test]
fn concurrent_opens_share_one_object() {
    let at = place();
    let store = dir(at.path(), KINDS[0]);
    let objects: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| store.open(ID, true).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(objects.iter().all(|o| Arc::ptr_eq(o, &objects[0])));
}

fn lost<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Lost { .. }))
}

#[test]
fn an_object_that_is_gone_is_an_error_until_it_is_made_anew_or_accepted() {
    for records in KINDS {
        let at = place();
        let other = FileId(ID.0 + 16);
        {
            let store = dir(at.path(), records);
            for id in [ID, other] {
                let object = store.open(id, true).unwrap();
                object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
            }
            // Nobody syncs them.
            assert!(store.sync_unsynced(&mut |_| true).unwrap());
            assert!(!store.sync_unsynced(&mut |_| true).unwrap());
        }
        for id in [ID, other] {
            std::fs::remove_file(object_file(at.path(), id)).unwrap();
        }
        let store = dir(at.path(), records);
        assert!(lost(store.open(ID, false)) && lost(store.open(ID, true)));
        let found: Vec<_> = findings(&store)
            .into_iter()
            .filter_map(|f| f.object)
            .collect();
        assert_eq!(found, [ID, other]);
        let object = store.renew(ID).unwrap();
        assert_eq!(object.len().unwrap(), 0);
        store.accept(other).unwrap();
        assert_eq!(findings(&store), vec![]);
        drop((object, store));
        let store = dir(at.path(), records);
        assert_eq!(findings(&store), vec![]);
        store.remove(ID).unwrap();
        assert!(matches!(
            store.open(ID, false),
            Err(StoreError::NotFound(..))
        ));
    }
}

#[test]
fn a_file_that_goes_while_its_object_is_open_is_reported_and_fails_the_sync() {
    for records in KINDS {
        let at = place();
        let store = dir(at.path(), records);
        let object = store.open(ID, true).unwrap();
        object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
        object.sync().unwrap();
        assert_eq!(findings(&store), vec![]);
        std::fs::remove_file(object_file(at.path(), ID)).unwrap();
        // The object is still open, here and in the cache. A separate record is left alone.
        let mut found = findings(&store);
        found.retain(|f| f.problem != Problem::Foreign);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object, Some(ID));
        assert!(matches!(found[0].problem, Problem::Missing(_)), "{found:?}");
        object.write_at(ObjectOffset(0), &[8; 10]).unwrap();
        assert!(lost(object.sync()));
        // The next server finds what was accepted.
        store.accept(ID).unwrap();
        assert_eq!(findings(&store), vec![]);
        drop((object, store));
        let store = dir(at.path(), records);
        assert_eq!(findings(&store), vec![]);
        assert_eq!(store.open(ID, false).unwrap().len().unwrap(), 0);
        store.remove(ID).unwrap();
        assert_eq!(findings(&store), vec![]);
    }
}

#[test]
fn a_file_in_the_place_of_an_object_is_no_object() {
    let at = place();
    {
        let store = dir(at.path(), Records::Attribute);
        let object = store.open(ID, true).unwrap();
        object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
        object.sync().unwrap();
    }
    std::fs::remove_file(object_file(at.path(), ID)).unwrap();
    std::fs::write(object_file(at.path(), ID), b"").unwrap();
    let store = dir(at.path(), Records::Attribute);
    assert_eq!(findings(&store).len(), 1);
    let mut buf = [0; 9];
    let read = store
        .open(ID, false)
        .unwrap()
        .read_at(ObjectOffset(0), &mut buf);
    assert!(matches!(read, Err(StoreError::Damaged { .. })));
}

#[test]
fn a_new_store_knows_that_it_lost_what_was_before() {
    let at = place();
    let path = at.path();
    let new = FileId(100);
    {
        let store = DirStore::open(path, "d1", 3).unwrap();
        store.open(ID, true).unwrap().sync().unwrap();
        // An older copy, or another disk: its contents cannot be trusted.
        drop(store);
        let store = DirStore::renew(path, "d1", 3, 100).unwrap();
        assert!(lost(store.open(ID, false)));
        assert!(lost(store.open(FileId(5), true)));
        store.open(new, true).unwrap();
        assert_eq!(findings(&store).len(), 1);
    }
    let store = DirStore::open(path, "d1", 3).unwrap();
    assert_eq!(store.lost_below(), 100);
    assert!(lost(store.open(FileId(5), false)));
    store.open(new, false).unwrap();
    store.accept(ID).unwrap();
    store.open(ID, false).unwrap();
    store.renew(FileId(5)).unwrap();
    drop(store);
    let store = DirStore::open(path, "d1", 3).unwrap();
    store.open(ID, false).unwrap();
    store.open(FileId(5), false).unwrap();
}

#[test]
fn an_object_cut_behind_the_server_is_noticed_although_it_was_never_synced() {
    for records in KINDS {
        for by_sync in [false, true] {
            let at = place();
            let store = dir(at.path(), records);
            let object = store.open(ID, true).unwrap();
            object.write_at(ObjectOffset(0), &[7; 3000]).unwrap();
            let file = OpenOptions::new()
                .write(true)
                .open(object_file(at.path(), ID))
                .unwrap();
            file.set_len(1000).unwrap();
            let noticed = if by_sync {
                object.sync()
            } else {
                object.read_at(ObjectOffset(500), &mut [0; 2000]).map(drop)
            };
            assert!(matches!(noticed, Err(StoreError::Damaged { .. })));
            // Later writes do not hide it, nor does a restart.
            assert!(object.write_at(ObjectOffset(4000), &[1]).is_err());
            assert_eq!(findings(&store).len(), 1);
            drop((object, store));
            assert_eq!(findings(&dir(at.path(), records)).len(), 1);
        }
    }
}
