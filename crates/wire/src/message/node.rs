//! Requests about nodes by their id, for whoever acts for others: a mount.
//!
//! A mount knows directories and files by id, as the kernel does, and serves the users of its host. So these requests
//! carry the user that they are made for. On its host the server takes them from root and from the owner of the deployment, over
//! TCP for the users of a credential ([`crate::credential`]); every other connection is the user that the handshake has
//! found out, and speaks in paths.
use super::attributes::{Attributes, CreateOptions, NodeKind};
use super::capability::Capability;
use crate::bounded;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// Bytes of the value of one extended attribute.
pub const MAX_XATTR_VALUE: usize = 4096;
/// Bytes of all extended attributes of a node, names and values.
pub const MAX_XATTRS: usize = 16 << 10;
/// Bytes of the path in a symbolic link.
pub const MAX_TARGET: usize = 4095;
/// Names of one file.
pub const MAX_LINKS: usize = 1000;
/// Files of one [`NodeRequest::Keep`].
pub const MAX_KEEP: usize = 1024;
/// Extended attribute that tells and sets striping: of a file that has no bytes yet, or what new files of a directory
/// get. `unit=65536 count=4 start=0`, each part optional when set.
pub const LAYOUT_XATTR: &str = "user.penstock.layout";

/// Where listings show files that have lost their last name and are still open; no path leads there.
pub const REMOVED_PATH: &str = "/(removed, still open)/";

/// What SetAttr changes; `None` leaves a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last change of contents.
    pub mtime: Option<When>,
    /// Last access.
    pub atime: Option<When>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// The server's clock. Who may write may do this.
    Now,
    /// Nanoseconds since the epoch. For owners.
    At(i64),
}

/// How an extended attribute may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// New or not.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// What an advisory lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvisoryMode {
    /// Other owners' exclusive locks.
    Shared,
    /// Other owners' locks.
    Exclusive,
    /// No lock: what the owner holds of the range is given up.
    Free,
}

/// By which call an advisory lock is taken. As on a local file system, locks of the two calls do not see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvisoryFamily {
    /// It could not be found out, or does not matter: it is taken for both.
    Any,
    /// flock(2).
    Flock,
    /// fcntl(2), of the process or of the open file.
    Fcntl,
}

impl AdvisoryFamily {
    /// Whether locks of the two can be in each other's way.
    pub fn meets(self, other: AdvisoryFamily) -> bool {
        self == other || self == AdvisoryFamily::Any || other == AdvisoryFamily::Any
    }
}

/// A lock of flock(2) or fcntl(2), which only those who ask for locks heed. It ends with the connection over which it
/// was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// Whose, among the owners of its connection.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
    /// What it keeps out.
    pub mode: AdvisoryMode,
    /// Among which locks.
    pub family: AdvisoryFamily,
    /// The process that asked, for people.
    pub pid: u32,
}

/// What is asked about an advisory lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvisoryHow {
    /// It is taken, changed or given up if that can be done now.
    Try,
    /// Nothing changes: could it be taken?
    Test,
    /// Like `Try`; if it cannot be had, its owner counts as waiting for it, until a `Wait` for it is answered by `Done` or
    /// it is asked to `Leave`. Answered by `Deadlock` if the owner would wait for itself.
    Wait,
    /// It was held over an earlier connection and is taken again, before others may have it after a restart.
    Claim,
    /// Its owner does not wait for it any more.
    Leave,
}

/// Longest that [`NodeRequest::AwaitUnlock`] waits.
pub const MAX_UNLOCK_WAIT_MS: u32 = 1000;

/// A request about nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRequest {
    /// What a name in a directory stands for. Answered by `Node`.
    Lookup {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
    },
    /// Answered by `Node`.
    Stat {
        /// Which.
        id: FileId,
    },
    /// Answered by `Opened`.
    Open {
        /// A file.
        id: FileId,
        /// Right to read.
        read: bool,
        /// Right to write.
        write: bool,
        /// It is opened to be executed: that permission will do instead of the one to read.
        execute: bool,
    },
    /// Makes and opens a file, or opens the one that is there. Answered by `Opened`.
    Create {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
        /// What it looks like.
        options: CreateOptions,
        /// Right to read.
        read: bool,
        /// Right to write.
        write: bool,
        /// It must not exist.
        exclusive: bool,
    },
    /// Answered by `Node`.
    Mkdir {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
        /// Permission bits.
        mode: u32,
    },
    /// Answered by `Node`.
    Symlink {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
        /// The path in it, at most [`MAX_TARGET`] bytes.
        target: String,
    },
    /// A further name of a file. Answered by `Node`.
    Link {
        /// The file.
        id: FileId,
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
    },
    /// Answered by `Unlinked`.
    Unlink {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
        /// The caller has files open: one that loses its last name stays until `Reap`, or for a while after
        /// this connection has ended.
        keep: bool,
    },
    /// Answered by `Done`.
    Rmdir {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
    },
    /// Answered by `Unlinked`.
    Rename {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
        /// The new directory.
        new_parent: FileId,
        /// The new name.
        new_name: String,
        /// Nothing may have the new name.
        exclusive: bool,
        /// As for `Unlink`.
        keep: bool,
    },
    /// A kept file is closed. Answered by `Unlinked`.
    Reap {
        /// A file without names.
        id: FileId,
    },
    /// A page of a directory. Answered by `Entries`.
    Readdir {
        /// The directory.
        id: FileId,
        /// The last name of the page before.
        after: Option<String>,
        /// At most so many.
        limit: u32,
    },
    /// Answered by `Node`.
    SetAttr {
        /// Which.
        id: FileId,
        /// What to change.
        change: Change,
    },
    /// Answered by `Xattr`.
    GetXattr {
        /// Of which node.
        id: FileId,
        /// Its name.
        name: String,
    },
    /// Answered by `Xattrs`.
    ListXattr {
        /// Of which node.
        id: FileId,
    },
    /// Answered by `Done`.
    SetXattr {
        /// Of which node.
        id: FileId,
        /// Its name.
        name: String,
        /// At most [`MAX_XATTR_VALUE`] bytes.
        value: Vec<u8>,
        /// Whether it may exist.
        mode: XattrMode,
    },
    /// Answered by `Done`.
    RemoveXattr {
        /// Of which node.
        id: FileId,
        /// Its name.
        name: String,
    },
    /// A node and the right to ask data servers for a file's length and time. Answered by `Look`.
    Look {
        /// Which.
        id: FileId,
    },
    /// Takes, changes or gives up an advisory lock. Answered by `Done`; by `LockedBy` or `Deadlock`, and no lock has changed.
    Lock {
        /// Which file.
        id: FileId,
        /// What its owner wants to hold.
        lock: Advisory,
        /// What is to be done.
        how: AdvisoryHow,
    },
    /// Answered by `GivenUp` when some lock of some file has been given up since the count was `seen`, or in time.
    AwaitUnlock {
        /// From `LockedBy` or `GivenUp`.
        seen: u64,
        /// At most [`MAX_UNLOCK_WAIT_MS`].
        wait_ms: u32,
    },
    /// The caller has these files open: those without a name stay until it says `Reap`, as if it had removed them over
    /// this connection. Answered by `Kept`.
    Keep {
        /// At most [`MAX_KEEP`].
        #[serde(deserialize_with = "bounded::at_most::<MAX_KEEP, _, _>")]
        ids: Vec<FileId>,
    },
}

impl NodeRequest {
    /// Whether a second copy of it could do harm; see [`MetaRequest::changes`](super::MetaRequest::changes).
    pub fn changes(&self) -> bool {
        match self {
            NodeRequest::Create { .. }
            | NodeRequest::Mkdir { .. }
            | NodeRequest::Symlink { .. }
            | NodeRequest::Link { .. }
            | NodeRequest::Unlink { .. }
            | NodeRequest::Rmdir { .. }
            | NodeRequest::Rename { .. }
            | NodeRequest::Reap { .. }
            | NodeRequest::SetAttr { .. }
            | NodeRequest::SetXattr { .. }
            | NodeRequest::RemoveXattr { .. } => true,
            NodeRequest::Lookup { .. }
            | NodeRequest::Stat { .. }
            | NodeRequest::Look { .. }
            | NodeRequest::Open { .. }
            | NodeRequest::Keep { .. }
            | NodeRequest::Readdir { .. }
            | NodeRequest::GetXattr { .. }
            | NodeRequest::ListXattr { .. }
            | NodeRequest::Lock { .. }
            | NodeRequest::AwaitUnlock { .. } => false,
        }
    }
}

/// What is answered to a [`NodeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeReply {
    /// A node.
    Node(Attributes),
    /// A node; for a file, what lets its data servers be asked.
    Look {
        /// The node.
        attributes: Attributes,
        /// Without the right to read or write.
        capability: Option<Capability>,
    },
    /// An open file.
    Opened {
        /// The file.
        attributes: Attributes,
        /// To show to data servers.
        capability: Capability,
        /// It did not exist before.
        created: bool,
    },
    /// A name is gone.
    Unlinked {
        /// The file that has lost its last name.
        file: Option<FileId>,
        /// To remove its objects. `None`: it is kept.
        capability: Option<Capability>,
    },
    /// A page of a directory.
    Entries {
        /// Names and what they stand for.
        entries: Vec<(String, Attributes)>,
        /// There are more.
        more: bool,
    },
    /// The value of an extended attribute.
    Xattr(Vec<u8>),
    /// Names of extended attributes.
    Xattrs(Vec<String>),
    /// It is done.
    Done,
    /// The advisory lock conflicts with one of another owner.
    LockedBy {
        /// That one.
        lock: Advisory,
        /// Locks given up so far.
        given_up: u64,
    },
    /// Locks given up so far, of all files.
    GivenUp(u64),
    /// Those in the way of the advisory lock wait, one for the other, for what its owner holds.
    Deadlock,
    /// Those of the files that have no name any more.
    Kept(Vec<FileId>),
}

impl NodeKind {
    /// The type bits of a mode (`S_IFMT`).
    pub fn type_bits(self) -> u32 {
        match self {
            NodeKind::File => 0o100_000,
            NodeKind::Directory => 0o040_000,
            NodeKind::Symlink => 0o120_000,
        }
    }
}
