//! Keys: 32 secret bytes in a file of mode 0600.
//!
//! Clients and servers of a deployment prove its client key. Keyed BLAKE3 uses it, each use under its own derived key.
//! Other keys are the private halves of key pairs ([`crate::signing`]).
use crate::error::{Error, Result};
use crate::trusted_file::TrustedFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a key's file.
const MAX_FILE: u64 = 256;
const NAME: &str = "penstock 1 name of a key";
/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// Identifies a key without revealing anything about its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyName([u8; 8]);

/// A secret, and its file (for messages).
#[derive(Clone)]
pub struct Key {
    secret: [u8; KEY_LEN],
    source: PathBuf,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.source.display())
    }
}

impl Key {
    /// A fresh key from the system's random numbers.
    pub fn generate() -> Result<Key> {
        Ok(Key {
            secret: random()?,
            source: PathBuf::from("(new key)"),
        })
    }

    /// A key with these bytes, for tests and for keys from elsewhere.
    pub fn from_bytes(secret: [u8; KEY_LEN]) -> Key {
        Key {
            secret,
            source: PathBuf::from("(memory)"),
        }
    }

    /// Its name.
    pub fn name(&self) -> KeyName {
        let whole = blake3::derive_key(NAME, &self.secret);
        let mut name = [0; 8];
        name.copy_from_slice(&whole[..8]);
        KeyName(name)
    }

    pub(crate) fn secret(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }

    /// The file it was loaded from or saved to.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Writes the key as 64 hex digits into a new file of mode 0600; never overwrites one.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        let fail = |what: String| Error::KeyFile {
            path: path.display().to_string(),
            what,
        };
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| fail(format!("cannot create: {e}")))?;
        let mut text = String::with_capacity(2 * KEY_LEN + 1);
        for byte in self.secret {
            text.push_str(&format!("{byte:02x}"));
        }
        text.push('\n');
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|e| fail(format!("cannot write: {e}")))?;
        self.source = path.to_owned();
        Ok(())
    }

    /// Reads a key; refuses a file that others can read or could have written.
    pub fn load(path: &Path) -> Result<Key> {
        Key::load_closed(path, if is_credential(path) { 0o037 } else { 0o077 })
    }

    /// The same for a key whose file may be readable by a group.
    pub fn load_shared(path: &Path) -> Result<Key> {
        Key::load_closed(path, 0o037)
    }

    /// Refuses a file whose mode has any bit of `closed`.
    fn load_closed(path: &Path, closed: u32) -> Result<Key> {
        let fail = |what: String| Error::KeyFile {
            path: path.display().to_string(),
            what,
        };
        let file = TrustedFile::open(path).map_err(fail)?;
        let mode = file.mode();
        if mode & closed != 0 {
            return Err(fail(format!(
                "readable by others (mode {mode:04o}, owner uid {}); run `chmod 600 {}` and, if others may have read it, make new keys",
                file.owner(),
                path.display()
            )));
        }
        let text = file.text(MAX_FILE).map_err(fail)?;
        let secret = parse_hex(text.trim_end()).ok_or_else(|| {
            fail(format!(
                "not a key: expected {} hex digits, found {} characters",
                2 * KEY_LEN,
                text.trim_end().len()
            ))
        })?;
        Ok(Key {
            secret,
            source: path.to_owned(),
        })
    }

    /// Keyed BLAKE3 over `parts`, each preceded by its length, under a key derived for `purpose`.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(purpose, &self.secret));
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

pub(crate) fn parse_hex(text: &str) -> Option<[u8; KEY_LEN]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * KEY_LEN {
        return None;
    }
    let mut out = [0u8; KEY_LEN];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(out)
}

/// Names the directory where systemd puts what a unit loads (`LoadCredential=`).
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Whether systemd has put it there. It gives the unit's user the right to read by an access control list, whose mask stands where
/// the mode has the group's rights.
fn is_credential(path: &Path) -> bool {
    let dir = std::env::var_os(CREDENTIALS);
    dir.is_some_and(|dir| path.parent() == Some(Path::new(&dir)))
}

/// 32 unpredictable bytes.
pub fn random() -> Result<[u8; 32]> {
    let mut bytes = [0u8; 32];
    penstock_host::random(&mut bytes).map_err(|source| Error::Io {
        what: "get random numbers from",
        peer: "the system".into(),
        source,
    })?;
    Ok(bytes)
}
