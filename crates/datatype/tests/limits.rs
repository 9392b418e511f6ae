//! Absurd datatypes are refused, huge regular ones cost nothing, and bad encodings are rejected.

use penstock_datatype::{Distribution, Error, Loop, MAX_DEPTH, MAX_ENCODED, Order, Pattern, Run};

fn overflows<T: std::fmt::Debug>(what: Result<T, Error>) -> bool {
    matches!(what, Err(Error::Overflow(_)))
}

#[test]
fn sizes_and_extents_beyond_63_bits() {
    let max = i64::MAX as u64;
    let byte = Loop::bytes(1);
    assert_eq!(Loop::contig(max, &byte).unwrap().size(), max);
    assert!(overflows(Loop::contig(max + 1, &byte)));
    assert!(overflows(Loop::contig(u64::MAX, &Loop::bytes(8))));
    let half = Loop::bytes(1 << 62);
    assert!(overflows(Loop::contig(2, &half)));
    assert!(overflows(Loop::vector(2, 1, i64::MAX, &Loop::bytes(8))));
    assert!(overflows(Loop::vector(u64::MAX, u64::MAX, i64::MAX, &half)));
    assert!(overflows(Loop::vector(1 << 40, 1, 1 << 40, &byte)));
    assert!(overflows(Loop::vector(3, 1, i64::MIN, &byte)));
    assert!(overflows(Loop::blockindexed(
        1,
        &[i64::MIN, i64::MAX],
        &byte
    )));
    assert!(overflows(Loop::blockindexed(1, &[i64::MAX], &byte)));
    assert!(overflows(Loop::indexed(&[max, max], &[0, 0], &byte)));
    assert!(overflows(Loop::indexed(&[u64::MAX], &[0], &Loop::bytes(8))));
    assert!(overflows(Loop::structure(&[(
        1,
        i64::MAX - 3,
        Loop::bytes(8)
    )])));
    assert!(overflows(Loop::structure(&[
        (1, 0, half.clone()),
        (1, 0, half.clone())
    ])));
    assert!(overflows(byte.resized(i64::MAX, 1)));
    assert!(overflows(byte.resized(-2, i64::MIN)));
    let c = Order::C;
    assert!(overflows(Loop::subarray(
        &[1 << 32, 1 << 32],
        &[1, 1],
        &[0, 0],
        c,
        &byte
    )));
    assert!(overflows(Loop::darray(
        1,
        0,
        &[1 << 62, 4],
        &[Distribution::None; 2],
        &[1, 1],
        c,
        &byte
    )));
    // Extent without data: it is empty, and the bounds still count.
    let hollow = Loop::bytes(0).resized(0, i64::MAX).unwrap();
    let (many, far) = (u64::MAX, i64::MIN);
    assert!(overflows(Loop::vector(many, many, far, &hollow)));
    assert!(overflows(Loop::contig(2, &hollow)));
}

#[test]
fn arguments_that_mean_nothing() {
    let byte = Loop::bytes(1);
    let invalid = |what: Result<Loop, Error>| matches!(what, Err(Error::Invalid(_)));
    let (c, none) = (Order::C, Distribution::None);
    assert!(invalid(Loop::indexed(&[1], &[], &byte)));
    assert!(invalid(Loop::subarray(&[], &[], &[], c, &byte)));
    assert!(invalid(Loop::subarray(&[4], &[3], &[2], c, &byte)));
    assert!(invalid(Loop::subarray(&[4], &[3, 1], &[0], c, &byte)));
    assert!(invalid(Loop::subarray(
        &[4],
        &[u64::MAX],
        &[u64::MAX],
        c,
        &byte
    )));
    assert!(invalid(Loop::darray(
        2,
        2,
        &[4],
        &[Distribution::Block(None)],
        &[2],
        c,
        &byte
    )));
    assert!(invalid(Loop::darray(
        2,
        0,
        &[4],
        &[Distribution::Block(Some(1))],
        &[2],
        c,
        &byte
    )));
    assert!(invalid(Loop::darray(
        2,
        0,
        &[4],
        &[Distribution::Cyclic(Some(0))],
        &[2],
        c,
        &byte
    )));
    assert!(invalid(Loop::darray(2, 0, &[4], &[none], &[2], c, &byte)));
    assert!(invalid(Loop::darray(
        0,
        0,
        &[4],
        &[Distribution::Block(None)],
        &[0],
        c,
        &byte
    )));
    assert!(matches!(
        Pattern::new(0, Loop::bytes(0), 0, 1),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn nesting_is_bounded() {
    // Distances at which no level fuses with the next.
    let mut l = Loop::bytes(1);
    for level in 1..MAX_DEPTH {
        assert_eq!(l.depth(), level);
        l = Loop::vector(2, 1, 2 * l.extent() + 1, &l).unwrap();
    }
    assert_eq!(Loop::decode(&l.encode()).unwrap(), l);
    assert!(overflows(Loop::vector(2, 1, 2 * l.extent() + 1, &l)));
    // Shared children count each time they are reached.
    let mut wide = Loop::bytes(1);
    let grown = (0..MAX_DEPTH).try_for_each(|_| {
        let other = Loop::vector(2, 1, 2 * wide.extent() + 1, &wide)?;
        wide = Loop::structure(&[(1, 0, wide.clone()), (1, 1000, other), (1, 0, wide.clone())])?;
        Ok::<_, Error>(())
    });
    assert!(overflows(grown));
}

#[test]
fn patterns_beyond_the_address_space() {
    let byte = Loop::bytes(1);
    assert!(overflows(Pattern::new(i64::MAX, byte.clone(), 0, 1)));
    assert!(overflows(Pattern::new(0, byte.clone(), u64::MAX, 1)));
    assert!(overflows(Pattern::new(0, byte.clone(), 0, 1 << 63)));
    assert!(Pattern::new(i64::MAX - 1, byte, 0, 1).is_ok());
    let sparse = Loop::bytes(1).resized(0, 1 << 40).unwrap();
    assert!(Pattern::new(0, sparse.clone(), 0, 1 << 22).is_ok());
    assert!(overflows(Pattern::new(0, sparse.clone(), 0, 1 << 24)));
    assert!(overflows(Pattern::new(0, sparse, 1 << 24, 1)));
    assert!(overflows(Pattern::list(&[
        (i64::MIN, 1),
        (i64::MAX - 1, 1)
    ])));
}

/// Anything that walked the blocks would not return.
#[test]
fn a_vector_of_2_to_the_40_blocks_is_closed_form() {
    let blocks = 1u64 << 40;
    let tile = Loop::vector(blocks, 1, 24, &Loop::bytes(8)).unwrap();
    assert!(tile.encode().len() < 32);
    let p = Pattern::new(5, tile, 3, 8 * blocks - 5).unwrap();
    assert_eq!(p.regions(), blocks);
    assert_eq!(p.bounds(), (8, 5 + 24 * (blocks as i64 - 1) + 6));
    assert_eq!(p.stream_at(5 + 24 * 1_000_000), 8_000_000 - 3);
    let w = p.window(24 << 30, 25 << 30);
    assert_eq!(w.regions(), ((1u64 << 30) / 24) + 1);
    let mut cursor = p.cursor();
    cursor.seek(8 * (blocks / 2) - 3);
    let half = 5 + 24 * (blocks as i64 / 2);
    assert_eq!(
        cursor.next_run(u64::MAX),
        Some(Run {
            offset: half,
            len: 8
        })
    );
    assert_eq!(
        cursor.next_run(3),
        Some(Run {
            offset: half + 24,
            len: 3
        })
    );
    assert_eq!(
        cursor.next_run(100),
        Some(Run {
            offset: half + 27,
            len: 5
        })
    );
}

#[test]
fn fusion() {
    let int = Loop::bytes(4);
    let row = Loop::contig(10, &int).unwrap();
    assert!(Loop::contig(7, &row).unwrap().is_contiguous());
    // A contiguous of bytes vanishes in the vector above it.
    let v = Loop::vector(5, 2, 100, &row).unwrap();
    assert_eq!((v.kind(), v.depth()), ("vector", 2));
    // Vectors whose strides line up become one.
    let tight = Loop::vector(4, 1, 16, &int)
        .unwrap()
        .resized(0, 64)
        .unwrap();
    let two = Loop::contig(6, &tight).unwrap();
    assert_eq!(
        two.encode(),
        Loop::vector(24, 1, 16, &int)
            .unwrap()
            .resized(0, 384)
            .unwrap()
            .encode()
    );
    // Struct to indexed to blockindexed to vector to contig.
    let fields = |list: &[(u64, i64)]| {
        let fields: Vec<_> = list.iter().map(|&(n, at)| (n, at, int.clone())).collect();
        Loop::structure(&fields).unwrap()
    };
    assert_eq!(fields(&[(1, 0), (3, 8), (2, 40)]).kind(), "indexed");
    assert_eq!(fields(&[(1, 0), (1, 8), (1, 40)]).kind(), "blockindexed");
    assert_eq!(fields(&[(1, 0), (1, 8), (1, 16)]).kind(), "vector");
    assert_eq!(fields(&[(1, 0), (2, 4), (1, 12)]).kind(), "contig");
    // A 3-D subarray whose inner two dimensions are whole is one run per plane, and here a single run.
    let slab = Loop::subarray(&[9, 5, 5], &[3, 5, 5], &[2, 0, 0], Order::C, &int).unwrap();
    assert_eq!(
        (slab.kind(), slab.regions(), slab.true_lb()),
        ("contig", 1, 200)
    );
}

#[test]
fn encodings_have_one_form() {
    let at = |bytes: &[u8]| match Loop::decode(bytes) {
        Err(Error::Malformed { at, what }) => (at, what),
        other => panic!("{bytes:?}: {other:?}"),
    };
    let good = Loop::vector(3, 1, 16, &Loop::bytes(4))
        .unwrap()
        .encode()
        .to_vec();
    assert_eq!(good, [1, 0, 72, 0, 1, 3, 32, 0, 4]);
    assert!(Loop::decode(&good).is_ok());
    assert_eq!(at(&[]), (0, "ends too early"));
    assert_eq!(at(&[9]), (0, "unknown version"));
    assert_eq!(at(&good[..8]), (8, "ends too early"));
    assert_eq!(at(&[&good[..], &[0]].concat()), (9, "bytes after the end"));
    let canonical = "not the canonical form";
    // Number 3 in two bytes; a vector of one; a vector of touching blocks; vectors that line up.
    assert_eq!(at(&[1, 0, 72, 0, 1, 0x83, 0, 32, 0, 4]).1, canonical);
    assert_eq!(at(&[1, 0, 72, 0, 1, 1, 32, 0, 4]).1, canonical);
    assert_eq!(at(&[1, 0, 72, 0, 1, 3, 8, 0, 4]).1, canonical);
    assert_eq!(at(&[1, 0, 72, 0, 1, 2, 64, 1, 2, 32, 0, 4]).1, canonical);
    assert_eq!(at(&[1, 0, 72, 0, 7]), (5, "unknown kind of loop"));
    assert_eq!(
        at(&[
            1, 0, 72, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2
        ])
        .1,
        "number above 64 bits"
    );
    // Claims of more blocks than there are bytes cause no allocation.
    for kind in 2..5 {
        assert_eq!(
            at(&[1, 0, 0, 0, kind, 255, 255, 255, 255, 15, 0]).1,
            "more blocks than bytes"
        );
    }
    let deep: Vec<u8> = [1, 0, 0, 0]
        .into_iter()
        .chain([1u8, 2, 100].repeat(40))
        .chain([0, 1])
        .collect();
    assert_eq!(at(&deep).1, "more than 32 levels");
    assert_eq!(at(&vec![1; MAX_ENCODED + 1]).1, "longer than 512 KiB");
    assert!(overflows(Loop::decode(&[
        1, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1
    ])));
}
