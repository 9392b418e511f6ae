//! Bytes through the server: every form of access, pipelining, sizes, lengths.
use crate::common::*;
use penstock_datatype::{Loop, Pattern};
use penstock_layout::FileId;
use penstock_server::Options;
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Handle, Region};
use proptest::prelude::*;

fn pattern_bytes(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

#[test]
fn large_contiguous_transfers_in_both_directions() {
    for store in ["dir", "memory"] {
        let site = TestDeployment::start(1, store, Options::default());
        for tcp in [false, true] {
            let mut c = site.client_as(0, Role::Client, tcp);
            let h = c.attach(site.capability(1 + u64::from(tcp), ALL)).unwrap();
            let data = pattern_bytes(5 << 20, 3);
            c.write(h, contiguous(17, data.len() as u64), &data);
            assert_eq!(c.read(h, contiguous(17, data.len() as u64)), data);
            let mut expected = vec![0; 17];
            expected.extend(&data[..100]);
            assert_eq!(c.read(h, contiguous(0, 117)), expected);
            // Short at the object's end, empty behind it.
            let end = 17 + data.len() as u64;
            assert_eq!(
                c.read(h, contiguous(end - 10, 1 << 20)),
                data[data.len() - 10..]
            );
            assert!(c.read(h, contiguous(end, 10)).is_empty());
            assert_eq!(
                c.ask(DataRequest::Len { handle: h }),
                DataReply::Len { len: end }
            );
            c.synced(h);
        }
    }
}

#[test]
fn small_requests_pipelined() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    let n = 3000u64;
    for round in 0..n / 64 {
        for i in 0..64 {
            let at = (round * 64 + i) * 8;
            c.send_write(h, contiguous(at, 8), None, &at.to_le_bytes(), 8);
        }
        for _ in 0..64 {
            assert_eq!(c.answer().1, DataReply::Written { bytes: 8 });
        }
    }
    let ids: Vec<u64> = (0..64)
        .map(|i| {
            c.queue(&DataRequest::Read {
                handle: h,
                region: contiguous(i * 8, 8),
                lock: None,
            })
        })
        .collect();
    for (i, id) in ids.into_iter().enumerate() {
        let (answered, reply, payload) = c.answer();
        assert_eq!((answered, reply), (id, DataReply::Read { bytes: 8 }));
        assert_eq!(payload, (i as u64 * 8).to_le_bytes());
    }
}

#[test]
fn an_absent_object_reads_as_nothing() {
    let site = TestDeployment::one();
    let mut c = site.client(0);
    let h = c.attach(site.capability(9, READ)).unwrap();
    assert!(c.read(h, contiguous(0, 100)).is_empty());
    assert_eq!(
        c.ask(DataRequest::Len { handle: h }),
        DataReply::Len { len: 0 }
    );
    c.synced(h);
    // Looking made nothing.
    let mut admin = site.client_as(0, Role::Admin, false);
    let page = admin.ask(DataRequest::ListObjects {
        after: None,
        limit: 10,
    });
    assert_eq!(
        page,
        DataReply::Objects {
            objects: vec![],
            more: false
        }
    );
}

#[test]
fn extending_cuts_nothing_off_that_others_append() {
    for store in ["dir", "memory"] {
        appended_and_extended(&TestDeployment::start(1, store, Options::default()));
    }
}

#[test]
fn lengths_holes_and_removal() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 5);
    let len = |c: &mut Client| match c.ask(DataRequest::Len { handle: h }) {
        DataReply::Len { len } => len,
        other => panic!("{other:?}"),
    };
    c.write(h, contiguous(1000, 3), b"end");
    assert_eq!(len(&mut c), 1003);
    assert_eq!(c.read(h, contiguous(998, 10)), b"\0\0end");
    c.done(DataRequest::SetLen { handle: h, len: 10 });
    assert_eq!(len(&mut c), 10);
    c.done(DataRequest::SetLen {
        handle: h,
        len: 1001,
    });
    assert_eq!(c.read(h, contiguous(999, 10)), b"\0\0");
    c.done(DataRequest::Allocate {
        handle: h,
        len: 1 << 20,
    });
    let capability = site.capability(5, ALL);
    c.done(DataRequest::Remove {
        capability: capability.clone(),
    });
    // Who has it open goes on; its name is gone.
    c.write(h, contiguous(0, 3), b"new");
    assert_eq!(c.read(h, contiguous(0, 3)), b"new");
    // Removing what is not there is no error: no byte of the file may have come here.
    c.done(DataRequest::Remove { capability });
    // A file that was removed before its first byte came leaves nothing behind either.
    let (mut d, late) = site.open(0, 6);
    d.done(DataRequest::Remove {
        capability: site.capability(6, ALL),
    });
    d.write(late, contiguous(0, 4), b"late");
    assert_eq!(d.read(late, contiguous(0, 4)), b"late");
    let mut admin = site.client_as(0, Role::Admin, false);
    let page = admin.ask(DataRequest::ListObjects {
        after: None,
        limit: 10,
    });
    assert_eq!(
        page,
        DataReply::Objects {
            objects: vec![],
            more: false
        }
    );
}

#[test]
fn loops_are_learnt_once_and_known_by_hash() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    let tile = Loop::vector(4, 1, 32, &Loop::bytes(8)).unwrap();
    let p = Pattern::new(4, tile, 0, 32).unwrap();
    let data = pattern_bytes(32, 0);
    // Unknown: the payload is skipped, the connection stays in step.
    let reply = c.write_with(h, by_hash(&p), None, &data, 10);
    assert_eq!(reply, DataReply::UnknownLoop);
    c.write(h, inline(&p), &data);
    let (mut other, g) = site.open(0, 1);
    assert_eq!(other.read(g, by_hash(&p)), data);
    let all = other.read(g, contiguous(0, 200));
    for i in 0..4 {
        assert_eq!(all[4 + i * 32..][..8], data[i * 8..][..8]);
    }
    let broken = Region::LoopInline {
        encoded: vec![7; 40],
        disp: 0,
        start: 0,
        len: 1,
    };
    let e = other.refused(DataRequest::Read {
        handle: g,
        region: broken,
        lock: None,
    });
    assert_eq!(e.kind, ErrorKind::Malformed);
    assert_eq!(other.read(g, by_hash(&p)), data);
}

#[test]
fn payload_and_access_must_agree() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    // Too short, too long, both in many frames; what fits is written, the connection stays usable.
    let short = c.write_with(h, contiguous(0, 100), None, &[1; 60], 7);
    assert_eq!(kind(&short), ErrorKind::InvalidArgument);
    let long = c.write_with(h, contiguous(0, 100), None, &[2; 160], 7);
    assert_eq!(kind(&long), ErrorKind::InvalidArgument);
    let all = c.read(h, contiguous(0, 200));
    assert_eq!(all, [2; 100]);
    let beyond = c.write_with(h, contiguous(u64::MAX - 1, 2), None, &[0; 2], 7);
    assert_eq!(kind(&beyond), ErrorKind::InvalidArgument);
    let unknown = c.write_with(Handle(77), contiguous(0, 9), None, &[0; 9], 2);
    assert_eq!(kind(&unknown), ErrorKind::InvalidArgument);
    // A request with payload that has none.
    let e = c.envelope();
    c.connection
        .queue_payload(&e.more(true), &DataRequest::Status, &[0; 9])
        .unwrap();
    c.connection.queue_continuation(&e, &[0; 9]).unwrap();
    assert_eq!(kind(&c.answer().1), ErrorKind::InvalidArgument);
    assert_eq!(c.read(h, contiguous(0, 1)), [2]);
}

#[test]
fn a_pattern_that_runs_backwards_keeps_its_order() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    let tile = Loop::vector(4, 1, -16, &Loop::bytes(8)).unwrap();
    let p = Pattern::new(48, tile, 0, 32).unwrap();
    c.write(h, inline(&p), &pattern_bytes(32, 1));
    assert_eq!(c.read(h, inline(&p)), pattern_bytes(32, 1));
    // Cut in the middle: what lies behind the end reads as zeros, the rest stays.
    c.done(DataRequest::SetLen { handle: h, len: 20 });
    let mut expected = pattern_bytes(32, 1);
    expected[..16].fill(0);
    expected[20..24].fill(0);
    assert_eq!(c.read(h, inline(&p)), expected);
}

#[test]
fn objects_are_listed_in_pages_and_counted() {
    let site = TestDeployment::one();
    let (mut c, _) = site.open(0, 1);
    for file in 0..300 {
        let h = c.attach(site.capability(file, ALL)).unwrap();
        c.write(h, contiguous(0, 1 + file), &vec![1; 1 + file as usize]);
        c.done(DataRequest::Detach { handle: h });
    }
    let mut admin = site.client_as(0, Role::Admin, true);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = admin.ask(DataRequest::ListObjects { after, limit: 70 });
        let DataReply::Objects { objects, more } = page else {
            panic!("{page:?}")
        };
        all.extend(objects);
        after = all.last().map(|(id, _)| *id);
        if !more {
            break;
        }
    }
    all.sort();
    let expected: Vec<_> = (0..300).map(|f| (FileId(f), 1 + f)).collect();
    assert_eq!(all, expected);
    let DataReply::Status(status) = c.ask(DataRequest::Status) else {
        panic!()
    };
    assert_eq!(status.objects, 300);
    assert_eq!(status.connections, 2);
    assert_eq!(status.bytes_written, 300 * 301 / 2);
    assert!(status.requests > 900 && status.busy_ns > 0 && status.total_bytes > 0);
    admin.done(DataRequest::RemoveObject { file: FileId(7) });
    let DataReply::Status(status) = c.ask(DataRequest::Status) else {
        panic!()
    };
    assert_eq!(status.objects, 299);
}

fn loops() -> impl Strategy<Value = Loop> {
    let leaf = (1u64..40).prop_map(Loop::bytes);
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            (1u64..4, inner.clone()).prop_map(|(n, c)| Loop::contig(n, &c).unwrap()),
            (1u64..5, 1u64..3, 0i64..60, inner.clone()).prop_map(|(n, b, gap, c)| {
                let stride = c.extent() * b as i64 + gap;
                Loop::vector(n, b, stride, &c).unwrap()
            }),
            (proptest::collection::vec((1u64..3, 0i64..50), 1..4), inner).prop_map(
                |(blocks, c)| {
                    let (mut at, mut lens, mut displs) = (0, Vec::new(), Vec::new());
                    for (len, gap) in blocks {
                        lens.push(len);
                        displs.push(at + gap);
                        at += gap + len as i64 * c.extent();
                    }
                    Loop::indexed(&lens, &displs, &c).unwrap()
                }
            ),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Over several servers: data written through a pattern and read back through single runs, lists and the pattern
    /// itself is the same. Nothing else changes.
    #[test]
    fn structured_equals_contiguous(
        tile in loops(),
        disp in 0i64..100,
        start in 0u64..200,
        len in 1u64..3000,
        unit in 1u64..200,
        chunk in 1usize..400,
        tcp: bool,
    ) {
        thread_local! { static SITE: TestDeployment = TestDeployment::start(3, "memory", Options::default()); }
        thread_local! { static FILE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) }; }
        SITE.with(|site| {
            let file = FILE.replace(FILE.get() + 1);
            let p = Pattern::new(disp, tile, start, len).unwrap();
            let layout = site.layout(unit);
            let mut capability = site.capability(file, ALL);
            capability = penstock_wire::message::Capability::grant(
                &site.seals, capability.subject, capability.file, ALL, capability.issued_ms..capability.expires_ms, None, layout.clone()).unwrap();
            let (_, high) = p.bounds();
            let mut expected = vec![0xee; high as usize + 50];
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
            p.for_each_run(|s, run| {
                let bytes = &data[s as usize..(s + run.len) as usize];
                expected[run.offset as usize..][..run.len as usize].copy_from_slice(bytes);
            });
            let total = expected.len() as u64;
            for s in 0..3u32 {
                let index = penstock_layout::ServerIndex(s);
                let mut c = site.client_as(s as usize, Role::Client, tcp);
                let h = c.attach(capability.clone()).unwrap();
                // This server's bytes of a contiguous range and of the pattern, in stream order.
                let mine = |q: &Pattern, from: &[u8]| {
                    let mut bytes = Vec::new();
                    layout.pieces(q, index, |piece| {
                        let at = piece.stream as usize;
                        bytes.extend(&from[at..at + piece.len as usize]);
                        true
                    });
                    bytes
                };
                let whole = Pattern::contiguous(0, total);
                c.write(h, contiguous(0, total), &mine(&whole, &vec![0xee; total as usize]));
                let share = mine(&p, &data);
                let reply = c.write_with(h, inline(&p), None, &share, chunk);
                assert_eq!(reply, DataReply::Written { bytes: share.len() as u64 });
                assert_eq!(c.read(h, by_hash(&p)), share.clone());
                assert_eq!(c.read(h, contiguous(0, total)), mine(&whole, &expected));
                let mut regions = Vec::new();
                p.for_each_run(|_, run| regions.push((run.offset as u64, run.len)));
                let mut listed = Vec::new();
                for list in regions.chunks(64) {
                    listed.extend(c.read(h, Region::List(list.to_vec())));
                }
                assert_eq!(listed, share);
            }
        });
    }
}
