//! Client library: names through the metadata server, bytes straight to the data servers.

mod check;
mod client;
mod counter;
mod end_of_file;
mod error;
mod exchange;
mod file;
mod lane;
mod lock;
mod memory;
mod names;
mod operations;
mod plan;
mod retry;
mod shortcut;
mod site;
mod socket;
mod stats;

pub use check::{CheckFinding, CheckOptions, CheckReport, FindingKind, check};
pub use client::{Client, ClientOptions, Identity};
pub use counter::Counter;
pub use error::{Error, Peer, Result};
pub use file::{File, OpenOptions};
pub use lock::RangeLock;
pub use names::{SetAttributes, Stat};
pub use penstock_wire::message::{CreateOptions, ErrorKind, LockMode};
pub use stats::{Form, FormCounts, Stats};
