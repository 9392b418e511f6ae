//! Split collective, nonblocking and atomic accesses.
use super::*;

everywhere!(
    split_collectives,
    nonblocking,
    nonblocking_collectives_mix_with_blocking_ones,
    collective_accesses_without_exchange_wait_for_nobody,
    atomic_writes,
);

fn split_collectives(site: &TestFileSystem) {
    run(2, |comm| {
        let rank = comm.rank() as i64;
        let file = try_open(site, comm, "split", rdwr()).unwrap();
        let bytes = [rank as u8 + 1; 100];
        file.begin_write(
            Where::At(rank * 100),
            &mut Source::from_slice(&bytes),
            &byte(),
        )
        .unwrap();
        let second = file.begin_write(Where::At(0), &mut Source::from_slice(&bytes), &byte());
        assert_eq!(second.unwrap_err().class, ErrorClass::Request);
        let other = file.end_read(Where::At(0));
        assert_eq!(other.unwrap_err().class, ErrorClass::Request);
        assert_eq!(file.end_write(Where::At(0)).unwrap(), 100);
        file.sync().unwrap();
        let mut back = [0; 250];
        file.begin_read(
            Where::Ordered,
            &mut Target::from_slice(&mut back[..150]),
            &byte(),
        )
        .unwrap();
        let got = file.end_read(Where::Ordered).unwrap();
        assert_eq!(got, if rank == 0 { 150 } else { 50 });
        assert_eq!(
            file.end_read(Where::Ordered).unwrap_err().class,
            ErrorClass::Request
        );
        file.close().unwrap();
    });
}

/// Starts a write of `bytes`; returns the receiver of its result.
fn start_write(
    file: &File,
    at: Where,
    collective: bool,
    bytes: &'static [u8],
) -> mpsc::Receiver<penstock_mpiio::Result<u64>> {
    let (told, outcome) = mpsc::channel();
    file.start_write(
        at,
        collective,
        Source::from_slice(bytes),
        &byte(),
        Box::new(move |result| told.send(result).unwrap()),
    )
    .unwrap();
    outcome
}

fn nonblocking(site: &TestFileSystem) {
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "nonblocking", rdwr()).unwrap();
        let started: Vec<_> = (0..20_u8)
            .map(|k| {
                let block = vec![10 * (k % 10) + rank as u8; 1000].leak();
                start_write(
                    &file,
                    Where::At((2 * i64::from(k) + rank as i64) * 1000),
                    false,
                    block,
                )
            })
            .collect();
        for outcome in started {
            assert_eq!(outcome.recv().unwrap().unwrap(), 1000);
        }
        file.sync().unwrap();
        let all = read_at(&file, 0, 40_000);
        for (i, block) in all.chunks(1000).enumerate() {
            assert_eq!(block[0], (10 * (i / 2 % 10) + i % 2) as u8);
        }
        file.sync().unwrap();
        // The individual pointer moves at the start of each.
        file.seek(0, Whence::Set).unwrap();
        let first = start_write(&file, Where::Individual, false, b"12345");
        assert_eq!(file.position().unwrap(), 5);
        first.recv().unwrap().unwrap();
        let bad = file.start_write(
            Where::At(-5),
            false,
            Source::from_slice(b"x"),
            &byte(),
            Box::new(|_| panic!("must not be called")),
        );
        assert_eq!(bad.unwrap_err().class, ErrorClass::Arg);
        let target: &'static mut [u8] = vec![0; 5].leak();
        let (told, outcome) = mpsc::channel();
        file.start_read(
            Where::At(39_998),
            false,
            Target::from_slice(target),
            &byte(),
            Box::new(move |result| told.send(result).unwrap()),
        )
        .unwrap();
        assert_eq!(outcome.recv().unwrap().unwrap(), 2, "end of file");
        file.close().unwrap();
    });
}

/// Lets rank 0 do something first, and the others after it.
fn one_after_another(
    rank: usize,
    told: &Mutex<mpsc::Receiver<()>>,
    tell: &mpsc::Sender<()>,
    act: impl Fn(),
) {
    if rank == 0 {
        act();
        tell.send(()).unwrap();
    } else {
        let patience = std::time::Duration::from_secs(30);
        let heard = told.lock().unwrap().recv_timeout(patience);
        heard.expect("rank 0 waits in a collective access for this rank");
        act();
    }
}

fn collective_accesses_without_exchange_wait_for_nobody(site: &TestFileSystem) {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "apart", rdwr()).unwrap();
        let strided = Loop::bytes(10).resized(0, 20).unwrap();
        for (method, representation, tile) in [
            ("auto", DataRep::Native, &Loop::bytes(1)),
            ("auto", DataRep::External32, &Loop::bytes(1)),
            ("posix", DataRep::Native, &strided),
            ("list", DataRep::Native, &strided),
            ("datatype", DataRep::External32, &strided),
        ] {
            let info = Info::from_iter([("penstock_method", method)]);
            let at = 10 * rank as i64;
            file.set_view(at, &byte(), &of(tile.clone()), representation, &info)
                .unwrap();
            one_after_another(rank, &told, &tell, || {
                let ten = || Source::from_slice(&[7; 10]);
                for k in 0..5 {
                    let done = file.write(Where::At(20 * k), true, &mut ten(), &byte());
                    assert_eq!(done.unwrap(), 10, "{method}");
                }
                file.begin_write(Where::At(0), &mut ten(), &byte()).unwrap();
                assert_eq!(file.end_write(Where::At(0)).unwrap(), 10);
                let started = start_write(&file, Where::At(0), true, &[7; 10]);
                assert_eq!(started.recv().unwrap().unwrap(), 10);
                let mut back = [0; 10];
                let target = &mut Target::from_slice(&mut back);
                assert_eq!(file.read(Where::At(20), true, target, &byte()).unwrap(), 10);
                assert_eq!(back, [7; 10]);
            });
        }
        file.close().unwrap();
    });
}

/// Large regions, for which an exchange is never chosen: the second, fourth, fifth and sixth access do not meet.
#[test]
fn regular_accesses_meet_now_and_then() {
    let site = TestFileSystem::direct();
    const BLOCK: u64 = 1 << 20;
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(&site, comm, "regular", rdwr()).unwrap();
        let tile = Loop::bytes(BLOCK).resized(0, 2 * BLOCK as i64).unwrap();
        set_view(&file, rank as i64 * BLOCK as i64, &tile);
        let bytes = vec![3 + rank as u8; 2 * BLOCK as usize];
        let write = || {
            let done = file.write(Where::At(0), true, &mut Source::from_slice(&bytes), &byte());
            assert_eq!(done.unwrap(), 2 * BLOCK);
        };
        for quiet in [1, 3] {
            write();
            let chosen = file.info();
            let chosen = chosen.get("penstock_method_chosen").unwrap();
            assert!(
                !["two-phase", "node-exchange", "resonant"].contains(&chosen),
                "{chosen}"
            );
            one_after_another(rank, &told, &tell, || (0..quiet).for_each(|_| write()));
        }
        // An error in an access that does not meet reaches all ranks.
        write();
        let bad = file.write(
            Where::At(-(rank as i64)),
            true,
            &mut Source::from_slice(&bytes),
            &byte(),
        );
        assert_eq!(bad.is_err(), rank == 1);
        let told_later = file.set_info(&Info::new()).unwrap_err();
        assert!(told_later.message.contains("rank 1"), "{told_later}");
        file.sync().unwrap();
        write();
        let mut whole = vec![0; 4 * BLOCK as usize];
        file.sync().unwrap();
        set_view(&file, 0, &Loop::bytes(1));
        let target = &mut Target::from_slice(&mut whole);
        assert_eq!(
            file.read(Where::At(0), false, target, &byte()).unwrap(),
            4 * BLOCK
        );
        let blocks = whole.chunks(BLOCK as usize).enumerate();
        assert!(
            blocks
                .into_iter()
                .all(|(k, block)| block.iter().all(|b| *b == 3 + (k % 2) as u8))
        );
        file.close().unwrap();
    });
}

fn nonblocking_collectives_mix_with_blocking_ones(site: &TestFileSystem) {
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "mix", rdwr()).unwrap();
        let tile = Loop::bytes(7).resized(0, 21).unwrap();
        set_view(&file, 7 * rank as i64, &tile);
        let mut started = Vec::new();
        for k in 0..10_u8 {
            let block = vec![3 * k + rank as u8; 700].leak();
            started.push(start_write(&file, Where::Individual, true, block));
            let own = vec![3 * k + rank as u8 + 100; 70];
            file.write(
                Where::Individual,
                true,
                &mut Source::from_slice(&own),
                &byte(),
            )
            .unwrap();
        }
        for outcome in started {
            assert_eq!(outcome.recv().unwrap().unwrap(), 700);
        }
        let mut back = vec![0; 7700];
        file.read(
            Where::At(0),
            true,
            &mut Target::from_slice(&mut back),
            &byte(),
        )
        .unwrap();
        for (k, both) in back.chunks(770).enumerate() {
            let value = 3 * k as u8 + rank as u8;
            assert!(both[..700].iter().all(|b| *b == value));
            assert!(both[700..].iter().all(|b| *b == value + 100));
        }
        // An error of one rank is everybody's here too.
        let (told, outcome) = mpsc::channel();
        let at = if rank == 1 { -1 } else { 0 };
        file.start_write(
            Where::At(at),
            true,
            Source::from_slice(b"x"),
            &byte(),
            Box::new(move |result| told.send(result).unwrap()),
        )
        .unwrap();
        assert_eq!(outcome.recv().unwrap().unwrap_err().class, ErrorClass::Arg);
        file.close().unwrap();
    });
}

fn atomic_writes(site: &TestFileSystem) {
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "atomic", rdwr()).unwrap();
        file.set_atomicity(true).unwrap();
        assert!(file.atomicity());
        set_view(&file, 0, &Loop::bytes(7).resized(0, 13).unwrap());
        for collective in [false, true] {
            for round in 0..10 {
                let bytes = vec![1 + rank as u8; 7000];
                file.write(
                    Where::At(0),
                    collective,
                    &mut Source::from_slice(&bytes),
                    &byte(),
                )
                .unwrap();
                let seen = read_at(&file, 0, 7000);
                assert!(seen.iter().all(|b| *b == seen[0]), "torn in round {round}");
            }
        }
        file.close().unwrap();
    });
}
