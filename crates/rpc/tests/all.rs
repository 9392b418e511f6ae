//! The tests of this crate from outside, as one program: to link one for each file takes longer than to compile it.
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
