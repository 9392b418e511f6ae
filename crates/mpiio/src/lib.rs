//! MPI-IO semantics and methods over a Comm trait (DT sections II and III).
//!
//! A rank opens a [`File`] over a [`Comm`] and reads and writes through it. Each access is a pair of patterns: its
//! bytes in the file (the view, tiled from the pointer), and its bytes in memory. One of the methods in [`Method`]
//! turns the pair into file system operations. No step expands a pattern into a list of its regions.
//!
//! ```text
//! file.rs       open, close, the calls of MPI_File          hints.rs     what a user may ask for
//! view.rs       view, positions in etypes                    datarep.rs   native, internal, external32
//! pointer.rs    individual, shared and ordered pointers      nonblocking.rs
//! access.rs     one access: its memory, and what was done
//! shell.rs      drives a method's plan: memory, messages, operations
//! message.rs     what one rank tells another within a call
//! fast_path.rs       one range to one stretch of memory, by descriptors
//! methods/      a file and a row of the table for each method: what it does, as a plan; auto chooses
//! filesystem.rs what a method needs below it: penstock.rs (servers), direct.rs (a mounted file system)
//! probe.rs      costs of the deployment
//! task.rs       tasks that ought to be ranks of one program
//! stats.rs      what was done                                model.rs     what DT predicts
//! ```
mod access;
mod amode;
mod announce;
mod calls;
mod comm;
mod datarep;
mod datatype;
mod direct;
mod early_writeback;
mod error;
mod external32;
mod fast_path;
mod file;
mod filesystem;
mod hints;
mod joint;
mod meeting;
mod message;
mod methods;
mod model;
mod node;
mod node_memory;
mod nonblocking;
mod penstock;
mod pointer;
mod probe;
mod process;
mod shell;
mod spans;
mod stats;
mod task;
pub mod testing;
mod transfer;
mod view;

pub use amode::Amode;
pub use calls::{Done, Where};
pub use comm::{AHEAD, Comm, MAX_TOLD, check_peer};
pub use datarep::DataRep;
pub use datatype::Datatype;
pub use error::{Error, ErrorClass, Result};
pub use file::{DISPLACEMENT_CURRENT, File};
pub use filesystem::Form;
pub use hints::{Info, hint_keys};
pub use methods::{Method, method_values};
pub use model::{AccessSummary, Prediction, predict};
pub use pointer::Whence;
pub use process::{Claim, Environment, Process, belongs, world, write_summary};
pub use spans::Spans;
pub use stats::{Counts, DirectionSummary, FileSummary, ServerTraffic, Summary};
pub use task::{Pmi, TASK_FARM};
pub use view::View;

/// The part of docs/use/hints.md that is generated from the table of methods.
pub mod manual {
    pub use crate::methods::manual::{hints, methods};
}

/// Methods without their I/O: what a simulator shares with this library.
pub mod planning {
    pub use crate::joint::{Joint, Piece, first_offset};
    pub use crate::methods::access_sets::{AccessSets, DELAY, Groups, Tuning};
    pub use crate::methods::domains::{Rules, Schedule, Seat};
    pub use crate::methods::plan::*;
}
