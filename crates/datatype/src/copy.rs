//! Copy from one pattern to another without a buffer between.
//!
//! Idea: both sides are walked in bursts; where block lengths agree, or one side's block holds
//! several of the other's, a whole burst is one strided kernel call.

use crate::buffer::{Source, Target};
use crate::kernel;
use crate::pattern::Pattern;

/// Copies stream byte i of the source to stream byte i of the destination, for all bytes that both have.
///
/// # Safety
/// Every byte that `src_pattern` covers relative to `src` is readable, every byte that
/// `dst_pattern` covers relative to `dst` is writable and not otherwise accessed, and no byte
/// belongs to both.
pub unsafe fn copy(src: *const u8, src_pattern: &Pattern, dst: *mut u8, dst_pattern: &Pattern) {
    let len = src_pattern.len.min(dst_pattern.len);
    let (from, to) = (src_pattern.slice(0, len), dst_pattern.slice(0, len));
    if len == 0 {
        return;
    }
    if to.is_contiguous() {
        let at = dst.wrapping_offset(to.bounds().0 as isize);
        // SAFETY: one run of `len` bytes of the destination; the source is vouched for.
        let (mut from, out) = unsafe {
            (
                Source::new(src, from),
                std::slice::from_raw_parts_mut(at, len as usize),
            )
        };
        return from.gather(0, out);
    }
    if from.is_contiguous() {
        let at = src.wrapping_offset(from.bounds().0 as isize);
        // SAFETY: one run of `len` bytes of the source; the destination is vouched for.
        let (mut to, bytes) = unsafe {
            (
                Target::new(dst, to),
                std::slice::from_raw_parts(at, len as usize),
            )
        };
        return to.scatter(0, bytes);
    }
    let (mut from, mut to) = (from.cursor(), to.cursor());
    while let (Some(a), Some(b)) = (from.front_burst(), to.front_burst()) {
        let (read, write) = (
            src.wrapping_offset(a.at as isize),
            dst.wrapping_offset(b.at as isize),
        );
        let (a_step, b_step) = (a.stride as isize, b.stride as isize);
        let len = a.len.min(b.len) as usize;
        let count = if a.len == b.len {
            let count = a.count.min(b.count);
            // SAFETY: `count` blocks of both sides' bursts.
            unsafe { kernel::strided(read, a_step, write, b_step, len, count as usize) };
            count
        } else if a.len > b.len {
            let count = (a.len / b.len).min(b.count);
            // SAFETY: `count` destination blocks out of one source block.
            unsafe { kernel::strided(read, len as isize, write, b_step, len, count as usize) };
            count
        } else {
            let count = (b.len / a.len).min(a.count);
            // SAFETY: `count` source blocks into one destination block.
            unsafe { kernel::strided(read, a_step, write, len as isize, len, count as usize) };
            count
        };
        from.advance_burst(count * len as u64);
        to.advance_burst(count * len as u64);
    }
}
