//! Streams of records: what is written comes back, regular programs take few bytes, and damage is said with its place.
#![allow(clippy::unwrap_used)]
use penstock_base::Random;
use penstock_trace::{
    Caller, Error, FileName, Layer, Link, Operation, Owner, Parent, Record, Stream, StreamHead,
    StreamWriter, Trace, make_directory,
};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn head() -> StreamHead {
    StreamHead {
        host: "node1".into(),
        pid: 17,
        program: u64::MAX - 5,
        rank: 3,
        began: 1_700_000_000_000_000_000,
        command: "./app a \"b\"".into(),
        ..StreamHead::default()
    }
}

fn write(path: &Path, records: &[Record], links: &[Vec<Link>], per_block: usize) {
    let mut writer = StreamWriter::create(path, &head()).unwrap();
    assert_eq!(writer.name_file("/data/a"), 1);
    assert_eq!(writer.name_file("/data/b"), 2);
    assert_eq!(writer.name_file("/data/a"), 1);
    for (i, record) in records.iter().enumerate() {
        let links = links.get(i).map_or(&[][..], |l| l);
        writer.push_linked(record, links).unwrap();
        if (i + 1) % per_block == 0 {
            writer.flush().unwrap();
        }
    }
    let summary = writer.finish(7).unwrap();
    assert_eq!((summary.events, summary.dropped), (records.len() as u64, 7));
    assert_eq!(summary.bytes, std::fs::metadata(path).unwrap().len());
}

fn any_record() -> impl Strategy<Value = Record> {
    let number = || prop_oneof![0u64..4, any::<u64>()];
    let parent = prop_oneof![
        Just(Parent::None),
        number().prop_map(Parent::Here),
        (number(), 0u32..3, number()).prop_map(|(program, rank, call)| {
            Parent::Caller(Caller {
                program,
                rank,
                call,
            })
        }),
    ];
    (
        (number(), parent, 0usize..13, 0u16..3, 0u32..3),
        (number(), number(), number(), number()),
        (
            -1i32..2,
            0u32..2,
            prop_oneof![Just(u32::MAX), 0u32..2],
            number(),
        ),
    )
        .prop_map(|(a, b, c)| Record {
            id: a.0,
            parent: a.1,
            layer: Layer::ALL[a.2],
            operation: Operation(a.3),
            file: a.4,
            offset: b.0,
            bytes: b.1,
            begin: b.2,
            duration: b.3,
            error: c.0,
            thread: c.1,
            server: c.2,
            code: c.3,
        })
}

fn any_link() -> impl Strategy<Value = Link> {
    let number = || prop_oneof![0u64..4, any::<u64>()];
    let owner = prop_oneof![
        (number(), 0u32..3, number()).prop_map(|(program, rank, call)| {
            Owner::Call(Caller {
                program,
                rank,
                call,
            })
        }),
        Just(Owner::Flush),
        Just(Owner::ReadAhead),
        Just(Owner::Migration),
    ];
    (owner, number()).prop_map(|(owner, bytes)| Link { owner, bytes })
}

proptest! {
    #[test]
    fn what_is_written_comes_back(
        rows in proptest::collection::vec((any_record(), proptest::collection::vec(any_link(), 0..3)), 0..80),
        per_block in 1usize..50,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.trace");
        let (records, links): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        write(&path, &records, &links, per_block);
        let stream = Stream::open(&path).unwrap();
        prop_assert!(stream.damage().is_none());
        prop_assert_eq!(stream.head(), &head());
        let read: Vec<Record> = stream.records().map(Result::unwrap).collect();
        prop_assert_eq!(&read, &records);
        let mut links_read = Vec::new();
        for info in stream.blocks() {
            let block = stream.read(info).unwrap();
            for place in 0..block.records.len() {
                links_read.push(block.links_of(place).iter().map(|l| l.1).collect::<Vec<_>>());
            }
        }
        prop_assert_eq!(links_read, links);
    }
}

/// Times of a generator: about `mean`, give or take a tenth.
fn about(random: &mut Random, mean: u64) -> u64 {
    mean - mean / 10 + random.below(mean / 5 + 1)
}

/// Records of a rank whose program writes and reads regularly, in the order in which they end. Each MPI call has a
/// client call with its requests to `servers` servers. Variables of an array are written one after the other, as checkpoints are.
fn program(calls: u64, servers: u64, variables: u64) -> Vec<Record> {
    let mut random = Random::new(42);
    let (mut out, mut id, mut now) = (Vec::new(), 0, 1_000_000);
    for call in 0..calls {
        let bytes = (1 + call % variables) * (256 << 10);
        let offset = call * (64 << 20);
        let write = (call / variables).is_multiple_of(2);
        let (mpi, client) = (id + 1, id + 2);
        id += 2;
        let begin = now;
        let client_begin = begin + about(&mut random, 400);
        let (mut sent, mut over) = (client_begin + about(&mut random, 900), 0);
        let operation = if write {
            Operation::WRITE
        } else {
            Operation::READ
        };
        for server in 0..servers {
            id += 1;
            let duration = about(&mut random, 30_000);
            out.push(Record {
                id,
                parent: Parent::Here(client),
                file: 1,
                offset: offset / servers,
                bytes: bytes / servers,
                begin: sent,
                duration,
                server: server as u32,
                ..Record::new(Layer::Request, operation)
            });
            over = over.max(sent + duration);
            sent += about(&mut random, 300);
        }
        let client_end = over + about(&mut random, 300);
        out.push(Record {
            id: client,
            parent: Parent::Here(mpi),
            file: 1,
            offset,
            bytes,
            begin: client_begin,
            duration: client_end - client_begin,
            ..Record::new(Layer::Client, operation)
        });
        let end = client_end + about(&mut random, 200);
        let name = if write {
            "MPI_File_write_at_all"
        } else {
            "MPI_File_read_at_all"
        };
        out.push(Record {
            id: mpi,
            file: 1,
            offset,
            bytes,
            begin,
            duration: end - begin,
            code: 0x55d0_1234_5678,
            ..Record::new(Layer::MpiIo, Operation::from_name(name).unwrap())
        });
        now = end + about(&mut random, 20_000);
    }
    out
}

/// Records of a server that `ranks` ranks of a program use in an order that nobody can foresee.
fn server(requests: u64, ranks: u64) -> Vec<Record> {
    let mut random = Random::new(43);
    let mut calls = vec![0; ranks as usize];
    let (mut out, mut now) = (Vec::new(), 1_000_000);
    for request in 0..requests {
        let rank = random.below(ranks);
        let call = calls[rank as usize];
        calls[rank as usize] += 1;
        let id = 1 + 3 * request;
        now += about(&mut random, 20_000);
        let waited = about(&mut random, 3_000);
        let stored = about(&mut random, 15_000);
        let common = Record {
            file: 1,
            offset: (call * ranks + rank) * (64 << 10),
            bytes: 64 << 10,
            server: 2,
            ..Record::new(Layer::Server, Operation::WRITE)
        };
        out.push(Record {
            id,
            parent: Parent::Caller(Caller {
                program: 0x1234_5678_9abc,
                rank: rank as u32,
                call: 1 + 4 * call,
            }),
            begin: now,
            duration: waited + stored + about(&mut random, 500),
            ..common
        });
        out.push(Record {
            id: id + 1,
            parent: Parent::Here(id),
            layer: Layer::Queue,
            begin: now,
            duration: waited,
            ..common
        });
        out.push(Record {
            id: id + 2,
            parent: Parent::Here(id),
            layer: Layer::Store,
            begin: now + waited,
            duration: stored,
            ..common
        });
    }
    out
}

/// Bytes on disk of a record.
fn size(records: &[Record], of: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    write(&path, records, &[], usize::MAX);
    let read: Vec<Record> = Stream::open(&path)
        .unwrap()
        .records()
        .map(Result::unwrap)
        .collect();
    assert_eq!(read, records);
    std::fs::metadata(&path).unwrap().len() as f64 / of as f64
}

#[test]
fn regular_programs_take_few_bytes() {
    let calls = 20_000;
    let one = size(&program(calls, 1, 1), calls);
    let four = size(&program(calls, 4, 1), calls);
    let variables = size(&program(calls, 4, 24), calls);
    let requests = 20_000;
    let events = 3 * requests;
    let few = size(&server(requests, 8), events);
    let many = size(&server(requests, 1024), events);
    println!(
        "bytes an MPI call with all below it: {one:.2} (1 server), {four:.2} (4), {variables:.2} (4, 24 variables); \
         bytes a server event: {few:.2} (8 ranks), {many:.2} (1024 ranks)"
    );
    assert!(one <= 8.0, "{one}");
    assert!(four <= 16.0, "{four}");
    assert!(variables <= 20.0, "{variables}");
    assert!(few <= 5.0, "{few}");
    assert!(many <= 6.0, "{many}");
}

#[test]
fn a_repeated_sequence_with_constant_strides_is_one_run() {
    // Without jitter nothing is left but two bits a record.
    let records: Vec<Record> = (0..16_000u64)
        .map(|i| {
            let (round, step) = (i / 5, i % 5);
            Record {
                id: i + 1,
                parent: if step == 0 {
                    Parent::None
                } else {
                    Parent::Here(i + 1 - step)
                },
                offset: round * 1_000_000 + step * 7,
                bytes: 100 + step,
                begin: i * 1000,
                duration: 500,
                thread: (step / 3) as u32,
                ..Record::new(Layer::Posix, Operation(64 + step as u16))
            }
        })
        .collect();
    let bytes = size(&records, 1);
    assert!(bytes < 5_500.0, "{bytes}");
}

fn damaged(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    let other = path.with_extension("damaged.trace");
    std::fs::write(&other, bytes).unwrap();
    other
}

#[test]
fn a_stream_is_read_up_to_where_it_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    let records = program(500, 1, 1);
    write(&path, &records, &[], 100);
    let size = std::fs::metadata(&path).unwrap().len() as usize;
    let mut seen = 0;
    for length in (0..size).rev().step_by(61).chain([size - 1, 1, 0]) {
        let cut = damaged(&path, |bytes| bytes.truncate(length));
        match Stream::open(&cut) {
            Ok(stream) => {
                let error = stream.damage().expect("the end is missing");
                assert!(matches!(error, Error::Truncated { .. }), "{error}");
                let whole = stream.records().filter_map(Result::ok).count();
                assert_eq!(whole % 100, 0);
                assert!(
                    stream
                        .records()
                        .filter_map(Result::ok)
                        .eq(records[..whole].iter().copied())
                );
                seen += 1;
            }
            Err(error) => assert!(matches!(error, Error::NotATrace { .. }), "{error}"),
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn a_damaged_block_is_named_and_those_behind_it_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    let records = program(500, 1, 1);
    write(&path, &records, &[], 100);
    let stream = Stream::open(&path).unwrap();
    let third = stream.blocks()[2];
    let bad = damaged(&path, |bytes| bytes[third.at as usize + 60] ^= 1);
    let stream = Stream::open(&bad).unwrap();
    let (mut read, mut errors) = (0, Vec::new());
    for record in stream.records() {
        match record {
            Ok(_) => read += 1,
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(read, records.len() - 100);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0]
            .to_string()
            .contains(&format!("block at byte {}", third.at))
    );
    // In the head of a block everything behind is out of reach, and that is said.
    let bad = damaged(&path, |bytes| bytes[third.at as usize + 9] ^= 1);
    let stream = Stream::open(&bad).unwrap();
    assert_eq!(stream.summary().events, 200);
    assert!(matches!(stream.damage(), Some(Error::Damaged { at, .. }) if at == third.at));
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    write(&path, &program(20, 2, 1), &[], 30);
    let size = std::fs::metadata(&path).unwrap().len() as usize;
    for at in 0..size {
        let bad = damaged(&path, |bytes| bytes[at] ^= 0x10);
        if let Ok(stream) = Stream::open(&bad) {
            assert!(stream.records().any(|r| r.is_err()), "byte {at}");
        }
    }
}

#[test]
fn other_files_and_versions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    write(&path, &[], &[], 1);
    let text = |change: &dyn Fn(&mut Vec<u8>)| {
        let path = damaged(&path, |bytes| change(bytes));
        Stream::open(&path).unwrap_err().to_string()
    };
    assert!(text(&|b| b[8] = 2).contains("penstock trace convert"));
    assert!(text(&|b| b[8] = 4).contains("the `penstock` that wrote it"));
    assert!(text(&|b| b[0] = b'Q').contains("begins with something else"));
    assert!(text(&|b| b.clear()).contains("empty"));
    assert!(text(&|b| b[20] ^= 1).contains("header is damaged"));
    assert!(text(&|b| b[15] = 0xff).contains("impossible length"));
}

#[test]
fn a_trace_is_a_directory_for_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("a/b");
    make_directory(&trace).unwrap();
    assert_eq!(
        std::fs::metadata(&trace).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert!(
        Trace::open(&trace)
            .unwrap_err()
            .to_string()
            .contains("no file *.trace")
    );
    let part = trace.join("data-0.trace");
    write(&part, &program(3, 1, 1), &[], 100);
    assert_eq!(
        std::fs::metadata(&part).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // What is there is never replaced.
    assert!(StreamWriter::create(&part, &head()).is_err());
    std::fs::write(trace.join("data-1.trace"), "something").unwrap();
    std::fs::write(trace.join("notes"), "else").unwrap();
    let opened = Trace::open(&trace).unwrap();
    assert_eq!((opened.streams.len(), opened.unread.len()), (1, 1));
    let files: Vec<_> = opened.streams[0].files().collect();
    let name = |path: &str| FileName {
        path: path.into(),
        id: 0,
    };
    assert_eq!(files, [(1, &name("/data/a")), (2, &name("/data/b"))]);
}

#[test]
fn heads_and_drops_may_change_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    let mut writer = StreamWriter::create(&path, &head()).unwrap();
    writer.set_dropped(5);
    writer.push(&program(1, 1, 1)[0]).unwrap();
    let later = StreamHead {
        job: "77".into(),
        ..head()
    };
    writer.set_head(&later).unwrap();
    writer.flush().unwrap();
    drop(writer);
    // As after kill -9: no end, and yet drops are known.
    let stream = Stream::open(&path).unwrap();
    assert_eq!(stream.head(), &later);
    assert_eq!(stream.summary().dropped, 5);
    assert!(
        stream
            .damage()
            .unwrap()
            .to_string()
            .contains("its writer was killed")
    );
}
