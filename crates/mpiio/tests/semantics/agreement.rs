//! What all ranks learn: errors, arguments that differ, the method chosen.
use super::*;

everywhere!(
    errors_reach_every_rank,
    collective_arguments_agree,
    info_tells_what_was_chosen,
);

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
