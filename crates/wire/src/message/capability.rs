//! The content of a capability; [`crate::capability`] seals and checks it.
use crate::bounded;
use penstock_layout::{FileId, Layout};
use serde::{Deserialize, Serialize};

/// Bytes of a seal.
pub const SEAL_LEN: usize = 16;

/// Proof for one data server that the metadata server issued it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal(pub [u8; SEAL_LEN]);

/// Issued by the metadata server, with a seal for each data server ([`crate::capability`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The file that it is for.
    pub file: FileId,
    /// Whether it allows reading.
    pub read: bool,
    /// Whether it allows writing and changing the length.
    pub write: bool,
    /// Whether it allows removing the object (issued by unlink).
    pub remove: bool,
    /// Time of issue by the metadata server's time: milliseconds ([`crate::clock`]).
    pub issued_ms: u64,
    /// Time of expiry, likewise.
    pub expires_ms: u64,
    /// The user that it was issued for; nobody else may use it.
    pub subject: u32,
    /// The user whose processes, besides root's, may get descriptors of the objects.
    pub lend_to: Option<u32>,
    /// The file's layout.
    pub layout: Layout,
    /// One for each server of the layout, in its order.
    #[serde(deserialize_with = "bounded::at_most::<{ Layout::MAX_SERVERS }, _, _>")]
    pub seals: Vec<Seal>,
}
