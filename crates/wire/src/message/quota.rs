//! Limits on how many files and bytes users may have, and how many they have.
//!
//! A file, a directory or a symbolic link counts once, for its owner, however many names it has; a removed file counts
//! until it is closed. Root is never limited.
use super::usage::{ByteLimits, UserBytes};
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Users of one page.
pub const MAX_USERS: usize = 4096;
/// Users of one [`QuotaReply::Counted`] whose number was wrong.
pub const MAX_WRONG_COUNTS: usize = 1024;
/// How long a soft limit may be exceeded unless chosen: seven days, in seconds.
pub const GRACE_S: u64 = 7 * 86_400;
/// The longest time that may be chosen: ten years, in seconds.
pub const MAX_GRACE_S: u64 = 3653 * 86_400;

/// How many files a user may have; `None`: as many as there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimits {
    /// May be exceeded for the time of grace; then nothing new can be made.
    pub soft: Option<u64>,
    /// Is never exceeded.
    pub hard: Option<u64>,
    /// How long the soft limit may be exceeded, seconds.
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

/// One of the limits, as it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// No limit.
    Unlimited,
    /// So many files, or bytes.
    At(u64),
}

impl Bound {
    /// As it stands in [`FileLimits`].
    pub fn limit(self) -> Option<u64> {
        match self {
            Bound::Unlimited => None,
            Bound::At(most) => Some(most),
        }
    }
}

/// What to change about limits; `None` leaves a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsChange {
    /// The soft limit.
    pub soft: Option<Bound>,
    /// The hard limit.
    pub hard: Option<Bound>,
    /// Seconds, at most [`MAX_GRACE_S`].
    pub grace_s: Option<u64>,
    /// The soft limit on bytes.
    pub bytes_soft: Option<Bound>,
    /// The hard limit on bytes.
    pub bytes_hard: Option<Bound>,
}

/// What a user has, and may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFiles {
    /// The user.
    pub uid: u32,
    /// Files, directories and symbolic links.
    pub files: u64,
    /// What holds for the user.
    pub limits: FileLimits,
    /// They are the user's own; else those of all users without their own.
    pub own: bool,
    /// The soft limit is exceeded: when the time of grace ends, milliseconds since the epoch.
    pub grace_ends_ms: Option<u64>,
    /// `None`: there is no limit on the user's bytes, and they are not counted.
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

/// What is asked about limits. Other users than one's own need the admin right, and so does every change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaRequest {
    /// About the user of the connection. Answered by `Users`, as are the next four.
    Own,
    /// About a user.
    Of(u32),
    /// A page of all users who have files or limits of their own, by number.
    All {
        /// The last user of the page before.
        after: Option<u32>,
        /// At most so many, and at most [`MAX_USERS`].
        limit: u32,
    },
    /// Changes limits, which are durable when this is answered.
    Set {
        /// Whose; `None`: of all users without their own.
        user: Option<u32>,
        /// On top of what holds for the user now.
        change: LimitsChange,
    },
    /// A user has the limits of all again; those of all are gone.
    Remove {
        /// Whose; `None`: of all users without their own.
        user: Option<u32>,
    },
    /// For `check`: counts the files of all users and compares. Takes about a second, and is sent again until it is
    /// through. Answered by `Counted`.
    Count {
        /// What the last answer said.
        count: Option<u64>,
        /// Numbers that are wrong are put right.
        repair: bool,
    },
}

/// A number of files that was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongCount {
    /// The user.
    pub uid: u32,
    /// As it was noted.
    pub noted: u64,
    /// As it was counted.
    pub counted: u64,
}

/// What is answered to a [`QuotaRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaReply {
    /// Users and limits.
    Users {
        /// Those asked for.
        #[serde(deserialize_with = "bounded::at_most::<MAX_USERS, _, _>")]
        users: Vec<UserFiles>,
        /// There are more.
        more: bool,
        /// What holds for users without limits of their own.
        default: FileLimits,
        /// The same for bytes.
        default_bytes: ByteLimits,
        /// All files were counted; until then numbers are 0 and nothing is limited.
        counted: bool,
    },
    /// A count.
    Counted {
        /// To be sent with the next request. `None`: another count is under way, which has to end first.
        count: Option<u64>,
        /// It is through.
        through: bool,
        /// Numbers that are wrong, if it is through.
        #[serde(deserialize_with = "bounded::at_most::<MAX_WRONG_COUNTS, _, _>")]
        wrong: Vec<WrongCount>,
        /// There are more than are told.
        more: bool,
    },
}
