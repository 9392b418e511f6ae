//! The errors of the command: what happened, and what to do next.
use std::fmt;
use std::path::Path;

/// Result of a step of the command.
pub type Result<T> = std::result::Result<T, CliError>;

/// A failure for people: what happened and where, then what to do next.
#[derive(Debug)]
pub struct CliError {
    what: String,
    next: Option<String>,
}

impl CliError {
    /// A failure that needs no further advice.
    pub fn new(what: impl fmt::Display) -> CliError {
        CliError {
            what: what.to_string(),
            next: None,
        }
    }

    /// Adds what to do next.
    pub fn next(mut self, step: impl fmt::Display) -> CliError {
        self.next = Some(step.to_string());
        self
    }

    /// What happened, and what to do next.
    pub fn into_parts(self) -> (String, Option<String>) {
        (self.what, self.next)
    }

    /// A failed system call on `path`: "cannot read /x: Permission denied".
    pub fn io(doing: &str, path: &Path, source: std::io::Error) -> CliError {
        CliError::new(format!("cannot {doing} {}: {source}", path.display()))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(next) = &self.next {
            write!(f, "\n  next: {next}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CliError {}
