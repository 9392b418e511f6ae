//! The integration tests of this crate as one program, because linking one per file takes longer than compiling it.
#![allow(clippy::unwrap_used)]

mod accesses;
mod capi;
mod check;
mod clock;
mod common;
mod crowd;
mod fast_path;
mod links;
mod locks;
mod many;
mod mappings;
mod names;
mod once;
mod restart;
mod revoked;
mod traced;
