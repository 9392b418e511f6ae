//! `penstock trace throughput`: bytes per second.
use super::answer::{Answer, Kind, rate};
use super::list::layers;
use super::question::{Question, asked};
use super::stats::{By, groups};
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Layer, follow};

/// Bytes per second: over the time from the first call of a group to its last, and while its calls ran.
#[derive(Debug, Args)]
pub struct ThroughputArgs {
    #[command(flatten)]
    question: Question,
    /// Tell apart, beside layers.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = By::Layer)]
    by: By,
    /// Calls of this layer alone.
    #[arg(long, value_name = "LAYER", value_parser = layers())]
    layer: Option<String>,
}

pub fn throughput(args: &ThroughputArgs) -> Result<()> {
    let layer = args.layer.as_deref().and_then(Layer::from_name);
    let mut answer = Answer::new(&[
        ("layer", Kind::Text),
        (args.by.name(), Kind::Text),
        ("calls", Kind::Count),
        ("bytes", Kind::Bytes),
        ("from", Kind::Time),
        ("to", Kind::Time),
        ("throughput", Kind::Rate),
        ("while calls ran", Kind::Rate),
    ]);
    let one = args.question.call.names_a_call();
    let (trace, figures, problems) = if one {
        let trace = args.question.open()?;
        let tree = follow(&trace, &args.question.call).map_err(asked)?;
        let figures = tree
            .layers()
            .into_iter()
            .map(|(l, (f, _))| (l, args.question.call.to_string(), f));
        let notes = tree.notes.iter().map(str::to_owned).collect();
        (trace, figures.collect(), notes)
    } else {
        let (trace, summary) = args.question.summary()?;
        let figures = groups(&trace, &summary, &args.question, args.by, layer);
        (trace, figures, summary.problems)
    };
    for (of, name, f) in figures {
        if f.bytes > 0 && layer.is_none_or(|l| l == of) {
            answer.push(row![
                of.name(),
                name,
                f.calls,
                f.bytes,
                f.first,
                f.last,
                rate(f.bytes, f.last - f.first),
                rate(f.bytes, f.inclusive),
            ]);
        }
    }
    args.question.print(answer, &trace, &problems)
}
