//! Loop fusion (DT section III.B, figure 7): builds the bodies in canonical form.
//!
//! Problem: programs nest constructors freely (a contiguous of a contiguous inside a vector). Each level costs time in
//! every walk and bytes in every request. Idea: each constructor here returns the simplest tree that keeps the typemap
//! order:
//!
//! - contig of bytes is bytes; a vector whose blocks touch is bytes;
//! - a vector of a vector whose strides line up is one vector;
//! - blocks at a constant distance are a vector, blocks of equal length are blockindexed,
//!   touching blocks become one;
//! - a struct of byte runs is indexed, a struct of equal children blockindexed, a struct inside a
//!   struct is spliced in;
//! - levels of one element and blocks of no bytes vanish; a shift moves up to the root.
//!
//! Rules must not change their own results, because the decoder relies on canonical form.

use crate::error::{Error, Result};
use crate::loops::{Body, Field, Joins, LoopKind, MAX, MAX_DEPTH, MAX_NODES, Placed};
use std::sync::Arc;

const OFFSETS: Error = Error::Overflow("offsets beyond 63 bits");
const SIZE: Error = Error::Overflow("more than 2^63 - 1 data bytes");

/// `n` adjacent bytes.
pub(crate) fn contig(n: u64) -> Result<Placed> {
    let hi = i64::try_from(n).map_err(|_| SIZE)?;
    let body = Body {
        kind: LoopKind::Contig,
        size: n,
        lo: 0,
        hi,
        end: hi,
        regions: u64::from(n > 0),
        depth: 1,
        nodes: 1,
        monotone: true,
    };
    Ok(Placed {
        at: 0,
        body: Arc::new(body),
    })
}

/// No bytes.
pub(crate) fn empty() -> Result<Placed> {
    contig(0)
}

/// `count` children, `stride` bytes apart.
pub(crate) fn vector(count: u64, stride: i64, child: Placed) -> Result<Placed> {
    let Placed { at, body: child } = child;
    if count == 0 || child.size == 0 {
        return empty();
    }
    if count == 1 {
        return Ok(Placed { at, body: child });
    }
    let size = count
        .checked_mul(child.size)
        .filter(|&s| s as i128 <= MAX)
        .ok_or(SIZE)?;
    if child.dense(stride) {
        return Ok(Placed {
            at,
            ..contig(size)?
        });
    }
    if let LoopKind::Vector {
        count: inner,
        stride: step,
        child: unit,
    } = &child.kind
        && *inner as i128 * *step as i128 == stride as i128
    {
        // The product of counts is at most the size.
        return Ok(Placed {
            at,
            ..vector(
                count * inner,
                *step,
                Placed {
                    at: 0,
                    body: unit.clone(),
                },
            )?
        });
    }
    let last = (count as i128 - 1) * stride as i128;
    let reach = Reach::new()
        .with(0, child.lo as i128, child.hi as i128)
        .with(last, child.lo as i128, child.hi as i128)
        .check()?;
    let joins = if child.end as i128 == stride as i128 {
        count - 1
    } else {
        0
    };
    let body = Body {
        size,
        lo: reach.lo,
        hi: reach.hi,
        end: offset(last + child.end as i128)?,
        regions: count * child.regions - joins,
        depth: deeper(child.depth)?,
        nodes: nodes(child.nodes)?,
        monotone: child.monotone && stride >= child.hi,
        kind: LoopKind::Vector {
            count,
            stride,
            child,
        },
    };
    Ok(Placed {
        at,
        body: Arc::new(body),
    })
}

/// Byte runs (offset, length), in stream order.
pub(crate) fn runs(list: impl IntoIterator<Item = (i64, u64)>) -> Result<Placed> {
    let (mut displs, mut starts, mut total) = (Vec::new(), vec![0u64], 0u64);
    let mut end = None;
    for (at, len) in list {
        if len == 0 {
            continue;
        }
        total = total
            .checked_add(len)
            .filter(|&t| t as i128 <= MAX)
            .ok_or(SIZE)?;
        if end != Some(at) {
            displs.push(at);
            starts.push(total);
        } else if let Some(last) = starts.last_mut() {
            *last = total;
        }
        end = Some(at.checked_add(len as i64).ok_or(OFFSETS)?);
    }
    if displs.is_empty() {
        return empty();
    }
    let first = starts[1];
    if starts.windows(2).all(|w| w[1] - w[0] == first) {
        return apart(displs, contig(first)?.body);
    }
    finish_indexed(displs, starts, 1, contig(1)?.body)
}

/// One child at each displacement.
pub(crate) fn blocks(displs: Vec<i64>, child: Placed) -> Result<Placed> {
    let Placed { at, body: child } = child;
    if displs.is_empty() || child.size == 0 {
        return empty();
    }
    if matches!(child.kind, LoopKind::Contig) {
        let len = child.size;
        let list = displs
            .iter()
            .map(|&d| Ok((d.checked_add(at).ok_or(OFFSETS)?, len)));
        return runs(list.collect::<Result<Vec<_>>>()?);
    }
    let mut displs = displs;
    for d in &mut displs {
        *d = d.checked_add(at).ok_or(OFFSETS)?;
    }
    apart(displs, child)
}

/// Equal blocks; none is adjacent to the next if they are plain bytes.
fn apart(mut displs: Vec<i64>, child: Arc<Body>) -> Result<Placed> {
    let at = displs[0];
    if displs.len() == 1 {
        return Ok(Placed { at, body: child });
    }
    let step = displs[1] as i128 - at as i128;
    if displs
        .windows(2)
        .all(|w| w[1] as i128 - w[0] as i128 == step)
    {
        let stride = i64::try_from(step).map_err(|_| OFFSETS)?;
        return Ok(Placed {
            at,
            ..vector(displs.len() as u64, stride, Placed { at: 0, body: child })?
        });
    }
    rebase(&mut displs)?;
    let count = displs.len() as u64;
    let size = count
        .checked_mul(child.size)
        .filter(|&s| s as i128 <= MAX)
        .ok_or(SIZE)?;
    let mut reach = Reach::new();
    for &d in &displs {
        reach = reach.with(d as i128, child.lo as i128, child.hi as i128);
    }
    let reach = reach.check()?;
    let steps = || displs.windows(2).map(|w| w[1] as i128 - w[0] as i128);
    let (joins, joined) = joins(steps().map(|s| s == child.end as i128), displs.len());
    let body = Body {
        size,
        lo: reach.lo,
        hi: reach.hi,
        end: displs[displs.len() - 1] + child.end,
        regions: count * child.regions - joined,
        depth: deeper(child.depth)?,
        nodes: nodes(child.nodes)?,
        monotone: child.monotone && steps().all(|s| s >= child.hi as i128),
        kind: LoopKind::BlockIndexed {
            displs: displs.into(),
            joins,
            child,
        },
    };
    Ok(Placed {
        at,
        body: Arc::new(body),
    })
}

/// Block i: `counts[i]` children, `stride` bytes apart, from `displs[i]`.
pub(crate) fn indexed(
    displs: &[i64],
    counts: &[u64],
    stride: i64,
    child: Placed,
) -> Result<Placed> {
    let Placed {
        at: shift,
        body: child,
    } = child;
    if child.size == 0 {
        return empty();
    }
    let place = |d: i64| d.checked_add(shift).ok_or(OFFSETS);
    if child.dense(stride) {
        let list = displs
            .iter()
            .zip(counts)
            .filter(|&(_, &n)| n > 0)
            .map(|(&d, &n)| Ok((place(d)?, n.checked_mul(child.size).ok_or(SIZE)?)));
        return runs(list.collect::<Result<Vec<_>>>()?);
    }
    // A unit that is itself strided in step is replaced by its own unit.
    if let LoopKind::Vector {
        count: inner,
        stride: step,
        child: unit,
    } = &child.kind
        && *inner as i128 * *step as i128 == stride as i128
    {
        let counts = counts.iter().map(|n| n.checked_mul(*inner).ok_or(SIZE));
        let counts = counts.collect::<Result<Vec<_>>>()?;
        return indexed(
            displs,
            &counts,
            *step,
            Placed {
                at: shift,
                body: unit.clone(),
            },
        );
    }
    let (mut places, mut starts, mut total) = (Vec::new(), vec![0u64], 0u64);
    let mut next = None;
    for (&d, &n) in displs.iter().zip(counts) {
        if n == 0 {
            continue;
        }
        let at = place(d)?;
        total = total.checked_add(n).ok_or(SIZE)?;
        if next != Some(at as i128) {
            places.push(at);
            starts.push(total);
        } else if let Some(last) = starts.last_mut() {
            *last = total;
        }
        next = Some(at as i128 + (n as i128).checked_mul(stride as i128).ok_or(OFFSETS)?);
    }
    if places.is_empty() {
        return empty();
    }
    let first = starts[1];
    if starts.windows(2).all(|w| w[1] - w[0] == first) {
        return blocks(
            places,
            vector(first, stride, Placed { at: 0, body: child })?,
        );
    }
    finish_indexed(places, starts, stride, child)
}

/// The node for blocks of different lengths; none continues the one before it.
fn finish_indexed(
    mut displs: Vec<i64>,
    starts: Vec<u64>,
    stride: i64,
    child: Arc<Body>,
) -> Result<Placed> {
    let at = displs[0];
    rebase(&mut displs)?;
    let blocks = displs.len();
    let units = starts[blocks];
    let size = units
        .checked_mul(child.size)
        .filter(|&s| s as i128 <= MAX)
        .ok_or(SIZE)?;
    let dense = child.dense(stride);
    let last_of = |i: usize| (starts[i + 1] - starts[i] - 1) as i128 * stride as i128;
    let mut reach = Reach::new();
    let mut monotone = child.monotone;
    let mut within = 0u64;
    for (i, &d) in displs.iter().enumerate() {
        let (d, last) = (d as i128, last_of(i));
        reach = reach.with(d, child.lo as i128, child.hi as i128).with(
            d + last,
            child.lo as i128,
            child.hi as i128,
        );
        let many = starts[i + 1] - starts[i] > 1;
        monotone &= !many || stride >= child.hi;
        monotone &= i + 1 == blocks || displs[i + 1] as i128 >= d + last + child.hi as i128;
        if many && stride == child.end {
            within += starts[i + 1] - starts[i] - 1;
        }
    }
    let reach = reach.check()?;
    let boundary =
        |i: usize| displs[i + 1] as i128 == displs[i] as i128 + last_of(i) + child.end as i128;
    let (joins, joined) = joins((0..blocks - 1).map(boundary), blocks);
    let regions = if dense {
        blocks as u64
    } else {
        units * child.regions - within
    };
    let body = Body {
        size,
        lo: reach.lo,
        hi: reach.hi,
        end: offset(displs[blocks - 1] as i128 + last_of(blocks - 1) + child.end as i128)?,
        regions: regions - joined,
        depth: deeper(child.depth)?,
        nodes: nodes(child.nodes)?,
        monotone,
        kind: LoopKind::Indexed {
            displs: displs.into(),
            starts: starts.into(),
            joins,
            stride,
            child,
        },
    };
    Ok(Placed {
        at,
        body: Arc::new(body),
    })
}

/// Different children at their offsets, in stream order.
pub(crate) fn structure(parts: Vec<Placed>) -> Result<Placed> {
    let mut flat: Vec<Placed> = Vec::with_capacity(parts.len());
    for part in parts {
        if let LoopKind::Struct { fields } = &part.body.kind {
            for field in fields {
                let at = part.at.checked_add(field.displ).ok_or(OFFSETS)?;
                push(
                    &mut flat,
                    Placed {
                        at,
                        body: field.body.clone(),
                    },
                )?;
            }
        } else if part.body.size > 0 {
            push(&mut flat, part)?;
        }
    }
    let Some(first) = flat.first().cloned() else {
        return empty();
    };
    if flat.len() == 1 {
        return Ok(first);
    }
    if let Some(list) = as_runs(&flat)? {
        return runs(list);
    }
    if flat.iter().all(|p| p.body == first.body) {
        return blocks(
            flat.iter().map(|p| p.at).collect(),
            Placed {
                at: 0,
                body: first.body,
            },
        );
    }
    if let Some((stride, unit, counts)) = same_unit(&flat) {
        let displs: Vec<i64> = flat.iter().map(|p| p.at).collect();
        return indexed(&displs, &counts, stride, Placed { at: 0, body: unit });
    }
    finish_struct(flat)
}

/// Adds a field; bytes adjacent to the bytes before them are joined to these.
fn push(flat: &mut Vec<Placed>, part: Placed) -> Result<()> {
    if let Some(last) = flat.last_mut()
        && matches!(
            (&last.body.kind, &part.body.kind),
            (LoopKind::Contig, LoopKind::Contig)
        )
        && last.at.checked_add(last.body.end) == Some(part.at)
    {
        let size = last.body.size.checked_add(part.body.size).ok_or(SIZE)?;
        last.body = contig(size)?.body;
        return Ok(());
    }
    flat.push(part);
    Ok(())
}

/// The fields as byte runs, if all of them are lists of runs.
fn as_runs(flat: &[Placed]) -> Result<Option<Vec<(i64, u64)>>> {
    let mut list = Vec::with_capacity(flat.len());
    for part in flat {
        let place = |d: i64| part.at.checked_add(d).ok_or(OFFSETS);
        match &part.body.kind {
            LoopKind::Contig => list.push((part.at, part.body.size)),
            LoopKind::BlockIndexed { displs, child, .. }
                if matches!(child.kind, LoopKind::Contig) =>
            {
                for &d in displs {
                    list.push((place(d)?, child.size));
                }
            }
            LoopKind::Indexed {
                displs,
                starts,
                stride,
                child,
                ..
            } if child.dense(*stride) => {
                for (&d, w) in displs.iter().zip(starts.windows(2)) {
                    list.push((place(d)?, (w[1] - w[0]) * child.size));
                }
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(list))
}

/// The unit, its stride and the counts, if the fields are copies of one unit at one stride.
fn same_unit(flat: &[Placed]) -> Option<(i64, Arc<Body>, Vec<u64>)> {
    let (stride, unit) = flat.iter().find_map(|p| match &p.body.kind {
        LoopKind::Vector { stride, child, .. } => Some((*stride, child.clone())),
        _ => None,
    })?;
    let counts = flat.iter().map(|p| match &p.body.kind {
        LoopKind::Vector {
            count,
            stride: s,
            child,
        } if *s == stride && *child == unit => Some(*count),
        _ if p.body == unit => Some(1),
        _ => None,
    });
    let counts = counts.collect::<Option<Vec<u64>>>()?;
    Some((stride, unit, counts))
}

fn finish_struct(flat: Vec<Placed>) -> Result<Placed> {
    let at = flat[0].at;
    let mut reach = Reach::new();
    let (mut size, mut runs, mut depth, mut count) = (0u64, 0u64, 0u32, 0u64);
    let mut end = None::<i128>;
    let mut monotone = true;
    let mut fields = Vec::with_capacity(flat.len());
    for part in flat {
        let body = part.body;
        let displ = part.at as i128 - at as i128;
        reach = reach.with(displ, body.lo as i128, body.hi as i128);
        let joined = end == Some(displ);
        monotone &= body.monotone && end.is_none_or(|e| displ >= e);
        fields.push(Field {
            displ: offset(displ)?,
            start: size,
            runs,
            joined,
            body: body.clone(),
        });
        size = size
            .checked_add(body.size)
            .filter(|&s| s as i128 <= MAX)
            .ok_or(SIZE)?;
        runs += body.regions - u64::from(joined);
        depth = depth.max(body.depth);
        count = count.saturating_add(body.nodes);
        end = Some(displ + body.end as i128);
    }
    let reach = reach.check()?;
    let body = Body {
        size,
        lo: reach.lo,
        hi: reach.hi,
        end: offset(end.unwrap_or(0))?,
        regions: runs,
        depth: deeper(depth)?,
        nodes: nodes(count)?,
        monotone,
        kind: LoopKind::Struct {
            fields: fields.into(),
        },
    };
    Ok(Placed {
        at,
        body: Arc::new(body),
    })
}

/// Lowest and highest offset over some children.
#[derive(Clone, Copy)]
struct Reach {
    lo: i128,
    hi: i128,
}
struct Checked {
    lo: i64,
    hi: i64,
}
impl Reach {
    fn new() -> Reach {
        Reach {
            lo: i128::MAX,
            hi: i128::MIN,
        }
    }
    fn with(self, at: i128, lo: i128, hi: i128) -> Reach {
        Reach {
            lo: self.lo.min(at + lo),
            hi: self.hi.max(at + hi),
        }
    }
    fn check(self) -> Result<Checked> {
        if self.hi - self.lo > MAX {
            return Err(OFFSETS);
        }
        Ok(Checked {
            lo: offset(self.lo)?,
            hi: offset(self.hi)?,
        })
    }
}

fn offset(at: i128) -> Result<i64> {
    i64::try_from(at).map_err(|_| OFFSETS)
}

fn deeper(depth: u32) -> Result<u32> {
    if depth >= MAX_DEPTH {
        Err(Error::Overflow("more than 32 levels after fusion"))
    } else {
        Ok(depth + 1)
    }
}

fn nodes(below: u64) -> Result<u64> {
    if below >= MAX_NODES {
        Err(Error::Overflow("more than 2^20 nodes"))
    } else {
        Ok(below + 1)
    }
}

/// Makes the displacements relative to the first one.
fn rebase(displs: &mut [i64]) -> Result<()> {
    let at = displs[0];
    for d in displs {
        *d = d.checked_sub(at).ok_or(OFFSETS)?;
    }
    Ok(())
}

/// Prefix counts of joined boundaries, and their total.
fn joins(boundaries: impl Iterator<Item = bool> + Clone, blocks: usize) -> (Joins, u64) {
    if !boundaries.clone().any(|j| j) {
        return (Joins::default(), 0);
    }
    let mut prefix = Vec::with_capacity(blocks);
    let mut joined = 0u64;
    prefix.push(0);
    for j in boundaries {
        joined += u64::from(j);
        prefix.push(joined);
    }
    (Joins(prefix.into()), joined)
}
