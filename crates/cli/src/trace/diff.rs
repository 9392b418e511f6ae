//! `penstock trace diff`: two runs beside each other.
use super::answer::{Answer, Form, Kind};
use super::question::{asked, limits, open};
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Figures, Key, Layer, summary};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Compare two traces: calls, bytes and exclusive time of each operation, those that differ most first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace diff traces/before traces/after")]
pub struct DiffArgs {
    /// The first trace.
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The second one.
    #[arg(value_name = "B")]
    b: PathBuf,
    #[command(flatten)]
    form: Form,
}

pub fn diff(args: &DiffArgs) -> Result<()> {
    let mut groups: BTreeMap<(Layer, u16), [Figures; 2]> = BTreeMap::new();
    let mut answer = Answer::new(&[
        ("layer", Kind::Text),
        ("operation", Kind::Text),
        ("calls A", Kind::Count),
        ("calls B", Kind::Count),
        ("bytes A", Kind::Bytes),
        ("bytes B", Kind::Bytes),
        ("exclusive A", Kind::Time),
        ("exclusive B", Kind::Time),
        ("B / A", Kind::Figure),
        ("mean A", Kind::Time),
        ("mean B", Kind::Time),
    ]);
    for (side, path) in [&args.a, &args.b].into_iter().enumerate() {
        let trace = open(path)?;
        let summary = summary(&trace).map_err(asked)?;
        for (group, figures) in summary.by(&Key::default(), |g| Some((g.layer(), g.operation))) {
            groups.entry(group).or_default()[side].merge(&figures);
        }
        answer.total(["time of A", "time of B"][side], Kind::Time, summary.span());
        answer.total(
            ["calls' time of A", "calls' time of B"][side],
            Kind::Time,
            summary.roots,
        );
        let mut limited = Answer::default();
        limits(&mut limited, &trace, &summary.problems);
        limited.each_note(|note| answer.note(format!("{}: {note}", ["A", "B"][side])));
    }
    let mut rows: Vec<_> = groups.into_iter().collect();
    rows.sort_by_key(|(_, [a, b])| std::cmp::Reverse(a.exclusive.abs_diff(b.exclusive)));
    for ((layer, operation), [a, b]) in rows {
        answer.push(row![
            layer.name(),
            penstock_trace::Operation(operation).name().to_string(),
            a.calls,
            b.calls,
            a.bytes,
            b.bytes,
            a.exclusive,
            b.exclusive,
            (a.exclusive > 0).then(|| b.exclusive as f64 / a.exclusive as f64),
            a.mean(),
            b.mean(),
        ]);
    }
    answer.print(&args.form)
}
