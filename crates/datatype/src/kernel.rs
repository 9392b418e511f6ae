//! The inner loops that move bytes.
//!
//! Problem: a call of memcpy per 8-byte block costs several times the copy itself. Idea: for the
//! usual block sizes the length is a constant of the loop, so that a block is one or a few
//! register moves, and several short blocks that end up side by side are stored at once; other
//! short blocks are copied by two overlapping moves; long ones are left to memcpy.
//!
//! All functions take raw pointers because the two sides may interleave within one buffer; source
//! and destination bytes never overlap.

/// Where the blocks of one side lie: rows `row` bytes apart of blocks `step` bytes apart.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub row: isize,
    pub step: isize,
}

/// A grid of blocks: `rows` rows of `count` blocks of `len` bytes.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub len: usize,
    pub count: usize,
    pub rows: usize,
}

impl Shape {
    /// The steps of the side that has the blocks back to back.
    pub fn packed(self) -> Steps {
        Steps {
            row: (self.len * self.count) as isize,
            step: self.len as isize,
        }
    }
    pub fn bytes(self) -> usize {
        self.len * self.count * self.rows
    }
}

/// Moves a grid of blocks: block j of row i goes from `src + i * from.row + j * from.step` to
/// `dst + i * to.row + j * to.step`, in this order.
///
/// # Safety
/// All source blocks are readable, all destination blocks are writable, and no
/// destination byte is a source byte.
pub(crate) unsafe fn grid(src: *const u8, from: Steps, dst: *mut u8, to: Steps, shape: Shape) {
    // SAFETY: passed on from the caller; the constant equals the block length.
    unsafe {
        match shape.len {
            1 => fixed::<1>(src, from, dst, to, shape),
            2 => fixed::<2>(src, from, dst, to, shape),
            4 => fixed::<4>(src, from, dst, to, shape),
            8 => fixed::<8>(src, from, dst, to, shape),
            12 => fixed::<12>(src, from, dst, to, shape),
            16 => fixed::<16>(src, from, dst, to, shape),
            24 => fixed::<24>(src, from, dst, to, shape),
            32 => fixed::<32>(src, from, dst, to, shape),
            40 => fixed::<40>(src, from, dst, to, shape),
            48 => fixed::<48>(src, from, dst, to, shape),
            64 => fixed::<64>(src, from, dst, to, shape),
            128 => fixed::<128>(src, from, dst, to, shape),
            _ => each_row(src, from, dst, to, shape, |src, dst| {
                for j in 0..shape.count as isize {
                    let (src, dst) = (
                        src.wrapping_offset(j * from.step),
                        dst.wrapping_offset(j * to.step),
                    );
                    block(src, dst, shape.len);
                }
            }),
        }
    }
}

/// Calls `f` with where each row begins.
#[inline(always)]
fn each_row(
    mut src: *const u8,
    from: Steps,
    mut dst: *mut u8,
    to: Steps,
    shape: Shape,
    f: impl Fn(*const u8, *mut u8),
) {
    for _ in 0..shape.rows {
        f(src, dst);
        src = src.wrapping_offset(from.row);
        dst = dst.wrapping_offset(to.row);
    }
}

/// Chooses the loop by which side has its blocks back to back.
///
/// # Safety
/// As [`grid`], with blocks of `N` bytes.
#[inline(always)]
unsafe fn fixed<const N: usize>(
    src: *const u8,
    from: Steps,
    dst: *mut u8,
    to: Steps,
    shape: Shape,
) {
    let n = N as isize;
    // SAFETY: passed on from the caller; the rows are those of the grid.
    unsafe {
        if to.step == n {
            each_row(src, from, dst, to, shape, |s, d| {
                row::<N>(s, from.step, d, n, shape.count)
            });
        } else if from.step == n {
            each_row(src, from, dst, to, shape, |s, d| {
                row::<N>(s, n, d, to.step, shape.count)
            });
        } else {
            each_row(src, from, dst, to, shape, |s, d| {
                row::<N>(s, from.step, d, to.step, shape.count)
            });
        }
    }
}

/// One row of a grid, four blocks at a time.
///
/// # Safety
/// As [`grid`], for one row of blocks of `N` bytes.
#[inline(always)]
unsafe fn row<const N: usize>(src: *const u8, from: isize, dst: *mut u8, to: isize, count: usize) {
    let (mut src, mut dst) = (src, dst);
    // SAFETY: the blocks of the row, vouched for by the caller. Four are read before they are
    // written, which changes nothing since no destination byte is a source byte.
    unsafe {
        for _ in 0..count / 4 {
            let four = [
                get::<N>(src),
                get::<N>(src.wrapping_offset(from)),
                get::<N>(src.wrapping_offset(2 * from)),
                get::<N>(src.wrapping_offset(3 * from)),
            ];
            if to == N as isize {
                dst.cast::<[[u8; N]; 4]>().write(four);
            } else {
                for (j, block) in four.into_iter().enumerate() {
                    dst.wrapping_offset(j as isize * to)
                        .cast::<[u8; N]>()
                        .write(block);
                }
            }
            src = src.wrapping_offset(4 * from);
            dst = dst.wrapping_offset(4 * to);
        }
        for _ in 0..count % 4 {
            one::<N>(src, dst);
            src = src.wrapping_offset(from);
            dst = dst.wrapping_offset(to);
        }
    }
}

/// # Safety
/// `N` bytes are readable at `src`.
#[inline(always)]
unsafe fn get<const N: usize>(src: *const u8) -> [u8; N] {
    // SAFETY: vouched for by the caller; arrays of bytes have no alignment.
    unsafe { src.cast::<[u8; N]>().read() }
}

/// Moves `N` bytes.
///
/// # Safety
/// `N` bytes are readable at `src` and writable at `dst`.
#[inline(always)]
unsafe fn one<const N: usize>(src: *const u8, dst: *mut u8) {
    // SAFETY: vouched for by the caller; arrays of bytes have no alignment.
    unsafe { dst.cast::<[u8; N]>().write(get::<N>(src)) }
}

/// Moves `len` bytes.
///
/// # Safety
/// `len` bytes are readable at `src` and writable at `dst`; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn block(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: each pair of moves covers [0, len) and stays within it: the second begins at len - N,
    // where N <= len <= 2 N.
    unsafe {
        match len {
            0 => {}
            1..=3 => {
                one::<1>(src, dst);
                one::<1>(src.add(len / 2), dst.add(len / 2));
                one::<1>(src.add(len - 1), dst.add(len - 1));
            }
            4..=7 => two::<4>(src, dst, len),
            8..=15 => two::<8>(src, dst, len),
            16..=31 => two::<16>(src, dst, len),
            32..=64 => two::<32>(src, dst, len),
            65..=128 => two::<64>(src, dst, len),
            _ => std::ptr::copy_nonoverlapping(src, dst, len),
        }
    }
}

/// Moves the first and the last `N` of `len` bytes.
///
/// # Safety
/// As [`block`], with `N <= len`.
#[inline(always)]
unsafe fn two<const N: usize>(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: both moves lie within `len` bytes.
    unsafe {
        one::<N>(src, dst);
        one::<N>(src.add(len - N), dst.add(len - N));
    }
}
