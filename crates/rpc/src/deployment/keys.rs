//! Generations of keys, as the deployment file names them (`penstock_wire::rotation` makes and replaces them).
use super::Deployment;
use penstock_layout::ServerId;
use penstock_wire::PublicKey;
use penstock_wire::key::CREDENTIALS;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Generation of the keys of a new deployment.
pub const FIRST: u32 = 1;

pub(super) fn first() -> u32 {
    FIRST
}

pub(super) fn is_first(generation: &u32) -> bool {
    *generation == FIRST
}

/// Public half of a server's identity, and the file of its private half.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerKeys {
    /// The data server; `None`: the metadata server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ServerId>,
    /// The identity that it proves over TCP.
    pub identity: PublicKey,
    /// File of the private half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_key: Option<PathBuf>,
}

/// A generation of keys other than the current one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// Its number: the former one's is less than the current one's, the next one's is greater.
    pub generation: u32,
    /// As [`Deployment::client_key`].
    pub client_key: PathBuf,
    /// As [`Deployment::authority`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PublicKey>,
    /// As [`Deployment::authority_key`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_key: Option<PathBuf>,
    /// Keys of each server that had an identity then.
    #[serde(default, rename = "server")]
    pub servers: Vec<ServerKeys>,
}

impl Deployment {
    /// Takes keys from the service manager's directory where it has files of their names, in place of those of the deployment.
    /// For servers: who runs them can keep their keys elsewhere, readable by nobody else.
    pub fn take_credentials(&mut self) {
        if let Some(dir) = std::env::var_os(CREDENTIALS).filter(|dir| !dir.is_empty()) {
            self.keys_from(Path::new(&dir));
        }
    }

    fn keys_from(&mut self, dir: &Path) {
        let mut take = |path: &mut PathBuf| {
            let there = path.file_name().map(|name| dir.join(name));
            if let Some(there) = there.filter(|there| there.is_file()) {
                *path = there;
            }
        };
        take(&mut self.client_key);
        let servers = self.servers.iter_mut().map(|s| &mut s.identity_key);
        let own = servers.chain([&mut self.meta.identity_key]);
        own.flatten().for_each(&mut take);
        if let Some(other) = &mut self.other_keys {
            other.each_path(&mut take);
        }
    }
}

impl Generation {
    /// The files with its secrets.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let servers = self.servers.iter().map(|s| &s.identity_key);
        let pairs = servers.chain([&self.authority_key]).flatten();
        pairs.chain([&self.client_key]).map(PathBuf::as_path)
    }

    pub(super) fn each_path(&mut self, visit: &mut dyn FnMut(&mut PathBuf)) {
        visit(&mut self.client_key);
        let servers = self.servers.iter_mut().map(|s| &mut s.identity_key);
        servers
            .chain([&mut self.authority_key])
            .flatten()
            .for_each(visit);
    }
}
