//! Ed25519 key pairs (RFC 8032): the identities of servers.
//!
//! Two holders of key pairs also share a secret that nobody else can compute, without communication
//! ([`KeyPair::shared_with`]). A message authenticated with it is trusted by the other.
//!
//! The private half is a seed of 32 bytes, in a file as every other key ([`Key`]). The public half is text in the
//! deployment file, which therefore says whom to trust.
use crate::error::{Error, Result};
use crate::key::{KEY_LEN, Key, parse_hex};
use curve25519_dalek::edwards::CompressedEdwardsY;
use ring::digest::{SHA512, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

const SHARED: &str = "penstock 1 secret of two servers";
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;

/// The public half of a [`KeyPair`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; KEY_LEN]);

impl PublicKey {
    /// Whether the holder of the private half has signed `parts` for `purpose`.
    pub fn verify(&self, purpose: &str, parts: &[&[u8]], signature: &[u8; SIGNATURE_LEN]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(&message(purpose, parts), signature)
            .is_ok()
    }
}

impl PublicKey {
    /// The name by which a client tells a server with several keys which of them it expects (RFC 6066, section 3).
    pub fn server_name(&self) -> String {
        let name = self.0[..8].iter();
        name.map(|byte| format!("{byte:02x}")).collect::<String>() + ".penstock"
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; KEY_LEN]>::deserialize(deserializer).map(PublicKey);
        }
        let text = String::deserialize(deserializer)?;
        parse_hex(&text).map(PublicKey).ok_or_else(|| {
            serde::de::Error::custom(format!("a public key has {} hex digits", 2 * KEY_LEN))
        })
    }
}

/// The signed bytes: the purpose and each part, each preceded by its length, so that different lists differ.
fn message(purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// Both halves.
#[derive(Clone)]
pub struct KeyPair {
    seed: Key,
    pair: Arc<Ed25519KeyPair>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.seed.source().display())
    }
}

impl KeyPair {
    /// A new pair from the system's random numbers.
    pub fn generate() -> Result<KeyPair> {
        KeyPair::from_seed(Key::generate()?)
    }

    /// The pair whose private half is `seed`.
    pub fn from_seed(seed: Key) -> Result<KeyPair> {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(seed.secret()).map_err(|e| Error::KeyFile {
                path: seed.source().display().to_string(),
                what: format!("not a private key: {e}"),
            })?;
        Ok(KeyPair {
            seed,
            pair: Arc::new(pair),
        })
    }

    /// Reads the private half; refuses a file that others can read or could have written.
    pub fn load(path: &Path) -> Result<KeyPair> {
        KeyPair::from_seed(Key::load(path)?)
    }

    /// Writes the private half into a new file of mode 0600; never overwrites one.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        self.seed.save(path)
    }

    /// The file of the private half (for messages).
    pub fn source(&self) -> &Path {
        self.seed.source()
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; KEY_LEN];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// A signature of `parts` for `purpose`, valid for no other purpose.
    pub fn sign(&self, purpose: &str, parts: &[&[u8]]) -> [u8; SIGNATURE_LEN] {
        let mut bytes = [0; SIGNATURE_LEN];
        bytes.copy_from_slice(self.pair.sign(&message(purpose, parts)).as_ref());
        bytes
    }

    /// The secret that this pair shares with that of `other`. It is X25519 (RFC 7748) with both as keys of the same
    /// curve, bound to both public halves. `None` if `other` is no public key.
    pub fn shared_with(&self, other: &PublicKey) -> Option<Key> {
        let point = CompressedEdwardsY(other.0).decompress()?;
        if point.is_small_order() {
            return None;
        }
        // The scalar of RFC 8032, section 5.1.5.
        let hash = digest(&SHA512, self.seed());
        let mut scalar = [0; KEY_LEN];
        scalar.copy_from_slice(&hash.as_ref()[..KEY_LEN]);
        let common = point.to_montgomery().mul_clamped(scalar);
        let mut both = [self.public().0, other.0];
        both.sort_unstable();
        let mut hasher = blake3::Hasher::new_derive_key(SHARED);
        hasher.update(common.as_bytes());
        hasher.update(both.as_flattened());
        Some(Key::from_bytes(*hasher.finalize().as_bytes()))
    }

    /// The private half.
    pub fn seed(&self) -> &[u8; KEY_LEN] {
        self.seed.secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_its_words_purpose_and_key_alone() {
        let pair = KeyPair::generate().unwrap();
        let signature = pair.sign("a", &[b"one", b"two"]);
        let public = pair.public();
        assert!(public.verify("a", &[b"one", b"two"], &signature));
        assert!(!public.verify("b", &[b"one", b"two"], &signature));
        assert!(!public.verify("a", &[b"onet", b"wo"], &signature));
        let other = KeyPair::generate().unwrap().public();
        assert!(!other.verify("a", &[b"one", b"two"], &signature));
        let mut wrong = signature;
        wrong[63] ^= 1;
        assert!(!public.verify("a", &[b"one", b"two"], &wrong));
    }

    #[test]
    fn two_share_what_no_third_has() {
        let [a, b, c] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let secret = |one: &KeyPair, other: &KeyPair| {
            let key = one.shared_with(&other.public()).unwrap();
            *key.secret()
        };
        assert_eq!(secret(&a, &b), secret(&b, &a));
        assert_ne!(secret(&a, &b), secret(&a, &c));
        assert_ne!(secret(&a, &b), secret(&c, &b));
        assert_ne!(secret(&a, &a), secret(&a, &b));
        // The neutral element of the curve, with which everybody shares the same secret; and an invalid point.
        let mut one = [0; KEY_LEN];
        one[0] = 1;
        assert!(a.shared_with(&PublicKey(one)).is_none());
        assert!(a.shared_with(&PublicKey([2; KEY_LEN])).is_none());
    }

    #[test]
    fn the_first_test_of_rfc_8032() {
        // Section 7.1, test 1: the public half of this seed.
        let seed = parse_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let pair = KeyPair::from_seed(Key::from_bytes(seed.unwrap())).unwrap();
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(pair.public().to_string(), public);
        let text = format!("k = \"{public}\"");
        let table: std::collections::HashMap<String, PublicKey> = toml::from_str(&text).unwrap();
        assert_eq!(table["k"], pair.public());
        assert!(
            toml::from_str::<std::collections::HashMap<String, PublicKey>>("k = \"d75a\"").is_err()
        );
    }
}
