//! Requests and replies of the metadata server.
use super::attributes::{Attributes, CreateOptions};
use super::capability::Capability;
use super::control::{Decision, Report};
use super::limits::MAX_BATCH;
use super::node::{NodeReply, NodeRequest};
use super::program::{ProgramInfo, Programs};
use super::quota::{QuotaReply, QuotaRequest};
use super::refusal::WireError;
use super::status::{AuditStatus, KeysHeld};
use super::store::{KnownStore, StoreReport};
use super::usage::{Leases, MAX_OWNERS, UsageReport};
use super::user::User;
use crate::bounded;
use crate::revocation::{Revocations, Revoked};
use penstock_layout::{FileId, Layout};
use serde::{Deserialize, Serialize};

/// The number of a change within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotAt {
    /// As opened by [`MetaRequest::OpenSession`].
    pub session: u128,
    /// Below [`SLOTS`](super::SLOTS). One request of a slot is in flight at a time.
    pub slot: u16,
    /// Increases with each request of the slot; a repetition has the number of its first copy.
    pub sequence: u64,
}

/// A request to the metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Absolute paths inside the name space, "/"-separated, normalised by the client.
    Open {
        /// Absolute.
        path: String,
        /// Right to read.
        read: bool,
        /// Right to write.
        write: bool,
        /// Options to create it if it does not exist.
        create: Option<CreateOptions>,
        /// With `create`: it must not exist.
        exclusive: bool,
    },
    /// Issues a new capability for an open file.
    Renew {
        /// Which file.
        file: FileId,
        /// Right to read.
        read: bool,
        /// Right to write.
        write: bool,
    },
    /// Attributes of a name.
    Stat {
        /// Absolute.
        path: String,
    },
    /// Removes a name of a file.
    Unlink {
        /// Absolute.
        path: String,
    },
    /// Answered by `Unlinked`, with a capability if a file was replaced.
    Rename {
        /// Old path.
        from: String,
        /// New path.
        to: String,
    },
    /// Makes a directory.
    Mkdir {
        /// Absolute.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Absolute.
        path: String,
    },
    /// A page of a directory, in order of names.
    Readdir {
        /// Absolute.
        path: String,
        /// The last name of the page before.
        after: Option<String>,
        /// Most entries of the page.
        limit: u32,
    },
    /// Changes the given attributes.
    SetAttr {
        /// Absolute.
        path: String,
        /// Permission bits.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Nanoseconds since the epoch.
        mtime_ns: Option<i64>,
        /// Nanoseconds since the epoch.
        atime_ns: Option<i64>,
    },
    /// Answered when all metadata acknowledged so far is on stable storage (group commit).
    Sync,
    /// The same for a file: `NotFound` if it was removed, or lost in a crash before it was durable.
    SyncFile {
        /// Which file.
        file: FileId,
    },
    /// Several requests, answered by `Batch` in order; later ones are carried out although earlier ones failed. At most
    /// MAX_BATCH; a batch holds no batch.
    Batch(#[serde(deserialize_with = "bounded::batch::<MAX_BATCH, _, _>")] Vec<MetaRequest>),
    /// Creates a shared file pointer: a counter per collective open, named by a random token, and freed with the
    /// connection that created it.
    CounterCreate {
        /// Its name.
        token: u128,
        /// New value.
        value: i64,
    },
    /// Adds, and returns the value before.
    CounterAdd {
        /// Its name.
        token: u128,
        /// May be negative.
        add: i64,
    },
    /// Sets, and returns the value before.
    CounterSet {
        /// Its name.
        token: u128,
        /// New value.
        value: i64,
    },
    /// Returns the value.
    CounterGet {
        /// Its name.
        token: u128,
    },
    /// Frees the counter.
    CounterFree {
        /// Its name.
        token: u128,
    },
    /// For `check`: pages of all files with their layouts. Needs the admin right.
    ListFiles {
        /// The last file of the page before.
        after: Option<FileId>,
        /// Most files of the page.
        limit: u32,
    },
    /// For `check`: the ranges of ids that this store ever issued to files. Needs the admin right.
    GivenIds,
    /// Health and usage.
    Status,
    /// Stops the server. Needs the admin right.
    Shutdown,
    /// A request about nodes by id, on behalf of a user. Allowed for root and the owner of the deployment. Answered by
    /// `Node`.
    Node {
        /// The user.
        user: User,
        /// The request.
        request: NodeRequest,
    },
    /// Attributes of the node that a path leads to, and a capability to ask its data servers. Answered by `Node(Look)`.
    Look {
        /// Absolute.
        path: String,
        /// Whether a symbolic link at the end is followed.
        follow: bool,
    },
    /// Makes a symbolic link.
    Symlink {
        /// Absolute; the name must not exist.
        path: String,
        /// The target path, at most [`MAX_TARGET`](super::MAX_TARGET) bytes.
        target: String,
    },
    /// Opens a session, in which changes are numbered (exactly once). It belongs to the connection's user and role, and
    /// is dropped ten minutes after its last connection. Answered by `Done` once it is on stable storage; opening it
    /// again changes nothing.
    OpenSession {
        /// Random, so that nobody else knows it.
        session: u128,
    },
    /// A change that takes effect once, however often it is sent. The server stores the newest outcome of each slot
    /// with the change itself, and answers a repetition with it. `NoSession` if the session is unknown: this copy was
    /// not carried out; an earlier copy may have been. Refused if the number is older, or was used for another request.
    Once {
        /// Session, slot and number.
        at: SlotAt,
        /// A request that [changes](MetaRequest::changes) something.
        #[serde(deserialize_with = "bounded::once")]
        request: Box<MetaRequest>,
    },
    /// The state of a data server's store. Answered by `Store`, or by an error if that is not the store which this
    /// server must have. Needs the admin right.
    Store(StoreReport),
    /// The time by which capabilities expire. Answered by `Time`.
    Time,
    /// Quotas on the files and bytes of users. Answered by `Quota`.
    Quota(QuotaRequest),
    /// Revokes credentials until their last one has expired (administrators). The answer comes when the list is
    /// durable, and contains it.
    Revoke {
        /// What to revoke.
        what: Revoked,
        /// Milliseconds since 1970; at most ten years from now.
        until_ms: u64,
    },
    /// The list of revocations (administrators, data servers). Answered by `Revoked`.
    Revocations {
        /// The version that the caller knows: the list is left out if it has not changed.
        known: Option<u64>,
    },
    /// Reads the deployment file again and uses the keys that it names. Needs the admin right. Answered by `Keys`.
    LoadKeys,
    /// Registers the connection's program for the life of the connection. Answered by `Done`.
    Register(ProgramInfo),
    /// Lists registered programs: those of the caller. Administrators, and root and the owner on this server's host,
    /// see all. Answered by `Programs`.
    Programs,
    /// The report of a data server (data servers). Answered by `Decision`.
    Report(Report),
    /// A data server's report on the bytes of users with quotas on bytes. Answered by `Leases`.
    Usage(UsageReport),
    /// The owners of files (data servers). Answered by `Owners`.
    Owners(#[serde(deserialize_with = "bounded::at_most::<MAX_OWNERS, _, _>")] Vec<FileId>),
    /// Asked by a program of one rank that is a task of a launcher's step, before it opens a file for writing or
    /// removes it. Answered by `Writer`.
    Writes {
        /// Absolute.
        path: String,
        /// The number of the step, equal for all its tasks.
        step: u64,
        /// The task's number.
        task: u32,
    },
}

impl MetaRequest {
    /// Whether a second copy could do harm, so that it needs a slot. Counters and advisory locks belong to a connection
    /// and end with it; a copy on another connection finds nothing of the first.
    pub fn changes(&self) -> bool {
        match self {
            MetaRequest::Open { create, .. } => create.is_some(),
            MetaRequest::Unlink { .. }
            | MetaRequest::Rename { .. }
            | MetaRequest::Mkdir { .. }
            | MetaRequest::Rmdir { .. }
            | MetaRequest::SetAttr { .. }
            | MetaRequest::Symlink { .. }
            | MetaRequest::CounterAdd { .. }
            | MetaRequest::CounterSet { .. }
            | MetaRequest::Once { .. } => true,
            MetaRequest::Node { request, .. } => request.changes(),
            MetaRequest::Batch(requests) => requests.iter().any(MetaRequest::changes),
            MetaRequest::Renew { .. }
            | MetaRequest::Stat { .. }
            | MetaRequest::Readdir { .. }
            | MetaRequest::Sync
            | MetaRequest::SyncFile { .. }
            | MetaRequest::CounterCreate { .. }
            | MetaRequest::CounterGet { .. }
            | MetaRequest::CounterFree { .. }
            | MetaRequest::ListFiles { .. }
            | MetaRequest::GivenIds
            | MetaRequest::Status
            | MetaRequest::Shutdown
            | MetaRequest::Look { .. }
            | MetaRequest::OpenSession { .. }
            | MetaRequest::Store(_)
            | MetaRequest::Time
            // Setting quotas is idempotent.
            | MetaRequest::Quota(_)
            | MetaRequest::LoadKeys
            | MetaRequest::Register(_)
            | MetaRequest::Programs
            | MetaRequest::Report(_)
            | MetaRequest::Usage(_)
            | MetaRequest::Owners(_)
            | MetaRequest::Revoke { .. }
            | MetaRequest::Revocations { .. }
            | MetaRequest::Writes { .. } => false,
        }
    }

    /// A hash to compare requests: 128 bits of BLAKE3 over the encoded request.
    pub fn digest(&self) -> [u8; 16] {
        let mut digest = [0; 16];
        // A request that came over the wire can be encoded.
        let encoded = postcard::to_stdvec(self).unwrap_or_default();
        digest.copy_from_slice(&blake3::hash(&encoded).as_bytes()[..16]);
        digest
    }
}

/// An answer of the metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaReply {
    /// To `Open`.
    Opened {
        /// Attributes of the file.
        attributes: Attributes,
        /// For the data servers.
        capability: Capability,
        /// Whether it was created.
        created: bool,
    },
    /// To `Renew`.
    Renewed {
        /// For the data servers.
        capability: Capability,
    },
    /// To `Stat` and `SetAttr`.
    Attributes(Attributes),
    /// The caller removes the objects with this capability. The removal is already durable if a crash could undo it.
    Unlinked {
        /// `None`: no file lost its last name.
        capability: Option<Capability>,
    },
    /// To `Readdir`.
    Entries {
        /// Names in this directory.
        entries: Vec<(String, Attributes)>,
        /// There are more.
        more: bool,
    },
    /// To `Batch`, in order.
    Batch(#[serde(deserialize_with = "bounded::batch::<MAX_BATCH, _, _>")] Vec<MetaReply>),
    /// To the counter requests.
    Counter {
        /// Value before the request.
        before: i64,
    },
    /// To `ListFiles`.
    Files {
        /// Ids, paths, layouts.
        files: Vec<(FileId, String, Layout)>,
        /// There are more.
        more: bool,
    },
    /// To `GivenIds`.
    Ids {
        /// Ranges of ids, [first, end), ascending.
        ranges: Vec<(FileId, FileId)>,
        /// Known stores of the data servers, ascending by server.
        stores: Vec<KnownStore>,
    },
    /// To `Status`.
    Status(MetaStatus),
    /// The request was carried out.
    Done,
    /// The request failed.
    Error(WireError),
    /// To `Node` and `Look`.
    Node(NodeReply),
    /// To `Store`.
    Store {
        /// Set if a new store must be made, or an existing one treated as new. Files with lower ids may have lost bytes
        /// with the old one. 0: there was no old one.
        new: Option<u64>,
    },
    /// To `Time`: milliseconds.
    Time {
        /// The time by which capabilities expire: never goes back ([`crate::clock`]).
        issue_ms: u64,
        /// Its wall clock, since the epoch.
        wall_ms: u64,
    },
    /// To `Quota`.
    Quota(QuotaReply),
    /// To `Revoke` and `Revocations`.
    Revoked(Option<Revocations>),
    /// To `LoadKeys`.
    Keys(KeysHeld),
    /// To `Programs`.
    Programs(Programs),
    /// To `Report`.
    Decision(Decision),
    /// To `Usage`.
    Leases(Leases),
    /// To `Owners`: the owner of each file in turn; `None`: no such file.
    Owners(#[serde(deserialize_with = "bounded::at_most::<MAX_OWNERS, _, _>")] Vec<Option<u32>>),
    /// To `Writes`: the task of the step that writes the file.
    Writer(u32),
}

/// Health and usage of the metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MetaStatus {
    /// Files in the name space.
    pub files: u64,
    /// Directories in the name space.
    pub directories: u64,
    /// Since the start.
    pub requests: u64,
    /// Commits to stable storage since the start.
    pub commits: u64,
    /// Open connections.
    pub connections: u64,
    /// Since the start.
    pub uptime_ms: u64,
    /// Bytes of the journal that were unreadable at the start after a system crash: names may be lost.
    pub journal_lost: u64,
    /// Whether all names have been scrubbed since the start, or before it.
    pub looked_through: bool,
    /// Records and entries of the store that were found damaged.
    pub damaged: u64,
    /// A description of the first of them.
    pub damage: Vec<String>,
    /// Backend and path.
    pub store: String,
    /// Counts of its audit log.
    pub audit: AuditStatus,
    /// Users above their soft limit on files.
    pub over_soft: u64,
    /// Users at their hard limit on files.
    pub at_hard: u64,
    /// Users above their soft limit on bytes.
    pub bytes_over_soft: u64,
    /// Users at their hard limit on bytes.
    pub bytes_at_hard: u64,
    /// Users with quotas on bytes whose bytes are still being counted.
    pub bytes_uncounted: u64,
    /// Whether the files of all users have been counted, so that quotas are enforced.
    pub counted: bool,
}
