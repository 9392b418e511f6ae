//! Memory that is there when it is needed.
//!
//! *Problem*: with many requests or files each decision goes from a queue to its first request to that one's parts, and each
//! record lies somewhere else: the processor mostly waits for memory. *Idea*: what comes next is known one decision ahead,
//! so its records are asked for now and are there then ([`fetch`]); and what has grown large lies in large pages
//! ([`grown`]), so that the processor need not look up as well where each small one lies.
//! *When it pays*: as soon as what is queued is larger than the caches; it costs a few instructions otherwise. Both are
//! hints: no answer depends on them.

/// Asks for the lines of a record. Nothing waits for them.
pub(crate) fn fetch<T>(record: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = (&raw const *record).cast::<i8>();
        // SAFETY: the address lies within a borrowed record, and a hint reads and writes nothing that a program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = record;
}

/// A large page of x86-64, and of aarch64 with pages of 4 KiB.
const LARGE_PAGE: usize = 2 << 20;

/// The same records with room for as many more, in large pages where the system has some.
pub(crate) fn grown<T>(records: Vec<T>) -> Vec<T> {
    let mut larger = Vec::with_capacity((2 * records.len()).max(8));
    #[cfg(target_os = "linux")]
    if larger.capacity() * size_of::<T>() >= 2 * LARGE_PAGE {
        use rustix::mm::{Advice, madvise};
        let all = larger.spare_capacity_mut().as_mut_ptr_range();
        // Those pages that lie within it.
        let skip = (all.start as usize).next_multiple_of(LARGE_PAGE) - all.start as usize;
        let len = (all.end as usize - all.start as usize - skip) / LARGE_PAGE * LARGE_PAGE;
        // SAFETY: the range lies within the allocation, and this advice changes nothing that a program sees. A system
        // that has no large pages says so, and small ones do.
        let _ = unsafe { madvise(all.start.byte_add(skip).cast(), len, Advice::LinuxHugepage) };
    }
    larger.extend(records);
    larger
}
