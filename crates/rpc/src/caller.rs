//! The identity that a client presents when it connects.
use crate::deployment::{Deployment, Transport};
use crate::wallet::Wallet;
use penstock_wire::handshake::Role;
use penstock_wire::{Key, Result};
use std::sync::Arc;

/// The identity of a client.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Deployment id.
    pub deployment: String,
    /// Deployment name, for messages.
    pub deployment_name: String,
    /// The role it asks for.
    pub role: Role,
    /// The key of that role.
    pub key: Key,
    /// Number of the parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// Protection of TCP connections.
    pub transport: Transport,
    /// The source of its credential for TCP connections.
    pub wallet: Arc<Wallet>,
}

impl Caller {
    /// A client of the deployment, with this wallet; loads the key of `role`.
    pub(crate) fn of(
        deployment: &Deployment,
        role: Role,
        program: u64,
        rank: u32,
        wallet: Wallet,
    ) -> Result<Caller> {
        let key = match role {
            Role::Client | Role::Admin | Role::Newcomer => {
                Key::load_shared(&deployment.client_key)?
            }
            Role::Server(id) => deployment.shared_with_meta(id)?,
        };
        Ok(Caller {
            deployment: deployment.id.clone(),
            deployment_name: deployment.name.clone(),
            role,
            key,
            program,
            rank,
            transport: deployment.transport,
            wallet: Arc::new(wallet),
        })
    }
}
