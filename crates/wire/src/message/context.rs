//! Which call a request belongs to.
use serde::{Deserialize, Serialize};

/// Who caused a request; travels in every header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// Parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// The rank's MPI calls, counted.
    pub mpi_call: u64,
    /// Its calls of the client library, counted.
    pub client_call: u64,
}
