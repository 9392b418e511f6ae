//! A data server's line to the metadata server: one connection, kept from one question to the next.
use crate::keys::Keys;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::time::since_boot;
use penstock_rpc::deployment::{Address, Deployment};
use penstock_rpc::{Connection, Timeouts, connect};
use penstock_wire::message::{MetaReply, MetaRequest};
use penstock_wire::{Envelope, Error, Result};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The question has so long to go, and the answer to come.
const ANSWER: Timeouts = Timeouts {
    read: Some(Duration::from_secs(2)),
    write: Some(Duration::from_secs(2)),
};

/// For several threads: whoever asks while another does opens a connection of his own.
pub(crate) struct Line {
    meta: Address,
    keys: Arc<Keys>,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    connection: Connection,
    /// When it was used last.
    at: Duration,
}

impl Line {
    pub(crate) fn new(deployment: &Deployment, keys: Arc<Keys>) -> Line {
        Line {
            meta: deployment.meta.address.clone(),
            keys,
            kept: Mutex::default(),
        }
    }

    /// Asks; a refusal is an error. The question may arrive twice.
    pub(crate) fn ask(&self, request: &MetaRequest) -> Result<MetaReply> {
        // One that was kept may have ended with the metadata server.
        let kept = self.kept().take();
        if let Some(kept) = kept
            && let Ok(reply) = self.over(kept.connection, request)
        {
            return reply;
        }
        let connection = connect(&self.meta, &self.keys.caller(), ANSWER)?;
        self.over(connection, request)?
    }

    /// A connection is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept().is_some()
    }

    /// Ends the connection, unless it has been used in this time.
    pub(crate) fn hang_up(&self, unused: Duration) {
        let now = since_boot();
        self.kept()
            .take_if(|kept| now.saturating_sub(kept.at) >= unused);
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        // It is replaced as a whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outer error is the connection's, the inner one the server's.
    fn over(&self, mut connection: Connection, request: &MetaRequest) -> Result<Result<MetaReply>> {
        let answer = connection.call(&Envelope::default(), request, &mut false)?;
        let reply = match answer.body {
            Some(MetaReply::Error(why)) => Err(Error::Refused(why)),
            Some(reply) => Ok(reply),
            None => {
                return Err(Error::Malformed {
                    peer: connection.peer().to_owned(),
                    what: "an answer without a body".into(),
                });
            }
        };
        let at = since_boot();
        *self.kept() = Some(Kept { connection, at });
        Ok(reply)
    }
}

/// An answer of another kind than the question.
pub(crate) fn unexpected(reply: &MetaReply) -> Error {
    Error::Malformed {
        peer: "the metadata server".into(),
        what: format!("{reply:?} in answer to a data server"),
    }
}
