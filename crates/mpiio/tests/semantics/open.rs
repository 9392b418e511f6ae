//! Opening, closing and the size of files.
use super::*;

everywhere!(
    access_modes,
    append_and_sequential,
    delete_on_close,
    only_one_rank,
    sizes,
);

fn access_modes(site: &TestFileSystem) {
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

fn append_and_sequential(site: &TestFileSystem) {
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
        // The new view begins at the pointer: after two times five bytes.
        set_view(&file, DISPLACEMENT_CURRENT, &Loop::bytes(1));
        assert_eq!(file.view().disp, 10);
        assert_eq!(file.position_shared().unwrap(), 0);
        file.close().unwrap();
    });
}

fn delete_on_close(site: &TestFileSystem) {
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

fn only_one_rank(site: &TestFileSystem) {
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

fn sizes(site: &TestFileSystem) {
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
