//! Capabilities: the metadata server's signed word that a client may use one file for a while.
//!
//! The signature is keyed BLAKE3 with the server key over all other fields, so that a data server
//! checks it without asking anyone and a client can neither make nor change one.
use crate::key::Key;
use crate::message::{Capability, ErrorKind, WireError};
use penstock_layout::{FileId, Layout};
use std::ops::Range;
use std::time::Duration;

const PURPOSE: &str = "penstock 1 capability";

/// What a capability allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read bytes.
    pub read: bool,
    /// Write bytes, change the length.
    pub write: bool,
    /// Remove the object.
    pub remove: bool,
}

impl Capability {
    /// Signed with the server key, for the user `subject`; given and ended at these milliseconds of the metadata server's time ([`crate::clock`]).
    /// Processes of the user `lend_to`, and root's, may get descriptors of the objects.
    pub fn sign(
        key: &Key,
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
            mac: [0; 32],
        };
        capability.mac = *capability.seal(key)?.as_bytes();
        Ok(capability)
    }

    /// Genuine and not expired at `now_ms`.
    pub fn verify(&self, key: &Key, now_ms: u64) -> Result<(), WireError> {
        self.verify_seal(key)?;
        self.verify_time(now_ms)
    }

    /// Signed by this deployment's metadata server; it may have expired.
    pub fn verify_seal(&self, key: &Key) -> Result<(), WireError> {
        // `blake3::Hash` compares in constant time.
        if self.seal(key)? != blake3::Hash::from_bytes(self.mac) {
            return Err(WireError::new(
                ErrorKind::BadCapability,
                format!(
                    "capability for file {} was not signed by this deployment's metadata server; open the file again",
                    self.file.0
                ),
            ));
        }
        Ok(())
    }

    /// How long it was made to last.
    pub fn lifetime(&self) -> Duration {
        Duration::from_millis(self.expires_ms.saturating_sub(self.issued_ms))
    }

    /// Not expired at `now_ms`; for one that was verified before.
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

    fn seal(&self, key: &Key) -> Result<blake3::Hash, WireError> {
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
        Ok(key.mac(PURPOSE, &[&bytes]))
    }
}
