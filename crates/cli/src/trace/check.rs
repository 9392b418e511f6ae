//! `penstock trace check`: whether a trace is whole.
use super::answer::{Answer, Form, Kind};
use super::question::{asked, limits, open};
use crate::error::Result;
use clap::Args;
use penstock_analysis::summarise;
use std::path::PathBuf;
use std::process::ExitCode;

/// Read every block of a trace and say what is missing or damaged. Exit code 1: the trace is not whole.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The trace: a directory, or one file of it.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    form: Form,
}

pub fn check(args: &CheckArgs) -> Result<ExitCode> {
    let trace = open(&args.trace)?;
    let summary = summarise(&trace).map_err(asked)?;
    let mut answer = Answer::new(&[
        ("part", Kind::Text),
        ("of", Kind::Text),
        ("host", Kind::Text),
        ("size", Kind::Bytes),
        ("records", Kind::Count),
        ("dropped", Kind::Count),
        ("clock error", Kind::Time),
        ("state", Kind::Text),
    ]);
    let mut whole = summary.problems.is_empty() && trace.unread == 0;
    for part in &trace.parts {
        let (stream, head) = (&part.stream, part.stream.head());
        let damage = stream.damage();
        let state = match &damage {
            None if stream.summary().dropped > 0 => "lacks records",
            None => "whole",
            Some(penstock_trace::Error::Truncated { .. }) => "cut short",
            Some(_) => "damaged",
        };
        whole &= state == "whole";
        answer.push(row![
            stream
                .path()
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            part.name(),
            head.host.as_str(),
            stream.summary().bytes,
            stream.summary().events,
            stream.summary().dropped,
            head.clock.error,
            state,
        ]);
    }
    answer.total("records", Kind::Count, summary.records);
    answer.total(
        "state",
        Kind::Text,
        if whole { "whole" } else { "not whole" },
    );
    if summary.outside > 0 {
        answer.note(format!(
            "{} requests at servers belong to no recorded call: the client library made them itself, or their calls were not chosen",
            summary.outside
        ));
    }
    limits(&mut answer, &trace, &summary.problems);
    answer.print(&args.form)?;
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
