//! `penstock trace phases`: when a program was in I/O, and when it was not.
use super::answer::{Answer, Kind, rate, share};
use super::question::Question;
use crate::error::Result;
use clap::Args;

/// Phases of I/O, with pauses between them; or the run in windows of equal length.
///
/// Times are those of 2,048 to 4,096 bins of the run, whose width is said.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace phases traces/run                       phases with pauses of a hundredth of the run between them
  penstock trace phases traces/run --gap 2.5             pauses of 2.5 seconds
  penstock trace phases traces/run --windows 20")]
pub struct PhasesArgs {
    #[command(flatten)]
    question: Question,
    /// A pause that ends a phase, seconds [default: a hundredth of the run].
    #[arg(long, value_name = "SECONDS")]
    gap: Option<f64>,
    /// Windows of equal length instead.
    #[arg(long, value_name = "N", conflicts_with = "gap", value_parser = clap::value_parser!(u64).range(1..=4096))]
    windows: Option<u64>,
}

pub fn phases(args: &PhasesArgs) -> Result<()> {
    args.question.about_groups("penstock trace follow")?;
    let (trace, summary) = args.question.summary()?;
    let time = &summary.timeline;
    let span = time.bins.len() as u64 * time.width;
    let gap = args
        .gap
        .map_or(span / 100, |seconds| (seconds.max(0.0) * 1e9) as u64);
    let found = match args.windows {
        None => time.phases(gap),
        Some(windows) => {
            let each = time.bins.len().div_ceil(windows as usize).max(1);
            let sums = time.bins.chunks(each).enumerate().map(|(i, bins)| {
                let mut sum = penstock_analysis::Bin::default();
                bins.iter().for_each(|bin| sum.add(bin));
                let begin = (i * each) as u64 * time.width;
                (begin, begin + bins.len() as u64 * time.width, sum)
            });
            sums.collect()
        }
    };
    let processes = summary.processes.len() as u64;
    let mut answer = Answer::new(&[
        ("from", Kind::Time),
        ("to", Kind::Time),
        ("lasts", Kind::Time),
        ("calls", Kind::Count),
        ("read", Kind::Bytes),
        ("written", Kind::Bytes),
        ("throughput", Kind::Rate),
        ("in I/O", Kind::Share),
    ]);
    for (begin, end, sum) in &found {
        answer.push(row![
            *begin,
            *end,
            end - begin,
            sum.calls,
            sum.read,
            sum.written,
            rate(sum.read + sum.written, end - begin),
            share(sum.busy, (end - begin) * processes.max(1)),
        ]);
    }
    let active: u64 = found
        .iter()
        .filter(|f| f.2.busy > 0)
        .map(|f| f.1 - f.0)
        .sum();
    answer.total("phases", Kind::Count, found.len() as u64);
    answer.total("time in phases", Kind::Share, share(active, span));
    answer.note(format!(
        "times are those of bins of {}",
        super::answer::time(time.width)
    ));
    if args.question.call != Default::default() {
        answer.note("phases are those of all processes: --call has no part in them");
    }
    args.question.print(answer, &trace, &summary.problems)
}
