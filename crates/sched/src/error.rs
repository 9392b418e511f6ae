//! Errors of requests, options and names.
use crate::{Algorithm, Options};

/// An error of the scheduler's caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No algorithm has this name.
    #[error("no scheduling algorithm is called `{0}`; there are {names}", names = Algorithm::names())]
    UnknownAlgorithm(String),
    /// An option outside its range.
    #[error("scheduler option {name}: {value} is outside {allowed}")]
    Option {
        /// Its name.
        name: &'static str,
        /// What was given.
        value: u64,
        /// The allowed range.
        allowed: &'static str,
    },
    /// A setting's value that cannot be read.
    #[error("scheduler option {name} is `{value}`; it takes {wanted}")]
    Value {
        /// Its name.
        name: String,
        /// What was given.
        value: String,
        /// The form that is expected.
        wanted: &'static str,
    },
    /// No setting has this name.
    #[error("the scheduler has no option `{0}`; there are {known}", known = Options::SETTINGS.join(", "))]
    UnknownSetting(String),
    /// The limit on held requests is reached.
    #[error("the scheduler holds {limit} requests, its limit; complete some or raise queue_limit")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// A request of zero bytes.
    #[error("request {id} has no bytes; only requests for at least one byte are scheduled")]
    Empty {
        /// The request.
        id: u64,
    },
    /// The request ends beyond the largest offset.
    #[error("request {id}: {bytes} bytes at offset {offset} pass the largest offset, 2^63-1")]
    Range {
        /// The request.
        id: u64,
        /// Its first byte.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// The request is larger than the limit.
    #[error("request {id}: {bytes} bytes, at most 2^38 in one request; give it in slices")]
    TooLarge {
        /// The request.
        id: u64,
        /// Its length.
        bytes: u64,
    },
    /// Too many files with an algorithm of their own.
    #[error(
        "{files} files with an algorithm of their own, at most 1024; leave some to that of all others"
    )]
    Groups {
        /// How many.
        files: usize,
    },
    /// The virtual request is not being served.
    #[error(
        "virtual request {0} is not being served: it was completed before, or never dispatched"
    )]
    NotServed(u64),
    /// Inputs that contradict each other.
    #[error("{0}")]
    Invalid(String),
}
