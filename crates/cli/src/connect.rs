//! A client of the deployment, for the commands that look at names, files and servers.
use crate::deployment::Located;
use crate::error::{CliError, Result};
use penstock_client::{Client, ClientOptions, Identity};
use penstock_wire::Role;
use penstock_wire::deployment::Deployment;
use std::time::Duration;

/// How long a server that is away is tried again; a person waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// A client for files.
pub fn client(located: &Located) -> Result<Client> {
    let options = ClientOptions {
        retry_limit: PATIENCE,
        ..ClientOptions::default()
    };
    Client::connect_with(
        &located.deployment,
        Identity::default(),
        Role::Client,
        options,
    )
    .map_err(|e| CliError::new(e).next(restart(located)))
}

/// A client that may ask servers about themselves: an administrator where the server key can be read.
pub fn inspector(
    deployment: &Deployment,
    patience: Duration,
) -> std::result::Result<Client, penstock_client::Error> {
    let options = ClientOptions {
        retry_limit: patience,
        ..ClientOptions::default()
    };
    let role = match std::fs::File::open(&deployment.server_key) {
        Ok(_) => Role::Admin,
        Err(_) => Role::Client,
    };
    Client::connect_with(deployment, Identity::default(), role, options)
}

/// A client that may list and remove objects.
pub fn administrator(located: &Located) -> Result<Client> {
    let options = ClientOptions {
        retry_limit: PATIENCE,
        ..ClientOptions::default()
    };
    Client::connect_with(
        &located.deployment,
        Identity::default(),
        Role::Admin,
        options,
    )
    .map_err(|e| CliError::new(e).next(restart(located)))
}

fn restart(located: &Located) -> String {
    format!(
        "`penstock status {0}` shows which servers run, `penstock up {0}` starts them",
        located.dir().display()
    )
}
