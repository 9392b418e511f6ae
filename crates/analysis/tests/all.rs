//! Answers compared with what can be counted by hand, and with answers found in other ways.
#![allow(clippy::unwrap_used)]

mod answers;
mod report;
