//! The state of the chooser of algorithms, for `penstock status`.
use penstock_sched::learn::AccessPattern;
use penstock_sched::{Chooser, Class, Nanos, Objective, Op};
use penstock_wire::message::{ChoiceStatus, FileStatus, PatternStatus};

/// Most files that are listed.
const SHOWN: usize = 16;

/// At `now`, on the queue's clock.
pub(crate) fn status(chooser: &Chooser, now: Nanos) -> ChoiceStatus {
    let choosing = chooser.choosing();
    let milli = |ratio: f64| (ratio * 1e3).round() as u64;
    let name = Objective::ALL
        .iter()
        .find(|(o, _)| *o == choosing.objective);
    let (changes, since) = chooser.changes();
    let view = chooser.view();
    let busiest = chooser.busiest();
    ChoiceStatus {
        mode: choosing.mode.name().unwrap_or("fixed").into(),
        tree: choosing.tree.name().into(),
        objective: name.map_or("", |n| n.1).into(),
        ratio_read_milli: milli(choosing.ratio[0]),
        ratio_write_milli: milli(choosing.ratio[1]),
        changes,
        age_ns: now.saturating_sub(since),
        reason: chooser.reason().into(),
        requests: view.requests,
        files: view.files,
        patterns: view.classes.iter().map(pattern).collect(),
        busiest: busiest
            .into_iter()
            .take(SHOWN)
            .map(|f| FileStatus {
                file: f.file,
                write: f.op == Op::Write,
                pattern: f.pattern.map_or("", AccessPattern::name).into(),
                requests: f.requests,
                request_bytes: f.bytes / u64::from(f.requests.max(1)),
                choice: chooser.groups().of(f.file, f.op).name().into(),
            })
            .collect(),
        scores: chooser
            .scores(now)
            .into_iter()
            .map(|(a, score)| (a.name().into(), score.round() as u64))
            .collect(),
    }
}

fn pattern(class: &Class) -> PatternStatus {
    let s = &class.situation;
    PatternStatus {
        write: s.op == Op::Write,
        order: s.order.name().into(),
        large: s.large,
        files: class.files,
        requests: class.requests,
        request_bytes: class.bytes / u64::from(class.requests.max(1)),
        bytes_per_file: s.bytes_per_file,
        choice: class.choice.map_or("", |algorithm| algorithm.name()).into(),
    }
}
