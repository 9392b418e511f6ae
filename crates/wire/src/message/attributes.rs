//! What the metadata server knows of a name, and what a new file shall be like.
use penstock_layout::{FileId, Layout, ServerId};
use serde::{Deserialize, Serialize};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// Striped bytes.
    File,
    /// Names.
    Directory,
    /// Another path.
    Symlink,
}

/// What the metadata server knows of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Never given twice.
    pub id: FileId,
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Change of attributes, nanoseconds since the epoch.
    pub ctime_ns: i64,
    /// Change of contents, the same.
    pub mtime_ns: i64,
    /// Access, the same.
    pub atime_ns: i64,
    /// Files only. The size is not here: it is the maximum over data servers.
    pub layout: Option<Layout>,
    /// The server's clock when `mtime_ns` was last set: what data servers noted later is newer.
    pub mtime_set_ns: i64,
    /// Symbolic links only: the path in it.
    pub target: Option<String>,
    /// It belonged to another user than root before: that user may hold descriptors of its objects.
    pub given: bool,
}

/// What a new file should look like; `None` = the deployment's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOptions {
    /// Permission bits.
    pub mode: u32,
    /// Bytes per server per turn.
    pub stripe_unit: Option<u64>,
    /// Number of servers to use.
    pub stripe_count: Option<u32>,
    /// Holds the first stripe unit.
    pub start_server: Option<ServerId>,
}
