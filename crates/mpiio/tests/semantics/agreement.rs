//! What all ranks learn: errors, arguments that differ, the chosen method.
use super::*;

everywhere!(
    errors_reach_every_rank,
    an_error_of_one_rank_fails_the_next_call_that_meets,
    whoever_goes_another_way_after_an_error_hangs_nobody,
    collective_arguments_agree,
    info_tells_what_was_chosen,
);

fn errors_reach_every_rank(site: &TestFileSystem) {
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "failing", rdwr()).unwrap();
        set_view(
            &file,
            rank as i64 * 10,
            &Loop::bytes(10).resized(0, 30).unwrap(),
        );
        for (method, exchanges) in [
            ("auto", true),
            ("posix", false),
            ("two-phase", true),
            ("node-exchange", true),
            ("resonant", true),
            ("list", false),
            ("datatype", false),
            ("sieve", false),
        ] {
            file.set_info(&Info::from_iter([("penstock_method", method)]))
                .unwrap();
            let at = Where::At(if rank == 1 { -1 } else { 0 });
            let done = file.write(at, true, &mut Source::from_slice(&[1; 100]), &byte());
            if exchanges || rank == 1 {
                let failed = done.unwrap_err();
                assert_eq!(failed.class, ErrorClass::Arg, "{method}");
                assert_eq!(rank != 1, failed.message.contains("rank 1"), "{failed}");
            } else {
                assert_eq!(done.unwrap(), 100);
            }
            if !exchanges {
                let told = file.sync().unwrap_err();
                assert_eq!(told.class, ErrorClass::Arg, "{method}");
                assert!(told.message.contains("before this call: rank 1"), "{told}");
                file.sync().unwrap();
            }
            // The file stays usable.
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

/// Blocking, nonblocking, split and external32; then each kind of call that meets.
fn an_error_of_one_rank_fails_the_next_call_that_meets(site: &TestFileSystem) {
    type Act = fn(&File) -> penstock_mpiio::Result<()>;
    let bad = |file: &File, form: usize, rank: usize| -> bool {
        let at = Where::At(if rank == 1 { -1 } else { 10 * rank as i64 });
        match form {
            0 | 1 => file
                .write(at, true, &mut Source::from_slice(&[7; 8]), &byte())
                .is_err(),
            2 => {
                let (told, outcome) = mpsc::channel();
                let done = Box::new(move |result| told.send(result).unwrap());
                let source = Source::from_slice(&[7; 8]);
                file.start_write(at, true, source, &byte(), done).unwrap();
                outcome.recv().unwrap().is_err()
            }
            _ => {
                file.begin_read(at, &mut Target::from_slice(&mut [0; 8]), &byte())
                    .unwrap();
                file.end_read(at).is_err()
            }
        }
    };
    let view = |file: &File, representation| {
        file.set_view(0, &byte(), &byte(), representation, &Info::new())
    };
    let meets: [(&str, Act); 9] = [
        ("set_view", |f| {
            f.set_view(0, &byte(), &byte(), DataRep::Native, &Info::new())
        }),
        ("set_info", |f| f.set_info(&Info::new())),
        ("set_atomicity", |f| f.set_atomicity(false)),
        ("seek_shared", |f| f.seek_shared(0, Whence::Set)),
        ("set_size", |f| f.set_size(500)),
        ("preallocate", |f| f.preallocate(500)),
        ("sync", File::sync),
        ("ordered", |f| {
            f.write(Where::Ordered, true, &mut Source::from_slice(b"x"), &byte())
                .map(drop)
        }),
        ("close", File::close),
    ];
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "owed", rdwr()).unwrap();
        file.set_size(100).unwrap();
        for (k, (name, meet)) in meets.iter().enumerate() {
            let form = k % 4;
            if form == 1 {
                view(&file, DataRep::External32).unwrap();
            }
            assert_eq!(bad(&file, form, rank), rank == 1, "{name}");
            // Calls that do not meet continue.
            write_at(&file, 0, b"0").unwrap();
            let e = meet(&file).unwrap_err();
            assert_eq!(e.class, ErrorClass::Arg, "{name}: {e}");
            assert!(
                e.message.contains("before this call: rank 1"),
                "{name}: {e}"
            );
            // It has done nothing.
            assert_eq!(file.size().unwrap(), 100, "{name}");
            if *name != "close" {
                assert_eq!(file.position_shared().unwrap(), 0, "{name}");
                meet(&file).unwrap();
                view(&file, DataRep::Native).unwrap();
                file.set_size(100).unwrap();
            }
        }
        assert_eq!(file.close().unwrap_err().class, ErrorClass::File);
    });
    // A method that exchanges fails before a byte has moved; a failure on all ranks is not reported again.
    run(2, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "told", rdwr()).unwrap();
        let hints = [("penstock_method", "auto"), ("romio_cb_write", "enable")];
        assert_eq!(bad(&file, 3, rank), rank == 1);
        assert!(file.set_info(&Info::from_iter(hints)).is_err());
        file.set_info(&Info::from_iter(hints)).unwrap();
        assert_eq!(bad(&file, 3, rank), rank == 1, "reads do not exchange");
        let at = Where::At(10 * rank as i64);
        let write = || file.write(at, true, &mut Source::from_slice(&[7; 8]), &byte());
        let e = write().unwrap_err();
        assert!(e.message.contains("before this call: rank 1"), "{e}");
        assert_eq!(file.size().unwrap(), 0);
        assert_eq!(write().unwrap(), 8);
        let apart = Info::from_iter([("penstock_method", "posix")]);
        file.set_info(&apart).unwrap();
        for form in [0, 2] {
            assert!(bad(&file, form, 1));
        }
        file.sync().unwrap();
        file.close().unwrap();
    });
}

fn whoever_goes_another_way_after_an_error_hangs_nobody(site: &TestFileSystem) {
    run(3, |comm| {
        let rank = comm.rank();
        let file = try_open(site, comm, "apart", rdwr()).unwrap();
        let at = Where::At(if rank == 1 { -1 } else { 100 * rank as i64 });
        let mut steps = 0;
        while steps < 5 {
            if file
                .write(at, true, &mut Source::from_slice(&[1; 100]), &byte())
                .is_err()
            {
                break;
            }
            if let Err(e) = file.sync() {
                assert_eq!(e.class, ErrorClass::Arg);
                assert!(e.message.contains("rank 1"), "{e}");
                break;
            }
            steps += 1;
        }
        // Rank 1 is in its close while the others are in their first sync.
        assert_eq!(steps, 0);
        assert_eq!(file.close().is_err(), rank == 1);
    });
    // The same with a collective access by exchange, and with two calls that differ.
    run(2, |comm| {
        let rank = comm.rank();
        let hints = [("penstock_method", "two-phase")];
        let file = site.open(comm, "apart", &hints);
        set_view(
            &file,
            10 * rank as i64,
            &Loop::bytes(10).resized(0, 20).unwrap(),
        );
        let write = || {
            file.write(
                Where::At(0),
                true,
                &mut Source::from_slice(&[1; 100]),
                &byte(),
            )
        };
        write().unwrap();
        let differs = if rank == 0 {
            file.sync()
        } else {
            write().map(drop)
        };
        let e = differs.unwrap_err();
        assert_eq!(e.class, ErrorClass::NotSame, "{e}");
        // Loops that some ranks have not received are sent again.
        write().unwrap();
        if rank == 0 {
            assert_eq!(write().unwrap_err().class, ErrorClass::NotSame);
        }
        file.close().unwrap();
    });
}

fn collective_arguments_agree(site: &TestFileSystem) {
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

fn info_tells_what_was_chosen(site: &TestFileSystem) {
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
        // By a cost model, or because nothing can be cheaper.
        let reason = info.get("penstock_method_reason").unwrap();
        let lean = info.get("penstock_shortcut_chosen") == Some("true");
        let word = if lean { "contiguous" } else { "density" };
        assert!(reason.contains(word), "{reason}");
        assert_eq!(info.get("romio_visibility_immediate"), Some("true"));
        assert_eq!(info.get("cb_nodes"), Some("1"));
        assert_eq!(info.get("penstock_method"), Some("auto"));
        for (key, _) in info.iter() {
            assert!(
                penstock_mpiio::hint_keys().any(|known| known == key),
                "{key} is not in the table"
            );
        }
        // Rank 0's hints are used.
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
