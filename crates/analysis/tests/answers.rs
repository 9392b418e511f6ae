//! Summaries and trees of generated traces.
use penstock_analysis::{Figures, Irregular, Key, Layer, Plan, Trace, follow, summarise, write};
use std::collections::BTreeMap;

fn plan(irregular: Irregular) -> Plan {
    Plan {
        seed: 5,
        ranks: 3,
        servers: 4,
        calls: 40,
        irregular,
    }
}

fn made(plan: &Plan) -> (tempfile::TempDir, Trace) {
    let dir = tempfile::tempdir().unwrap();
    write(plan, &dir.path().join("t")).unwrap();
    let trace = Trace::open(&dir.path().join("t")).unwrap();
    (dir, trace)
}

#[test]
fn exclusive_times_add_up() {
    for irregular in [Irregular::None, Irregular::Half, Irregular::All] {
        let (_dir, trace) = made(&plan(irregular));
        let summary = summarise(&trace).unwrap();
        assert_eq!(summary.records, trace.records());
        assert_eq!((summary.orphans, summary.unclaimed), (0, 0));
        assert!(summary.problems.is_empty(), "{:?}", summary.problems);
        let mut total = Figures::default();
        summary
            .cells
            .iter()
            .for_each(|cell| total.merge(&cell.figures));
        assert_eq!(total.calls, summary.records);
        assert_eq!(total.exclusive, summary.roots + total.overlap + total.after);
        assert!(total.overlap > 0, "requests run beside each other");
        if irregular == Irregular::None {
            assert_eq!(summary.records, 3 * 40 * 22);
        }
    }
}

/// Each call followed by itself gives the same figures as one pass over everything.
#[test]
fn trees_of_all_calls_are_the_summary() {
    for irregular in [Irregular::None, Irregular::Half, Irregular::All] {
        let (_dir, trace) = made(&plan(irregular));
        let summary = summarise(&trace).unwrap();
        let mut calls = 0;
        let mut sums: BTreeMap<Layer, (u64, u64, u64, u64, u64)> = BTreeMap::new();
        for part in trace.parts.iter().filter(|p| !p.is_server()) {
            for record in part.stream.records() {
                let record = record.unwrap();
                if record.parent != penstock_trace::Parent::None {
                    continue;
                }
                calls += 1;
                let key: Key = format!("{}/{}", part.rank, record.id).parse().unwrap();
                let tree = follow(&trace, &key).unwrap();
                let layers = tree.layers();
                let critical: u64 = layers.values().map(|l| l.1).sum();
                assert_eq!(
                    critical, record.duration,
                    "the critical path is as long as the call"
                );
                for (layer, (figures, _)) in layers {
                    let sum = sums.entry(layer).or_default();
                    sum.0 += figures.calls;
                    sum.1 += figures.bytes;
                    sum.2 += figures.inclusive;
                    sum.3 += figures.exclusive;
                    sum.4 += figures.overlap;
                }
            }
        }
        assert!(calls >= 120);
        let key = Key::default();
        let by_layer = summary.by(&key, |group| Some(group.layer()));
        let whole: BTreeMap<Layer, (u64, u64, u64, u64, u64)> = by_layer
            .into_iter()
            .map(|(layer, f)| {
                (
                    layer,
                    (f.calls, f.bytes, f.inclusive, f.exclusive, f.overlap),
                )
            })
            .collect();
        assert_eq!(sums, whole);
    }
}

#[test]
fn exports_hold_every_record() {
    let (dir, trace) = made(&plan(Irregular::All));
    let tables = dir.path().join("tables");
    assert_eq!(
        penstock_analysis::parquet(&trace, &tables).unwrap().0,
        trace.records()
    );
    let view = dir.path().join("view");
    std::fs::create_dir(&view).unwrap();
    let written = penstock_analysis::perfetto(&trace, &view, Some(500)).unwrap();
    assert_eq!(written.records, trace.records());
    assert!(written.files.len() > 2 && written.flows > 0);
    let log = dir.path().join("x.darshan");
    assert!(penstock_analysis::darshan(&trace, &log).unwrap().0 > 100);
    let again = penstock_analysis::darshan(&trace, &log)
        .unwrap_err()
        .to_string();
    assert!(again.contains("x.darshan"), "{again}");
}

/// What is damaged, cut or missing is named, and the rest answered.
#[test]
fn what_is_missing_is_named() {
    let (dir, trace) = made(&plan(Irregular::None));
    let place = dir.path().join("t");
    let whole = trace.records();
    let file = place.join("data-1.trace");
    let bytes = std::fs::read(&file).unwrap();
    let asked = |what: &str| {
        let trace = Trace::open(&place).unwrap();
        let summary = summarise(&trace).unwrap();
        let notes: Vec<&str> = trace
            .notes
            .iter()
            .chain(summary.problems.iter().map(String::as_str))
            .collect();
        assert!(notes.iter().any(|n| n.contains(what)), "{what}: {notes:?}");
        summary
    };
    std::fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    assert_eq!(asked("data-1.trace").records, whole);
    let mut bad = bytes.clone();
    let middle = bad.len() - 200;
    bad[middle] ^= 1;
    std::fs::write(&file, &bad).unwrap();
    assert!(asked("data-1.trace").records < whole);
    std::fs::write(&file, b"PSTTRACE\x63\0\0\0").unwrap();
    asked("not read");
    std::fs::remove_file(&file).unwrap();
    let summary = asked("no part of data server 1");
    assert_eq!(summary.unclaimed, 0);
    std::fs::write(&file, &bytes).unwrap();
    let client = std::fs::read_dir(&place)
        .unwrap()
        .map(|e| e.unwrap().path());
    let client = client
        .into_iter()
        .find(|p| p.to_string_lossy().contains("node0-1000-"))
        .unwrap();
    std::fs::remove_file(client).unwrap();
    let summary = asked("belong to no process");
    assert_eq!(summary.unclaimed, 40 * 4);
}
