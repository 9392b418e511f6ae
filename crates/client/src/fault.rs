//! Failures of one call to a server: those worth another try and those that are final.
use crate::error::{Error, Peer};
use std::time::Duration;

/// Why a call came to nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server is away; trying again may help.
    Away(String),
    /// Trying again does not help.
    Final(Error),
}

impl Fault {
    /// For callers that do not try again.
    pub fn into_final(self, peer: &Peer, operation: &'static str) -> Error {
        match self {
            Fault::Final(e) => e,
            Fault::Away(detail) => Error::Unreachable {
                peer: peer.clone(),
                operation,
                detail,
                tried: Duration::ZERO,
            },
        }
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Final(e)
    }
}
