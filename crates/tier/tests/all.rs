//! Tests of the tier's log, map and policy.
#![allow(clippy::unwrap_used, reason = "tests fail by panics")]
mod logs;
mod maps;
mod policies;
