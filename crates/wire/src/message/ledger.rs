//! Who loads a data server: its ledger, as it is told.
//!
//! Sums count from when a row was opened, so that whoever asks twice has what happened between. A row may have been closed and
//! opened anew meanwhile: then its sums are smaller.
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Programs of one answer, and users.
pub const MAX_LEDGER_ROWS: usize = 1024;

/// What was moved past the server by descriptors of objects, as clients count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectSums {
    /// Accesses.
    pub requests: u64,
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
}

/// What a program, a user or everybody had of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSums {
    /// Reads by requests.
    pub reads: u64,
    /// Writes by requests.
    pub writes: u64,
    /// Bytes read by requests.
    pub read: u64,
    /// Bytes written by requests.
    pub written: u64,
    /// Past the server.
    pub direct: DirectSums,
    /// Waiting to be dispatched, nanoseconds.
    pub queue_ns: u64,
    /// The store at work, nanoseconds.
    pub device_ns: u64,
    /// At least one request under way, nanoseconds.
    pub busy_ns: u64,
    /// Requests for another object than the one before.
    pub switches: u64,
}

/// How objects are accessed by requests, smoothed (`penstock_sched::ledger`). `None`: not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerLocality {
    /// Between one request and the next to the same object, bytes.
    pub gap: Option<u64>,
    /// The same in sizes of the request, thousandths.
    pub ratio_milli: Option<u64>,
    /// Between arrivals, nanoseconds.
    pub reuse_ns: Option<u64>,
}

/// A program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// As its connections said.
    pub program: u64,
    /// Who connected.
    pub uid: u32,
    /// When the row was opened, nanoseconds after the server's start.
    pub opened_ns: u64,
    /// Since then.
    pub sums: LedgerSums,
    /// Its own.
    pub locality: LedgerLocality,
}

/// A data server's ledger, as far as the one who asks may see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerStatus {
    /// Random, for each start of the server: sums of two of them are not to be compared.
    pub incarnation: u64,
    /// When this was told, nanoseconds after the server's start.
    pub at_ns: u64,
    /// These are the rows of all users.
    pub all: bool,
    /// Everybody since the start.
    pub total: LedgerSums,
    /// Everybody's.
    pub locality: LedgerLocality,
    /// Those with the most weight, the heaviest first.
    #[serde(deserialize_with = "bounded::at_most::<MAX_LEDGER_ROWS, _, _>")]
    pub programs: Vec<LedgerRow>,
    /// All programs that are not told apart; only where all users are told of.
    pub others: LedgerSums,
    /// The same by user.
    #[serde(deserialize_with = "bounded::at_most::<MAX_LEDGER_ROWS, _, _>")]
    pub users: Vec<(u32, LedgerSums)>,
    /// All users that are not told apart; only where all are told of.
    pub other_users: LedgerSums,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MAX_BODY;

    #[test]
    fn the_largest_ledger_fits_a_message() {
        let most = u64::MAX;
        let sums = LedgerSums {
            reads: most,
            writes: most,
            read: most,
            written: most,
            direct: DirectSums {
                requests: most,
                read: most,
                written: most,
            },
            queue_ns: most,
            device_ns: most,
            busy_ns: most,
            switches: most,
        };
        let locality = LedgerLocality {
            gap: Some(most),
            ratio_milli: Some(most),
            reuse_ns: Some(most),
        };
        let row = LedgerRow {
            program: most,
            uid: u32::MAX,
            opened_ns: most,
            sums,
            locality,
        };
        let ledger = LedgerStatus {
            incarnation: most,
            at_ns: most,
            all: true,
            total: sums,
            locality,
            programs: vec![row; MAX_LEDGER_ROWS],
            others: sums,
            users: vec![(u32::MAX, sums); MAX_LEDGER_ROWS],
            other_users: sums,
        };
        let encoded = postcard::to_stdvec(&ledger).unwrap();
        assert!(encoded.len() < MAX_BODY / 2, "{}", encoded.len());
        let longer = LedgerStatus {
            programs: vec![row; MAX_LEDGER_ROWS + 1],
            ..ledger
        };
        let encoded = postcard::to_stdvec(&longer).unwrap();
        assert!(postcard::from_bytes::<LedgerStatus>(&encoded).is_err());
    }
}
