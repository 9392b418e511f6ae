//! The metadata server's keys: what it proves to others, and what it seals capabilities with. They can be replaced while it runs.
use crate::error::Result;
use penstock_host::sync::Mutex;
use penstock_wire::deployment::Deployment;
use penstock_wire::message::{KeysHeld, WireError};
use penstock_wire::{Identity, Keyring, SealKeys};
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
    seals: Mutex<Arc<SealKeys>>,
}

/// Of the current generation: data servers check with both.
fn seals(identities: &[Identity]) -> Arc<SealKeys> {
    Arc::new(identities.first().map(Identity::seals).unwrap_or_default())
}

impl Keys {
    /// Those that the deployment names, which was read from `file`.
    pub fn load(deployment: &Deployment, file: Option<PathBuf>) -> penstock_wire::Result<Keys> {
        let identities = deployment.meta_identities()?;
        Ok(Keys {
            deployment: deployment.id.clone(),
            file,
            seals: Mutex::new(seals(&identities)),
            ring: Arc::new(Keyring::new(identities)?),
        })
    }

    /// Takes those that the deployment file names now; with an error the ones of before stay.
    pub fn load_again(&self) -> Result<KeysHeld> {
        let deployment = Deployment::load_again(&self.deployment, self.file.as_deref())?;
        let identities = deployment.meta_identities().map_err(WireError::of_keys)?;
        let new = seals(&identities);
        self.ring.replace(identities).map_err(WireError::of_keys)?;
        *self.seals.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(deployment.keys_held())
    }

    /// What capabilities are sealed with.
    pub fn seals(&self) -> Arc<SealKeys> {
        self.seals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
