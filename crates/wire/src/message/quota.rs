//! Quotas on files and bytes of users, and their usage.
//!
//! A file, a directory or a symbolic link counts once, for its owner, however many names it has. An open-unlinked file
//! counts until it is closed. Root has no quota.
use super::usage::{ByteLimits, UserBytes};
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Users of one page.
pub const MAX_USERS: usize = 4096;
/// Users with a wrong count in one [`QuotaReply::Counted`].
pub const MAX_WRONG_COUNTS: usize = 1024;
/// Default grace period of a soft limit: seven days, in seconds.
pub const GRACE_S: u64 = 7 * 86_400;
/// Longest grace period: ten years, in seconds.
pub const MAX_GRACE_S: u64 = 3653 * 86_400;

/// Limits on the files of a user; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimits {
    /// May be exceeded during the grace period; after that nothing new can be made.
    pub soft: Option<u64>,
    /// Is never exceeded.
    pub hard: Option<u64>,
    /// Grace period of the soft limit, seconds.
    pub grace_s: u64,
}

impl Default for FileLimits {
    /// No limits.
    fn default() -> FileLimits {
        FileLimits {
            soft: None,
            hard: None,
            grace_s: GRACE_S,
        }
    }
}

/// A new value of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// No limit.
    Unlimited,
    /// This many files or bytes.
    At(u64),
}

impl Bound {
    /// Its form in [`FileLimits`].
    pub fn limit(self) -> Option<u64> {
        match self {
            Bound::Unlimited => None,
            Bound::At(most) => Some(most),
        }
    }
}

/// Changes of limits; `None` leaves a field unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsChange {
    /// The soft limit.
    pub soft: Option<Bound>,
    /// The hard limit.
    pub hard: Option<Bound>,
    /// Grace period in seconds, at most [`MAX_GRACE_S`].
    pub grace_s: Option<u64>,
    /// The soft limit on bytes.
    pub bytes_soft: Option<Bound>,
    /// The hard limit on bytes.
    pub bytes_hard: Option<Bound>,
}

/// Usage and limits of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFiles {
    /// The user.
    pub uid: u32,
    /// Files, directories and symbolic links.
    pub files: u64,
    /// The limits in force.
    pub limits: FileLimits,
    /// Whether they are the user's own; otherwise they are the default limits.
    pub own: bool,
    /// If the soft limit is exceeded: end of the grace period, milliseconds since the epoch.
    pub grace_ends_ms: Option<u64>,
    /// `None`: the user has no limit on bytes, and they are not counted.
    pub bytes: Option<UserBytes>,
}

impl UserFiles {
    /// Whether the soft limit is exceeded.
    pub fn is_over_soft(&self) -> bool {
        self.limits.soft.is_some_and(|soft| self.files > soft)
    }

    /// Whether the hard limit is reached.
    pub fn is_at_hard(&self) -> bool {
        self.limits.hard.is_some_and(|hard| self.files >= hard)
    }
}

/// A request about quotas. Requests about other users, and all changes, need the admin right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaRequest {
    /// About the user of the connection. Answered by `Users`, as are the next four.
    Own,
    /// About a user.
    Of(u32),
    /// A page of all users with files or limits of their own, by number.
    All {
        /// The last user of the page before.
        after: Option<u32>,
        /// Most users of the page, and at most [`MAX_USERS`].
        limit: u32,
    },
    /// Changes limits, which are durable when this is answered.
    Set {
        /// The user; `None`: the default limits.
        user: Option<u32>,
        /// Applied to the limits in force.
        change: LimitsChange,
    },
    /// Removes a user's own limits, so that the default limits apply; or removes the default limits.
    Remove {
        /// The user; `None`: the default limits.
        user: Option<u32>,
    },
    /// For `check`: counts the files of all users and compares. Takes about a second, and is repeated until it is
    /// complete. Answered by `Counted`.
    Count {
        /// The number from the last answer.
        count: Option<u64>,
        /// Whether wrong counts are corrected.
        repair: bool,
    },
}

/// A wrong count of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongCount {
    /// The user.
    pub uid: u32,
    /// The stored count.
    pub noted: u64,
    /// The actual count.
    pub counted: u64,
}

/// An answer to a [`QuotaRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaReply {
    /// Users and limits.
    Users {
        /// The requested users.
        #[serde(deserialize_with = "bounded::at_most::<MAX_USERS, _, _>")]
        users: Vec<UserFiles>,
        /// There are more.
        more: bool,
        /// The default limits on files.
        default: FileLimits,
        /// The default limits on bytes.
        default_bytes: ByteLimits,
        /// Whether all files have been counted; until then counts are 0 and no limit is enforced.
        counted: bool,
    },
    /// Progress of a count.
    Counted {
        /// The number for the next request. `None`: another count is in progress and must end first.
        count: Option<u64>,
        /// Whether it is complete.
        through: bool,
        /// Wrong counts, if it is complete.
        #[serde(deserialize_with = "bounded::at_most::<MAX_WRONG_COUNTS, _, _>")]
        wrong: Vec<WrongCount>,
        /// Whether there are more than listed.
        more: bool,
    },
}
