//! Groups of files under different algorithms: no group starves another, and each decides as it would alone.
use penstock_sched::{Algorithm, Groups, Next, Op, Options, Request, Scheduler, VirtualRequest};
use proptest::prelude::*;

fn request(id: u64, file: u64, offset: u64, bytes: u64) -> Request {
    Request {
        id,
        file,
        op: Op::Write,
        offset,
        bytes,
        program: file,
        process: 0,
    }
}

/// File 1 runs under `one`, all others under `all`.
fn grouped(all: Algorithm, one: Algorithm) -> Scheduler {
    let mut scheduler = Scheduler::new(Options::default()).unwrap();
    let mut groups = Groups::all(all);
    groups.files.insert((1, Op::Write), one);
    scheduler.regroup(0, groups).unwrap();
    scheduler
}

/// The next dispatch, whenever it comes.
fn next(scheduler: &mut Scheduler, now: &mut u64) -> Option<VirtualRequest> {
    loop {
        match scheduler.next(*now) {
            Next::Dispatch(v) => return Some(v),
            Next::WaitUntil(until) => *now = until,
            Next::Idle => return None,
        }
    }
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(Algorithm::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Both groups always have requests: they get the same bytes, up to a turn and a virtual request.
    #[test]
    fn busy_groups_share_by_bytes(
        all in algorithm(),
        one in algorithm(),
        sizes in (1u64..64, 1u64..64),
    ) {
        prop_assume!(all != one);
        let mut s = grouped(all, one);
        let sizes = [sizes.0 * 4096, sizes.1 * 4096];
        let (mut now, mut id, mut given) = (0, 0, [0u64; 2]);
        let mut ends = [0u64; 2];
        let mut queued = [0u32; 2];
        while given[0] + given[1] < 64 << 20 {
            for (group, file) in [(0, 2), (1, 1)] {
                while queued[group] < 4 {
                    // Far apart: virtual requests stay small.
                    s.add(now, request(id, file, ends[group] * 2, sizes[group])).unwrap();
                    ends[group] += sizes[group];
                    id += 1;
                    queued[group] += 1;
                }
            }
            let v = next(&mut s, &mut now).unwrap();
            let group = usize::from(v.file == 1);
            given[group] += v.bytes;
            queued[group] -= v.parts;
            now += 1_000_000;
            s.completed(now, v.id).unwrap();
        }
        let apart = given[0].abs_diff(given[1]);
        prop_assert!(apart <= (1 << 20) + 2 * sizes[0].max(sizes[1]), "{given:?}");
    }

    /// A request of an idle group amid endless ones of another: it is served within one turn of the other.
    #[test]
    fn a_group_that_rested_is_served_soon(all in algorithm(), one in algorithm(), swap in any::<bool>()) {
        prop_assume!(all != one);
        let mut s = grouped(all, one);
        let (busy, rare) = if swap { (1, 2) } else { (2, 1) };
        let mut now = 0;
        for id in 0..200 {
            s.add(now, request(id, busy, id << 20, 65_536)).unwrap();
        }
        for _ in 0..50 {
            let v = next(&mut s, &mut now).unwrap();
            s.completed(now, v.id).unwrap();
        }
        s.add(now, request(1000, rare, 0, 4096)).unwrap();
        let mut before = 0;
        loop {
            let v = next(&mut s, &mut now).unwrap();
            if v.file == rare { break; }
            before += v.bytes;
            prop_assert!(before <= (1 << 20) + 65_536, "{before} bytes of the other first");
            s.completed(now, v.id).unwrap();
        }
    }
}

#[test]
fn a_group_that_cannot_serve_leaves_the_others_going() {
    // aIOLi serves one at a time.
    let mut s = grouped(Algorithm::To, Algorithm::Aioli);
    for id in 0..4 {
        s.add(0, request(id, 1, id << 20, 4096)).unwrap();
        s.add(0, request(10 + id, 2, id << 20, 4096)).unwrap();
    }
    let mut now = 0;
    let mut served = Vec::new();
    while let Some(v) = next(&mut s, &mut now) {
        served.push(v);
    }
    let of = |file| served.iter().filter(|v| v.file == file).count();
    assert_eq!((of(1), of(2)), (1, 4));
    assert_eq!(s.statistics().queued, 3);
}

#[test]
fn queues_of_a_group_keep_their_algorithm_and_what_is_queued_moves_with_its_file() {
    // File 1 by lowest offset, the others in order of arrival.
    let mut s = grouped(Algorithm::To, Algorithm::Sjf);
    for (id, file, at) in [(0, 2, 9), (1, 1, 9), (2, 2, 3), (3, 1, 3)] {
        s.add(id, request(id, file, at << 20, 4096)).unwrap();
    }
    let mut now = 9;
    let offsets = |s: &mut Scheduler, now: &mut u64, file| {
        let mut all = Vec::new();
        while let Some(v) = next(s, now) {
            s.completed(*now, v.id).unwrap();
            if v.file == file {
                all.push(v.offset >> 20);
            }
        }
        all
    };
    let mut copy = grouped(Algorithm::To, Algorithm::Sjf);
    for (id, file, at) in [(0, 2, 9), (1, 1, 9), (2, 2, 3), (3, 1, 3)] {
        copy.add(id, request(id, file, at << 20, 4096)).unwrap();
    }
    assert_eq!(offsets(&mut s, &mut now, 1), [3, 9]);
    assert_eq!(offsets(&mut copy, &mut now, 2), [9, 3]);
    // The reverse, with requests queued.
    for (id, file, at) in [(4, 2, 9), (5, 1, 9), (6, 2, 3), (7, 1, 3)] {
        s.add(now, request(id, file, at << 20, 4096)).unwrap();
    }
    let mut groups = Groups::all(Algorithm::Sjf);
    groups.files.insert((1, Op::Write), Algorithm::To);
    s.regroup(now, groups).unwrap();
    assert_eq!(offsets(&mut s, &mut now, 1), [9, 3]);
    assert!(s.is_empty());
    let too_many = (0..2000).map(|file| ((file, Op::Read), Algorithm::Sjf));
    let groups = Groups {
        algorithm: Algorithm::To,
        files: too_many.collect(),
    };
    assert!(
        s.regroup(now, groups)
            .unwrap_err()
            .to_string()
            .contains("1024")
    );
}
