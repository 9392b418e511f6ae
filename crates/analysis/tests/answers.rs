//! Summaries and trees of generated traces.
use penstock_analysis::{Figures, Key, Layer, Plan, Trace, follow, summarise, write};
use std::collections::BTreeMap;

fn plan(irregular: bool) -> Plan {
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
    for irregular in [false, true] {
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
        if !irregular {
            assert_eq!(summary.records, 3 * 40 * 22);
        }
    }
}

/// Each call followed by itself gives the same figures as one pass over everything.
#[test]
fn trees_of_all_calls_are_the_summary() {
    for irregular in [false, true] {
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
