//! What all questions about a trace share: the trace, the key, the form of the answer.
use super::answer::{Answer, Form};
use super::told;
use crate::error::{CliError, Result};
use clap::Args;
use penstock_analysis::{Error, Key, Summary, Trace};
use std::path::PathBuf;

/// Of every question.
#[derive(Debug, Args)]
pub struct Question {
    /// The trace: a directory, or one file of it.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Only what belongs to these calls: PROCESS/MPI-CALL/FILE-SYSTEM-CALL/SERVER, `*` for all; a process is a rank, or
    /// PROGRAM.RANK.
    #[arg(long, value_name = "KEY", default_value = "*/*/*/*", value_parser = key, hide_default_value = true)]
    pub call: Key,
    #[command(flatten)]
    pub form: Form,
}

fn key(text: &str) -> std::result::Result<Key, String> {
    text.parse()
}

impl Question {
    /// The trace, opened.
    pub fn open(&self) -> Result<Trace> {
        open(&self.trace)
    }

    /// The trace and the figures of all its groups.
    pub fn summary(&self) -> Result<(Trace, Summary)> {
        let trace = self.open()?;
        let summary = penstock_analysis::summary(&trace).map_err(asked)?;
        Ok((trace, summary))
    }

    /// Refuses a key of a single call where groups are meant.
    pub fn about_groups(&self, instead: &str) -> Result<()> {
        if !self.call.names_a_call() {
            Ok(())
        } else {
            Err(CliError::new(format!(
            "`{}` names a single call, and this question is about groups of processes and servers",
            self.call
        ))
        .next(format!("ask `{instead}`, or put * in place of the call")))
        }
    }

    /// Prints an answer with what limits it.
    pub fn print(&self, mut answer: Answer, trace: &Trace, problems: &[String]) -> Result<()> {
        limits(&mut answer, trace, problems);
        answer.print(&self.form)
    }
}

/// What is missing of the trace goes with the answer.
pub fn limits(answer: &mut Answer, trace: &Trace, problems: &[String]) {
    answer.notes(trace.notes.iter());
    answer.notes(problems.iter().map(String::as_str));
}

/// Opens a trace.
pub fn open(path: &std::path::Path) -> Result<Trace> {
    Trace::open(path).map_err(asked)
}

/// The same for an error of the analysis.
pub fn asked(error: Error) -> CliError {
    match &error {
        Error::Trace(inner) => told(inner),
        _ => CliError::new(error),
    }
}

/// `3`, or `PROGRAM.3` where several programs are in the trace.
pub fn process(trace: &Trace, program: u64, rank: u32) -> String {
    let many = trace
        .parts
        .iter()
        .filter(|p| !p.is_server())
        .any(|p| p.program != program);
    match rank {
        penstock_trace::NO_RANK => "-".into(),
        _ if many => format!("{program}.{rank}"),
        _ => rank.to_string(),
    }
}
