//! The metadata server's keys: what it proves to others, and what it seals capabilities with. They can be replaced while it runs.
use crate::error::Result;
use penstock_host::sync::Mutex;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::{Identity, Keyring};
use penstock_wire::message::{KeysHeld, WireError};
use penstock_wire::{KeyPair, SealKeys};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// See the module's text.
#[derive(Debug)]
pub struct Keys {
    deployment: String,
    /// Where they are named.
    file: Option<PathBuf>,
    /// What clients meet.
    pub ring: Arc<Keyring>,
    signing: Mutex<Signing>,
}

/// What it signs with: keys of the current generation, since others check with both.
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
    /// Those that the deployment names, which was read from `file`.
    pub fn load(deployment: &Deployment, file: Option<PathBuf>) -> penstock_wire::Result<Keys> {
        let identities = deployment.meta_identities()?;
        Ok(Keys {
            deployment: deployment.id.clone(),
            file,
            signing: Mutex::new(Signing::of(&deployment.meta_identity()?)),
            ring: Arc::new(Keyring::new(identities)?),
        })
    }

    /// Takes those that the deployment file names now; with an error the ones of before stay.
    pub fn load_again(&self) -> Result<KeysHeld> {
        // Two requests at a time would mix what they read.
        let mut now = self.signing.lock().unwrap_or_else(PoisonError::into_inner);
        let deployment = Deployment::load_again(&self.deployment, self.file.as_deref())?;
        let identities = deployment.meta_identities().map_err(WireError::of_keys)?;
        let current = deployment.meta_identity().map_err(WireError::of_keys)?;
        self.ring.replace(identities).map_err(WireError::of_keys)?;
        *now = Signing::of(&current);
        Ok(deployment.keys_held())
    }

    /// What capabilities are sealed with.
    pub fn seals(&self) -> Arc<SealKeys> {
        self.signing().seals
    }

    /// What it signs credentials with.
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
