//! Moves of one block, inlined where they are used, and prefetching.
//!
//! All functions take raw pointers, as those of [`crate::kernel`] do.

/// A cache line.
pub(crate) const LINE: usize = 64;

/// Prefetches a line; the address need not be valid.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which never faults; SSE belongs to the architecture.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// `N` bytes from `src`.
///
/// # Safety
/// `N` bytes are readable at `src`.
#[inline(always)]
pub(crate) unsafe fn get<const N: usize>(src: *const u8) -> [u8; N] {
    // SAFETY: vouched for by the caller; arrays of bytes have no alignment.
    unsafe { src.cast::<[u8; N]>().read() }
}

/// Moves `N` bytes.
///
/// # Safety
/// `N` bytes are readable at `src` and writable at `dst`.
#[inline(always)]
pub(crate) unsafe fn one<const N: usize>(src: *const u8, dst: *mut u8) {
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
pub(crate) unsafe fn two<const N: usize>(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: both moves lie within `len` bytes.
    unsafe {
        one::<N>(src, dst);
        one::<N>(src.add(len - N), dst.add(len - N));
    }
}
