//! The integration tests of this crate as one program, because linking one per file takes longer than compiling it.
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
