//! A window of an object that is mapped, and bytes of it that can be copied out ([`crate::mapped`]).
use crate::mapping::Mapping;
use penstock_datatype::far;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is brought in at once.
pub(crate) const CHUNK: u64 = 64 << 10;
/// What is mapped at once.
pub(crate) const WINDOW: u64 = 256 << 20;
/// Chunks of a window.
pub(crate) const CHUNKS: usize = (WINDOW / CHUNK) as usize;
/// Words that hold a bit per chunk.
const WORDS: usize = CHUNKS / 64;

/// A mapped window.
#[derive(Debug)]
pub(crate) struct Window {
    map: Mapping,
    /// Chunks whose pages have all been brought in.
    present: [AtomicU64; WORDS],
}

fn bit(chunk: u64) -> (usize, u64) {
    ((chunk / 64) as usize, 1 << (chunk % 64))
}

impl Window {
    /// Nothing of it has been brought in yet.
    pub(crate) fn new(map: Mapping) -> Window {
        Window {
            map,
            present: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Brings in [from, end) of the window; the object has `limit` bytes of it. False where `solid` does not hold for
    /// what would be brought in.
    pub(crate) fn bring_in(
        &self,
        (from, end): (u64, u64),
        limit: u64,
        solid: impl Fn(u64, u64) -> bool,
    ) -> Result<bool, Errno> {
        let last = end.div_ceil(CHUNK);
        let mut chunk = from / CHUNK;
        while chunk < last {
            if self.is_present(chunk) {
                chunk += 1;
                continue;
            }
            let first = chunk;
            while chunk < last && !self.is_present(chunk) {
                chunk += 1;
            }
            let (start, stop) = (first * CHUNK, (chunk * CHUNK).min(limit));
            if !solid(start, stop) {
                return Ok(false);
            }
            self.map.populate(start as usize, (stop - start) as usize)?;
            // The object's last chunk may have fewer bytes than the chunk, and more later.
            for whole in first..stop / CHUNK {
                let (word, mask) = bit(whole);
                self.present[word].fetch_or(mask, Ordering::Release);
            }
        }
        Ok(true)
    }

    fn is_present(&self, chunk: u64) -> bool {
        let (word, mask) = bit(chunk);
        self.present[word].load(Ordering::Acquire) & mask != 0
    }
}

/// Bytes of an object that can be copied out as long as the operation lasts for which they were asked.
#[derive(Debug)]
pub struct View {
    window: Arc<Window>,
    /// Where it begins in the window, and its bytes.
    from: u64,
    len: u64,
}

impl View {
    /// `len` bytes from `from` of the window on, which have been brought in.
    pub(crate) fn new(window: Arc<Window>, from: u64, len: u64) -> View {
        View { window, from, len }
    }

    /// Where `len` bytes from position `at` of the view on are.
    fn place(&self, at: u64, len: usize) -> *const u8 {
        let inside = at
            .checked_add(len as u64)
            .is_some_and(|end| end <= self.len);
        assert!(
            inside,
            "a copy of {len} bytes at {at} of a view of {}",
            self.len
        );
        let at = (self.from + at) as usize;
        self.window.map.at.cast::<u8>().wrapping_add(at)
    }

    /// Copies the bytes from position `at` of the view on; all of `out` must lie within it.
    pub(crate) fn copy(&self, at: u64, out: &mut [u8]) {
        let from = self.place(at, out.len());
        // SAFETY: the range lies within the view, whose pages were brought in, and which the object has as long as
        // the operation lasts ([`crate::Mapped`]). Other processes may write to them meanwhile: bytes of either
        // age are what a read beside a write may give. `out` is not part of the mapping, of which no reference is
        // ever given out.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// The same around the caches; [`far::settle`] must follow.
    pub(crate) fn copy_far(&self, at: u64, out: &mut [u8]) {
        let from = self.place(at, out.len());
        // SAFETY: as for `copy`.
        unsafe { far::block(from, out.as_mut_ptr(), out.len()) }
    }

    /// Bytes that will be copied soon.
    pub(crate) fn expect(&self, at: u64, len: usize) {
        far::expect(self.place(at, len), len);
    }
}
