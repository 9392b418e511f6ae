//! Recording from many threads: nothing is lost but what is counted, and a full disk costs records only.
#![allow(clippy::unwrap_used)]
use penstock_trace::{
    Layer, Link, Operation, Owner, Record, Recorder, RecorderOptions, Stream, StreamHead,
};
use std::time::Duration;

fn record(i: u64) -> Record {
    Record {
        id: i + 1,
        offset: i * 4096,
        bytes: 4096,
        begin: i * 1000,
        duration: 500,
        ..Record::new(Layer::Server, Operation::READ)
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
    for (buffer, bound) in [(1 << 20, u64::MAX), (64, u64::MAX), (1000, 20_000)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.trace");
        let head = StreamHead::default();
        let recorder = Recorder::start(&path, &head, options(buffer, bound)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for i in 0..2500 {
                        let at = thread * 5000 + 2 * i;
                        let two = [record(at), record(at + 1)];
                        let link = Link {
                            owner: Owner::Flush,
                            bytes: at,
                        };
                        recorder.record(thread as usize, two[1].end(), 1 + at % 3, &two, &[link]);
                    }
                });
            }
        });
        let summary = recorder.finish().unwrap();
        assert_eq!(summary.events + summary.dropped, 20_000);
        let stream = Stream::open(&path).unwrap();
        assert!(stream.damage().is_none());
        assert_eq!(stream.summary().dropped, summary.dropped);
        let mut seen = std::collections::HashSet::new();
        for info in stream.blocks() {
            let block = stream.read(info).unwrap();
            for (place, r) in block.records.iter().enumerate() {
                let i = r.id - 1;
                assert!(seen.insert(i));
                assert_eq!(Record { file: 0, ..*r }, record(i));
                // Both of a group name its file; the second has its link.
                assert_eq!(stream.file(r.file).unwrap().id, 1 + (i - i % 2) % 3);
                let links = block.links_of(place);
                assert_eq!(links.len() as u64, i % 2);
                assert!(links.iter().all(|l| l.1.bytes == i - 1));
            }
        }
        assert_eq!(seen.len() as u64, summary.events);
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
fn a_recorder_that_is_dropped_ends_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.trace");
    let options = RecorderOptions::default();
    let recorder = Recorder::start(&path, &StreamHead::default(), options).unwrap();
    recorder.record(0, 5, 0, &[record(0)], &[]);
    drop(recorder);
    let stream = Stream::open(&path).unwrap();
    assert!(stream.damage().is_none());
    assert_eq!(stream.records().count(), 1);
}

#[test]
fn what_was_recorded_a_second_ago_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k.trace");
    let options = RecorderOptions::default();
    let recorder = Recorder::start(&path, &StreamHead::default(), options).unwrap();
    recorder.record(0, 5, 0, &[record(0)], &[]);
    recorder.record(0, 50_000_000, 0, &[record(1)], &[]);
    std::thread::sleep(Duration::from_millis(1500));
    // As another process finds it after a kill: without an end.
    let stream = Stream::open(&path).unwrap();
    assert!(stream.damage().is_some());
    assert!(stream.records().filter_map(Result::ok).count() >= 1);
    std::thread::sleep(Duration::from_millis(1000));
    let stream = Stream::open(&path).unwrap();
    assert_eq!(stream.records().filter_map(Result::ok).count(), 2);
    drop(recorder);
}
