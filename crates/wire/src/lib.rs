//! What crosses a socket: deployment description, frames, handshake, messages, capabilities; and the
//! shell that every server shares.
pub mod advisory;
pub mod audit;
mod background;
mod bounded;
pub mod capability;
pub mod clock;
mod closer;
mod connect;
mod connection;
pub mod control;
pub mod credential;
pub mod deployment;
mod error;
mod fence;
pub mod frame;
pub mod grant;
pub mod handshake;
mod key;
mod keyring;
mod listen;

pub mod message;
pub mod munge;
mod nearby;
mod newcomer;
mod quota;
pub mod revocation;
mod serve;
pub mod share;
pub mod signing;
mod tls;
mod trusted_file;
pub mod users;
pub mod wallet;

pub use audit::Audit;
pub use background::Background;
pub use capability::{Rights, SealKey, SealKeys};
pub use closer::Closer;
pub use connect::{connect, connect_as};
pub use connection::{COPY_BELOW, Connection, Credentials, Received, Timeouts};
pub use credential::Credential;
pub use error::{Error, Result};
pub use fence::LinkName;
pub use frame::Envelope;
pub use handshake::{Caller, Identity, Peer, Role};
pub use key::{Key, KeyName};
pub use keyring::Keyring;
pub use newcomer::Newcomer;

pub use serve::{After, RunningServer, ServeLimits, Service, Stopper, serve};
pub use signing::{KeyPair, PublicKey};
pub use wallet::Wallet;
