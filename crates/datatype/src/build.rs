//! The MPI constructors (MPI 4.1, section 5.1) on loops.
//!
//! Displacements and strides are in bytes. Bounds follow the standard: those of all children, including children
//! without data. Two things are left to the caller, who applies [`Loop::resized`] with what the MPI library reports.
//! One is the alignment padding of a struct. The other is the rule that an explicit bound of one struct field overrides
//! the natural bounds of the others.

use crate::error::{Error, Result};
use crate::fuse;
use crate::loops::{Loop, Placed};

/// Which dimension of an array varies fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The last (row-major).
    C,
    /// The first (column-major).
    Fortran,
}

/// `MPI_DISTRIBUTE_*` with its argument (`None` = default argument).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Not distributed: every process has the whole dimension.
    None,
    /// One block per process, of the given length.
    Block(Option<u64>),
    /// Blocks of the given length, round robin.
    Cyclic(Option<u64>),
}

const BOUNDS: Error = Error::Overflow("bounds beyond 63 bits");

/// Lower and upper bound of everything that a constructor places.
#[derive(Clone, Copy)]
struct Bounds(Option<(i128, i128)>);

impl Bounds {
    fn new() -> Bounds {
        Bounds(None)
    }
    /// Adds `count` children at `at`, one extent apart.
    fn add(&mut self, at: i128, count: u64, child: &Loop) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let last = (count as i128 - 1)
            .checked_mul(child.extent() as i128)
            .ok_or(BOUNDS)?;
        for at in [Some(at), at.checked_add(last)] {
            let at = at.ok_or(BOUNDS)?;
            let lb = at.checked_add(child.lb() as i128).ok_or(BOUNDS)?;
            let ub = at.checked_add(child.ub()).ok_or(BOUNDS)?;
            let (l, u) = self.0.unwrap_or((lb, ub));
            self.0 = Some((l.min(lb), u.max(ub)));
        }
        Ok(())
    }
    fn finish(self, placed: Placed) -> Result<Loop> {
        let (lb, ub) = self.0.unwrap_or((0, 0));
        Loop::assemble(lb, ub.checked_sub(lb).ok_or(BOUNDS)?, placed)
    }
}

impl Loop {
    /// Leaf: `n` contiguous bytes, lb 0, extent n.
    ///
    /// # Panics
    /// If `n` is above 2^63 − 1; use [`Loop::contig`] for untrusted lengths.
    pub fn bytes(n: u64) -> Loop {
        fuse::contig(n)
            .and_then(|placed| Loop::assemble(0, n as i128, placed))
            .expect("a run of bytes has at most 2^63 - 1 of them")
    }

    /// `count` children, one extent apart (`MPI_Type_contiguous`).
    pub fn contig(count: u64, child: &Loop) -> Result<Loop> {
        let mut bounds = Bounds::new();
        bounds.add(0, count, child)?;
        bounds.finish(fuse::vector(count, child.extent(), child.0.placed.clone())?)
    }

    /// `count` blocks of `blocklen` children, `stride` bytes apart (`MPI_Type_create_hvector`). For `MPI_Type_vector`
    /// multiply by the child's extent first.
    pub fn vector(count: u64, blocklen: u64, stride: i64, child: &Loop) -> Result<Loop> {
        let mut bounds = Bounds::new();
        if count > 0 {
            let last = (count as i128 - 1)
                .checked_mul(stride as i128)
                .ok_or(BOUNDS)?;
            bounds.add(0, blocklen, child)?;
            bounds.add(last, blocklen, child)?;
        }
        let block = fuse::vector(blocklen, child.extent(), child.0.placed.clone())?;
        bounds.finish(fuse::vector(count, stride, block)?)
    }

    /// A block of `blocklen` children at each displacement (`MPI_Type_create_hindexed_block`).
    pub fn blockindexed(blocklen: u64, displs: &[i64], child: &Loop) -> Result<Loop> {
        let mut bounds = Bounds::new();
        if let (Some(&min), Some(&max)) = (displs.iter().min(), displs.iter().max()) {
            bounds.add(min as i128, blocklen, child)?;
            bounds.add(max as i128, blocklen, child)?;
        }
        let block = fuse::vector(blocklen, child.extent(), child.0.placed.clone())?;
        bounds.finish(fuse::blocks(displs.to_vec(), block)?)
    }

    /// `blocklens[i]` children at `displs[i]` (`MPI_Type_create_hindexed`).
    pub fn indexed(blocklens: &[u64], displs: &[i64], child: &Loop) -> Result<Loop> {
        if blocklens.len() != displs.len() {
            return Err(Error::Invalid(format!(
                "indexed has {} block lengths but {} displacements",
                blocklens.len(),
                displs.len()
            )));
        }
        let mut bounds = Bounds::new();
        for (&n, &at) in blocklens.iter().zip(displs) {
            bounds.add(at as i128, n, child)?;
        }
        bounds.finish(fuse::indexed(
            displs,
            blocklens,
            child.extent(),
            child.0.placed.clone(),
        )?)
    }

    /// Fields (count, displacement, child) in stream order (`MPI_Type_create_struct`).
    pub fn structure(fields: &[(u64, i64, Loop)]) -> Result<Loop> {
        let mut bounds = Bounds::new();
        let mut parts = Vec::with_capacity(fields.len());
        for (count, displ, child) in fields {
            bounds.add(*displ as i128, *count, child)?;
            parts.push(shifted(
                *displ,
                fuse::vector(*count, child.extent(), child.0.placed.clone())?,
            )?);
        }
        bounds.finish(fuse::structure(parts)?)
    }

    /// The same data with other bounds (`MPI_Type_create_resized`).
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Loop> {
        Loop::assemble(lb as i128, extent as i128, self.0.placed.clone())
    }

    /// A block of an array (`MPI_Type_create_subarray`); the extent is that of the whole array.
    pub fn subarray(
        sizes: &[u64],
        subsizes: &[u64],
        starts: &[u64],
        order: Order,
        child: &Loop,
    ) -> Result<Loop> {
        if sizes.is_empty() || sizes.len() != subsizes.len() || sizes.len() != starts.len() {
            return Err(Error::Invalid(format!(
                "subarray has {} sizes, {} subsizes and {} starts; it needs as many of each, at least one",
                sizes.len(),
                subsizes.len(),
                starts.len()
            )));
        }
        let mut array = Array::new(child);
        for d in fastest_first(sizes.len(), order) {
            let fits = starts[d]
                .checked_add(subsizes[d])
                .is_some_and(|end| end <= sizes[d]);
            if !fits {
                return Err(Error::Invalid(format!(
                    "subarray dimension {d}: {} elements from {} do not lie in {}",
                    subsizes[d], starts[d], sizes[d]
                )));
            }
            array.pick(
                sizes[d],
                &[Pick {
                    first: starts[d],
                    blocks: 1,
                    len: subsizes[d],
                    step: 0,
                }],
            )?;
        }
        array.finish()
    }

    /// One process's share of a distributed array (`MPI_Type_create_darray`). The process grid is row-major, whatever
    /// the array's order. The extent is that of the whole array.
    pub fn darray(
        ranks: u64,
        rank: u64,
        gsizes: &[u64],
        distribs: &[Distribution],
        psizes: &[u64],
        order: Order,
        child: &Loop,
    ) -> Result<Loop> {
        if gsizes.is_empty() || gsizes.len() != distribs.len() || gsizes.len() != psizes.len() {
            return Err(Error::Invalid(format!(
                "darray has {} global sizes, {} distributions and {} process counts; it needs as many \
                 of each, at least one",
                gsizes.len(),
                distribs.len(),
                psizes.len()
            )));
        }
        let grid = psizes.iter().try_fold(1u64, |n, &p| n.checked_mul(p));
        if grid != Some(ranks) || rank >= ranks {
            return Err(Error::Invalid(format!(
                "darray: process grid {psizes:?} does not hold rank {rank} of {ranks}"
            )));
        }
        let mut coords = vec![0u64; psizes.len()];
        let mut left = rank;
        for (c, &p) in coords.iter_mut().zip(psizes).rev() {
            (*c, left) = (left % p, left / p);
        }
        let mut array = Array::new(child);
        for d in fastest_first(gsizes.len(), order) {
            let picks = share(d, gsizes[d], distribs[d], psizes[d], coords[d])?;
            array.pick(gsizes[d], &picks)?;
        }
        array.finish()
    }
}

/// Dimensions from the fastest varying to the slowest.
fn fastest_first(dims: usize, order: Order) -> Vec<usize> {
    match order {
        Order::C => (0..dims).rev().collect(),
        Order::Fortran => (0..dims).collect(),
    }
}

fn shifted(by: i64, placed: Placed) -> Result<Placed> {
    let at = placed
        .at
        .checked_add(by)
        .ok_or(Error::Overflow("offsets beyond 63 bits"))?;
    Ok(Placed { at, ..placed })
}

/// Elements picked along one dimension: `blocks` blocks of `len`, `step` apart, from `first`.
struct Pick {
    first: u64,
    blocks: u64,
    len: u64,
    step: u64,
}

/// The elements of a dimension of `size` that process `coord` of `procs` owns.
fn share(dim: usize, size: u64, how: Distribution, procs: u64, coord: u64) -> Result<Vec<Pick>> {
    match how {
        Distribution::None => {
            if procs != 1 {
                return Err(Error::Invalid(format!(
                    "darray dimension {dim} is not distributed but has {procs} processes"
                )));
            }
            Ok(vec![Pick {
                first: 0,
                blocks: 1,
                len: size,
                step: 0,
            }])
        }
        Distribution::Block(len) => {
            let len = len.unwrap_or(size.div_ceil(procs));
            if len.checked_mul(procs).is_some_and(|held| held < size) {
                return Err(Error::Invalid(format!(
                    "darray dimension {dim}: {procs} blocks of {len} do not hold {size} elements"
                )));
            }
            let first = len.saturating_mul(coord).min(size);
            Ok(vec![Pick {
                first,
                blocks: 1,
                len: len.min(size - first),
                step: 0,
            }])
        }
        Distribution::Cyclic(len) => {
            let len = len.unwrap_or(1);
            if len == 0 {
                return Err(Error::Invalid(format!(
                    "darray dimension {dim}: cyclic blocks of 0 elements"
                )));
            }
            let first = len.saturating_mul(coord).min(size);
            let step = len.saturating_mul(procs);
            let (turns, rest) = ((size - first) / step, (size - first) % step);
            let blocks = turns + u64::from(rest >= len);
            let mut picks = vec![Pick {
                first,
                blocks,
                len,
                step,
            }];
            if rest > 0 && rest < len {
                picks.push(Pick {
                    first: first + turns * step,
                    blocks: 1,
                    len: rest,
                    step: 0,
                });
            }
            Ok(picks)
        }
    }
}

/// An array being built dimension by dimension, the fastest first.
struct Array {
    placed: Placed,
    /// Extent of all dimensions so far.
    extent: i128,
}

impl Array {
    fn new(child: &Loop) -> Array {
        Array {
            placed: child.0.placed.clone(),
            extent: child.extent() as i128,
        }
    }
    /// Adds a dimension of `size` elements, of which `picks` are taken.
    fn pick(&mut self, size: u64, picks: &[Pick]) -> Result<()> {
        let element = i64::try_from(self.extent).map_err(|_| BOUNDS)?;
        let scaled = |n: u64| {
            let bytes = (n as i128).checked_mul(element as i128).ok_or(BOUNDS)?;
            i64::try_from(bytes).map_err(|_| BOUNDS)
        };
        let mut parts = Vec::with_capacity(picks.len());
        for p in picks {
            let block = fuse::vector(p.len, element, self.placed.clone())?;
            let step = if p.blocks > 1 { scaled(p.step)? } else { 0 };
            parts.push(shifted(
                scaled(p.first)?,
                fuse::vector(p.blocks, step, block)?,
            )?);
        }
        self.placed = fuse::structure(parts)?;
        self.extent = (size as i128).checked_mul(element as i128).ok_or(BOUNDS)?;
        Ok(())
    }
    fn finish(self) -> Result<Loop> {
        Loop::assemble(0, self.extent, self.placed)
    }
}
