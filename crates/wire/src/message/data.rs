//! Requests and replies of the data servers.
use super::capability::Capability;
use super::limits::MAX_LIST;
use super::refusal::WireError;
use super::status::{AuditStatus, KeysHeld};
use super::store::StoreState;
use super::usage::{CountedBytes, MAX_BYTE_USERS};
use crate::bounded;
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// The file side of an access, in file offsets; the server intersects it with its own stripes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Region {
    /// One range.
    Contiguous {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// At most MAX_LIST (offset, length).
    List(#[serde(deserialize_with = "bounded::at_most::<MAX_LIST, _, _>")] Vec<(u64, u64)>),
    /// A loop the server should know by hash; it answers `UnknownLoop` if it does not.
    LoopHash {
        /// [`penstock_datatype::LoopHash`].
        hash: [u8; 16],
        /// Where tile 0 begins.
        disp: i64,
        /// First byte of the stream.
        start: u64,
        /// Bytes of the stream.
        len: u64,
    },
    /// The same with the encoded loop, which the server then remembers.
    LoopInline {
        #[serde(with = "bounded::encoded_loop")]
        /// `Loop::encode`, at most MAX_LOOP bytes.
        encoded: Vec<u8>,
        /// Where tile 0 begins.
        disp: i64,
        /// First byte of the stream.
        start: u64,
        /// Bytes of the stream.
        len: u64,
    },
}

/// What a range lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    /// Keeps writers out.
    Shared,
    /// Keeps writers and other locks out.
    Exclusive,
}

/// An open file at a data server, per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handle(pub u32);
/// A held range lock, per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// The page cache that a data server's writes are in (`Store::incarnation`). One that has ended never comes back, and what
/// was not synced went with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub [u8; 16]);

/// What a client asks of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataRequest {
    /// Presents a capability; later requests name the handle. Attaching again renews.
    Attach {
        /// From the metadata server.
        capability: Capability,
    },
    /// Ends the handle, and with the file's last one its locks and shortcuts on this connection.
    Detach {
        /// The open file.
        handle: Handle,
    },
    /// Answered by the bytes of the region on this server in stream order.
    Read {
        /// The open file.
        handle: Handle,
        /// Which bytes of the file.
        region: Region,
        /// Held by this connection; refused with `LockLost` if it no longer is.
        lock: Option<LockId>,
    },
    /// Payload frames follow: the bytes of the region on this server in stream order.
    Write {
        /// The open file.
        handle: Handle,
        /// Which bytes of the file.
        region: Region,
        /// Held by this connection; refused with `LockLost` if it no longer is.
        lock: Option<LockId>,
    },
    /// Object length.
    Len {
        /// The open file.
        handle: Handle,
    },
    /// Cuts or extends the object.
    SetLen {
        /// The open file.
        handle: Handle,
        /// Bytes.
        len: u64,
    },
    /// Reserves space for the first `len` bytes of the object.
    Allocate {
        /// The open file.
        handle: Handle,
        /// Bytes.
        len: u64,
    },
    /// Answered by `Synced` when everything written to the object in this incarnation and acknowledged is on stable storage.
    Sync {
        /// The open file.
        handle: Handle,
    },
    /// Object range [start, end); waits in order of arrival, at most `timeout_ms`.
    Lock {
        /// The open file.
        handle: Handle,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// What it keeps out.
        mode: LockMode,
        /// Then `LockTimeout`.
        timeout_ms: u64,
    },
    /// Ends a lock.
    Unlock {
        /// The open file.
        handle: Handle,
        /// The lock.
        lock: LockId,
    },
    /// Same-host descriptor of the object plus the grant page (see docs: revocation). Unix socket only.
    Shortcut {
        /// The open file.
        handle: Handle,
    },
    /// Removes the object; that it does not exist is no error.
    Remove {
        /// From the metadata server.
        capability: Capability,
    },
    /// For `check` and `status`; needs the admin right of the handshake.
    ListObjects {
        /// The last object of the page before.
        after: Option<FileId>,
        /// At most so many.
        limit: u32,
    },
    /// The same without a capability, for `check`. Needs the admin right.
    RemoveObject {
        /// Whose object.
        file: FileId,
    },
    /// For `check`: examines every object without reading its bytes (`Store::verify`), answered by
    /// `Findings`. Takes as long as it takes. Needs the admin right.
    Verify,
    /// Health and usage.
    Status,
    /// Stops the server. Needs the admin right.
    Shutdown,
    /// Accepts a damaged object as it is, so that it can be used again. Needs the admin right.
    Accept {
        /// Whose object.
        file: FileId,
    },
    /// Changes settings of the running server. Needs the admin right.
    Tune {
        /// At most [`MAX_SETTINGS`](super::MAX_SETTINGS), each `name=value`.
        #[serde(deserialize_with = "bounded::at_most::<MAX_LIST, _, _>")]
        settings: Vec<String>,
    },
    /// Length and last change of an object, without opening it. Answered by `Looked`.
    Look {
        /// From the metadata server; any right will do.
        capability: Capability,
    },
    /// Makes the object at least `len` bytes long; never cuts, whoever else writes.
    Extend {
        /// The open file.
        handle: Handle,
        /// Bytes.
        len: u64,
    },
    /// A descriptor of the only object of a file, for good: for the kernel of a mount, which cannot give it back before
    /// the file is closed. Unix socket and root only. Answered by `Lent` or `NoShortcut`.
    Lend {
        /// The open file.
        handle: Handle,
        /// For writing too: until it is closed, range locks on the object have to wait.
        write: bool,
    },
    /// Holds the space aside that the object lacks for its first `len` bytes, without touching the object. The handle's
    /// next `Allocate` or `Hold` gives it back first, and so does the end of the connection.
    Hold {
        /// The open file.
        handle: Handle,
        /// Bytes; none to give back what is held.
        len: u64,
    },
    /// Read the deployment file again and take the keys that it names. Needs the admin right. Answered by `Keys`.
    LoadKeys,
    /// For `check`: the bytes of users that have limits on them, as this server counts them. Needs the admin right. Answered by
    /// `Counted`.
    CountBytes {
        /// Forgets the counts first and begins to count; until that is done objects of these users don't grow.
        anew: bool,
    },
}

/// What a data server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataReply {
    /// To `Attach`.
    Attached {
        /// The open file.
        handle: Handle,
        /// What the connection's writes are in: a server has one for all its life.
        incarnation: Incarnation,
    },
    /// Bytes sent: short when the object ends early.
    Read {
        /// How many.
        bytes: u64,
    },
    /// All bytes of the write have been taken.
    Written {
        /// How many.
        bytes: u64,
    },
    /// Length of the object.
    Len {
        /// Bytes.
        len: u64,
    },
    /// The lock is held.
    Locked {
        /// The lock.
        lock: LockId,
    },
    /// Descriptors travel beside this frame: object, grant page.
    Shortcut {
        /// The descriptor allows writing.
        writable: bool,
    },
    /// Shortcuts are not granted now (policy or lock); use requests.
    NoShortcut {
        /// For people.
        reason: String,
    },
    /// Send the loop itself. A write's payload was dropped.
    UnknownLoop,
    /// A page of objects.
    Objects {
        /// Ids and lengths, in the store's order.
        objects: Vec<(FileId, u64)>,
        /// There are more.
        more: bool,
    },
    /// The first MAX_FINDINGS of them; `more` were found.
    Findings {
        /// What was found.
        findings: Vec<ObjectFinding>,
        /// There are more.
        more: bool,
    },
    /// To `Status`.
    Status(Box<DataStatus>),
    /// It is done.
    Done,
    /// It is not.
    Error(WireError),
    /// To `Look`.
    Looked {
        /// Bytes.
        len: u64,
        /// Nanoseconds since the epoch; `None`: no byte of the file came here.
        modified_ns: Option<i64>,
    },
    /// To `Lend`: the descriptor travels beside this frame.
    Lent,
    /// To `Sync`.
    Synced {
        /// The one whose writes are on stable storage.
        incarnation: Incarnation,
    },
    /// To `LoadKeys`.
    Keys(KeysHeld),
    /// To `CountBytes`: users with limits on bytes, in their order.
    Counted(
        #[serde(deserialize_with = "bounded::at_most::<MAX_BYTE_USERS, _, _>")] Vec<CountedBytes>,
    ),
}

/// What a data server found wrong in its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFinding {
    /// `None`: something that is no object.
    pub object: Option<FileId>,
    /// For programs.
    pub problem: ObjectProblem,
    /// What, where, and what to do.
    pub message: String,
}

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectProblem {
    /// Shorter than what was synced.
    Truncated {
        /// Synced length, bytes.
        recorded: u64,
        /// Present length, bytes.
        actual: u64,
    },
    /// The record of its length is damaged; its bytes may be whole.
    BadRecord,
    /// A file that no store makes.
    Foreign,
    /// The file cannot be opened.
    Unreadable,
    /// The store held the object, and it is gone.
    Missing,
}

/// Health and usage of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataStatus {
    /// Its number.
    pub server: u32,
    /// What and where.
    pub store: String,
    /// Open now.
    pub connections: u64,
    /// Since the start.
    pub requests: u64,
    /// Through requests, since the start.
    pub bytes_read: u64,
    /// Through requests, since the start.
    pub bytes_written: u64,
    /// Size of the file system below.
    pub total_bytes: u64,
    /// What is free there.
    pub free_bytes: u64,
    /// Counted up to 65,536 and a page.
    pub objects: u64,
    /// Time spent on requests, waiting included, summed over connections.
    pub busy_ns: u64,
    /// Since the start.
    pub uptime_ms: u64,
    /// The queue between arrival and store.
    pub sched: Box<SchedulerStatus>,
    /// Files with lower ids may have lost bytes when this store took the place of another.
    pub lost_below: u64,
    /// By how much its wall clock is ahead of the metadata server's, milliseconds, to some seconds; `None`: it has not heard.
    pub clock_ahead_ms: Option<i64>,
    /// The store, if it is one that the metadata server has to know.
    pub identity: Option<StoreState>,
    /// Refused acts.
    pub audit: AuditStatus,
}

/// What a data server's scheduler does. Counts are since the start; requests are slices of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SchedulerStatus {
    /// By name.
    pub algorithm: String,
    /// Who chose it and why, unless a user did.
    pub choice: Option<ChoiceStatus>,
    /// Virtual requests served at once, at most.
    pub depth: u32,
    /// Bytes.
    pub quantum: u64,
    /// Conflicting requests are served in order of arrival.
    pub order_conflicts: bool,
    /// Something hears of each request (a trace).
    pub observed: bool,
    /// Requests waiting now.
    pub queued: u64,
    /// Requests being served now.
    pub serving: u64,
    /// Most requests that waited at once.
    pub peak_queued: u64,
    /// Requests that came.
    pub arrived: u64,
    /// Requests served.
    pub completed: u64,
    /// Requests refused.
    pub refused: u64,
    /// Virtual requests dispatched.
    pub decisions: u64,
    /// Requests in them.
    pub dispatched: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// How many had 1, 2, 3–4, 5–8, … requests; the last counts all larger ones.
    pub aggregations: Vec<u64>,
    /// Requests of the largest.
    pub largest_aggregation: u32,
    /// Waits for a shifted request.
    pub shift_waits: u64,
    /// Waits for a better aggregation.
    pub aggregation_waits: u64,
    /// Requests held back for an earlier one with the same bytes.
    pub conflicts: u64,
    /// Arrival to dispatch.
    pub waiting_p50_ns: u64,
    /// Arrival to dispatch.
    pub waiting_p99_ns: u64,
    /// Waits for an aggregation that was predicted.
    pub predicted_waits: u64,
    /// The trace that is being written.
    pub trace: Option<TraceStatus>,
    /// What is predicted from an earlier trace.
    pub prediction: Option<PredictionStatus>,
    /// Who uses this server.
    pub programs: Vec<ProgramStatus>,
}

/// A trace that a data server writes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceStatus {
    /// Its file, on the server's host.
    pub path: String,
    /// Events recorded.
    pub events: u64,
    /// Events that found no room.
    pub dropped: u64,
}

/// How well a trace predicts what comes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PredictionStatus {
    /// The trace, on the server's host.
    pub path: String,
    /// Requests in it.
    pub predicted: u64,
    /// Aggregations of several requests predicted of them.
    pub aggregations: u64,
    /// Requests that came as predicted.
    pub matched: u64,
    /// Requests that did not.
    pub unmatched: u64,
    /// Waits asked for.
    pub waits: u64,
    /// Their sum.
    pub waited_ns: u64,
    /// Part of waiting time that is used for others, millionths.
    pub alpha_ppm: u32,
    /// Waits whose end has been seen, which that part follows.
    pub seen: u64,
    /// Files whose aggregations were predicted anew because it moved.
    pub regrouped: u64,
}

/// What one file shows in one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileStatus {
    /// Its number.
    pub file: u64,
    /// Written; read otherwise.
    pub write: bool,
    /// By name; empty while too few requests have been seen.
    pub pattern: String,
    /// Recent requests.
    pub requests: u32,
    /// Average bytes.
    pub request_bytes: u64,
    /// What its pattern wants.
    pub choice: String,
}

/// How a data server chooses its scheduling algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChoiceStatus {
    /// `tree` or `online`.
    pub mode: String,
    /// The selection tree.
    pub tree: String,
    /// What is to be best (online).
    pub objective: String,
    /// 1000 × sequential / random throughput of the device, reads.
    pub ratio_read_milli: u64,
    /// The same for writes.
    pub ratio_write_milli: u64,
    /// Changes of algorithm.
    pub changes: u64,
    /// Time since the last one.
    pub age_ns: u64,
    /// Why this algorithm runs.
    pub reason: String,
    /// Recent requests that were looked at.
    pub requests: u32,
    /// Their files.
    pub files: u32,
    /// What these files show.
    pub patterns: Vec<PatternStatus>,
    /// The files with the most recent requests, at most 16.
    pub busiest: Vec<FileStatus>,
    /// Online: what each algorithm gave, in bytes per second, or nanoseconds for the objective p99.
    pub scores: Vec<(String, u64)>,
}

/// Files with the same operation and access pattern at a data server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PatternStatus {
    /// Written, not read.
    pub write: bool,
    /// In which order a client makes its accesses: contiguous, strided, random or unknown.
    pub order: String,
    /// Requests reach the stripe unit.
    pub large: bool,
    /// How many.
    pub files: u32,
    /// Recent requests to them.
    pub requests: u32,
    /// Mean bytes of a request.
    pub request_bytes: u64,
    /// Mean bytes that a file has seen.
    pub bytes_per_file: u64,
    /// The tree's answer; empty: it has none.
    pub choice: String,
}

/// A program's use of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// As in [`TraceContext`](super::TraceContext); 2^64-1: all beyond the number that is told apart.
    pub program: u64,
    /// Served.
    pub requests: u64,
    /// Served.
    pub bytes: u64,
    /// Of all bytes, in millionths.
    pub share_ppm: u32,
    /// Arrival to completion.
    pub p50_ns: u64,
    /// Arrival to completion.
    pub p99_ns: u64,
}
