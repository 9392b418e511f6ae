//! The interface between a server and the server loop ([`crate::serve`]).
use crate::audit::Audit;
use crate::connection::Connection;
use crate::identity::Peer;
use crate::munge;
use penstock_host::time::since_epoch;
use penstock_wire::credential::{Signed, Statement};
use penstock_wire::message::{ErrorKind, WireError};
use penstock_wire::{PublicKey, Result};

/// What a session asks of the server loop when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Continue,
    /// Stop the whole server (an administrator asked for it).
    StopServer,
}

/// The application side of a server.
pub trait Service: Send + Sync + 'static {
    /// Serves one connection until it ends; runs in a thread of its own. An error is logged and ends this connection
    /// only.
    fn session(&self, connection: &mut Connection, peer: &Peer) -> Result<After>;

    /// The time that decides whether credentials have expired, milliseconds since 1970.
    fn now_ms(&self) -> u64 {
        u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    /// Refuses a revoked credential.
    fn require(&self, _: &Statement) -> std::result::Result<(), WireError> {
        Ok(())
    }

    /// Issues a statement about the holder of `key`, for a MUNGE credential that must have this payload. It may wait
    /// for a few seconds.
    fn vouch(
        &self,
        _munge: &str,
        _payload: &[u8; munge::PAYLOAD],
        _key: PublicKey,
    ) -> std::result::Result<Signed, WireError> {
        Err(WireError::new(
            ErrorKind::Permission,
            "this server gives no credentials by MUNGE; the metadata server does, if `[munge]` is in the deployment file",
        ))
    }

    /// The audit log, if there is one.
    fn audit(&self) -> Option<&Audit> {
        None
    }

    /// Descriptors have run out: close those that are not needed at the moment.
    fn relieve(&self) {}

    /// The server stops: wake every session that waits for something other than its connection.
    fn stopping(&self) {}

    /// The server has stopped, and all sessions have ended.
    fn stopped(&self) {}
}
