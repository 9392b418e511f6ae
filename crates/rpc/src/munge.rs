//! Authentication by MUNGE (docs/decisions/0027-munge.md): the part that clients and the metadata server share.
//!
//! A MUNGE credential is a text in which munged of one host tells munged of another which user and group made it, with
//! a payload. It does not say for whom or for which connection it is: the payload does ([`payload`]).
mod library;

pub use library::{Decoded, Failure, Library, TTL_S};

use penstock_wire::PublicKey;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Bytes of a payload.
pub const PAYLOAD: usize = 32;
/// The longest life of a credential issued for it, seconds.
pub const MAX_LIFETIME_S: u32 = 3600;

const BOUND: &str = "penstock 1 payload of a MUNGE credential";

/// `[munge]` in the deployment file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Where munged listens on each host, if not at libmunge's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Life of a credential issued for a MUNGE credential, seconds.
    #[serde(default = "longest", skip_serializing_if = "is_longest")]
    pub lifetime_s: u32,
}

impl Default for Section {
    fn default() -> Section {
        Section {
            socket: None,
            lifetime_s: MAX_LIFETIME_S,
        }
    }
}

impl Section {
    /// Checks the section; the error says what is wrong.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if !(1..=MAX_LIFETIME_S).contains(&self.lifetime_s) {
            return Err(format!(
                "munge: lifetime_s is {}; it must be 1 to {MAX_LIFETIME_S}",
                self.lifetime_s
            ));
        }
        match &self.socket {
            Some(path) if !path.is_absolute() => Err(format!(
                "munge: socket is {}; it must be absolute",
                path.display()
            )),
            _ => Ok(()),
        }
    }
}

fn longest() -> u32 {
    MAX_LIFETIME_S
}

fn is_longest(seconds: &u32) -> bool {
    *seconds == MAX_LIFETIME_S
}

/// The payload for a connection with this binding, on which the client asks the deployment's metadata server for a
/// credential of `key`. `None`: the connection is not protected, so there is no binding.
pub fn payload(
    deployment: &str,
    binding: Option<[u8; 32]>,
    key: &PublicKey,
) -> Option<[u8; PAYLOAD]> {
    let mut hasher = blake3::Hasher::new_derive_key(BOUND);
    for part in [deployment.as_bytes(), &binding?, &key.0] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Some(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_bound_to_deployment_connection_and_key() {
        let (one, other) = ("ab".repeat(16), "cd".repeat(16));
        let key = |n| PublicKey([n; 32]);
        let base = payload(&one, Some([1; 32]), &key(2));
        assert_eq!(base, payload(&one, Some([1; 32]), &key(2)));
        for changed in [
            payload(&other, Some([1; 32]), &key(2)),
            payload(&one, Some([3; 32]), &key(2)),
            payload(&one, Some([1; 32]), &key(3)),
            payload(&one, Some([2; 32]), &key(1)),
        ] {
            assert!(changed.is_some() && changed != base);
        }
        assert_eq!(payload(&one, None, &key(2)), None);
    }

    #[test]
    fn a_section_has_bounds() {
        let read = |text: &str| toml::from_str::<Section>(text).map_err(|e| e.to_string());
        assert_eq!(read("").unwrap(), Section::default());
        let short = read("lifetime_s = 5\nsocket = \"/run/m\"").unwrap();
        assert_eq!(short.validate(), Ok(()));
        assert_eq!(
            toml::to_string(&short)
                .ok()
                .and_then(|text| read(&text).ok()),
            Some(short)
        );
        for (text, words) in [
            ("lifetime_s = 0", "lifetime_s is 0"),
            ("lifetime_s = 3601", "1 to 3600"),
            ("socket = \"munge\"", "absolute"),
        ] {
            let e = read(text).unwrap().validate().unwrap_err();
            assert!(e.contains(words), "{e}");
        }
        assert!(read("lifetime = 5").unwrap_err().contains("unknown field"));
    }
}
