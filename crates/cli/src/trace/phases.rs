//! `penstock trace phases`: when a program was in I/O, and when it was not.
use super::answer::{Answer, Kind, Value, rate, share};
use super::question::Question;
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Bin, Summary, Trace};

/// Phases of I/O, with pauses between them; or the run in windows of equal length; or as the program marked them.
///
/// Times are those of 2,048 to 4,096 bins of the run, whose width is said. With --marks they are exact. A phase
/// then lasts from one call of `MPI_Pcontrol(level)` to the next one of each process; calls belong to the phase they began in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace phases traces/run                       phases with pauses of a hundredth of the run between them
  penstock trace phases traces/run --gap 2.5             pauses of 2.5 seconds
  penstock trace phases traces/run --windows 20
  penstock trace phases traces/run --marks               phases between calls of MPI_Pcontrol")]
pub struct PhasesArgs {
    #[command(flatten)]
    question: Question,
    /// A pause that ends a phase, seconds [default: a hundredth of the run].
    #[arg(long, value_name = "SECONDS")]
    gap: Option<f64>,
    /// Windows of equal length instead.
    #[arg(long, value_name = "N", conflicts_with = "gap", value_parser = clap::value_parser!(u64).range(1..=4096))]
    windows: Option<u64>,
    /// Phases between the program's calls of MPI_Pcontrol.
    #[arg(long, conflicts_with_all = ["gap", "windows"])]
    marks: bool,
}

/// What is said of each phase.
const COLUMNS: [(&str, Kind); 8] = [
    ("from", Kind::Time),
    ("to", Kind::Time),
    ("lasts", Kind::Time),
    ("calls", Kind::Count),
    ("read", Kind::Bytes),
    ("written", Kind::Bytes),
    ("throughput", Kind::Rate),
    ("in I/O", Kind::Share),
];

/// The row of a phase from `begin` to `end`, in which all processes spent `time`.
fn row_of(begin: u64, end: u64, time: u64, sum: &Bin) -> Vec<Value> {
    row![
        begin,
        end,
        end - begin,
        sum.calls,
        sum.read,
        sum.written,
        rate(sum.read + sum.written, end - begin),
        share(sum.busy, time),
    ]
}

/// Phases between calls of `MPI_Pcontrol`.
fn marked(args: &PhasesArgs, trace: &Trace, summary: &Summary) -> Result<()> {
    let mut columns = vec![
        ("program", Kind::Text),
        ("level", Kind::Text),
        ("processes", Kind::Count),
    ];
    columns.extend(COLUMNS);
    let mut answer = Answer::new(&columns);
    for phase in &summary.marked {
        let level = match phase.level {
            None => "before".into(),
            Some(level) if phase.agreed => level.to_string(),
            Some(level) => format!("{level}, others differ"),
        };
        let mut row = row![phase.program.to_string(), level, phase.processes];
        row.extend(row_of(phase.from, phase.to, phase.time, &phase.sums));
        answer.push(row);
    }
    if summary.marked.is_empty() {
        answer.note("no process called MPI_Pcontrol: ask for --gap or --windows");
    }
    args.question.print(answer, trace, &summary.problems)
}

pub fn phases(args: &PhasesArgs) -> Result<()> {
    args.question.about_groups("penstock trace follow")?;
    let (trace, summary) = args.question.summary()?;
    if args.marks {
        return marked(args, &trace, &summary);
    }
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
                let mut sum = Bin::default();
                bins.iter().for_each(|bin| sum.add(bin));
                let begin = (i * each) as u64 * time.width;
                (begin, begin + bins.len() as u64 * time.width, sum)
            });
            sums.collect()
        }
    };
    let processes = summary.processes.len() as u64;
    let mut answer = Answer::new(&COLUMNS);
    for (begin, end, sum) in &found {
        answer.push(row_of(*begin, *end, (end - begin) * processes.max(1), sum));
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
