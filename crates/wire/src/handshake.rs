//! The messages of the handshake, before the two ends of a connection trust each other.
//!
//! Handshake frames have version 0 and never change their form after the first release, so that two releases can always
//! detect that they are incompatible.
use crate::credential::{Signature, Signed};
use crate::key::KeyName;
use crate::link::LinkName;
use crate::message::WireError;
use penstock_layout::ServerId;
use serde::{Deserialize, Serialize};

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A user: files.
    Client,
    /// An administrator: also check, full status, shutdown.
    Admin,
    /// This data server, which reports its store to the metadata server and asks for the time.
    Server(ServerId),
    /// A client over TCP without a credential, which may only ask the metadata server for one.
    Newcomer,
}

/// Opens the exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest protocol version of the client.
    pub oldest: u16,
    /// Newest protocol version of the client.
    pub newest: u16,
    /// Id of the deployment that the client means.
    pub deployment: String,
    /// The role that it asks for.
    pub role: Role,
    /// Parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// The link and the number of its connection: older ones end before this one is accepted.
    pub link: LinkName,
    /// The key that it will prove; a server has several during a rotation.
    pub key: KeyName,
    /// Random.
    pub nonce: [u8; 32],
    /// The client's credential, where the kernel does not know the user; an administrator's wherever it has one.
    pub credential: Option<Signed>,
}

/// The server's answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// The handshake continues.
    Accepted {
        /// The protocol version after the handshake.
        version: u16,
        /// The server's name.
        server: String,
        /// Random.
        nonce: [u8; 32],
        /// The server's proof.
        proof: [u8; 32],
    },
    /// The handshake ends.
    Refused(WireError),
}

/// The client's proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Proof that it holds the deployment's key.
    pub proof: [u8; 32],
    /// Signature with the private half of the credential in [`Hello`].
    pub signature: Option<Signature>,
}

/// The server's final message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The connection is open.
    Welcome,
    /// The handshake ends.
    Refused(WireError),
}
