//! What a server does with its connections, as the shell around it ([`crate::serve`]) sees it.
use crate::audit::Audit;
use crate::connection::Connection;
use crate::identity::Peer;
use crate::munge;
use penstock_host::time::since_epoch;
use penstock_wire::credential::{Signed, Statement};
use penstock_wire::message::{ErrorKind, WireError};
use penstock_wire::{PublicKey, Result};

/// What a session asks of the shell when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Continue,
    /// Stop the whole server (an administrator said so).
    StopServer,
}

/// What a server does with its connections.
pub trait Service: Send + Sync + 'static {
    /// Serves one connection until it ends; runs on a thread of its own. An error is logged and ends this
    /// connection alone.
    fn session(&self, connection: &mut Connection, peer: &Peer) -> Result<After>;

    /// The time by which credentials end, milliseconds since 1970.
    fn now_ms(&self) -> u64 {
        u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    /// Refuses a credential that was taken back.
    fn require(&self, _: &Statement) -> std::result::Result<(), WireError> {
        Ok(())
    }

    /// What it says about the holder of `key`, by a MUNGE credential that must have this payload. It may wait for a few seconds.
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

    /// Where it notes what is refused.
    fn audit(&self) -> Option<&Audit> {
        None
    }

    /// Descriptors have run out: close what is not needed just now.
    fn relieve(&self) {}

    /// The server stops: wake every session that waits for something other than its connection.
    fn stopping(&self) {}

    /// The server has stopped, and all sessions have ended.
    fn stopped(&self) {}
}
