//! Random accesses of all forms against a file that is one vector.
use crate::common::{Cluster, Plan, create};
use penstock_client::{ErrorKind, Form, OpenOptions};
use penstock_datatype::{Loop, Pattern, Source, Target};
use proptest::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const FORMS: [Form; 4] = [
    Form::Contiguous,
    Form::List,
    Form::Structured,
    Form::Shortcut,
];

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        Cluster::start(Plan {
            servers: 5,
            ..Plan::default()
        })
    })
}

fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("/f{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[derive(Debug, Clone)]
struct FileSide {
    disp: i64,
    count: u64,
    block: u64,
    gap: i64,
    /// Rows of the vector, far apart.
    rows: u64,
    row_gap: i64,
    start: u64,
    len: u64,
}

impl FileSide {
    fn pattern(&self) -> Pattern {
        let row = Loop::vector(
            self.count,
            self.block,
            self.block as i64 + self.gap,
            &Loop::bytes(1),
        )
        .unwrap();
        let tile = Loop::vector(self.rows, 1, row.extent() + self.row_gap, &row).unwrap();
        Pattern::new(self.disp, tile, self.start, self.len).unwrap()
    }
}

fn file_side() -> impl Strategy<Value = FileSide> {
    (
        0i64..40_000,
        1u64..60,
        1u64..700,
        0i64..900,
        1u64..5,
        0i64..9000,
        0u64..5000,
        0u64..60_000,
    )
        .prop_map(
            |(disp, count, block, gap, rows, row_gap, start, len)| FileSide {
                disp,
                count,
                block,
                gap,
                rows,
                row_gap,
                start,
                len,
            },
        )
}

/// The memory side: contiguous, blocks with gaps, or blocks backwards.
fn memory(kind: u8, block: u64, len: u64) -> (Pattern, usize) {
    let blocks = len.div_ceil(block).max(1);
    let pattern = match kind {
        0 => Pattern::contiguous(0, len),
        1 => {
            let tile = Loop::bytes(block).resized(0, block as i64 + 3).unwrap();
            Pattern::new(1, tile, 0, len).unwrap()
        }
        _ => {
            let tile = Loop::bytes(block).resized(0, -(block as i64) - 5).unwrap();
            Pattern::new((blocks as i64 - 1) * (block as i64 + 5), tile, 0, len).unwrap()
        }
    };
    let span = pattern.bounds().1.max(1) as usize;
    (pattern, span)
}

#[derive(Debug, Clone)]
enum Step {
    Write(FileSide, usize, u8, u64),
    Read(FileSide, usize, u8, u64),
    /// Any regions, in any order.
    ReadList(Vec<(u64, u64)>, usize),
    SetLen(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let block = prop_oneof![1u64..64, 2000u64..9000];
    let block2 = prop_oneof![1u64..64, 2000u64..9000];
    prop_oneof![
        4 => (file_side(), 0usize..4, 0u8..3, block).prop_map(|(f, a, b, c)| Step::Write(f, a, b, c)),
        4 => (file_side(), 0usize..4, 0u8..3, block2).prop_map(|(f, a, b, c)| Step::Read(f, a, b, c)),
        1 => (proptest::collection::vec((0u64..150_000, 1u64..4000), 1..90), 0usize..4)
            .prop_map(|(l, f)| Step::ReadList(l, f)),
        1 => (0u64..120_000).prop_map(Step::SetLen),
    ]
}

/// Stream bytes before the first that lies at or behind the end.
fn count(offsets: &[u64], len: usize) -> usize {
    offsets.iter().take_while(|&&o| (o as usize) < len).count()
}

fn offsets(pattern: &Pattern) -> Vec<u64> {
    let mut all = Vec::new();
    pattern.for_each_run(|_, r| all.extend((0..r.len).map(|k| r.offset as u64 + k)));
    all
}

fn check_read(
    file: &penstock_client::File,
    model: &[u8],
    access: &Pattern,
    form: Form,
    kind: u8,
    block: u64,
) -> Result<(), TestCaseError> {
    let at = offsets(access);
    let (pattern, span) = memory(kind, block, access.len);
    let mut bytes = vec![0xEE; span];
    // SAFETY: the pattern's bounds are those of the vector.
    let mut target = unsafe { Target::new(bytes.as_mut_ptr(), pattern.clone()) };
    let got = file.read(access, form, &mut target).unwrap() as usize;
    if !access.is_monotone() && matches!(form, Form::Contiguous | Form::List) {
        // Each operation counts for itself.
        let group = if form == Form::List { 64 } else { 1 };
        let mut runs = Vec::new();
        access.for_each_run(|_, r| runs.push(r.len as usize));
        let (mut sum, mut from) = (0, 0);
        for group in runs.chunks(group) {
            let len: usize = group.iter().sum();
            sum += count(&at[from..from + len], model.len());
            from += len;
        }
        prop_assert_eq!(got, sum);
        return Ok(());
    }
    prop_assert_eq!(got, count(&at, model.len()));
    let mut expect = vec![0xEE; span];
    let places = offsets(&pattern);
    for (s, &o) in at[..got].iter().enumerate() {
        expect[places[s] as usize] = model[o as usize];
    }
    if access.is_monotone() {
        prop_assert_eq!(bytes, expect);
    } else {
        // What lies behind the first byte beyond the end may or may not have been read.
        for s in 0..got {
            prop_assert_eq!(bytes[places[s] as usize], expect[places[s] as usize]);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_access_equals_the_model(
        servers in 1u32..6,
        unit in prop_oneof![Just(1u64), 2u64..50, 51u64..5000, Just(4096), Just(65536)],
        steps in proptest::collection::vec(step(), 1..14),
        seed in any::<u8>(),
    ) {
        let client = cluster().client();
        let unit = if unit < 50 { unit + 20 } else { unit };
        let name = fresh_name();
        let file = client.open(&name, &create(unit, servers)).unwrap();
        let mut model: Vec<u8> = Vec::new();
        let mut stamp = seed;
        for step in &steps {
            match step {
                Step::Write(side, form, kind, block) => {
                    let access = side.pattern();
                    let (pattern, span) = memory(*kind, *block, access.len);
                    stamp = stamp.wrapping_add(1);
                    let bytes: Vec<u8> = (0..span).map(|i| (i as u8).wrapping_mul(31) ^ stamp).collect();
                    // SAFETY: the pattern's bounds are those of the vector.
                    let mut source = unsafe { Source::new(bytes.as_ptr(), pattern.clone()) };
                    let n = file.write(&access, FORMS[*form], &mut source).unwrap();
                    prop_assert_eq!(n, access.len);
                    let places = offsets(&pattern);
                    for (s, o) in offsets(&access).into_iter().enumerate() {
                        let o = o as usize;
                        if model.len() <= o { model.resize(o + 1, 0); }
                        model[o] = bytes[places[s] as usize];
                    }
                }
                Step::Read(side, form, kind, block) => {
                    check_read(&file, &model, &side.pattern(), FORMS[*form], *kind, *block)?;
                }
                Step::ReadList(list, form) => {
                    let list: Vec<_> = list.iter().map(|&(o, l)| (o as i64, l)).collect();
                    let access = Pattern::list(&list).unwrap();
                    check_read(&file, &model, &access, FORMS[*form], 0, 1)?;
                }
                Step::SetLen(len) => {
                    file.set_len(*len).unwrap();
                    model.resize(*len as usize, 0);
                }
            }
            prop_assert_eq!(file.len().unwrap(), model.len() as u64);
        }
        let whole = Pattern::contiguous(0, model.len() as u64 + 10);
        for form in FORMS {
            check_read(&file, &model, &whole, form, 0, 1)?;
        }
        drop(file);
        client.unlink(&name).unwrap();
    }
}

/// Eight writers of interleaved records, two of each form, beside each other on the same stripes.
#[test]
fn disjoint_writers_never_disturb_each_other() {
    let client = cluster().client();
    const RECORD: u64 = 37;
    const WRITERS: u64 = 8;
    const RECORDS: u64 = 300;
    for round in 0..5u8 {
        let name = fresh_name();
        let file = client
            .open(&name, &create(113, 1 + u32::from(round)))
            .unwrap();
        std::thread::scope(|s| {
            for w in 0..WRITERS {
                let file = file.clone();
                s.spawn(move || {
                    let form = FORMS[(w % 4) as usize];
                    let tile = Loop::bytes(RECORD)
                        .resized(0, (RECORD * WRITERS) as i64)
                        .unwrap();
                    let bytes = vec![w as u8 * 16 + round + 1; (RECORD * RECORDS) as usize];
                    let mut source = Source::from_slice(&bytes);
                    let part = RECORD * RECORDS / 3;
                    let mut parts = (0..3).map(|i| {
                        let access =
                            Pattern::new((w * RECORD) as i64, tile.clone(), i * part, part)
                                .unwrap();
                        (i * part, access)
                    });
                    file.write_each(&mut parts, form, &mut source).unwrap();
                });
            }
        });
        let mut all = vec![0; (RECORD * WRITERS * RECORDS) as usize + 1];
        let access = Pattern::contiguous(0, all.len() as u64);
        let n = file
            .read(&access, Form::Structured, &mut Target::from_slice(&mut all))
            .unwrap();
        assert_eq!(n, RECORD * WRITERS * RECORDS);
        for (i, byte) in all[..n as usize].iter().enumerate() {
            let w = (i as u64 / RECORD % WRITERS) as u8;
            assert_eq!(*byte, w * 16 + round + 1, "byte {i} of round {round}");
        }
        client.unlink(&name).unwrap();
    }
}

#[test]
fn the_end_of_the_file_ends_counts_and_leaves_memory_alone() {
    let client = cluster().client();
    let file = client.open(&fresh_name(), &create(10, 3)).unwrap();
    let write = |at: i64, byte: u8, n: u64| {
        let bytes = vec![byte; n as usize];
        file.write(
            &Pattern::contiguous(at, n),
            Form::Contiguous,
            &mut Source::from_slice(&bytes),
        )
        .unwrap()
    };
    // An empty file: nothing is read.
    let read = |at: i64, n: usize, form: Form| {
        let mut bytes = vec![9u8; n];
        let got = file
            .read(
                &Pattern::contiguous(at, n as u64),
                form,
                &mut Target::from_slice(&mut bytes),
            )
            .unwrap();
        (got, bytes)
    };
    for form in FORMS {
        assert_eq!(read(0, 5, form), (0, vec![9; 5]));
    }
    // Bytes 25..27 are on the third server; the first two are empty.
    write(25, 1, 2);
    assert_eq!(file.len().unwrap(), 27);
    for form in FORMS {
        let (got, bytes) = read(0, 40, form);
        assert_eq!(got, 27);
        assert_eq!(bytes[..25], [0; 25]);
        assert_eq!(bytes[25..27], [1; 2]);
        assert_eq!(bytes[27..], [9; 13]);
        assert_eq!(read(27, 4, form).0, 0);
        assert_eq!(read(26, 4, form).0, 1);
        assert_eq!(read(1000, 4, form), (0, vec![9; 4]));
    }
    // Many small reads across the end.
    for form in FORMS {
        let mut bytes = vec![9u8; 4000];
        let mut each = (0..1000u64).map(|i| (i * 4, Pattern::contiguous(i as i64 * 2, 4)));
        let got = file
            .read_each(&mut each, form, &mut Target::from_slice(&mut bytes))
            .unwrap();
        let expect: u64 = (0..1000u64)
            .map(|i| 27u64.saturating_sub(i * 2).min(4))
            .sum();
        assert_eq!(got, expect);
        for i in 0..1000usize {
            for k in 0..4 {
                let expect = match i * 2 + k {
                    25 | 26 => 1,
                    o if o < 27 => 0,
                    _ => 9,
                };
                assert_eq!(bytes[i * 4 + k], expect);
            }
        }
    }
}

#[test]
fn zero_bytes_are_nothing() {
    let client = cluster().client();
    let file = client.open(&fresh_name(), &create(10, 3)).unwrap();
    for form in FORMS {
        let access = Pattern::contiguous(12345, 0);
        assert_eq!(
            file.write(&access, form, &mut Source::from_slice(&[]))
                .unwrap(),
            0
        );
        assert_eq!(
            file.read(&access, form, &mut Target::from_slice(&mut []))
                .unwrap(),
            0
        );
        let mut none = std::iter::empty();
        assert_eq!(
            file.read_each(&mut none, form, &mut Target::from_slice(&mut []))
                .unwrap(),
            0
        );
    }
    assert_eq!(file.len().unwrap(), 0);
}

#[test]
fn wrong_calls_are_refused_with_a_reason() {
    let client = cluster().client();
    let name = fresh_name();
    let file = client.open(&name, &create(10, 3)).unwrap();
    let mut four = [0u8; 4];
    let negative = Pattern::contiguous(-1, 4);
    let e = file
        .read(
            &negative,
            Form::Structured,
            &mut Target::from_slice(&mut four),
        )
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("negative file offset"), "{e}");
    let e = file
        .write(
            &Pattern::contiguous(0, 5),
            Form::List,
            &mut Source::from_slice(&four),
        )
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    let reader = client.open(&name, &OpenOptions::read()).unwrap();
    let e = reader
        .write(
            &Pattern::contiguous(0, 4),
            Form::Shortcut,
            &mut Source::from_slice(&four),
        )
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Permission);
    let e = client
        .open("/nothing/here", &OpenOptions::read())
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    assert_eq!(e.errno(), 2);
    let exclusive = OpenOptions {
        exclusive: true,
        ..create(10, 3)
    };
    let e = client.open(&name, &exclusive).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Exists);
}

#[test]
fn operations_and_requests_are_counted() {
    let client = cluster().client();
    let file = client.open(&fresh_name(), &create(64 << 10, 4)).unwrap();
    let tile = Loop::bytes(1000).resized(0, 5000).unwrap();
    let access = Pattern::new(0, tile, 0, 1_000_000).unwrap();
    let bytes = vec![1u8; 1_000_000];
    for (form, operations) in [
        (Form::Contiguous, 1000),
        (Form::List, 16),
        (Form::Structured, 1),
    ] {
        file.write(&access, form, &mut Source::from_slice(&bytes))
            .unwrap();
        let counts = file.stats().form(form);
        assert_eq!(counts.operations, operations, "{form:?}");
        assert_eq!(counts.bytes_written, 1_000_000);
    }
    let stats = file.stats();
    assert_eq!(stats.structured.requests, 4, "one request per server");
    assert_eq!(stats.loops_sent, 4);
    // The second time the servers know the loop.
    file.write(&access, Form::Structured, &mut Source::from_slice(&bytes))
        .unwrap();
    assert_eq!(file.stats().loops_sent, 4);
    assert_eq!(file.stats().structured.requests, 8);
}

/// The first of two servers answers before the file is written, and is asked for its length afterwards. Bytes written
/// in between are read again, from where they are. Blocks 13 and 16 follow each other in the object and in the memory,
/// and in the file they do not.
#[test]
fn what_comes_into_being_during_a_read_is_read_where_it_is() {
    const BLOCK: u64 = 1000;
    let cluster = Cluster::start(Plan {
        servers: 2,
        tcp: true,
        plain: true,
        ..Plan::default()
    });
    let (net, far) = crate::common::net::Net::before(&cluster.deployment);
    let client = penstock_client::Client::connect(&far, Default::default()).unwrap();
    let file = client.open("/f", &create(2 * BLOCK, 2)).unwrap();
    let read = || {
        let tile = Loop::bytes(BLOCK).resized(0, 3 * BLOCK as i64).unwrap();
        let access = Pattern::new(7 * BLOCK as i64, tile, 0, 4 * BLOCK).unwrap();
        let mut bytes = vec![0; 4 * BLOCK as usize];
        file.read(
            &access,
            Form::Structured,
            &mut Target::from_slice(&mut bytes),
        )
        .unwrap();
        bytes
    };
    // Everything is open afterwards: the next read is one request, and then one for the length.
    read();
    net.hold(1);
    std::thread::scope(|s| {
        let reader = s.spawn(read);
        drop(net.wait(|held| !held.is_empty()));
        let other = cluster.client();
        let theirs = other.open("/f", &create(2 * BLOCK, 2)).unwrap();
        let all: Vec<u8> = (0..20 * BLOCK).map(|b| (b / BLOCK) as u8).collect();
        theirs
            .write(
                &Pattern::contiguous(0, 20 * BLOCK),
                Form::Contiguous,
                &mut Source::from_slice(&all),
            )
            .unwrap();
        let mut state = net.state.lock().unwrap();
        state.holding = false;
        let held = std::mem::take(&mut state.held);
        let of = state.of;
        std::io::Write::write_all(&mut state.ends[of].1, &held).unwrap();
        drop(state);
        let found = reader.join().unwrap();
        let blocks: Vec<&[u8]> = found.chunks(BLOCK as usize).collect();
        for (n, block) in [7u8, 10, 13, 16].into_iter().zip(blocks) {
            assert!(
                block.iter().all(|b| *b == n) || block.iter().all(|b| *b == 0),
                "block {n}: {:?}",
                &block[..4]
            );
        }
        // Of the first server at least, which was asked for its length when all was there.
        assert_eq!(found[3 * BLOCK as usize], 16);
    });
}
