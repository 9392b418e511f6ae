//! Credentials that were revoked before their end.
//!
//! The metadata server keeps the list, and each data server asks for it every few seconds ([`ASK`]). Servers refuse a
//! connection whose credential is in it, and close an open one before they begin its next request. An entry names one
//! credential, or all of a user that were issued before it. It is dropped when what it names has expired.
use crate::bounded;
use crate::credential::{Statement, hex};
use crate::message::refusal::{ErrorKind, WireError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Most entries.
pub const MAX_REVOCATIONS: usize = 4096;
/// How often data servers ask.
pub const ASK: Duration = Duration::from_secs(4);

/// What is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Revoked {
    /// The credential with this serial number.
    Serial(#[serde(with = "crate::credential::hex")] [u8; 16]),
    /// All of this user whose validity begins before the revocation.
    User(u32),
}

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Revoked::Serial(serial) => write!(f, "credential {}", hex::text(serial)),
            Revoked::User(uid) => write!(f, "all credentials of user {uid} so far"),
        }
    }
}

/// One entry; times are the metadata server's, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// What is revoked.
    pub what: Revoked,
    /// Time of the revocation.
    pub at_ms: u64,
    /// When the revoked credentials have expired.
    pub until_ms: u64,
}

impl Revocation {
    fn names(&self, statement: &Statement) -> bool {
        match self.what {
            Revoked::Serial(serial) => *statement.serial_bytes() == serial,
            Revoked::User(uid) => statement.uid == uid && statement.not_before_ms <= self.at_ms,
        }
    }
}

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocations {
    /// Increases with each change.
    pub version: u64,
    /// At most [`MAX_REVOCATIONS`], the oldest first.
    #[serde(
        default,
        deserialize_with = "bounded::at_most::<MAX_REVOCATIONS, _, _>"
    )]
    pub entries: Vec<Revocation>,
}

impl Revocations {
    /// The list with one more entry and without expired ones; an existing entry is replaced. An error if the list is
    /// full.
    pub fn with(&self, new: Revocation) -> Result<Revocations, WireError> {
        let kept = |entry: &&Revocation| entry.until_ms > new.at_ms && entry.what != new.what;
        let mut entries: Vec<Revocation> = self.entries.iter().filter(kept).copied().collect();
        if entries.len() >= MAX_REVOCATIONS {
            return Err(WireError::new(
                ErrorKind::TooLarge,
                format!(
                    "{MAX_REVOCATIONS} revocations are in the list, its limit; revoke all credentials of a user at once (`--revoke-user`)"
                ),
            ));
        }
        entries.push(new);
        Ok(Revocations {
            version: self.version + 1,
            entries,
        })
    }

    /// Refuses a credential that is in the list.
    pub fn require(&self, statement: &Statement) -> Result<(), WireError> {
        if !self.entries.iter().any(|entry| entry.names(statement)) {
            return Ok(());
        }
        Err(WireError::new(
            ErrorKind::Permission,
            format!(
                "credential {} of user {} was revoked by an administrator; have a new one made",
                statement.serial(),
                statement.uid
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::User;

    fn entry(what: Revoked, at_ms: u64, until_ms: u64) -> Revocation {
        Revocation {
            what,
            at_ms,
            until_ms,
        }
    }

    fn statement(uid: u32, begins_ms: u64) -> Statement {
        let user = User {
            uid,
            ..User::default()
        };
        Statement::new(&"0".repeat(32), user, begins_ms..begins_ms + 1000)
    }

    #[test]
    fn one_credential_or_all_of_a_user_so_far() {
        let none = Revocations::default();
        let of_user = none.with(entry(Revoked::User(7), 500, 5000)).unwrap();
        assert_eq!(of_user.version, 1);
        let e = of_user.require(&statement(7, 500)).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Permission);
        // A newer one, and another user's.
        of_user.require(&statement(7, 501)).unwrap();
        of_user.require(&statement(8, 1)).unwrap();
        let serial = Revoked::Serial(*statement(7, 0).serial_bytes());
        let one = none.with(entry(serial, 500, 5000)).unwrap();
        assert!(one.require(&statement(7, 900)).is_err());
        none.require(&statement(7, 900)).unwrap();
    }

    #[test]
    fn the_list_is_bounded_and_forgets_what_is_over() {
        let mut list = Revocations::default();
        for n in 0..MAX_REVOCATIONS as u128 {
            list = list
                .with(entry(Revoked::Serial(n.to_be_bytes()), 1, 100))
                .unwrap();
        }
        let next = entry(Revoked::User(1), 2, 1000);
        assert_eq!(list.with(next).unwrap_err().kind, ErrorKind::TooLarge);
        // The same entry again takes no more space.
        let again = list
            .with(entry(Revoked::Serial(5u128.to_be_bytes()), 2, 100))
            .unwrap();
        assert_eq!(again.entries.len(), MAX_REVOCATIONS);
        let later = list.with(entry(Revoked::User(1), 100, 1000)).unwrap();
        assert_eq!(later.entries.len(), 1);
        assert_eq!(later.version, list.version + 1);
    }
}
