//! Native and external32.
use super::*;

everywhere!(external32_everywhere, external32_other_widths,);

fn int32() -> Datatype {
    let int = Elem::new(ElemKind::Signed, 4, 4).unwrap();
    Datatype::elementary(int, 4, 4).unwrap()
}

fn external32_everywhere(site: &TestFileSystem) {
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
            // A continued read finds the end of the file, or the hole before the next round's data.
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
fn external32_other_widths(site: &TestFileSystem) {
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
