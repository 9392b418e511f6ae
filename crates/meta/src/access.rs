//! Callers, and what mode bits allow them.
use crate::error::{Result, error, shown};
use crate::node::Node;
use penstock_layout::ServerId;
use penstock_wire::credential::Statement;
use penstock_wire::message::{ErrorKind, User};

/// Mode bit: only owners may remove or rename entries of this directory.
const STICKY: u32 = 0o1000;
/// Mode bit of a directory: new nodes in it get its group.
const SET_GID: u32 = 0o2000;

/// Access that a caller requests; the values are those of the mode bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Read = 4,
    Write = 2,
    /// Search, for directories.
    Execute = 1,
}

/// The users on whose behalf a caller may make requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Delegation {
    #[default]
    Nobody,
    Everybody,
    /// Those of a credential.
    Stated(Box<Statement>),
}

impl Delegation {
    /// The user whose rights a request on behalf of `user` has, if the caller may make it.
    pub fn acts_for(&self, user: User) -> Option<User> {
        match self {
            Delegation::Nobody => None,
            Delegation::Everybody => Some(user),
            Delegation::Stated(statement) => statement.acts_for(user),
        }
    }
}

/// The authenticated caller of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Root or an administrator: mode bits do not restrict them.
    pub privileged: bool,
    /// Users on whose behalf requests may be made; all users for root and the deployment's owner.
    pub delegation: Delegation,
    /// Whether it may list every file and stop the server.
    pub admin: bool,
    /// A data server, which is no user.
    pub server: Option<ServerId>,
}

impl Caller {
    /// The user on whose behalf a request is made.
    pub fn of(user: User) -> Caller {
        Caller {
            privileged: user.uid == 0,
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            ..Caller::default()
        }
    }

    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    pub fn owns(&self, node: &Node) -> bool {
        self.privileged || self.uid == node.uid
    }

    pub fn may(&self, node: &Node, want: Want) -> bool {
        let shift = if self.uid == node.uid {
            6
        } else if self.is_in(node.gid) {
            3
        } else {
            0
        };
        self.privileged || node.mode >> shift & want as u32 != 0
    }

    /// Checks access; the error names the path and the missing right.
    pub fn require(&self, node: &Node, want: Want, path: &str) -> Result<()> {
        if self.may(node, want) {
            return Ok(());
        }
        let (what, letter) = match want {
            Want::Read => ("read", 'r'),
            Want::Write => ("write", 'w'),
            Want::Execute => ("search", 'x'),
        };
        Err(error(
            ErrorKind::Permission,
            format!(
                "user {} may not {what} \"{}\" on the way to or at \"{}\" (mode {:04o}, owner {}:{}); ask the owner for `{letter}`",
                self.uid,
                shown(&node.name),
                shown(path),
                node.mode,
                node.uid,
                node.gid
            ),
        ))
    }

    pub fn require_owner(&self, node: &Node, path: &str) -> Result<()> {
        if self.owns(node) {
            return Ok(());
        }
        Err(error(
            ErrorKind::NotOwner,
            format!(
                "user {} may not change \"{}\", which belongs to user {}; ask its owner",
                self.uid,
                shown(path),
                node.uid
            ),
        ))
    }

    /// Checks that `child` may be removed from `directory`.
    pub fn require_removal(&self, directory: &Node, child: &Node, path: &str) -> Result<()> {
        self.require(directory, Want::Write, path)?;
        self.require(directory, Want::Execute, path)?;
        if directory.mode & STICKY == 0 || self.owns(directory) {
            return Ok(());
        }
        self.require_owner(child, path)
    }

    /// Checks that a node may be added to `directory`.
    pub fn require_addition(&self, directory: &Node, path: &str) -> Result<()> {
        self.require(directory, Want::Write, path)?;
        self.require(directory, Want::Execute, path)
    }

    /// Group and inherited mode bits of a new node in `directory`.
    pub fn group_in(&self, directory: &Node, is_directory: bool) -> (u32, u32) {
        if directory.mode & SET_GID == 0 {
            (self.gid, 0)
        } else {
            (directory.gid, if is_directory { SET_GID } else { 0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::ROOT;
    use penstock_wire::message::NodeKind;

    fn node(mode: u32) -> Node {
        Node {
            kind: NodeKind::File,
            mode,
            uid: 10,
            gid: 20,
            nlink: 1,
            ctime_ns: 0,
            mtime_ns: 0,
            atime_ns: 0,
            parent: ROOT,
            name: "f".into(),
            ..Node::new(NodeKind::File)
        }
    }

    /// All modes × five kinds of caller × three kinds of access, against the rule written out.
    #[test]
    fn permission_matrix() {
        let caller = |uid, gid, privileged| Caller {
            uid,
            gid,
            privileged,
            ..Caller::default()
        };
        let with_group = Caller {
            groups: vec![7, 20],
            ..caller(11, 21, false)
        };
        for mode in 0..0o1000 {
            let n = node(mode);
            for (who, triplet) in [
                (caller(10, 20, false), mode >> 6),
                (caller(10, 99, false), mode >> 6),
                (caller(11, 20, false), mode >> 3),
                (with_group.clone(), mode >> 3),
                (caller(11, 21, false), mode),
                (caller(0, 0, true), 7),
            ] {
                for want in [Want::Read, Want::Write, Want::Execute] {
                    let allowed = triplet & want as u32 != 0;
                    assert_eq!(who.may(&n, want), allowed, "{mode:o} {who:?} {want:?}");
                    assert_eq!(who.require(&n, want, "/f").is_ok(), allowed);
                }
            }
        }
    }

    #[test]
    fn sticky_directories_protect_entries_of_others() {
        let caller = |uid| Caller {
            uid,
            gid: 1,
            ..Caller::default()
        };
        let mut directory = node(0o1777);
        let mut child = node(0o666);
        child.uid = 11;
        assert!(
            caller(11)
                .require_removal(&directory, &child, "/d/f")
                .is_ok()
        );
        assert!(
            caller(10)
                .require_removal(&directory, &child, "/d/f")
                .is_ok()
        );
        assert!(
            caller(12)
                .require_removal(&directory, &child, "/d/f")
                .is_err()
        );
        directory.mode = 0o777;
        assert!(
            caller(12)
                .require_removal(&directory, &child, "/d/f")
                .is_ok()
        );
        directory.mode = 0o755;
        assert!(
            caller(11)
                .require_removal(&directory, &child, "/d/f")
                .is_err()
        );
    }
}
