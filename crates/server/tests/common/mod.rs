//! A deployment of data servers in a temporary directory, and a client that speaks the bare protocol.
#![allow(missing_docs)]
use penstock_datatype::Pattern;
use penstock_layout::{FileId, Layout, ServerId};
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_rpc::{Connection, RunningServer, Timeouts, Wallet, connect};
use penstock_server::{Options, start};
use penstock_wire::credential::{Credential, Statement};
use penstock_wire::message::{
    Capability, DataReply, DataRequest, ErrorKind, Handle, Incarnation, LockId, LockMode, Region,
    TraceContext, User, WireError,
};
use penstock_wire::{Envelope, Key, KeyPair, Rights, Role, SealKeys};
use rustix::fs::Uid;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PATIENT: Timeouts = Timeouts {
    read: Some(Duration::from_secs(30)),
    write: Some(Duration::from_secs(30)),
};

pub struct TestDeployment {
    pub dir: tempfile::TempDir,
    pub deployment: Deployment,
    pub servers: Vec<RunningServer>,
    pub seals: SealKeys,
}

pub fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

pub fn deployment(dir: &Path, servers: u32, store: &str) -> Deployment {
    let address = |name: &str| Address {
        unix: Some(dir.join(name)),
        tcp: Some("127.0.0.1:0".into()),
        identity: None,
    };
    let mut deployment = Deployment {
        id: Deployment::new_id().unwrap(),
        name: "test".into(),
        stripe_unit: 64,
        mount: None,
        tune: Vec::new(),
        client_key: dir.join("client.key"),
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: None,
        meta: MetaServer {
            address: address("meta.sock"),
            store: dir.join("meta"),
            identity_key: None,
            host: None,
        },
        servers: (0..servers)
            .map(|i| DataServer {
                id: ServerId(i),
                address: address(&format!("{i}.sock")),
                store: match store {
                    "memory" => "memory".into(),
                    _ => format!("dir:{}", dir.join(format!("store{i}")).display()),
                },
                identity_key: None,
                host: None,
            })
            .collect(),
        transport: Transport::default(),
    };
    Key::generate()
        .unwrap()
        .save(&deployment.client_key)
        .unwrap();
    deployment.make_keys(dir).unwrap();
    deployment
}

impl TestDeployment {
    pub fn start(servers: u32, store: &str, options: Options) -> TestDeployment {
        let dir = tempfile::tempdir().unwrap();
        let deployment = deployment(dir.path(), servers, store);
        let running = (0..servers)
            .map(|i| start(&deployment, ServerId(i), options.clone()).unwrap())
            .collect();
        let seals = deployment.meta_identity().unwrap().seals();
        TestDeployment {
            dir,
            deployment,
            servers: running,
            seals,
        }
    }

    pub fn one() -> TestDeployment {
        TestDeployment::start(1, "dir", Options::default())
    }

    pub fn layout(&self, unit: u64) -> Layout {
        Layout::new(unit, self.deployment.server_ids()).unwrap()
    }

    pub fn capability(&self, file: u64, rights: Rights) -> Capability {
        let me = rustix::process::geteuid().as_raw();
        self.capability_of(me, file, rights, Some(me))
    }

    /// Of a user, for a file that these processes get descriptors of.
    pub fn capability_of(
        &self,
        subject: u32,
        file: u64,
        rights: Rights,
        lend_to: Option<u32>,
    ) -> Capability {
        Capability::grant(
            &self.seals,
            subject,
            FileId(file),
            rights,
            now_ms()..now_ms() + 600_000,
            lend_to,
            self.layout(64),
        )
        .unwrap()
    }

    pub fn client(&self, server: usize) -> Client {
        self.client_as(server, Role::Client, false)
    }

    pub fn client_as(&self, server: usize, role: Role, tcp: bool) -> Client {
        let mut address = self.servers[server].address().clone();
        if tcp {
            address.unix = None;
        }
        let caller = self.deployment.caller(role, 1, 0).unwrap();
        Client {
            connection: connect(&address, &caller, PATIENT).unwrap(),
            next: 1,
        }
    }

    /// A client that is a process of another user of this host. Only root can become one.
    pub fn client_of(&self, server: usize, uid: u32) -> Client {
        let address = self.servers[server].address().clone();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        mode(self.dir.path(), 0o755);
        mode(address.unix.as_ref().unwrap(), 0o666);
        let caller = self.deployment.caller(Role::Client, 1, 0).unwrap();
        // Of this thread alone.
        let become_user = |uid: u32| {
            rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::from_raw(uid), Uid::ROOT).unwrap();
        };
        become_user(uid);
        let connection = connect(&address, &caller, PATIENT);
        become_user(0);
        Client {
            connection: connection.unwrap(),
            next: 1,
        }
    }

    /// A client of another host, with a credential of user `uid`, which `change` makes into what is wanted.
    pub fn client_with(
        &self,
        server: usize,
        uid: u32,
        change: impl FnOnce(&mut Statement),
    ) -> Client {
        let mut address = self.servers[server].address().clone();
        address.unix = None;
        let authority = KeyPair::load(self.deployment.authority_key.as_ref().unwrap()).unwrap();
        let user = User {
            uid,
            ..User::nobody()
        };
        let life = now_ms() - 1000..now_ms() + 600_000;
        let mut statement = Statement::new(&self.deployment.id, user, life);
        change(&mut statement);
        let credential = Credential::issue(&authority, statement).unwrap();
        let mut caller = self.deployment.caller(Role::Client, 1, 0).unwrap();
        caller.wallet = Arc::new(Wallet::holding(credential));
        Client {
            connection: connect(&address, &caller, PATIENT).unwrap(),
            next: 1,
        }
    }

    /// A client with file `file` open for everything.
    pub fn open(&self, server: usize, file: u64) -> (Client, Handle) {
        let mut client = self.client(server);
        let handle = client.attach(self.capability(file, ALL)).unwrap();
        (client, handle)
    }
}

pub const ALL: Rights = Rights {
    read: true,
    write: true,
    remove: true,
};

pub const READ: Rights = Rights {
    read: true,
    write: false,
    remove: false,
};

pub struct Client {
    pub connection: Connection,
    pub next: u64,
}

pub fn contiguous(offset: u64, len: u64) -> Region {
    Region::Contiguous { offset, len }
}

pub fn inline(p: &Pattern) -> Region {
    Region::LoopInline {
        encoded: p.tile.encode().to_vec(),
        disp: p.disp,
        start: p.start,
        len: p.len,
    }
}

pub fn by_hash(p: &Pattern) -> Region {
    Region::LoopHash {
        hash: p.tile.hash().0,
        disp: p.disp,
        start: p.start,
        len: p.len,
    }
}

impl Client {
    pub fn envelope(&mut self) -> Envelope {
        let e = Envelope::request(self.next, TraceContext::default());
        self.next += 1;
        e
    }

    pub fn queue(&mut self, request: &DataRequest) -> u64 {
        let e = self.envelope();
        self.connection.queue(&e, request).unwrap();
        e.request
    }

    /// The answer to the oldest request, with all payload.
    pub fn answer(&mut self) -> (u64, DataReply, Vec<u8>) {
        let mut payload = Vec::new();
        loop {
            let got = self.connection.receive::<DataReply>().unwrap();
            let at = payload.len();
            payload.resize(at + got.payload_len, 0);
            self.connection.read_payload(&mut payload[at..]).unwrap();
            assert!(got.envelope.reply);
            assert_eq!(got.envelope.more, got.body.is_none());
            if let Some(reply) = got.body {
                return (got.envelope.request, reply, payload);
            }
        }
    }

    pub fn ask(&mut self, request: DataRequest) -> DataReply {
        let id = self.queue(&request);
        let (answered, reply, _) = self.answer();
        assert_eq!(answered, id);
        reply
    }

    pub fn done(&mut self, request: DataRequest) {
        assert_eq!(self.ask(request), DataReply::Done);
    }

    pub fn synced(&mut self, handle: Handle) -> Incarnation {
        match self.ask(DataRequest::Sync { handle }) {
            DataReply::Synced { incarnation } => incarnation,
            other => panic!("{other:?}"),
        }
    }

    pub fn refused(&mut self, request: DataRequest) -> WireError {
        match self.ask(request) {
            DataReply::Error(e) => e,
            other => panic!("{other:?}"),
        }
    }

    pub fn attach(&mut self, capability: Capability) -> Result<Handle, WireError> {
        match self.ask(DataRequest::Attach { capability }) {
            DataReply::Attached { handle, .. } => Ok(handle),
            DataReply::Error(e) => Err(e),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a write in frames of `chunk` bytes; the answer is still to come.
    pub fn send_write(
        &mut self,
        handle: Handle,
        region: Region,
        lock: Option<LockId>,
        bytes: &[u8],
        chunk: usize,
    ) {
        let e = self.envelope();
        let request = DataRequest::Write {
            handle,
            region,
            lock,
        };
        let mut chunks = bytes.chunks(chunk.max(1));
        let first = chunks.next().unwrap_or(&[]);
        let more = chunks.len() > 0;
        self.connection
            .queue_payload(&e.more(more), &request, first)
            .unwrap();
        while let Some(next) = chunks.next() {
            let more = chunks.len() > 0;
            self.connection
                .queue_continuation(&e.more(more), next)
                .unwrap();
        }
    }

    pub fn write_with(
        &mut self,
        handle: Handle,
        region: Region,
        lock: Option<LockId>,
        bytes: &[u8],
        chunk: usize,
    ) -> DataReply {
        self.send_write(handle, region, lock, bytes, chunk);
        self.answer().1
    }

    pub fn write(&mut self, handle: Handle, region: Region, bytes: &[u8]) {
        let reply = self.write_with(handle, region, None, bytes, 1 << 20);
        let bytes = bytes.len() as u64;
        assert_eq!(reply, DataReply::Written { bytes });
    }

    pub fn read(&mut self, handle: Handle, region: Region) -> Vec<u8> {
        let request = DataRequest::Read {
            handle,
            region,
            lock: None,
        };
        self.queue(&request);
        let (_, reply, payload) = self.answer();
        let bytes = payload.len() as u64;
        assert_eq!(reply, DataReply::Read { bytes });
        payload
    }

    pub fn send_lock(
        &mut self,
        handle: Handle,
        start: u64,
        end: u64,
        mode: LockMode,
        timeout_ms: u64,
    ) {
        self.queue(&DataRequest::Lock {
            handle,
            start,
            end,
            mode,
            timeout_ms,
        });
        self.connection.flush().unwrap();
    }

    pub fn lock_answer(&mut self) -> Result<LockId, WireError> {
        match self.answer().1 {
            DataReply::Locked { lock } => Ok(lock),
            DataReply::Error(e) => Err(e),
            other => panic!("{other:?}"),
        }
    }

    pub fn lock(&mut self, handle: Handle, start: u64, end: u64) -> LockId {
        self.send_lock(handle, start, end, LockMode::Exclusive, 20_000);
        self.lock_answer().unwrap()
    }
}

pub fn kind(reply: &DataReply) -> ErrorKind {
    match reply {
        DataReply::Error(e) => e.kind,
        other => panic!("{other:?}"),
    }
}

/// One client appends, another extends to where the first is about to write. No byte may be lost, and the object ends
/// at the furthest end of both.
pub fn appended_and_extended(site: &TestDeployment) {
    const ROUNDS: u64 = 300;
    let (mut c, h) = site.open(0, 5);
    std::thread::scope(|s| {
        s.spawn(|| {
            let (mut c, h) = site.open(0, 5);
            for i in 1..=ROUNDS {
                c.write(h, contiguous(i * 10, 1), &[7]);
            }
        });
        for i in 1..=ROUNDS {
            c.done(DataRequest::Extend {
                handle: h,
                len: i * 10,
            });
        }
    });
    c.done(DataRequest::Extend {
        handle: h,
        len: ROUNDS * 10,
    });
    let bytes = c.read(h, contiguous(0, ROUNDS * 20));
    assert_eq!(bytes.len() as u64, ROUNDS * 10 + 1);
    let expected = |at: usize| {
        if at > 0 && at.is_multiple_of(10) {
            7
        } else {
            0
        }
    };
    assert!(bytes.iter().enumerate().all(|(at, b)| *b == expected(at)));
    let len = ROUNDS * 10 + 500;
    c.done(DataRequest::Extend { handle: h, len });
    let DataReply::Len { len: now } = c.ask(DataRequest::Len { handle: h }) else {
        panic!()
    };
    assert_eq!(now, len);
}
