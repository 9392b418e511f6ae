//! The handshake: which protocol version, and do both sides hold the same key?
//!
//! ```text
//! client                                   server
//! Hello: versions, deployment, role,   →
//!        program, rank, link, nonce
//!                                      ←   Challenge: version, name, nonce, proof    (or Refused)
//! Proof                                →
//!                                      ←   Welcome                                   (or Refused)
//! ```
//!
//! Each proof is keyed BLAKE3 over the whole exchange so far, both nonces included, under a purpose
//! of its own: it proves the key without showing it, cannot be replayed, and one side's proof cannot
//! be reflected as the other's. The server proves itself first, so that a client never works for an
//! impostor. A client that claims [`Role::Admin`] proves the server key, any other the client key.
//! What follows is not encrypted: penstock trusts the network between its hosts not to be rewritten.
//!
//! Handshake frames have version 0 and never change form from the first release on, so that two releases can always
//! find out that they do not fit. Until the end a stranger may send 4 KiB a frame and no payload, and all of it must be over
//! by a deadline.
use crate::connection::{Connection, Credentials};
use crate::deployment::Transport;
use crate::error::{Error, Result};
use crate::fence::LinkName;
use crate::frame::{Envelope, OLDEST_VERSION, VERSION};
use crate::key::{self, Key};
use crate::message::{ErrorKind, User, WireError};
use crate::signing::KeyPair;
use serde::{Deserialize, Serialize};
use std::time::Instant;

const SERVER_PROOF: &str = "penstock 1 handshake, proof of the server";
const CLIENT_PROOF: &str = "penstock 1 handshake, proof of the client";

/// Groups told over TCP: strangers may send 4 KiB.
const MAX_GREETED_GROUPS: usize = 64;

/// What a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Holds the client key: files.
    Client,
    /// Holds the server key: also check, status of everything, shutdown.
    Admin,
}

/// Opens the exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest protocol version of the client.
    pub oldest: u16,
    /// Newest protocol version of the client.
    pub newest: u16,
    /// Id of the deployment that the client means.
    pub deployment: String,
    /// Which key it will prove.
    pub role: Role,
    /// Parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// The user it acts for. Where the kernel knows better (Unix sockets), the kernel is believed.
    pub user: User,
    /// Which connection of which of the client's links this is: before it is welcomed, older ones end.
    pub link: LinkName,
    /// Random.
    pub nonce: [u8; 32],
}

/// The server's answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// Go on.
    Accepted {
        /// The protocol version of all that follows the handshake.
        version: u16,
        /// What the server calls itself.
        server: String,
        /// Random.
        nonce: [u8; 32],
        /// The server's proof.
        proof: [u8; 32],
    },
    /// The end.
    Refused(WireError),
}

/// The client's proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The client's proof.
    pub proof: [u8; 32],
}

/// The server's last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The connection is open.
    Welcome,
    /// The end.
    Refused(WireError),
}

/// Who a server is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Deployment id.
    pub deployment: String,
    /// Deployment name, for messages.
    pub deployment_name: String,
    /// "data server 3", "metadata server".
    pub server: String,
    /// Proven by clients.
    pub client_key: Key,
    /// Proven by administrators.
    pub server_key: Key,
    /// What protects its TCP connections.
    pub transport: Transport,
    /// What it proves over TCP, unless that is not protected.
    pub pair: Option<KeyPair>,
}

/// Who a client is.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Deployment id.
    pub deployment: String,
    /// Deployment name, for messages.
    pub deployment_name: String,
    /// What it asks for.
    pub role: Role,
    /// The key of that role.
    pub key: Key,
    /// Parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// What protects TCP connections.
    pub transport: Transport,
}

/// What a server knows of an open connection's other end.
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
    /// From the kernel; over TCP as claimed by whoever has proven the key.
    pub user: User,
}

fn proof(
    key: &Key,
    purpose: &str,
    hello: &Hello,
    version: u16,
    server: &str,
    nonce: &[u8; 32],
) -> blake3::Hash {
    let role = [match hello.role {
        Role::Client => 0u8,
        Role::Admin => 1,
    }];
    let ids = [hello.user.uid, hello.user.gid];
    let user: Vec<u8> = ids
        .iter()
        .chain(&hello.user.groups)
        .flat_map(|id| id.to_le_bytes())
        .collect();
    key.mac(
        purpose,
        &[
            &hello.oldest.to_le_bytes(),
            &hello.newest.to_le_bytes(),
            hello.deployment.as_bytes(),
            &role,
            &hello.program.to_le_bytes(),
            &hello.rank.to_le_bytes(),
            &user,
            &hello.link.link,
            &hello.link.generation.to_le_bytes(),
            &hello.nonce,
            &version.to_le_bytes(),
            server.as_bytes(),
            nonce,
        ],
    )
}

/// The server's side, free of I/O: what to answer to `hello`, and the proof to expect.
pub fn challenge(
    identity: &Identity,
    hello: &Hello,
    nonce: [u8; 32],
) -> (Challenge, Option<blake3::Hash>) {
    let refuse = |kind, message| (Challenge::Refused(WireError::new(kind, message)), None);
    if hello.oldest > VERSION || hello.newest < OLDEST_VERSION {
        return refuse(
            ErrorKind::Version,
            format!(
                "{} speaks protocol versions {OLDEST_VERSION} to {VERSION}, the client {} to {}; install the same release of Penstock on both",
                identity.server, hello.oldest, hello.newest
            ),
        );
    }
    if hello.deployment != identity.deployment {
        return refuse(
            ErrorKind::InvalidArgument,
            format!(
                "{} belongs to deployment {} ({}), the client means {}; check the addresses in the client's deployment file",
                identity.server,
                identity.deployment_name,
                identity.deployment,
                printable(&hello.deployment)
            ),
        );
    }
    let version = VERSION.min(hello.newest);
    let key = identity.key(hello.role);
    let server_proof = proof(key, SERVER_PROOF, hello, version, &identity.server, &nonce);
    let expected = proof(key, CLIENT_PROOF, hello, version, &identity.server, &nonce);
    let challenge = Challenge::Accepted {
        version,
        server: identity.server.clone(),
        nonce,
        proof: *server_proof.as_bytes(),
    };
    (challenge, Some(expected))
}

impl Identity {
    fn key(&self, role: Role) -> &Key {
        match role {
            Role::Client => &self.client_key,
            Role::Admin => &self.server_key,
        }
    }
}

/// A stranger's text, short and without control characters.
fn printable(text: &str) -> String {
    text.chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect()
}

/// The server's side of a new connection, over by `deadline`. `admit` has the last word once the
/// client has proven itself; it may wait.
pub fn answer(
    connection: &mut Connection,
    identity: &Identity,
    deadline: Instant,
    admit: impl FnOnce(&Hello) -> std::result::Result<(), WireError>,
) -> Result<Peer> {
    let envelope = Envelope {
        reply: true,
        ..Envelope::default()
    };
    connection.set_deadline(Some(deadline))?;
    let hello: Hello = receive(connection)?;
    let (challenge, expected) = challenge(identity, &hello, key::random()?);
    connection.queue(&envelope, &challenge)?;
    connection.flush()?;
    let (version, expected) = match (challenge, expected) {
        (Challenge::Accepted { version, .. }, Some(expected)) => (version, expected),
        (Challenge::Refused(e), _) => return Err(Error::Refused(e)),
        (Challenge::Accepted { .. }, None) => {
            return Err(Error::BadKey("no proof to expect".into()));
        }
    };
    let given: Proof = receive(connection)?;
    let verdict = if blake3::Hash::from_bytes(given.proof) == expected {
        admit(&hello)
    } else {
        // Whoever holds no key learns nothing of this host's files.
        Err(WireError::new(
            ErrorKind::BadKey,
            format!(
                "wrong key for deployment {}: {} holds another one",
                identity.deployment_name, identity.server
            ),
        ))
    };
    let word = match &verdict {
        Ok(()) => Verdict::Welcome,
        Err(e) => Verdict::Refused(e.clone()),
    };
    connection.queue(&envelope, &word)?;
    connection.flush()?;
    verdict.map_err(Error::Refused)?;
    connection.set_deadline(None)?;
    connection.establish(version);
    let who = match hello.role {
        Role::Client => "client",
        Role::Admin => "administrator",
    };
    let from = connection.peer().to_owned();
    connection.set_peer(format!(
        "{who} rank {} of program {:x} ({from})",
        hello.rank, hello.program
    ));
    Ok(Peer {
        role: hello.role,
        program: hello.program,
        rank: hello.rank,
        credentials: connection.credentials(),
        user: connection.user().unwrap_or(hello.user),
    })
}

/// The client's side of a new connection, over by `deadline`.
pub fn introduce(
    connection: &mut Connection,
    caller: &Caller,
    name: LinkName,
    deadline: Instant,
) -> Result<()> {
    let envelope = Envelope::default();
    connection.set_deadline(Some(deadline))?;
    let hello = Hello {
        oldest: OLDEST_VERSION,
        newest: VERSION,
        deployment: caller.deployment.clone(),
        role: caller.role,
        program: caller.program,
        rank: caller.rank,
        user: myself(),
        link: name,
        nonce: key::random()?,
    };
    connection.queue(&envelope, &hello)?;
    connection.flush()?;
    let (version, server, nonce, given) = match receive(connection)? {
        Challenge::Accepted {
            version,
            server,
            nonce,
            proof,
        } => (version, server, nonce, proof),
        Challenge::Refused(e) => return Err(Error::Refused(e)),
    };
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(Error::Version {
            peer: connection.peer().to_owned(),
            theirs: version.to_string(),
            ours: format!("{OLDEST_VERSION} to {VERSION}"),
        });
    }
    let expected = proof(&caller.key, SERVER_PROOF, &hello, version, &server, &nonce);
    if blake3::Hash::from_bytes(given) != expected {
        return Err(Error::BadKey(format!(
            "wrong key for deployment {}: {} does not hold the key in {}; use the key file that belongs to the deployment",
            caller.deployment_name,
            connection.peer(),
            caller.key.source().display()
        )));
    }
    let mine = Proof {
        proof: *proof(&caller.key, CLIENT_PROOF, &hello, version, &server, &nonce).as_bytes(),
    };
    connection.queue(&envelope, &mine)?;
    connection.flush()?;
    if let Verdict::Refused(e) = receive(connection)? {
        return Err(Error::Refused(e));
    }
    connection.set_deadline(None)?;
    connection.establish(version);
    let at = connection.peer().to_owned();
    connection.set_peer(format!("{} at {at}", printable(&server)));
    Ok(())
}

/// The user of this process.
fn myself() -> User {
    let mut groups: Vec<u32> = rustix::process::getgroups()
        .unwrap_or_default()
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect();
    groups.truncate(MAX_GREETED_GROUPS);
    User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups,
    }
}

fn receive<B: serde::de::DeserializeOwned>(connection: &mut Connection) -> Result<B> {
    let received = connection.receive()?;
    received.body.ok_or_else(|| Error::Malformed {
        peer: connection.peer().to_owned(),
        what: "empty handshake message".into(),
    })
}

/// Tells a client that can't be served why, instead of a [`Challenge`].
pub(crate) fn turn_away(connection: &mut Connection, why: &WireError) -> Result<()> {
    let envelope = Envelope {
        reply: true,
        ..Envelope::default()
    };
    connection.queue(&envelope, &Challenge::Refused(why.clone()))?;
    connection.flush()
}
