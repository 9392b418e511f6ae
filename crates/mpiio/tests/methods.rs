//! Every method, collective and independent, reading and writing, over several kinds of pattern, against a flat model.
use crate::common::{Memory, TestFileSystem, byte, flatten, mark, of};
use penstock_datatype::{Distribution, Loop, Order, Pattern};
use penstock_mpiio::testing::run;
use penstock_mpiio::{Amode, DataRep, Info, Whence, Where};

const METHODS: [&str; 8] = [
    "auto",
    "posix",
    "sieve",
    "two-phase",
    "list",
    "datatype",
    "node-exchange",
    "resonant",
];
const RANKS: usize = 4;

/// The access of one rank: view displacement, filetype, first stream byte, bytes, and memory layout.
struct Case {
    name: &'static str,
    disp: u64,
    filetype: Loop,
    position: u64,
    bytes: u64,
    memory: Loop,
}

fn vector(count: u64, blocklen: u64, stride: i64) -> Loop {
    Loop::vector(count, blocklen, stride, &Loop::bytes(1)).unwrap()
}

/// Disjoint patterns of all ranks, small enough to be quick and larger than the buffers used below.
fn cases(rank: usize) -> Vec<Case> {
    let r = rank as i64;
    let plain = Loop::bytes(1);
    let case = |name, disp, filetype, position, bytes, memory: &Loop| Case {
        name,
        disp,
        filetype,
        position,
        bytes,
        memory: memory.clone(),
    };
    let block = Loop::darray(
        4,
        rank as u64,
        &[24, 20, 30],
        &[
            Distribution::Block(None),
            Distribution::Block(None),
            Distribution::None,
        ],
        &[2, 2, 1],
        Order::C,
        &Loop::bytes(4),
    )
    .unwrap();
    let holey = Loop::indexed(&[5, 1, 30], &[3, 9, 200], &plain)
        .unwrap()
        .resized(0, 1000)
        .unwrap();
    let scattered = Loop::indexed(&[1, 7, 2], &[-9, -4, 20], &plain)
        .unwrap()
        .resized(-16, 64)
        .unwrap();
    vec![
        case(
            "contiguous",
            0,
            plain.clone(),
            70_000 * rank as u64,
            70_000,
            &plain,
        ),
        case(
            "interleaved",
            (r * 50) as u64,
            vector(1, 50, 50).resized(0, 200).unwrap(),
            0,
            30_000,
            &plain,
        ),
        case(
            "interleaved, not from the start",
            (7 + r * 50) as u64,
            vector(3, 50, 200).resized(0, 600).unwrap(),
            1234,
            20_001,
            &scattered,
        ),
        case("3-D block", 11, block.clone(), 0, block.size(), &plain),
        case(
            "3-D block, scattered memory",
            11,
            block.clone(),
            0,
            block.size(),
            &scattered,
        ),
        case(
            "holes",
            (r * 240) as u64,
            holey,
            17,
            9_000,
            &vector(1, 3, 8).resized(0, 8).unwrap(),
        ),
        case(
            "only some ranks",
            1000,
            plain.clone(),
            (r * 10_000) as u64,
            if rank.is_multiple_of(2) { 5_000 } else { 0 },
            &plain,
        ),
        case(
            "sparse",
            (r * (1 << 30)) as u64,
            plain.clone(),
            5,
            3_000,
            &plain,
        ),
    ]
}

fn hints(method: &'static str) -> Vec<(&'static str, &'static str)> {
    // Small buffers, so that accesses take several rounds.
    vec![
        ("penstock_method", method),
        ("cb_buffer_size", "16384"),
        ("ind_rd_buffer_size", "8192"),
        ("ind_wr_buffer_size", "8192"),
        ("penstock_exchange_buffer_size", "8192"),
        ("penstock_resonant_buffer_size", "16384"),
        ("cb_nodes", "3"),
    ]
}

/// The expected file: each (rank, case) at its place, over `old`.
fn model(case: usize, old: u8, size: usize) -> Vec<u8> {
    let mut file = vec![old; size];
    for rank in 0..RANKS {
        let case = &cases(rank)[case];
        let pattern = Pattern::new(
            case.disp as i64,
            case.filetype.clone(),
            case.position,
            case.bytes,
        )
        .unwrap();
        let mut at = 0;
        for (offset, len) in flatten(&pattern) {
            for i in 0..len {
                file[(offset as u64 + i) as usize] = mark(rank, at);
                at += 1;
            }
        }
    }
    file
}

fn check_method(site: &TestFileSystem, method: &'static str, shortcut: &'static str) {
    for (index, case) in cases(0).iter().enumerate() {
        let sparse = case.name == "sparse";
        for collective in [true, false] {
            let name = format!("{method}-{index}-{collective}");
            let what = format!("{method}, {}, collective {collective}", case.name);
            // The file has contents already, so that changed holes and lost updates are detected.
            let before = 300_000;
            if !sparse {
                run(1, |comm| {
                    let file = site.open(comm, &name, &[]);
                    let old = Memory {
                        bytes: vec![0x55; before],
                        base: 0,
                        pattern: Pattern::contiguous(0, before as u64),
                    };
                    file.write(Where::At(0), false, &mut old.source(), &byte())
                        .unwrap();
                    file.close().unwrap();
                });
            }
            run(RANKS, |comm| {
                let rank = penstock_mpiio::Comm::rank(&comm);
                let case = &cases(rank)[index];
                let mut hints = hints(method);
                hints.push(("penstock_shortcut", shortcut));
                let file = site.open(comm, &name, &hints);
                file.set_view(
                    case.disp as i64,
                    &byte(),
                    &of(case.filetype.clone()),
                    DataRep::Native,
                    &Info::new(),
                )
                .unwrap();
                file.seek(case.position as i64, Whence::Set).unwrap();
                let memory = Memory::filled(&case.memory, case.bytes, rank);
                let memtype = of(case.memory.clone());
                let written = file
                    .write(
                        Where::Individual,
                        collective,
                        &mut memory.source(),
                        &memtype,
                    )
                    .unwrap();
                assert_eq!(written, case.bytes, "{what}");
                assert_eq!(
                    file.position().unwrap(),
                    (case.position + case.bytes) as i64,
                    "{what}"
                );
                file.sync().unwrap();
                let mut back = Memory::new(&case.memory, case.bytes);
                let read = file
                    .read(
                        Where::At(case.position as i64),
                        collective,
                        &mut back.target(),
                        &memtype,
                    )
                    .unwrap();
                assert_eq!(read, case.bytes, "{what}");
                assert!(
                    back.stream() == memory.stream(),
                    "{what}: rank {rank} reads other bytes"
                );
                back.check_surroundings();
                file.close().unwrap();
            });
            if !sparse {
                let contents = site.contents(&name);
                let want = model(index, 0x55, contents.len().max(before));
                let wrong = contents.iter().zip(&want).position(|(a, b)| a != b);
                assert_eq!((contents.len(), wrong), (want.len(), None), "{what}");
            }
        }
    }
}

macro_rules! methods {
    ($($name:ident $method:literal),*) => {
        mod direct {
            $(#[test] fn $name() { super::check_method(&super::TestFileSystem::direct(), $method, "automatic"); })*
        }
        mod requests {
            $(#[test] fn $name() { super::check_method(&super::TestFileSystem::servers(3), $method, "disable"); })*
        }
        mod shortcuts {
            $(#[test] fn $name() { super::check_method(&super::TestFileSystem::servers(3), $method, "enable"); })*
        }
    };
}
methods!(
    auto "auto", posix "posix", sieve "sieve", two_phase "two-phase", list "list", datatype "datatype",
    node_exchange "node-exchange", resonant "resonant"
);

/// Reads at and beyond the end of the file count the existing bytes, and do not change the rest of the memory.
fn check_end(site: &TestFileSystem) {
    let len = 10_123;
    run(1, |comm| {
        let file = site.open(comm, "end", &[]);
        let memory = Memory::filled(&Loop::bytes(1), len, 9);
        file.write(Where::At(0), false, &mut memory.source(), &byte())
            .unwrap();
        file.close().unwrap();
    });
    for method in METHODS {
        for collective in [true, false] {
            run(RANKS, |comm| {
                let rank = penstock_mpiio::Comm::rank(&comm) as u64;
                let file = site.open_mode(comm, "end", Amode::RDONLY, &hints(method));
                let filetype = vector(1, 50, 50).resized(0, 200).unwrap();
                file.set_view(
                    (rank * 50) as i64,
                    &byte(),
                    &of(filetype),
                    DataRep::Native,
                    &Info::new(),
                )
                .unwrap();
                // Bytes of this rank's stream before the end.
                let there = (0..len).filter(|i| i / 50 % 4 == rank).count() as u64;
                for from in [0, 1000, there - 1, there, there + 10_000] {
                    let mut back = Memory::new(&Loop::bytes(1), 4_000);
                    let got = file
                        .read(
                            Where::At(from as i64),
                            collective,
                            &mut back.target(),
                            &byte(),
                        )
                        .unwrap();
                    let want = there.saturating_sub(from).min(4_000);
                    assert_eq!(
                        got, want,
                        "{method} collective {collective} rank {rank} from {from}"
                    );
                    let stream = back.stream();
                    for (i, byte) in stream.iter().enumerate() {
                        let s = from + i as u64;
                        let offset = s / 50 * 200 + rank * 50 + s % 50;
                        let want = if (i as u64) < want {
                            mark(9, offset)
                        } else {
                            0xEE
                        };
                        assert_eq!(*byte, want, "{method} rank {rank} byte {i} of {from}");
                    }
                }
                file.close().unwrap();
            });
        }
    }
}

#[test]
fn direct_end_of_file() {
    check_end(&TestFileSystem::direct());
}

#[test]
fn servers_end_of_file() {
    check_end(&TestFileSystem::servers(3));
}

/// Disjoint writers never lose a byte: a strided one and a contiguous one, repeatedly.
fn check_disjoint(site: &TestFileSystem) {
    const PIECES: u64 = 300;
    const PIECE: u64 = 16;
    for method in METHODS {
        run(2, |comm| {
            let rank = penstock_mpiio::Comm::rank(&comm);
            let file = site.open(comm, &format!("disjoint-{method}"), &[]);
            let [alone] = penstock_mpiio::testing::ThreadComm::group(1)
                .try_into()
                .unwrap_or_else(|_| panic!());
            let mine = site.open(alone, &format!("disjoint-{method}"), &hints(method));
            for round in 0..20_u8 {
                let bytes = vec![1 + round + 100 * rank as u8; (PIECES * PIECE) as usize];
                let memory = Memory {
                    pattern: Pattern::contiguous(0, bytes.len() as u64),
                    base: 0,
                    bytes,
                };
                if rank == 0 {
                    let tile = Loop::bytes(PIECE).resized(0, 2 * PIECE as i64).unwrap();
                    mine.set_view(0, &byte(), &of(tile), DataRep::Native, &Info::new())
                        .unwrap();
                    mine.write(Where::At(0), false, &mut memory.source(), &byte())
                        .unwrap();
                } else {
                    for k in 0..PIECES {
                        let piece = Memory {
                            bytes: memory.bytes[..PIECE as usize].to_vec(),
                            base: 0,
                            pattern: Pattern::contiguous(0, PIECE),
                        };
                        let at = Where::At(((2 * k + 1) * PIECE) as i64);
                        mine.write(at, false, &mut piece.source(), &byte()).unwrap();
                    }
                }
                file.sync().unwrap();
                if rank == 0 {
                    let contents = site.contents(&format!("disjoint-{method}"));
                    for (i, byte) in contents.iter().enumerate() {
                        let strided = (i as u64 / PIECE).is_multiple_of(2);
                        let want = if strided { 1 + round } else { 101 + round };
                        assert_eq!(*byte, want, "{method}, round {round}, byte {i}");
                    }
                }
                file.sync().unwrap();
            }
            mine.close().unwrap();
            file.close().unwrap();
        });
    }
}

#[test]
fn direct_disjoint_writers() {
    check_disjoint(&TestFileSystem::direct());
}

#[test]
fn servers_disjoint_writers() {
    check_disjoint(&TestFileSystem::servers(2));
}

/// A contiguous access by descriptors is counted as what it is, and hints and atomic mode are respected.
#[test]
fn lean_accesses_are_kept_in_the_books() {
    let site = TestFileSystem::servers(3);
    run(1, |comm| {
        let file = site.open(comm, "lean", &[]);
        let memory = Memory::filled(&Loop::bytes(1), 10_000, 4);
        let write = |at| {
            file.write(Where::At(at), false, &mut memory.source(), &byte())
                .unwrap()
        };
        let read = |at| {
            let mut back = Memory::new(&Loop::bytes(1), 10_000);
            let n = file
                .read(Where::At(at), false, &mut back.target(), &byte())
                .unwrap();
            assert!(back.stream()[..n as usize] == memory.stream()[..n as usize]);
            n
        };
        assert_eq!((write(500), read(500)), (10_000, 10_000));
        let info = file.info();
        assert_eq!(info.get("penstock_method_chosen"), Some("datatype"));
        assert_eq!(info.get("penstock_shortcut_chosen"), Some("true"));
        let summary = file.summary();
        for direction in [&summary.read, &summary.write] {
            assert_eq!((direction.calls, direction.bytes), (1, 10_000));
            let counts = &direction.methods["datatype"];
            assert_eq!((counts.operations, counts.shortcut_calls), (1, 1));
            assert_eq!(counts.accessed_bytes, 10_000);
            assert_eq!(counts.model.operations, 1);
            assert_eq!(counts.model.accessed_bytes, 10_000);
        }
        for (hint, value, chosen, is) in [
            (
                "penstock_shortcut",
                "disable",
                "penstock_shortcut_chosen",
                "false",
            ),
            ("penstock_method", "list", "penstock_method_chosen", "list"),
            (
                "penstock_method",
                "auto",
                "penstock_shortcut_chosen",
                "false",
            ),
            (
                "penstock_shortcut",
                "automatic",
                "penstock_shortcut_chosen",
                "true",
            ),
            ("romio_ds_read", "enable", "penstock_method_chosen", "sieve"),
        ] {
            file.set_info(&Info::from_iter([(hint, value)])).unwrap();
            assert_eq!(read(500), 10_000);
            assert_eq!(file.info().get(chosen), Some(is), "{hint}={value}");
        }
        file.set_info(&Info::from_iter([("romio_ds_read", "automatic")]))
            .unwrap();
        // At the end, and in atomic mode, the general path is taken.
        assert_eq!(file.size().unwrap(), 10_500);
        file.set_size(10_499).unwrap();
        let mut back = Memory::new(&Loop::bytes(1), 10_000);
        let n = file
            .read(Where::At(500), false, &mut back.target(), &byte())
            .unwrap();
        assert_eq!(n, 9_999);
        file.set_atomicity(true).unwrap();
        assert_eq!((write(0), read(0)), (10_000, 10_000));
        file.set_atomicity(false).unwrap();
        assert_eq!((write(700), read(700)), (10_000, 10_000));
        file.close().unwrap();
    });
}
