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

/// Which change of a session a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotAt {
    /// As opened by [`MetaRequest::OpenSession`].
    pub session: u128,
    /// Below [`SLOTS`](super::SLOTS). One request of a slot is under way at a time.
    pub slot: u16,
    /// Rises with each request of the slot; a repetition has its first copy's.
    pub sequence: u64,
}

/// What a client asks of the metadata server.
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
        /// Make it if it does not exist.
        create: Option<CreateOptions>,
        /// With `create`: it must not exist.
        exclusive: bool,
    },
    /// A fresh capability for an open file.
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
    /// Removes a file's name.
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
        /// At most so many.
        limit: u32,
    },
    /// Changes what is given.
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
    /// All metadata acknowledged so far is on stable storage when this is answered (group commit).
    Sync,
    /// The same, and the file is in the name space: `NotFound` if it was removed, or lost in a crash before it
    /// was durable.
    SyncFile {
        /// Which file.
        file: FileId,
    },
    /// Several requests, answered by `Batch` in order; later ones run although earlier ones failed.
    /// At most MAX_BATCH; a batch holds no batch.
    Batch(#[serde(deserialize_with = "bounded::batch::<MAX_BATCH, _, _>")] Vec<MetaRequest>),
    /// Shared file pointers: a counter per collective open, named by a random token, freed with the
    /// connection that created it.
    CounterCreate {
        /// Its name.
        token: u128,
        /// New value.
        value: i64,
    },
    /// Adds, and answers the value before.
    CounterAdd {
        /// Its name.
        token: u128,
        /// May be negative.
        add: i64,
    },
    /// Sets, and answers the value before.
    CounterSet {
        /// Its name.
        token: u128,
        /// New value.
        value: i64,
    },
    /// The value.
    CounterGet {
        /// Its name.
        token: u128,
    },
    /// Forgets the counter.
    CounterFree {
        /// Its name.
        token: u128,
    },
    /// For `check`: pages of all files with their layouts. Needs the admin right.
    ListFiles {
        /// The last file of the page before.
        after: Option<FileId>,
        /// At most so many.
        limit: u32,
    },
    /// For `check`: the ranges of ids that this store ever gave to files. Needs the admin right.
    GivenIds,
    /// Health and usage.
    Status,
    /// Stops the server. Needs the admin right.
    Shutdown,
    /// About nodes by id, for a user. Taken from root and the owner of the deployment. Answered by `Node`.
    Node {
        /// Who asks.
        user: User,
        /// For what.
        request: NodeRequest,
    },
    /// Attributes of what a path leads to, and what lets its data servers be asked. Answered by `Node(Look)`.
    Look {
        /// Absolute.
        path: String,
        /// A symbolic link at the end is followed.
        follow: bool,
    },
    /// Makes a symbolic link.
    Symlink {
        /// Absolute; nothing may have this name.
        path: String,
        /// The path in it, at most [`MAX_TARGET`](super::MAX_TARGET) bytes.
        target: String,
    },
    /// Opens a session, in which changes are numbered. It belongs to the user and role that the connection has, and is
    /// dropped ten minutes after its last connection. Answered by `Done` once it is on stable storage; opening it
    /// again changes nothing.
    OpenSession {
        /// Random: nobody else knows it.
        session: u128,
    },
    /// A change that takes effect once, however often it is sent: the server keeps the newest outcome of each slot with
    /// the change itself, and answers a repetition with it. `NoSession` if the session is not known: then nothing was
    /// carried out by this copy, and of an earlier copy it is not known. Refused if the number is an older one, or was used
    /// for another request.
    Once {
        /// The session, the slot and the number.
        at: SlotAt,
        /// A request that [changes](MetaRequest::changes) something.
        #[serde(deserialize_with = "bounded::once")]
        request: Box<MetaRequest>,
    },
    /// What a data server has in the place of its store. Answered by `Store`, or by an error if that is not the store that this
    /// server has to have. Needs the admin right.
    Store(StoreReport),
    /// Its time, by which capabilities end. Answered by `Time`.
    Time,
    /// Limits on the files of users. Answered by `Quota`.
    Quota(QuotaRequest),
    /// Takes credentials back, whose last one ends then (administrators). Durable when it is answered, with the list.
    Revoke {
        /// Which.
        what: Revoked,
        /// Milliseconds since 1970; no end is later than ten years from now.
        until_ms: u64,
    },
    /// For the list of revocations (administrators, data servers). Answered by `Revoked`.
    Revocations {
        /// The version that is known: there is no list in the answer if it has not changed.
        known: Option<u64>,
    },
    /// Read the deployment file again and take the keys that it names. Needs the admin right. Answered by `Keys`.
    LoadKeys,
    /// Lists the program that the connection is of, as long as the connection lasts. Answered by `Done`.
    Register(ProgramInfo),
    /// The programs in the list: one's own; administrators, and root and the owner on this server's host, see all. Answered
    /// by `Programs`.
    Programs,
    /// What a data server did (data servers). Answered by `Decision`.
    Report(Report),
    /// A data server tells of the bytes of users that have limits on them. Answered by `Leases`.
    Usage(UsageReport),
    /// Who owns files (data servers). Answered by `Owners`.
    Owners(#[serde(deserialize_with = "bounded::at_most::<MAX_OWNERS, _, _>")] Vec<FileId>),
    /// Before a task of a launcher's step, in a program of one rank, opens a file for writing or removes it. Answered by
    /// `Writer`.
    Writes {
        /// Absolute.
        path: String,
        /// The same for all tasks of the step.
        step: u64,
        /// The task's number.
        task: u32,
    },
}

impl MetaRequest {
    /// Whether a second copy of it could do harm, so that it needs a slot. Counters are made and freed, and advisory
    /// locks are taken, over a connection with which they end; a copy on another connection finds nothing of the first.
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
            // Limits are set to what they are to be: a second copy changes nothing.
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

    /// Tells requests apart: 128 bits of BLAKE3 over the encoded request.
    pub fn digest(&self) -> [u8; 16] {
        let mut digest = [0; 16];
        // A request that came over the wire can be encoded.
        let encoded = postcard::to_stdvec(self).unwrap_or_default();
        digest.copy_from_slice(&blake3::hash(&encoded).as_bytes()[..16]);
        digest
    }
}

/// What the metadata server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaReply {
    /// To `Open`.
    Opened {
        /// Of the file.
        attributes: Attributes,
        /// To show to data servers.
        capability: Capability,
        /// It did not exist before.
        created: bool,
    },
    /// To `Renew`.
    Renewed {
        /// To show to data servers.
        capability: Capability,
    },
    /// To `Stat` and `SetAttr`.
    Attributes(Attributes),
    /// The caller removes the objects with this. A removal that a crash could undo is durable by now.
    Unlinked {
        /// `None`: no file is gone.
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
        /// Of ids, [first, end), ascending.
        ranges: Vec<(FileId, FileId)>,
        /// What is known of the data servers' stores, ascending by server.
        stores: Vec<KnownStore>,
    },
    /// To `Status`.
    Status(MetaStatus),
    /// It is done.
    Done,
    /// It is not.
    Error(WireError),
    /// To `Node` and `Look`.
    Node(NodeReply),
    /// To `Store`.
    Store {
        /// A new store has to be made, or what is there to be taken for new: files with lower ids may have lost bytes with the
        /// old one. 0: there was none.
        new: Option<u64>,
    },
    /// To `Time`: milliseconds.
    Time {
        /// By which capabilities end: never goes back ([`crate::clock`]).
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
    /// To `Owners`: of each file in turn; `None`: it is not there.
    Owners(#[serde(deserialize_with = "bounded::at_most::<MAX_OWNERS, _, _>")] Vec<Option<u32>>),
    /// To `Writes`: the task of the step that writes the file.
    Writer(u32),
}

/// Health and usage of the metadata server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MetaStatus {
    /// In the name space.
    pub files: u64,
    /// In the name space.
    pub directories: u64,
    /// Since the start.
    pub requests: u64,
    /// To stable storage, since the start.
    pub commits: u64,
    /// Open now.
    pub connections: u64,
    /// Since the start.
    pub uptime_ms: u64,
    /// Bytes of the journal that a crash of the system had left unreadable at the start: names may be lost.
    pub journal_lost: u64,
    /// Names have been looked through for damage since the start, or before it.
    pub looked_through: bool,
    /// Records and entries of the store that were found damaged.
    pub damaged: u64,
    /// What is wrong with the first of them.
    pub damage: Vec<String>,
    /// What and where.
    pub store: String,
    /// Refused acts.
    pub audit: AuditStatus,
    /// Users who have more files than their soft limit allows.
    pub over_soft: u64,
    /// Users who have as many files as their hard limit allows.
    pub at_hard: u64,
    /// Users who have more bytes than their soft limit allows.
    pub bytes_over_soft: u64,
    /// Users who have as many bytes as their hard limit allows.
    pub bytes_at_hard: u64,
    /// Users with limits on bytes whose bytes are being counted.
    pub bytes_uncounted: u64,
    /// All files of users have been counted, so that limits hold.
    pub counted: bool,
}
