//! A user, as messages and credentials name one.
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Supplementary groups of a user that are looked at.
pub const MAX_GROUPS: usize = 256;
/// User and group that stand for root where it has no rights, as with NFS.
pub const NOBODY: u32 = 65_534;

/// A user as the kernel knows one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group of what the user makes.
    pub gid: u32,
    /// Further groups, at most [`MAX_GROUPS`].
    #[serde(deserialize_with = "bounded::at_most::<MAX_GROUPS, _, _>")]
    pub groups: Vec<u32>,
}

impl User {
    /// Who has no more rights than everybody.
    pub fn nobody() -> User {
        User {
            uid: NOBODY,
            gid: NOBODY,
            groups: Vec::new(),
        }
    }
}
