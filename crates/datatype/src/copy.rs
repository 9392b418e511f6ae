//! Copy from one pattern to another without a buffer between.
//!
//! Idea: both sides are walked in bursts; where block lengths agree, or one side's block holds
//! several of the other's, a whole burst is one strided kernel call.

use crate::buffer::{Source, Target};
use crate::kernel::{self, Shape, Steps};
use crate::pattern::Pattern;
use crate::walk::Burst;
use std::cmp::Ordering;

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
        let len = a.len.min(b.len);
        // Blocks of the shorter length: as many as both bursts hold, or as fill the longer block.
        let count = match a.len.cmp(&b.len) {
            Ordering::Equal => a.count.min(b.count),
            Ordering::Greater => b.count.min(a.len / len),
            Ordering::Less => a.count.min(b.len / len),
        };
        let steps = |burst: &Burst| {
            let step = if burst.len > len {
                len as isize
            } else {
                burst.stride as isize
            };
            Steps { row: 0, step }
        };
        let shape = Shape {
            len: len as usize,
            count: count as usize,
            rows: 1,
        };
        let (read, write) = (
            src.wrapping_offset(a.at as isize),
            dst.wrapping_offset(b.at as isize),
        );
        // SAFETY: the next `count * len` bytes of both patterns.
        unsafe { kernel::grid::<false>(read, steps(&a), write, steps(&b), shape) };
        from.advance_burst(count * len);
        to.advance_burst(count * len);
    }
}
