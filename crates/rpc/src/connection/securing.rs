//! Turns a TCP connection into a TLS session before its first frame.
use super::{Connection, io_error};
use crate::tls::{Acceptor, Tls};
use penstock_wire::handshake::Challenge;
use penstock_wire::message::{ErrorKind, WireError};
use penstock_wire::{Envelope, Error, PublicKey, Result};
use rustix::io::Errno;
use std::time::Instant;

impl Connection {
    /// The client's side, until `deadline`: continues only with the holder of `identity`.
    pub(crate) fn secure_to(&mut self, identity: PublicKey, deadline: Instant) -> Result<()> {
        self.tls = Some(Box::new(Tls::to(identity).map_err(|e| self.no_tls(&e))?));
        // Servers close connections when they are busy or stop: the client should try again. A server without TLS does
        // this every time.
        let hint = |peer| {
            format!(
                "{peer} (before it proved its identity; is `transport` the same in its deployment file?)"
            )
        };
        self.secure(deadline).map_err(|e| match e {
            Error::Closed { peer } => Error::Closed { peer: hint(peer) },
            Error::Io { what, peer, source } => Error::Io {
                what,
                peer: hint(peer),
                source,
            },
            e => e,
        })
    }

    /// The server's side, until `deadline`.
    pub(crate) fn secure_from(&mut self, acceptor: &Acceptor, deadline: Instant) -> Result<()> {
        self.tls = Some(Box::new(Tls::from(acceptor).map_err(|e| self.no_tls(&e))?));
        self.set_deadline(Some(deadline))?;
        self.pull(true)?;
        if self.tls.as_ref().is_some_and(|tls| tls.is_foreign()) {
            self.tls = None;
            let why = WireError::new(
                ErrorKind::Version,
                "TCP connections to this server are TLS sessions: give the client the server's deployment file, and the same release of Penstock",
            );
            self.turn_away(&why)?;
            return Err(Error::Refused(why));
        }
        self.secure(deadline)
    }

    /// Tells a client that cannot be served why, instead of sending a challenge.
    fn turn_away(&mut self, why: &WireError) -> Result<()> {
        let envelope = Envelope {
            reply: true,
            ..Envelope::default()
        };
        self.queue(&envelope, &Challenge::Refused(why.clone()))?;
        self.flush()
    }

    fn secure(&mut self, deadline: Instant) -> Result<()> {
        self.set_deadline(Some(deadline))?;
        loop {
            // Also sends what ends a handshake: a finished message, or an alert with the reason.
            let agreed = self.tls.as_mut().map_or(Ok(()), |tls| tls.agree());
            self.push_all()?;
            agreed.map_err(|e| self.session_error(e))?;
            let Some(tls) = &self.tls else {
                return Ok(());
            };
            if !tls.is_handshaking() {
                self.binding = Some(tls.binding().map_err(|e| self.no_tls(&e))?);
                return Ok(());
            }
            self.pull(true)?;
        }
    }

    fn no_tls(&self, e: &rustls::Error) -> Error {
        Error::Malformed {
            peer: self.peer.clone(),
            what: format!("no TLS session: {e}"),
        }
    }

    /// An error of reading or writing records.
    pub(super) fn session_error(&self, e: std::io::Error) -> Error {
        let cause = e.get_ref().and_then(|e| e.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(_)) = cause {
            return Error::BadKey(format!(
                "{} did not prove the identity that the deployment file gives for it: it is another server, or has new keys; get the deployment file again from its owner",
                self.peer
            ));
        }
        match e.kind() {
            std::io::ErrorKind::UnexpectedEof => self.closed(),
            std::io::ErrorKind::InvalidData => Error::Broken {
                peer: self.peer.clone(),
                what: e.to_string(),
            },
            _ => io_error("use the TLS session with", &self.peer, Errno::IO),
        }
    }
}
