//! The messages. One frame = header + postcard body + at most [`MAX_PAYLOAD`] payload bytes beside it.
//! Large transfers are several frames of one request id with the MORE flag; the status comes with the
//! last, so that an error in the middle is a reply and not a broken connection.
use crate::bounded;
use penstock_layout::{FileId, Layout, ServerId};
use serde::{Deserialize, Serialize};

pub const MAX_BODY: usize = 1 << 20;
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Regions in one list request (DT II.D).
pub const MAX_LIST: usize = 64;
/// Bytes of one encoded loop on the wire.
pub const MAX_LOOP: usize = 1 << 19;
/// Findings of one verification that are told.
pub const MAX_FINDINGS: usize = 1024;
/// Requests in one batch to the metadata server.
pub const MAX_BATCH: usize = 4096;
/// Objects in one page of a listing.
pub const MAX_OBJECTS: usize = 8192;

/// Who caused a request; travels in every header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    pub program: u64,
    pub rank: u32,
    pub mpi_call: u64,
    pub client_call: u64,
}

/// The file side of an access, in file offsets; the server intersects it with its own stripes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Region {
    Contiguous {
        offset: u64,
        len: u64,
    },
    /// At most MAX_LIST (offset, length).
    List(#[serde(deserialize_with = "bounded::list")] Vec<(u64, u64)>),
    /// A loop the server should know by hash; it answers `UnknownLoop` if it does not.
    LoopHash {
        hash: [u8; 16],
        disp: i64,
        start: u64,
        len: u64,
    },
    /// The same with the encoded loop, which the server then remembers.
    LoopInline {
        #[serde(with = "bounded::encoded_loop")]
        encoded: Vec<u8>,
        disp: i64,
        start: u64,
        len: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    Shared,
    Exclusive,
}

/// An open file at a data server, per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handle(pub u32);
/// A held range lock, per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// Signed by the metadata server with the server key, checked by data servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    pub file: FileId,
    pub read: bool,
    pub write: bool,
    /// May remove the object (given by unlink).
    pub remove: bool,
    /// Milliseconds since the epoch.
    pub expires_ms: u64,
    pub layout: Layout,
    /// Keyed BLAKE3 over the postcard of all fields above.
    pub mac: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataRequest {
    /// Presents a capability; later requests name the handle. Attaching again renews.
    Attach {
        capability: Capability,
    },
    Detach {
        handle: Handle,
    },
    Read {
        handle: Handle,
        region: Region,
        lock: Option<LockId>,
    },
    /// Payload frames follow: the bytes of the region on this server in stream order.
    Write {
        handle: Handle,
        region: Region,
        lock: Option<LockId>,
    },
    /// Object length.
    Len {
        handle: Handle,
    },
    SetLen {
        handle: Handle,
        len: u64,
    },
    Allocate {
        handle: Handle,
        len: u64,
    },
    Sync {
        handle: Handle,
    },
    /// Object range [start, end); waits in order of arrival, at most `timeout_ms`.
    Lock {
        handle: Handle,
        start: u64,
        end: u64,
        mode: LockMode,
        timeout_ms: u64,
    },
    Unlock {
        handle: Handle,
        lock: LockId,
    },
    /// Same-host descriptor of the object plus the grant page (see docs: revocation). Unix socket only.
    Shortcut {
        handle: Handle,
    },
    Remove {
        capability: Capability,
    },
    /// For `check` and `status`; needs the admin right of the handshake (server key).
    ListObjects {
        after: Option<FileId>,
        limit: u32,
    },
    RemoveObject {
        file: FileId,
    },
    /// For `check`: examines every object without reading its bytes (`Store::verify`), answered by
    /// `Findings`. Takes as long as it takes. Needs the admin right.
    Verify,
    Status,
    Shutdown,
    /// Accepts a damaged object as it is, so that it can be used again. Needs the admin right.
    Accept {
        file: FileId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataReply {
    Attached {
        handle: Handle,
    },
    /// Bytes sent: short when the object ends early.
    Read {
        bytes: u64,
    },
    Written {
        bytes: u64,
    },
    Len {
        len: u64,
    },
    Locked {
        lock: LockId,
    },
    /// Descriptors travel beside this frame: object, grant page.
    Shortcut {
        writable: bool,
    },
    /// Shortcuts are not granted now (policy or lock); use requests.
    NoShortcut {
        reason: String,
    },
    UnknownLoop,
    Objects {
        objects: Vec<(FileId, u64)>,
        more: bool,
    },
    /// The first MAX_FINDINGS of them; `more` were found.
    Findings {
        findings: Vec<ObjectFinding>,
        more: bool,
    },
    Status(DataStatus),
    Done,
    Error(WireError),
}

/// What a data server found wrong in its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFinding {
    /// `None`: something that is no object.
    pub object: Option<FileId>,
    pub problem: ObjectProblem,
    /// What, where, and what to do.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectProblem {
    /// Shorter than what was synced.
    Truncated {
        recorded: u64,
        actual: u64,
    },
    /// The record of its length is damaged; its bytes may be whole.
    BadRecord,
    /// A file that no store makes.
    Foreign,
    Unreadable,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataStatus {
    pub server: u32,
    pub store: String,
    pub connections: u64,
    pub requests: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub objects: u64,
    pub busy_ns: u64,
    pub uptime_ms: u64,
}

/// Why a request failed; each kind has one errno and one MPI class (docs/semantics.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Permission,
    ReadOnly,
    NoSpace,
    InvalidArgument,
    BadKey,
    BadCapability,
    ExpiredCapability,
    Malformed,
    TooLarge,
    Damaged,
    LockTimeout,
    LockLost,
    Busy,
    Unsupported,
    Io,
    ShuttingDown,
    Version,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct WireError {
    pub kind: ErrorKind,
    /// What, where, and what to do.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub id: FileId,
    pub kind: NodeKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Nanoseconds since the epoch.
    pub ctime_ns: i64,
    pub mtime_ns: i64,
    pub atime_ns: i64,
    /// Files only. The size is not here: it is the maximum over data servers.
    pub layout: Option<Layout>,
}

/// What a new file should look like; `None` = the deployment's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOptions {
    pub mode: u32,
    pub stripe_unit: Option<u64>,
    /// Number of servers to use.
    pub stripe_count: Option<u32>,
    pub start_server: Option<ServerId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Absolute paths inside the name space, "/"-separated, normalised by the client.
    Open {
        path: String,
        read: bool,
        write: bool,
        create: Option<CreateOptions>,
        exclusive: bool,
    },
    /// A fresh capability for an open file.
    Renew {
        file: FileId,
        read: bool,
        write: bool,
    },
    Stat {
        path: String,
    },
    Unlink {
        path: String,
    },
    /// Answered by `Unlinked`, with a capability if a file was replaced.
    Rename {
        from: String,
        to: String,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Rmdir {
        path: String,
    },
    Readdir {
        path: String,
        after: Option<String>,
        limit: u32,
    },
    SetAttr {
        path: String,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        mtime_ns: Option<i64>,
        atime_ns: Option<i64>,
    },
    /// All metadata acknowledged so far is on stable storage when this is answered (group commit).
    Sync,
    /// The same, and the file is in the name space: `NotFound` if it was removed, or lost in a crash before it
    /// was durable.
    SyncFile {
        file: FileId,
    },
    /// Several requests, answered by `Batch` in order; later ones run although earlier ones failed.
    /// At most MAX_BATCH; a batch holds no batch.
    Batch(#[serde(deserialize_with = "bounded::batch")] Vec<MetaRequest>),
    /// Shared file pointers: a counter per collective open, named by a random token, freed with the
    /// connection that created it.
    CounterCreate {
        token: u128,
        value: i64,
    },
    CounterAdd {
        token: u128,
        add: i64,
    },
    CounterSet {
        token: u128,
        value: i64,
    },
    CounterGet {
        token: u128,
    },
    CounterFree {
        token: u128,
    },
    /// For `check`: pages of all files with their layouts. Needs the admin right.
    ListFiles {
        after: Option<FileId>,
        limit: u32,
    },
    /// For `check`: the ranges of ids that this store ever gave to files. Needs the admin right.
    GivenIds,
    Status,
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaReply {
    Opened {
        attributes: Attributes,
        capability: Capability,
        created: bool,
    },
    Renewed {
        capability: Capability,
    },
    Attributes(Attributes),
    /// The caller removes the objects with this. A removal that a crash could undo is durable by now.
    Unlinked {
        capability: Option<Capability>,
    },
    Entries {
        entries: Vec<(String, Attributes)>,
        more: bool,
    },
    Batch(#[serde(deserialize_with = "bounded::batch")] Vec<MetaReply>),
    Counter {
        before: i64,
    },
    Files {
        files: Vec<(FileId, String, Layout)>,
        more: bool,
    },
    /// Ascending [first, end).
    Ids {
        ranges: Vec<(FileId, FileId)>,
    },
    Status(MetaStatus),
    Done,
    Error(WireError),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MetaStatus {
    pub files: u64,
    pub directories: u64,
    pub requests: u64,
    pub commits: u64,
    pub connections: u64,
    pub uptime_ms: u64,
    pub store: String,
}
