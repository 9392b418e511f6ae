//! A server that echoes, and clients of it.
use penstock_layout::ServerId;
use penstock_rpc::deployment::{Address, Transport};
use penstock_rpc::{
    After, Caller, Connection, Identity, Keyring, Peer, RunningServer, ServeLimits, Service,
    Timeouts, Wallet, serve,
};
use penstock_wire::credential::Statement;
use penstock_wire::message::{DataReply, DataRequest, TraceContext, User};
use penstock_wire::{Credential, Envelope, Key, KeyPair, PublicKey, Role};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Answers `Len` with the request id, echoes the payload of everything else.
pub struct Echo;

impl Service for Echo {
    fn session(&self, connection: &mut Connection, _: &Peer) -> penstock_wire::Result<After> {
        let mut buffer = Vec::new();
        loop {
            let Some(got) = connection.receive_unless_idle::<DataRequest>()? else {
                connection.shrink();
                continue;
            };
            let answer = got.envelope.answer();
            match got.body {
                Some(DataRequest::Shutdown) => {
                    connection.queue(&answer, &DataReply::Done)?;
                    connection.flush()?;
                    return Ok(After::StopServer);
                }
                Some(DataRequest::Len { .. }) => {
                    let len = got.envelope.request;
                    connection.queue(&answer, &DataReply::Len { len })?;
                }
                _ => {
                    buffer.resize(got.payload_len, 0);
                    connection.read_payload(&mut buffer)?;
                    connection.queue_payload(&answer, &DataReply::Done, &buffer)?;
                }
            }
        }
    }
}

pub fn identity() -> Identity {
    Identity {
        deployment: "0123456789abcdef0123456789abcdef".into(),
        deployment_name: "test".into(),
        server: "data server 0".into(),
        client_key: Key::from_bytes([1; 32]),
        servers: [(ServerId(0), Key::from_bytes([2; 32]))].into(),
        transport: Transport::Tls,
        pair: KeyPair::from_seed(Key::from_bytes([3; 32])).unwrap(),
        authority: Some(authority().public()),
        voucher: None,
    }
}

/// The server's keys, of that generation only.
pub fn keys() -> Arc<Keyring> {
    Arc::new(Keyring::new(vec![identity()]).unwrap())
}

/// The authority that it trusts.
fn authority() -> KeyPair {
    KeyPair::from_seed(Key::from_bytes([4; 32])).unwrap()
}

/// A credential of an administrator, without expiry.
pub fn wallet(uid: u32) -> Arc<Wallet> {
    wallet_of(&authority(), uid)
}

pub fn wallet_of(authority: &KeyPair, uid: u32) -> Arc<Wallet> {
    let user = User {
        uid,
        ..User::default()
    };
    let mut statement = Statement::new(&identity().deployment, user, 0..i64::MAX as u64);
    statement.administrator = true;
    let credential = Credential::issue(authority, statement).unwrap();
    Arc::new(Wallet::holding(credential))
}

pub fn caller(role: Role) -> Caller {
    let identity = identity();
    Caller {
        deployment: identity.deployment,
        deployment_name: identity.deployment_name,
        role,
        key: match role {
            Role::Client | Role::Admin | Role::Newcomer => identity.client_key,
            Role::Server(id) => identity.servers[&id].clone(),
        },
        program: 7,
        rank: 3,
        transport: identity.transport,
        wallet: wallet(7),
    }
}

/// Listens in `dir` and on TCP, as `identity`.
pub fn start_as(dir: &Path, identity: Identity, limits: ServeLimits) -> RunningServer {
    let identified = Some(identity.pair.public());
    let keys = Arc::new(Keyring::new(vec![identity]).unwrap());
    start_with(dir, identified, keys, limits)
}

pub fn start_with(
    dir: &Path,
    identity: Option<PublicKey>,
    keys: Arc<Keyring>,
    limits: ServeLimits,
) -> RunningServer {
    let address = Address {
        unix: Some(dir.join("s/echo.sock")),
        tcp: Some("127.0.0.1:0".into()),
        identity,
    };
    serve(&address, Arc::new(Echo), keys, limits).unwrap()
}

pub fn start(dir: &Path, limits: ServeLimits) -> RunningServer {
    start_as(dir, identity(), limits)
}

pub fn only_tcp(address: &Address) -> Address {
    Address {
        unix: None,
        tcp: address.tcp.clone(),
        identity: address.identity,
    }
}

pub fn timeouts() -> Timeouts {
    Timeouts {
        read: Some(Duration::from_secs(20)),
        write: Some(Duration::from_secs(20)),
    }
}

pub const LEN: DataRequest = DataRequest::Len {
    handle: penstock_wire::message::Handle(0),
};

pub fn exchange(connection: &mut Connection) {
    // Small ones, pipelined.
    for i in 0..64 {
        let e = Envelope::request(i, TraceContext::default());
        connection.queue(&e, &LEN).unwrap();
    }
    for i in 0..64 {
        let got = connection.receive::<DataReply>().unwrap();
        assert_eq!(got.envelope.request, i);
        assert!(got.envelope.reply);
        assert_eq!(got.body, Some(DataReply::Len { len: i }));
    }
    // Payloads around every buffer size, gathered and contiguous; some left unread.
    for (i, len) in [0usize, 1, 8191, 8192, 8193, 32768, 100_000, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let payload: Vec<u8> = (0..len).map(|b| (b * 7 + i) as u8).collect();
        let trace = TraceContext {
            program: 1,
            rank: 2,
            mpi_call: 3,
            client_call: 4,
        };
        let e = Envelope::request(100 + i as u64, trace);
        let parts: Vec<&[u8]> = payload.chunks(777).collect();
        for turn in 0..2 {
            // One at a time: neither side reads while it writes.
            if turn == 0 {
                connection.queue_payload(&e, &DataRequest::Status, &payload)
            } else {
                connection.queue_gathered(&e, Some(&DataRequest::Status), &parts)
            }
            .unwrap();
            let got = connection.receive::<DataReply>().unwrap();
            assert_eq!(got.envelope, e.answer());
            assert_eq!(got.payload_len, len);
            if turn == 0 {
                let mut back = vec![0; len];
                let (a, b) = back.split_at_mut(len / 3);
                connection.read_payload(a).unwrap();
                connection.read_payload(b).unwrap();
                assert_eq!(back, payload);
            } else {
                let half = len / 2;
                let mut back = vec![0; half];
                connection.read_payload(&mut back).unwrap();
                assert_eq!(back, payload[..half]);
            }
        }
    }
}
