//! `penstock trace breakdown`: where the time went, by layer.
use super::answer::{Answer, Kind, share};
use super::question::{Question, asked, process};
use crate::error::Result;
use clap::{Args, ValueEnum};
use penstock_analysis::{Layer, follow};
use penstock_trace::NO_SERVER;

/// Where the time went: inclusive and exclusive time of each layer, of all calls or of one.
///
/// Exclusive time of a call is its interval less the union of its children's. Children may run at the same time (overlap), or
/// outside their parent's interval (after). By as much do exclusive times add up to more than the calls' time. Of one call,
/// `critical` is the time on its critical path: what the call had to wait for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace breakdown traces/run
  penstock trace breakdown traces/run --by rank
  penstock trace breakdown traces/run --call 0/1          one call of rank 0")]
pub struct BreakdownArgs {
    #[command(flatten)]
    question: Question,
    /// Tell apart, beside layers.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = By::Layer)]
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Layer,
    Rank,
    Server,
}

pub fn breakdown(args: &BreakdownArgs) -> Result<()> {
    if args.question.call.names_a_call() {
        return one(args);
    }
    let (trace, summary) = args.question.summary()?;
    let groups = summary.by(&args.question.call, |group| {
        let name = match args.by {
            By::Layer => None,
            By::Rank => Some((group.program, group.rank)),
            By::Server if group.server == NO_SERVER => Some((1, NO_SERVER)),
            By::Server => Some((0, group.server)),
        };
        Some((name, group.layer()))
    });
    let name = match args.by {
        By::Layer => None,
        By::Rank => Some("rank"),
        By::Server => Some("server"),
    };
    let mut columns: Vec<_> = name.map(|name| (name, Kind::Text)).into_iter().collect();
    columns.extend([
        ("layer", Kind::Text),
        ("calls", Kind::Count),
        ("bytes", Kind::Bytes),
        ("inclusive", Kind::Time),
        ("exclusive", Kind::Time),
        ("share", Kind::Share),
        ("overlap", Kind::Time),
        ("after", Kind::Time),
        ("errors", Kind::Count),
    ]);
    let mut answer = Answer::new(&columns);
    let all: u64 = groups.values().map(|f| f.exclusive).sum();
    for ((name, layer), f) in &groups {
        let mut row = match (*name, args.by) {
            (None, _) => Vec::new(),
            (Some((program, rank)), By::Rank) => row![process(&trace, program, rank)],
            (Some((_, NO_SERVER)), _) => row!["-"],
            (Some((_, server)), _) => row![server.to_string()],
        };
        row.extend(row![
            layer.name(),
            f.calls,
            f.bytes,
            f.inclusive,
            f.exclusive,
            share(f.exclusive, all),
            f.overlap,
            f.after,
            f.errors,
        ]);
        answer.push(row);
    }
    if args.question.call == Default::default() {
        answer.total("time of all calls", Kind::Time, summary.roots);
    }
    answer.total("exclusive time of all layers", Kind::Time, all);
    args.question.print(answer, &trace, &summary.problems)
}

/// Of one call.
fn one(args: &BreakdownArgs) -> Result<()> {
    let trace = args.question.open()?;
    let tree = follow(&trace, &args.question.call).map_err(asked)?;
    let mut answer = Answer::new(&[
        ("layer", Kind::Text),
        ("calls", Kind::Count),
        ("bytes", Kind::Bytes),
        ("inclusive", Kind::Time),
        ("exclusive", Kind::Time),
        ("critical", Kind::Time),
        ("share", Kind::Share),
        ("overlap", Kind::Time),
        ("after", Kind::Time),
        ("errors", Kind::Count),
    ]);
    let call = tree.nodes[0].record;
    for (layer, (f, critical)) in tree.layers() {
        answer.push(row![
            layer.name(),
            f.calls,
            f.bytes,
            f.inclusive,
            f.exclusive,
            critical,
            share(critical, call.duration),
            f.overlap,
            f.after,
            f.errors,
        ]);
    }
    let accesses = tree
        .nodes
        .iter()
        .filter(|n| n.record.layer == Layer::Device);
    answer.total("call", Kind::Text, call.operation.name().to_string());
    answer.total("time of the call", Kind::Time, call.duration);
    answer.total("device accesses", Kind::Count, accesses.count() as u64);
    answer.notes(tree.notes.iter());
    args.question.print(answer, &trace, &[])
}
