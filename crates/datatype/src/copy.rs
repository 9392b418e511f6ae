//! Copy from one pattern to another.
//!
//! Idea: both sides are walked in bursts. Where block lengths agree, or one side's block contains many of the other's,
//! a whole burst is one kernel call without a buffer in between. Otherwise such calls would move a block or two each.
//! The bytes then go through a buffer in the first-level cache, packed and unpacked by kernels that run at full length.
//! The first steps show which of the two is the case. Measured (1 MiB, Zen 5), 8 of 16 bytes to 8 of 24: direct 18.5
//! GB/s, staged 13.9. Measured, 24 of 32 to 8 of 16: direct 1.8, staged 10.1.

use crate::buffer::{Source, Target};
use crate::kernel::{self, BlockGrid, Steps};
use crate::pattern::Pattern;
use crate::walk::Burst;
use std::cmp::Ordering;

/// Direct steps tried first.
const TRIAL: u64 = 8;
/// Mean bytes of a direct step from which on no buffer is used.
const STEP: u64 = 512;
/// Size of the buffer (bytes); it fits the first-level cache beside the data read and written.
const STAGE: usize = 16 << 10;

/// Copies stream byte i of the source to stream byte i of the destination, for all bytes that both have.
///
/// # Safety
/// Every byte that `src_pattern` covers relative to `src` is readable. Every byte that `dst_pattern` covers relative to
/// `dst` is writable and not otherwise accessed. No byte belongs to both.
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
    // SAFETY: passed on from the caller.
    let done = unsafe { direct(src, &from, dst, &to) };
    if done < len {
        // SAFETY: passed on from the caller.
        let (mut from, mut to) = unsafe { (Source::new(src, from), Target::new(dst, to)) };
        staged(&mut from, &mut to, done, len);
    }
}

/// Copies burst by burst; returns early if the bursts are short. Returns the bytes copied.
///
/// # Safety
/// As [`copy`].
unsafe fn direct(src: *const u8, from: &Pattern, dst: *mut u8, to: &Pattern) -> u64 {
    let (mut from, mut to) = (from.cursor(), to.cursor());
    let mut steps = 0;
    while let (Some(a), Some(b)) = (from.front_burst(), to.front_burst()) {
        if steps == TRIAL && from.position() < TRIAL * STEP {
            break;
        }
        steps += 1;
        let len = a.len.min(b.len);
        // Blocks of the shorter length: as many as both bursts have, or as fill the longer block.
        let count = match a.len.cmp(&b.len) {
            Ordering::Equal => a.count.min(b.count),
            Ordering::Greater => b.count.min(a.len / len),
            Ordering::Less => a.count.min(b.len / len),
        };
        let step = |burst: &Burst| {
            let step = if burst.len > len {
                len as isize
            } else {
                burst.stride as isize
            };
            Steps { row: 0, step }
        };
        let shape = BlockGrid {
            len: len as usize,
            count: count as usize,
            rows: 1,
        };
        let (read, write) = (
            src.wrapping_offset(a.at as isize),
            dst.wrapping_offset(b.at as isize),
        );
        // SAFETY: the next `count * len` bytes of both patterns.
        unsafe { kernel::grid::<false>(read, step(&a), write, step(&b), shape) };
        from.advance_burst(count * len);
        to.advance_burst(count * len);
    }
    from.position()
}

/// Copies stream bytes [at, end) through a buffer.
fn staged(from: &mut Source<'_>, to: &mut Target<'_>, at: u64, end: u64) {
    let mut stage = [0u8; STAGE];
    let mut at = at;
    while at < end {
        let part = &mut stage[..(end - at).min(STAGE as u64) as usize];
        from.gather(at, part);
        to.scatter(at, part);
        at += part.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::Loop;

    /// Every pair of some tilings, far more bytes than one stage: what arrives is what left.
    #[test]
    fn direct_or_staged() {
        let gap = |len: u64, extent: i64| Loop::bytes(len).resized(0, extent).expect("small");
        let uneven =
            Loop::indexed(&[3, 70, 9, 1], &[0, 10, 90, 110], &Loop::bytes(1)).expect("small");
        let tiles = [
            gap(8, 16),
            gap(24, 32),
            gap(8, 24),
            gap(512, 700),
            gap(5000, 5001),
            uneven,
        ];
        let len = 5 * STAGE as u64 + 321;
        for a in &tiles {
            for b in &tiles {
                let from = Pattern::new(0, a.clone(), 5, len).expect("small");
                let to = Pattern::new(0, b.clone(), 2, len + 9).expect("small");
                let src: Vec<u8> = (0..from.bounds().1)
                    .map(|i| (i * 7 + i / 250) as u8)
                    .collect();
                let mut dst = vec![0xee; to.bounds().1 as usize];
                // SAFETY: both buffers span their patterns, which start at offset 0.
                unsafe { copy(src.as_ptr(), &from, dst.as_mut_ptr(), &to) };
                let offsets = |p: &Pattern| {
                    let mut all = Vec::new();
                    p.for_each_run(|_, r| {
                        all.extend(r.offset as usize..r.offset as usize + r.len as usize)
                    });
                    all
                };
                let mut expected = vec![0xee; dst.len()];
                for (&read, &write) in offsets(&from).iter().zip(&offsets(&to)) {
                    expected[write] = src[read];
                }
                assert!(dst == expected, "{a:?} to {b:?}");
            }
        }
    }
}
