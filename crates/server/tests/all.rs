//! The tests of this crate from outside, as one program: to link one for each file takes longer than to compile it.
#![allow(clippy::unwrap_used)]

mod access;
mod audit;
mod bytes;
mod channel;
mod common;
mod failing_store;
mod hostile;
mod lending;
mod locks;
mod prefetch;
mod scheduling;
mod shares;
mod shortcuts;
mod users;
