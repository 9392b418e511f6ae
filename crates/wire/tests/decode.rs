//! Decoding hostile bytes: never a panic, never memory beyond the limits.
use penstock_layout::{FileId, Layout, ServerId};
use penstock_wire::Envelope;
use penstock_wire::frame::{FrameError, HEADER_LEN, Header, Limits, VERSION, append, decode_body};
use penstock_wire::handshake::{Challenge, Hello, Proof, Verdict};
use penstock_wire::message::{Seal, *};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        let _ = ALLOCATED.try_with(|a| a.set(a.get() + memory.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(memory) }
    }
    unsafe fn dealloc(&self, at: *mut u8, memory: Memory) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, memory) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allocated while decoding (freed or not).
fn cost<B: DeserializeOwned>(bytes: &[u8]) -> usize {
    let before = ALLOCATED.get();
    let _ = decode_body::<B>(bytes);
    ALLOCATED.get() - before
}

/// The memory that a body of n bytes may cause. The worst valid case is a page of a directory, whose entries are larger
/// in memory than on the wire, in a vector that doubles.
fn bound(n: usize) -> usize {
    (1 << 16) + 64 * n
}

fn everything(bytes: &[u8]) {
    for spent in [
        cost::<DataRequest>(bytes),
        cost::<DataReply>(bytes),
        cost::<MetaRequest>(bytes),
        cost::<MetaReply>(bytes),
        cost::<Hello>(bytes),
        cost::<Challenge>(bytes),
        cost::<Proof>(bytes),
        cost::<Verdict>(bytes),
    ] {
        assert!(spent <= bound(bytes.len()), "{spent} for {}", bytes.len());
    }
}

fn encoded<B: Serialize>(body: &B) -> Vec<u8> {
    let mut out = Vec::new();
    append(
        &mut out,
        VERSION,
        &Envelope::default(),
        Some(body),
        0,
        0,
        &Limits::FULL,
    )
    .unwrap();
    out.split_off(HEADER_LEN)
}

fn capability() -> impl Strategy<Value = Capability> {
    (
        any::<u64>(),
        any::<[bool; 3]>(),
        any::<[u64; 2]>(),
        any::<(u32, Option<u32>)>(),
        1u64..1 << 30,
        1u32..9,
        proptest::collection::vec(any::<[u8; 16]>().prop_map(Seal), 0..9),
    )
        .prop_map(
            |(
                file,
                [read, write, remove],
                [issued_ms, expires_ms],
                (subject, lend_to),
                unit,
                servers,
                seals,
            )| {
                Capability {
                    file: FileId(file),
                    read,
                    write,
                    remove,
                    issued_ms,
                    expires_ms,
                    subject,
                    lend_to,
                    layout: Layout::new(unit, (0..servers).map(ServerId).collect()).unwrap(),
                    seals,
                }
            },
        )
}

fn region() -> impl Strategy<Value = Region> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(offset, len)| Region::Contiguous { offset, len }),
        proptest::collection::vec(any::<(u64, u64)>(), 0..=MAX_LIST).prop_map(Region::List),
        any::<([u8; 16], i64, u64, u64)>().prop_map(|(hash, disp, start, len)| Region::LoopHash {
            hash,
            disp,
            start,
            len
        }),
        (
            proptest::collection::vec(any::<u8>(), 0..3000),
            any::<(i64, u64, u64)>()
        )
            .prop_map(|(encoded, (disp, start, len))| Region::LoopInline {
                encoded,
                disp,
                start,
                len
            }),
    ]
}

fn request() -> impl Strategy<Value = DataRequest> {
    let handle = any::<u32>().prop_map(Handle);
    let lock = || any::<Option<u64>>().prop_map(|l| l.map(LockId));
    prop_oneof![
        capability().prop_map(|capability| DataRequest::Attach { capability }),
        (handle.clone(), region(), lock()).prop_map(|(handle, region, lock)| DataRequest::Read {
            handle,
            region,
            lock
        }),
        (handle.clone(), region(), lock()).prop_map(|(handle, region, lock)| DataRequest::Write {
            handle,
            region,
            lock
        }),
        (handle, any::<(u64, u64, u64)>()).prop_map(|(handle, (start, end, timeout_ms))| {
            DataRequest::Lock {
                handle,
                start,
                end,
                mode: LockMode::Shared,
                timeout_ms,
            }
        }),
        Just(DataRequest::Shutdown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        everything(&bytes);
    }

    /// Small numbers are variant indices and lengths: they reach deeper than random bytes.
    #[test]
    fn any_small_bytes_are_survived(bytes in proptest::collection::vec(0u8..40, 0..600)) {
        everything(&bytes);
    }

    #[test]
    fn changed_messages_are_survived(
        request in request(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&request);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        everything(&bytes);
        everything(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn messages_arrive_as_they_were_sent(request in request()) {
        let bytes = encoded(&request);
        prop_assert_eq!(decode_body::<DataRequest>(&bytes).unwrap(), request);
        let mut longer = bytes;
        longer.push(0);
        let e = decode_body::<DataRequest>(&longer).unwrap_err();
        prop_assert!(e.to_string().contains("after the message"), "{}", e);
    }

    #[test]
    fn headers_arrive_as_they_were_sent(
        request: u64, more: bool, reply: bool, ids: (u64, u32, u64, u64), cpu in proptest::option::of(0..u16::MAX),
        body_len in 0..=MAX_BODY, payload_len in 0..=MAX_PAYLOAD, descriptors in 0usize..5,
    ) {
        let (program, rank, mpi_call, client_call) = ids;
        let trace = TraceContext { program, rank, mpi_call, client_call };
        let envelope = Envelope { request, more, reply, trace, waits_on: cpu };
        let header = Header { version: VERSION, envelope, body_len, payload_len, descriptors };
        prop_assert_eq!(Header::decode(&header.encode(), VERSION, &Limits::FULL).unwrap(), header);
    }

    #[test]
    fn any_header_is_survived(bytes: [u8; 28], more: [u8; 28]) {
        let mut all = [0; HEADER_LEN];
        all[..28].copy_from_slice(&bytes);
        all[28..].copy_from_slice(&more);
        let _ = Header::decode(&all, VERSION, &Limits::FULL);
        // With the right beginning it reaches deeper.
        all[..4].copy_from_slice(b"PSTK");
        all[4..6].copy_from_slice(&VERSION.to_le_bytes());
        // Existing flags, plausible lengths.
        for (at, mask) in [(7, 0), (6, 3), (18, 7), (19, 0), (22, 7), (23, 0), (36, 3), (37, 0)] {
            all[at] &= mask;
        }
        if let Ok(header) = Header::decode(&all, VERSION, &Limits::FULL) {
            prop_assert!(header.body_len <= MAX_BODY && header.payload_len <= MAX_PAYLOAD);
            prop_assert_eq!(header.encode(), all);
        }
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_anything_is_kept() {
    let header = |body_len, payload_len| Header {
        version: VERSION,
        envelope: Envelope::default(),
        body_len,
        payload_len,
        descriptors: 0,
    };
    let refused = |h: Header, limits: &Limits| match Header::decode(&h.encode(), VERSION, limits) {
        Err(FrameError::TooLarge { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(header(MAX_BODY + 1, 0), &Limits::FULL), "body");
    assert_eq!(
        refused(header(0, MAX_PAYLOAD + 1), &Limits::FULL),
        "payload"
    );
    // An unauthenticated peer in the handshake causes almost no allocation.
    assert_eq!(refused(header(4097, 0), &Limits::HANDSHAKE), "body");
    assert_eq!(refused(header(10, 1), &Limits::HANDSHAKE), "payload");
    let e = Header::decode(&header(0, 0).encode(), VERSION + 1, &Limits::FULL).unwrap_err();
    assert!(matches!(e, FrameError::Version { .. }), "{e}");
}

#[test]
fn a_message_too_large_to_send_is_refused_and_leaves_no_trace() {
    let mut out = b"before".to_vec();
    let reply = DataReply::NoShortcut {
        reason: "x".repeat(MAX_BODY),
    };
    let e = append(
        &mut out,
        VERSION,
        &Envelope::default(),
        Some(&reply),
        0,
        0,
        &Limits::FULL,
    );
    assert!(matches!(e, Err(FrameError::TooLarge { what: "body", .. })));
    let e = append(
        &mut out,
        VERSION,
        &Envelope::default(),
        Some(&DataReply::Done),
        MAX_PAYLOAD + 1,
        0,
        &Limits::FULL,
    );
    assert!(matches!(
        e,
        Err(FrameError::TooLarge {
            what: "payload",
            ..
        })
    ));
    assert_eq!(out, b"before");
}

#[test]
fn a_batch_is_flat_and_bounded() {
    let batch = |n| MetaRequest::Batch(vec![MetaRequest::Sync; n]);
    let largest = batch(MAX_BATCH);
    assert_eq!(
        decode_body::<MetaRequest>(&encoded(&largest)).unwrap(),
        largest
    );
    let too_many = encoded(&batch(MAX_BATCH + 1));
    assert!(decode_body::<MetaRequest>(&too_many).is_err());
    let nested = MetaRequest::Batch(vec![MetaRequest::Sync, batch(1)]);
    assert!(decode_body::<MetaRequest>(&encoded(&nested)).is_err());
    // The next decoding on this thread is not affected.
    assert_eq!(
        decode_body::<MetaRequest>(&encoded(&batch(3))).unwrap(),
        batch(3)
    );
    // A megabyte with the deepest nesting or repetition.
    let tag = encoded(&batch(1))[0];
    let deep: Vec<u8> = std::iter::repeat_n([tag, 1], MAX_BODY / 2)
        .flatten()
        .collect();
    everything(&deep);
    let mut wide = vec![tag, 0xff, 0xff, 0x3f];
    wide.resize(MAX_BODY, encoded(&MetaRequest::Sync)[0]);
    // At most the items of one batch, in a vector that doubles.
    let most = 2 * MAX_BATCH * size_of::<MetaRequest>();
    assert!(cost::<MetaRequest>(&wide) <= most + 1024);
    let reply = MetaReply::Batch(vec![MetaReply::Batch(vec![])]);
    assert!(decode_body::<MetaReply>(&encoded(&reply)).is_err());
}

#[test]
fn a_slot_holds_one_request() {
    let once = |request| MetaRequest::Once {
        at: SlotAt {
            session: 0,
            slot: 0,
            sequence: 0,
        },
        request: Box::new(request),
    };
    let batch = MetaRequest::Batch(vec![once(MetaRequest::Sync), once(MetaRequest::Status)]);
    for good in [once(MetaRequest::Sync), batch.clone()] {
        assert_eq!(decode_body::<MetaRequest>(&encoded(&good)).unwrap(), good);
    }
    for bad in [
        once(once(MetaRequest::Sync)),
        once(MetaRequest::Batch(vec![])),
        once(batch.clone()),
    ] {
        assert!(decode_body::<MetaRequest>(&encoded(&bad)).is_err());
        // The next decoding on this thread is not affected.
        assert_eq!(decode_body::<MetaRequest>(&encoded(&batch)).unwrap(), batch);
    }
    // A megabyte with the deepest nesting.
    let head = &encoded(&once(MetaRequest::Sync))[..4];
    everything(&head.repeat(MAX_BODY / 4));
}

#[test]
fn lists_and_loops_are_bounded() {
    let read = |region| DataRequest::Read {
        handle: Handle(0),
        region,
        lock: None,
    };
    let list = encoded(&read(Region::List(vec![(1, 1); MAX_LIST + 1])));
    assert!(decode_body::<DataRequest>(&list).is_err());
    let long = encoded(&read(Region::LoopInline {
        encoded: vec![1; MAX_LOOP + 1],
        disp: 0,
        start: 0,
        len: 0,
    }));
    assert!(decode_body::<DataRequest>(&long).is_err());
    assert!(cost::<DataRequest>(&long) < 1 << 16);
    // A megabyte of the smallest entries of every list.
    for byte in 0..40 {
        let mut body = vec![byte, 0xff, 0xff, 0x3f];
        for fill in [0, 1] {
            body.resize(4, 0);
            body.resize(MAX_BODY, fill);
            everything(&body);
        }
    }
}
