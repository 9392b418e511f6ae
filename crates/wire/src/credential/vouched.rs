//! Statements signed with the metadata server's own identity (docs/decisions/0027-munge.md). They say who a user is,
//! and nothing more: any other right in such a statement makes it invalid.
use super::{Credential, Signature, Signed, Statement, unusable};
use crate::error::Result;
use crate::key;
use crate::signing::{KeyPair, PublicKey};

/// Longest validity of such a statement, milliseconds.
pub const LONGEST_MS: u64 = 3_600_000;

const VOUCHED: &str = "penstock 1 credential, by the metadata server";

impl Statement {
    /// Whether it only says who the user is, for a time that is not too long.
    fn is_plain(&self) -> bool {
        // Without `..`, so that whoever adds a field must decide here too.
        let Statement {
            deployment: _,
            serial: _,
            uid: _,
            gid: _,
            groups: _,
            not_before_ms,
            end_ms,
            job: _,
            root,
            administrator,
            key: _,
            speaks_for,
        } = self;
        !root
            && !administrator
            && speaks_for.is_empty()
            && end_ms.saturating_sub(*not_before_ms) <= LONGEST_MS
    }
}

impl Signed {
    /// Signs `statement` about the holder of `key`, with a serial number.
    pub fn vouch(server: &KeyPair, mut statement: Statement, key: PublicKey) -> Result<Signed> {
        statement.key = key;
        statement.serial.copy_from_slice(&key::random()?[..16]);
        let checked = if statement.is_plain() {
            statement.validate()
        } else {
            Err("it grants more than the metadata server may grant".into())
        };
        checked.map_err(|what| unusable("the new credential", what))?;
        let signature = Signature(server.sign(VOUCHED, &[&statement.bytes()?]));
        Ok(Signed {
            statement,
            signature,
        })
    }

    /// Whether the metadata server with this identity has signed it, and may do so.
    pub fn is_vouched_by(&self, server: &PublicKey) -> bool {
        let Ok(bytes) = self.statement.bytes() else {
            return false;
        };
        self.statement.is_plain()
            && self.statement.validate().is_ok()
            && server.verify(VOUCHED, &[&bytes], &self.signature.0)
    }
}

impl Credential {
    /// With the secret part, if it belongs to the statement.
    pub fn of(signed: Signed, pair: KeyPair) -> Option<Credential> {
        let own = signed.statement.key == pair.public();
        own.then_some(Credential { signed, pair })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::Uids;
    use crate::key::Key;
    use crate::message::User;

    fn server() -> KeyPair {
        KeyPair::from_seed(Key::from_bytes([5; 32])).unwrap()
    }

    fn statement() -> Statement {
        let user = User {
            uid: 500,
            gid: 600,
            groups: vec![601],
        };
        Statement::new(&"ab".repeat(16), user, 1000..1000 + LONGEST_MS)
    }

    const MORE: [fn(&mut Statement); 4] = [
        |s| s.root = true,
        |s| s.administrator = true,
        |s| s.speaks_for = vec![Uids { first: 5, last: 5 }],
        |s| s.end_ms += 1,
    ];

    #[test]
    fn the_metadata_server_says_who_a_user_is_and_no_more() {
        let pair = KeyPair::generate().unwrap();
        let signed = Signed::vouch(&server(), statement(), pair.public()).unwrap();
        assert!(signed.is_vouched_by(&server().public()));
        assert!(!signed.is_vouched_by(&KeyPair::generate().unwrap().public()));
        // Nor is it the authority's statement, whatever key that has.
        assert!(!signed.is_of(&server().public()));
        let changes: [fn(&mut Statement); 6] = [
            |s| s.uid += 1,
            |s| s.gid += 1,
            |s| s.groups.push(7),
            |s| s.end_ms -= 1,
            |s| s.key.0[0] ^= 1,
            |s| s.serial[0] ^= 1,
        ];
        for change in changes {
            let mut bad = signed.clone();
            change(&mut bad.statement);
            assert!(!bad.is_vouched_by(&server().public()));
        }
        assert!(Credential::of(signed.clone(), KeyPair::generate().unwrap()).is_none());
        assert!(Credential::of(signed, pair).is_some());
    }

    #[test]
    fn what_grants_more_is_not_made_and_not_believed() {
        let key = KeyPair::generate().unwrap().public();
        for more in MORE {
            let mut statement = statement();
            more(&mut statement);
            let e = Signed::vouch(&server(), statement.clone(), key).unwrap_err();
            assert!(e.to_string().contains("more than"), "{e}");
            // As a thief of the server's key would make it.
            let signature = server().sign(VOUCHED, &[&statement.bytes().unwrap()]);
            let forged = Signed {
                statement,
                signature: Signature(signature),
            };
            assert!(!forged.is_vouched_by(&server().public()));
        }
    }

    #[test]
    fn what_the_authority_signed_is_not_the_servers_word() {
        let one = server();
        let issued = Credential::issue(&one, statement()).unwrap();
        assert!(issued.signed().is_of(&one.public()));
        assert!(!issued.signed().is_vouched_by(&one.public()));
    }
}
