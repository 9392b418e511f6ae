//! A small log, and what is found in it after every damage.
use penstock_base::Random;
use penstock_tier::{
    End, Found, Full, Kind, Log, Place, Record, SEGMENT_HEADER, Segment, TierId, checksum,
    read_summary, scan, segment_header, summary,
};

const TIER: TierId = [7; 16];

fn place(at: u64) -> Place {
    Place {
        tier: TIER,
        segment: 3,
        at,
    }
}

/// A segment with records of several lengths, and those records with their places.
fn segment() -> (Vec<u8>, Vec<(u64, Record)>) {
    let header = Segment {
        number: 3,
        first: 10,
        synced: 9,
    };
    let mut bytes = segment_header(&TIER, &header).to_vec();
    let mut records = Vec::new();
    for (n, len) in [0usize, 1, 8, 13, 40, 0].into_iter().enumerate() {
        let own: Vec<u8> = (0..len).map(|i| (i * 31 + n) as u8).collect();
        let kind = if len == 0 { Kind::Home } else { Kind::Data };
        let record = Record {
            kind,
            seq: 10 + n as u64,
            object: 5,
            offset: n as u64 * 100,
            len: len.max(1) as u64,
            extra: 77,
            checksum: checksum([&own[..]]),
            synced: 9,
        };
        let at = bytes.len() as u64;
        bytes.extend(record.encode(&place(at), End::Head));
        bytes.extend(&own);
        bytes.resize(bytes.len() + record.padding() as usize, 0);
        bytes.extend(record.encode(&place(at), End::Tail));
        records.push((at, record));
    }
    (bytes, records)
}

/// All records that are found, and which of them are sound.
fn found(bytes: &[u8]) -> Vec<(u64, Record, bool)> {
    let all = scan(bytes, &TIER, 3);
    let records = all.into_iter().filter_map(|found| match found {
        Found::Record { at, record, sound } => Some((at, record, sound)),
        Found::Unreadable { .. } => None,
    });
    records.collect()
}

#[test]
fn every_flipped_bit_is_found_and_costs_nothing_but_its_bytes() {
    let (bytes, records) = segment();
    let all: Vec<_> = records.iter().map(|(at, r)| (*at, *r, true)).collect();
    assert_eq!(found(&bytes), all);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let found = found(&flipped);
            // Each record is told by one of its headers, whatever flips.
            let what: Vec<_> = found.iter().map(|(at, r, _)| (*at, *r)).collect();
            assert_eq!(what, records, "bit {bit} of byte {at}");
            for (start, record, sound) in found {
                let own = start + 64..start + 64 + record.payload();
                assert_eq!(sound, !own.contains(&(at as u64)), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn a_log_that_is_cut_keeps_what_is_before_the_cut() {
    let (bytes, records) = segment();
    for cut in 0..bytes.len() {
        for behind in [0u8, 0xff] {
            let mut torn = bytes.clone();
            torn[cut..].fill(behind);
            for torn in [&bytes[..cut], &torn] {
                let found = found(torn);
                let whole = records
                    .iter()
                    .filter(|(at, r)| at + r.size() <= cut as u64)
                    .count();
                assert!(
                    found.len() == whole || found.len() == whole + 1,
                    "cut {cut}"
                );
                assert!(
                    found[..whole].iter().all(|(_, _, sound)| *sound),
                    "cut {cut}"
                );
                // The one that is cut counts as sound only with all of its bytes.
                for (at, record, sound) in &found[whole..] {
                    let own = |bytes: &[u8]| record.bytes(&bytes[*at as usize..]).to_vec();
                    assert!(!sound || own(torn) == own(&bytes), "cut {cut}");
                }
            }
        }
    }
}

#[test]
fn a_record_that_is_gone_leaves_those_behind_it() {
    let (bytes, records) = segment();
    for (n, (at, record)) in records.iter().enumerate() {
        let mut gone = bytes.clone();
        gone[*at as usize..(at + record.size()) as usize].fill(0);
        let left: Vec<_> = found(&gone).into_iter().map(|(at, r, _)| (at, r)).collect();
        let mut expected = records.clone();
        expected.remove(n);
        assert_eq!(left, expected);
    }
}

#[test]
fn records_elsewhere_and_of_others_are_none() {
    let (bytes, records) = segment();
    assert!(scan(&bytes, &[8; 16], 3).is_empty());
    assert!(scan(&bytes, &TIER, 4).is_empty());
    // Bytes of a user that are a copy of the log.
    let mut copied = bytes.clone();
    let (at, record) = records[4];
    let copy = bytes[records[1].0 as usize..][..40].to_vec();
    copied[at as usize + 64..][..40].copy_from_slice(&copy);
    let found = found(&copied);
    assert_eq!(found.len(), records.len());
    assert!(!found[4].2 && found[4].1 == record);
}

#[test]
fn noise_is_no_log() {
    let (bytes, _) = segment();
    for seed in 0..2000 {
        let mut r = Random::for_purpose(seed, 2);
        let mut noise = bytes.clone();
        for _ in 0..r.from_to(1, 40) {
            let at = r.index(noise.len());
            noise[at] = r.bits() as u8;
        }
        for (at, record, sound) in found(&noise) {
            let own = &noise[at as usize..];
            assert!(!sound || checksum([record.bytes(own)]) == record.checksum);
        }
        let mut random = vec![0; 700];
        random.iter_mut().for_each(|b| *b = r.bits() as u8);
        assert!(scan(&random, &TIER, 3).is_empty());
        let read = &mut |at: u64, n: usize| Ok::<_, ()>(random[at as usize..][..n].to_vec());
        assert_eq!(read_summary(&TIER, 3, 700, read), Ok(None));
    }
}

#[test]
fn a_summary_lists_the_records_or_counts_for_nothing() {
    let (mut bytes, records) = segment();
    let at = bytes.len() as u64;
    let (own, text) = summary(&place(at), 16, 9, &records);
    bytes.extend(text);
    let read = |bytes: &[u8]| {
        let mut read = |at: u64, n: usize| {
            let at = at as usize;
            Ok::<_, ()>(bytes.get(at..at + n).unwrap_or_default().to_vec())
        };
        read_summary(&TIER, 3, bytes.len() as u64, &mut read).unwrap()
    };
    assert_eq!(read(&bytes), Some((own, records.clone())));
    // The scan knows it as well.
    assert_eq!(found(&bytes).len(), records.len() + 1);
    for flip in at as usize..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[flip] ^= 0x10;
        let tail = own.size() as usize + at as usize - 64..own.size() as usize + at as usize;
        let found = read(&flipped);
        assert!(found.is_none() || tail.contains(&flip) && found == read(&bytes));
        assert_eq!(read(&bytes[..flip]), None);
    }
}

#[test]
fn places_follow_each_other_and_the_log_is_bounded() {
    let mut log = Log::new(TIER, Log::LEAST);
    let record = |seq| Record {
        kind: Kind::Data,
        seq,
        object: 1,
        offset: 0,
        len: 60_000,
        extra: 0,
        checksum: 0,
        synced: 0,
    };
    let mut segments = Vec::new();
    let mut wrote = 0;
    for _ in 0..200 {
        match log.slot(60_000, false) {
            Err(Full) => {
                for n in std::mem::take(&mut segments) {
                    log.freed(n, 60_000);
                }
                while let Some((number, true)) = log.oldest() {
                    log.removed(number);
                }
            }
            Ok(slot) => {
                if let Some(ended) = slot.ends {
                    assert!(!log.records(ended).is_empty());
                    log.ended(ended, Some(300));
                    continue;
                }
                if slot.begins {
                    log.began(slot.segment);
                    continue;
                }
                assert_eq!(slot.seq, log.last() + 1);
                log.wrote(&slot, record(slot.seq));
                log.counts(slot.segment, 60_000);
                segments.push(slot.segment);
                wrote += 1;
                assert!(log.bytes() <= Log::LEAST + 4 * 300, "{}", log.bytes());
            }
        }
    }
    assert!(wrote > 100, "{wrote}");
    assert!(SEGMENT_HEADER < log.segment_bytes());
}
