//! Trace files that were truncated, changed or are something else: errors are clear, and the events before the damage
//! are read.
#![allow(clippy::unwrap_used)]
use penstock_trace::{
    Error, Event, Header, Kind, Op, Reader, Recorder, RecorderOptions, VERSION, Writer, read_all,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

const HEADER: Header = Header {
    server: 1,
    servers: 4,
    unit: 65536,
    began: 1_700_000_000_000_000_000,
    repetitions: 1,
};

fn event(i: u64) -> Event {
    Event {
        at: i * 1000,
        request: i,
        kind: [Kind::Arrival, Kind::Dispatch, Kind::Completion][(i % 3) as usize],
        op: if i.is_multiple_of(2) {
            Op::Read
        } else {
            Op::Write
        },
        file: i % 5,
        offset: i * 4096,
        bytes: 4096,
        program: 3,
        rank: (i % 7) as u32,
        mpi_call: i / 7,
        client_call: i / 3,
    }
}

/// A trace of `blocks` blocks of 100 events.
fn write(dir: &Path, blocks: u64) -> (PathBuf, Vec<Event>) {
    let path = dir.join("t.trace");
    let mut writer = Writer::create(&path, &HEADER).unwrap();
    let events: Vec<Event> = (0..blocks * 100).map(event).collect();
    for block in events.chunks(100) {
        for e in block {
            writer.push(*e).unwrap();
        }
        writer.flush().unwrap();
    }
    let summary = writer.finish(7).unwrap();
    assert_eq!((summary.events, summary.dropped), (blocks * 100, 7));
    assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());
    (path, events)
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, events) = write(dir.path(), 5);
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(*reader.header(), HEADER);
    let mut back = Vec::new();
    while reader.next_block(&mut back).unwrap() {}
    assert_eq!(back, events);
    assert_eq!(reader.summary().unwrap().dropped, 7);
    assert!(!reader.next_block(&mut back).unwrap());
}

#[test]
fn other_files_are_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write(dir.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    let opened = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Reader::open(&path).unwrap_err()
    };
    let mut other = whole.clone();
    other[8] = VERSION as u8 + 1;
    let error = opened(&other);
    assert!(matches!(error, Error::Version { found, .. } if found == VERSION + 1));
    assert!(error.to_string().contains("format 3"), "{error}");
    for bytes in [
        &b""[..],
        b"PST",
        b"#!/bin/sh\necho 1 2 3 4 5 6 7 8\n",
        &whole[..20],
    ] {
        let error = opened(bytes);
        assert!(matches!(error, Error::NotATrace { .. }), "{error}");
        assert!(error.to_string().contains("is no trace"), "{error}");
    }
    let mut damaged = whole.clone();
    damaged[30] ^= 1;
    assert!(opened(&damaged).to_string().contains("header is damaged"));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Reader::open(&path).unwrap_err(), Error::Io { .. }));
}

#[test]
fn the_first_version_is_read() {
    let mut file = b"PSTTRACE".to_vec();
    for number in [1, 28, 0, 1] {
        file.extend(u32::to_le_bytes(number));
    }
    file.extend(65536u64.to_le_bytes());
    file.extend(7u64.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(crc32fast::hash(&file).to_le_bytes());
    // An arrival with all fields, and one that follows it in the file.
    let first = [4, 10, 2, 0, 9, 0x80, 0x40, 0x80, 0x20, 3];
    let payload = [&first[..], &[0x7c, 10, 2]].concat();
    let block = file.len();
    file.extend(b"BLCK");
    file.extend(2u32.to_le_bytes());
    file.extend((payload.len() as u32).to_le_bytes());
    file.extend(payload);
    file.extend(crc32fast::hash(&file[block..]).to_le_bytes());
    let end = file.len();
    file.extend(b"DONE");
    file.extend(2u64.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend(crc32fast::hash(&file[end..]).to_le_bytes());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    std::fs::write(&path, file).unwrap();
    let (header, events, damage) = read_all(&path).unwrap();
    assert!(damage.is_none() && header.began == 7);
    let arrival = |i: u64| Event {
        at: 5 * i,
        request: i,
        kind: Kind::Arrival,
        op: Op::Write,
        file: 9,
        offset: 4096 * i,
        bytes: 4096,
        program: 3,
        rank: 0,
        mpi_call: 0,
        client_call: 0,
    };
    assert_eq!(events, [arrival(1), arrival(2)]);
}

#[test]
fn a_missing_block_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, events) = write(dir.path(), 3);
    let whole = std::fs::read(&path).unwrap();
    let second = whole
        .windows(4)
        .enumerate()
        .filter(|(_, w)| w == b"BLCK")
        .map(|(i, _)| i)
        .collect::<Vec<_>>();
    let cut = [&whole[..second[1]], &whole[second[2]..]].concat();
    std::fs::write(&path, cut).unwrap();
    let (_, back, error) = read_all(&path).unwrap();
    assert_eq!(back.len(), events.len() - 100);
    assert!(error.unwrap().to_string().contains("blocks are missing"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_costs_only_what_follows(
        at in any::<prop::sample::Index>(),
        what in 0u8..4,
        garbage in proptest::collection::vec(any::<u8>(), 1..30),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, events) = write(dir.path(), 6);
        let mut bytes = std::fs::read(&path).unwrap();
        let head = 8 + 8 + 28 + 4;
        let at = head + at.index(bytes.len() - head);
        let before = bytes.clone();
        match what {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= garbage[0].max(1),
            2 => { bytes.splice(at..at, garbage); }
            _ => bytes.extend(garbage),
        }
        prop_assume!(bytes != before);
        std::fs::write(&path, &bytes).unwrap();
        let (header, back, error) = read_all(&path).unwrap();
        prop_assert_eq!(header, HEADER);
        prop_assert!(error.is_some(), "damage went unnoticed");
        prop_assert!(error.unwrap().to_string().contains("t.trace"));
        // Complete blocks, exactly as they were written, up to the damage.
        prop_assert_eq!(back.len() % 100, 0);
        prop_assert_eq!(&back[..], &events[..back.len()]);
        let whole_blocks = before[..at.min(before.len())].windows(4).filter(|w| w == b"BLCK").count();
        prop_assert!(back.len() + 100 >= whole_blocks * 100);
    }
}

fn options(buffer: usize, file: u64) -> RecorderOptions {
    RecorderOptions {
        buffer,
        file,
        interval: Duration::from_millis(5),
    }
}

#[test]
fn threads_record_and_nothing_is_lost_but_what_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    for (buffer, bound) in [(1 << 20, u64::MAX), (64, u64::MAX), (1000, 20_000)] {
        let path = dir.path().join("r.trace");
        let recorder = Recorder::start(&path, &HEADER, options(buffer, bound)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let recorder = &recorder;
                scope.spawn(move || {
                    (0..5000)
                        .for_each(|i| recorder.record(thread as usize, &[event(thread * 5000 + i)]))
                });
            }
        });
        let summary = recorder.finish().unwrap();
        assert_eq!(summary.events + summary.dropped, 20_000);
        let (_, mut back, error) = read_all(&path).unwrap();
        assert!(error.is_none(), "{error:?}");
        assert_eq!(back.len() as u64, summary.events);
        back.sort_unstable();
        back.dedup();
        assert_eq!(back.len() as u64, summary.events);
        if buffer == 1 << 20 {
            assert_eq!(summary.dropped, 0);
        }
        if bound < u64::MAX {
            assert!(
                summary.dropped > 0 && summary.bytes < 2 * bound + 20_000,
                "{summary:?}"
            );
        }
    }
}

#[test]
fn a_full_disk_costs_events_not_the_server() {
    // Every write to this device fails with ENOSPC.
    let recorder = match Recorder::start(Path::new("/dev/full"), &HEADER, options(100, u64::MAX)) {
        Ok(recorder) => recorder,
        Err(e) => {
            assert!(e.to_string().contains("/dev/full"), "{e}");
            return;
        }
    };
    (0..1000).for_each(|i| recorder.record(i as usize, &[event(i)]));
    assert!(recorder.finish().is_err());
}

#[test]
fn a_recorder_that_is_dropped_ends_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.trace");
    let recorder = Recorder::start(&path, &HEADER, RecorderOptions::default()).unwrap();
    recorder.record(0, &[event(0)]);
    drop(recorder);
    let (_, back, error) = read_all(&path).unwrap();
    assert_eq!((back.len(), error.is_none()), (1, true));
}
