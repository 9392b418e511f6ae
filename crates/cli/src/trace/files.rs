//! `penstock trace files`: a line for each file.
use super::answer::{Answer, Kind, rate};
use super::question::Question;
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Figures, OperationKind, Order};
use std::collections::{BTreeMap, BTreeSet};

/// What happened to each file: who used it, bytes, time in calls on it. Those with most time first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace files traces/run
  penstock trace files traces/run --call 3 --most 10")]
pub struct FilesArgs {
    #[command(flatten)]
    question: Question,
    /// Files that are shown at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: usize,
}

#[derive(Default)]
struct File {
    processes: BTreeSet<(u64, u32)>,
    all: Figures,
    kinds: BTreeMap<OperationKind, Figures>,
    order: Order,
}

pub fn files(args: &FilesArgs) -> Result<()> {
    args.question.about_groups("penstock trace follow")?;
    let (trace, summary) = args.question.summary()?;
    let mut files: BTreeMap<u32, (u8, File)> = BTreeMap::new();
    for cell in summary.cells(&args.question.call) {
        let group = &cell.group;
        if group.file == 0 || group.layer() > penstock_analysis::Layer::Client {
            continue;
        }
        // Each file by the topmost layer that names it: lower ones repeat its bytes.
        let (top, file) = files
            .entry(group.file)
            .or_insert_with(|| (group.layer, File::default()));
        if group.layer > *top {
            continue;
        }
        if group.layer < *top {
            (*top, *file) = (group.layer, File::default());
        }
        file.processes.insert((group.program, group.rank));
        file.all.merge(&cell.figures);
        file.kinds
            .entry(group.operation().kind())
            .or_default()
            .merge(&cell.figures);
    }
    for one in &summary.orders {
        if let Some((top, file)) = files.get_mut(&one.file)
            && *top == one.layer
            && args.question.call.has_process(one.program, one.rank)
        {
            file.order.merge(&one.order);
        }
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, (_, file))| std::cmp::Reverse(file.all.inclusive));
    let mut answer = Answer::new(&[
        ("file", Kind::Text),
        ("layer", Kind::Text),
        ("processes", Kind::Count),
        ("calls", Kind::Count),
        ("errors", Kind::Count),
        ("opens", Kind::Count),
        ("read", Kind::Bytes),
        ("written", Kind::Bytes),
        ("time", Kind::Time),
        ("while calls ran", Kind::Rate),
        ("pattern", Kind::Text),
    ]);
    for (number, (layer, file)) in files.iter().take(args.most) {
        let of = |kind| file.kinds.get(&kind);
        answer.push(row![
            summary.file(*number),
            penstock_analysis::Layer::from_number(*layer).map(|l| l.name()),
            file.processes.len() as u64,
            file.all.calls,
            file.all.errors,
            of(OperationKind::Open).map_or(0, |f| f.calls),
            of(OperationKind::Read).map_or(0, |f| f.bytes),
            of(OperationKind::Write).map_or(0, |f| f.bytes),
            file.all.inclusive,
            rate(file.all.bytes, file.all.inclusive),
            file.order.name(),
        ]);
    }
    answer.total("files", Kind::Count, files.len() as u64);
    if files.len() > args.most {
        answer.note(format!(
            "{} further files are not shown: --most",
            files.len() - args.most
        ));
    }
    args.question.print(answer, &trace, &summary.problems)
}
