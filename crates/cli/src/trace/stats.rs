//! `penstock trace stats`: how long calls took: least, mean, percentiles, most.
use super::answer::{Answer, Kind, rate};
use super::list::layers;
use super::question::{Question, asked, process};
use crate::error::Result;
use clap::{Args, ValueEnum};
use penstock_analysis::{Figures, Group, Layer, Summary, Trace, follow};
use penstock_trace::NO_SERVER;
use std::collections::BTreeMap;

/// How long calls took, by operation, process, server or file: least, mean, percentiles, most.
///
/// Percentiles are right within 6.3%.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace stats traces/run                        each operation of each layer
  penstock trace stats traces/run --layer request --by server
  penstock trace stats traces/run --call 3 --csv")]
pub struct StatsArgs {
    #[command(flatten)]
    question: Question,
    /// Tell apart, beside layers.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = By::Operation)]
    by: By,
    /// Calls of this layer alone.
    #[arg(long, value_name = "LAYER", value_parser = layers())]
    layer: Option<String>,
}

/// What groups of calls are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Nothing but layers.
    Layer,
    /// Function.
    Operation,
    /// Process.
    Rank,
    /// Server.
    Server,
    /// File.
    File,
}

impl By {
    /// The name of the column.
    pub fn name(self) -> &'static str {
        match self {
            By::Layer => "all",
            By::Operation => "operation",
            By::Rank => "rank",
            By::Server => "server",
            By::File => "file",
        }
    }

    /// The name of a group.
    pub fn of(self, trace: &Trace, summary: &Summary, group: &Group) -> String {
        match self {
            By::Layer => "-".into(),
            By::Operation => group.operation().name().to_string(),
            By::Rank => process(trace, group.program, group.rank),
            By::Server if group.server == NO_SERVER => "-".into(),
            By::Server => group.server.to_string(),
            By::File if group.file == 0 => "-".into(),
            By::File => summary.file(group.file).to_owned(),
        }
    }

    /// What groups are gathered by: cheaper than their names.
    pub fn number(self, group: &Group) -> (u64, u32) {
        match self {
            By::Layer => (0, 0),
            By::Operation => (group.operation.into(), 0),
            By::Rank => (group.program, group.rank),
            By::Server => (group.server.into(), 0),
            By::File => (group.file.into(), 0),
        }
    }
}

/// Figures by layer and by what `by` tells apart, with the name of each group.
pub fn groups(
    trace: &Trace,
    summary: &Summary,
    question: &Question,
    by: By,
    layer: Option<Layer>,
) -> Vec<(Layer, String, Figures)> {
    let mut names: BTreeMap<(u64, u32), String> = BTreeMap::new();
    for cell in summary.cells(&question.call) {
        let number = by.number(&cell.group);
        names
            .entry(number)
            .or_insert_with(|| by.of(trace, summary, &cell.group));
    }
    let groups = summary.by(&question.call, |group| {
        let taken = layer.is_none_or(|l| l == group.layer());
        taken.then(|| (group.layer(), by.number(group)))
    });
    let named = groups
        .into_iter()
        .map(|((layer, number), figures)| (layer, names[&number].clone(), figures));
    named.collect()
}

pub fn stats(args: &StatsArgs) -> Result<()> {
    let layer = args.layer.as_deref().and_then(Layer::from_name);
    let mut answer = Answer::new(&[
        ("layer", Kind::Text),
        (args.by.name(), Kind::Text),
        ("calls", Kind::Count),
        ("errors", Kind::Count),
        ("bytes", Kind::Bytes),
        ("total", Kind::Time),
        ("min", Kind::Time),
        ("mean", Kind::Time),
        ("p50", Kind::Time),
        ("p95", Kind::Time),
        ("p99", Kind::Time),
        ("max", Kind::Time),
        ("per call", Kind::Rate),
    ]);
    let mut push = |layer: Layer, name: String, f: &Figures| {
        let quantile = |share| f.durations.quantile(share).clamp(f.least, f.most);
        answer.push(row![
            layer.name(),
            name,
            f.calls,
            f.errors,
            f.bytes,
            f.inclusive,
            f.least,
            f.mean(),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            f.most,
            rate(f.bytes, f.inclusive),
        ]);
    };
    if args.question.call.names_a_call() {
        let trace = args.question.open()?;
        let tree = follow(&trace, &args.question.call).map_err(asked)?;
        for (of, (figures, _)) in tree.layers() {
            if layer.is_none_or(|l| l == of) {
                push(of, args.question.call.to_string(), &figures);
            }
        }
        answer.notes(tree.notes.iter());
        return args.question.print(answer, &trace, &[]);
    }
    let (trace, summary) = args.question.summary()?;
    for (layer, name, figures) in groups(&trace, &summary, &args.question, args.by, layer) {
        push(layer, name, &figures);
    }
    args.question.print(answer, &trace, &summary.problems)
}
