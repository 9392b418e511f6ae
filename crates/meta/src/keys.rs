//! The metadata server's keys: what it proves to others, and what it seals capabilities with. They can be replaced
//! while it runs.
use crate::error::Result;
use penstock_host::sync::Mutex;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::{Identity, Keyring};
use penstock_wire::message::{KeysHeld, WireError};
use penstock_wire::{KeyPair, SealKeys};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// The keys, replaceable.
#[derive(Debug)]
pub struct Keys {
    deployment: String,
    /// The file that names them.
    file: Option<PathBuf>,
    /// Keys for the handshake.
    pub ring: Arc<Keyring>,
    signing: Mutex<Signing>,
}

/// Keys of the current generation for signing; others verify with both generations.
#[derive(Debug, Clone)]
struct Signing {
    seals: Arc<SealKeys>,
    pair: KeyPair,
}

impl Signing {
    fn of(identity: &Identity) -> Signing {
        Signing {
            seals: Arc::new(identity.seals()),
            pair: identity.pair.clone(),
        }
    }
}

impl Keys {
    /// Loads the keys that the deployment, read from `file`, names.
    pub fn load(deployment: &Deployment, file: Option<PathBuf>) -> penstock_wire::Result<Keys> {
        let identities = deployment.meta_identities()?;
        Ok(Keys {
            deployment: deployment.id.clone(),
            file,
            signing: Mutex::new(Signing::of(&deployment.meta_identity()?)),
            ring: Arc::new(Keyring::new(identities)?),
        })
    }

    /// Loads the keys that the deployment file names now; on an error the present ones stay.
    pub fn load_again(&self) -> Result<KeysHeld> {
        // Serialised, so that two requests do not mix what they read.
        let mut now = self.signing.lock().unwrap_or_else(PoisonError::into_inner);
        let deployment = Deployment::load_again(&self.deployment, self.file.as_deref())?;
        let identities = deployment.meta_identities().map_err(WireError::of_keys)?;
        let current = deployment.meta_identity().map_err(WireError::of_keys)?;
        self.ring.replace(identities).map_err(WireError::of_keys)?;
        *now = Signing::of(&current);
        Ok(deployment.keys_held())
    }

    /// Keys that seal capabilities.
    pub fn seals(&self) -> Arc<SealKeys> {
        self.signing().seals
    }

    /// The key pair that signs credentials.
    pub fn pair(&self) -> KeyPair {
        self.signing().pair
    }

    fn signing(&self) -> Signing {
        self.signing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
