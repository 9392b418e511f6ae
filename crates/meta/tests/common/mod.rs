//! A deployment in a temporary directory and a raw client of its metadata server.
use penstock_layout::{FileId, ServerId};
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_rpc::{Connection, Timeouts};
use penstock_wire::message::{
    Attributes, Capability, CreateOptions, ErrorKind, MetaReply, MetaRequest,
};
use penstock_wire::{Envelope, Key, Role};
use std::path::Path;
use std::time::Duration;

pub fn deployment(dir: &Path) -> Deployment {
    let client_key = dir.join("client.key");
    Key::generate().unwrap().save(&client_key).unwrap();
    let address = |name: String| Address {
        unix: Some(dir.join(name)),
        tcp: None,
        identity: None,
    };
    let mut deployment = Deployment {
        id: Deployment::new_id().unwrap(),
        name: "test".into(),
        stripe_unit: 65536,
        mount: None,
        tune: Vec::new(),
        client_key,
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: None,
        meta: MetaServer {
            address: address("meta.sock".into()),
            store: dir.join("meta"),
            identity_key: None,
            host: None,
        },
        servers: (0..4)
            .map(|i| DataServer {
                id: ServerId(i),
                address: address(format!("data-{i}.sock")),
                store: "memory".into(),
                identity_key: None,
                host: None,
            })
            .collect(),
        transport: Transport::default(),
    };
    deployment.make_keys(dir).unwrap();
    deployment
}

pub struct Client {
    connection: Connection,
    next: u64,
}

impl Client {
    pub fn connect(deployment: &Deployment, role: Role) -> penstock_wire::Result<Client> {
        let caller = deployment.caller(role, 1, 0)?;
        let timeouts = Timeouts {
            read: Some(Duration::from_secs(60)),
            write: Some(Duration::from_secs(60)),
        };
        Ok(Client {
            connection: penstock_rpc::connect(&deployment.meta.address, &caller, timeouts)?,
            next: 0,
        })
    }

    pub fn new(deployment: &Deployment) -> Client {
        Client::connect(deployment, Role::Client).unwrap()
    }

    pub fn admin(deployment: &Deployment) -> Client {
        Client::connect(deployment, Role::Admin).unwrap()
    }

    /// The reply, successful or not; an error only if the connection fails.
    pub fn call(&mut self, request: &MetaRequest) -> penstock_wire::Result<MetaReply> {
        let envelope = Envelope {
            request: self.next,
            ..Envelope::default()
        };
        self.next += 1;
        self.connection.queue(&envelope, request)?;
        self.connection.flush()?;
        let received = self.connection.receive::<MetaReply>()?;
        let body = received.body.expect("a body");
        let known = received.envelope.request == envelope.request;
        assert!(known || matches!(body, MetaReply::Error(_)));
        Ok(body)
    }

    pub fn ok(&mut self, request: MetaRequest) -> MetaReply {
        match self.call(&request).unwrap() {
            MetaReply::Error(e) => panic!("{request:?}: {e}"),
            reply => reply,
        }
    }

    pub fn err(&mut self, request: MetaRequest) -> ErrorKind {
        match self.call(&request).unwrap() {
            MetaReply::Error(e) => e.kind,
            reply => panic!("{request:?}: {reply:?}"),
        }
    }

    pub fn open(&mut self, request: MetaRequest) -> (Attributes, Capability, bool) {
        match self.ok(request) {
            MetaReply::Opened {
                attributes,
                capability,
                created,
            } => (attributes, capability, created),
            reply => panic!("{reply:?}"),
        }
    }

    pub fn stat(&mut self, path: &str) -> Attributes {
        match self.ok(stat(path)) {
            MetaReply::Attributes(attributes) => attributes,
            reply => panic!("{reply:?}"),
        }
    }

    /// All entries of a directory, in pages of at most `limit`.
    pub fn list(&mut self, path: &str, limit: u32) -> Vec<(String, FileId)> {
        let mut all: Vec<(String, FileId)> = Vec::new();
        loop {
            let after = all.last().map(|(name, _)| name.clone());
            let path = path.to_owned();
            match self.ok(MetaRequest::Readdir { path, after, limit }) {
                MetaReply::Entries { entries, more } => {
                    assert!(!entries.is_empty() || !more);
                    all.extend(entries.into_iter().map(|(name, a)| (name, a.id)));
                    if !more {
                        return all;
                    }
                }
                reply => panic!("{reply:?}"),
            }
        }
    }
}

pub fn create(path: impl Into<String>) -> MetaRequest {
    MetaRequest::Open {
        path: path.into(),
        read: true,
        write: true,
        create: Some(CreateOptions {
            mode: 0o600,
            ..CreateOptions::default()
        }),
        exclusive: true,
    }
}

pub fn open(path: impl Into<String>, read: bool, write: bool) -> MetaRequest {
    MetaRequest::Open {
        path: path.into(),
        read,
        write,
        create: None,
        exclusive: false,
    }
}

pub fn mkdir(path: impl Into<String>) -> MetaRequest {
    MetaRequest::Mkdir {
        path: path.into(),
        mode: 0o700,
    }
}

pub fn stat(path: impl Into<String>) -> MetaRequest {
    MetaRequest::Stat { path: path.into() }
}

pub fn unlink(path: impl Into<String>) -> MetaRequest {
    MetaRequest::Unlink { path: path.into() }
}

pub fn rename(from: impl Into<String>, to: impl Into<String>) -> MetaRequest {
    MetaRequest::Rename {
        from: from.into(),
        to: to.into(),
    }
}
