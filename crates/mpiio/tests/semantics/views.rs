//! Views and datatypes, including odd ones.
use super::*;

everywhere!(
    views,
    huge_view,
    odd_types,
    reading_through_an_unordered_view,
);

fn views(site: &TestFileSystem) {
    run(2, |comm| {
        let rank = comm.rank() as i64;
        let file = try_open(site, comm, "views", rdwr()).unwrap();
        let int = of(Loop::bytes(4));
        let mine = of(Loop::vector(4, 2, 16, &Loop::bytes(4)).unwrap());
        file.set_view(rank * 8, &int, &mine, DataRep::Native, &Info::new())
            .unwrap();
        let numbers: Vec<u8> = (0..32).map(|i| (100 * rank + i / 4) as u8).collect();
        file.write(
            Where::Individual,
            true,
            &mut Source::from_slice(&numbers),
            &int,
        )
        .unwrap();
        assert_eq!(file.position().unwrap(), 8);
        set_view(&file, 0, &Loop::bytes(1));
        file.sync().unwrap();
        let all: Vec<u8> = read_at(&file, 0, 64).chunks(4).map(|c| c[0]).collect();
        let want = [
            0, 1, 100, 101, 2, 3, 102, 103, 4, 5, 104, 105, 6, 7, 106, 107,
        ];
        assert_eq!(all, want);
        let view = file.view();
        assert_eq!((view.disp, view.datarep), (0, DataRep::Native));
        file.close().unwrap();
    });
}

/// 64 M blocks: nothing may depend on their number.
fn huge_view(site: &TestFileSystem) {
    run(2, |comm| {
        let rank = comm.rank() as i64;
        let file = try_open(site, comm, "huge", rdwr()).unwrap();
        let double = of(Loop::bytes(8));
        let blocks = Loop::vector(64 << 20, 1, 16, &Loop::bytes(8)).unwrap();
        let filetype = of(blocks.resized(0, (64 << 20) * 16).unwrap());
        file.set_view(8 * rank, &double, &filetype, DataRep::Native, &Info::new())
            .unwrap();
        let memory = Memory::filled(&Loop::bytes(1), 1600, rank as usize);
        for (position, collective) in [(1000, true), ((64 << 20) - 50, false), (5 << 30, true)] {
            file.write(
                Where::At(position),
                collective,
                &mut memory.source(),
                &double,
            )
            .unwrap();
            let mut back = Memory::new(&Loop::bytes(1), 1600);
            file.read(Where::At(position), collective, &mut back.target(), &double)
                .unwrap();
            assert!(back.stream() == memory.stream(), "at {position}");
        }
        assert_eq!(file.byte_offset(1000).unwrap(), 8 * rank + 16 * 1000);
        let next_tile = 8 * rank + (64 << 20) * 16;
        assert_eq!(file.byte_offset(64 << 20).unwrap(), next_tile);
        file.close().unwrap();
    });
}

/// Empty types and accesses, memory that overlaps itself, negative lower bounds.
fn odd_types(site: &TestFileSystem) {
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "odd", rdwr()).unwrap();
        for collective in [true, false] {
            assert_eq!(
                file.write(
                    Where::Individual,
                    collective,
                    &mut Source::from_slice(&[]),
                    &byte()
                )
                .unwrap(),
                0
            );
        }
        let empty = of(Loop::bytes(0));
        file.set_view(0, &byte(), &empty, DataRep::Native, &Info::new())
            .unwrap();
        assert_eq!(
            file.read(
                Where::Individual,
                true,
                &mut Target::from_slice(&mut []),
                &byte()
            )
            .unwrap(),
            0
        );
        let nowhere = file.write(
            Where::Individual,
            true,
            &mut Source::from_slice(&[1]),
            &byte(),
        );
        assert_eq!(nowhere.unwrap_err().class, ErrorClass::Arg);

        // A source of one byte repeated without advancing.
        set_view(&file, 100 * rank as i64, &Loop::bytes(1));
        let same = Loop::bytes(1).resized(0, 0).unwrap();
        let pattern = Pattern::new(0, same.clone(), 0, 50).unwrap();
        let value = [40 + rank as u8];
        // SAFETY: every byte of the pattern is `value`.
        let mut source = unsafe { Source::new(value.as_ptr(), pattern) };
        file.write(Where::At(0), true, &mut source, &of(same))
            .unwrap();
        // A type that begins before its buffer.
        let tile = Loop::indexed(&[2, 3], &[-8, -3], &Loop::bytes(1)).unwrap();
        let memory = Memory::filled(&tile, 50, rank);
        file.write(Where::At(50), true, &mut memory.source(), &of(tile))
            .unwrap();
        file.sync().unwrap();
        assert!(read_at(&file, 0, 50).iter().all(|b| *b == value[0]));
        let want: Vec<u8> = (0..50).map(|i| mark(rank, i)).collect();
        assert_eq!(read_at(&file, 50, 50), want);
        file.close().unwrap();
    });
}

/// MPI allows overlapping filetypes on files that are only read.
fn reading_through_an_unordered_view(site: &TestFileSystem) {
    run(2, |comm| {
        let file = try_open(site, comm, "unordered", rdwr()).unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        write_at(&file, 0, &bytes).unwrap();
        file.close().unwrap();
    });
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "unordered", Amode::RDONLY).unwrap();
        let tile = if rank == 0 {
            Loop::blockindexed(2, &[0, 1], &Loop::bytes(1)).unwrap()
        } else {
            Loop::bytes(1)
        };
        set_view(&file, 0, &tile);
        let mut back = [0; 6];
        for collective in [true, false] {
            let got = file
                .read(
                    Where::At(0),
                    collective,
                    &mut Target::from_slice(&mut back),
                    &byte(),
                )
                .unwrap();
            assert_eq!(got, 6);
            let want = if rank == 0 {
                [0, 1, 1, 2, 3, 4]
            } else {
                [0, 1, 2, 3, 4, 5]
            };
            assert_eq!(back, want);
        }
        file.close().unwrap();
    });
}
