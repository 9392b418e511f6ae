//! What the methods need below them: Penstock's servers (`penstock.rs`) or an ordinary mounted file system
//! (`direct.rs`).
use crate::error::Result;
use crate::stats::ServerTraffic;
use crate::task::Task;
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::{Layout, ServerId};
use std::ops::Range;
use std::sync::Arc;

/// How an operation reaches the bytes. A file system without a form uses its nearest one.
pub use penstock_client::Form;
pub use penstock_wire::message::LockMode;

/// How to open a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Reading is wanted.
    pub read: bool,
    /// Writing is wanted.
    pub write: bool,
    /// Create it if it does not exist, with this permission mode.
    pub create: Option<u32>,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    /// Of a new file, bytes.
    pub stripe_unit: Option<u64>,
    /// Of a new file, servers to use.
    pub stripe_count: Option<u32>,
    /// Of a new file, the first server.
    pub start_server: Option<ServerId>,
    /// With `write`, in a task that is alone: it [claims](FileSystem::claim) the file.
    pub task: Option<Task>,
}

/// A name space with files.
pub trait FileSystem: Send + Sync {
    /// `penstock` or `direct`, for hints and statistics.
    fn name(&self) -> &'static str;
    /// Opens a file, creating it when asked to.
    fn open(&self, path: &str, how: &OpenHow) -> Result<Arc<dyn FileHandle>>;
    /// Keeps the file of this name to one task of its step, for as long as the step may last: an error if another one has
    /// it. Different steps know nothing of each other.
    fn claim(&self, path: &str, task: &Task) -> Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &str) -> Result<()>;
    /// The shared number `token` of an open file, `initial` at first. Each rank that uses it asks, and frees it in the
    /// end. `one_node`: all its users are on this host.
    fn counter(
        &self,
        path: &str,
        token: u128,
        initial: i64,
        one_node: bool,
    ) -> Result<Box<dyn Counter>>;
    /// What this process asked each data server for so far.
    fn traffic(&self) -> Vec<ServerTraffic> {
        Vec::new()
    }
    /// An MPI call that moves data begins: operations from now on are its, for traces.
    fn begin_call(&self) {}
}

/// A number that all ranks of an open file share.
pub trait Counter: Send + Sync {
    /// Adds at once; returns what it was before.
    fn add(&self, n: i64) -> Result<i64>;
    /// Sets it.
    fn set(&self, value: i64) -> Result<()>;
    /// What it is.
    fn get(&self) -> Result<i64>;
    /// This rank is through with it, and so are all others.
    fn free(&self) -> Result<()>;
}

/// A held range lock or write guard; released when dropped.
pub trait Guard: Send {
    /// Whether the lock was lost with its server: others may have changed what it covers. A fresh one can be taken.
    fn is_lost(&self) -> bool {
        false
    }
}

/// The operations of a call, in order: each takes its bytes at a position of the memory side's stream.
pub type Operations<'a> = dyn Iterator<Item = (u64, Pattern)> + 'a;

/// An open file.
pub trait FileHandle: Send + Sync {
    /// The same for all opens of one file, whatever they called it; `one_node`: compared on this host only.
    fn identity(&self, one_node: bool) -> (u64, u64);
    /// How it is striped, where it is.
    fn layout(&self) -> Option<&Layout>;
    /// Whether [`Form::Shortcut`] would use descriptors now.
    fn has_shortcut(&self) -> bool;
    /// Reads; returns the stream bytes that lay before the end of the file. Bytes in holes are zero; the memory of
    /// bytes at and after the end is left as it was.
    fn read_each(
        &self,
        operations: &mut Operations<'_>,
        form: Form,
        into: &mut Target<'_>,
    ) -> Result<u64>;
    /// Writes; returns the stream bytes written, all of them unless there is an error.
    fn write_each(
        &self,
        operations: &mut Operations<'_>,
        form: Form,
        from: &mut Source<'_>,
    ) -> Result<u64>;
    /// The servers fetch what the patterns cover into their caches. Returns when they have taken the requests; what cannot be
    /// read is found out by whoever reads it. Without servers there is nothing to do.
    fn prefetch(&self, patterns: &[Pattern]) -> Result<()> {
        let _ = patterns;
        Ok(())
    }
    /// Reads the file from `offset` on until `into` is full, if that takes no operations; otherwise false, and nothing is
    /// known about `into`.
    fn read_fast_path(&self, offset: u64, into: &mut [u8]) -> bool {
        let _ = (offset, into);
        false
    }
    /// Writes all of `from` at `offset`, if that takes no operations; otherwise false, and it is still to be written.
    fn write_fast_path(&self, offset: u64, from: &[u8]) -> bool {
        let _ = (offset, from);
        false
    }
    /// File length in bytes.
    fn len(&self) -> Result<u64>;
    /// Truncates or extends.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves space for the first `len` bytes; the file is at least that long after.
    fn allocate(&self, len: u64) -> Result<()>;
    /// The devices begin with what is written of the file on this node, where `parts` ranks share that out, of which this
    /// is number `part`. Promises nothing; a sync is to follow.
    fn start_writeback(&self, part: usize, parts: usize) {
        let _ = (part, parts);
    }
    /// What every process wrote is on stable storage, data and length. Called by all ranks when all writes are done;
    /// `leads` is true on one rank of each node, which is enough where a node has one cache.
    fn sync(&self, leads: bool) -> Result<()>;
    /// Waits for a range lock. Operations of this handle made while it is held pass it.
    fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<Box<dyn Guard>>;
    /// Held around the plain writes of an access within `range`: keeps them out of the range of anyone else's
    /// exclusive lock, where the file system does not do that for each operation by itself.
    fn writing(&self, range: Range<u64>) -> Result<Option<Box<dyn Guard>>>;
}
