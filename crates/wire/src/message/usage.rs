//! Bytes of users with quotas on bytes: data servers' counts, and the leases that the metadata server grants.
//!
//! A data server counts the lengths of its objects by owner, only for users with such quotas. It may let a user's
//! objects grow up to its lease, which is absolute: all bytes of the user on that server. So an answer that is lost or
//! duplicated has no effect.
use crate::bounded;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// Most users with quotas on bytes.
pub const MAX_BYTE_USERS: usize = 4096;
/// Changes of owners in one answer; after more of them a data server counts again.
pub const MAX_GIVEN: usize = 1024;
/// Files of one [`MetaRequest::Owners`](super::MetaRequest::Owners).
pub const MAX_OWNERS: usize = 1024;

/// Limits on the bytes of a user; `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteLimits {
    /// May be exceeded during the grace period.
    pub soft: Option<u64>,
    /// May not be exceeded.
    pub hard: Option<u64>,
}

/// Usage and limits of a user with a quota on bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserBytes {
    /// Bytes as last reported by the data servers, at most some seconds ago.
    pub used: u64,
    /// The limits in force.
    pub limits: ByteLimits,
    /// Whether they are the user's own; otherwise they are the default limits.
    pub own: bool,
    /// Whether all data servers have counted the user's objects.
    pub counted: bool,
    /// If the soft limit is exceeded: end of the grace period, milliseconds since the epoch.
    pub grace_ends_ms: Option<u64>,
}

impl UserBytes {
    /// Whether the soft limit is exceeded.
    pub fn is_over_soft(&self) -> bool {
        self.limits.soft.is_some_and(|soft| self.used > soft)
    }

    /// Whether the hard limit is reached.
    pub fn is_at_hard(&self) -> bool {
        self.limits.hard.is_some_and(|hard| self.used >= hard)
    }
}

/// Up to which change of owners a data server is informed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The incarnation of the metadata server.
    pub run: u64,
    /// Changes of owners received from this incarnation.
    pub given: u64,
}

/// A data server's report on one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The user.
    pub uid: u32,
    /// Bytes of the user's objects.
    pub used: u64,
    /// The lease that the server has.
    pub lease: u64,
    /// Bytes needed for a write that waits; 0: none waits.
    pub want: u64,
    /// Whether `used` covers all objects of the user.
    pub counted: bool,
}

/// The bytes of one user as a data server counts them, for `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedBytes {
    /// The user.
    pub uid: u32,
    /// The reported bytes.
    pub used: u64,
    /// Of these, bytes that no listing of objects shows: space preallocated beyond their ends, writes in progress, and
    /// removed objects that are still open.
    pub unlisted: u64,
    /// Whether `used` covers all objects of the user.
    pub counted: bool,
}

/// A data server's report, about once a second and when a write waits for a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The data server.
    pub server: u32,
    /// Drawn at each start of the data server.
    pub incarnation: u64,
    /// Increases with each report of an incarnation; a repetition has the number of its first copy.
    pub sequence: u64,
    /// Up to which change of owners it is informed.
    pub followed: Followed,
    /// Users whose quotas it knows.
    #[serde(deserialize_with = "bounded::at_most::<MAX_BYTE_USERS, _, _>")]
    pub users: Vec<Usage>,
}

/// The lease of a user at a data server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The user.
    pub uid: u32,
    /// Most bytes of the user on this server.
    pub lease: u64,
    /// Bytes on all data servers, as last reported.
    pub total: u64,
    /// The limit in force.
    pub limit: u64,
    /// Whether the request would exceed the limit.
    pub full: bool,
}

/// The answer to a [`UsageReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// The last change of owners in this answer.
    pub followed: Followed,
    /// Files that changed owners, oldest first. `None`: some changes are no longer known, and all objects must be
    /// counted again.
    #[serde(deserialize_with = "bounded::at_most_if_any::<MAX_GIVEN, _, _>")]
    pub given: Option<Vec<(FileId, u32)>>,
    /// All users with quotas on bytes.
    #[serde(deserialize_with = "bounded::at_most::<MAX_BYTE_USERS, _, _>")]
    pub users: Vec<Lease>,
    /// Whether the default limits apply to users without their own: a user not in `users` will be, before a file of
    /// that user is opened.
    pub everybody: bool,
}
