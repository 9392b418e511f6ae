//! Memory that will be needed soon.
//!
//! *Problem*: with many files each decision goes from a queue to its first request to that one's parts, and each
//! record lies somewhere else: the processor mostly waits for memory. *Idea*: what comes next is known one decision ahead,
//! so its records are asked for now and are there then. *When it pays*: as soon as what is queued is larger than the
//! caches; it costs a few instructions otherwise.

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
