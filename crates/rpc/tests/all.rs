//! The integration tests of this crate as one program, because linking one per file takes longer than compiling it.
#![allow(clippy::unwrap_used)]

mod common;
mod control;
mod credentials;
mod fence;
mod protection;
mod rotation;
mod shares;
mod transport;
mod trust;
