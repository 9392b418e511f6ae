//! A simulator of clusters, for the sources' experiments: programs, MPI-IO methods, network, data servers and devices
//! on virtual time. Policies are the same code as in the real stack (docs/understand/simulator.md).
//!
//! ```text
//! scenario.rs  what to simulate, as TOML           program/      what ranks do: one file per benchmark
//! experiment.rs cases, comparisons, verdicts       operation.rs  operations of the methods' plans
//! cluster.rs   all state, and the event loop       collective.rs what ranks do together
//! ranks.rs     programs' steps, requests           server.rs     a server: processor, scheduler, device
//! messages.rs   what one rank tells another         serving.rs    what servers do
//! network.rs   cards, switch, latency              pages.rs      page cache: read-ahead, write-back
//! connection.rs a connection's requests in turn    placement.rs  where files lie on devices
//! locks.rs     range locks                         device.rs     the models of crates/device
//! event.rs     what happens next
//! report.rs    what it was like; plot.rs, markdown.rs
//! replay.rs    a real server's decisions, decided again
//! ```
//!
//! Everything is a plain state machine that reads no clock. A scenario and its seed determine the result, to the byte.
mod cluster;
mod collective;
mod connection;
mod device;
mod error;
mod event;
mod experiment;
mod fetching;
mod locks;
mod markdown;
mod messages;
mod network;
mod operation;
mod orchestration;
mod pages;
mod placement;
pub mod plot;
mod program;
mod random;
mod ranks;
pub mod replay;
mod report;
mod scenario;
mod server;
mod serving;
mod slab;
mod units;

pub use cluster::{Progress, run};
pub use error::{Error, Result};
pub use experiment::{Case, CaseOutcome, Comparison, Experiment, Outcome, Situation, Verdict};
pub use markdown::figure;
pub use program::BENCHMARKS;
pub use report::{Orchestrated, ProgramReport, Report, Timeline};
pub use scenario::{
    Client, Cluster, Device, Direction, Network, Processes, Program, Runs, Scenario, Server,
};
pub use units::{Bytes, Rate, Time};
#[cfg(test)]
mod tests;
