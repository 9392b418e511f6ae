//! The integration tests of this crate as one program, because linking one per file takes longer than compiling it.
#![allow(clippy::unwrap_used)]

mod common;
mod failures;
mod manual;
mod methods;
mod plans;
mod semantics;
