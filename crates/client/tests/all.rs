//! The tests of this crate from outside, as one program: to link one for each file takes longer than to compile it.
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
