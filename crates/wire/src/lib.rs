//! What crosses a socket: deployment description, frames, handshake, messages, capabilities; and the
//! shell that every server shares.
mod bounded;
mod capability;
mod connect;
mod connection;
pub mod deployment;
mod error;
pub mod frame;
pub mod grant;
pub mod handshake;
mod key;

pub mod message;
mod quota;
mod serve;

pub use capability::Rights;
pub use connect::connect;
pub use connection::{COPY_BELOW, Closer, Connection, Credentials, Received, Timeouts};
pub use error::{Error, Result};
pub use frame::Envelope;
pub use handshake::{Caller, Identity, Peer, Role};
pub use key::Key;
pub use serve::{After, RunningServer, ServeLimits, Service, Stopper, serve};
