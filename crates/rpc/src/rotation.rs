//! Creates and rotates the keys of a deployment.
//!
//! A generation of keys is a client key, the authority's pair, and a pair for each server. The deployment file names
//! the current one, and a second one during a rotation: servers accept both, clients use the current one. A rotation
//! first adds the next generation ([`Deployment::add_keys`]). When all servers have read it, the two are exchanged
//! ([`Deployment::switch_keys`]). Programs with the former keys continue until it is dropped
//! ([`Deployment::drop_keys`]) or the next rotation replaces it.
use crate::deployment::keys::{Generation, ServerKeys};
use crate::deployment::{Address, Deployment};
use penstock_layout::ServerId;
use penstock_wire::message::{ErrorKind, KeysHeld, WireError};
use penstock_wire::{Error, Key, KeyPair, PublicKey, Result};
use std::mem::swap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

impl Deployment {
    /// Makes in `dir` the key pairs that the deployment lacks, of its authority and of each server. Returns whether any
    /// was made; the deployment must then be saved.
    pub fn make_keys(&mut self, dir: &Path) -> Result<bool> {
        let mut made = self.former_server_key.take().is_some();
        if self.authority.is_none() {
            let (public, path) = key_pair(dir, "authority")?;
            (self.authority, self.authority_key) = (Some(public), Some(path));
            made = true;
        }
        for (id, address, key) in self.identities_mut() {
            if address.identity.is_none() {
                let (public, path) = key_pair(dir, &name(id))?;
                (address.identity, *key) = (Some(public), Some(path));
                made = true;
            }
        }
        Ok(made)
    }

    /// The file of a key of the next generation in `dir`.
    fn next_file(&self, dir: &Path, name: &str) -> PathBuf {
        dir.join(format!("{}.key", self.next_name(name)))
    }

    fn next_name(&self, name: &str) -> String {
        format!("{name}-{}", self.generation + 1)
    }

    /// The client key of the next generation in `dir`, made if it is not there. Who could read the one of now can read it.
    pub fn next_client_key(&self, dir: &Path) -> Result<PathBuf> {
        let path = self.next_file(dir, "client");
        if !path.exists() {
            Key::generate()?.save(&path)?;
        }
        share_like(&self.client_key, &path)?;
        Ok(path)
    }

    /// Makes the identity of a server in the next generation, in `dir`.
    pub fn next_identity(&self, dir: &Path, id: Option<ServerId>) -> Result<PublicKey> {
        key_pair(dir, &self.next_name(&name(id))).map(|(public, _)| public)
    }

    /// Makes the next generation of keys in `dir`, in the place of the former one if there is any. `elsewhere` are identities that
    /// the servers' own hosts have made.
    pub fn add_keys(
        &mut self,
        dir: &Path,
        elsewhere: &[(Option<ServerId>, PublicKey)],
    ) -> Result<()> {
        let client_key = self.next_client_key(dir)?;
        let (authority, authority_key) = key_pair(dir, &self.next_name("authority"))?;
        let ids: Vec<_> = self.identities_mut().map(|(id, ..)| id).collect();
        let mut servers = Vec::new();
        for id in ids {
            let made = elsewhere.iter().find(|(of, _)| *of == id);
            let identity = match made {
                Some((_, identity)) => *identity,
                None => self.next_identity(dir, id)?,
            };
            let path = self.next_file(dir, &name(id));
            servers.push(ServerKeys {
                id,
                identity,
                identity_key: Some(path),
            });
        }
        self.other_keys = Some(Generation {
            generation: self.generation + 1,
            client_key,
            authority: Some(authority),
            authority_key: Some(authority_key),
            servers,
        });
        Ok(())
    }

    /// Exchanges the current generation and the other one; `false` if there is no other.
    pub fn switch_keys(&mut self) -> bool {
        let Some(mut other) = self.other_keys.take() else {
            return false;
        };
        swap(&mut self.generation, &mut other.generation);
        swap(&mut self.client_key, &mut other.client_key);
        swap(&mut self.authority, &mut other.authority);
        swap(&mut self.authority_key, &mut other.authority_key);
        let mut servers = Vec::new();
        for (id, address, key) in self.identities_mut() {
            let theirs = other.servers.iter_mut().find(|s| s.id == id);
            let (identity, path) = match theirs {
                Some(theirs) => (Some(theirs.identity), theirs.identity_key.take()),
                None => (None, None),
            };
            let identity = std::mem::replace(&mut address.identity, identity);
            let identity_key = std::mem::replace(key, path);
            servers.extend(identity.map(|identity| ServerKeys {
                id,
                identity,
                identity_key,
            }));
        }
        other.servers = servers;
        self.other_keys = Some(other);
        true
    }

    /// Drops the generation that is not current, and returns it.
    pub fn drop_keys(&mut self) -> Option<Generation> {
        self.other_keys.take()
    }

    /// The generations that a server of this deployment accepts.
    pub fn keys_held(&self) -> KeysHeld {
        KeysHeld {
            current: self.generation,
            other: self.other_keys.as_ref().map(|other| other.generation),
        }
    }

    /// Loads deployment `id` from `file` again, for a running server.
    pub fn load_again(id: &str, file: Option<&Path>) -> std::result::Result<Deployment, WireError> {
        let invalid = |what: String| WireError::new(ErrorKind::InvalidArgument, what);
        let file = file.ok_or_else(|| {
            invalid("this server was not started from a deployment file; start it again to give it other keys".into())
        })?;
        let mut deployment = Deployment::load(file).map_err(WireError::of_keys)?;
        deployment.take_credentials();
        if deployment.id != id {
            return Err(invalid(format!(
                "{} describes deployment {} now, and this server belongs to {id}",
                file.display(),
                deployment.id
            )));
        }
        Ok(deployment)
    }

    /// This deployment with each generation of its keys as the current one, beginning with the current one.
    pub(crate) fn generations(&self) -> Vec<Deployment> {
        let mut all = vec![self.clone()];
        let mut other = self.clone();
        if other.switch_keys() {
            all.push(other);
        }
        all
    }

    /// Each server's id (`None`: the metadata server), address and key file.
    fn identities_mut(
        &mut self,
    ) -> impl Iterator<Item = (Option<ServerId>, &mut Address, &mut Option<PathBuf>)> {
        let meta = &mut self.meta;
        let first = (None, &mut meta.address, &mut meta.identity_key);
        let servers = self.servers.iter_mut();
        let servers = servers.map(|s| (Some(s.id), &mut s.address, &mut s.identity_key));
        std::iter::once(first).chain(servers)
    }
}

fn name(id: Option<ServerId>) -> String {
    id.map_or_else(|| "meta".into(), |id| format!("data-{}", id.0))
}

/// Gives the file `new` the permissions of `old`.
fn share_like(old: &Path, new: &Path) -> Result<()> {
    let share = || -> std::io::Result<()> {
        let (found, made) = (old.metadata()?, new.metadata()?);
        if found.gid() != made.gid() {
            std::os::unix::fs::chown(new, None, Some(found.gid()))?;
        }
        let mode = std::fs::Permissions::from_mode(found.mode() & 0o640);
        std::fs::set_permissions(new, mode)
    };
    share().map_err(|e| Error::KeyFile {
        path: new.display().to_string(),
        what: format!("cannot get the group and mode of {}: {e}", old.display()),
    })
}

/// The key pair of the file `name`.key in `dir`. If the file exists, from before the deployment file could be saved, it
/// is used.
pub fn key_pair(dir: &Path, name: &str) -> Result<(PublicKey, PathBuf)> {
    let path = dir.join(format!("{name}.key"));
    let pair = if path.exists() {
        KeyPair::load(&path)?
    } else {
        KeyPair::generate().and_then(|mut pair| pair.save(&path).map(|()| pair))?
    };
    Ok((pair.public(), path))
}
