//! A data server's keys: what it proves to others, and the secret it shares with the metadata server. They can be
//! replaced while it runs.
use penstock_host::sync::Mutex;
use penstock_layout::ServerId;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::{Caller, Keyring};
use penstock_wire::message::{Capability, KeysHeld, WireError};
use penstock_wire::{Result, Role, SealKey};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// The keys, replaceable.
pub(crate) struct Keys {
    id: ServerId,
    deployment: String,
    /// The file that names them.
    file: Option<PathBuf>,
    /// Keys for the handshake.
    pub(crate) ring: Arc<Keyring>,
    shared: Mutex<Shared>,
}

struct Shared {
    /// Keys that verify capabilities, of each generation.
    seals: Arc<[SealKey]>,
    caller: Caller,
}

fn shared(deployment: &Deployment, id: ServerId, secrets: &[penstock_wire::Key]) -> Result<Shared> {
    Ok(Shared {
        seals: secrets.iter().map(SealKey::of).collect(),
        caller: deployment.caller(Role::Server(id), 0, 0)?,
    })
}

impl Keys {
    /// Loads the keys that the deployment, read from `file`, names.
    pub(crate) fn load(
        deployment: &Deployment,
        id: ServerId,
        file: Option<PathBuf>,
    ) -> Result<Keys> {
        let (identities, secrets) = deployment.data_identities(id)?;
        Ok(Keys {
            id,
            deployment: deployment.id.clone(),
            file,
            ring: Arc::new(Keyring::new(identities)?),
            shared: Mutex::new(shared(deployment, id, &secrets)?),
        })
    }

    /// Loads the keys that the deployment file names now; on an error the present ones stay.
    pub(crate) fn load_again(&self) -> std::result::Result<KeysHeld, WireError> {
        // Serialised, so that two requests do not mix what they read.
        let mut now = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let deployment = Deployment::load_again(&self.deployment, self.file.as_deref())?;
        let load = || {
            let (identities, secrets) = deployment.data_identities(self.id)?;
            let shared = shared(&deployment, self.id, &secrets)?;
            self.ring.replace(identities)?;
            Ok(shared)
        };
        *now = load().map_err(WireError::of_keys)?;
        Ok(deployment.keys_held())
    }

    /// Refuses a capability that the metadata server has not issued for this server.
    pub(crate) fn verify_seal(
        &self,
        capability: &Capability,
    ) -> std::result::Result<(), WireError> {
        let seals = self.locked(|shared| shared.seals.clone());
        let mut result = Ok(());
        for seal in seals.iter() {
            result = capability.verify_seal(self.id, seal);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The identity that this server presents to the metadata server.
    pub(crate) fn caller(&self) -> Caller {
        self.locked(|shared| shared.caller.clone())
    }

    fn locked<T>(&self, get: impl FnOnce(&Shared) -> T) -> T {
        get(&self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
