//! Semantics of MPI-4.1 chapter 14: modes, views, pointers, forms of call, representations, errors.
#![allow(clippy::unwrap_used)]
mod common;

use common::{Memory, Site, byte, mark, of};
use penstock_datatype::{Elem, ElemKind, Loop, Pattern, Signature, Source, Target};
use penstock_mpiio::testing::{ThreadComm, run};
use penstock_mpiio::{
    Amode, Comm, DISPLACEMENT_CURRENT, DataRep, Datatype, ErrorClass, File, Info, Whence, Where,
};
use std::sync::mpsc;

fn rdwr() -> Amode {
    Amode::RDWR | Amode::CREATE
}

fn try_open(site: &Site, comm: ThreadComm, name: &str, amode: Amode) -> Result<File, ErrorClass> {
    File::open_in(
        &site.process(),
        Box::new(comm),
        &site.path(name),
        amode,
        &Info::new(),
    )
    .map_err(|e| {
        assert!(e.message.len() > 20, "{e}");
        e.class
    })
}

fn write_at(file: &File, at: i64, bytes: &[u8]) -> penstock_mpiio::Result<u64> {
    file.write(
        Where::At(at),
        false,
        &mut Source::from_slice(bytes),
        &byte(),
    )
}

fn read_at(file: &File, at: i64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let got = file
        .read(
            Where::At(at),
            false,
            &mut Target::from_slice(&mut bytes),
            &byte(),
        )
        .unwrap();
    bytes.truncate(got as usize);
    bytes
}

fn set_view(file: &File, disp: i64, filetype: &Loop) {
    file.set_view(
        disp,
        &byte(),
        &of(filetype.clone()),
        DataRep::Native,
        &Info::new(),
    )
    .unwrap();
}

/// Runs a test on every kind of place.
macro_rules! everywhere {
    ($($name:ident),* $(,)?) => {
        mod direct {
            $(#[test] fn $name() { super::$name(&super::Site::direct()); })*
        }
        mod servers {
            $(#[test] fn $name() { super::$name(&super::Site::servers(3)); })*
        }
    };
}
everywhere!(
    access_modes,
    pointers_and_positions,
    views,
    huge_view,
    odd_types,
    shared_pointer_under_contention,
    ordered,
    split_collectives,
    nonblocking,
    nonblocking_collectives_mix_with_blocking_ones,
    external32_everywhere,
    external32_other_widths,
    atomic_writes,
    sizes,
    errors_reach_every_rank,
    collective_arguments_agree,
    append_and_sequential,
    delete_on_close,
    info_tells_what_was_chosen,
    reading_through_an_unordered_view,
    only_one_rank,
);

fn access_modes(site: &Site) {
    run(2, |comm| {
        let dup = || ThreadComm::group(1).remove(0);
        let rank = comm.rank();
        let alone = |amode| try_open(site, dup(), &format!("alone{rank}"), amode).err();
        assert_eq!(alone(Amode::RDONLY), Some(ErrorClass::NoSuchFile));
        for bad in [
            Amode::CREATE,
            Amode::RDONLY | Amode::WRONLY,
            Amode::RDONLY | Amode::CREATE,
            Amode::RDWR | Amode::SEQUENTIAL,
            Amode::RDWR | Amode::INVALID,
        ] {
            assert_eq!(alone(bad), Some(ErrorClass::Amode), "{bad:?}");
        }
        let file = try_open(site, comm, "modes", rdwr() | Amode::EXCL).unwrap();
        assert_eq!(file.amode(), rdwr() | Amode::EXCL);
        let again = try_open(site, dup(), "modes", rdwr() | Amode::EXCL);
        assert_eq!(again.err(), Some(ErrorClass::FileExists));
        let read_only = try_open(site, dup(), "modes", Amode::RDONLY).unwrap();
        assert_eq!(
            write_at(&read_only, 0, b"x").unwrap_err().class,
            ErrorClass::ReadOnly
        );
        let write_only = try_open(site, dup(), "modes", Amode::WRONLY).unwrap();
        assert_eq!(write_at(&write_only, rank as i64, b"x").unwrap(), 1);
        let denied = write_only
            .read(
                Where::At(0),
                false,
                &mut Target::from_slice(&mut [0]),
                &byte(),
            )
            .unwrap_err();
        assert_eq!(denied.class, ErrorClass::Access);
        for f in [&read_only, &write_only, &file] {
            f.close().unwrap();
        }
        assert_eq!(file.close().unwrap_err().class, ErrorClass::File);
    });
}

fn pointers_and_positions(site: &Site) {
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
        // Bytes 10..1000 hold 61 whole tiles and one of 14 bytes, of which 8 are seen: 124 etypes.
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

fn views(site: &Site) {
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
fn huge_view(site: &Site) {
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
fn odd_types(site: &Site) {
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

fn shared_pointer_under_contention(site: &Site) {
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

/// Hidden files of shared pointers that were not removed.
fn leftovers(site: &Site) -> Vec<String> {
    std::fs::read_dir(site.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect()
}

fn ordered(site: &Site) {
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

fn split_collectives(site: &Site) {
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

/// Starts a write of `bytes` and returns where its outcome will arrive.
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

fn nonblocking(site: &Site) {
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

fn nonblocking_collectives_mix_with_blocking_ones(site: &Site) {
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
        // An error of one rank is everyone's, also here.
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

fn int32() -> Datatype {
    let int = Elem::new(ElemKind::Signed, 4, 4).unwrap();
    Datatype::elementary(int, 4, 4).unwrap()
}

fn external32_everywhere(site: &Site) {
    run(2, |comm| {
        let rank = comm.rank() as i64;
        let file = try_open(site, comm, "external32", rdwr()).unwrap();
        let int = int32();
        let pair = Datatype::new(
            Loop::bytes(8).resized(0, 16).unwrap(),
            Signature::repeat(2, &int.signature).unwrap(),
        );
        let ints: &'static [i32] = &[1, 0x0102_0304, -2, 7];
        let native: &'static [u8] = ints
            .iter()
            .flat_map(|i| i.to_ne_bytes())
            .collect::<Vec<_>>()
            .leak();
        let external: Vec<u8> = ints.iter().flat_map(|i| i.to_be_bytes()).collect();
        // (etype position, how) for blocking, collective, nonblocking and nonblocking collective calls.
        for (k, (collective, blocking)) in
            [(false, true), (true, true), (false, false), (true, false)]
                .into_iter()
                .enumerate()
        {
            let base = k as i64 * 1000;
            file.set_view(
                base + rank * 8,
                &int,
                &pair,
                DataRep::External32,
                &Info::new(),
            )
            .unwrap();
            if blocking {
                let written = file
                    .write(
                        Where::At(0),
                        collective,
                        &mut Source::from_slice(native),
                        &int,
                    )
                    .unwrap();
                assert_eq!(written, 16);
            } else {
                let (told, outcome) = mpsc::channel();
                file.start_write(
                    Where::At(0),
                    collective,
                    Source::from_slice(native),
                    &int,
                    Box::new(move |result| told.send(result).unwrap()),
                )
                .unwrap();
                assert_eq!(outcome.recv().unwrap().unwrap(), 16);
            }
            file.sync().unwrap();
            let mut back = [0; 24];
            let got = file
                .read(
                    Where::At(0),
                    collective,
                    &mut Target::from_slice(&mut back),
                    &int,
                )
                .unwrap();
            // Reading on, one finds the end of the file or the hole to the next round's data.
            assert!(got >= 16);
            assert_eq!(&back[..16], native);
            file.sync().unwrap();
            set_view(&file, base, &Loop::bytes(1));
            for pair in 0..2 {
                let raw = read_at(&file, 16 * pair as i64 + 8 * rank, 8);
                assert_eq!(raw, external[8 * pair..8 * pair + 8], "kind {k}");
            }
            file.sync().unwrap();
        }
        file.close().unwrap();
    });
}

/// 8 bytes in memory, 4 in the file (MPI_LONG), in several chunks, with ranks of different lengths.
fn external32_other_widths(site: &Site) {
    run(2, |comm| {
        let rank = comm.rank() as i64;
        let file = try_open(site, comm, "widths", rdwr()).unwrap();
        let long = Datatype::elementary(Elem::new(ElemKind::Signed, 8, 4).unwrap(), 8, 4).unwrap();
        file.set_view(0, &long, &long, DataRep::External32, &Info::new())
            .unwrap();
        assert_eq!(file.type_extent(&long).unwrap(), 4);
        let count = if rank == 0 { 700_000 } else { 10 };
        let values: Vec<u8> = (0..count)
            .flat_map(|i: i64| (i * 3 - 1_000_000 * rank).to_ne_bytes())
            .collect();
        let at = Where::At(rank * 1_000_000);
        let written = file
            .write(at, true, &mut Source::from_slice(&values), &long)
            .unwrap();
        assert_eq!(written, 8 * count as u64);
        let mut back = vec![0; values.len() + 80];
        let read = file
            .read(at, true, &mut Target::from_slice(&mut back), &long)
            .unwrap();
        let beyond = if rank == 0 { 80 } else { 0 };
        assert_eq!(read, values.len() as u64 + beyond);
        assert!(back[..values.len()] == values);
        let huge = (1_i64 << 40).to_ne_bytes();
        let too_wide = file.write(at, true, &mut Source::from_slice(&huge), &long);
        assert_eq!(too_wide.unwrap_err().class, ErrorClass::Conversion);
        file.close().unwrap();
    });
}

fn atomic_writes(site: &Site) {
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

fn sizes(site: &Site) {
    run(2, |comm| {
        let rank = comm.rank() as i64;
        let file = try_open(site, comm, "sizes", rdwr()).unwrap();
        write_at(&file, rank * 150_000, &[9; 150_000]).unwrap();
        file.set_size(1000).unwrap();
        assert_eq!(file.size().unwrap(), 1000);
        file.set_size(400_000).unwrap();
        let all = read_at(&file, 0, 400_000);
        assert!(all[..1000].iter().all(|b| *b == 9) && all[1000..].iter().all(|b| *b == 0));
        file.preallocate(500_000).unwrap();
        assert_eq!(file.size().unwrap(), 500_000);
        file.preallocate(100).unwrap();
        assert_eq!(file.size().unwrap(), 500_000);
        assert_eq!(file.set_size(-1).unwrap_err().class, ErrorClass::Arg);
        assert_eq!(file.set_size(rank).unwrap_err().class, ErrorClass::NotSame);
        file.close().unwrap();
    });
}

fn errors_reach_every_rank(site: &Site) {
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "failing", rdwr()).unwrap();
        set_view(
            &file,
            rank as i64 * 10,
            &Loop::bytes(10).resized(0, 30).unwrap(),
        );
        for method in [
            "auto",
            "posix",
            "two-phase",
            "node-exchange",
            "list",
            "datatype",
            "sieve",
        ] {
            file.set_info(&Info::from_iter([("penstock_method", method)]))
                .unwrap();
            let at = Where::At(if rank == 1 { -1 } else { 0 });
            let failed = file
                .write(at, true, &mut Source::from_slice(&[1; 100]), &byte())
                .unwrap_err();
            assert_eq!(failed.class, ErrorClass::Arg, "{method}");
            assert_eq!(rank != 1, failed.message.contains("rank 1"), "{failed}");
            // The file goes on working.
            let good = file.write(
                Where::At(0),
                true,
                &mut Source::from_slice(&[1; 100]),
                &byte(),
            );
            assert_eq!(good.unwrap(), 100);
        }
        let ordered = file.write(
            Where::Ordered,
            true,
            &mut Source::from_slice(&[1; 100][..if rank == 2 { 100 } else { 10 }]),
            &byte(),
        );
        ordered.unwrap();
        file.close().unwrap();
    });
    // An open fails everywhere when it fails on one rank.
    run(3, |comm| {
        let rank = comm.rank();
        let amode = if rank == 2 {
            Amode::RDONLY | Amode::CREATE
        } else {
            rdwr()
        };
        assert_eq!(
            try_open(site, comm, "failing", amode).err(),
            Some(ErrorClass::Amode)
        );
    });
}

fn collective_arguments_agree(site: &Site) {
    run(2, |comm| {
        let rank = comm.rank();
        let amode = if rank == 0 {
            rdwr()
        } else {
            rdwr() | Amode::UNIQUE_OPEN
        };
        assert_eq!(
            try_open(site, comm, "same", amode).err(),
            Some(ErrorClass::NotSame)
        );
    });
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "same", rdwr()).unwrap();
        assert_eq!(
            file.set_atomicity(rank == 0).unwrap_err().class,
            ErrorClass::NotSame
        );
        let seek = file.seek_shared(rank as i64, Whence::Set);
        assert_eq!(seek.unwrap_err().class, ErrorClass::NotSame);
        let etype = of(Loop::bytes(1 + rank as u64));
        let view = file.set_view(0, &etype, &etype, DataRep::Native, &Info::new());
        assert_eq!(view.unwrap_err().class, ErrorClass::NotSame);
        let datarep = if rank == 0 {
            DataRep::Native
        } else {
            DataRep::External32
        };
        let view = file.set_view(0, &byte(), &byte(), datarep, &Info::new());
        assert_eq!(view.unwrap_err().class, ErrorClass::NotSame);
        for (disp, filetype) in [
            (-3, Loop::bytes(1)),
            (0, Loop::blockindexed(2, &[0, 1], &Loop::bytes(1)).unwrap()),
            (0, Loop::blockindexed(1, &[9, 3], &Loop::bytes(1)).unwrap()),
            (0, Loop::blockindexed(1, &[-2], &Loop::bytes(1)).unwrap()),
            (DISPLACEMENT_CURRENT, Loop::bytes(1)),
        ] {
            let view = file.set_view(disp, &byte(), &of(filetype), DataRep::Native, &Info::new());
            assert_eq!(view.unwrap_err().class, ErrorClass::Arg);
        }
        let three = of(Loop::bytes(3));
        let view = file.set_view(
            0,
            &of(Loop::bytes(2)),
            &three,
            DataRep::Native,
            &Info::new(),
        );
        assert_eq!(view.unwrap_err().class, ErrorClass::Arg);
        file.close().unwrap();
    });
    assert_eq!(
        DataRep::parse("mine").unwrap_err().class,
        ErrorClass::UnsupportedDatarep
    );
}

fn append_and_sequential(site: &Site) {
    run(2, |comm| {
        let file = try_open(site, comm, "append", rdwr()).unwrap();
        write_at(&file, 0, &[1; 100]).unwrap();
        file.close().unwrap();
    });
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "append", Amode::RDWR | Amode::APPEND).unwrap();
        assert_eq!(file.position().unwrap(), 100);
        assert_eq!(file.position_shared().unwrap(), 100);
        file.write(
            Where::Ordered,
            true,
            &mut Source::from_slice(&[2 + rank as u8; 5]),
            &byte(),
        )
        .unwrap();
        file.sync().unwrap();
        assert_eq!(read_at(&file, 98, 20), [1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]);
        file.close().unwrap();
    });
    run(2, |comm| {
        let file = try_open(site, comm, "append", Amode::RDONLY | Amode::SEQUENTIAL).unwrap();
        let unsupported = Some(ErrorClass::UnsupportedOperation);
        let class = |e: penstock_mpiio::Error| e.class;
        assert_eq!(file.seek(0, Whence::Set).map_err(class).err(), unsupported);
        let mut five = [0; 5];
        for at in [Where::At(0), Where::Individual] {
            let read = file.read(at, false, &mut Target::from_slice(&mut five), &byte());
            assert_eq!(read.map_err(class).err(), unsupported);
        }
        file.read(
            Where::Ordered,
            true,
            &mut Target::from_slice(&mut five),
            &byte(),
        )
        .unwrap();
        // The new view begins where the pointer is: after two times five bytes.
        set_view(&file, DISPLACEMENT_CURRENT, &Loop::bytes(1));
        assert_eq!(file.view().disp, 10);
        assert_eq!(file.position_shared().unwrap(), 0);
        file.close().unwrap();
    });
}

fn delete_on_close(site: &Site) {
    run(2, |comm| {
        let file = try_open(site, comm, "gone", rdwr() | Amode::DELETE_ON_CLOSE).unwrap();
        write_at(&file, 0, b"x").unwrap();
        file.close().unwrap();
        let again = ThreadComm::group(1).remove(0);
        let found = try_open(site, again, "gone", Amode::RDONLY).err();
        assert_eq!(found, Some(ErrorClass::NoSuchFile));
    });
    let missing = File::delete_in(&site.process(), &site.path("gone"), &Info::new());
    assert_eq!(missing.unwrap_err().class, ErrorClass::NoSuchFile);
}

fn info_tells_what_was_chosen(site: &Site) {
    run(2, |comm| {
        let rank = comm.rank();
        let file = site.open(
            comm,
            "info",
            &[("cb_nodes", "1"), ("romio_cb_write", "disable")],
        );
        write_at(&file, 100 * rank as i64, &[1; 100]).unwrap();
        let info = file.info();
        assert_eq!(info.get("penstock_method_chosen"), Some("datatype"));
        assert!(
            info.get("penstock_method_reason")
                .unwrap()
                .contains("density")
        );
        assert_eq!(info.get("romio_visibility_immediate"), Some("true"));
        assert_eq!(info.get("cb_nodes"), Some("1"));
        assert_eq!(info.get("penstock_method"), Some("auto"));
        for (key, _) in info.iter() {
            assert!(
                penstock_mpiio::HINTS.contains(&key),
                "{key} is not in the table"
            );
        }
        // Rank 0's hints hold.
        let mine = if rank == 0 { "posix" } else { "sieve" };
        file.set_info(&Info::from_iter([("penstock_method", mine)]))
            .unwrap();
        write_at(&file, 100 * rank as i64, &[1; 100]).unwrap();
        assert_eq!(file.info().get("penstock_method_chosen"), Some("posix"));
        let summary = file.summary();
        assert_eq!(summary.write.calls, 2);
        assert_eq!(summary.write.methods["posix"].operations, 1);
        assert_eq!(summary.write.methods["posix"].model.operations, 1);
        file.close().unwrap();
    });
}

/// MPI allows overlapping filetypes on files that are only read.
fn reading_through_an_unordered_view(site: &Site) {
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

fn only_one_rank(site: &Site) {
    run(1, |comm| {
        let file = try_open(site, comm, "one", rdwr()).unwrap();
        for method in ["auto", "two-phase", "node-exchange"] {
            file.set_info(&Info::from_iter([("penstock_method", method)]))
                .unwrap();
            set_view(&file, 5, &Loop::bytes(3).resized(0, 8).unwrap());
            let memory = Memory::filled(&Loop::bytes(1), 999, 3);
            file.write(Where::Individual, true, &mut memory.source(), &byte())
                .unwrap();
            file.seek(0, Whence::Set).unwrap();
            let mut back = Memory::new(&Loop::bytes(1), 999);
            file.read(Where::Individual, true, &mut back.target(), &byte())
                .unwrap();
            assert!(back.stream() == memory.stream());
        }
        let info = file.info();
        let reason = info.get("penstock_method_reason").unwrap();
        assert!(reason.contains("node-exchange"), "{reason}");
        file.close().unwrap();
    });
}
