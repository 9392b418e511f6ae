//! The inner loops that move bytes.
//!
//! Problem: a call of memcpy per 8-byte block costs several times the copy itself. Idea: for the
//! usual block sizes the length is a constant of the loop, so that a block is one or a few
//! register moves; other short blocks are copied by two overlapping moves; long ones are left to memcpy.
//!
//! All functions take raw pointers because the two sides may interleave within one buffer; source
//! and destination bytes never overlap.

/// `count` blocks of `len` bytes: block i goes from `src + i * src_step` to `dst + i * dst_step`.
///
/// # Safety
/// All source blocks are readable, all destination blocks are writable, and no
/// destination byte is a source byte.
#[inline]
pub(crate) unsafe fn strided(
    src: *const u8,
    src_step: isize,
    dst: *mut u8,
    dst_step: isize,
    len: usize,
    count: usize,
) {
    // SAFETY: passed on from the caller; the constant equals `len`.
    unsafe {
        match len {
            1 => fixed::<1>(src, src_step, dst, dst_step, count),
            2 => fixed::<2>(src, src_step, dst, dst_step, count),
            4 => fixed::<4>(src, src_step, dst, dst_step, count),
            8 => fixed::<8>(src, src_step, dst, dst_step, count),
            12 => fixed::<12>(src, src_step, dst, dst_step, count),
            16 => fixed::<16>(src, src_step, dst, dst_step, count),
            24 => fixed::<24>(src, src_step, dst, dst_step, count),
            32 => fixed::<32>(src, src_step, dst, dst_step, count),
            40 => fixed::<40>(src, src_step, dst, dst_step, count),
            48 => fixed::<48>(src, src_step, dst, dst_step, count),
            64 => fixed::<64>(src, src_step, dst, dst_step, count),
            128 => fixed::<128>(src, src_step, dst, dst_step, count),
            _ => {
                let (mut src, mut dst) = (src, dst);
                for _ in 0..count {
                    block(src, dst, len);
                    src = src.wrapping_offset(src_step);
                    dst = dst.wrapping_offset(dst_step);
                }
            }
        }
    }
}

/// # Safety
/// As [`strided`], with blocks of `N` bytes.
#[inline]
unsafe fn fixed<const N: usize>(
    mut src: *const u8,
    src_step: isize,
    mut dst: *mut u8,
    dst_step: isize,
    count: usize,
) {
    for _ in 0..count {
        // SAFETY: block i of both sides, vouched for by the caller.
        unsafe { one::<N>(src, dst) };
        src = src.wrapping_offset(src_step);
        dst = dst.wrapping_offset(dst_step);
    }
}

/// Moves `N` bytes.
///
/// # Safety
/// `N` bytes are readable at `src` and writable at `dst`.
#[inline(always)]
unsafe fn one<const N: usize>(src: *const u8, dst: *mut u8) {
    // SAFETY: vouched for by the caller; arrays of bytes have no alignment.
    unsafe { dst.cast::<[u8; N]>().write(src.cast::<[u8; N]>().read()) }
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
