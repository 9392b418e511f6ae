//! The control channel between each data server and the metadata server: reports up, decisions down
//! ([`crate::control`]).
use super::limits::MAX_LIST;
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Programs that one report counts separately.
pub const MAX_REPORT_ROWS: usize = 16;

/// Number of a decision; later ones are greater.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// Increases with each start of the metadata server.
    pub term: u64,
    /// Increases with each decision of a term.
    pub count: u64,
}

/// Traffic of servers: in a report since the one before, in a list of programs per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads and writes.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Traffic {
    /// Whether it is zero.
    pub fn is_empty(&self) -> bool {
        *self == Traffic::default()
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// Sum of both.
    #[must_use]
    pub fn plus(&self, other: &Traffic) -> Traffic {
        Traffic {
            requests: self.requests.saturating_add(other.requests),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
        }
    }
}

/// A program's traffic at a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramTraffic {
    /// The number that its connections claim.
    pub program: u64,
    /// The user who connected.
    pub uid: u32,
    /// Its traffic.
    pub traffic: Traffic,
}

/// A data server's report, sent at most once in `penstock_rpc::control::PERIOD` (500 ms); below 4 KiB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Drawn at each start of the data server.
    pub incarnation: u64,
    /// Increases with each report of an incarnation; a repetition has the number of its first copy.
    pub sequence: u64,
    /// The newest decision received, as acknowledgement.
    pub applied: Epoch,
    /// The period of the figures, milliseconds.
    pub period_ms: u64,
    /// The programs with the most bytes.
    #[serde(deserialize_with = "bounded::at_most::<MAX_REPORT_ROWS, _, _>")]
    pub programs: Vec<ProgramTraffic>,
    /// All other programs.
    pub others: Traffic,
}

/// An instruction to data servers; none exists yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {}

/// The answer to a report: the decision in force for the data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The sequence number of the report.
    pub sequence: u64,
    /// The number of the decision.
    pub epoch: Epoch,
    /// How long it is in force after the report was sent, milliseconds. After that the default is.
    pub lease_ms: u64,
    /// The complete decision, including unchanged parts.
    #[serde(deserialize_with = "bounded::at_most::<MAX_LIST, _, _>")]
    pub window: Vec<Order>,
}
