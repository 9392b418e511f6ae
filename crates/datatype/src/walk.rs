//! Walking the runs of a stream range.
//!
//! Problem: calling back once per run costs more than moving 8 bytes. Idea: pass *bursts* (many equal blocks at one
//! stride), *grids* (bursts at a second stride), and whole lists of irregular blocks. The receiver then runs its own
//! tight loop. A range that cuts a loop is a partial head, a middle of whole children and a partial tail at each level.
//! Finding both ends takes O(depth · log blocks).
//!
//! Offsets wrap: patterns are checked when they are made, so that final offsets fit.

use crate::loops::{Body, LoopKind};
use std::ops::ControlFlow;

/// Whether to continue.
pub(crate) type Flow = ControlFlow<()>;
pub(crate) const ON: Flow = ControlFlow::Continue(());

/// `count` blocks of `len` bytes, `stride` bytes apart, the first at `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    pub at: i64,
    pub len: u64,
    pub stride: i64,
    pub count: u64,
}

/// Receives a walk in stream order. Consecutive blocks may be adjacent.
pub(crate) trait Sink {
    /// `len` bytes at `at`.
    fn block(&mut self, at: i64, len: u64) -> Flow;

    /// Equal blocks; at least two.
    fn burst(&mut self, burst: Burst) -> Flow {
        let mut at = burst.at;
        for _ in 0..burst.count {
            self.block(at, burst.len)?;
            at = at.wrapping_add(burst.stride);
        }
        ON
    }

    /// `count` bursts, `stride` bytes apart.
    fn grid(&mut self, count: u64, stride: i64, burst: Burst) -> Flow {
        let mut burst = burst;
        for _ in 0..count {
            self.burst(burst)?;
            burst.at = burst.at.wrapping_add(stride);
        }
        ON
    }

    /// `count` times the same `runs`, `stride` bytes apart. No two of the blocks overlap.
    fn tiles(&mut self, count: u64, stride: i64, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let mut at = at;
        for _ in 0..count {
            self.runs(at, displs, starts)?;
            at = at.wrapping_add(stride);
        }
        ON
    }

    /// Blocks of `len` bytes at `at` plus each displacement.
    fn blocks(&mut self, at: i64, displs: &[i64], len: u64) -> Flow {
        for &d in displs {
            self.block(at.wrapping_add(d), len)?;
        }
        ON
    }

    /// `lens[i]` bytes at `at + displs[i]`, where `lens[i] = starts[i + 1] - starts[i]`.
    fn runs(&mut self, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        for (&d, w) in displs.iter().zip(starts.windows(2)) {
            self.block(at.wrapping_add(d), w[1] - w[0])?;
        }
        ON
    }
}

/// Offset of copy `i` at `stride`.
pub(crate) fn step(at: i64, i: u64, stride: i64) -> i64 {
    at.wrapping_add((i as i64).wrapping_mul(stride))
}

/// Stream bytes `[lo, hi)`, not empty, of a body placed at `at`.
pub(crate) fn part<S: Sink>(body: &Body, at: i64, lo: u64, hi: u64, sink: &mut S) -> Flow {
    if lo == 0 && hi == body.size {
        return whole(body, at, sink);
    }
    match &body.kind {
        LoopKind::Contig => sink.block(at.wrapping_add(lo as i64), hi - lo),
        LoopKind::Vector { stride, child, .. } => part_of_copies(child, *stride, at, lo, hi, sink),
        LoopKind::BlockIndexed { displs, child, .. } => {
            let place = |i: u64| at.wrapping_add(displs[i as usize]);
            let cut = Cut::new(child.size, lo, hi);
            if cut.inside() {
                return part(child, place(cut.first), cut.skip, cut.rest, sink);
            }
            let mut first = cut.first;
            if cut.skip > 0 {
                part(child, place(first), cut.skip, child.size, sink)?;
                first += 1;
            }
            whole_at(child, at, &displs[first as usize..cut.last as usize], sink)?;
            if cut.rest > 0 {
                part(child, place(cut.last), 0, cut.rest, sink)?;
            }
            ON
        }
        LoopKind::Indexed {
            displs,
            starts,
            stride,
            child,
            ..
        } => {
            let n = child.size;
            let (first, last) = (block_of(starts, lo / n), block_of(starts, (hi - 1) / n));
            let edge = |i: usize, lo: u64, hi: u64, sink: &mut S| {
                let before = starts[i] * n;
                part_of_copies(
                    child,
                    *stride,
                    at.wrapping_add(displs[i]),
                    lo - before,
                    hi - before,
                    sink,
                )
            };
            if first == last {
                return edge(first, lo, hi, sink);
            }
            edge(first, lo, starts[first + 1] * n, sink)?;
            whole_indexed(
                child,
                *stride,
                at,
                &displs[first + 1..last],
                &starts[first + 1..=last],
                sink,
            )?;
            edge(last, starts[last] * n, hi, sink)
        }
        LoopKind::Struct { fields } => {
            let first = fields.partition_point(|f| f.start <= lo) - 1;
            for field in &fields[first..] {
                if field.start >= hi {
                    break;
                }
                let from = lo.saturating_sub(field.start);
                let to = (hi - field.start).min(field.body.size);
                part(&field.body, at.wrapping_add(field.displ), from, to, sink)?;
            }
            ON
        }
    }
}

/// Stream bytes `[lo, hi)`, not empty, of endless copies of `unit` at `stride`.
pub(crate) fn part_of_copies<S: Sink>(
    unit: &Body,
    stride: i64,
    at: i64,
    lo: u64,
    hi: u64,
    sink: &mut S,
) -> Flow {
    if unit.dense(stride) {
        return sink.block(at.wrapping_add(lo as i64), hi - lo);
    }
    let cut = Cut::new(unit.size, lo, hi);
    if cut.inside() {
        return part(unit, step(at, cut.first, stride), cut.skip, cut.rest, sink);
    }
    let mut first = cut.first;
    if cut.skip > 0 {
        part(unit, step(at, first, stride), cut.skip, unit.size, sink)?;
        first += 1;
    }
    copies(
        unit,
        stride,
        step(at, first, stride),
        cut.last - first,
        sink,
    )?;
    if cut.rest > 0 {
        part(unit, step(at, cut.last, stride), 0, cut.rest, sink)?;
    }
    ON
}

/// A range over units of one size: starts `skip` bytes into unit `first`, ends `rest` bytes into
/// unit `last`.
pub(crate) struct Cut {
    pub first: u64,
    pub skip: u64,
    pub last: u64,
    pub rest: u64,
}
impl Cut {
    pub fn new(size: u64, lo: u64, hi: u64) -> Cut {
        Cut {
            first: lo / size,
            skip: lo % size,
            last: hi / size,
            rest: hi % size,
        }
    }
    /// Within one unit, not all of it.
    pub fn inside(&self) -> bool {
        self.first == self.last
    }
}

/// The block that contains unit `unit`.
pub(crate) fn block_of(starts: &[u64], unit: u64) -> usize {
    starts.partition_point(|&s| s <= unit) - 1
}

/// All of a body.
pub(crate) fn whole<S: Sink>(body: &Body, at: i64, sink: &mut S) -> Flow {
    match &body.kind {
        LoopKind::Contig => sink.block(at, body.size),
        LoopKind::Vector {
            count,
            stride,
            child,
        } => copies(child, *stride, at, *count, sink),
        LoopKind::BlockIndexed { displs, child, .. } => whole_at(child, at, displs, sink),
        LoopKind::Indexed {
            displs,
            starts,
            stride,
            child,
            ..
        } => whole_indexed(child, *stride, at, displs, starts, sink),
        LoopKind::Struct { fields } => {
            for field in fields {
                whole(&field.body, at.wrapping_add(field.displ), sink)?;
            }
            ON
        }
    }
}

/// `count` whole units at `stride`.
fn copies<S: Sink>(unit: &Body, stride: i64, at: i64, count: u64, sink: &mut S) -> Flow {
    if count <= 1 {
        return if count == 1 {
            whole(unit, at, sink)
        } else {
            ON
        };
    }
    if unit.dense(stride) {
        return sink.block(at, unit.size * count);
    }
    match &unit.kind {
        LoopKind::Contig => sink.burst(Burst {
            at,
            len: unit.size,
            stride,
            count,
        }),
        LoopKind::Vector {
            count: inner,
            stride: step,
            child,
        } if matches!(child.kind, LoopKind::Contig) => sink.grid(
            count,
            stride,
            Burst {
                at,
                len: child.size,
                stride: *step,
                count: *inner,
            },
        ),
        LoopKind::Indexed {
            displs,
            starts,
            stride: step,
            child,
            ..
        } if child.size == 1 && child.dense(*step) && unit.monotone && stride >= unit.hi => {
            sink.tiles(count, stride, at, displs, starts)
        }
        _ => {
            let mut at = at;
            for _ in 0..count {
                whole(unit, at, sink)?;
                at = at.wrapping_add(stride);
            }
            ON
        }
    }
}

fn whole_at<S: Sink>(child: &Body, at: i64, displs: &[i64], sink: &mut S) -> Flow {
    if matches!(child.kind, LoopKind::Contig) {
        return sink.blocks(at, displs, child.size);
    }
    for &d in displs {
        whole(child, at.wrapping_add(d), sink)?;
    }
    ON
}

/// Whole blocks; `starts` has one entry more than `displs`.
fn whole_indexed<S: Sink>(
    child: &Body,
    stride: i64,
    at: i64,
    displs: &[i64],
    starts: &[u64],
    sink: &mut S,
) -> Flow {
    if child.size == 1 && child.dense(stride) {
        return sink.runs(at, displs, starts);
    }
    for (&d, w) in displs.iter().zip(starts.windows(2)) {
        copies(child, stride, at.wrapping_add(d), w[1] - w[0], sink)?;
    }
    ON
}
