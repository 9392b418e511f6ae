//! A user in messages and credentials.
use crate::bounded;
use serde::{Deserialize, Serialize};

/// Most supplementary groups of a user.
pub const MAX_GROUPS: usize = 256;
/// User and group that replace root where it has no rights, as with NFS.
pub const NOBODY: u32 = 65_534;

/// A user as the kernel knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group of new files.
    pub gid: u32,
    /// Supplementary groups, at most [`MAX_GROUPS`].
    #[serde(deserialize_with = "bounded::at_most::<MAX_GROUPS, _, _>")]
    pub groups: Vec<u32>,
}

impl User {
    /// A user without special rights.
    pub fn nobody() -> User {
        User {
            uid: NOBODY,
            gid: NOBODY,
            groups: Vec::new(),
        }
    }
}
