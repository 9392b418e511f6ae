//! Requests about nodes by id, on behalf of users: for mounts.
//!
//! A mount knows directories and files by id, as the kernel does, and serves the users of its host. So these requests
//! name the user on whose behalf they are made. On its host the server accepts them from root and the owner of the
//! deployment, over TCP for the users of a credential ([`crate::credential`]). Every other connection acts for the user
//! found in the handshake, and uses paths.
use super::attributes::{Attributes, CreateOptions, NodeKind};
use super::capability::Capability;
use crate::bounded;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// Bytes of the value of one extended attribute.
pub const MAX_XATTR_VALUE: usize = 4096;
/// Bytes of all extended attributes of a node, names and values included.
pub const MAX_XATTRS: usize = 16 << 10;
/// Bytes of a symbolic link's target.
pub const MAX_TARGET: usize = 4095;
/// Most names of one file.
pub const MAX_LINKS: usize = 1000;
/// Files in one [`NodeRequest::Keep`].
pub const MAX_KEEP: usize = 1024;
/// Extended attribute that shows and sets the striping of a file without bytes, or of new files in a directory.
/// `unit=65536 count=4 start=0`, each part optional when set.
pub const LAYOUT_XATTR: &str = "user.penstock.layout";

/// Where listings show open-unlinked files; no path leads there.
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
    /// Last access time.
    pub atime: Option<When>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// The server's clock. Allowed for users who may write.
    Now,
    /// Nanoseconds since the epoch. Allowed for owners.
    At(i64),
}

/// Whether an extended attribute may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Either.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// What an advisory lock excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvisoryMode {
    /// Other owners' exclusive locks.
    Shared,
    /// Other owners' locks.
    Exclusive,
    /// No lock: releases the owner's locks on the range.
    Free,
}

/// The call by which an advisory lock is taken. As on a local file system, locks of the two calls are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvisoryFamily {
    /// Unknown or irrelevant: it conflicts with both.
    Any,
    /// flock(2).
    Flock,
    /// fcntl(2), of the process or of the open file description.
    Fcntl,
}

impl AdvisoryFamily {
    /// Whether locks of the two families can conflict.
    pub fn meets(self, other: AdvisoryFamily) -> bool {
        self == other || self == AdvisoryFamily::Any || other == AdvisoryFamily::Any
    }
}

/// A lock of flock(2) or fcntl(2), which only binds those who ask for locks. It ends with the connection over which it
/// was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// The owner, unique within its connection.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
    /// What it excludes.
    pub mode: AdvisoryMode,
    /// The call by which it was taken.
    pub family: AdvisoryFamily,
    /// The process that asked, for messages.
    pub pid: u32,
}

/// How to handle a request for an advisory lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdvisoryHow {
    /// Takes, changes or releases it if that is possible now.
    Try,
    /// Only tests whether it could be taken.
    Test,
    /// Like `Try`. If it cannot be taken, its owner counts as waiting until a `Wait` for it is answered by `Done` or a
    /// `Leave` comes. Answered by `Deadlock` if the owner would wait for itself.
    Wait,
    /// It was held over an earlier connection and is claimed again, before others may take it after a restart.
    Claim,
    /// Its owner stops waiting for it.
    Leave,
}

/// Longest wait of [`NodeRequest::AwaitUnlock`].
pub const MAX_UNLOCK_WAIT_MS: u32 = 1000;

/// A request about nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRequest {
    /// The node of a name in a directory. Answered by `Node`.
    Lookup {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
    },
    /// Answered by `Node`.
    Stat {
        /// The node.
        id: FileId,
    },
    /// Answered by `Opened`.
    Open {
        /// The file.
        id: FileId,
        /// Right to read.
        read: bool,
        /// Right to write.
        write: bool,
        /// It is opened for execution: execute permission suffices instead of read permission.
        execute: bool,
    },
    /// Creates and opens a file, or opens an existing one. Answered by `Opened`.
    Create {
        /// The directory.
        parent: FileId,
        /// One name.
        name: String,
        /// Options for a new file.
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
        /// The target path, at most [`MAX_TARGET`] bytes.
        target: String,
    },
    /// Adds a name to a file. Answered by `Node`.
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
        /// The caller has open files: a file that loses its last name stays until `Reap`, or for a while after this
        /// connection has ended.
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
        /// Whether the new name must not exist.
        exclusive: bool,
        /// As for `Unlink`.
        keep: bool,
    },
    /// An open-unlinked file is closed. Answered by `Unlinked`.
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
        /// Most entries of the page.
        limit: u32,
    },
    /// Answered by `Node`.
    SetAttr {
        /// The node.
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
        /// Whether it may or must exist.
        mode: XattrMode,
    },
    /// Answered by `Done`.
    RemoveXattr {
        /// Of which node.
        id: FileId,
        /// Its name.
        name: String,
    },
    /// A node, and a capability to ask data servers for a file's length and time. Answered by `Look`.
    Look {
        /// Which.
        id: FileId,
    },
    /// Takes, changes or releases an advisory lock. Answered by `Done`; with `LockedBy` or `Deadlock` no lock has
    /// changed.
    Lock {
        /// Which file.
        id: FileId,
        /// The lock that its owner wants.
        lock: Advisory,
        /// How to handle the request.
        how: AdvisoryHow,
    },
    /// Answered by `GivenUp` when a lock of any file has been released since the count was `seen`, or after the time.
    AwaitUnlock {
        /// From `LockedBy` or `GivenUp`.
        seen: u64,
        /// At most [`MAX_UNLOCK_WAIT_MS`].
        wait_ms: u32,
    },
    /// The caller has these files open: those without a name stay until its `Reap`, as if it had removed them over this
    /// connection. Answered by `Kept`.
    Keep {
        /// At most [`MAX_KEEP`].
        #[serde(deserialize_with = "bounded::at_most::<MAX_KEEP, _, _>")]
        ids: Vec<FileId>,
    },
}

impl NodeRequest {
    /// Whether a second copy could do harm; see [`MetaRequest::changes`](super::MetaRequest::changes).
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

/// An answer to a [`NodeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeReply {
    /// A node.
    Node(Attributes),
    /// A node; for a file, with a capability to ask its data servers.
    Look {
        /// The node.
        attributes: Attributes,
        /// A capability without the right to read or write.
        capability: Option<Capability>,
    },
    /// An open file.
    Opened {
        /// The file.
        attributes: Attributes,
        /// For the data servers.
        capability: Capability,
        /// Whether it was created.
        created: bool,
    },
    /// A name was removed.
    Unlinked {
        /// The file that has lost its last name.
        file: Option<FileId>,
        /// The capability to remove its objects. `None`: the file is open-unlinked.
        capability: Option<Capability>,
    },
    /// A page of a directory.
    Entries {
        /// Names with their nodes.
        entries: Vec<(String, Attributes)>,
        /// There are more.
        more: bool,
    },
    /// The value of an extended attribute.
    Xattr(Vec<u8>),
    /// Names of extended attributes.
    Xattrs(Vec<String>),
    /// The request was carried out.
    Done,
    /// The advisory lock conflicts with one of another owner.
    LockedBy {
        /// The conflicting lock.
        lock: Advisory,
        /// Locks released so far.
        given_up: u64,
    },
    /// Locks released so far, of all files.
    GivenUp(u64),
    /// The owners of the conflicting locks wait, directly or indirectly, for this owner.
    Deadlock,
    /// Those of the files that are open-unlinked.
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
