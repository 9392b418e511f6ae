//! The interface between methods and files: Penstock's servers (`penstock.rs`) or an ordinary mounted file system
//! (`direct.rs`).
use crate::error::Result;
use crate::stats::ServerTraffic;
use crate::task::Task;
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::{Layout, ServerId};
use std::ops::Range;
use std::sync::Arc;

/// How an operation reaches the bytes. A file system without a form uses the nearest one that it has.
pub use penstock_client::Form;
pub use penstock_wire::message::LockMode;

/// How to open a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Create it if it does not exist, with this permission mode.
    pub create: Option<u32>,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    /// Stripe unit of a new file, bytes.
    pub stripe_unit: Option<u64>,
    /// Number of servers of a new file.
    pub stripe_count: Option<u32>,
    /// First server of a new file.
    pub start_server: Option<ServerId>,
    /// With `write`, in a single-rank task of a step: it [claims](FileSystem::claim) the file.
    pub task: Option<Task>,
}

/// A name space with files.
pub trait FileSystem: Send + Sync {
    /// `penstock` or `direct`, for hints and statistics.
    fn name(&self) -> &'static str;
    /// Opens a file, creating it when asked to.
    fn open(&self, path: &str, how: &OpenHow) -> Result<Arc<dyn FileHandle>>;
    /// Reserves the file of this name for one task of its step, for the life of the step; an error if another task has
    /// it. Different steps are independent.
    fn claim(&self, path: &str, task: &Task) -> Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &str) -> Result<()>;
    /// The shared counter `token` of an open file, which begins with `initial`. Each rank that uses it requests it, and
    /// frees it in the end. `one_node`: all its users are on this host.
    fn counter(
        &self,
        path: &str,
        token: u128,
        initial: i64,
        one_node: bool,
    ) -> Result<Box<dyn Counter>>;
    /// Requests of this process to each data server so far.
    fn traffic(&self) -> Vec<ServerTraffic> {
        Vec::new()
    }
    /// An MPI call that moves data begins: later operations belong to it, for traces.
    fn begin_call(&self) {}
}

/// A number that all ranks of an open file share.
pub trait Counter: Send + Sync {
    /// Adds atomically; returns the value before.
    fn add(&self, n: i64) -> Result<i64>;
    /// Sets it.
    fn set(&self, value: i64) -> Result<()>;
    /// The value.
    fn get(&self) -> Result<i64>;
    /// This rank has finished with it, and so have all others.
    fn free(&self) -> Result<()>;
}

/// A held range lock or write guard; released on drop.
pub trait Guard: Send {
    /// Whether the lock was lost with its server: others may have changed the bytes it covers. A new one can be taken.
    fn is_lost(&self) -> bool {
        false
    }
}

/// The operations of a call, in order, each with its position in the memory side's stream.
pub type Operations<'a> = dyn Iterator<Item = (u64, Pattern)> + 'a;

/// An open file.
pub trait FileHandle: Send + Sync {
    /// A number equal for all opens of one file, whatever their path; `one_node`: only compared on this host.
    fn identity(&self, one_node: bool) -> (u64, u64);
    /// Its striping, if it has one.
    fn layout(&self) -> Option<&Layout>;
    /// Whether [`Form::Shortcut`] would use descriptors now.
    fn has_shortcut(&self) -> bool;
    /// Reads; returns the stream bytes that were before the end of the file. Holes read as zeros; memory for bytes at
    /// and beyond the end is not changed.
    fn read_each(
        &self,
        operations: &mut Operations<'_>,
        form: Form,
        into: &mut Target<'_>,
    ) -> Result<u64>;
    /// Writes; returns the stream bytes written: all unless there is an error.
    fn write_each(
        &self,
        operations: &mut Operations<'_>,
        form: Form,
        from: &mut Source<'_>,
    ) -> Result<u64>;
    /// The servers fetch what the patterns cover into their caches. Returns when they have taken the requests. A failed
    /// fetch is found out by the read that follows. Without servers there is nothing to do.
    fn prefetch(&self, patterns: &[Pattern]) -> Result<()> {
        let _ = patterns;
        Ok(())
    }
    /// Fast path: reads from `offset` until `into` is full, if possible without operations. Otherwise returns false,
    /// and the contents of `into` are unspecified.
    fn read_fast_path(&self, offset: u64, into: &mut [u8]) -> bool {
        let _ = (offset, into);
        false
    }
    /// Fast path: writes all of `from` at `offset`, if possible without operations. Otherwise returns false, and the
    /// caller must write it.
    fn write_fast_path(&self, offset: u64, from: &[u8]) -> bool {
        let _ = (offset, from);
        false
    }
    /// File length in bytes.
    fn len(&self) -> Result<u64>;
    /// Truncates or extends.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves space for the first `len` bytes; the file is at least that long afterwards.
    fn allocate(&self, len: u64) -> Result<()>;
    /// Starts write-back of the file's data on this node. `parts` ranks divide the work, and this is number `part`. It
    /// gives no guarantee; a sync must follow.
    fn start_writeback(&self, part: usize, parts: usize) {
        let _ = (part, parts);
    }
    /// Makes the data and length written by all processes durable. Called by all ranks when all writes have ended.
    /// `leads` is true on one rank of each node, which suffices where a node has one cache.
    fn sync(&self, leads: bool) -> Result<()>;
    /// Waits for a range lock. Operations of this handle are allowed while it is held.
    fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<Box<dyn Guard>>;
    /// Held around the plain writes of an access within `range`, to exclude them from anybody else's exclusive lock.
    /// Used where the file system does not do that for each operation.
    fn writing(&self, range: Range<u64>) -> Result<Option<Box<dyn Guard>>>;
}
