//! What crosses a socket: deployment description, frames, handshake, messages, capabilities.
#![allow(missing_docs)]
pub mod deployment;
pub mod message;
