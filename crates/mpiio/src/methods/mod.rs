//! The methods: ways of turning an access into file system operations (DT section II), one per file, named
//! as the hint `penstock_method` names it.
//!
//! | method | operations |
//! | --- | --- |
//! | [`posix`] | one contiguous operation for each region of file and memory jointly |
//! | [`sieve`] | whole extents through a buffer |
//! | [`two_phase`] | ranks exchange with aggregators, which own parts of the file |
//! | [`list`] | at most 64 regions in an operation |
//! | [`datatype`] | one operation that carries the loop |
//! | [`node_exchange`] | two-phase through memory the ranks of a node share |
//! | [`auto`] | the cheapest of these by a cost model |
pub(crate) mod auto;
pub(crate) mod datatype;
pub(crate) mod domains;
pub(crate) mod list;
pub(crate) mod node_exchange;
pub(crate) mod posix;
pub(crate) mod sieve;
pub(crate) mod two_phase;

use serde::{Deserialize, Serialize};

/// A method by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// See [`posix`].
    Posix,
    /// See [`sieve`].
    Sieve,
    /// See [`two_phase`].
    TwoPhase,
    /// See [`list`].
    List,
    /// See [`datatype`].
    Datatype,
    /// See [`node_exchange`].
    NodeExchange,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 6] = [
        Method::Posix,
        Method::Sieve,
        Method::TwoPhase,
        Method::List,
        Method::Datatype,
        Method::NodeExchange,
    ];

    /// Its name in hints, environment and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Method::Posix => "posix",
            Method::Sieve => "sieve",
            Method::TwoPhase => "two-phase",
            Method::List => "list",
            Method::Datatype => "datatype",
            Method::NodeExchange => "node-exchange",
        }
    }

    /// From its name.
    pub fn parse(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The ranks of a collective call work together.
    pub(crate) fn is_collective(self) -> bool {
        matches!(self, Method::TwoPhase | Method::NodeExchange)
    }
}
