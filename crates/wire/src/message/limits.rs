//! Bounds on the size of messages and on the number of things that they name.

/// Bytes of one encoded message.
pub const MAX_BODY: usize = 1 << 20;
/// Bytes of file data with one message.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes that one request fetches ahead; what is behind them is read when it is asked for.
pub const MAX_PREFETCH: u64 = 256 << 20;
/// Settings in one `Tune`.
pub const MAX_SETTINGS: usize = MAX_LIST;
/// Regions in one list request (DT II.D).
pub const MAX_LIST: usize = 64;
/// Bytes of one encoded loop on the wire.
pub const MAX_LOOP: usize = 1 << 19;
/// Findings of one verification that are reported.
pub const MAX_FINDINGS: usize = 1024;
/// Slots of one session: this many changes of names can be in flight at once.
pub const SLOTS: u16 = 64;
/// Requests in one batch to the metadata server.
pub const MAX_BATCH: usize = 4096;
/// Objects in one page of a listing.
pub const MAX_OBJECTS: usize = 8192;
