//! The owner of a request: a connection, and the user for whom it acts with a file.
use penstock_rpc::share::{charged, payer};
use penstock_rpc::{Credentials, Peer};
use penstock_wire::Role;
use penstock_wire::credential::Statement;
use penstock_wire::message::{NOBODY, User};
use std::fmt;

/// Two owners are equal if the connection is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub connection: u64,
    /// For a mount's connection: the user for whom the capability was issued.
    pub user: u32,
    /// The user charged for its resources; `None`: only the total bounds it.
    pub payer: Option<u32>,
    /// Process id on this host.
    pub process: Option<i32>,
}

impl Owner {
    /// Whether they belong to different users.
    pub(crate) fn is_stranger_to(self, other: Owner) -> bool {
        self.user != other.user
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.connection == other.connection
    }
}

impl Eq for Owner {}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(pid) => write!(f, "process {pid} of user {}", self.user),
            None => write!(f, "a client of user {} on another host", self.user),
        }
    }
}

/// The users for whom a connection may act: itself, and a mount for its callers.
pub(crate) struct Acting {
    own: Owner,
    /// The user for whom its own capabilities are issued.
    subject: u32,
    /// An administrator, root of this host or the user of this server: they could also read the stores.
    all: bool,
    /// As the kernel says.
    pub(crate) process: Option<Credentials>,
    /// What the credential says that it showed, if it did.
    pub(crate) statement: Option<Statement>,
}

impl Acting {
    pub(crate) fn new(peer: &Peer, connection: u64) -> Acting {
        let local = peer.credentials.filter(|who| charged(who.uid).is_none());
        Acting {
            own: Owner {
                connection,
                user: peer.user.uid,
                payer: payer(peer.role, peer.credentials, peer.statement.as_ref()),
                process: peer.credentials.map(|who| who.pid),
            },
            subject: peer.subject(),
            all: peer.role == Role::Admin || local.is_some(),
            process: peer.credentials,
            statement: peer.statement.clone(),
        }
    }

    /// It could read the stores as well.
    pub(crate) fn acts_for_all(&self) -> bool {
        self.all
    }

    /// Without a file.
    pub(crate) fn own(&self) -> Owner {
        self.own
    }

    /// The owner of a capability that was issued for this user; the connection's own user if it may not act for that
    /// one.
    pub(crate) fn with_capability_of(&self, subject: u32) -> Result<Owner, u32> {
        if subject == self.subject {
            return Ok(self.own);
        }
        if !self.all && !self.speaks_for(subject) {
            return Err(self.subject);
        }
        Ok(Owner {
            user: subject,
            payer: charged(subject),
            ..self.own
        })
    }

    /// As the metadata server judges it, which gives the capabilities.
    fn speaks_for(&self, uid: u32) -> bool {
        // Root of another host, to which no root was granted, is nobody.
        let asked = User {
            uid: if uid == NOBODY { 0 } else { uid },
            ..User::nobody()
        };
        let acts = self.statement.as_ref().and_then(|s| s.acts_for(asked));
        acts.is_some_and(|user| user.uid == uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(statement: Statement) -> Peer {
        Peer {
            role: Role::Client,
            program: 1,
            rank: 0,
            credentials: None,
            user: statement.user(),
            statement: Some(statement),
        }
    }

    #[test]
    fn a_mount_acts_for_those_of_its_credential_and_they_pay() {
        let user = |uid| User {
            uid,
            ..User::default()
        };
        // Beyond the ids of whoever runs this.
        let (first, last) = (4_000_000_000, 4_000_000_009);
        let mut host = Statement::new("0123456789abcdef0123456789abcdef", user(0), 0..1);
        host.speaks_for = vec![penstock_wire::credential::Uids { first, last }];
        let mount = Acting::new(&peer(host.clone()), 3);
        for uid in [first, last, NOBODY] {
            let owner = mount.with_capability_of(uid).unwrap();
            assert_eq!((owner.user, owner.payer), (uid, Some(uid)));
            assert_eq!(owner, mount.own());
        }
        assert_eq!(mount.with_capability_of(last + 1), Err(0));
        // Its own, which is nobody's here.
        let own = mount.with_capability_of(0).unwrap();
        assert_eq!((own.user, own.payer), (NOBODY, Some(0)));
        host.root = true;
        let own = Acting::new(&peer(host), 4).with_capability_of(0).unwrap();
        assert_eq!((own.user, own.payer), (0, None));
        let alone = Statement::new("0123456789abcdef0123456789abcdef", user(first), 0..1);
        let alone = Acting::new(&peer(alone), 5);
        assert_eq!(alone.with_capability_of(last), Err(first));
        assert_eq!(alone.with_capability_of(NOBODY), Err(first));
        let own = alone.with_capability_of(first).unwrap();
        assert_eq!((own.user, own.payer), (first, Some(first)));
        assert_eq!(
            own.to_string(),
            format!("a client of user {first} on another host")
        );
    }
}
