//! Answers compared with what can be counted by hand, and with answers found in other ways.
mod answers;
mod report;
