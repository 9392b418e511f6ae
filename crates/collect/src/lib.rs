//! The collector: takes the records of this host's traced processes out of shared memory and writes each process's part of a trace.
//!
//! ```text
//! session.rs    where rings lie, who may collect       ring.rs       one process's ring, read
//! part.rs       one process's part of the trace        collect.rs    the loop over all of them
//! process.rs    what /proc says of a process
//! ```
//!
//! The writers of rings are in `interpose/`: a library that traced programs preload.
mod collect;
mod part;
mod process;
mod ring;
mod session;

pub use collect::{Collector, Options, Summary};
pub use session::{Session, own_directory};

use std::path::PathBuf;

/// Why nothing can be collected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the system failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Of which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A directory belongs to somebody else, lets others write, or is a link.
    #[error("{} {why}", path.display())]
    Refused {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another collector writes this trace on this host.
    #[error("another collector writes {} on this host", .0.display())]
    Busy(PathBuf),
}

/// What can fail here.
pub type Result<T> = std::result::Result<T, Error>;
