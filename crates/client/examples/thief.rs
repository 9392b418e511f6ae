//! A user who has stolen a data server's key, and tries what it allows.
//!
//! `thief DEPLOYMENT SERVER PATH OWNER OWNER_CREDENTIAL`: DEPLOYMENT is a directory with the deployment file, the
//! client key and `data-SERVER.key`. The thief's own credential is where clients look for it. PATH belongs to user
//! OWNER and is closed to others. OWNER_CREDENTIAL brings one capability of the owner, as every client shows it to the
//! server whose key was stolen.
//!
//! Prints a JSON object for each attempt: what was tried, where, and the kind and text of the refusal, or that it was
//! `granted`. Attempts with `own` are what the key allows: they show that the forgeries are well made.
mod raw;

use penstock_layout::{Layout, ServerId};
use penstock_rpc::deployment::Deployment;
use penstock_rpc::{Connection, Timeouts, Wallet, connect};
use penstock_wire::credential::{Statement, Uids};
use penstock_wire::message::{
    Capability, DataReply, DataRequest, Followed, MetaReply, MetaRequest, NodeRequest, Region,
    StoreReport, StoreState, UsageReport, User, WireError,
};
use penstock_wire::revocation::Revoked;
use penstock_wire::{Credential, KeyPair, Rights, Role, SealKey, SealKeys};
use raw::{Result, ask};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const HOUR_MS: u64 = 3_600_000;

struct Thief {
    deployment: Deployment,
    /// Whose key it is.
    server: ServerId,
    /// The key.
    stolen: KeyPair,
    path: String,
    owner: u32,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, server, path, owner, credential] = &arguments[..] else {
        return Err("usage: thief DEPLOYMENT SERVER PATH OWNER OWNER_CREDENTIAL".into());
    };
    let deployment = Deployment::load(Path::new(directory))?;
    let server = ServerId(server.parse()?);
    let stolen = KeyPair::load(&Path::new(directory).join(format!("data-{}.key", server.0)))?;
    let thief = Thief {
        deployment,
        server,
        stolen,
        path: path.clone(),
        owner: owner.parse()?,
    };
    let shown = thief.owners_capability(Path::new(credential))?;
    thief.at_the_metadata_server(&shown)?;
    thief.as_others()?;
    thief.at_data_servers(&shown)
}

impl Thief {
    /// What the owner's clients show to data servers.
    fn owners_capability(&self, credential: &Path) -> Result<Capability> {
        let wallet = Arc::new(Wallet::holding(Credential::load(credential)?));
        let mut meta = self.connected(Role::Client, None, Some(wallet))?;
        match ask(&mut meta, &self.open())? {
            MetaReply::Opened { capability, .. } => Ok(capability),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn open(&self) -> MetaRequest {
        MetaRequest::Open {
            path: self.path.clone(),
            read: true,
            write: false,
            create: None,
            exclusive: false,
        }
    }

    /// In the name of the data server.
    fn at_the_metadata_server(&self, shown: &Capability) -> Result<()> {
        let mut meta = self.connected(Role::Server(self.server), None, None)?;
        let at = "metadata server";
        let time = ask(&mut meta, &MetaRequest::Time)?;
        told_meta("own: time", at, time);
        let report = |server: u32, adopt| {
            MetaRequest::Store(StoreReport {
                server,
                place: "/tmp/thief".into(),
                state: StoreState::Empty,
                mounted: false,
                renew: adopt,
                adopt,
                highest: 0,
            })
        };
        let owner = User {
            uid: self.owner,
            gid: self.owner,
            groups: Vec::new(),
        };
        let attempts = [
            ("open the file", self.open()),
            (
                "open several",
                MetaRequest::Batch(vec![self.open(), self.open()]),
            ),
            (
                "stat",
                MetaRequest::Stat {
                    path: self.path.clone(),
                },
            ),
            (
                "renew a capability",
                MetaRequest::Renew {
                    file: shown.file,
                    read: true,
                    write: true,
                },
            ),
            (
                "act for the owner",
                MetaRequest::Node {
                    user: owner,
                    request: NodeRequest::Stat { id: shown.file },
                },
            ),
            (
                "unlink",
                MetaRequest::Unlink {
                    path: self.path.clone(),
                },
            ),
            (
                "list files",
                MetaRequest::ListFiles {
                    after: None,
                    limit: 10,
                },
            ),
            ("another's store", report(self.other().0, false)),
            ("renew another's store", report(self.other().0, true)),
            (
                "another's counts of bytes",
                MetaRequest::Usage(UsageReport {
                    server: self.other().0,
                    incarnation: 1,
                    sequence: u64::MAX,
                    followed: Followed::default(),
                    users: Vec::new(),
                }),
            ),
            ("list programs", MetaRequest::Programs),
            ("read keys again", MetaRequest::LoadKeys),
            (
                "take credentials back",
                MetaRequest::Revoke {
                    what: Revoked::User(self.owner),
                    until_ms: u64::MAX,
                },
            ),
            ("stop", MetaRequest::Shutdown),
        ];
        for (what, request) in attempts {
            match ask(&mut meta, &request)? {
                MetaReply::Batch(replies) => {
                    for reply in replies {
                        told_meta(what, at, reply);
                    }
                }
                reply => told_meta(what, at, reply),
            }
        }
        Ok(())
    }

    /// In the handshake: as another server, as the owner and as an administrator.
    fn as_others(&self) -> Result<()> {
        let servers = || (0..self.deployment.servers.len()).map(Some);
        // With the secret that the stolen key shares with the metadata server.
        let mut caller = self.deployment.caller(Role::Server(self.server), 1, 0)?;
        caller.role = Role::Server(self.other());
        let meta = &self.deployment.meta.address;
        let told = connect(meta, &caller, timeouts());
        told_handshake("another data server", "metadata server", told);
        for to in servers() {
            let told = self.connected(Role::Server(self.server), to, None);
            told_handshake("a server as a client", &name(to), told);
        }
        for (what, role, uid) in [
            (
                "the owner, by a forged credential",
                Role::Client,
                self.owner,
            ),
            ("an administrator, by a forged credential", Role::Admin, 0),
        ] {
            for to in [None].into_iter().chain(servers()) {
                let forged = Arc::new(Wallet::holding(self.forged_credential(uid)?));
                told_handshake(what, &name(to), self.connected(role, to, Some(forged)));
            }
        }
        for to in [None].into_iter().chain(servers()) {
            let told = self.connected(Role::Admin, to, None);
            told_handshake("an administrator", &name(to), told);
        }
        Ok(())
    }

    /// With a credential of the thief's own.
    fn at_data_servers(&self, shown: &Capability) -> Result<()> {
        for index in 0..self.deployment.servers.len() {
            let to = Some(index);
            let id = self.deployment.servers[index].id;
            let own = id == self.server;
            let mut connection = self.connected(Role::Client, to, None)?;
            let forged = self.forged_capability(&shown.layout, shown)?;
            let attach = |capability: &Capability| DataRequest::Attach {
                capability: capability.clone(),
            };
            let what = ["attach by a forged capability", "own: attach"][usize::from(own)];
            let reply = ask(&mut connection, &attach(&forged))?;
            if let DataReply::Attached { handle, .. } = reply {
                let region = Region::Contiguous { offset: 0, len: 1 };
                let read = DataRequest::Read {
                    handle,
                    region,
                    lock: None,
                };
                let reply = ask(&mut connection, &read)?;
                told_data(what, &name(to), reply);
            } else {
                told_data(what, &name(to), reply);
            }
            let mut others = vec![
                ("attach by the owner's capability", attach(shown)),
                (
                    "list objects",
                    DataRequest::ListObjects {
                        after: None,
                        limit: 10,
                    },
                ),
                (
                    "remove an object",
                    DataRequest::RemoveObject { file: shown.file },
                ),
                (
                    "settings",
                    DataRequest::Tune {
                        settings: vec!["sched=to".into()],
                    },
                ),
                ("read keys again", DataRequest::LoadKeys),
                ("stop", DataRequest::Shutdown),
            ];
            if !own {
                others.push((
                    "look by a forged capability",
                    DataRequest::Look {
                        capability: forged.clone(),
                    },
                ));
                others.push((
                    "remove by a forged capability",
                    DataRequest::Remove { capability: forged },
                ));
            }
            for (what, request) in others {
                let reply = ask(&mut connection, &request)?;
                told_data(what, &name(to), reply);
            }
        }
        Ok(())
    }

    fn other(&self) -> ServerId {
        let ids = self.deployment.servers.iter().map(|s| s.id);
        ids.filter(|id| *id != self.server)
            .max()
            .unwrap_or(ServerId(u32::MAX))
    }

    /// For the thief, all rights, sealed by the only secret at hand for all servers.
    fn forged_capability(&self, layout: &Layout, shown: &Capability) -> Result<Capability> {
        let meta = self.deployment.meta.address.identity;
        let shared = meta.and_then(|meta| self.stolen.shared_with(&meta));
        let seal = SealKey::of(&shared.ok_or("the metadata server has no identity")?);
        let keys: SealKeys = layout
            .servers
            .iter()
            .map(|id| (*id, seal.clone()))
            .collect();
        let me = rustix::process::geteuid().as_raw();
        let rights = Rights {
            read: true,
            write: true,
            remove: true,
        };
        let life = shown.issued_ms..shown.issued_ms + HOUR_MS;
        let layout = layout.clone();
        Ok(Capability::grant(
            &keys,
            me,
            shown.file,
            rights,
            life,
            Some(me),
            layout,
        )?)
    }

    /// Signed with the stolen key, as if that were the authority's.
    fn forged_credential(&self, uid: u32) -> Result<Credential> {
        let user = User {
            uid,
            gid: uid,
            groups: Vec::new(),
        };
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let now_ms = u64::try_from(since.as_millis())?;
        let mut statement = Statement::new(&self.deployment.id, user, now_ms..now_ms + HOUR_MS);
        statement.administrator = uid == 0;
        statement.root = uid == 0;
        statement.speaks_for = vec![Uids::ALL];
        Ok(Credential::issue(&self.stolen, statement)?)
    }

    /// To a data server, or to the metadata server.
    fn connected(
        &self,
        role: Role,
        to: Option<usize>,
        wallet: Option<Arc<Wallet>>,
    ) -> penstock_wire::Result<Connection> {
        let address = match to {
            Some(server) => &self.deployment.servers[server].address,
            None => &self.deployment.meta.address,
        };
        let mut caller = self.deployment.caller(role, 1, 0)?;
        caller.wallet = wallet.unwrap_or(caller.wallet);
        connect(address, &caller, timeouts())
    }
}

fn timeouts() -> Timeouts {
    let bound = Some(Duration::from_secs(20));
    Timeouts {
        read: bound,
        write: bound,
    }
}

fn name(server: Option<usize>) -> String {
    server.map_or_else(|| "metadata server".into(), |n| format!("data server {n}"))
}

fn told(what: &str, at: &str, refusal: Option<WireError>) {
    let line = match refusal {
        None => json!({ "tried": what, "at": at, "granted": true }),
        Some(e) => json!({
            "tried": what, "at": at, "granted": false,
            "kind": format!("{:?}", e.kind), "said": e.message,
        }),
    };
    println!("{line}");
}

fn told_handshake(what: &str, at: &str, tried: penstock_wire::Result<Connection>) {
    told(what, at, tried.err().map(WireError::from));
}

fn told_meta(what: &str, at: &str, reply: MetaReply) {
    let refusal = match reply {
        MetaReply::Error(e) => Some(e),
        _ => None,
    };
    told(what, at, refusal);
}

fn told_data(what: &str, at: &str, reply: DataReply) {
    let refusal = match reply {
        DataReply::Error(e) => Some(e),
        _ => None,
    };
    told(what, at, refusal);
}
