//! Newcomers: clients over TCP without a credential, which get one by MUNGE (docs/decisions/0027-munge.md).
//!
//! ```text
//! newcomer                                 metadata server
//! the handshake, in the role of a newcomer (TLS, both sides prove the client key)
//! Offer: public key, MUNGE credential  →
//!                                      ←   Given: a statement about the key           (or Refused)
//! ```
//!
//! Then the connection ends. For the server's limits and deadline all of it is part of the handshake.
use crate::audit::{Event, Outcome, Subject};
use crate::caller::Caller;
use crate::connect::connect;
use crate::connection::{Connection, Timeouts};
use crate::deployment::{Address, Deployment};
use crate::handshake::receive;
use crate::identity::Identity;
use crate::munge::{Library, payload};
use crate::service::Service;
use crate::wallet::{Giver, Wallet};
use penstock_host::time::now;
use penstock_wire::credential::{Credential, Signed, unusable};
use penstock_wire::handshake::Role;
use penstock_wire::message::{ErrorKind, WireError};
use penstock_wire::{Envelope, Error, KeyPair, PublicKey, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time limit of the metadata server's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// What a newcomer sends.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    /// The public key of the new credential.
    key: PublicKey,
    munge: String,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
enum Answered {
    Given(Box<Signed>),
    Refused(WireError),
}

/// What a newcomer has made for one connection.
#[derive(Debug)]
pub struct Offer {
    /// The MUNGE credential.
    pub munge: String,
    /// The key pair of the new credential.
    pub pair: KeyPair,
}

/// Asks the metadata server of a deployment for credentials of this process's user.
#[derive(Debug, Clone)]
pub struct Newcomer(Deployment);

impl Newcomer {
    /// For a deployment that accepts MUNGE.
    pub fn of(deployment: &Deployment) -> Option<Newcomer> {
        deployment.munge.as_ref()?;
        Some(Newcomer(deployment.clone()))
    }

    /// A credential for this process's effective user.
    pub fn ask(&self) -> Result<Credential> {
        let library = self.library()?;
        let mut connection = self.connect()?;
        let offer = self.offer(&library, &connection)?;
        offer.show(&mut connection)
    }

    /// libmunge.
    pub fn library(&self) -> Result<Library> {
        Library::open().map_err(|e| {
            unusable(
                "no MUNGE credential",
                format!(
                    "libmunge cannot be opened: {e}; install it (Debian: apt-get install libmunge2)"
                ),
            )
        })
    }

    /// Opens a connection to the metadata server that allows nothing but [`Offer::show`].
    pub fn connect(&self) -> Result<Connection> {
        let deployment = &self.0;
        let caller = Caller::of(deployment, Role::Newcomer, 0, 0, Wallet::default())?;
        let address = Address {
            unix: None,
            ..deployment.meta.address.clone()
        };
        let timeouts = Timeouts {
            read: Some(ANSWER),
            write: Some(ANSWER),
        };
        connect(&address, &caller, timeouts)
    }

    /// Makes an offer that is valid on this connection only.
    pub fn offer(&self, library: &Library, connection: &Connection) -> Result<Offer> {
        let deployment = &self.0;
        let pair = KeyPair::generate()?;
        let bound = payload(&deployment.id, connection.binding(), &pair.public());
        let bound = bound.ok_or_else(|| {
            let what = "nothing protects the connection that it is for".into();
            unusable("no MUNGE credential", what)
        })?;
        let socket = deployment.munge.as_ref().and_then(|s| s.socket.as_deref());
        let made = library.encode(socket, &bound);
        let munge = made.map_err(|e| {
            let what =
                format!("munged of this host makes none: {e}; start it (`systemctl start munge`)");
            unusable("no MUNGE credential", what)
        })?;
        Ok(Offer { munge, pair })
    }
}

impl Giver for Newcomer {
    fn ask(&self) -> Result<Credential> {
        Newcomer::ask(self)
    }
}

impl Offer {
    /// Shows it on a connection of [`Newcomer::connect`] and returns the credential.
    pub fn show(self, connection: &mut Connection) -> Result<Credential> {
        connection.set_deadline(Some(now() + ANSWER))?;
        let asked = Asked {
            key: self.pair.public(),
            munge: self.munge,
        };
        connection.queue(&Envelope::default(), &asked)?;
        connection.flush()?;
        match receive(connection)? {
            Answered::Refused(e) => Err(Error::Refused(e)),
            Answered::Given(signed) => {
                Credential::of(*signed, self.pair).ok_or_else(|| Error::Malformed {
                    peer: connection.peer().to_owned(),
                    what: "a credential of a key that nobody has asked for".into(),
                })
            }
        }
    }
}

impl Deployment {
    /// What a client presents in the handshake; loads the key of `role`. If the deployment accepts MUNGE, its wallet
    /// uses it.
    pub fn caller(&self, role: Role, program: u64, rank: u32) -> Result<Caller> {
        let giver = Newcomer::of(self).map(|newcomer| Box::new(newcomer) as Box<dyn Giver>);
        Caller::of(self, role, program, rank, Wallet::new(self, giver))
    }
}

/// The server's side, after the handshake; its deadline still holds. Records issued credentials in the audit log.
pub(crate) fn serve(
    connection: &mut Connection,
    service: &dyn Service,
    identity: &Identity,
) -> Result<()> {
    let asked: Asked = receive(connection)?;
    let bound = payload(&identity.deployment, connection.binding(), &asked.key);
    let given = match bound {
        Some(bound) => service.vouch(&asked.munge, &bound, asked.key),
        None => Err(WireError::new(
            ErrorKind::Permission,
            format!(
                "{} takes MUNGE over TLS alone; on its own host the kernel says who a user is",
                identity.server
            ),
        )),
    };
    let envelope = Envelope {
        reply: true,
        ..Envelope::default()
    };
    let answer = match &given {
        Ok(signed) => Answered::Given(Box::new(signed.clone())),
        Err(e) => Answered::Refused(e.clone()),
    };
    let told = connection
        .queue(&envelope, &answer)
        .and_then(|()| connection.flush());
    // Recorded even if the client has gone.
    let given = given.map_err(Error::Refused)?;
    if let Some(audit) = service.audit() {
        let subject = Subject::vouched(connection, &given.statement);
        audit.note(Event::Issue, Outcome::Done, &subject, None, "by MUNGE");
    }
    told
}
