//! The tests of this crate from outside, as one program: to link one for each file takes longer than to compile it.
#![allow(clippy::unwrap_used)]

mod allocations;
mod dispatching;
mod groups;
mod properties;
mod streams;
