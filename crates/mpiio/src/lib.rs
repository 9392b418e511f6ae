//! MPI-IO semantics and methods over a Comm trait (SYSTEMS 2; DT sections II and III).
//!
//! A rank opens a [`File`] over a [`Comm`] and reads and writes through it. Each access is a pair of
//! patterns, where its bytes lie in the file (the view, tiled from the pointer) and where they lie in memory.
//! One of the methods in [`methods`] turns the pair into operations of a [`FileSystem`]; nothing on the way
//! expands a pattern into a list of its regions.
//!
//! ```text
//! file.rs       open, close, the calls of MPI_File          hints.rs     what a user may ask for
//! view.rs       view, positions in etypes                    datarep.rs   native, internal, external32
//! pointer.rs    individual, shared and ordered pointers      nonblocking.rs
//! access.rs     one access: patterns -> method -> operations
//! methods/      posix, sieve, two-phase, list, datatype, node exchange, auto
//! filesystem.rs what a method needs below it: penstock.rs (servers), direct.rs (a mounted file system)
//! stats.rs      what was done                                model.rs     what DT predicts
//! ```
#![allow(clippy::todo, dead_code)]
mod comm;
mod datarep;
mod datatype;
mod error;
mod file;
mod filesystem;
mod hints;
mod process;

pub use comm::Comm;
pub use datarep::DataRep;
pub use datatype::Datatype;
pub use error::{Error, ErrorClass, Result};
pub use file::{Amode, DISPLACEMENT_CURRENT, Done, File, View, Whence, Where};
pub use hints::Info;
pub use process::{Claim, belongs, write_summary};
