//! Individual, shared and ordered pointers.
use super::*;

everywhere!(
    pointers_and_positions,
    shared_pointer_under_contention,
    each_open_has_a_shared_pointer,
    ordered,
);

fn pointers_and_positions(site: &TestFileSystem) {
    run(1, |comm| {
        let file = try_open(site, comm, "positions", rdwr()).unwrap();
        write_at(&file, 0, &[7; 1000]).unwrap();
        // Every second pair of 4-byte etypes, from byte 10.
        let etype = of(Loop::bytes(4));
        let filetype = of(Loop::bytes(8).resized(0, 16).unwrap());
        file.set_view(10, &etype, &filetype, DataRep::Native, &Info::new())
            .unwrap();
        assert_eq!(file.position().unwrap(), 0);
        assert_eq!(file.byte_offset(0).unwrap(), 10);
        assert_eq!(file.byte_offset(1).unwrap(), 14);
        assert_eq!(file.byte_offset(2).unwrap(), 26);
        file.seek(5, Whence::Set).unwrap();
        file.seek(-2, Whence::Current).unwrap();
        assert_eq!(file.position().unwrap(), 3);
        let mut four = [0; 8];
        let ints = of(Loop::bytes(4));
        let got = file
            .read(
                Where::Individual,
                false,
                &mut Target::from_slice(&mut four),
                &ints,
            )
            .unwrap();
        assert_eq!((got, file.position().unwrap()), (8, 5));
        // Bytes 10..1000 contain 61 whole tiles and one of 14 bytes, of which 8 are visible: 124 etypes.
        file.seek(0, Whence::End).unwrap();
        assert_eq!(file.position().unwrap(), 124);
        file.seek(-4, Whence::End).unwrap();
        assert_eq!(file.position().unwrap(), 120);
        let before = file.seek(-1, Whence::Set).unwrap_err();
        assert_eq!(before.class, ErrorClass::Arg);
        let part = file
            .read(
                Where::At(0),
                false,
                &mut Target::from_slice(&mut [0; 3]),
                &byte(),
            )
            .unwrap_err();
        assert_eq!(part.class, ErrorClass::Arg, "not a whole etype");
        let before = file
            .read(
                Where::At(-1),
                false,
                &mut Target::from_slice(&mut four),
                &ints,
            )
            .unwrap_err();
        assert_eq!(before.class, ErrorClass::Arg);
        set_view(&file, 0, &Loop::bytes(1));
        assert_eq!(file.position().unwrap(), 0);
        file.close().unwrap();
    });
}

fn shared_pointer_under_contention(site: &TestFileSystem) {
    const EACH: usize = 60;
    run(4, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "log", rdwr()).unwrap();
        for _ in 0..EACH {
            let record = [b'a' + rank as u8; 10];
            file.write(
                Where::Shared,
                false,
                &mut Source::from_slice(&record),
                &byte(),
            )
            .unwrap();
        }
        file.sync().unwrap();
        assert_eq!(file.position_shared().unwrap(), 4 * 10 * EACH as i64);
        let all = read_at(&file, 0, 10_000);
        assert_eq!(all.len(), 4 * 10 * EACH);
        let mut count = [0; 4];
        for record in all.chunks(10) {
            assert!(record.iter().all(|b| *b == record[0]), "records mixed up");
            count[usize::from(record[0] - b'a')] += 1;
        }
        assert_eq!(count, [EACH; 4]);
        file.seek_shared(0, Whence::Set).unwrap();
        let mut mine = [0; 10];
        let mut seen = 0;
        while file
            .read(
                Where::Shared,
                false,
                &mut Target::from_slice(&mut mine),
                &byte(),
            )
            .unwrap()
            > 0
        {
            seen += 1;
        }
        assert!(seen <= 4 * EACH);
        file.close().unwrap();
    });
    assert_eq!(leftovers(site), Vec::<String>::new());
}

fn each_open_has_a_shared_pointer(site: &TestFileSystem) {
    let mut twice: Vec<_> = (0..2).map(|_| ThreadComm::group(2)).collect();
    let mut pairs: Vec<_> = (0..2)
        .map(|_| {
            twice
                .iter_mut()
                .map(|group| group.remove(0))
                .collect::<Vec<_>>()
        })
        .collect();
    std::thread::scope(|scope| {
        for mut comms in pairs.drain(..) {
            scope.spawn(move || {
                let (second, first) = (comms.pop().unwrap(), comms.pop().unwrap());
                let first = try_open(site, first, "twice", rdwr()).unwrap();
                let shared = |file: &File, value: &[u8]| {
                    let source = &mut Source::from_slice(value);
                    file.write(Where::Shared, false, source, &byte()).unwrap();
                };
                shared(&first, &[1; 10]);
                first.sync().unwrap();
                assert_eq!(first.position_shared().unwrap(), 20);
                // One begins at the end; neither the other's moves nor an open of one rank change it.
                let second = try_open(site, second, "twice", rdwr() | Amode::APPEND).unwrap();
                first.seek_shared(3, Whence::Set).unwrap();
                let alone = ThreadComm::group(1).remove(0);
                let alone = try_open(site, alone, "twice", rdwr()).unwrap();
                shared(&alone, &[1; 5]);
                assert_eq!(second.position_shared().unwrap(), 20);
                second.sync().unwrap();
                shared(&second, &[2; 7]);
                second.sync().unwrap();
                assert_eq!(second.position_shared().unwrap(), 34);
                assert_eq!(first.position_shared().unwrap(), 3);
                assert_eq!(alone.position_shared().unwrap(), 5);
                // An unused pointer is set to 0 by a new view.
                set_view(&second, 4, &Loop::bytes(1));
                assert_eq!(second.position_shared().unwrap(), 0);
                alone.close().unwrap();
                second.close().unwrap();
                let second = ThreadComm::group(1).remove(0);
                let second = try_open(site, second, "twice", rdwr() | Amode::APPEND).unwrap();
                set_view(&second, 4, &Loop::bytes(1));
                assert_eq!(second.position_shared().unwrap(), 0);
                second.close().unwrap();
                first.close().unwrap();
            });
        }
    });
    assert_eq!(leftovers(site), Vec::<String>::new());
}

/// Hidden files of shared pointers that were not removed.
fn leftovers(site: &TestFileSystem) -> Vec<String> {
    std::fs::read_dir(site.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect()
}

fn ordered(site: &TestFileSystem) {
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "ordered", rdwr()).unwrap();
        let mine = vec![b'A' + rank as u8; 3 + rank];
        for _ in 0..2 {
            file.write(
                Where::Ordered,
                true,
                &mut Source::from_slice(&mine),
                &byte(),
            )
            .unwrap();
        }
        file.sync().unwrap();
        assert_eq!(read_at(&file, 0, 100), b"AAABBBBCCCCCAAABBBBCCCCC");
        assert_eq!(file.position_shared().unwrap(), 24);
        file.seek_shared(-12, Whence::End).unwrap();
        let mut back = vec![0; 3 + rank];
        file.read(
            Where::Ordered,
            true,
            &mut Target::from_slice(&mut back),
            &byte(),
        )
        .unwrap();
        assert_eq!(back, mine);
        // A new view begins at 0 again.
        set_view(&file, 0, &Loop::bytes(1));
        assert_eq!(file.position_shared().unwrap(), 0);
        file.close().unwrap();
    });
}
