//! Memory described by a pattern: pack (gather), unpack (scatter), and contiguous pieces for vectored I/O.

use crate::block;
use crate::far;
use crate::kernel::{self, BlockGrid, Steps};
use crate::pattern::{Pattern, Run};
use crate::walk::{Burst, Flow, ON, Sink, step};
use std::marker::PhantomData;

/// A readable buffer described by a memory pattern: the source of a write.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    base: *const u8,
    pattern: Pattern,
    memory: PhantomData<&'a [u8]>,
}

/// A writable buffer described by a memory pattern: the target of a read.
#[derive(Debug)]
pub struct Target<'a> {
    base: *mut u8,
    pattern: Pattern,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: a Source is a shared borrow of bytes, which may be read from any thread. `new`'s caller vouches for them for
// the whole of 'a.
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

    /// The pattern, relative to the base address.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Stream bytes [from, from + out.len()) into `out` (pack). Continuing where the last call ended is cheap.
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn gather(&mut self, from: u64, out: &mut [u8]) {
        check(&self.pattern, from, out.len() as u64);
        let len = out.len() as u64;
        let (base, packed) = (self.base.cast_mut(), out.as_mut_ptr());
        // Either walk covers exactly `len` stream bytes.
        if len >= far::FROM as u64 {
            let _ = self
                .pattern
                .visit(from, len, &mut Transfer::<true, true> { base, packed });
            far::settle();
        } else {
            let _ = self
                .pattern
                .visit(from, len, &mut Transfer::<true, false> { base, packed });
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

    /// The pattern, relative to the base address.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Puts `bytes` at stream [from, ...) (unpack). Where the pattern covers a byte twice, the later value stays.
    ///
    /// # Panics
    /// If the range goes beyond the end.
    pub fn scatter(&mut self, from: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        check(&self.pattern, from, len);
        let (base, packed) = (self.base, bytes.as_ptr().cast_mut());
        // Either walk covers exactly `len` stream bytes.
        if len >= far::FROM as u64 {
            let _ = self
                .pattern
                .visit(from, len, &mut Transfer::<false, true> { base, packed });
            far::settle();
        } else {
            let _ = self
                .pattern
                .visit(from, len, &mut Transfer::<false, false> { base, packed });
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

/// Shortest single block that is moved around the caches (non-temporal stores).
const FAR_BLOCK: u64 = 512;

/// The shape of a burst or grid.
fn shape(burst: Burst, rows: u64) -> BlockGrid {
    BlockGrid {
        len: burst.len as usize,
        count: burst.count as usize,
        rows: rows as usize,
    }
}

/// Bytes of tiles taken together in `columns`: enough for a loop, few enough to stay in the first-level cache.
const COLUMN_BYTES: u64 = 8 << 10;
/// Longest run and most runs of a tile for which columns pay.
const COLUMN_RUN: u64 = 64;
const COLUMNS: usize = 32;

/// Splits small tiles of irregular runs into columns: run i of many tiles is a burst on both sides, with a fixed
/// length. `f` gets the number of tiles before, the number of tiles in the burst, and the run.
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

/// Moves bytes between a pattern and a contiguous buffer: from the pattern (`PACK`), or to it.
struct Transfer<const PACK: bool, const FAR: bool> {
    /// Base address of the pattern; only read from when packing.
    base: *mut u8,
    /// The next byte of the contiguous buffer; only read from when unpacking.
    packed: *mut u8,
}

impl<const PACK: bool, const FAR: bool> Transfer<PACK, FAR> {
    #[inline(always)]
    fn at(&self, offset: i64) -> *mut u8 {
        self.base.wrapping_offset(offset as isize)
    }

    /// The source and the destination.
    #[inline(always)]
    fn direct<T>(pattern: T, packed: T) -> (T, T) {
        if PACK {
            (pattern, packed)
        } else {
            (packed, pattern)
        }
    }

    #[inline(always)]
    fn advance(&mut self, len: usize) {
        self.packed = self.packed.wrapping_add(len);
    }
}

impl<const PACK: bool, const FAR: bool> Sink for Transfer<PACK, FAR> {
    #[inline]
    fn block(&mut self, at: i64, len: u64) -> Flow {
        let (from, to) = Self::direct(self.at(at), self.packed);
        // SAFETY: the walk stays within the pattern, which the `new` of `Source` or `Target` vouches for, and within
        // as many consecutive bytes as there are.
        unsafe {
            if FAR && len >= FAR_BLOCK {
                far::block(from, to, len as usize)
            } else {
                block::block(from, to, len as usize)
            }
        }
        self.advance(len as usize);
        ON
    }
    fn burst(&mut self, burst: Burst) -> Flow {
        self.grid(1, 0, burst)
    }
    fn grid(&mut self, rows: u64, stride: i64, b: Burst) -> Flow {
        let shape = shape(b, rows);
        let steps = Steps {
            row: stride as isize,
            step: b.stride as isize,
        };
        let ((src, from), (dst, to)) =
            Self::direct((self.at(b.at), steps), (self.packed, shape.packed()));
        // SAFETY: as for `block`.
        unsafe { kernel::grid::<FAR>(src, from, dst, to, shape) };
        self.advance(shape.bytes());
        ON
    }
    fn runs(&mut self, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let (pattern, packed) = (self.at(at), self.packed);
        kernel::listed(pattern, displs, starts, |displ, place, len| {
            let (from, to) = Self::direct(
                pattern.wrapping_offset(displ as isize),
                packed.wrapping_add(place),
            );
            // SAFETY: as for `block`.
            unsafe { block::block(from, to, len) };
        });
        self.advance((starts[displs.len()] - starts[0]) as usize);
        ON
    }
    fn tiles(&mut self, count: u64, stride: i64, at: i64, displs: &[i64], starts: &[u64]) -> Flow {
        let size = starts[displs.len()] - starts[0];
        let along = |step| Steps { row: 0, step };
        let split = columns(count, stride, displs, starts, |done, n, i| {
            let pattern = self.at(step(at, done, stride).wrapping_add(displs[i]));
            let packed = self
                .packed
                .wrapping_add((done * size + starts[i] - starts[0]) as usize);
            let shape = BlockGrid {
                len: (starts[i + 1] - starts[i]) as usize,
                count: n as usize,
                rows: 1,
            };
            let ((src, from), (dst, to)) = Self::direct(
                (pattern, along(stride as isize)),
                (packed, along(size as isize)),
            );
            // SAFETY: as for `block`: run i of `n` tiles, and its places among the consecutive bytes. Written blocks do
            // not overlap, so that their order does not matter.
            unsafe { kernel::grid::<FAR>(src, from, dst, to, shape) };
        });
        if split {
            self.advance((count * size) as usize);
            return ON;
        }
        (0..count).try_for_each(|i| self.runs(step(at, i, stride), displs, starts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::Loop;

    /// Loops whose walks reach every kernel: block lengths with and without specialised loops, long and short rows,
    /// strides up and down, columns, lists.
    fn shapes() -> Vec<Loop> {
        let bytes = Loop::bytes;
        let mut shapes = Vec::new();
        for len in (1..=66).chain([100, 128, 200, 255, 256, 257, 300, 1000, 4096, 8192, 8200]) {
            let l = len as i64;
            for (count, stride) in [(3, l + 5), (70, 2 * l), (9, -2 * l - 1), (5, 64 * l)] {
                shapes.push(Loop::vector(count, len, stride, &bytes(1)).expect("small"));
            }
            let row = Loop::vector(5, len, 2 * l, &bytes(1)).expect("small");
            shapes.push(Loop::vector(3, 1, 11 * l + 3, &row).expect("small"));
        }
        let fields = [(0, 4), (8, 25), (36, 4), (44, 1), (50, 64)];
        let (displs, lens): (Vec<i64>, Vec<u64>) = fields.into_iter().unzip();
        for extent in [120, 114, 4000] {
            let tile = Loop::indexed(&lens, &displs, &bytes(1)).expect("small");
            let tile = tile.resized(0, extent).expect("small");
            shapes.push(Loop::contig(77, &tile).expect("small"));
            shapes.push(Loop::contig(5, &tile).expect("small"));
        }
        let displs: Vec<i64> = (0..200).map(|i| i * 40 + i * i % 7).collect();
        shapes.push(Loop::blockindexed(24, &displs, &bytes(1)).expect("small"));
        let lens: Vec<u64> = (0..200).map(|i| 1 + i * i % 33).collect();
        shapes.push(Loop::indexed(&lens, &displs, &bytes(1)).expect("small"));
        shapes
    }

    /// Moves by the runs, byte by byte.
    fn naive(pattern: &Pattern, lo: i64, mut f: impl FnMut(usize, usize)) {
        let mut at = 0;
        pattern.for_each_run(|_, run| {
            for k in 0..run.len as i64 {
                f((run.offset + k - lo) as usize, at);
                at += 1;
            }
        });
    }

    fn every_kernel<const FAR: bool>() {
        for shape in shapes() {
            // Ranges begin and end within blocks, and at different alignments of the packed bytes.
            for (start, less, shift) in [(0, 0, 0), (1, 2, 1), (0, 1, 8), (3, 0, 16)] {
                let tiles = if shape.size() > 4000 { 1 } else { 2 };
                let len = (tiles * shape.size()).saturating_sub(start + less);
                let pattern = Pattern::new(-3, shape.clone(), start, len).expect("small");
                let (lo, hi) = pattern.bounds();
                let user: Vec<u8> = (lo..hi).map(|b| (b * 31 + b / 255) as u8).collect();
                let mut packed = vec![0u8; len as usize + shift + 64];
                let mut expected = packed.clone();
                naive(&pattern, lo, |u, p| expected[p + shift] = user[u]);
                let mut pack = Transfer::<true, FAR> {
                    base: user.as_ptr().wrapping_offset(-lo as isize).cast_mut(),
                    packed: packed[shift..].as_mut_ptr(),
                };
                let _ = pattern.visit(0, len, &mut pack);
                far::settle();
                assert!(
                    packed == expected,
                    "packing {shape:?} from {start}, {len} bytes"
                );

                let mut image = vec![0xee; user.len()];
                let mut expected = image.clone();
                naive(&pattern, lo, |u, p| expected[u] = packed[p + shift]);
                let mut unpack = Transfer::<false, FAR> {
                    base: image.as_mut_ptr().wrapping_offset(-lo as isize),
                    packed: packed[shift..].as_ptr().cast_mut(),
                };
                let _ = pattern.visit(0, len, &mut unpack);
                far::settle();
                assert!(
                    image == expected,
                    "unpacking {shape:?} from {start}, {len} bytes"
                );
            }
        }
    }

    #[test]
    fn every_kernel_near() {
        every_kernel::<false>();
    }

    #[test]
    fn every_kernel_far() {
        every_kernel::<true>();
    }

    #[test]
    fn very_much_at_once() {
        let len = 2 * far::FROM + 77;
        let user: Vec<u8> = (0..2 * len).map(|i| (i / 7) as u8).collect();
        let tile = Loop::bytes(100).resized(0, 200).expect("small");
        let pattern = Pattern::new(0, tile, 0, len as u64).expect("small");
        let mut packed = vec![0; len];
        // SAFETY: tiles of 200 bytes with 100 of data: the pattern spans less than twice its bytes.
        unsafe { Source::new(user.as_ptr(), pattern.clone()) }.gather(0, &mut packed);
        assert!((0..len).all(|i| packed[i] == user[i / 100 * 200 + i % 100]));
        let mut back = vec![0; user.len()];
        // SAFETY: as above.
        unsafe { Target::new(back.as_mut_ptr(), pattern) }.scatter(0, &packed);
        let mut expected = vec![0; user.len()];
        for (i, &byte) in packed.iter().enumerate() {
            expected[i / 100 * 200 + i % 100] = byte;
        }
        assert!(back == expected);
    }
}
