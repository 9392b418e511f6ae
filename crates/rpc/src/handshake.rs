//! The handshake: agrees on the protocol version and authenticates both sides.
//!
//! ```text
//! client                                   server
//! Hello: versions, deployment, role,   →
//!        program, rank, link, nonce,
//!        credential
//!                                      ←   Challenge: version, name, nonce, proof    (or Refused)
//! Proof, signature                     →
//!                                      ←   Welcome                                   (or Refused)
//! ```
//!
//! Each proof is keyed BLAKE3 over the whole exchange so far, including both nonces, with a purpose of its own. It
//! proves the key without revealing it, cannot be replayed, and one side's proof cannot be reflected as the other's.
//! The server proves itself first, so that a client never talks to an impostor. The key is the client key of the
//! deployment. Between a data server and the metadata server it is the secret that the two share
//! ([`KeyPair::shared_with`]): nobody else can impersonate either.
//!
//! *Which user*: over a Unix socket the kernel says who it is. Over TCP a client shows the public part of its
//! credential ([`penstock_wire::credential`]), and signs the whole exchange with the private half. The channel binding
//! of a protected connection is part of every proof, so that a proof is valid on one connection only.
//!
//! *Administrators* are root and the server's user on the server's host, according to the kernel. So is, on any
//! connection, the holder of a credential that says so.
//!
//! *Newcomers* have no credential and ask for one ([`crate::newcomer`]): the handshake verifies that they hold the key,
//! and nothing else.
//!
//! Handshake frames have version 0 and never change their form after the first release, so that two releases can always
//! detect that they are incompatible. Until it is authenticated, a peer may send 4 KiB per frame and no payload, and
//! the handshake has a deadline.
use crate::caller::Caller;
use crate::connection::Connection;
use crate::identity::{self, Identity, Peer};
use crate::users::myself;
use penstock_wire::credential::{Signature, Statement};
use penstock_wire::frame::{OLDEST_VERSION, VERSION};
use penstock_wire::handshake::{Challenge, Hello, Proof, Role, Verdict};
use penstock_wire::message::{ErrorKind, User, WireError};
use penstock_wire::{Envelope, Error, LinkName, Result, key};
use std::time::Instant;

const SERVER_PROOF: &str = "penstock 1 handshake, proof of the server";
const CLIENT_PROOF: &str = "penstock 1 handshake, proof of the client";

/// Everything that both sides have said, and the connection: what the proofs cover.
struct Exchange<'a> {
    hello: &'a Hello,
    version: u16,
    server: &'a str,
    nonce: &'a [u8; 32],
    binding: Option<[u8; 32]>,
}

impl Exchange<'_> {
    fn bytes(&self) -> Result<Vec<u8>> {
        let all = (
            self.hello,
            self.version,
            self.server,
            self.nonce,
            self.binding,
        );
        postcard::to_stdvec(&all).map_err(|e| Error::Malformed {
            peer: self.server.to_owned(),
            what: format!("a handshake that cannot be encoded: {e}"),
        })
    }
}

/// What a client must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The proof of the deployment's key.
    pub proof: blake3::Hash,
    /// The bytes that it must sign.
    pub exchange: Vec<u8>,
}

/// The server's side without I/O: the answer to `hello`, and the proof to expect on a connection with this binding.
/// `identities` are the server's in each generation of its keys, beginning with the current one.
pub fn challenge(
    identities: &[Identity],
    hello: &Hello,
    nonce: [u8; 32],
    binding: Option<[u8; 32]>,
) -> Result<(Challenge, Option<Expected>)> {
    let refuse = |kind, message| Ok((Challenge::Refused(WireError::new(kind, message)), None));
    let Some(identity) = identities.first() else {
        return Err(Error::BadKey("a server without any key".into()));
    };
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
    let exchange = Exchange {
        hello,
        version,
        server: &identity.server,
        nonce: &nonce,
        binding,
    }
    .bytes()?;
    // For an unknown key, the server's proof tells the client so.
    let named = identity::named(identities, hello.role, hello.key);
    let Some(key) = named.or(identity.key(hello.role)) else {
        return refuse(
            ErrorKind::Permission,
            format!("{} takes no servers as clients", identity.server),
        );
    };
    let challenge = Challenge::Accepted {
        version,
        server: identity.server.clone(),
        nonce,
        proof: *key.mac(SERVER_PROOF, &[&exchange]).as_bytes(),
    };
    let expected = Expected {
        proof: key.mac(CLIENT_PROOF, &[&exchange]),
        exchange,
    };
    Ok((challenge, Some(expected)))
}

impl Identity {
    /// Determines the user of a client that has proven the key of its role; `now_ms` is the server's time.
    fn identify(
        &self,
        identities: &[Identity],
        connection: &Connection,
        hello: &Hello,
        signature: Option<&Signature>,
        exchange: &[u8],
        now_ms: impl FnOnce() -> u64,
    ) -> std::result::Result<(User, Option<Statement>), WireError> {
        let local = connection.user();
        match (hello.role, local.clone()) {
            (Role::Server(_) | Role::Newcomer, local) => {
                return Ok((local.unwrap_or_else(User::nobody), None));
            }
            (Role::Client, Some(user)) => return Ok((user, None)),
            (Role::Admin, Some(user)) if user.uid == 0 || user.uid == myself().uid => {
                return Ok((user, None));
            }
            _ => {}
        }
        let no_administrator = |uid| {
            let what = format!(
                "user {uid} is not an administrator of deployment {}; administrators are its owner and root on the servers' hosts, and holders of a credential of `penstock credential --administrator`",
                self.deployment_name
            );
            WireError::new(ErrorKind::Permission, what)
        };
        if let (Some(user), None) = (local, &hello.credential) {
            return Err(no_administrator(user.uid));
        }
        let statement = self.stated(identities, hello, signature, exchange, now_ms)?;
        if hello.role == Role::Admin && !statement.administrator {
            return Err(no_administrator(statement.uid));
        }
        Ok((statement.user(), Some(statement)))
    }

    /// The statement of the credential that the client must show and prove.
    fn stated(
        &self,
        identities: &[Identity],
        hello: &Hello,
        signature: Option<&Signature>,
        exchange: &[u8],
        now_ms: impl FnOnce() -> u64,
    ) -> std::result::Result<Statement, WireError> {
        let name = &self.deployment_name;
        let refuse = |what: String| WireError::new(ErrorKind::Permission, what);
        if identities
            .iter()
            .all(|identity| identity.authority.is_none())
        {
            return Err(refuse(format!(
                "{} knows no authority, so no user can prove an identity over TCP; run `penstock down` and `penstock up` for deployment {name}, then copy its deployment file again",
                self.server
            )));
        }
        let (Some(signed), Some(signature)) = (&hello.credential, signature) else {
            return Err(refuse(format!(
                "{} asks for a credential over TCP; the owner of deployment {name} makes one: `penstock credential --user NAME --output FILE`; clients find it by PENSTOCK_CREDENTIAL=FILE or as ~/.config/penstock/{}.credential",
                self.server, self.deployment
            )));
        };
        let statement = &signed.statement;
        let refuse = |what: &str| {
            refuse(format!(
                "{} refuses credential {} of user {}: {what}",
                self.server,
                statement.serial(),
                statement.uid
            ))
        };
        if !identities.iter().any(|identity| identity.believes(signed)) {
            return Err(refuse(&format!(
                "it was not signed by the authority of deployment {name}, or was changed since; have a new one made (`penstock credential`)"
            )));
        }
        if !signed.has_signed(exchange, signature) {
            return Err(refuse("the client has not proven its private key"));
        }
        statement
            .require(&self.deployment, now_ms())
            .map_err(|e| refuse(&e.message))?;
        Ok(statement.clone())
    }
}

/// An untrusted text, shortened and without control characters.
fn printable(text: &str) -> String {
    text.chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect()
}

/// The server's side of a new connection, until `deadline`. `identities` as for [`challenge`]. `now_ms` decides whether
/// credentials have expired. `admit` decides last, once the client is authenticated; it may wait.
pub fn answer(
    connection: &mut Connection,
    identities: &[Identity],
    deadline: Instant,
    now_ms: impl FnOnce() -> u64,
    admit: impl FnOnce(&Hello) -> std::result::Result<(), WireError>,
) -> Result<Peer> {
    let envelope = Envelope {
        reply: true,
        ..Envelope::default()
    };
    connection.set_deadline(Some(deadline))?;
    let hello: Hello = receive(connection)?;
    connection.heard(&hello);
    let binding = connection.binding();
    let (challenge, expected) = challenge(identities, &hello, key::random()?, binding)?;
    connection.queue(&envelope, &challenge)?;
    connection.flush()?;
    let (version, expected) = match (challenge, expected) {
        (Challenge::Accepted { version, .. }, Some(expected)) => (version, expected),
        (Challenge::Refused(e), _) => return Err(Error::Refused(e)),
        (Challenge::Accepted { .. }, None) => {
            return Err(Error::BadKey("no proof to expect".into()));
        }
    };
    let identity = &identities[0];
    let given: Proof = receive(connection)?;
    let verdict = if blake3::Hash::from_bytes(given.proof) == expected.proof {
        let (signature, exchange) = (given.signature.as_ref(), &expected.exchange);
        let known = identity.identify(identities, connection, &hello, signature, exchange, now_ms);
        known.and_then(|known| admit(&hello).map(|()| known))
    } else {
        // A peer without the key learns nothing about this host's files.
        Err(WireError::new(
            ErrorKind::BadKey,
            format!(
                "wrong key for deployment {}: {} holds another one",
                identity.deployment_name, identity.server
            ),
        ))
    };
    let word = match &verdict {
        Ok(_) => Verdict::Welcome,
        Err(e) => Verdict::Refused(e.clone()),
    };
    connection.queue(&envelope, &word)?;
    connection.flush()?;
    let (user, statement) = verdict.map_err(Error::Refused)?;
    // A newcomer stays unauthenticated.
    if hello.role != Role::Newcomer {
        connection.set_deadline(None)?;
        connection.establish(version);
    }
    let who = match hello.role {
        Role::Client => format!("client rank {} of program {:x}", hello.rank, hello.program),
        Role::Admin => "administrator".into(),
        Role::Server(id) => format!("data server {}", id.0),
        Role::Newcomer => "newcomer".into(),
    };
    let from = connection.peer().to_owned();
    connection.set_peer(format!("{who} ({from})"));
    Ok(Peer {
        role: hello.role,
        program: hello.program,
        rank: hello.rank,
        credentials: connection.credentials(),
        user,
        statement,
    })
}

/// The client's side of a new connection, until `deadline`.
pub fn introduce(
    connection: &mut Connection,
    caller: &Caller,
    name: LinkName,
    deadline: Instant,
) -> Result<()> {
    let envelope = Envelope::default();
    let shown = match caller.role {
        Role::Client if !connection.is_unix() => Some(caller.wallet.credential()?),
        Role::Admin if !connection.is_unix() => Some(
            caller
                .wallet
                .administrators()
                .or_else(|_| caller.wallet.credential())?,
        ),
        // The kernel's information may suffice.
        Role::Admin => caller.wallet.administrators().ok(),
        Role::Client | Role::Server(_) | Role::Newcomer => None,
    };
    connection.set_deadline(Some(deadline))?;
    let hello = Hello {
        oldest: OLDEST_VERSION,
        newest: VERSION,
        deployment: caller.deployment.clone(),
        role: caller.role,
        program: caller.program,
        rank: caller.rank,
        link: name,
        key: caller.key.name(),
        nonce: key::random()?,
        credential: shown.as_ref().map(|c| c.signed().clone()),
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
    let exchange = Exchange {
        hello: &hello,
        version,
        server: &server,
        nonce: &nonce,
        binding: connection.binding(),
    }
    .bytes()?;
    if blake3::Hash::from_bytes(given) != caller.key.mac(SERVER_PROOF, &[&exchange]) {
        return Err(Error::BadKey(format!(
            "wrong key for deployment {}: {} does not hold the key in {}; use the key file that belongs to the deployment",
            caller.deployment_name,
            connection.peer(),
            caller.key.source().display()
        )));
    }
    let mine = Proof {
        proof: *caller.key.mac(CLIENT_PROOF, &[&exchange]).as_bytes(),
        signature: shown.as_ref().map(|c| c.sign_exchange(&exchange)),
    };
    connection.queue(&envelope, &mine)?;
    connection.flush()?;
    if let Verdict::Refused(e) = receive(connection)? {
        if let Some(shown) = &shown
            && e.kind == ErrorKind::Permission
        {
            caller.wallet.refused(shown);
        }
        return Err(Error::Refused(e));
    }
    if caller.role == Role::Newcomer {
        return Ok(());
    }
    connection.set_deadline(None)?;
    connection.establish(version);
    let at = connection.peer().to_owned();
    connection.set_peer(format!("{} at {at}", printable(&server)));
    Ok(())
}

pub(crate) fn receive<B: serde::de::DeserializeOwned>(connection: &mut Connection) -> Result<B> {
    let received = connection.receive()?;
    received.body.ok_or_else(|| Error::Malformed {
        peer: connection.peer().to_owned(),
        what: "empty handshake message".into(),
    })
}
