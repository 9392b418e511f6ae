//! Memory described by a pattern: pack (gather), unpack (scatter) and vectored pieces.

use crate::far;
use crate::kernel::{self, Shape, Steps};
use crate::pattern::{Pattern, Run};
use crate::walk::{Burst, Flow, ON, Sink, step};
use std::marker::PhantomData;

/// A readable buffer described by a memory pattern (what a write takes its bytes from).
#[derive(Debug, Clone)]
pub struct Source<'a> {
    base: *const u8,
    pattern: Pattern,
    memory: PhantomData<&'a [u8]>,
}

/// A writable buffer described by a memory pattern (where a read puts its bytes).
#[derive(Debug)]
pub struct Target<'a> {
    base: *mut u8,
    pattern: Pattern,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: a Source is a shared borrow of bytes, which may be read from any thread; `new`'s caller
// vouches for them for the whole of 'a.
unsafe impl Send for Source<'_> {}
// SAFETY: a Target is the only access to its bytes during 'a, from whichever thread holds it.
unsafe impl Send for Target<'_> {}

impl<'a> Source<'a> {
    /// All of a slice.
    pub fn from_slice(s: &'a [u8]) -> Source<'a> {
        Source {
            base: s.as_ptr(),
            pattern: Pattern::contiguous(0, s.len() as u64),
            memory: PhantomData,
        }
    }

    /// The bytes of `pattern` relative to `base`.
    ///
    /// # Safety
    /// Every byte the pattern covers relative to `base` is readable for 'a.
    pub unsafe fn new(base: *const u8, pattern: Pattern) -> Source<'a> {
        Source {
            base,
            pattern,
            memory: PhantomData,
        }
    }

    /// Stream bytes.
    pub fn len(&self) -> u64 {
        self.pattern.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the bytes lie relative to the base address.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Stream bytes [from, from + out.len()) into `out` (pack). Cheap when `from` continues the last call.
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn gather(&mut self, from: u64, out: &mut [u8]) {
        check(&self.pattern, from, out.len() as u64);
        let len = out.len() as u64;
        let (base, out) = (self.base, out.as_mut_ptr());
        // Either walk covers exactly `len` stream bytes.
        if len >= far::FROM as u64 {
            let _ = self
                .pattern
                .visit(from, len, &mut Gather::<true> { base, out });
            far::settle();
        } else {
            let _ = self
                .pattern
                .visit(from, len, &mut Gather::<false> { base, out });
        }
    }

    /// The contiguous memory pieces of stream [from, from + len), in order, for vectored I/O.
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn pieces(&mut self, from: u64, len: u64, mut f: impl FnMut(&[u8])) {
        check(&self.pattern, from, len);
        self.pattern
            .slice(from, len)
            .for_each_run(|_, Run { offset, len }| {
                let at = self.base.wrapping_offset(offset as isize);
                // SAFETY: a run of the pattern, readable by `new`'s contract.
                f(unsafe { std::slice::from_raw_parts(at, len as usize) });
            });
    }
}

impl<'a> Target<'a> {
    /// All of a slice.
    pub fn from_slice(s: &'a mut [u8]) -> Target<'a> {
        Target {
            base: s.as_mut_ptr(),
            pattern: Pattern::contiguous(0, s.len() as u64),
            memory: PhantomData,
        }
    }

    /// The bytes of `pattern` relative to `base`.
    ///
    /// # Safety
    /// Every byte the pattern covers relative to `base` is writable for 'a and not otherwise accessed.
    pub unsafe fn new(base: *mut u8, pattern: Pattern) -> Target<'a> {
        Target {
            base,
            pattern,
            memory: PhantomData,
        }
    }

    /// Stream bytes.
    pub fn len(&self) -> u64 {
        self.pattern.len
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the bytes lie relative to the base address.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Puts `bytes` at stream [from, ...) (unpack). Where the pattern covers a byte twice, the
    /// later one stays.
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn scatter(&mut self, from: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        check(&self.pattern, from, len);
        let (base, bytes) = (self.base, bytes.as_ptr());
        // Either walk covers exactly `len` stream bytes.
        if len >= far::FROM as u64 {
            let _ = self
                .pattern
                .visit(from, len, &mut Scatter::<true> { base, bytes });
            far::settle();
        } else {
            let _ = self
                .pattern
                .visit(from, len, &mut Scatter::<false> { base, bytes });
        }
    }

    /// Zeroes stream [from, from + len).
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn zero(&mut self, from: u64, len: u64) {
        self.pieces(from, len, |piece| piece.fill(0));
    }

    /// The contiguous memory pieces of stream [from, from + len), in order, for vectored I/O.
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn pieces(&mut self, from: u64, len: u64, mut f: impl FnMut(&mut [u8])) {
        check(&self.pattern, from, len);
        self.pattern
            .slice(from, len)
            .for_each_run(|_, Run { offset, len }| {
                let at = self.base.wrapping_offset(offset as isize);
                // SAFETY: a run of the pattern, writable and unshared by `new`'s contract; one piece
                // is out at a time.
                f(unsafe { std::slice::from_raw_parts_mut(at, len as usize) });
            });
    }
}

fn check(pattern: &Pattern, from: u64, len: u64) {
    assert!(
        from.checked_add(len).is_some_and(|end| end <= pattern.len),
        "stream range of {len} bytes from {from} goes beyond the {} bytes of the buffer",
        pattern.len
    );
}

/// Shortest single block that goes around the caches.
const FAR_BLOCK: u64 = 512;

/// The shape of a burst or grid.
fn shape(burst: Burst, rows: u64) -> Shape {
    Shape {
        len: burst.len as usize,
        count: burst.count as usize,
        rows: rows as usize,
    }
}

/// Tiles taken together in `columns`: enough for a loop, few enough to stay in the first-level cache.
const COLUMN_BYTES: u64 = 8 << 10;
/// Longest run and most runs of a tile for which columns pay.
const COLUMN_RUN: u64 = 64;
const COLUMNS: usize = 32;

/// Splits small tiles of irregular runs into columns: run i of many tiles is a burst on both sides,
/// of a length that is fixed for the loop. `f` gets the tiles done before, how many the burst has, and the run.
fn columns(
    count: u64,
    stride: i64,
    displs: &[i64],
    starts: &[u64],
    mut f: impl FnMut(u64, u64, usize),
) -> bool {
    let short = starts.windows(2).all(|w| w[1] - w[0] <= COLUMN_RUN);
    let group = (COLUMN_BYTES / stride.unsigned_abs().max(1)).max(8);
    if displs.len() > COLUMNS || !short || count < 8 {
        return false;
    }
    let mut done = 0;
    while done < count {
        let n = group.min(count - done);
        for i in 0..displs.len() {
            f(done, n, i);
        }
        done += n;
    }
    true
}

/// Packs: pattern bytes to consecutive bytes.
struct Gather<const FAR: bool> {
    base: *const u8,
    out: *mut u8,
}

impl<const FAR: bool> Gather<FAR> {
    #[inline(always)]
    fn at(&self, offset: i64) -> *const u8 {
        self.base.wrapping_offset(offset as isize)
    }
}

impl<const FAR: bool> Sink for Gather<FAR> {
    #[inline]
    fn block(&mut self, at: i64, len: u64) -> Flow {
        // SAFETY: the walk stays within the pattern, which `Source::new` vouches for, and within
        // as many bytes as `out` was given.
        unsafe {
            match FAR && len >= FAR_BLOCK {
                true => far::block(self.at(at), self.out, len as usize),
                false => kernel::block(self.at(at), self.out, len as usize),
            }
        }
        self.out = self.out.wrapping_add(len as usize);
        ON
    }
    fn burst(&mut self, burst: Burst) -> Flow {
        self.grid(1, 0, burst)
    }
    fn grid(&mut self, rows: u64, stride: i64, b: Burst) -> Flow {
        let shape = shape(b, rows);
        let from = Steps {
            row: stride as isize,
            step: b.stride as isize,
        };
        // SAFETY: as for `block`.
        unsafe { kernel::grid::<FAR>(self.at(b.at), from, self.out, shape.packed(), shape) };
        self.out = self.out.wrapping_add(shape.bytes());
        ON
    }
    fn runs(&mut self, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let (from, out) = (self.at(at), self.out);
        kernel::listed(from, displs, starts, |displ, place, len| {
            // SAFETY: as for `block`.
            unsafe {
                kernel::block(
                    from.wrapping_offset(displ as isize),
                    out.wrapping_add(place),
                    len,
                )
            };
        });
        self.out = out.wrapping_add((starts[displs.len()] - starts[0]) as usize);
        ON
    }
    fn tiles(&mut self, count: u64, stride: i64, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let size = starts[displs.len()] - starts[0];
        let split = columns(count, stride, displs, starts, |done, n, i| {
            let src = self.at(step(at, done, stride).wrapping_add(displs[i]));
            let out = self
                .out
                .wrapping_add((done * size + starts[i] - starts[0]) as usize);
            let shape = Shape {
                len: (starts[i + 1] - starts[i]) as usize,
                count: n as usize,
                rows: 1,
            };
            let (from, to) = (
                Steps {
                    row: 0,
                    step: stride as isize,
                },
                Steps {
                    row: 0,
                    step: size as isize,
                },
            );
            // SAFETY: as for `block`: run i of `n` tiles, and its places in the packed bytes.
            unsafe { kernel::grid::<FAR>(src, from, out, to, shape) };
        });
        if split {
            self.out = self.out.wrapping_add((count * size) as usize);
            return ON;
        }
        (0..count).try_for_each(|i| self.runs(step(at, i, stride), displs, starts))
    }
}

/// Unpacks: consecutive bytes to pattern bytes.
struct Scatter<const FAR: bool> {
    base: *mut u8,
    bytes: *const u8,
}

impl<const FAR: bool> Scatter<FAR> {
    #[inline(always)]
    fn at(&self, offset: i64) -> *mut u8 {
        self.base.wrapping_offset(offset as isize)
    }
}

impl<const FAR: bool> Sink for Scatter<FAR> {
    #[inline]
    fn block(&mut self, at: i64, len: u64) -> Flow {
        // SAFETY: the walk stays within the pattern, which `Target::new` vouches for, and within
        // as many bytes as `bytes` has.
        unsafe {
            match FAR && len >= FAR_BLOCK {
                true => far::block(self.bytes, self.at(at), len as usize),
                false => kernel::block(self.bytes, self.at(at), len as usize),
            }
        }
        self.bytes = self.bytes.wrapping_add(len as usize);
        ON
    }
    fn burst(&mut self, burst: Burst) -> Flow {
        self.grid(1, 0, burst)
    }
    fn grid(&mut self, rows: u64, stride: i64, b: Burst) -> Flow {
        let shape = shape(b, rows);
        let to = Steps {
            row: stride as isize,
            step: b.stride as isize,
        };
        // SAFETY: as for `block`.
        unsafe { kernel::grid::<FAR>(self.bytes, shape.packed(), self.at(b.at), to, shape) };
        self.bytes = self.bytes.wrapping_add(shape.bytes());
        ON
    }
    fn runs(&mut self, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let (to, bytes) = (self.at(at), self.bytes);
        kernel::listed(to, displs, starts, |displ, place, len| {
            // SAFETY: as for `block`.
            unsafe {
                kernel::block(
                    bytes.wrapping_add(place),
                    to.wrapping_offset(displ as isize),
                    len,
                )
            };
        });
        self.bytes = bytes.wrapping_add((starts[displs.len()] - starts[0]) as usize);
        ON
    }
    fn tiles(&mut self, count: u64, stride: i64, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let size = starts[displs.len()] - starts[0];
        let split = columns(count, stride, displs, starts, |done, n, i| {
            let dst = self.at(step(at, done, stride).wrapping_add(displs[i]));
            let bytes = self
                .bytes
                .wrapping_add((done * size + starts[i] - starts[0]) as usize);
            let shape = Shape {
                len: (starts[i + 1] - starts[i]) as usize,
                count: n as usize,
                rows: 1,
            };
            let (from, to) = (
                Steps {
                    row: 0,
                    step: size as isize,
                },
                Steps {
                    row: 0,
                    step: stride as isize,
                },
            );
            // SAFETY: as for `block`: run i of `n` tiles, and its places in the packed bytes. The
            // blocks do not overlap, so that their order does not matter.
            unsafe { kernel::grid::<FAR>(bytes, from, dst, to, shape) };
        });
        if split {
            self.bytes = self.bytes.wrapping_add((count * size) as usize);
            return ON;
        }
        (0..count).try_for_each(|i| self.runs(step(at, i, stride), displs, starts))
    }
}
