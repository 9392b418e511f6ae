//! The deployment file (`deployment.toml`), which servers, clients and tools share: servers, addresses, stores, keys.
//!
//! It contains no secrets: `client_key`, `authority_key` and each `identity_key` name files of mode 0600. Clients and
//! servers prove the client key to each other. Over TCP a server also proves its identity key, whose public half is
//! part of its address. A client proves a credential ([`penstock_wire::credential`]) signed by the `authority`. Paths
//! in the file are relative to the directory it lies in.
use crate::munge;
use penstock_layout::ServerId;
use penstock_wire::trusted_file::TrustedFile;
use penstock_wire::{Error, PublicKey, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub mod hosts;
pub mod keys;

pub use keys::Generation;

/// Name of the deployment file in a deployment's directory.
pub const FILE_NAME: &str = "deployment.toml";
/// Largest deployment file that is read.
const MAX_FILE: u64 = 4 << 20;
/// Most data servers of a deployment.
const MAX_SERVERS: usize = 16_384;
/// Longest path of a Unix socket (the kernel's limit).
const MAX_SOCKET_PATH: usize = 107;

/// The addresses of a server. A client on the same host prefers the Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// Path of the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// host:port
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    /// The public key that the server must prove over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PublicKey>,
}

/// Protection of messages over TCP. Unix sockets need none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TLS 1.3: nobody on the network can read or change a message, or impersonate a server.
    #[default]
    Tls,
    /// None. For a network on which nobody listens, changes packets or takes over addresses.
    PlainTrustedNetwork,
}

impl Transport {
    /// Whether it is TLS, the default, which files leave out.
    pub fn is_tls(&self) -> bool {
        *self == Transport::Tls
    }
}

/// A data server; it stores bytes in `dir:/path`, `memory`, or `model:DEVICE[,...][,dir=/path]`. Before one of these there
/// may be a fast tier: `fast:/path[,queue=BYTES];dir:/path`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataServer {
    /// Its number, as layouts name it.
    pub id: ServerId,
    /// Where it listens.
    pub address: Address,
    /// See [`DataServer::target`].
    pub store: String,
    /// File of the private half of its identity key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_key: Option<PathBuf>,
    /// The host that it runs on, where the deployment has several ([`hosts`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The parsed form of [`DataServer::store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A directory.
    Dir(PathBuf),
    /// The server's memory, lost when it ends.
    Memory,
    /// A modelled device, as text, over a directory or over memory.
    Model(String, Option<PathBuf>),
}

impl Target {
    /// The directory with the bytes, if there is one.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Target::Dir(path) | Target::Model(_, Some(path)) => Some(path),
            Target::Memory | Target::Model(_, None) => None,
        }
    }
}

impl DataServer {
    /// Its fast tier, `DIR[,queue=BYTES]`, if it has one.
    pub fn fast(&self) -> Option<&str> {
        let (fast, _) = self.store.strip_prefix("fast:")?.split_once(';')?;
        Some(fast)
    }

    /// The store without its fast tier.
    pub fn behind(&self) -> &str {
        let tiered = self.store.strip_prefix("fast:");
        let behind = tiered.and_then(|text| text.split_once(';'));
        behind.map_or(&self.store, |(_, behind)| behind)
    }

    /// The parsed store of this server; an error says what is wrong with the text.
    pub fn target(&self) -> std::result::Result<Target, String> {
        match self.behind().split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Target::Dir(PathBuf::from(path))),
            Some(("model", text)) if !text.is_empty() => Ok(match text.split_once(",dir=") {
                Some((text, path)) => Target::Model(text.to_owned(), Some(PathBuf::from(path))),
                None => Target::Model(text.to_owned(), None),
            }),
            None if self.behind() == "memory" => Ok(Target::Memory),
            _ => Err(format!(
                "server {}: store is {:?}; write \"dir:/path\", \"memory\" or \"model:DEVICE\"",
                self.id.0, self.store
            )),
        }
    }
}

/// The one metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetaServer {
    /// Where it listens.
    pub address: Address,
    /// Directory of the metadata database.
    pub store: PathBuf,
    /// File of the private half of its identity key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_key: Option<PathBuf>,
    /// The host that it runs on, where the deployment has several ([`hosts`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The contents of a deployment file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// 32 hex digits, drawn at creation; every store carries it.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// Default stripe unit for new files, bytes.
    pub stripe_unit: u64,
    /// Plain paths under this prefix are Penstock files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// Settings of the data servers' schedulers, each `name=value`, as `penstock tune` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tune: Vec<String>,
    /// Protection of messages over TCP.
    #[serde(default, skip_serializing_if = "Transport::is_tls")]
    pub transport: Transport,
    /// File of the key that clients prove.
    pub client_key: PathBuf,
    /// From files of an earlier release; unused, and dropped when the file is written.
    #[serde(default, skip_serializing, rename = "server_key")]
    pub former_server_key: Option<PathBuf>,
    /// The public key that signs credentials of users over TCP, and of administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PublicKey>,
    /// File of the authority's private half; only hosts that issue credentials need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_key: Option<PathBuf>,
    /// Current generation of keys ([`keys`]).
    #[serde(default = "keys::first", skip_serializing_if = "keys::is_first")]
    pub generation: u32,
    /// Set if users over TCP may authenticate by MUNGE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub munge: Option<munge::Section>,
    /// The metadata server.
    pub meta: MetaServer,
    /// The data servers.
    #[serde(rename = "server")]
    pub servers: Vec<DataServer>,
    /// A second generation of keys that servers accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_keys: Option<Generation>,
}

impl Deployment {
    /// A new deployment id: 32 random hex digits.
    pub fn new_id() -> Result<String> {
        let random = penstock_wire::key::random()?;
        Ok(random[..16].iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Reads a file, resolves relative paths against its directory, and validates it. A directory stands for the
    /// [`FILE_NAME`] in it.
    pub fn load(path: &Path) -> Result<Deployment> {
        let inside = path.join(FILE_NAME);
        let path = if path.is_dir() {
            inside.as_path()
        } else {
            path
        };
        let fail = |what: String| Error::Deployment {
            path: path.display().to_string(),
            what,
        };
        let text = TrustedFile::open(path)
            .and_then(|file| file.text(MAX_FILE + 1))
            .map_err(fail)?;
        if text.len() as u64 > MAX_FILE {
            return Err(fail(format!(
                "larger than {MAX_FILE} bytes, at most so many are read"
            )));
        }
        let mut deployment: Deployment = toml::from_str(&text).map_err(|e| fail(e.to_string()))?;
        let dir = std::path::absolute(path)
            .map_err(|e| fail(format!("cannot resolve: {e}")))?
            .parent()
            .map(Path::to_owned)
            .unwrap_or_default();
        deployment.each_path(&mut |p| {
            if p.is_relative() {
                *p = dir.join(&*p);
            }
        });
        deployment.validate().map_err(fail)?;
        Ok(deployment)
    }

    /// Validates and atomically writes the file; paths under its directory become relative.
    pub fn save(&self, path: &Path) -> Result<()> {
        let fail = |what: String| Error::Deployment {
            path: path.display().to_string(),
            what,
        };
        self.validate().map_err(fail)?;
        let absolute =
            std::path::absolute(path).map_err(|e| fail(format!("cannot resolve: {e}")))?;
        let dir = absolute.parent().unwrap_or(Path::new("/"));
        let relative = self.relative_to(dir);
        let text = toml::to_string_pretty(&relative).map_err(|e| fail(e.to_string()))?;
        let temporary = absolute.with_extension(format!("toml.{}.new", std::process::id()));
        let write = || -> std::io::Result<()> {
            // Not secret, but only the owner may change where keys and servers are, whatever the umask.
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &absolute)?;
            std::fs::File::open(dir)?.sync_all()
        };
        write().map_err(|e| {
            // Only the first error matters; a leftover file is harmless.
            let _ = std::fs::remove_file(&temporary);
            fail(format!("cannot write: {e}"))
        })
    }

    /// The same deployment with paths under `dir` relative to it, as in a file there.
    pub fn relative_to(&self, dir: &Path) -> Deployment {
        let mut relative = self.clone();
        relative.each_path(&mut |p| {
            if let Ok(inside) = p.strip_prefix(dir)
                && !inside.as_os_str().is_empty()
            {
                *p = inside.to_owned();
            }
        });
        relative
    }

    /// Visits all paths that are relative to the deployment file. Not the mount prefix, which is a name that programs
    /// use.
    fn each_path(&mut self, visit: &mut dyn FnMut(&mut PathBuf)) {
        visit(&mut self.client_key);
        if let Some(path) = &mut self.authority_key {
            visit(path);
        }
        if let Some(other) = &mut self.other_keys {
            other.each_path(visit);
        }
        visit(&mut self.meta.store);
        let servers = self.servers.iter_mut().map(|s| &mut s.identity_key);
        for path in servers.chain([&mut self.meta.identity_key]).flatten() {
            visit(path);
        }
        if let Some(path) = &mut self.meta.address.unix {
            visit(path);
        }
        for server in &mut self.servers {
            if let Some(path) = &mut server.address.unix {
                visit(path);
            }
            if let Some(path) = server.behind().strip_prefix("dir:")
                && !path.is_empty()
            {
                let mut path = PathBuf::from(path);
                visit(&mut path);
                let fast = server.fast().map(|fast| format!("fast:{fast};"));
                server.store = format!("{}dir:{}", fast.unwrap_or_default(), path.display());
            }
        }
    }

    /// Checks the contents; the error says what is wrong and where.
    pub fn validate(&self) -> std::result::Result<(), String> {
        if self.id.len() != 32 || !self.id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("id is {:?}; it must be 32 hex digits", self.id));
        }
        if self.name.is_empty() || self.name.len() > 255 {
            return Err("name must have 1 to 255 bytes".into());
        }
        if !(1..=1 << 30).contains(&self.stripe_unit) {
            return Err(format!(
                "stripe_unit is {}; it must be 1 to 1073741824 bytes",
                self.stripe_unit
            ));
        }
        if let Some(mount) = &self.mount
            && !mount.is_absolute()
        {
            return Err(format!("mount is {}; it must be absolute", mount.display()));
        }
        if self.servers.is_empty() || self.servers.len() > MAX_SERVERS {
            return Err(format!(
                "{} data servers; there must be 1 to {MAX_SERVERS} [[server]] sections",
                self.servers.len()
            ));
        }
        if let Some(munge) = &self.munge {
            munge.validate()?;
            if !self.transport.is_tls() {
                return Err(
                    "munge: it needs transport = \"tls\": nothing else binds a MUNGE credential to a connection".into(),
                );
            }
        }
        let mut ids = HashSet::new();
        let mut addresses = HashSet::new();
        let mut stores = HashSet::new();
        let who = "metadata server".to_owned();
        validate_address(&who, &self.meta.address, &mut addresses)?;
        stores.insert(self.meta.store.clone());
        for server in &self.servers {
            let who = format!("server {}", server.id.0);
            if !ids.insert(server.id) {
                return Err(format!(
                    "{who} appears twice; every server needs its own id"
                ));
            }
            validate_address(&who, &server.address, &mut addresses)?;
            if let Some(path) = server.target()?.dir()
                && !stores.insert(path.to_path_buf())
            {
                return Err(format!(
                    "{who}: store {} belongs to another server already; every server needs its own",
                    path.display()
                ));
            }
        }
        hosts::validate(self)
    }

    /// The data server `id`.
    pub fn server(&self, id: ServerId) -> Option<&DataServer> {
        self.servers.iter().find(|s| s.id == id)
    }

    /// The ids of all data servers, in the file's order.
    pub fn server_ids(&self) -> Vec<ServerId> {
        self.servers.iter().map(|s| s.id).collect()
    }
}

fn validate_address(
    who: &str,
    address: &Address,
    seen: &mut HashSet<String>,
) -> std::result::Result<(), String> {
    if address.unix.is_none() && address.tcp.is_none() {
        return Err(format!(
            "{who}: address needs unix = \"/path\" or tcp = \"host:port\""
        ));
    }
    if let Some(path) = &address.unix {
        let len = path.as_os_str().len();
        if len > MAX_SOCKET_PATH {
            return Err(format!(
                "{who}: socket path {} has {len} bytes, the system allows {MAX_SOCKET_PATH}; use a shorter directory",
                path.display()
            ));
        }
        if !seen.insert(path.display().to_string()) {
            return Err(format!("{who}: socket {} is used twice", path.display()));
        }
    }
    if let Some(tcp) = &address.tcp {
        let port = tcp
            .rsplit_once(':')
            .filter(|(host, _)| !host.is_empty())
            .and_then(|(_, port)| port.parse::<u16>().ok())
            .ok_or_else(|| format!("{who}: tcp is {tcp:?}; write \"host:port\""))?;
        // Port 0 means any free port.
        if port != 0 && !seen.insert(tcp.clone()) {
            return Err(format!("{who}: address {tcp} is used twice"));
        }
    }
    Ok(())
}
