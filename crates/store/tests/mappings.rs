//! Stores and loads through mappings while an object grows, is truncated, is removed, has holes, or its file system is
//! full. No bytes are lost, none reappear, and no process is killed by a signal.
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{FileId, Layout, ObjectOffset, ServerId, ServerIndex};
use penstock_store::{Descriptor, Execution, Mappable, Mapped, Maps, Object, Scratch, Store, open};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use tempfile::TempDir;

/// Names the directory of the files for the second process of a test.
const FILES: &str = "PENSTOCK_TEST_FILES";
/// Pieces of one writer, their bytes, and number of writers with interleaved pieces from [`FROM`] on.
const PIECES: u64 = 50;
const LEN: u64 = 12;
const WRITERS: u64 = 3;
const FROM: u64 = 16;

fn on_disk() -> (TempDir, Box<dyn Store>) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = open(&format!("dir:{}", dir.path().display()), "d", 0).unwrap();
    (dir, store)
}

fn layout() -> Layout {
    Layout::new(1 << 16, vec![ServerId(0)]).unwrap()
}

/// Writes all pieces of one writer, through a mapping where supported.
fn write_pieces(object: &dyn Object, writer: u64) {
    let tile = Loop::bytes(LEN).resized(0, (WRITERS * LEN) as i64).unwrap();
    let from = (FROM + writer * LEN) as i64;
    let pattern = Pattern::new(from, tile, 0, PIECES * LEN).unwrap();
    let bytes = [writer as u8 + 1; (PIECES * LEN) as usize];
    let mut work = Execution::new(&layout(), ServerIndex(0), &pattern);
    let n = work.write(object, &bytes, &mut Scratch::new()).unwrap();
    assert_eq!(n, bytes.len());
}

/// Checks that all pieces of the first `writers` are there.
fn check_pieces(object: &dyn Object, writers: u64, what: &str) {
    let mut all = vec![0; (WRITERS * PIECES * LEN) as usize];
    object.read_at(ObjectOffset(FROM), &mut all).unwrap();
    for (at, byte) in all.iter().enumerate() {
        let writer = at as u64 / LEN % WRITERS;
        let expected = if writer < writers { writer + 1 } else { 0 };
        assert_eq!(u64::from(*byte), expected, "{what}: byte {at}");
    }
}

/// However an object is extended concurrently with writers of small pieces, all their bytes stay.
#[test]
fn growth_of_any_kind_takes_no_piece_with_it() {
    type Grow = fn(&dyn Object);
    let ways: [(&str, Grow); 4] = [
        ("a write far behind", |object| {
            object.write_at(ObjectOffset(30_000), b"far").unwrap();
        }),
        ("a hole at the end", |object| {
            object.set_len(30_000).unwrap()
        }),
        ("one block at the end", |object| {
            if !object.extend(30_000).unwrap() {
                object.set_len(30_000).unwrap();
            }
        }),
        ("space reserved, then a byte", |object| {
            object.allocate(ObjectOffset(0), 60_000).unwrap();
            object.write_at(ObjectOffset(29_999), b"x").unwrap();
        }),
    ];
    let (_dir, disk) = on_disk();
    for store in [disk, open("memory", "d", 0).unwrap()] {
        for file in 0..1000 {
            let (way, grow) = ways[file as usize % ways.len()];
            let object = store.open(FileId(file + 1), true).unwrap();
            let start = Barrier::new(3);
            std::thread::scope(|scope| {
                for writer in 0..2 {
                    let (object, start) = (&object, &start);
                    scope.spawn(move || {
                        start.wait();
                        write_pieces(&**object, writer);
                    });
                }
                start.wait();
                grow(&*object);
            });
            check_pieces(&*object, 2, &format!("{}, {way}", store.describe()));
            store.remove(FileId(file + 1)).unwrap();
        }
    }
}

/// What was stored through a mapping during a truncation is part of the object or gone; it does not reappear when the
/// object grows.
#[test]
fn what_is_cut_off_does_not_come_back() {
    let (_dir, disk) = on_disk();
    for store in [open("memory", "d", 0).unwrap(), disk] {
        let object = store.open(FileId(1), true).unwrap();
        for round in 0..1000 {
            object.set_len(0).unwrap();
            object.write_at(ObjectOffset(0), &[9; 3000]).unwrap();
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                let (object, start) = (&object, &start);
                scope.spawn(move || {
                    start.wait();
                    write_pieces(&**object, 0);
                });
                start.wait();
                for _ in 0..8 {
                    object.set_len(10).unwrap();
                }
            });
            let len = object.len().unwrap();
            object.set_len(4096).unwrap();
            let mut rest = vec![1; 4096 - len as usize];
            assert_eq!(
                object.read_at(ObjectOffset(len), &mut rest).unwrap(),
                rest.len()
            );
            let back = rest.iter().filter(|byte| **byte != 0).count();
            assert_eq!(back, 0, "{}, round {round}, cut to {len}", store.describe());
        }
    }
}

/// On a file system in memory, reading a hole through a mapping would allocate memory.
#[test]
fn reading_holes_takes_no_space() {
    const END: u64 = 32 << 20;
    let store = open("memory", "d", 0).unwrap();
    let object = store.open(FileId(1), true).unwrap();
    object.set_len(END).unwrap();
    object.write_at(ObjectOffset(5 << 20), &[7; 200]).unwrap();
    let fd = object.mappable().unwrap().fd();
    let maps = Maps::default();
    let mapped = Mapped::new(&fd, &maps);
    let layout = layout();
    let tile = Loop::bytes(100).resized(0, 1000).unwrap();
    let access = Pattern::new(0, tile, 0, END / 10 - 100).unwrap();
    let mut bytes = vec![1; access.len as usize];
    for round in 0..4 {
        let mut work = Execution::new(&layout, ServerIndex(0), &access);
        let mut target = penstock_datatype::Target::from_slice(&mut bytes);
        while work
            .read_into(&mapped, &mut target, 0, 1 << 20, &mut Scratch::new())
            .unwrap()
            > 0
        {}
        // 5 MiB is 880 bytes into a tile, and the 200 bytes there reach 80 into the next.
        let data = bytes.iter().filter(|byte| **byte == 7).count();
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert_eq!((data, zeros), (80, bytes.len() - 80));
        for at in (0..END - 100).step_by(30_011) {
            let mut some = [1; 100];
            assert_eq!(mapped.read_at(ObjectOffset(at), &mut some).unwrap(), 100);
        }
        let taken = rustix::fs::fstat(fd).unwrap().st_blocks * 512;
        assert!(
            taken <= 64 << 10,
            "round {round}: {taken} B for 200 B of data"
        );
    }
    // Allocated parts are mapped as before, also where there was a hole.
    object.write_at(ObjectOffset(0), &[8; 200_000]).unwrap();
    for _ in 0..3 {
        let mut some = [1; 5000];
        assert_eq!(mapped.read_at(ObjectOffset(100), &mut some).unwrap(), 5000);
        assert_eq!(some, [8; 5000]);
        assert!(mapped.view(ObjectOffset(100), 5000, 10).is_some());
    }
}

/// Two processes with separate mappings extend files together.
#[test]
fn processes_that_grow_an_object_together_lose_nothing() {
    const FILES_WRITTEN: u64 = 400;
    let path = |dir: &Path, file: u64| dir.join(file.to_string());
    if let Ok(dir) = std::env::var(FILES) {
        // The other process: a file for each byte that it receives, and one byte back.
        let mut turn = [0];
        for file in 0..FILES_WRITTEN {
            std::io::stdin().read_exact(&mut turn).unwrap();
            let file = File::options()
                .read(true)
                .write(true)
                .open(path(dir.as_ref(), file))
                .unwrap();
            write_pieces(&Descriptor::new(&file), 1);
            std::io::stderr().write_all(&turn).unwrap();
        }
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "mappings::processes_that_grow_an_object_together_lose_nothing",
            "--nocapture",
        ])
        .env(FILES, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut ask, mut told) = (other.stdin.take().unwrap(), other.stderr.take().unwrap());
    for number in 0..FILES_WRITTEN {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path(dir.path(), number))
            .unwrap();
        ask.write_all(b".").unwrap();
        write_pieces(&Descriptor::new(&file), 0);
        let mut done = [0];
        told.read_exact(&mut done).unwrap();
        assert_eq!(&done, b".", "the other process has a complaint");
        check_pieces(&Descriptor::new(&file), 2, &format!("file {number}"));
    }
    assert!(other.wait().unwrap().success());
}

/// A removed object is read and written through mappings as before, and its space is freed after that.
#[test]
fn a_removed_object_stays_whole_for_those_who_map_it() {
    let (dir, store) = on_disk();
    let object = store.open(FileId(1), true).unwrap();
    write_pieces(&*object, 0);
    let fd = object
        .mappable()
        .unwrap()
        .fd()
        .try_clone_to_owned()
        .unwrap();
    let (passed, maps) = (Descriptor::new(&fd), Maps::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                store.open(FileId(1), true).unwrap();
                store.remove(FileId(1)).unwrap();
            }
        });
        for _ in 0..200 {
            write_pieces(&passed, 1);
            let mut some = [0; LEN as usize];
            let mapped = Mapped::new(&fd, &maps);
            assert_eq!(
                mapped.read_at(ObjectOffset(FROM), &mut some).unwrap(),
                some.len()
            );
            assert_eq!(some, [1; LEN as usize]);
        }
    });
    check_pieces(&passed, 2, "removed");
    drop(object);
    drop(store);
    let left = walk(dir.path());
    assert_eq!(left, 0, "{left} objects left");
}

/// Files under `objects`.
fn walk(dir: &Path) -> usize {
    let shards = std::fs::read_dir(dir.join("objects")).unwrap();
    shards
        .map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count())
        .sum()
}
