//! The control channel between each data server and the metadata server: reports up, decisions down
//! ([`crate::control`]).
use super::limits::MAX_LIST;
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Programs of one report that are told apart.
pub const MAX_REPORT_ROWS: usize = 16;

/// Which decision: later ones are greater.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// Rises with each start of the metadata server.
    pub term: u64,
    /// Rises with each decision of a term.
    pub count: u64,
}

/// What went through servers: in a report since the one before, in a list of programs per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads and writes.
    pub requests: u64,
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
}

impl Traffic {
    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Traffic::default()
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Traffic) -> Traffic {
        Traffic {
            requests: self.requests.saturating_add(other.requests),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
        }
    }
}

/// What a program had of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramTraffic {
    /// As its connections said.
    pub program: u64,
    /// Who connected.
    pub uid: u32,
    /// How much.
    pub traffic: Traffic,
}

/// What a data server reports, at most once in [`crate::control::PERIOD`]; below 4 KiB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Random, for each start of the data server.
    pub incarnation: u64,
    /// Rises with each report of an incarnation; a repetition has its first copy's.
    pub sequence: u64,
    /// The newest decision that was taken: its acknowledgement.
    pub applied: Epoch,
    /// The time that the figures are of, milliseconds.
    pub period_ms: u64,
    /// Those with the most bytes.
    #[serde(deserialize_with = "bounded::at_most::<MAX_REPORT_ROWS, _, _>")]
    pub programs: Vec<ProgramTraffic>,
    /// All others.
    pub others: Traffic,
}

/// Something that data servers are to do: there is nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {}

/// The answer to a report: the decision that holds for the data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The report that is answered.
    pub sequence: u64,
    /// Which decision.
    pub epoch: Epoch,
    /// How long it holds, counted from when the report was sent, milliseconds. Then the default holds.
    pub lease_ms: u64,
    /// All of it, also what an earlier decision said.
    #[serde(deserialize_with = "bounded::at_most::<MAX_LIST, _, _>")]
    pub window: Vec<Order>,
}
