//! Everything sent over a socket, as bytes: frames, messages, capabilities, credentials and keys. `penstock_rpc` has
//! the sockets.
pub mod advisory;
mod bounded;
pub mod capability;
pub mod clock;
pub mod credential;
mod error;
pub mod frame;
pub mod handshake;
pub mod key;
mod link;
pub mod message;
pub mod revocation;
pub mod signing;
pub mod trusted_file;

pub use capability::{Rights, SealKey, SealKeys};
pub use credential::Credential;
pub use error::{Error, Result};
pub use frame::Envelope;
pub use handshake::Role;
pub use key::{Key, KeyName};
pub use link::LinkName;
pub use signing::{KeyPair, PublicKey};
