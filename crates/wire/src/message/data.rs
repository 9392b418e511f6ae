//! Requests and replies of the data servers.
use super::capability::Capability;
use super::ledger::{DirectSums, LedgerStatus};
use super::limits::MAX_LIST;
#[cfg(doc)]
use super::limits::MAX_PREFETCH;
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
    /// At most MAX_LIST pairs (offset, length).
    List(#[serde(deserialize_with = "bounded::at_most::<MAX_LIST, _, _>")] Vec<(u64, u64)>),
    /// A loop that the server should know by its hash; otherwise it answers `UnknownLoop`.
    LoopHash {
        /// [`penstock_datatype::LoopHash`].
        hash: [u8; 16],
        /// File offset of tile 0.
        disp: i64,
        /// First byte of the stream.
        start: u64,
        /// Bytes of the stream.
        len: u64,
    },
    /// The same with the encoded loop, which the server then caches.
    LoopInline {
        #[serde(with = "bounded::encoded_loop")]
        /// `Loop::encode`, at most MAX_LOOP bytes.
        encoded: Vec<u8>,
        /// File offset of tile 0.
        disp: i64,
        /// First byte of the stream.
        start: u64,
        /// Bytes of the stream.
        len: u64,
    },
}

/// What a range lock excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    /// Excludes writers.
    Shared,
    /// Excludes writers and other locks.
    Exclusive,
}

/// An open file at a data server, valid for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handle(pub u32);
/// A range lock, valid for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// The page cache that a data server's writes are in (`Store::incarnation`), as NFS's write verifier. An incarnation
/// that has ended never returns, and unsynced writes were lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub [u8; 16]);

/// A request to a data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataRequest {
    /// Presents a capability; later requests name the handle. Attaching again renews.
    Attach {
        /// From the metadata server.
        capability: Capability,
    },
    /// Closes the handle; with the file's last handle its locks and shortcuts on this connection end.
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
        /// A lock of this connection; `LockLost` if it no longer holds it.
        lock: Option<LockId>,
    },
    /// Payload frames follow: the bytes of the region on this server in stream order.
    Write {
        /// The open file.
        handle: Handle,
        /// Which bytes of the file.
        region: Region,
        /// A lock of this connection; `LockLost` if it no longer holds it.
        lock: Option<LockId>,
    },
    /// Object length.
    Len {
        /// The open file.
        handle: Handle,
    },
    /// Truncates or extends the object.
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
    /// Answered by `Synced` when all acknowledged writes to the object in this incarnation are on stable storage.
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
        /// What it excludes.
        mode: LockMode,
        /// After this time the answer is `LockTimeout`.
        timeout_ms: u64,
    },
    /// Releases a lock.
    Unlock {
        /// The open file.
        handle: Handle,
        /// The lock.
        lock: LockId,
    },
    /// A descriptor of the object for a client on the same host, and the grant page (`penstock_rpc::grant`). Unix
    /// socket only.
    Shortcut {
        /// The open file.
        handle: Handle,
    },
    /// Removes the object; a missing object is no error.
    Remove {
        /// From the metadata server.
        capability: Capability,
    },
    /// For `check` and `status`; needs the admin right of the handshake.
    ListObjects {
        /// The last object of the page before.
        after: Option<FileId>,
        /// Most objects of the page.
        limit: u32,
    },
    /// Removes an object without a capability, for `check`. Needs the admin right.
    RemoveObject {
        /// The file of the object.
        file: FileId,
    },
    /// For `check`: examines every object without reading its bytes (`Store::verify`), answered by `Findings`. Takes
    /// time proportional to the number of objects. Needs the admin right.
    Verify,
    /// Health and usage.
    Status,
    /// Stops the server. Needs the admin right.
    Shutdown,
    /// Accepts a damaged object as it is, so that it can be used again. Needs the admin right.
    Accept {
        /// The file of the object.
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
        /// From the metadata server; any right suffices.
        capability: Capability,
    },
    /// Extends the object to at least `len` bytes; never truncates, whatever others write.
    Extend {
        /// The open file.
        handle: Handle,
        /// Bytes.
        len: u64,
    },
    /// A permanent descriptor of a file's only object, for the kernel of a mount, which cannot return it before the
    /// file is closed. Unix socket and root only. Answered by `Lent` or `NoShortcut`.
    Lend {
        /// The open file.
        handle: Handle,
        /// Also for writing: until it is closed, range locks on the object must wait.
        write: bool,
    },
    /// Reserves the space that the object lacks for its first `len` bytes, without changing the object. The handle's
    /// next `Allocate` or `Hold`, or the end of the connection, releases it first.
    Hold {
        /// The open file.
        handle: Handle,
        /// Bytes; 0 to release the space.
        len: u64,
    },
    /// Reads the deployment file again and uses the keys that it names. Needs the admin right. Answered by `Keys`.
    LoadKeys,
    /// For `check`: the bytes of users with quotas on bytes, as this server counts them. Needs the admin right.
    /// Answered by `Counted`.
    CountBytes {
        /// First resets the counts and counts again; until that is done, objects of these users cannot grow.
        anew: bool,
    },
    /// Who loads the server: all programs for administrators, else one's own. Answered by `Ledger`.
    Ledger,
    /// The fast tier's bytes come home from now on, whoever uses the slow store. `Status` says how many wait. Needs the
    /// admin right.
    Drain,
    /// Fetches the bytes of the region on this server into its cache, at most [`MAX_PREFETCH`], and returns none of them.
    /// Answered by `Done` before they are fetched; what cannot be read is found out by a read. Later requests of the
    /// connection wait.
    Prefetch {
        /// The open file.
        handle: Handle,
        /// Which bytes of the file.
        region: Region,
    },
}

/// An answer of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataReply {
    /// To `Attach`.
    Attached {
        /// The open file.
        handle: Handle,
        /// The incarnation of the connection's writes: a server has one for its whole life.
        incarnation: Incarnation,
    },
    /// Bytes sent: fewer than requested if the object ends early.
    Read {
        /// How many.
        bytes: u64,
    },
    /// All bytes of the write have been received.
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
    /// Descriptors accompany this frame: object, grant page.
    Shortcut {
        /// The descriptor allows writing.
        writable: bool,
    },
    /// Shortcuts are not granted now (policy or lock): use requests.
    NoShortcut {
        /// The reason, for people.
        reason: String,
    },
    /// The client must send the loop itself. The payload of a write was dropped.
    UnknownLoop,
    /// A page of objects.
    Objects {
        /// Ids and lengths, in the store's order.
        objects: Vec<(FileId, u64)>,
        /// There are more.
        more: bool,
    },
    /// The first MAX_FINDINGS findings.
    Findings {
        /// What was found.
        findings: Vec<ObjectFinding>,
        /// There are more.
        more: bool,
    },
    /// To `Status`.
    Status(Box<DataStatus>),
    /// The request was carried out.
    Done,
    /// The request failed.
    Error(WireError),
    /// To `Look`.
    Looked {
        /// Bytes.
        len: u64,
        /// Nanoseconds since the epoch; `None`: no byte of the file is on this server.
        modified_ns: Option<i64>,
    },
    /// To `Lend`: the descriptor accompanies this frame.
    Lent,
    /// To `Sync`.
    Synced {
        /// The incarnation whose writes are on stable storage.
        incarnation: Incarnation,
    },
    /// To `LoadKeys`.
    Keys(KeysHeld),
    /// To `CountBytes`: users with quotas on bytes, in order.
    Counted(
        #[serde(deserialize_with = "bounded::at_most::<MAX_BYTE_USERS, _, _>")] Vec<CountedBytes>,
    ),
    /// To `Ledger`.
    Ledger(Box<LedgerStatus>),
}

/// Damage that a data server found in its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFinding {
    /// `None`: not an object.
    pub object: Option<FileId>,
    /// The kind of damage, for programs.
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
    /// The record of its length is damaged; its bytes may be intact.
    BadRecord,
    /// A file that no store creates.
    Foreign,
    /// The file cannot be opened.
    Unreadable,
    /// The object is missing from the store.
    Missing,
}

/// Health and usage of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataStatus {
    /// Its number.
    pub server: u32,
    /// Backend and path.
    pub store: String,
    /// Open connections.
    pub connections: u64,
    /// Since the start.
    pub requests: u64,
    /// Bytes read through requests, since the start.
    pub bytes_read: u64,
    /// Bytes written through requests, since the start.
    pub bytes_written: u64,
    /// Size of the file system below.
    pub total_bytes: u64,
    /// Free bytes of the file system below.
    pub free_bytes: u64,
    /// Number of objects, counted up to 65,536 and a page.
    pub objects: u64,
    /// Time spent on requests, including waiting, summed over connections.
    pub busy_ns: u64,
    /// Since the start.
    pub uptime_ms: u64,
    /// The scheduler between arrival and store.
    pub sched: Box<SchedulerStatus>,
    /// Files with lower ids may have lost bytes when this store replaced another one.
    pub lost_below: u64,
    /// Difference between its wall clock and the metadata server's, milliseconds, to some seconds; `None`: no answer
    /// yet.
    pub clock_ahead_ms: Option<i64>,
    /// The store, if the metadata server has to know it.
    pub identity: Option<StoreState>,
    /// Counts of its audit log.
    pub audit: AuditStatus,
    /// Past the server by shortcuts, since the start, as clients count it.
    pub direct: DirectSums,
    /// Its fast tier, if it has one.
    pub fast: Option<FastStatus>,
}

/// The fast tier before a data server's store. Counts are since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FastStatus {
    /// Its directory, on the server's host.
    pub path: String,
    /// `auto`, `on` or `off`.
    pub mode: String,
    /// What it does, in words.
    pub state: String,
    /// Why bytes do not come home, or what is wrong; empty if nothing is.
    pub problem: String,
    /// Bytes of objects that are not in the slow store yet.
    pub waiting: u64,
    /// Objects with such bytes.
    pub objects: u64,
    /// Bytes of its log.
    pub log: u64,
    /// Most bytes of its log.
    pub limit: u64,
    /// Writes that it took.
    pub writes: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Writes for which it had no room.
    pub refused: u64,
    /// Bytes that came to the slow store.
    pub home: u64,
    /// Records that are damaged.
    pub damaged: u64,
    /// 1000 H: how much farther apart requests are than they would be behind its log.
    pub h_milli: u64,
}

/// State of a data server's scheduler. Counts are since the start; requests are slices of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SchedulerStatus {
    /// By name.
    pub algorithm: String,
    /// The mode and reason of its choice, unless a user chose it.
    pub choice: Option<ChoiceStatus>,
    /// Virtual requests served at once, at most.
    pub depth: u32,
    /// Bytes.
    pub quantum: u64,
    /// Whether conflicting requests are served in order of arrival.
    pub order_conflicts: bool,
    /// Whether a trace of each request is recorded.
    pub observed: bool,
    /// Requests waiting now.
    pub queued: u64,
    /// Requests being served now.
    pub serving: u64,
    /// Most requests that waited at once.
    pub peak_queued: u64,
    /// Requests that arrived.
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
    /// Virtual requests with 1, 2, 3–4, 5–8, … requests; the last counts all larger ones.
    pub aggregations: Vec<u64>,
    /// Requests of the largest virtual request.
    pub largest_aggregation: u32,
    /// Waits for a shifted request.
    pub shift_waits: u64,
    /// Waits for a larger aggregation.
    pub aggregation_waits: u64,
    /// Requests held back by an earlier one with common bytes.
    pub conflicts: u64,
    /// Median time from arrival to dispatch.
    pub waiting_p50_ns: u64,
    /// 99th percentile of the same.
    pub waiting_p99_ns: u64,
    /// Waits for a predicted aggregation.
    pub predicted_waits: u64,
    /// The trace that is being written.
    pub trace: Option<TraceStatus>,
    /// The prediction from an earlier trace.
    pub prediction: Option<PredictionStatus>,
    /// Programs that use this server.
    pub programs: Vec<ProgramStatus>,
}

/// A trace that a data server writes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceStatus {
    /// Its file, on the server's host.
    pub path: String,
    /// Events recorded.
    pub events: u64,
    /// Events lost because the buffer was full.
    pub dropped: u64,
}

/// How well a trace predicts requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PredictionStatus {
    /// The trace, on the server's host.
    pub path: String,
    /// Requests in it.
    pub predicted: u64,
    /// Aggregations of several requests predicted of them.
    pub aggregations: u64,
    /// Requests that arrived as predicted.
    pub matched: u64,
    /// Requests that did not.
    pub unmatched: u64,
    /// Waits asked for.
    pub waits: u64,
    /// Sum of the waits.
    pub waited_ns: u64,
    /// Share of waiting time in which other requests are served, millionths.
    pub alpha_ppm: u32,
    /// Waits whose end was observed; that share follows them.
    pub seen: u64,
    /// Files whose aggregations were predicted again because it changed.
    pub regrouped: u64,
}

/// The pattern of one file and operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileStatus {
    /// Its number.
    pub file: u64,
    /// Writes; otherwise reads.
    pub write: bool,
    /// Name of the pattern; empty with too few requests.
    pub pattern: String,
    /// Recent requests.
    pub requests: u32,
    /// Mean bytes of a request.
    pub request_bytes: u64,
    /// The algorithm chosen for its pattern.
    pub choice: String,
}

/// How a data server chooses its scheduling algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChoiceStatus {
    /// `tree` or `online`.
    pub mode: String,
    /// The selection tree.
    pub tree: String,
    /// The objective (online).
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
    /// Recent requests that were considered.
    pub requests: u32,
    /// Their files.
    pub files: u32,
    /// Classes of these files.
    pub patterns: Vec<PatternStatus>,
    /// The files with the most recent requests, at most 16.
    pub busiest: Vec<FileStatus>,
    /// Online: score of each algorithm, in bytes per second, or nanoseconds for the objective p99.
    pub scores: Vec<(String, u64)>,
}

/// Files with the same operation and access pattern at a data server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PatternStatus {
    /// Writes; otherwise reads.
    pub write: bool,
    /// Order of a client's accesses: contiguous, strided, random or unknown.
    pub order: String,
    /// Whether requests reach the stripe unit.
    pub large: bool,
    /// Number of files.
    pub files: u32,
    /// Recent requests to them.
    pub requests: u32,
    /// Mean bytes of a request.
    pub request_bytes: u64,
    /// Mean bytes accessed per file.
    pub bytes_per_file: u64,
    /// The tree's answer; empty if it has none.
    pub choice: String,
}

/// A program's use of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// As in [`TraceContext`](super::TraceContext); 2^64-1: all beyond those counted separately.
    pub program: u64,
    /// Requests served.
    pub requests: u64,
    /// Bytes served.
    pub bytes: u64,
    /// Share of all bytes, millionths.
    pub share_ppm: u32,
    /// Median time from arrival to completion.
    pub p50_ns: u64,
    /// 99th percentile of the same.
    pub p99_ns: u64,
}
