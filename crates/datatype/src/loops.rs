//! The loop tree (DT section III.B).
//!
//! A [`Loop`] is a placed *body* plus the bounds (lb, extent) that say how it tiles. Bounds matter only where the loop
//! is tiled, so they are stored only at the root; inside the tree each level has its own stride. Bodies are normalised:
//! the first stream byte is at offset 0, and the shift moves up to the root. Bodies are immutable and shared.
//!
//! Every node stores its size, its bounds, the end of its stream, its number of runs and whether it is monotone. All
//! queries about ranges therefore descend one path.

use crate::error::{Error, Result};
use std::sync::{Arc, OnceLock};

/// Deepest tree that can be built or decoded (levels, including the leaf).
pub const MAX_DEPTH: u32 = 32;
/// Most nodes of a tree, where shared nodes count each time they are reached.
pub(crate) const MAX_NODES: u64 = 1 << 20;
/// Largest size or offset.
pub(crate) const MAX: i128 = i64::MAX as i128;

/// Content hash of an encoded loop (BLAKE3, first 16 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopHash(pub [u8; 16]);

/// One instance of a datatype; immutable, cheap to clone.
#[derive(Clone)]
pub struct Loop(pub(crate) Arc<Root>);

/// A placed body with its bounds, and its encoded form once it was requested.
pub(crate) struct Root {
    pub lb: i64,
    pub extent: i64,
    pub placed: Placed,
    pub encoded: OnceLock<Arc<[u8]>>,
    pub hash: OnceLock<LoopHash>,
}

/// A body whose first stream byte lies at offset `at`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub at: i64,
    pub body: Arc<Body>,
}

/// A node of the tree with its precomputed properties. All offsets are relative to its first stream byte.
#[derive(Debug)]
pub(crate) struct Body {
    pub kind: LoopKind,
    /// Data bytes.
    pub size: u64,
    /// Lowest offset covered; at most 0.
    pub lo: i64,
    /// One past the highest offset covered.
    pub hi: i64,
    /// One past the offset of the last stream byte.
    pub end: i64,
    /// Number of runs, with adjacent ones joined.
    pub regions: u64,
    /// Levels, including this one.
    pub depth: u32,
    /// Nodes of the subtree.
    pub nodes: u64,
    /// Offsets ascend along the stream, without overlap.
    pub monotone: bool,
}

/// The five kinds. They are never degenerate: see `fuse`.
#[derive(Debug)]
pub(crate) enum LoopKind {
    /// `size` adjacent bytes.
    Contig,
    /// `count` children, `stride` bytes apart.
    Vector {
        count: u64,
        stride: i64,
        child: Arc<Body>,
    },
    /// One child at each displacement.
    BlockIndexed {
        displs: Box<[i64]>,
        joins: Joins,
        child: Arc<Body>,
    },
    /// Block i: children `starts[i]..starts[i + 1]`, `stride` bytes apart, from `displs[i]`.
    Indexed {
        displs: Box<[i64]>,
        starts: Box<[u64]>,
        joins: Joins,
        stride: i64,
        child: Arc<Body>,
    },
    /// Different children.
    Struct { fields: Box<[Field]> },
}

/// One field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    pub displ: i64,
    /// Stream position of its first byte within the struct.
    pub start: u64,
    /// Runs that begin before it.
    pub runs: u64,
    /// Whether it continues the last run of the field before it.
    pub joined: bool,
    pub body: Arc<Body>,
}

/// For each block i, how many of the boundaries 1..=i join two runs; empty if none does.
#[derive(Debug, Default)]
pub(crate) struct Joins(pub Box<[u64]>);

impl Joins {
    /// Joined boundaries among 1..=block.
    pub fn through(&self, block: usize) -> u64 {
        self.0.get(block).copied().unwrap_or(0)
    }
    /// Joined boundaries among 1..block.
    pub fn before(&self, block: usize) -> u64 {
        if block == 0 {
            0
        } else {
            self.through(block - 1)
        }
    }
}

impl Body {
    /// Whether the unit's copies at `stride` are adjacent.
    pub fn dense(&self, stride: i64) -> bool {
        matches!(self.kind, LoopKind::Contig) && stride >= 0 && stride as u64 == self.size
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        if (
            self.size,
            self.lo,
            self.hi,
            self.end,
            self.regions,
            self.nodes,
        ) != (
            other.size,
            other.lo,
            other.hi,
            other.end,
            other.regions,
            other.nodes,
        ) {
            return false;
        }
        match (&self.kind, &other.kind) {
            (LoopKind::Contig, LoopKind::Contig) => true,
            (
                LoopKind::Vector {
                    count,
                    stride,
                    child,
                },
                LoopKind::Vector {
                    count: c,
                    stride: s,
                    child: o,
                },
            ) => count == c && stride == s && child == o,
            (
                LoopKind::BlockIndexed { displs, child, .. },
                LoopKind::BlockIndexed {
                    displs: d,
                    child: o,
                    ..
                },
            ) => displs == d && child == o,
            (
                LoopKind::Indexed {
                    displs,
                    starts,
                    stride,
                    child,
                    ..
                },
                LoopKind::Indexed {
                    displs: d,
                    starts: st,
                    stride: s,
                    child: o,
                    ..
                },
            ) => displs == d && starts == st && stride == s && child == o,
            (LoopKind::Struct { fields }, LoopKind::Struct { fields: f }) => {
                fields.len() == f.len()
                    && fields
                        .iter()
                        .zip(f.iter())
                        .all(|(a, b)| a.displ == b.displ && a.body == b.body)
            }
            _ => false,
        }
    }
}

impl Loop {
    pub(crate) fn assemble(lb: i128, extent: i128, placed: Placed) -> Result<Loop> {
        let too_large = Error::Overflow("bounds beyond 63 bits");
        let (Ok(lb), Ok(extent)) = (i64::try_from(lb), i64::try_from(extent)) else {
            return Err(too_large);
        };
        let at = placed.at as i128;
        if lb.checked_add(extent).is_none()
            || i64::try_from(at + placed.body.lo as i128).is_err()
            || i64::try_from(at + placed.body.hi as i128).is_err()
        {
            return Err(too_large);
        }
        Ok(Loop(Arc::new(Root {
            lb,
            extent,
            placed,
            encoded: OnceLock::new(),
            hash: OnceLock::new(),
        })))
    }
    pub(crate) fn body(&self) -> &Arc<Body> {
        &self.0.placed.body
    }
    /// Offset of the first stream byte.
    pub(crate) fn at(&self) -> i64 {
        self.0.placed.at
    }
    pub(crate) fn ub(&self) -> i128 {
        self.0.lb as i128 + self.0.extent as i128
    }

    /// Data bytes in one instance.
    pub fn size(&self) -> u64 {
        self.body().size
    }
    /// Lower bound (bytes).
    pub fn lb(&self) -> i64 {
        self.0.lb
    }
    /// Distance from one instance to the next when tiled (bytes); upper bound − lower bound.
    pub fn extent(&self) -> i64 {
        self.0.extent
    }
    /// Lowest offset with data; 0 for an empty loop.
    pub fn true_lb(&self) -> i64 {
        self.at() + self.body().lo
    }
    /// From the lowest offset with data to one past the highest.
    pub fn true_extent(&self) -> u64 {
        (self.body().hi - self.body().lo) as u64
    }
    /// Levels of the tree; 1 for contiguous bytes.
    pub fn depth(&self) -> u32 {
        self.body().depth
    }
    /// Runs in one instance, with adjacent ones joined; O(1).
    pub fn regions(&self) -> u64 {
        self.body().regions
    }
    /// Whether it is one run, also when tiled (size == extent, lb == true_lb).
    pub fn is_contiguous(&self) -> bool {
        self.body().dense(self.extent()) && (self.size() == 0 || self.lb() == self.true_lb())
    }
    /// Whether offsets ascend along the stream of one instance without overlap, as MPI requires of a filetype for
    /// writing.
    pub fn ascends(&self) -> bool {
        self.size() == 0 || self.body().monotone
    }
    /// The same when tiled.
    pub fn is_monotone(&self) -> bool {
        self.size() == 0 || (self.body().monotone && self.extent() >= self.body().hi)
    }
    /// Name of the outermost kind: `contig`, `vector`, `blockindexed`, `indexed` or `struct`.
    pub fn kind(&self) -> &'static str {
        match self.body().kind {
            LoopKind::Contig => "contig",
            LoopKind::Vector { .. } => "vector",
            LoopKind::BlockIndexed { .. } => "blockindexed",
            LoopKind::Indexed { .. } => "indexed",
            LoopKind::Struct { .. } => "struct",
        }
    }
}

impl PartialEq for Loop {
    /// Same tree, same bounds.
    fn eq(&self, other: &Loop) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.lb == other.0.lb
                && self.0.extent == other.0.extent
                && self.0.placed == other.0.placed)
    }
}
impl Eq for Loop {}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Loop[lb {}, extent {}]@{} ",
            self.lb(),
            self.extent(),
            self.at()
        )?;
        show(self.body(), f)
    }
}

/// Prints the tree; long block lists are abbreviated.
fn show(body: &Body, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    const SHOWN: usize = 4;
    match &body.kind {
        LoopKind::Contig => write!(f, "contig({} B)", body.size),
        LoopKind::Vector {
            count,
            stride,
            child,
        } => {
            write!(f, "vector({count} by {stride} of ")?;
            show(child, f)?;
            write!(f, ")")
        }
        LoopKind::BlockIndexed { displs, child, .. } => {
            write!(
                f,
                "blockindexed({} at {:?}.. of ",
                displs.len(),
                &displs[..displs.len().min(SHOWN)]
            )?;
            show(child, f)?;
            write!(f, ")")
        }
        LoopKind::Indexed {
            displs,
            starts,
            stride,
            child,
            ..
        } => {
            let n = displs.len().min(SHOWN);
            write!(
                f,
                "indexed({} at {:?}.. from child {:?}.. by {stride} of ",
                displs.len(),
                &displs[..n],
                &starts[..n]
            )?;
            show(child, f)?;
            write!(f, ")")
        }
        LoopKind::Struct { fields } => {
            write!(f, "struct({} fields:", fields.len())?;
            for field in fields.iter().take(SHOWN) {
                write!(f, " {}:", field.displ)?;
                show(&field.body, f)?;
            }
            write!(f, ")")
        }
    }
}
