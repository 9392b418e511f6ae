//! Programs that use a deployment: what they say of themselves, and how the metadata server lists them.
//!
//! The user of a row is the one who proved it when he connected. All else is what the program says.
use super::control::{ProgramTraffic, Traffic};
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Programs in one list.
pub const MAX_PROGRAMS: usize = 1024;
/// Bytes of a job's name and of a host's.
pub const MAX_PROGRAM_NAME: usize = 64;
/// Bytes of a command.
pub const MAX_COMMAND: usize = 256;

/// What a program says of itself; its number is the connection's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// As the scheduler of jobs names it; empty: none. At most [`MAX_PROGRAM_NAME`] bytes.
    pub job: String,
    /// Where these processes run. At most [`MAX_PROGRAM_NAME`] bytes.
    pub host: String,
    /// The beginning of the command line, as it was given: it may hold any character. At most [`MAX_COMMAND`] bytes.
    pub command: String,
    /// How many ranks it has on all hosts, if it knows.
    pub ranks: Option<u32>,
}

impl ProgramInfo {
    /// The first text that is too long: what it is, its bytes and the limit.
    pub fn too_long(&self) -> Option<(&'static str, usize, usize)> {
        let texts = [
            ("job", &self.job, MAX_PROGRAM_NAME),
            ("host", &self.host, MAX_PROGRAM_NAME),
            ("command", &self.command, MAX_COMMAND),
        ];
        let mut lengths = texts
            .map(|(what, text, limit)| (what, text.len(), limit))
            .into_iter();
        lengths.find(|(_, len, limit)| len > limit)
    }
}

/// A program's processes on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRow {
    /// As in [`TraceContext`](super::TraceContext).
    pub program: u64,
    /// Whose it is.
    pub uid: u32,
    /// What it says of itself.
    pub info: ProgramInfo,
    /// Since it was registered, milliseconds.
    pub age_ms: u64,
}

/// The programs that a user may see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// In the order of their registration.
    #[serde(deserialize_with = "bounded::at_most::<MAX_PROGRAMS, _, _>")]
    pub rows: Vec<ProgramRow>,
    /// What goes through all data servers per second, as they report now; also of programs that are not listed. Those with the
    /// most bytes, at most [`MAX_PROGRAMS`].
    #[serde(deserialize_with = "bounded::at_most::<MAX_PROGRAMS, _, _>")]
    pub traffic: Vec<ProgramTraffic>,
    /// What goes through per second and is not told apart; only where all users are told of.
    pub others: Traffic,
    /// These are the rows of all users.
    pub all: bool,
}
