//! Who is at each end of a connection: what a server proves, and what it knows about its peer.
use crate::connection::Credentials;
use crate::deployment::{Address, DataServer, Deployment, Transport};
use penstock_layout::ServerId;
use penstock_wire::credential::{Signed, Statement};
use penstock_wire::handshake::Role;
use penstock_wire::message::User;
use penstock_wire::{Error, Key, KeyName, KeyPair, PublicKey, Result, SealKey, SealKeys};
use std::collections::HashMap;
use std::path::Path;

/// The identity of a server.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Deployment id.
    pub deployment: String,
    /// Deployment name, for messages.
    pub deployment_name: String,
    /// For messages: "data server 3", "metadata server".
    pub server: String,
    /// Both sides prove it.
    pub client_key: Key,
    /// Keys proven by both sides where a data server is the client; only the metadata server has them.
    pub servers: HashMap<ServerId, Key>,
    /// Protection of its TCP connections.
    pub transport: Transport,
    /// Its identity, proven over TCP if that is protected.
    pub pair: KeyPair,
    /// The public key that signs credentials.
    pub authority: Option<PublicKey>,
    /// The metadata server's public key, if it may vouch for users ([`Signed::is_vouched_by`]).
    pub voucher: Option<PublicKey>,
}

impl Identity {
    /// The keys with which the metadata server seals capabilities.
    pub fn seals(&self) -> SealKeys {
        let servers = self.servers.iter();
        servers.map(|(id, key)| (*id, SealKey::of(key))).collect()
    }

    /// Whether this generation's keys verify the credential.
    pub(crate) fn believes(&self, signed: &Signed) -> bool {
        let vouched = |server| signed.is_vouched_by(server);
        let issued = |authority| signed.is_of(authority);
        self.authority.as_ref().is_some_and(issued) || self.voucher.as_ref().is_some_and(vouched)
    }

    pub(crate) fn key(&self, role: Role) -> Option<&Key> {
        match role {
            Role::Client | Role::Admin | Role::Newcomer => Some(&self.client_key),
            Role::Server(id) => self.servers.get(&id),
        }
    }
}

/// The key that a client in this role has named, of any generation.
pub(crate) fn named(identities: &[Identity], role: Role, name: KeyName) -> Option<&Key> {
    let mut keys = identities.iter().filter_map(|identity| identity.key(role));
    keys.find(|key| key.name() == name)
}

/// What a server knows about the peer of an open connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Proven.
    pub role: Role,
    /// Claimed.
    pub program: u64,
    /// Claimed.
    pub rank: u32,
    /// From the kernel; `None` over TCP.
    pub credentials: Option<Credentials>,
    /// From the credential if one was shown, otherwise from the kernel. For a server over TCP: no user.
    pub user: User,
    /// The statement of the credential.
    pub statement: Option<Statement>,
}

impl Peer {
    /// The user that capabilities are issued for: as stated, whether or not root keeps its rights.
    pub fn subject(&self) -> u32 {
        self.statement.as_ref().map_or(self.user.uid, |s| s.uid)
    }
}

impl Deployment {
    /// Loads the metadata server's identity in each generation of keys.
    pub fn meta_identities(&self) -> Result<Vec<Identity>> {
        let all = self.generations();
        all.iter().map(Deployment::meta_identity).collect()
    }

    /// Loads the identity of data server `id` in each generation of keys that it has. Each includes the secret shared
    /// with the metadata server.
    pub fn data_identities(&self, id: ServerId) -> Result<(Vec<Identity>, Vec<Key>)> {
        let mut found = (Vec::new(), Vec::new());
        for (index, deployment) in self.generations().iter().enumerate() {
            let server = deployment.server(id);
            let known = server.filter(|s| index == 0 || s.address.identity.is_some());
            if let Some(server) = known {
                found.0.push(deployment.data_identity(server)?);
                found.1.push(deployment.shared_with_meta(id)?);
            }
        }
        Ok(found)
    }

    /// Loads the metadata server's identity in the current generation of keys.
    pub fn meta_identity(&self) -> Result<Identity> {
        let name = "metadata server";
        let pair = self.pair(name, &self.meta.address, self.meta.identity_key.as_deref())?;
        // Servers added later have no identity in the former generation.
        let shared = self.servers.iter().filter(|s| s.address.identity.is_some());
        let shared = shared.map(|server| {
            let name = format!("data server {}", server.id.0);
            Ok((server.id, self.shared(&pair, &name, &server.address)?))
        });
        Ok(Identity {
            servers: shared.collect::<Result<_>>()?,
            ..self.identity(name.into(), pair)?
        })
    }

    fn data_identity(&self, server: &DataServer) -> Result<Identity> {
        let name = format!("data server {}", server.id.0);
        let pair = self.pair(&name, &server.address, server.identity_key.as_deref())?;
        self.identity(name, pair)
    }

    /// For data server `id`: the secret that it shares with the metadata server.
    pub fn shared_with_meta(&self, id: ServerId) -> Result<Key> {
        let name = format!("data server {}", id.0);
        let server = self
            .server(id)
            .ok_or_else(|| self.wrong(&name, "it is not in the deployment file"))?;
        let pair = self.pair(&name, &server.address, server.identity_key.as_deref())?;
        self.shared(&pair, "metadata server", &self.meta.address)
    }

    fn wrong(&self, server: &str, what: &str) -> Error {
        Error::Deployment {
            path: self.name.clone(),
            what: format!("{server}: {what}"),
        }
    }

    /// The key pair of a server with this address, whose private half is in the file `key`.
    fn pair(&self, server: &str, address: &Address, key: Option<&Path>) -> Result<KeyPair> {
        let (Some(path), Some(public)) = (key, address.identity) else {
            return Err(self.wrong(server, "it has no identity key; `penstock up` makes one"));
        };
        let pair = KeyPair::load(path)?;
        if pair.public() != public {
            let what = format!(
                "the key in {} is not the private half of its identity, {public}; put the right file there",
                path.display()
            );
            return Err(self.wrong(server, &what));
        }
        Ok(pair)
    }

    fn shared(&self, pair: &KeyPair, server: &str, address: &Address) -> Result<Key> {
        let public = address
            .identity
            .ok_or_else(|| self.wrong(server, "it has no identity key; `penstock up` makes one"))?;
        pair.shared_with(&public)
            .ok_or_else(|| self.wrong(server, "its identity is not a public key"))
    }

    fn identity(&self, server: String, pair: KeyPair) -> Result<Identity> {
        Ok(Identity {
            deployment: self.id.clone(),
            deployment_name: self.name.clone(),
            server,
            client_key: Key::load_shared(&self.client_key)?,
            servers: HashMap::new(),
            transport: self.transport,
            pair,
            authority: self.authority,
            voucher: self.munge.as_ref().and(self.meta.address.identity),
        })
    }
}
