//! Capabilities: sealed statements of the metadata server that a client may use one file for a limited time.
//!
//! Each data server of the file's layout has a seal of its own in it. The seal is keyed BLAKE3 over all other fields,
//! under the secret that the metadata server and this data server share ([`crate::KeyPair::shared_with`]). So a data
//! server checks a capability without asking anybody, and a client can neither make nor change one. A stolen data
//! server's key allows forgeries for that server only.
use crate::key::Key;
use crate::message::{Capability, ErrorKind, SEAL_LEN, Seal, WireError};
use penstock_layout::{FileId, Layout, ServerId};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

const PURPOSE: &str = "penstock 1 capability";
/// The key with which the metadata server seals and one data server checks.
#[derive(Debug, Clone)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// Derived from the secret that the two share.
    pub fn of(shared: &Key) -> SealKey {
        SealKey(blake3::derive_key(PURPOSE, shared.secret()))
    }

    fn seal(&self, digest: &blake3::Hash) -> Seal {
        let whole = blake3::keyed_hash(&self.0, digest.as_bytes());
        let mut seal = [0; SEAL_LEN];
        seal.copy_from_slice(&whole.as_bytes()[..SEAL_LEN]);
        Seal(seal)
    }
}

/// The metadata server's seal key for each data server.
pub type SealKeys = HashMap<ServerId, SealKey>;

/// What a capability allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read bytes.
    pub read: bool,
    /// Write bytes and change the length.
    pub write: bool,
    /// Remove the object.
    pub remove: bool,
}

impl Capability {
    /// Issues a capability for the servers of `layout` and the user `subject`. It is issued and expires at these
    /// milliseconds of the metadata server's time ([`crate::clock`]). Processes of the user `lend_to`, and of root, may
    /// get descriptors of the objects.
    pub fn grant(
        keys: &SealKeys,
        subject: u32,
        file: FileId,
        rights: Rights,
        life_ms: Range<u64>,
        lend_to: Option<u32>,
        layout: Layout,
    ) -> Result<Capability, WireError> {
        let mut capability = Capability {
            file,
            read: rights.read,
            write: rights.write,
            remove: rights.remove,
            issued_ms: life_ms.start,
            expires_ms: life_ms.end,
            subject,
            lend_to,
            layout,
            seals: Vec::new(),
        };
        let digest = capability.digest()?;
        // A removed server has no key, and cannot check it either.
        let seal = |server| {
            keys.get(server)
                .map_or(Seal([0; SEAL_LEN]), |key| key.seal(&digest))
        };
        capability.seals = capability.layout.servers.iter().map(seal).collect();
        Ok(capability)
    }

    /// Checks for data server `server` that it is genuine and not expired at `now_ms`.
    pub fn verify(&self, server: ServerId, key: &SealKey, now_ms: u64) -> Result<(), WireError> {
        self.verify_seal(server, key)?;
        self.verify_time(now_ms)
    }

    /// Checks that this deployment's metadata server issued it for `server`; it may have expired.
    pub fn verify_seal(&self, server: ServerId, key: &SealKey) -> Result<(), WireError> {
        let index = self.layout.index_of(server).ok_or_else(|| {
            WireError::new(
                ErrorKind::InvalidArgument,
                format!(
                    "file {} has no part on data server {}; its layout names other servers",
                    self.file.0, server.0
                ),
            )
        })?;
        let given = self.seals.get(index.0 as usize);
        let right = key.seal(&self.digest()?);
        // Constant-time comparison of `Hash`.
        let whole = |seal: &Seal| blake3::hash(&seal.0);
        if given.is_none_or(|given| whole(given) != whole(&right)) {
            return Err(WireError::new(
                ErrorKind::BadCapability,
                format!(
                    "capability for file {} was not given by this deployment's metadata server; open the file again",
                    self.file.0
                ),
            ));
        }
        Ok(())
    }

    /// Its lifetime when issued.
    pub fn lifetime(&self) -> Duration {
        Duration::from_millis(self.expires_ms.saturating_sub(self.issued_ms))
    }

    /// Checks that it is not expired at `now_ms`, for one that was verified before.
    pub fn verify_time(&self, now_ms: u64) -> Result<(), WireError> {
        if now_ms >= self.expires_ms {
            return Err(WireError::new(
                ErrorKind::ExpiredCapability,
                format!(
                    "capability for file {} expired {} ms ago; renew it at the metadata server",
                    self.file.0,
                    now_ms - self.expires_ms
                ),
            ));
        }
        Ok(())
    }

    /// Digest of all fields except the seals.
    fn digest(&self) -> Result<blake3::Hash, WireError> {
        let fields = (
            self.file,
            self.read,
            self.write,
            self.remove,
            self.issued_ms,
            self.expires_ms,
            self.subject,
            self.lend_to,
            &self.layout,
        );
        let bytes = postcard::to_stdvec(&fields).map_err(|e| {
            WireError::new(
                ErrorKind::Malformed,
                format!("cannot encode capability: {e}"),
            )
        })?;
        Ok(blake3::hash(&bytes))
    }
}
