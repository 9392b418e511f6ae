//! `penstock trace overview`: what a trace holds, and what part of the run was I/O.
use super::answer::{Answer, Kind, share};
use super::question::{Question, process};
use crate::error::Result;
use clap::Args;

/// What a trace holds: its programs and processes, how long each was in I/O, and what is missing.
#[derive(Debug, Args)]
pub struct OverviewArgs {
    #[command(flatten)]
    question: Question,
}

pub fn overview(args: &OverviewArgs) -> Result<()> {
    args.question.about_groups("penstock trace breakdown")?;
    let (trace, summary) = args.question.summary()?;
    let mut answer = Answer::new(&[
        ("process", Kind::Text),
        ("host", Kind::Text),
        ("from", Kind::Time),
        ("to", Kind::Time),
        ("in I/O", Kind::Time),
        ("share", Kind::Share),
    ]);
    let span = summary.span();
    let mut sum = 0.0;
    let clients = trace.parts.iter().filter(|part| !part.is_server());
    let mut processes = 0u64;
    for (part, p) in clients.zip(&summary.processes) {
        if !args.question.call.has_process(p.program, p.rank) {
            continue;
        }
        processes += 1;
        sum += share(p.busy, span).unwrap_or(0.0);
        let name = match p.rank {
            penstock_trace::NO_RANK => part.name(),
            rank => process(&trace, p.program, rank),
        };
        let host = part.stream.head().host.as_str();
        answer.push(row![
            name,
            host,
            p.first,
            p.last,
            p.busy,
            share(p.busy, span)
        ]);
    }
    let commands: std::collections::BTreeSet<&str> = trace
        .parts
        .iter()
        .map(|p| p.stream.head().command.as_str())
        .filter(|c| !c.is_empty())
        .collect();
    for command in commands.iter().take(10) {
        answer.total("command", Kind::Text, *command);
    }
    answer.total("processes", Kind::Count, processes);
    answer.total("servers", Kind::Count, summary.servers.len() as u64);
    answer.total("files", Kind::Count, summary.files.len() as u64 - 1);
    answer.total("records", Kind::Count, summary.records);
    answer.total("dropped", Kind::Count, trace.dropped);
    answer.total("time of the run", Kind::Time, span);
    answer.total(
        "mean share in I/O",
        Kind::Share,
        (processes > 0).then(|| sum / processes as f64),
    );
    answer.note("the run is the time from the first record to the last one");
    args.question.print(answer, &trace, &summary.problems)
}
