//! The bytes of users that have limits on bytes: what data servers count, and the leases that the metadata server gives them.
//!
//! A data server counts the lengths of its objects by owner, for users with such limits only. It may let a user's objects grow to
//! its lease, which is absolute: all bytes of the user on that server. So an answer that is lost or comes twice changes nothing.
use crate::bounded;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// Users with limits on bytes.
pub const MAX_BYTE_USERS: usize = 4096;
/// Changes of owners in one answer; after more of them a data server counts again.
pub const MAX_GIVEN: usize = 1024;
/// Files of one [`MetaRequest::Owners`](super::MetaRequest::Owners).
pub const MAX_OWNERS: usize = 1024;

/// How many bytes a user may have; `None`: as many as there is room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteLimits {
    /// May be exceeded for the time of grace.
    pub soft: Option<u64>,
    /// May not be exceeded.
    pub hard: Option<u64>,
}

/// The bytes of a user who has a limit on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserBytes {
    /// As the data servers told last, at most some seconds ago.
    pub used: u64,
    /// What holds for the user.
    pub limits: ByteLimits,
    /// They are the user's own; else those of all users without their own.
    pub own: bool,
    /// All data servers have counted the user's objects.
    pub counted: bool,
    /// The soft limit is exceeded: when the time of grace ends, milliseconds since the epoch.
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

/// How far a data server has followed the changes of owners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The run of the metadata server.
    pub run: u64,
    /// Changes of owners that are known, of this run.
    pub given: u64,
}

/// What a data server tells of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The user.
    pub uid: u32,
    /// Bytes of the user's objects.
    pub used: u64,
    /// The lease that the server has.
    pub lease: u64,
    /// What it would need for a write that waits; 0: none waits.
    pub want: u64,
    /// All objects of the user are in `used`.
    pub counted: bool,
}

/// The bytes of one user as a data server counts them, for `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedBytes {
    /// The user.
    pub uid: u32,
    /// What the metadata server is told.
    pub used: u64,
    /// Of these, what no listing of objects shows: space preallocated beyond their ends, writes under way, and removed objects
    /// that are still open.
    pub unlisted: u64,
    /// All objects of the user are in `used`.
    pub counted: bool,
}

/// What a data server tells, about once a second and when a write waits for a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The data server.
    pub server: u32,
    /// Random, for each start of the data server.
    pub incarnation: u64,
    /// Rises with each report of an incarnation; a repetition has its first copy's.
    pub sequence: u64,
    /// Of changes of owners.
    pub followed: Followed,
    /// Users whose limits it knows of.
    #[serde(deserialize_with = "bounded::at_most::<MAX_BYTE_USERS, _, _>")]
    pub users: Vec<Usage>,
}

/// What a data server may let a user have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The user.
    pub uid: u32,
    /// All bytes of the user on this server.
    pub lease: u64,
    /// Bytes on all data servers, as they told last.
    pub total: u64,
    /// The limit that holds now.
    pub limit: u64,
    /// What is wanted would exceed the limit.
    pub full: bool,
}

/// The answer to a [`UsageReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// Up to here the changes of owners are told.
    pub followed: Followed,
    /// Files that changed their owners, oldest first. `None`: not all are known any more, all objects have to be counted again.
    #[serde(deserialize_with = "bounded::at_most_if_any::<MAX_GIVEN, _, _>")]
    pub given: Option<Vec<(FileId, u32)>>,
    /// All users with limits on bytes.
    #[serde(deserialize_with = "bounded::at_most::<MAX_BYTE_USERS, _, _>")]
    pub users: Vec<Lease>,
    /// Users without limits of their own have some: whoever is not among `users` will be, before a file of that user is opened.
    pub everybody: bool,
}
