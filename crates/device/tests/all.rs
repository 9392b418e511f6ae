//! The tests of this crate from outside, as one program: to link one for each file takes longer than to compile it.
#![allow(clippy::unwrap_used)]

mod behaviour;
mod nand;
mod profile;
mod validation;
