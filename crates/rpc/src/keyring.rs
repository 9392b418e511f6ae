//! The keys of a server: of one generation, or of two during a rotation.
//!
//! A client names the key that it will prove ([`KeyName`]) and the identity that it expects
//! ([`PublicKey::server_name`]). A server with two generations therefore answers with the right one. When keys are
//! replaced, connections that were authenticated with a removed key are no longer accepted ([`Generations::accept`]),
//! and the server closes them.
use crate::identity::{Identity, named};
use crate::tls::Acceptor;
use penstock_host::sync::Mutex;
use penstock_wire::credential::Signed;
use penstock_wire::handshake::Hello;
use penstock_wire::{Error, Result};
use std::sync::{Arc, PoisonError};

/// The keys of a running server, replaceable.
#[derive(Debug)]
pub struct Keyring(Mutex<Arc<Generations>>);

impl Keyring {
    /// A keyring of these generations, beginning with the current one; an error if there is none.
    pub fn new(identities: Vec<Identity>) -> Result<Keyring> {
        Ok(Keyring(Mutex::new(Arc::new(Generations::new(identities)?))))
    }

    /// Replaces all of them.
    pub fn replace(&self, identities: Vec<Identity>) -> Result<()> {
        let new = Arc::new(Generations::new(identities)?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// The current generations.
    pub(crate) fn now(&self) -> Arc<Generations> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A server's identity in each generation that it accepts.
#[derive(Debug)]
pub(crate) struct Generations {
    /// Beginning with the current one; never empty.
    identities: Vec<Identity>,
    /// For TCP connections that are protected.
    acceptor: Option<Acceptor>,
}

impl Generations {
    fn new(identities: Vec<Identity>) -> Result<Generations> {
        let Some(first) = identities.first() else {
            return Err(Error::BadKey("a server without any key".into()));
        };
        let pairs: Vec<_> = identities.iter().map(|i| &i.pair).collect();
        let acceptor = if first.transport.is_tls() {
            Some(Acceptor::new(&pairs).map_err(|e| Error::Deployment {
                path: first.deployment_name.clone(),
                what: format!("{}: no TLS with its identity key: {e}", first.server),
            })?)
        } else {
            None
        };
        Ok(Generations {
            identities,
            acceptor,
        })
    }

    pub(crate) fn identities(&self) -> &[Identity] {
        &self.identities
    }

    pub(crate) fn acceptor(&self) -> Option<&Acceptor> {
        self.acceptor.as_ref()
    }

    /// The identity in the current generation.
    pub(crate) fn current(&self) -> &Identity {
        // `new` has checked that there is one.
        &self.identities[0]
    }

    /// Whether the keys that a client has proven are still accepted.
    pub(crate) fn accept(&self, hello: &Hello) -> bool {
        let signed = |shown: &Signed| self.identities.iter().any(|i| i.believes(shown));
        named(&self.identities, hello.role, hello.key).is_some()
            && hello.credential.as_ref().is_none_or(signed)
    }
}
