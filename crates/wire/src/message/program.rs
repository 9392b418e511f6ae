//! Programs that use a deployment: how they register, and how the metadata server lists them.
//!
//! The user of a row is the authenticated one. Everything else is the program's own claim.
use super::control::{ProgramTraffic, Traffic};
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Most programs of a list.
pub const MAX_PROGRAMS: usize = 1024;
/// Programs that have ended, in the same list.
pub const MAX_FORMER: usize = 256;
/// Bytes of a job's name and of a host's.
pub const MAX_PROGRAM_NAME: usize = 64;
/// Bytes of a command.
pub const MAX_COMMAND: usize = 256;

/// A program's registration; its number is the connection's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Its name in the batch system; empty: none. At most [`MAX_PROGRAM_NAME`] bytes.
    pub job: String,
    /// The host of these processes. At most [`MAX_PROGRAM_NAME`] bytes.
    pub host: String,
    /// The beginning of the command line as given; it may contain any character. At most [`MAX_COMMAND`] bytes.
    pub command: String,
    /// Its ranks on all hosts, if it knows.
    pub ranks: Option<u32>,
}

impl ProgramInfo {
    /// The first text that is too long: its name, its bytes and the limit.
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
    /// Its user.
    pub uid: u32,
    /// Its registration.
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
    /// Those that ended last, the newest first; `age_ms` counts from their ends. None that runs.
    #[serde(deserialize_with = "bounded::at_most::<MAX_FORMER, _, _>")]
    pub former: Vec<ProgramRow>,
    /// What goes through all data servers per second, as they report now; also of programs that are not listed. Those with the
    /// most bytes, at most [`MAX_PROGRAMS`].
    #[serde(deserialize_with = "bounded::at_most::<MAX_PROGRAMS, _, _>")]
    pub traffic: Vec<ProgramTraffic>,
    /// Other traffic per second; only in lists of all users' programs.
    pub others: Traffic,
    /// Whether the list has the programs of all users.
    pub all: bool,
}
