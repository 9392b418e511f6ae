//! A store with a fast tier against a plain table of bytes, over restarts and damage.
use super::*;
use crate::open;
use penstock_base::Random;
use penstock_layout::ObjectOffset;
use std::path::Path;
use std::sync::Weak;

fn spec(dir: &Path) -> String {
    let (fast, slow) = (dir.join("fast"), dir.join("slow"));
    format!("fast:{},queue=1MiB;dir:{}", fast.display(), slow.display())
}

fn tiered(dir: &Path, mode: Mode) -> Box<dyn Store> {
    let store = open(&spec(dir), "d", 0).unwrap();
    store.fast().unwrap().set_mode(mode);
    store
}

fn status(store: &dyn Store) -> FastStatus {
    store.fast().unwrap().status()
}

fn drained(store: &dyn Store) {
    store.fast().unwrap().drain();
    for _ in 0..2000 {
        if status(store).waiting == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not come home: {:?}", status(store));
}

fn read(object: &dyn Object) -> Vec<u8> {
    let len = object.len().unwrap() as usize;
    let mut bytes = vec![0xee; len + 9];
    assert_eq!(object.read_at(ObjectOffset(0), &mut bytes).unwrap(), len);
    bytes.truncate(len);
    bytes
}

/// One random change of an object and of what it should be.
fn change(r: &mut Random, object: &dyn Object, model: &mut Vec<u8>) {
    let limit = 300_000;
    match r.below(12) {
        0 => {
            let len = r.below(limit);
            object.set_len(len).unwrap();
            model.resize(len as usize, 0);
        }
        1 => {
            let (len, end) = (r.below(limit), r.below(limit));
            let short = object.cut(len, end).unwrap();
            assert_eq!(short, model.len() as u64 <= end);
            if short {
                model.resize(len as usize, 0);
            }
        }
        2 => object.sync().unwrap(),
        _ => {
            let at = r.below(limit);
            let len = match r.below(4) {
                0 => r.from_to(1, 150_000),
                _ => r.from_to(1, 3000),
            };
            let byte = r.from_to(1, 255) as u8;
            let bytes: Vec<u8> = (0..len).map(|i| byte ^ (i % 7) as u8).collect();
            object.write_at(ObjectOffset(at), &bytes).unwrap();
            let end = (at + len) as usize;
            if model.len() < end {
                model.resize(end, 0);
            }
            model[at as usize..end].copy_from_slice(&bytes);
        }
    }
}

#[test]
fn bytes_are_right_over_restarts_and_while_they_come_home() {
    for seed in 0..24 {
        let mut r = Random::for_purpose(seed, 1);
        let dir = tempfile::tempdir().unwrap();
        let mut models = vec![Vec::new(); 3];
        // A removed object's id does not come back.
        let mut ids = [FileId(1), FileId(2), FileId(3)];
        for life in 0..4 {
            let mode = [Mode::On, Mode::Auto, Mode::On, Mode::Off][r.index(4)];
            let store = tiered(dir.path(), mode);
            for step in 0..60 {
                let id = r.index(3);
                let object = store.open(ids[id], true).unwrap();
                change(&mut r, &*object, &mut models[id]);
                if r.one_in(10) {
                    store.fast().unwrap().drain();
                }
                assert_eq!(
                    read(&*object),
                    models[id],
                    "seed {seed} life {life} step {step}"
                );
                if r.one_in(20) {
                    // Those who have it open keep it.
                    store.remove(ids[id]).unwrap();
                    assert_eq!(read(&*object), models[id]);
                    object.write_at(ObjectOffset(3), b"x").unwrap();
                    assert_eq!(read(&*object)[3], b'x');
                    models[id].clear();
                    ids[id] = FileId(ids[id].0 + 3);
                }
            }
            for (id, model) in models.iter().enumerate() {
                let object = store.open(ids[id], true).unwrap();
                assert_eq!(&read(&*object), model, "seed {seed} life {life}");
                let lens = store.list().unwrap();
                let listed = lens.iter().find(|(f, _)| *f == ids[id]);
                assert_eq!(listed.unwrap().1, model.len() as u64);
            }
            let mut findings = Vec::new();
            store.verify(&mut |f| findings.push(f)).unwrap();
            // A manifest that was not written since a removal; a check compares with names.
            findings.retain(|f| f.object.is_some_and(|id| ids.contains(&id)));
            assert!(findings.is_empty(), "{findings:?}");
            // Killed, or stopped.
            if r.one_in(2) {
                store.stop();
            }
        }
        let store = tiered(dir.path(), Mode::Auto);
        drained(&*store);
        store.stop();
        drop(store);
        // Nothing is in the tier: the store can do without.
        let store = open(
            &format!("dir:{}", dir.path().join("slow").display()),
            "d",
            0,
        )
        .unwrap();
        for (id, model) in models.iter().enumerate() {
            let object = store.open(ids[id], true).unwrap();
            assert_eq!(&read(&*object), model, "seed {seed} alone");
        }
    }
}

#[test]
fn a_store_is_not_opened_without_its_tier_or_with_another() {
    let dir = tempfile::tempdir().unwrap();
    let slow = format!("dir:{}", dir.path().join("slow").display());
    let refused = |spec: &str, part: &str| {
        let e = open(spec, "d", 0).err().unwrap().to_string();
        assert!(e.contains(part), "{e}");
    };
    let store = tiered(dir.path(), Mode::On);
    let object = store.open(FileId(1), true).unwrap();
    let busy = store_busy(&*store);
    object.write_at(ObjectOffset(5), b"here alone").unwrap();
    refused(&spec(dir.path()), "in use");
    store.stop();
    drop((object, busy, store));
    refused(&slow, "fast tier");
    let other = format!("fast:{};{slow}", dir.path().join("other").display());
    refused(&other, "was at");
    // The device is not there.
    let (fast, away) = (dir.path().join("fast"), dir.path().join("away"));
    std::fs::rename(&fast, &away).unwrap();
    refused(&spec(dir.path()), "there is no fast tier");
    std::fs::create_dir(&fast).unwrap();
    refused(&spec(dir.path()), "there is no fast tier");
    std::fs::remove_dir_all(&fast).unwrap();
    std::fs::rename(&away, &fast).unwrap();
    // A tier that holds bytes, before a store that is not its own.
    let empty = format!(
        "fast:{};dir:{}",
        fast.display(),
        dir.path().join("new").display()
    );
    refused(&empty, "another store");
    let store = tiered(dir.path(), Mode::Off);
    assert_eq!(
        &read(&*store.open(FileId(1), false).unwrap())[5..],
        b"here alone"
    );
}

#[test]
fn an_older_copy_of_a_tier_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, copy) = (dir.path().join("fast"), dir.path().join("copy"));
    let write = |byte: u8| {
        let store = tiered(dir.path(), Mode::On);
        let _busy = store_busy(&*store);
        let object = store.open(FileId(1), true).unwrap();
        object.write_at(ObjectOffset(0), &[byte; 100]).unwrap();
    };
    write(1);
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&fast).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    write(2);
    std::fs::remove_dir_all(&fast).unwrap();
    std::fs::rename(&copy, &fast).unwrap();
    let e = open(&spec(dir.path()), "d", 0).err().unwrap().to_string();
    assert!(e.contains("older copy"), "{e}");
}

/// The only segment with records, and its bytes.
fn segment(dir: &Path) -> (PathBuf, Vec<u8>) {
    let paths = std::fs::read_dir(dir.join("fast")).unwrap();
    let mut paths: Vec<_> = paths.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| {
        p.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("segment")
    });
    paths.retain(|p| std::fs::metadata(p).unwrap().len() > 64);
    assert_eq!(paths.len(), 1);
    let bytes = std::fs::read(&paths[0]).unwrap();
    (paths.remove(0), bytes)
}

/// Every byte of a log is flipped or cut, and what is read is what was written or an error.
#[test]
fn a_damaged_log_returns_no_wrong_byte() {
    let dir = tempfile::tempdir().unwrap();
    let store = tiered(dir.path(), Mode::On);
    let object = store.open(FileId(1), true).unwrap();
    store.fast().unwrap().set_mode(Mode::Off);
    object.write_at(ObjectOffset(0), &[1; 60]).unwrap();
    object.sync().unwrap();
    store.fast().unwrap().set_mode(Mode::On);
    // Nothing comes home during the test.
    let _busy = store_busy(&*store);
    for (at, byte) in [(0u64, 2u8), (20, 3), (45, 4)] {
        object.write_at(ObjectOffset(at), &[byte; 13]).unwrap();
    }
    object.sync().unwrap();
    let good = read(&*object);
    drop(object);
    drop(store);
    let keep = tempfile::tempdir().unwrap();
    copy(dir.path(), keep.path());
    let (_, bytes) = segment(dir.path());
    let mut errors = 0;
    for at in (0..bytes.len()).step_by(11) {
        for cut in [false, true] {
            std::fs::remove_dir_all(dir.path().join("fast")).unwrap();
            std::fs::remove_dir_all(dir.path().join("slow")).unwrap();
            copy(keep.path(), dir.path());
            let (path, mut bytes) = segment(dir.path());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << (at % 8);
            }
            std::fs::write(&path, &bytes).unwrap();
            let store = tiered(dir.path(), Mode::Off);
            let _busy = store_busy(&*store);
            let object = store.open(FileId(1), false).unwrap();
            let mut found = [0xee; 60];
            let mut findings = 0;
            store.verify(&mut |_| findings += 1).unwrap();
            match object.read_at(ObjectOffset(0), &mut found) {
                Ok(n) if !cut => {
                    assert_eq!(&found[..n], good, "byte {at}");
                    assert_eq!(findings, 0, "byte {at}");
                }
                // What is cut off is older, never anything else.
                Ok(n) => assert!(found[..n].iter().zip(&good).all(|(a, b)| a == b || *a == 1)),
                Err(e) => {
                    errors += 1;
                    assert!(e.to_string().contains("damaged"), "{e}");
                    assert_eq!(findings, 1, "byte {at}");
                    store.accept(FileId(1)).unwrap();
                    assert_eq!(object.read_at(ObjectOffset(0), &mut found).unwrap(), 60);
                    store.verify(&mut |f| panic!("{f:?}")).unwrap();
                }
            }
        }
    }
    assert!(errors > 5, "{errors}");
}

/// As if somebody used the slow store all the time.
fn store_busy(store: &dyn Store) -> impl Drop + use<> {
    struct Undrained(Weak<Fast>);
    impl Drop for Undrained {
        fn drop(&mut self) {
            if let Some(fast) = self.0.upgrade() {
                fast.busy.fetch_sub(1, SeqCst);
            }
        }
    }
    let fast = TESTED.with(|tested| tested.borrow().get(&status(store).path).cloned());
    let fast = fast.unwrap();
    fast.upgrade().unwrap().busy.fetch_add(1, SeqCst);
    Undrained(fast)
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir_all(&to).unwrap();
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

#[test]
fn several_writers_and_the_way_home_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = tiered(dir.path(), Mode::On);
    let store = &*store;
    std::thread::scope(|s| {
        for t in 0..4u64 {
            s.spawn(move || {
                let mut r = Random::for_purpose(t, 3);
                let mut model = vec![0u8; 4000];
                for _ in 0..400 {
                    let object = store.open(FileId(7), true).unwrap();
                    // Each has every fourth block of 100 bytes.
                    let block = r.below(40);
                    let at = (block * 4 + t) * 100;
                    let byte = r.from_to(1, 255) as u8;
                    object.write_at(ObjectOffset(at), &[byte; 100]).unwrap();
                    model[block as usize * 100..][..100].fill(byte);
                    let block = r.below(40);
                    let mut found = [0; 100];
                    let at = (block * 4 + t) * 100;
                    let n = object.read_at(ObjectOffset(at), &mut found).unwrap();
                    let own = &model[block as usize * 100..][..100];
                    assert_eq!(&found[..n], &own[..n]);
                    assert!(own[n..].iter().all(|b| *b == 0));
                    if r.one_in(15) {
                        store.fast().unwrap().drain();
                    }
                    if r.one_in(25) {
                        object.sync().unwrap();
                    }
                }
            });
        }
    });
    drained(store);
    assert!(status(store).home > 0);
}

#[test]
fn a_full_log_lets_writes_past_and_gets_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = tiered(dir.path(), Mode::On);
    let object = store.open(FileId(1), true).unwrap();
    for round in 1..5u8 {
        let busy = store_busy(&*store);
        for at in 0..40u64 {
            object
                .write_at(ObjectOffset(at * 65536), &vec![round; 65536])
                .unwrap();
        }
        drop(busy);
        let s = status(&*store);
        assert!(s.log <= s.limit + (300 << 10), "{s:?}");
        assert!(s.refused > 0);
        assert!(read(&*object).iter().all(|b| *b == round));
        drained(&*store);
        assert!(read(&*object).iter().all(|b| *b == round));
    }
}

#[test]
fn a_suspect_log_stays_for_an_object_that_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let store = tiered(dir.path(), Mode::Off);
    let busy = store_busy(&*store);
    let object = store.open(FileId(1), true).unwrap();
    object.write_at(ObjectOffset(0), &[1; 9000]).unwrap();
    object.sync().unwrap();
    store.fast().unwrap().set_mode(Mode::On);
    object.write_at(ObjectOffset(0), b"kept").unwrap();
    TESTED.with(|tested| {
        let tested = tested.borrow();
        let fast = tested[&status(&*store).path].upgrade().unwrap();
        fast.fail("a sync failed".to_owned());
    });
    drop((object, busy, store));
    // Somebody cuts the object behind it.
    let path = dir.path().join("slow/objects/01/0000000000000001");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(5000).unwrap();
    let store = tiered(dir.path(), Mode::Off);
    assert_eq!(status(&*store).waiting, 4);
    store.accept(FileId(1)).unwrap();
    let object = store.open(FileId(1), false).unwrap();
    assert_eq!(&read(&*object)[..5], b"kept\x01");
    drained(&*store);
    assert_eq!(&read(&*object)[..5], b"kept\x01");
}

#[test]
fn a_suspect_log_comes_home_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = tiered(dir.path(), Mode::On);
    let object = store.open(FileId(1), true).unwrap();
    let _busy = store_busy(&*store);
    object.write_at(ObjectOffset(0), b"kept").unwrap();
    object.sync().unwrap();
    let first = store.incarnation();
    TESTED.with(|tested| {
        let tested = tested.borrow();
        let fast = tested[&status(&*store).path].upgrade().unwrap();
        fast.fail("a sync failed".to_owned());
    });
    // Nothing more of it is believed.
    assert!(object.sync().is_err());
    assert!(object.write_at(ObjectOffset(1), b"x").is_err());
    object.write_at(ObjectOffset(100), b"past it").unwrap();
    assert_eq!(&read(&*object)[..4], b"kept");
    assert!(status(&*store).problem.contains("a sync failed"));
    drop((object, store));
    let store = tiered(dir.path(), Mode::Off);
    assert_ne!(store.incarnation(), first);
    assert_eq!(status(&*store).waiting, 0);
    let object = store.open(FileId(1), false).unwrap();
    assert_eq!(&read(&*object)[..4], b"kept");
    assert_eq!(&read(&*object)[100..], b"past it");
    object.sync().unwrap();
}
