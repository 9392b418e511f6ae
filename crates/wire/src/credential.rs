//! Credentials: who a client is over TCP, where no kernel says it.
//!
//! A credential is a key pair and a [`Statement`] about its public half. The deployment's authority states that the
//! holder of the private half is this user, in these groups, until that time. In the handshake a client shows the
//! statement and proves the private half ([`crate::handshake`]). Servers know the authority's public key and need no
//! list of users. Groups are those known to the issuer, never the client's claim.
//!
//! *Host credentials*: a mount or an agent acts for many users. [`Statement::speaks_for`] bounds them by ranges of user
//! ids. User 0 is among them only with [`Statement::root`]. Without it, requests of user 0 are those of user 65534
//! ("root squashing"), and so is a client whose credential is of user 0.
//!
//! *File*: TOML of mode 0600 with the statement, the authority's signature and the private half. No error message
//! quotes it.
mod vouched;

use crate::bounded;
use crate::error::{Error, Result};
use crate::key::{self, Key};
use crate::message::refusal::{ErrorKind, WireError};
use crate::message::user::{MAX_GROUPS, NOBODY, User};
use crate::signing::{KeyPair, PublicKey, SIGNATURE_LEN};
use crate::trusted_file::TrustedFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

/// Longest name of a job, bytes.
pub const MAX_JOB: usize = 64;
/// Most ranges of users that a holder may act for.
pub const MAX_RANGES: usize = 16;
/// Largest file that is read.
const MAX_FILE: u64 = 16 << 10;
/// Accepted difference between the clocks of issuer and server at the beginning of a credential, milliseconds.
const CLOCKS_MS: u64 = crate::clock::WRONG_MS;
const STATED: &str = "penstock 1 credential";
const PROVEN: &str = "penstock 1 handshake, signature of the client";

/// User ids from `first` to `last`, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uids {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

impl Uids {
    /// Every user.
    pub const ALL: Uids = Uids {
        first: 0,
        last: u32::MAX,
    };

    /// Whether the user is among them.
    pub fn contains(&self, uid: u32) -> bool {
        (self.first..=self.last).contains(&uid)
    }
}

impl fmt::Display for Uids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Uids {
    type Err = String;

    /// `1000-60000`, or one number.
    fn from_str(text: &str) -> std::result::Result<Uids, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Uids { first, last }),
            _ => Err("write a range of user ids, such as 1000-60000".into()),
        }
    }
}

/// The authority's statement about the holder of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Id of the deployment for which alone it is valid.
    pub deployment: String,
    /// Unique serial number.
    #[serde(with = "hex")]
    serial: [u8; 16],
    /// The user.
    pub uid: u32,
    /// Group of new files.
    pub gid: u32,
    /// Supplementary groups, at most [`MAX_GROUPS`].
    #[serde(deserialize_with = "bounded::at_most::<MAX_GROUPS, _, _>")]
    pub groups: Vec<u32>,
    /// Beginning of its validity, milliseconds since 1970.
    pub not_before_ms: u64,
    /// End of its validity, milliseconds since 1970.
    pub end_ms: u64,
    /// The job that it was issued for.
    pub job: Option<String>,
    /// Whether user 0 keeps its rights, as the user or among those that the holder acts for.
    pub root: bool,
    /// Whether the holder may administer the servers.
    #[serde(default)]
    pub administrator: bool,
    /// The public half of its key pair.
    key: PublicKey,
    /// Users that it may act for, at most [`MAX_RANGES`] ranges.
    #[serde(deserialize_with = "bounded::at_most::<MAX_RANGES, _, _>")]
    pub speaks_for: Vec<Uids>,
}

impl Statement {
    /// A statement about a user for some time; [`Credential::issue`] sets serial number and key.
    pub fn new(deployment: &str, user: User, life_ms: Range<u64>) -> Statement {
        Statement {
            deployment: deployment.to_owned(),
            serial: [0; 16],
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            not_before_ms: life_ms.start,
            end_ms: life_ms.end,
            job: None,
            root: false,
            administrator: false,
            key: PublicKey([0; key::KEY_LEN]),
            speaks_for: Vec::new(),
        }
    }

    /// The serial number.
    pub fn serial_bytes(&self) -> &[u8; 16] {
        &self.serial
    }

    /// The serial number as 32 hex digits.
    pub fn serial(&self) -> String {
        hex::text(&self.serial)
    }

    /// The user whose rights the holder has: user 0 only if that is granted.
    pub fn user(&self) -> User {
        let stated = User {
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
        };
        self.squashed(stated)
    }

    /// The user for whom a request on behalf of `user` is carried out, if the holder may act for that user.
    pub fn acts_for(&self, user: User) -> Option<User> {
        let own = user.uid == self.uid || user.uid == 0;
        let allowed = own || self.speaks_for.iter().any(|range| range.contains(user.uid));
        (!self.speaks_for.is_empty() && allowed).then(|| self.squashed(user))
    }

    /// Without root's rights, unless they are granted.
    fn squashed(&self, mut user: User) -> User {
        if self.root {
            return user;
        }
        if user.uid == 0 {
            return User::nobody();
        }
        if user.gid == 0 {
            user.gid = NOBODY;
        }
        user.groups.retain(|gid| *gid != 0);
        user
    }

    /// Refuses a statement of another deployment, or one not valid at `now_ms` by the server's time.
    pub fn require(&self, deployment: &str, now_ms: u64) -> std::result::Result<(), WireError> {
        let refuse = |what: String| Err(WireError::new(ErrorKind::Permission, what));
        if self.deployment != deployment {
            return refuse("it is of another deployment".into());
        }
        if now_ms.saturating_add(CLOCKS_MS) < self.not_before_ms {
            return refuse(format!(
                "it begins in {} s by the server's clock; wait, or set the clock that is wrong (`penstock status` names it)",
                (self.not_before_ms - now_ms) / 1000
            ));
        }
        if now_ms >= self.end_ms {
            return refuse(format!(
                "it ended {} s ago by the server's clock; have it renewed (`penstock credential --force`)",
                (now_ms - self.end_ms) / 1000
            ));
        }
        Ok(())
    }

    /// Checks the fields; the error names the field and the problem.
    fn validate(&self) -> std::result::Result<(), String> {
        if self.deployment.len() != 32 || !self.deployment.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("deployment: 32 hex digits are expected".into());
        }
        if self.groups.len() > MAX_GROUPS {
            return Err(format!("groups: at most {MAX_GROUPS} are allowed"));
        }
        if self.speaks_for.len() > MAX_RANGES {
            return Err(format!(
                "speaks_for: at most {MAX_RANGES} ranges are allowed"
            ));
        }
        if let Some(range) = self.speaks_for.iter().find(|r| r.first > r.last) {
            return Err(format!("speaks_for: {range} is empty"));
        }
        // TOML has no larger integers.
        if self.not_before_ms >= self.end_ms || self.end_ms > i64::MAX as u64 {
            return Err("end_ms: it must be after not_before_ms".into());
        }
        let printable = |job: &str| job.bytes().all(|b| b.is_ascii_graphic());
        if let Some(job) = &self.job
            && (job.is_empty() || job.len() > MAX_JOB || !printable(job))
        {
            return Err(format!(
                "job: 1 to {MAX_JOB} printable ASCII characters without blanks are allowed"
            ));
        }
        Ok(())
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|e| Error::Malformed {
            peer: "this process".into(),
            what: format!("a credential that cannot be encoded: {e}"),
        })
    }
}

/// A signature, by the authority or by a credential's holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature(#[serde(with = "hex")] [u8; SIGNATURE_LEN]);

/// A statement with the authority's signature: the public part of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// The statement.
    pub statement: Statement,
    /// The authority's signature.
    signature: Signature,
}

impl Signed {
    /// Whether it has the authority's signature.
    pub fn is_of(&self, authority: &PublicKey) -> bool {
        let Ok(bytes) = self.statement.bytes() else {
            return false;
        };
        self.statement.validate().is_ok() && authority.verify(STATED, &[&bytes], &self.signature.0)
    }

    /// Whether the holder has signed a handshake.
    pub fn has_signed(&self, exchange: &[u8], signature: &Signature) -> bool {
        let key = &self.statement.key;
        key.verify(PROVEN, &[exchange], &signature.0)
    }
}

/// A credential, including the secret part.
#[derive(Debug, Clone)]
pub struct Credential {
    signed: Signed,
    pair: KeyPair,
}

/// The form of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    /// Seed of the key pair.
    #[serde(with = "hex")]
    private: [u8; key::KEY_LEN],
    /// The authority's signature.
    signature: Signature,
    statement: Statement,
}

const HEADING: &str = "\
# A credential of a user of a Penstock deployment. Whoever can read this file is that user there.
# `penstock credential --show FILE` explains it; every change makes it void.
";

impl Credential {
    /// Issues a credential with `statement`, a serial number and a key pair of its own.
    pub fn issue(authority: &KeyPair, mut statement: Statement) -> Result<Credential> {
        let pair = KeyPair::generate()?;
        statement.key = pair.public();
        statement.serial.copy_from_slice(&key::random()?[..16]);
        statement
            .validate()
            .map_err(|what| unusable("the new credential", what))?;
        let signature = Signature(authority.sign(STATED, &[&statement.bytes()?]));
        let signed = Signed {
            statement,
            signature,
        };
        Ok(Credential { signed, pair })
    }

    /// The part that servers see.
    pub fn signed(&self) -> &Signed {
        &self.signed
    }

    /// The authority's statement.
    pub fn statement(&self) -> &Statement {
        &self.signed.statement
    }

    /// The holder's signature of everything said in a handshake.
    pub fn sign_exchange(&self, exchange: &[u8]) -> Signature {
        Signature(self.pair.sign(PROVEN, &[exchange]))
    }

    /// Reads a file; refuses one that others can read or could have written.
    pub fn load(path: &Path) -> Result<Credential> {
        let fail = |what| unusable(&format!("credential {}", path.display()), what);
        let file = TrustedFile::open(path).map_err(fail)?;
        let mode = file.mode();
        if mode & 0o077 != 0 {
            return Err(fail(format!(
                "readable by others (mode {mode:04o}, owner uid {}); run `chmod 600` on it and, if others may have read it, have a new one made",
                file.owner()
            )));
        }
        let text = file.text(MAX_FILE + 1).map_err(fail)?;
        if text.len() as u64 > MAX_FILE {
            return Err(fail(format!("larger than {MAX_FILE} bytes")));
        }
        Credential::parse(&text).map_err(fail)
    }

    /// Parses the output of [`Credential::text`]; the error names the field and the problem. Does not check the
    /// signature.
    pub fn parse(text: &str) -> std::result::Result<Credential, String> {
        let contents: Contents = toml::from_str(text).map_err(|e| {
            // The parser's own message quotes the line, which may contain the secret.
            let before = e.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            let named = text.lines().nth(line - 1).and_then(|l| l.split_once('='));
            let field = named.map_or("", |(name, _)| name.trim());
            format!("line {line} ({field}): {}", e.message())
        })?;
        contents.statement.validate()?;
        let pair = KeyPair::from_seed(Key::from_bytes(contents.private))
            .map_err(|e| format!("private: {e}"))?;
        if pair.public() != contents.statement.key {
            return Err("private: it does not belong to the statement's `key`".into());
        }
        let signed = Signed {
            statement: contents.statement,
            signature: contents.signature,
        };
        Ok(Credential { signed, pair })
    }

    /// The text of its file.
    pub fn text(&self) -> Result<String> {
        let contents = Contents {
            private: *self.pair.seed(),
            signature: self.signed.signature.clone(),
            statement: self.signed.statement.clone(),
        };
        let text = toml::to_string(&contents)
            .map_err(|e| unusable("the new credential", format!("cannot encode: {e}")))?;
        Ok(format!("{HEADING}{text}"))
    }

    /// Atomically writes a file of mode 0600, for user and group `owner` if given. Replaces an existing file only if
    /// `replaces`.
    pub fn save(&self, path: &Path, owner: Option<(u32, u32)>, replaces: bool) -> Result<()> {
        let text = self.text()?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(name);
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(text.as_bytes())?;
            if let Some((uid, gid)) = owner {
                std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
            }
            file.sync_all()?;
            if replaces {
                std::fs::rename(&temporary, path)
            } else {
                // Fails if the file exists.
                std::fs::hard_link(&temporary, path).and_then(|()| std::fs::remove_file(&temporary))
            }
        };
        write().map_err(|e| {
            // Only the first error matters; a leftover file is harmless.
            let _ = std::fs::remove_file(&temporary);
            unusable(
                &format!("credential {}", path.display()),
                format!("cannot write: {e}"),
            )
        })
    }
}

/// An error about a credential that cannot be used or issued.
pub fn unusable(which: &str, what: String) -> Error {
    Error::Refused(WireError::new(
        ErrorKind::Permission,
        format!("{which}: {what}"),
    ))
}

/// Bytes as hex digits in text, and as they are in messages.
pub(crate) mod hex {
    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::Serializer;
    use std::fmt;

    struct Bytes<const N: usize>;

    impl<const N: usize> Visitor<'_> for Bytes<N> {
        type Value = [u8; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{N} bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<[u8; N], E> {
            bytes
                .try_into()
                .map_err(|_| E::invalid_length(bytes.len(), &self))
        }
    }

    pub fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn serialize<const N: usize, S: Serializer>(
        bytes: &[u8; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.serialize_str(&text(bytes))
        } else {
            to.serialize_bytes(bytes)
        }
    }

    pub fn deserialize<'de, const N: usize, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        if !from.is_human_readable() {
            return from.deserialize_bytes(Bytes);
        }
        let text = String::deserialize(from)?;
        let wrong = || D::Error::custom(format!("{} hex digits are expected", 2 * N));
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect();
        let digits = digits.filter(|d| d.len() == 2 * N).ok_or_else(wrong)?;
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn authority() -> KeyPair {
        KeyPair::from_seed(Key::from_bytes([3; 32])).unwrap()
    }

    fn statement() -> Statement {
        let user = User {
            uid: 500,
            gid: 600,
            groups: vec![601],
        };
        let mut statement = Statement::new(&"ab".repeat(16), user, 1000..2000);
        statement.job = Some("4711_3".into());
        statement.speaks_for = vec!["1000-1999".parse().unwrap(), "7".parse().unwrap()];
        statement
    }

    fn issued() -> Credential {
        Credential::issue(&authority(), statement()).unwrap()
    }

    #[test]
    fn every_field_is_signed() {
        let good = issued().signed().clone();
        assert!(good.is_of(&authority().public()));
        assert!(!good.is_of(&KeyPair::generate().unwrap().public()));
        let changes: [fn(&mut Statement); 12] = [
            |s| s.deployment = "cd".repeat(16),
            |s| s.serial[0] ^= 1,
            |s| s.uid = 0,
            |s| s.gid = 0,
            |s| s.groups.push(0),
            |s| s.groups.clear(),
            |s| s.not_before_ms -= 1,
            |s| s.end_ms += 1,
            |s| s.job = None,
            |s| s.root = true,
            |s| s.key.0[31] ^= 1,
            |s| s.speaks_for[0].first = 999,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad.statement);
            assert!(!bad.is_of(&authority().public()), "{n}");
        }
        let mut bad = good;
        bad.signature.0[0] ^= 1;
        assert!(!bad.is_of(&authority().public()));
    }

    #[test]
    fn no_two_are_alike() {
        let (one, other) = (issued(), issued());
        assert_ne!(one.statement().serial(), other.statement().serial());
        assert_ne!(one.statement().key, other.statement().key);
        let signature = one.sign_exchange(b"words");
        assert!(one.signed().has_signed(b"words", &signature));
        assert!(!one.signed().has_signed(b"other words", &signature));
        assert!(!other.signed().has_signed(b"words", &signature));
    }

    #[test]
    fn a_file_is_its_readers_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        let made = issued();
        made.save(&path, None, false).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        let read = Credential::load(&path).unwrap();
        assert_eq!(read.signed(), made.signed());
        assert_eq!(read.pair.seed(), made.pair.seed());
        // An existing file is not lost by mistake.
        let e = made.save(&path, None, false).unwrap_err().to_string();
        assert!(e.contains("exists"), "{e}");
        let newer = issued();
        newer.save(&path, None, true).unwrap();
        let read = Credential::load(&path).unwrap();
        assert_eq!(read.signed(), newer.signed());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let e = Credential::load(&path).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Permission);
            assert!(e.to_string().contains("others"), "{e}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let e = Credential::load(&path).unwrap_err().to_string();
        assert!(e.contains("others may replace it"), "{e}");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(&path, vec![b'#'; 20 << 10]).unwrap();
        let e = Credential::load(&path).unwrap_err().to_string();
        assert!(e.contains("larger than"), "{e}");
        let e = Credential::load(&dir.path().join("none")).unwrap_err();
        assert!(e.to_string().contains("none: cannot read"), "{e}");
    }

    #[test]
    fn a_bad_file_is_refused_by_field_and_its_secret_is_not_shown() {
        let text = issued().text().unwrap();
        let secret = text.lines().find(|l| l.starts_with("private")).unwrap();
        let secret = &secret["private = \"".len()..][..64];
        let wider: String = (0..=MAX_GROUPS).map(|g| format!("{g},")).collect();
        for (from, to, words) in [
            ("private = ", "privat = ", "unknown field `privat`"),
            (secret, &secret[1..], "(private): 64 hex digits"),
            (secret, &"g".repeat(64), "(private): 64 hex digits"),
            (secret, &"0".repeat(64), "private: it does not belong"),
            ("uid = 500", "uid = -1", "(uid)"),
            ("uid = 500", "uid = 4294967296", "(uid)"),
            ("uid = 500", "uid = \"root\"", "(uid)"),
            ("uid = 500\n", "", "missing field `uid`"),
            ("uid = 500", "uid = 500\nuid = 501", "duplicate key"),
            ("[601]", &format!("[{wider}]"), "(groups)"),
            ("end_ms = 2000", "end_ms = 1000", "end_ms"),
            ("4711_3", "a b", "job: 1 to 64"),
            ("4711_3", "", "job: 1 to 64"),
            ("4711_3", &"j".repeat(65), "job: 1 to 64"),
            ("first = 1000", "first = 2000", "speaks_for: 2000-1999"),
            ("abab", "ab", "deployment: 32"),
            (
                "root = false",
                "root = false\nadmin = true",
                "unknown field `admin`",
            ),
            ("[statement]", "[statement", "line"),
        ] {
            assert!(text.contains(from), "{from}");
            let e = Credential::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(e.contains(words), "{from} -> {to}: {e}");
            assert!(!e.contains(&secret[1..9]), "{e}");
        }
        for text in ["", "private = 3", "\u{0}", "[[statement]]"] {
            Credential::parse(text).unwrap_err();
        }
    }

    #[test]
    fn ranges_are_read() {
        let range: Uids = "1000-60000".parse().unwrap();
        assert_eq!(range.to_string(), "1000-60000");
        assert!(range.contains(1000) && range.contains(60_000));
        assert!(!range.contains(999) && !range.contains(60_001));
        assert_eq!("5".parse(), Ok(Uids { first: 5, last: 5 }));
        for bad in ["", "-", "1-", "-1", "2-1", "a-b", "1-2-3", "0-4294967296"] {
            let e = bad.parse::<Uids>().unwrap_err();
            assert!(e.contains("1000-60000"), "{bad}: {e}");
        }
    }
}
