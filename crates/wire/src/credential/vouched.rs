//! Statements that the metadata server signs with its own identity (docs/decisions/0027-munge.md). They say who a user is, and
//! nothing more: whatever else such a statement grants, nobody believes it.
use super::{Credential, Signature, Signed, Statement, unusable};
use crate::error::Result;
use crate::key;
use crate::signing::{KeyPair, PublicKey};

/// The longest that such a statement is good, milliseconds.
pub const LONGEST_MS: u64 = 3_600_000;

const VOUCHED: &str = "penstock 1 credential, by the metadata server";

impl Statement {
    /// Says who the user is and no more, for a time that is not too long.
    fn is_plain(&self) -> bool {
        // Without `..`: who adds a field decides here, too.
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
    /// What the metadata server says about the holder of `key`: `statement`, with a serial number.
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

    /// Whether the metadata server of this identity has said it, and may have.
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
    /// With the secret part, if that belongs to it.
    pub(crate) fn of(signed: Signed, pair: KeyPair) -> Option<Credential> {
        let own = signed.statement.key == pair.public();
        own.then_some(Credential { signed, pair })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Connection, Timeouts};
    use crate::credential::Uids;
    use crate::deployment::Transport;
    use crate::fence::LinkName;
    use crate::handshake::{self, Caller, Identity, Role};
    use crate::key::Key;
    use crate::message::{ErrorKind, User};
    use crate::wallet::Wallet;
    use std::collections::HashMap;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

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
        // Nor is it the authority's word, whatever key that has.
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
            // As somebody would make it who has the server's key.
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

    /// A handshake of a client with a credential that the metadata server has signed, with a server that believes `voucher`.
    fn shake(signed: Signed, pair: KeyPair, voucher: Option<PublicKey>) -> Result<u32> {
        let key = Key::from_bytes([1; 32]);
        let identity = Identity {
            deployment: signed.statement.deployment.clone(),
            deployment_name: "lab".into(),
            server: "data server 0".into(),
            client_key: key.clone(),
            servers: HashMap::new(),
            transport: Transport::PlainTrustedNetwork,
            pair: KeyPair::generate()?,
            authority: Some(KeyPair::generate()?.public()),
            voucher,
        };
        let caller = Caller {
            deployment: identity.deployment.clone(),
            deployment_name: "lab".into(),
            role: Role::Client,
            key,
            program: 0,
            rank: 0,
            transport: identity.transport,
            wallet: Arc::new(Wallet::holding(Credential::of(signed, pair).unwrap())),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let until = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let mut far = Connection::tcp(far, "the client", Timeouts::default())?;
                handshake::answer(&mut far, &[identity], until, || 1500, |_| Ok(()))
            });
            let mut near = Connection::tcp(near, "the server", Timeouts::default())?;
            let told = handshake::introduce(&mut near, &caller, LinkName::new()?, until);
            drop(near);
            told.and(served.join().unwrap()).map(|peer| peer.user.uid)
        })
    }

    #[test]
    fn servers_believe_it_only_where_the_deployment_takes_munge() {
        let given = || {
            let pair = KeyPair::generate().unwrap();
            let signed = Signed::vouch(&server(), statement(), pair.public()).unwrap();
            (signed, pair)
        };
        let (signed, pair) = given();
        let uid = shake(signed, pair, Some(server().public())).unwrap();
        assert_eq!(uid, 500);
        for voucher in [None, Some(KeyPair::generate().unwrap().public())] {
            let (signed, pair) = given();
            let e = shake(signed, pair, voucher).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Permission);
            assert!(e.to_string().contains("not signed by the authority"), "{e}");
        }
    }
}
