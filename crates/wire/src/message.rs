//! The messages. One frame = header + postcard body + at most [`MAX_PAYLOAD`] payload bytes beside it.
//! Large transfers are several frames of one request id with the MORE flag; the status comes with the
//! last, so that an error in the middle is a reply and not a broken connection.
//!
//! Here is what both kinds of server share; `data` and `meta` have the requests and replies of each.
//! The order of variants is part of the protocol: new ones go to the end, with a new version.
mod control;
mod data;
mod meta;
mod node;
mod program;
mod quota;
mod usage;

pub use control::*;
pub use data::*;
pub use meta::*;
pub use node::*;
pub use program::*;
pub use quota::*;
pub use usage::*;

use crate::capability::Seal;
use penstock_layout::{FileId, Layout};
use serde::{Deserialize, Serialize};

/// Bytes of one encoded message.
pub const MAX_BODY: usize = 1 << 20;
/// Bytes of file data beside one message.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Settings in one `Tune`.
pub const MAX_SETTINGS: usize = MAX_LIST;
/// Regions in one list request (DT II.D).
pub const MAX_LIST: usize = 64;
/// Bytes of one encoded loop on the wire.
pub const MAX_LOOP: usize = 1 << 19;
/// Findings of one verification that are told.
pub const MAX_FINDINGS: usize = 1024;
/// Slots of one session: so many changes of names can be under way at once.
pub const SLOTS: u16 = 64;
/// Requests in one batch to the metadata server.
pub const MAX_BATCH: usize = 4096;
/// Objects in one page of a listing.
pub const MAX_OBJECTS: usize = 8192;

/// Who caused a request; travels in every header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// Parallel job.
    pub program: u64,
    /// Rank in it.
    pub rank: u32,
    /// The rank's MPI calls, counted.
    pub mpi_call: u64,
    /// Its calls of the client library, counted.
    pub client_call: u64,
}

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
    #[serde(deserialize_with = "crate::bounded::seals")]
    pub seals: Vec<Seal>,
}

/// Which generations of keys a server accepts ([`crate::deployment::keys`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysHeld {
    /// The one that it uses itself.
    pub current: u32,
    /// One more, for a while.
    pub other: Option<u32>,
}

/// Why a request failed; each kind has one errno and one MPI class (docs/semantics.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// No such file, directory or object.
    NotFound,
    /// It is there already.
    Exists,
    /// A part of the path is no directory.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// Mode bits, rights of a capability or the connection's role forbid it.
    Permission,
    /// The store or the server takes no writes.
    ReadOnly,
    /// The store is full.
    NoSpace,
    /// The request makes no sense.
    InvalidArgument,
    /// The two sides hold different keys.
    BadKey,
    /// The capability was not signed by this deployment.
    BadCapability,
    /// The capability was good; renew it.
    ExpiredCapability,
    /// Bytes that are not the protocol.
    Malformed,
    /// Beyond a limit.
    TooLarge,
    /// Stored data or metadata is not what was stored.
    Damaged,
    /// Others kept the range locked for too long.
    LockTimeout,
    /// The lock was taken away after it had not been used while others waited.
    LockLost,
    /// A limit on connections, handles or waiters is reached; try again later.
    Busy,
    /// Not possible here.
    Unsupported,
    /// The system failed a call, or a peer cannot be reached.
    Io,
    /// The server is about to stop.
    ShuttingDown,
    /// No common protocol version.
    Version,
    /// Only the owner, or root, may do it (EPERM).
    NotOwner,
    /// A name or path is too long.
    NameTooLong,
    /// Symbolic links lead round in a circle.
    Loop,
    /// A file has no more room for names.
    TooManyLinks,
    /// No such extended attribute.
    NoAttribute,
    /// A name is no text (UTF-8).
    NotText,
    /// The server does not know the session, or no longer: nothing was carried out now.
    NoSession,
    /// The user has as many files as the limits allow.
    Quota,
}

/// What a server's audit log counts, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Acts that were refused.
    pub refused: u64,
    /// Records that found no room.
    pub dropped: u64,
    /// Writes that failed.
    pub write_errors: u64,
}

/// A server's no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct WireError {
    /// For programs.
    pub kind: ErrorKind,
    /// What, where, and what to do.
    pub message: String,
}
