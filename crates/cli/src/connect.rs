//! A client of the deployment, for the commands that look at names, files and servers.
use crate::deployment::Located;
use crate::error::{CliError, Result};
use penstock_client::{Client, ClientOptions, Identity, announce, job};
use penstock_rpc::deployment::Deployment;
use penstock_wire::{Key, Role};
use std::time::Duration;

/// How long a server that does not answer is tried again; a person waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// A client for files.
pub fn client(located: &Located) -> Result<Client> {
    connect(&located.deployment, Role::Client, PATIENCE).map_err(|e| with_next(e, located))
}

/// How a command that moves bytes identifies itself. It is no rank of a parallel program: `penstock status` lists it as
/// a program of its own.
pub fn program() -> Result<Identity> {
    let program = job::fresh()
        .map_err(|e| CliError::new(format!("no random numbers from the system: {e}")))?;
    Ok(Identity { program, rank: 0 })
}

/// A client that moves files. It opens more connections, and waits at most a second for the lock of another copy.
pub fn copier(located: &Located) -> Result<Client> {
    let options = ClientOptions {
        retry_limit: PATIENCE,
        lock_timeout: Duration::from_secs(1),
        connections: 8,
        program: Some(announce::program()),
        ..ClientOptions::default()
    };
    Client::connect_with(&located.deployment, program()?, Role::Client, options)
        .map_err(|e| with_next(e, located))
}

/// A client that may list and remove objects.
pub fn administrator(located: &Located) -> Result<Client> {
    connect(&located.deployment, Role::Admin, PATIENCE).map_err(|e| with_next(e, located))
}

fn connect(
    deployment: &Deployment,
    role: Role,
    patience: Duration,
) -> std::result::Result<Client, penstock_client::Error> {
    let options = ClientOptions {
        retry_limit: patience,
        ..ClientOptions::default()
    };
    Client::connect_with(deployment, Identity::default(), role, options)
}

/// What to do where there is no client key that could be used.
pub fn no_key(deployment: &Deployment) -> Option<String> {
    Key::load_shared(&deployment.client_key).err()?;
    Some(format!(
        "clients prove {}; get it from the directory of the deployment on its servers' host, mode 600",
        deployment.client_key.display()
    ))
}

fn with_next(error: penstock_client::Error, located: &Located) -> CliError {
    if let Some(next) = no_key(&located.deployment) {
        return CliError::new(error).next(next);
    }
    CliError::new(error).next(format!(
        "`penstock status {0}` shows which servers run, `penstock up {0}` starts them",
        located.dir().display()
    ))
}
