//! Endless tilings of a loop, and ranges of their stream.

use crate::error::{Error, Result};
use crate::fuse;
use crate::locate;
use crate::loops::{Body, Loop, LoopKind, MAX};
use crate::walk::{self, Flow, ON, Sink};
use std::sync::OnceLock;

/// One contiguous piece: `len` bytes at `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where it lies (bytes).
    pub offset: i64,
    /// Bytes.
    pub len: u64,
}

/// A range of the stream of an endlessly tiled loop. On the file side offsets are file offsets; on the memory side they
/// are relative to the buffer's base address.
///
/// [`Pattern::new`] checks that all offsets of the range fit 63 bits. A pattern that was built or changed by hand is
/// not checked; its offsets wrap around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Offset of tile 0 (bytes).
    pub disp: i64,
    /// The loop that is tiled, by its extent.
    pub tile: Loop,
    /// First stream byte, counted from the start of tile 0.
    pub start: u64,
    /// Number of stream bytes.
    pub len: u64,
}

/// A loop of one byte: every contiguous pattern is a tiling of it, so that all share one hash.
fn one_byte() -> Loop {
    static BYTE: OnceLock<Loop> = OnceLock::new();
    BYTE.get_or_init(|| Loop::bytes(1)).clone()
}

impl Pattern {
    /// `len` bytes at `offset`.
    pub fn contiguous(offset: i64, len: u64) -> Pattern {
        Pattern {
            disp: offset,
            tile: one_byte(),
            start: 0,
            len,
        }
    }

    /// From (offset, length) regions, in stream order.
    pub fn list(regions: &[(i64, u64)]) -> Result<Pattern> {
        let placed = fuse::runs(regions.iter().copied())?;
        let len = placed.body.size;
        if matches!(placed.body.kind, LoopKind::Contig) {
            return Ok(Pattern::contiguous(placed.at, len));
        }
        // The displacement holds the position, so that the same list at another offset has the same hash.
        let (at, extent) = (placed.at, placed.body.hi as i128 - placed.body.lo as i128);
        let tile = Loop::assemble(
            placed.body.lo as i128,
            extent,
            crate::loops::Placed { at: 0, ..placed },
        )?;
        Pattern::new(at, tile, 0, len)
    }

    /// Stream bytes `[start, start + len)` of `tile`, tiled from `disp`. Refuses ranges with offsets beyond 63 bits,
    /// and bytes of an empty tile.
    pub fn new(disp: i64, tile: Loop, start: u64, len: u64) -> Result<Pattern> {
        if start as i128 + len as i128 > MAX {
            return Err(Error::Overflow("stream position beyond 2^63 - 1"));
        }
        if len > 0 && tile.size() == 0 {
            return Err(Error::Invalid(format!(
                "{len} bytes of a datatype without data"
            )));
        }
        let pattern = Pattern {
            disp,
            tile,
            start,
            len,
        };
        let (lo, hi) = pattern.wide_bounds();
        if i64::try_from(lo).is_err() || i64::try_from(hi).is_err() {
            return Err(Error::Overflow("pattern reaches offsets beyond 63 bits"));
        }
        Ok(pattern)
    }

    /// Whether it is empty.
    fn is_void(&self) -> bool {
        self.len == 0 || self.tile.size() == 0
    }

    /// The unit and stride that the tiling repeats; a vector that continues evenly from tile to tile is dissolved.
    pub(crate) fn unit(&self) -> (&Body, i64) {
        let (body, extent) = (self.tile.body(), self.tile.extent());
        match &body.kind {
            LoopKind::Vector {
                count,
                stride,
                child,
            } if *count as i128 * *stride as i128 == extent as i128 => (child, *stride),
            _ => (body, extent),
        }
    }

    fn wide_bounds(&self) -> (i128, i128) {
        if self.is_void() {
            return (0, 0);
        }
        let (unit, stride) = self.unit();
        let end = self.start.saturating_add(self.len);
        let (lo, hi) = locate::bounds_in_copies(unit, stride, self.start, end);
        let at = self.disp as i128 + self.tile.at() as i128;
        (at + lo, at + hi)
    }

    /// Lowest offset and one past the highest, over all runs; (0, 0) when len == 0.
    pub fn bounds(&self) -> (i64, i64) {
        let (lo, hi) = self.wide_bounds();
        (lo as i64, hi as i64)
    }

    /// At most one run.
    pub fn is_contiguous(&self) -> bool {
        self.regions() <= 1
    }

    /// Offsets ascend along the stream, without overlap. It is judged by the tile: a short range of a non-monotone tile
    /// counts as monotone only if it is a single run.
    pub fn is_monotone(&self) -> bool {
        if self.is_contiguous() {
            return true;
        }
        let body = self.tile.body();
        let tiles = (self.start, self.start.saturating_add(self.len - 1));
        body.monotone && (tiles.0 / body.size == tiles.1 / body.size || self.tile.is_monotone())
    }

    /// Number of runs with adjacent ones joined; closed form for regular patterns.
    pub fn regions(&self) -> u64 {
        if self.is_void() {
            return 0;
        }
        let (unit, stride) = self.unit();
        let before = |s: u64| locate::runs_before_in_copies(unit, stride, s);
        // The run that contains `start` counts although it may begin earlier.
        1 + before(self.start.saturating_add(self.len)) - before(self.start + 1)
    }

    /// Sub-range [from, from + len) of this pattern's stream (relative to this pattern), limited to the pattern.
    pub fn slice(&self, from: u64, len: u64) -> Pattern {
        let from = from.min(self.len);
        let len = len.min(self.len - from);
        Pattern {
            start: self.start + from,
            len,
            ..self.clone()
        }
    }

    /// Offset of stream byte `s`, counted from this pattern's start.
    pub fn offset_at(&self, s: u64) -> Option<i64> {
        if s >= self.len || self.is_void() {
            return None;
        }
        let (unit, stride) = self.unit();
        let at = self.disp as i128 + self.tile.at() as i128;
        Some((at + locate::offset_in_copies(unit, stride, self.start + s)) as i64)
    }

    /// Monotone patterns: number of this pattern's stream bytes below `offset`. O(depth log blocks). For other patterns
    /// the answer is meaningless, but at most `len`.
    pub fn stream_at(&self, offset: i64) -> u64 {
        if self.is_void() {
            return 0;
        }
        if self.is_contiguous() {
            let below = offset as i128 - self.wide_bounds().0;
            return below.clamp(0, self.len as i128) as u64;
        }
        let (unit, stride) = self.unit();
        let last = self.start.saturating_add(self.len - 1);
        let rel = offset as i128 - self.disp as i128 - self.tile.at() as i128;
        let (first, last) = (self.start / unit.size, last / unit.size);
        // Relative to the first unit touched: what lies before it may be out of range.
        let rel = rel - first as i128 * stride as i128;
        let below = if rel <= 0 {
            0
        } else {
            let units = if stride > 0 {
                (rel / stride as i128).min((last - first) as i128)
            } else {
                0
            };
            units as u64 * unit.size
                + locate::bytes_below(unit, clamp(rel - units * stride as i128))
        };
        below.saturating_sub(self.start % unit.size).min(self.len)
    }

    /// Monotone patterns: the part with offsets in [lo, hi).
    pub fn window(&self, lo: i64, hi: i64) -> Pattern {
        let a = self.stream_at(lo);
        let b = self.stream_at(hi);
        self.slice(a, b.saturating_sub(a))
    }

    /// Calls `f(stream position, run)` for each run, with adjacent runs joined; specialised inner loops.
    pub fn for_each_run(&self, f: impl FnMut(u64, Run)) {
        let mut joiner = Joiner {
            f,
            at: 0,
            run: Run { offset: 0, len: 0 },
        };
        let _ = self.visit(0, self.len, &mut joiner);
        joiner.flush();
    }

    /// Walks stream bytes [from, from + len), limited to the pattern.
    pub(crate) fn visit<S: Sink>(&self, from: u64, len: u64, sink: &mut S) -> Flow {
        let from = from.min(self.len);
        let len = len.min(self.len - from);
        if len == 0 || self.tile.size() == 0 {
            return ON;
        }
        let (unit, stride) = self.unit();
        let at = self.disp.wrapping_add(self.tile.at());
        let lo = self.start + from;
        walk::part_of_copies(unit, stride, at, lo, lo + len, sink)
    }
}

fn clamp(v: i128) -> i64 {
    v.clamp(i64::MIN as i128, i64::MAX as i128) as i64
}

/// Joins adjacent blocks into runs.
struct Joiner<F> {
    f: F,
    at: u64,
    run: Run,
}
impl<F: FnMut(u64, Run)> Joiner<F> {
    fn flush(&mut self) {
        if self.run.len > 0 {
            (self.f)(self.at, self.run);
            self.at += self.run.len;
            self.run.len = 0;
        }
    }
}
impl<F: FnMut(u64, Run)> Sink for Joiner<F> {
    #[inline]
    fn block(&mut self, at: i64, len: u64) -> Flow {
        if self.run.offset.wrapping_add(self.run.len as i64) == at {
            self.run.len += len;
        } else {
            self.flush();
            self.run = Run { offset: at, len };
        }
        ON
    }
}
