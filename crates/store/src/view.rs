//! A mapped window of an object, and views from which its bytes are copied ([`crate::mapped`]).
use crate::mapping::Mapping;
use penstock_datatype::far;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Unit of populating, bytes.
pub(crate) const CHUNK: u64 = 64 << 10;
/// Unit of mapping, bytes.
pub(crate) const WINDOW: u64 = 256 << 20;
/// Chunks of a window.
pub(crate) const CHUNKS: usize = (WINDOW / CHUNK) as usize;
/// Words of a bitmap with a bit per chunk.
const WORDS: usize = CHUNKS / 64;

/// A mapped window.
#[derive(Debug)]
pub(crate) struct Window {
    map: Mapping,
    /// Chunks whose pages are all populated.
    present: [AtomicU64; WORDS],
}

fn bit(chunk: u64) -> (usize, u64) {
    ((chunk / 64) as usize, 1 << (chunk % 64))
}

impl Window {
    /// A window without populated chunks.
    pub(crate) fn new(map: Mapping) -> Window {
        Window {
            map,
            present: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Populates [from, end) of the window; the object has `limit` bytes of it. False if `solid` refuses a range that
    /// would be populated.
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
            // The object's last chunk may be incomplete, and grow later.
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

/// Bytes of an object that can be copied during the operation for which they were requested.
#[derive(Debug)]
pub struct View {
    window: Arc<Window>,
    /// Its offset in the window, and its length.
    from: u64,
    len: u64,
}

impl View {
    /// `len` populated bytes from `from` of the window on.
    pub(crate) fn new(window: Arc<Window>, from: u64, len: u64) -> View {
        View { window, from, len }
    }

    /// Address of `len` bytes from position `at` of the view on.
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

    /// Copies bytes from position `at` of the view on; all of `out` must be within it.
    pub(crate) fn copy(&self, at: u64, out: &mut [u8]) {
        let from = self.place(at, out.len());
        // SAFETY: the range lies within the view, whose pages were brought in, and which the object has as long as the
        // operation lasts ([`crate::Mapped`]). Other processes may write to them meanwhile: a concurrent read may
        // return old or new bytes. `out` is not part of the mapping, of which no reference is ever given out.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// The same with non-temporal stores; [`far::settle`] must follow.
    pub(crate) fn copy_far(&self, at: u64, out: &mut [u8]) {
        let from = self.place(at, out.len());
        // SAFETY: as for `copy`.
        unsafe { far::block(from, out.as_mut_ptr(), out.len()) }
    }

    /// Prefetches bytes that will be copied soon.
    pub(crate) fn expect(&self, at: u64, len: usize) {
        far::expect(self.place(at, len), len);
    }
}
