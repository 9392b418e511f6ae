//! Moves that bypass the caches.
//!
//! Problem: a store to a line that is not cached reads the line first, a third of all traffic when very much is copied.
//! Idea: whole lines are written with non-temporal stores. When it pays: when a call moves more than the caches hold,
//! so that the data would be evicted anyway. Measured (Zen 5, 16 MiB): contiguous 1.3 times memcpy, unpacking 64-byte
//! blocks twice as fast. Parameter: [`FROM`]. Elsewhere than on x86-64 these are plain moves.

use crate::block::{self, LINE};

/// Bytes of one call from which on moves bypass the caches.
pub const FROM: usize = 8 << 20;

/// Bytes of one non-temporal store; its address is a multiple.
pub(crate) const UNIT: usize = 16;

/// Moves `len` bytes, with non-temporal stores for whole lines of the destination; [`settle`] must follow.
///
/// # Safety
/// `len` bytes are readable at `src` and writable at `dst`, and the two do not overlap.
pub unsafe fn block(src: *const u8, dst: *mut u8, len: usize) {
    let head = dst.align_offset(LINE).min(len);
    let lines = (len - head) / LINE;
    let tail = len - head - lines * LINE;
    // SAFETY: three adjacent parts of the `len` bytes; the middle one begins on a line.
    unsafe {
        if head > 0 {
            block::block(src, dst, head);
        }
        for at in (head..head + lines * LINE).step_by(LINE) {
            write(dst.add(at), src.add(at).cast::<[u8; LINE]>().read());
        }
        if tail > 0 {
            block::block(src.add(len - tail), dst.add(len - tail), tail);
        }
    }
}

/// Writes a value of a multiple of [`UNIT`] bytes.
///
/// # Safety
/// `dst` is writable and a multiple of [`UNIT`]; `T` has no padding.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) unsafe fn write<T: Copy>(dst: *mut u8, value: T) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    let from = (&raw const value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(UNIT) {
        // SAFETY: parts of the value and of what the caller vouches for; SSE2 belongs to the architecture.
        unsafe { _mm_stream_si128(dst.add(at).cast(), _mm_loadu_si128(from.add(at).cast())) };
    }
}

/// Elsewhere a plain write.
///
/// # Safety
/// `dst` is writable.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub(crate) unsafe fn write<T: Copy>(dst: *mut u8, value: T) {
    // SAFETY: vouched for by the caller.
    unsafe { dst.cast::<T>().write_unaligned(value) }
}

/// Prefetches `len` bytes that will be moved soon; the address need not be valid.
pub fn expect(src: *const u8, len: usize) {
    for at in (0..len).step_by(LINE) {
        block::prefetch(src.wrapping_add(at));
    }
}

/// A store fence: orders non-temporal stores before everything after it. It must come before anybody else reads the
/// data.
pub fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE belongs to the architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}
