//! What a capability says; how it is sealed and checked: [`crate::capability`].
use crate::bounded;
use penstock_layout::{FileId, Layout};
use serde::{Deserialize, Serialize};

/// Bytes of a seal.
pub const SEAL_LEN: usize = 16;

/// That the metadata server has said it, for one data server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal(pub [u8; SEAL_LEN]);

/// Given by the metadata server, with a seal for each data server ([`crate::capability`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The file that it is for.
    pub file: FileId,
    /// May read.
    pub read: bool,
    /// May write and change the length.
    pub write: bool,
    /// May remove the object (given by unlink).
    pub remove: bool,
    /// When it was given, by the metadata server's time: milliseconds ([`crate::clock`]).
    pub issued_ms: u64,
    /// When it ends, by the same time.
    pub expires_ms: u64,
    /// The user that it was given to: nobody else may use it.
    pub subject: u32,
    /// The user whose processes may get descriptors of the objects, and root's; nobody else ever does.
    pub lend_to: Option<u32>,
    /// Where the file's bytes lie.
    pub layout: Layout,
    /// One for each server of the layout, in its order.
    #[serde(deserialize_with = "bounded::at_most::<{ Layout::MAX_SERVERS }, _, _>")]
    pub seals: Vec<Seal>,
}
