//! What the two ends of a new connection say to each other before they trust each other.
//!
//! Handshake frames have version 0 and never change form from the first release on, so that two releases can always
//! find out that they do not fit.
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
    /// An administrator: also check, status of everything, shutdown.
    Admin,
    /// This data server, which tells the metadata server of its store and asks for the time.
    Server(ServerId),
    /// Somebody over TCP who has no credential and asks the metadata server for one: nothing else.
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
    /// What it asks for.
    pub role: Role,
    /// Parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// Which connection of which of the client's links this is: before it is welcomed, older ones end.
    pub link: LinkName,
    /// Which key it will prove: a server has several while keys are rotated.
    pub key: KeyName,
    /// Random.
    pub nonce: [u8; 32],
    /// Who the client is, where the kernel does not know it; an administrator's wherever it has one.
    pub credential: Option<Signed>,
}

/// The server's answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// Go on.
    Accepted {
        /// The protocol version of all that follows the handshake.
        version: u16,
        /// What the server calls itself.
        server: String,
        /// Random.
        nonce: [u8; 32],
        /// The server's proof.
        proof: [u8; 32],
    },
    /// The end.
    Refused(WireError),
}

/// The client's proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// That it holds the deployment's key.
    pub proof: [u8; 32],
    /// That it holds the private half of the credential in [`Hello`].
    pub signature: Option<Signature>,
}

/// The server's last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The connection is open.
    Welcome,
    /// The end.
    Refused(WireError),
}
