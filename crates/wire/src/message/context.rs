//! The call that a request belongs to.
use serde::{Deserialize, Serialize};

/// The origin of a request; part of every header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// Number of the parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// Number of the rank's MPI call.
    pub mpi_call: u64,
    /// Number of the rank's call of the client library.
    pub client_call: u64,
}
