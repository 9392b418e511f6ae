//! Tests of the crate as a user of it sees it.
mod older;
mod recording;
mod streams;
