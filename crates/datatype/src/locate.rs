//! Queries about a stream range, answered on one path down the tree: O(depth · log blocks), or O(depth) in regular
//! levels.

use crate::loops::{Body, LoopKind};
use crate::walk::{Cut, block_of};

/// Offset of stream byte `s` (less than the size) of a body.
pub(crate) fn offset_at(body: &Body, s: u64) -> i128 {
    match &body.kind {
        LoopKind::Contig => s as i128,
        LoopKind::Vector { stride, child, .. } => offset_in_copies(child, *stride, s),
        LoopKind::BlockIndexed { displs, child, .. } => {
            displs[(s / child.size) as usize] as i128 + offset_at(child, s % child.size)
        }
        LoopKind::Indexed {
            displs,
            starts,
            stride,
            child,
            ..
        } => {
            let i = block_of(starts, s / child.size);
            displs[i] as i128 + offset_in_copies(child, *stride, s - starts[i] * child.size)
        }
        LoopKind::Struct { fields } => {
            let field = &fields[fields.partition_point(|f| f.start <= s) - 1];
            field.displ as i128 + offset_at(&field.body, s - field.start)
        }
    }
}

/// Offset of stream byte `s` of endless copies of `unit` at `stride`.
pub(crate) fn offset_in_copies(unit: &Body, stride: i64, s: u64) -> i128 {
    (s / unit.size) as i128 * stride as i128 + offset_at(unit, s % unit.size)
}

/// Stream bytes of a monotone body below `offset`.
pub(crate) fn bytes_below(body: &Body, offset: i64) -> u64 {
    if offset <= 0 {
        return 0;
    }
    if offset >= body.end {
        return body.size;
    }
    match &body.kind {
        LoopKind::Contig => offset as u64,
        LoopKind::Vector {
            count,
            stride,
            child,
        } => copies_below(child, *stride, *count, offset),
        LoopKind::BlockIndexed { displs, child, .. } => {
            let i = displs.partition_point(|&d| d < offset) - 1;
            i as u64 * child.size + bytes_below(child, offset - displs[i])
        }
        LoopKind::Indexed {
            displs,
            starts,
            stride,
            child,
            ..
        } => {
            let i = displs.partition_point(|&d| d < offset) - 1;
            let count = starts[i + 1] - starts[i];
            starts[i] * child.size + copies_below(child, *stride, count, offset - displs[i])
        }
        LoopKind::Struct { fields } => {
            let field = &fields[fields.partition_point(|f| f.displ < offset) - 1];
            field.start + bytes_below(&field.body, offset - field.displ)
        }
    }
}

/// Stream bytes below `offset` (> 0) in `count` (> 0) monotone copies at `stride`.
fn copies_below(unit: &Body, stride: i64, count: u64, offset: i64) -> u64 {
    if count == 1 || stride <= 0 {
        return bytes_below(unit, offset);
    }
    let i = ((offset / stride) as u64).min(count - 1);
    i * unit.size + bytes_below(unit, offset.wrapping_sub((i as i64).wrapping_mul(stride)))
}

/// Runs of a body that begin at stream positions below `s` (at most the size), the first included.
pub(crate) fn runs_before(body: &Body, s: u64) -> u64 {
    if s == 0 {
        return 0;
    }
    if s == body.size {
        return body.regions;
    }
    match &body.kind {
        LoopKind::Contig => 1,
        LoopKind::Vector { stride, child, .. } => runs_before_in_copies(child, *stride, s),
        LoopKind::BlockIndexed { joins, child, .. } => {
            let (i, rest) = (s / child.size, s % child.size);
            blocks_before(
                i * child.regions,
                joins,
                i as usize,
                runs_before(child, rest),
            )
        }
        LoopKind::Indexed {
            starts,
            joins,
            stride,
            child,
            ..
        } => {
            let i = block_of(starts, s / child.size);
            let before = if child.dense(*stride) {
                i as u64
            } else {
                let inner = if child.end == *stride {
                    starts[i] - i as u64
                } else {
                    0
                };
                starts[i] * child.regions - inner
            };
            let rest = runs_before_in_copies(child, *stride, s - starts[i] * child.size);
            blocks_before(before, joins, i, rest)
        }
        LoopKind::Struct { fields } => {
            let field = &fields[fields.partition_point(|f| f.start < s) - 1];
            field.runs - u64::from(field.joined) + runs_before(&field.body, s - field.start)
        }
    }
}

/// Adds what begins in block `i` to what begins in earlier blocks.
fn blocks_before(before: u64, joins: &crate::loops::Joins, i: usize, within: u64) -> u64 {
    if within == 0 {
        before - joins.before(i)
    } else {
        before + within - joins.through(i)
    }
}

/// The same for endless copies of `unit` at `stride`; saturates.
pub(crate) fn runs_before_in_copies(unit: &Body, stride: i64, s: u64) -> u64 {
    if s == 0 {
        return 0;
    }
    if unit.dense(stride) {
        return 1;
    }
    let (i, rest) = (s / unit.size, s % unit.size);
    let within = runs_before(unit, rest);
    // Boundary b joins copy b - 1 and copy b; it counts once copy b has begun.
    let joins = match (unit.end == stride, within) {
        (false, _) => 0,
        (true, 0) => i.saturating_sub(1),
        (true, _) => i,
    };
    i * unit.regions + within - joins
}

/// Lowest offset and one past the highest of stream bytes `[lo, hi)`, which must not be empty.
pub(crate) fn bounds(body: &Body, lo: u64, hi: u64) -> (i128, i128) {
    if lo == 0 && hi == body.size {
        return (body.lo as i128, body.hi as i128);
    }
    if body.monotone {
        return (offset_at(body, lo), offset_at(body, hi - 1) + 1);
    }
    match &body.kind {
        LoopKind::Contig => (lo as i128, hi as i128),
        LoopKind::Vector { stride, child, .. } => bounds_in_copies(child, *stride, lo, hi),
        LoopKind::BlockIndexed { displs, child, .. } => {
            let place = |i: u64| displs[i as usize] as i128;
            by_units(Cut::new(child.size, lo, hi), child, place, |first, last| {
                extremes(&displs[first as usize..last as usize])
            })
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
            let mut all = Span::new();
            for i in first..=last {
                let from = lo.max(starts[i] * n) - starts[i] * n;
                let to = hi.min(starts[i + 1] * n) - starts[i] * n;
                all.add(
                    displs[i] as i128,
                    bounds_in_copies(child, *stride, from, to),
                );
            }
            all.get()
        }
        LoopKind::Struct { fields } => {
            let first = fields.partition_point(|f| f.start <= lo) - 1;
            let mut all = Span::new();
            for f in fields[first..].iter().take_while(|f| f.start < hi) {
                let (from, to) = (lo.saturating_sub(f.start), (hi - f.start).min(f.body.size));
                all.add(f.displ as i128, bounds(&f.body, from, to));
            }
            all.get()
        }
    }
}

/// The same for endless copies of `unit` at `stride`.
pub(crate) fn bounds_in_copies(unit: &Body, stride: i64, lo: u64, hi: u64) -> (i128, i128) {
    let place = |i: u64| i as i128 * stride as i128;
    by_units(Cut::new(unit.size, lo, hi), unit, place, |first, last| {
        let (a, b) = (place(first), place(last - 1));
        (a.min(b), a.max(b))
    })
}

/// Bounds of a range over placed units: partial first and last unit, and whole ones between, whose extremes `between`
/// returns.
fn by_units(
    cut: Cut,
    unit: &Body,
    place: impl Fn(u64) -> i128,
    between: impl Fn(u64, u64) -> (i128, i128),
) -> (i128, i128) {
    let mut all = Span::new();
    if cut.inside() {
        all.add(place(cut.first), bounds(unit, cut.skip, cut.rest));
        return all.get();
    }
    let mut first = cut.first;
    if cut.skip > 0 {
        all.add(place(first), bounds(unit, cut.skip, unit.size));
        first += 1;
    }
    if first < cut.last {
        let (low, high) = between(first, cut.last);
        all.add(0, (low + unit.lo as i128, high + unit.hi as i128));
    }
    if cut.rest > 0 {
        all.add(place(cut.last), bounds(unit, 0, cut.rest));
    }
    all.get()
}

fn extremes(displs: &[i64]) -> (i128, i128) {
    let (low, high) = displs
        .iter()
        .fold((i64::MAX, i64::MIN), |(l, h), &d| (l.min(d), h.max(d)));
    (low as i128, high as i128)
}

/// Union of intervals.
struct Span(Option<(i128, i128)>);
impl Span {
    fn new() -> Span {
        Span(None)
    }
    fn add(&mut self, at: i128, (lo, hi): (i128, i128)) {
        let (lo, hi) = (at + lo, at + hi);
        self.0 = Some(self.0.map_or((lo, hi), |(l, h)| (l.min(lo), h.max(hi))));
    }
    fn get(self) -> (i128, i128) {
        self.0.unwrap_or((0, 0))
    }
}
