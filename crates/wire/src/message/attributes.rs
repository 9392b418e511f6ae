//! Attributes of names, and options for new files.
use penstock_layout::{FileId, Layout, ServerId};
use serde::{Deserialize, Serialize};

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// A file: striped bytes.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Attributes of a node, from the metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Never reused.
    pub id: FileId,
    /// Its type.
    pub kind: NodeKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Time of the last change of attributes, nanoseconds since the epoch.
    pub ctime_ns: i64,
    /// Time of the last change of contents, nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// Time of the last access, nanoseconds since the epoch.
    pub atime_ns: i64,
    /// Files only. The size is not included: it is the maximum over the data servers.
    pub layout: Option<Layout>,
    /// The server's clock when `mtime_ns` was last set: later changes at data servers are newer.
    pub mtime_set_ns: i64,
    /// Symbolic links only: the target path.
    pub target: Option<String>,
    /// It once belonged to a user other than root: that user may hold descriptors of its objects.
    pub given: bool,
}

/// Options for a new file; `None` = the deployment's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOptions {
    /// Permission bits.
    pub mode: u32,
    /// Stripe unit in bytes.
    pub stripe_unit: Option<u64>,
    /// Number of servers to use.
    pub stripe_count: Option<u32>,
    /// The server with the first stripe unit.
    pub start_server: Option<ServerId>,
}
