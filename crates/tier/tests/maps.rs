//! The map against a plain table of bytes, and what it takes in memory.
use penstock_base::Random;
use penstock_tier::{Extent, Map};

fn extent(offset: u64, len: u64, at: u64, seq: u64) -> Extent {
    Extent {
        offset,
        len,
        segment: 1 + seq / 64,
        at,
        skip: 0,
        whole: len,
        seq,
    }
}

/// Where each byte is: segment, position in it, number of the record.
type Bytes = Vec<Option<(u64, u64, u64)>>;

fn agree(map: &Map, bytes: &Bytes, range: std::ops::Range<u64>) {
    let mut found: Bytes = vec![None; bytes.len()];
    let mut last = 0;
    for e in map.overlay(&range, usize::MAX) {
        assert!(e.offset >= last && e.offset >= range.start && e.end() <= range.end);
        last = e.end();
        for i in 0..e.len {
            found[(e.offset + i) as usize] = Some((e.segment, e.at + e.skip + i, e.seq));
        }
    }
    for (i, byte) in bytes.iter().enumerate() {
        let within = range.contains(&(i as u64));
        assert_eq!(found[i], byte.filter(|_| within), "byte {i} of {range:?}");
    }
    let any = bytes[range.start as usize..range.end as usize]
        .iter()
        .any(Option::is_some);
    assert_eq!(map.touches(&range), any);
}

#[test]
fn it_agrees_with_a_table_of_bytes() {
    for seed in 0..300 {
        let mut r = Random::for_purpose(seed, 1);
        let size = 400u64;
        let (mut map, mut bytes): (Map, Bytes) = (Map::default(), vec![None; size as usize]);
        let mut live = [0i64; 16];
        let (stride, block) = (r.from_to(3, 20), r.from_to(1, 3));
        let mut next = 0;
        for seq in 1..120u64 {
            if r.one_in(6) {
                let start = r.below(size);
                let end = r.from_to(start + 1, size);
                let upto = r.from_to(0, seq);
                map.remove(start..end, upto, &mut |s, n| live[s as usize] -= n as i64);
                for byte in &mut bytes[start as usize..end as usize] {
                    if byte.is_some_and(|(_, _, s)| s <= upto) {
                        *byte = None;
                    }
                }
            }
            // Mostly the next block of a stride, else anything.
            let (offset, len) = if r.one_in(4) {
                let offset = r.below(size - 1);
                (offset, r.from_to(1, (size - offset).min(30)))
            } else {
                next = (next + stride) % (size - block);
                (next, block)
            };
            let e = extent(offset, len, seq * 100, seq);
            live[e.segment as usize] += len as i64;
            map.insert(e, &mut |s, n| live[s as usize] -= n as i64);
            for i in 0..len {
                bytes[(offset + i) as usize] = Some((e.segment, seq * 100 + i, seq));
            }
            let start = r.below(size);
            agree(&map, &bytes, start..r.from_to(start, size));
            agree(&map, &bytes, 0..size);
            let there = bytes.iter().flatten().count() as u64;
            assert_eq!(map.bytes(), there);
            let end = bytes.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
            assert_eq!(map.end(), end as u64);
            for (segment, live) in live.iter().enumerate() {
                let there = bytes.iter().flatten().filter(|b| b.0 == segment as u64);
                assert_eq!(*live, there.count() as i64, "segment {segment}");
            }
            let from = r.below(size);
            let first = bytes[from as usize..].iter().position(Option::is_some);
            assert_eq!(
                map.next(from).map(|e| e.offset),
                first.map(|i| from + i as u64)
            );
        }
    }
}

#[test]
fn a_regular_pattern_takes_the_memory_of_one_record() {
    for stride in [800, 6400] {
        let mut map = Map::default();
        for i in 0..10_000 {
            map.insert(
                Extent {
                    segment: 1,
                    ..extent(i * stride, 800, 64 + i * 928, 1 + i)
                },
                &mut |_, _| panic!("nothing is overwritten"),
            );
        }
        assert_eq!(map.pieces(), 1);
        assert_eq!(map.bytes(), 8_000_000);
        assert_eq!(map.overlay(&(stride * 5000..stride * 5001), 9).len(), 1);
        // A write between two of its blocks takes it apart there.
        map.insert(extent(stride * 70 + 10, 5, 7, 20_000), &mut |_, n| {
            assert_eq!(n, 5)
        });
        assert!(map.pieces() <= 5, "{}", map.pieces());
        assert_eq!(map.bytes(), 8_000_000);
    }
}
