//! Signatures agreed between the crates. The owner of this crate replaces this file by the real modules
//! (`loops.rs`, `build.rs`, `fuse.rs`, `cursor.rs`, `pack.rs`, `codec.rs`, `signature.rs`, ...).
#![allow(
    missing_docs,
    unused_variables,
    clippy::todo,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
use std::sync::Arc;

#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum Error {
    #[error("datatype too large: {0}")]
    Overflow(&'static str),
    #[error("invalid datatype argument: {0}")]
    Invalid(String),
    #[error("malformed encoded loop at byte {at}: {what}")]
    Malformed { at: usize, what: &'static str },
}
pub type Result<T> = std::result::Result<T, Error>;

/// Content hash of an encoded loop (BLAKE3, first 16 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopHash(pub [u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    C,
    Fortran,
}

/// `MPI_DISTRIBUTE_*` with its argument (`None` = default argument).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    None,
    Block(Option<u64>),
    Cyclic(Option<u64>),
}

/// One instance of a datatype; immutable, cheap to clone.
#[derive(Debug, Clone)]
pub struct Loop(Arc<()>);

/// One contiguous piece: `len` bytes at `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub offset: i64,
    pub len: u64,
}

impl Loop {
    /// Leaf: n contiguous bytes, lb 0, extent n.
    pub fn bytes(n: u64) -> Loop {
        todo!()
    }
    pub fn contig(count: u64, child: &Loop) -> Result<Loop> {
        todo!()
    }
    /// `stride` in bytes (hvector); a vector multiplies by the child's extent first.
    pub fn vector(count: u64, blocklen: u64, stride: i64, child: &Loop) -> Result<Loop> {
        todo!()
    }
    pub fn blockindexed(blocklen: u64, displs: &[i64], child: &Loop) -> Result<Loop> {
        todo!()
    }
    pub fn indexed(blocklens: &[u64], displs: &[i64], child: &Loop) -> Result<Loop> {
        todo!()
    }
    pub fn structure(fields: &[(u64, i64, Loop)]) -> Result<Loop> {
        todo!()
    }
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Loop> {
        todo!()
    }
    pub fn subarray(
        sizes: &[u64],
        subsizes: &[u64],
        starts: &[u64],
        order: Order,
        child: &Loop,
    ) -> Result<Loop> {
        todo!()
    }
    #[allow(clippy::too_many_arguments)]
    pub fn darray(
        ranks: u64,
        rank: u64,
        gsizes: &[u64],
        distribs: &[Distribution],
        psizes: &[u64],
        order: Order,
        child: &Loop,
    ) -> Result<Loop> {
        todo!()
    }

    /// Data bytes in one instance.
    pub fn size(&self) -> u64 {
        todo!()
    }
    pub fn lb(&self) -> i64 {
        todo!()
    }
    pub fn extent(&self) -> i64 {
        todo!()
    }
    pub fn true_lb(&self) -> i64 {
        todo!()
    }
    pub fn true_extent(&self) -> u64 {
        todo!()
    }
    pub fn depth(&self) -> u32 {
        todo!()
    }
    /// Runs in one instance without walking them (adjacent runs of different blocks may count apart).
    pub fn regions(&self) -> u64 {
        todo!()
    }
    /// One run, and tiling it stays one run (size == extent, lb == true_lb).
    pub fn is_contiguous(&self) -> bool {
        todo!()
    }
    /// Offsets never decrease along the stream and runs do not overlap, also when tiled:
    /// what MPI asks of a filetype for writing.
    pub fn is_monotone(&self) -> bool {
        todo!()
    }

    /// Compact encoding; size independent of counts. Canonical: equal loops encode equally.
    pub fn encode(&self) -> Arc<[u8]> {
        todo!()
    }
    /// Strict decoder: bounded depth and size, rejects anything `encode` would not produce.
    pub fn decode(bytes: &[u8]) -> Result<Loop> {
        todo!()
    }
    pub fn hash(&self) -> LoopHash {
        todo!()
    }
}

/// A range of the stream of an endlessly tiled loop: file side (offsets are file offsets) or
/// memory side (offsets relative to the buffer's base address).
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Where tile 0 begins (bytes).
    pub disp: i64,
    pub tile: Loop,
    /// First stream byte, counted from the start of tile 0.
    pub start: u64,
    /// Number of stream bytes.
    pub len: u64,
}

impl Pattern {
    pub fn contiguous(offset: i64, len: u64) -> Pattern {
        todo!()
    }
    /// From (offset, length) regions, in stream order.
    pub fn list(regions: &[(i64, u64)]) -> Result<Pattern> {
        todo!()
    }
    pub fn new(disp: i64, tile: Loop, start: u64, len: u64) -> Result<Pattern> {
        todo!()
    }
    /// First byte's offset and one past the last byte's (min / max over all runs); (0,0) when len == 0.
    pub fn bounds(&self) -> (i64, i64) {
        todo!()
    }
    pub fn is_contiguous(&self) -> bool {
        todo!()
    }
    /// Number of coalesced runs; closed form, never walks a regular pattern.
    pub fn regions(&self) -> u64 {
        todo!()
    }
    /// Sub-range [from, from + len) of this pattern's stream (relative to this pattern).
    pub fn slice(&self, from: u64, len: u64) -> Pattern {
        todo!()
    }
    /// Monotone patterns: how many of this pattern's stream bytes lie below `offset`. O(depth log blocks).
    pub fn stream_at(&self, offset: i64) -> u64 {
        todo!()
    }
    /// Monotone patterns: the part with offsets in [lo, hi).
    pub fn window(&self, lo: i64, hi: i64) -> Pattern {
        let a = self.stream_at(lo);
        let b = self.stream_at(hi);
        self.slice(a, b - a)
    }
    pub fn cursor(&self) -> Cursor {
        todo!()
    }
    /// Calls `f(stream position, run)` for each run with adjacent runs joined; specialised inner loops.
    pub fn for_each_run(&self, f: impl FnMut(u64, Run)) {
        todo!()
    }
}

/// Walks the runs of a pattern; can stop after any byte, go on, and start anywhere.
#[derive(Debug, Clone)]
pub struct Cursor(());
impl Cursor {
    /// Stream position relative to the pattern.
    pub fn position(&self) -> u64 {
        todo!()
    }
    /// O(depth log blocks).
    pub fn seek(&mut self, stream: u64) {
        todo!()
    }
    /// The next run, at most `max` bytes of it; `None` at the end. Adjacent runs are joined up to `max`.
    pub fn next_run(&mut self, max: u64) -> Option<Run> {
        todo!()
    }
}

/// A readable buffer described by a memory pattern (what a write takes its bytes from).
#[derive(Debug, Clone)]
pub struct Source<'a>(std::marker::PhantomData<&'a [u8]>);
/// A writable buffer described by a memory pattern (where a read puts its bytes).
#[derive(Debug)]
pub struct Target<'a>(std::marker::PhantomData<&'a mut [u8]>);

// SAFETY (to be argued by the owner): plain pointers into memory that the constructor's caller vouches for.
unsafe impl Send for Source<'_> {}
unsafe impl Send for Target<'_> {}

impl<'a> Source<'a> {
    pub fn from_slice(s: &'a [u8]) -> Source<'a> {
        todo!()
    }
    /// # Safety
    /// Every byte the pattern covers relative to `base` is readable for 'a.
    pub unsafe fn new(base: *const u8, pattern: Pattern) -> Source<'a> {
        todo!()
    }
    pub fn len(&self) -> u64 {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn pattern(&self) -> &Pattern {
        todo!()
    }
    /// Stream bytes [from, from + out.len()) into `out` (pack). Cheap when `from` continues the last call.
    pub fn gather(&mut self, from: u64, out: &mut [u8]) {
        todo!()
    }
    /// The contiguous memory pieces of stream [from, from + len), in order, for vectored I/O.
    pub fn pieces(&mut self, from: u64, len: u64, f: impl FnMut(&[u8])) {
        todo!()
    }
}
impl<'a> Target<'a> {
    pub fn from_slice(s: &'a mut [u8]) -> Target<'a> {
        todo!()
    }
    /// # Safety
    /// Every byte the pattern covers relative to `base` is writable for 'a and not otherwise accessed.
    pub unsafe fn new(base: *mut u8, pattern: Pattern) -> Target<'a> {
        todo!()
    }
    pub fn len(&self) -> u64 {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn pattern(&self) -> &Pattern {
        todo!()
    }
    /// Puts `bytes` at stream [from, ...) (unpack).
    pub fn scatter(&mut self, from: u64, bytes: &[u8]) {
        todo!()
    }
    pub fn zero(&mut self, from: u64, len: u64) {
        todo!()
    }
    pub fn pieces(&mut self, from: u64, len: u64, f: impl FnMut(&mut [u8])) {
        todo!()
    }
}

/// The basic elements along the stream (for external32 and element counts): widths in memory and in file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// `count` elements of `mem` bytes in memory and `file` bytes in external32.
    Elem {
        mem: u32,
        file: u32,
        count: u64,
    },
    Repeat(u64, Arc<Signature>),
    Seq(Arc<[Signature]>),
}
