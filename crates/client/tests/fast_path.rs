//! The fast path gives the same results as the general one, or leaves the access to it.
use crate::common::{Cluster, Plan, create, options};
use penstock_client::{Client, File, Form, Identity, LockMode};
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::ServerId;
use penstock_wire::Role;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Rounds after which large reads come out of mappings.
const ROUNDS: usize = 6;

fn write(file: &File, at: u64, bytes: &[u8]) {
    let access = Pattern::contiguous(at as i64, bytes.len() as u64);
    let n = file
        .write(&access, Form::Shortcut, &mut Source::from_slice(bytes))
        .unwrap();
    assert_eq!(n, bytes.len() as u64);
}

/// Performs an access on either path.
fn read(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let access = Pattern::contiguous(at as i64, len as u64);
    let n = file
        .read(&access, Form::Shortcut, &mut Target::from_slice(&mut bytes))
        .unwrap();
    bytes.truncate(n as usize);
    bytes
}

/// Performs an access on the fast path.
fn lean(file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    file.read_fast_path(at, &mut bytes).then_some(bytes)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn ranges_of_all_kinds_are_moved_whole() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    for (unit, servers) in [(1000, 3), (4096, 1), (4096, 4), (65_536, 2)] {
        let name = format!("/ranges-{unit}-{servers}");
        let file = client.open(&name, &create(unit, servers)).unwrap();
        let mut model = noise(600_000, unit);
        write(&file, 0, &model);
        let ranges = [
            (0, 1),
            (unit - 1, 2),
            (unit, unit as usize),
            (3 * unit + 17, 2 * unit as usize),
            (5, 59_000),
            (47_008, 47_008),
            (599_999, 1),
        ];
        for round in 0..ROUNDS {
            for (k, (at, len)) in ranges.into_iter().enumerate() {
                let range = at as usize..at as usize + len;
                assert!(
                    lean(&file, at, len).unwrap() == model[range.clone()],
                    "{name} {at} {len}"
                );
                let bytes = noise(len, (round * 10 + k) as u64);
                assert!(file.write_fast_path(at, &bytes));
                model[range].copy_from_slice(&bytes);
            }
            // By requests, past the end.
            let whole = Pattern::contiguous(0, 700_000);
            let mut got = vec![0; 700_000];
            let n = file
                .read(&whole, Form::Structured, &mut Target::from_slice(&mut got))
                .unwrap();
            assert_eq!(n, 600_000);
            assert!(got[..600_000] == model, "{name}");
        }
        let stats = file.stats();
        let lean = (ROUNDS * ranges.len()) as u64;
        assert_eq!(stats.shortcut.operations, 1 + 2 * lean);
        let bytes: usize = ROUNDS * ranges.iter().map(|r| r.1).sum::<usize>();
        assert_eq!(stats.shortcut.bytes_read, bytes as u64);
        assert_eq!(stats.shortcut.bytes_written, (bytes + 600_000) as u64);
    }
}

#[test]
fn what_others_append_is_read_at_once_and_the_end_is_the_end() {
    let cluster = Cluster::start(Plan::default());
    let (here, there) = (cluster.client(), cluster.client());
    let mine = here.open("/grows", &create(4096, 3)).unwrap();
    let theirs = there.open("/grows", &create(4096, 3)).unwrap();
    assert_eq!(lean(&mine, 0, 10), None);
    assert!(read(&mine, 0, 10).is_empty());
    let bytes = noise(50_000, 3);
    let mut end = 0;
    for step in [1, 4095, 1, 8000, 3, 20_000, 17_900] {
        write(&theirs, end as u64, &bytes[end..end + step]);
        end += step;
        assert!(lean(&mine, 0, end).unwrap() == bytes[..end], "{end}");
        assert_eq!(lean(&mine, 0, end + 1), None);
        assert!(read(&mine, 0, end + 100) == bytes[..end], "{end}");
    }
}

#[test]
fn objects_that_end_in_the_middle_of_a_file_read_as_zeros() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    let file = client.open("/holes", &create(4096, 4)).unwrap();
    // Server 1 has nothing, server 2 ends within its unit, and the file ends at server 3.
    let mut model = vec![0; 4 * 4096];
    for (at, len) in [(0, 4096), (8192, 100), (12_288, 4096)] {
        let bytes = noise(len, at as u64);
        write(&file, at as u64, &bytes);
        model[at..at + len].copy_from_slice(&bytes);
    }
    for _ in 0..ROUNDS {
        assert!(lean(&file, 0, 4096).unwrap() == model[..4096]);
        assert_eq!(lean(&file, 0, 4097), None);
        assert_eq!(lean(&file, 8192, 101), None);
        assert!(read(&file, 0, 20_000) == model);
        assert!(read(&file, 4000, 9000) == model[4000..13_000]);
    }
}

/// After a truncation nobody reads bytes from before it, and no read of mapped pages crosses their end.
#[test]
fn a_cut_ends_what_is_known_of_the_length() {
    let cluster = Cluster::start(Plan::default());
    let (here, there) = (cluster.client(), cluster.client());
    let mine = here.open("/cut", &create(16_384, 2)).unwrap();
    let theirs = there.open("/cut", &create(16_384, 2)).unwrap();
    let bytes = noise(300_000, 9);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut reads = 0;
            while !stop.load(SeqCst) || reads == 0 {
                let got = read(&mine, 0, 300_000);
                // Old bytes, none, or zeros that an extension has put there.
                assert!(
                    got.iter()
                        .zip(&bytes)
                        .all(|(got, was)| got == was || *got == 0)
                );
                reads += 1;
            }
        });
        for _ in 0..30 {
            write(&theirs, 0, &bytes);
            for _ in 0..ROUNDS {
                assert!(read(&theirs, 100, 200_000) == bytes[100..200_100]);
            }
            theirs.set_len(70_000).unwrap();
            assert_eq!(lean(&theirs, 0, 70_001), None);
            assert!(read(&theirs, 0, 300_000) == bytes[..70_000]);
            theirs.set_len(200_000).unwrap();
            let got = read(&theirs, 60_000, 300_000);
            assert!(got[..10_000] == bytes[60_000..70_000] && got[10_000..] == [0; 130_000]);
        }
        stop.store(true, SeqCst);
        reader.join().unwrap();
    });
}

#[test]
fn a_policy_that_is_switched_on_sees_the_next_call() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    let file = client.open("/tuned", &create(4096, 4)).unwrap();
    let bytes = noise(100_000, 5);
    write(&file, 0, &bytes);
    for _ in 0..ROUNDS {
        assert!(lean(&file, 0, 100_000).unwrap() == bytes);
    }
    let who = Identity {
        program: 0,
        rank: 0,
    };
    let admin = Client::connect_with(&cluster.deployment, who, Role::Admin, options()).unwrap();
    for i in 0..4 {
        admin.tune(ServerId(i), &["sched=to".to_owned()]).unwrap();
    }
    let before = file.stats();
    assert_eq!(lean(&file, 0, 100_000), None);
    assert!(!file.write_fast_path(0, &bytes));
    assert!(read(&file, 0, 100_000) == bytes);
    write(&file, 50_000, &bytes);
    let after = file.stats();
    assert_eq!(after.shortcut, before.shortcut);
    assert_eq!(
        after.structured.operations,
        before.structured.operations + 2
    );
    for i in 0..4 {
        admin.tune(ServerId(i), &["sched=noop".to_owned()]).unwrap();
    }
    let again = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        lean(&file, 50_000, 100_000).is_some_and(|got| got == bytes)
    });
    assert!(
        again,
        "descriptors come back when nobody has to see requests"
    );
}

#[test]
fn locks_and_permissions_are_heeded() {
    let cluster = Cluster::start(Plan::default());
    let client = cluster.client();
    let file = client.open("/locked", &create(4096, 2)).unwrap();
    assert!(file.write_fast_path(0, &[1; 9000]));
    let lock = file.lock(0..9000, LockMode::Exclusive).unwrap();
    assert_eq!(lean(&file, 0, 9000), None);
    assert!(!file.write_fast_path(0, &[2; 9000]));
    write(&file, 0, &[3; 9000]);
    drop(lock);
    assert_eq!(read(&file, 0, 9000), [3; 9000]);
    let reader = client
        .open("/locked", &penstock_client::OpenOptions::read())
        .unwrap();
    assert!(!reader.write_fast_path(0, &[4; 9000]));
    assert_eq!(read(&reader, 0, 9000), [3; 9000]);
    assert!(!reader.read_fast_path(u64::MAX, &mut [0; 10]));
    assert!(!reader.read_fast_path(0, &mut []));
}
