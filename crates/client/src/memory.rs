//! The memory side of an exchange: bytes gathered into frames or scattered out of them.
//!
//! Large pieces go between socket and memory without a copy (vectored calls on the caller's own memory). Small ones are
//! packed, because a system call pays more per slice than a copy of a few hundred bytes costs.
use penstock_datatype::{Source, Target};

/// Mean bytes of a contiguous memory piece from which vectored calls are used.
const DIRECT_PIECE: u64 = 2048;

/// A stretch of the caller's memory for one vectored call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub base: *mut u8,
    pub len: usize,
}

/// Source of a write or target of a read; stream positions are those of the memory pattern.
pub(crate) enum Memory<'m, 'a> {
    From(&'m mut Source<'a>),
    Into(&'m mut Target<'a>),
}

impl Memory<'_, '_> {
    pub fn len(&self) -> u64 {
        match self {
            Memory::From(source) => source.len(),
            Memory::Into(target) => target.len(),
        }
    }

    /// Whether pieces are large enough on average for vectored calls.
    pub fn is_coarse(&self) -> bool {
        let pattern = match self {
            Memory::From(source) => source.pattern(),
            Memory::Into(target) => target.pattern(),
        };
        pattern.is_contiguous() || pattern.len / pattern.regions().max(1) >= DIRECT_PIECE
    }

    /// Appends the stretches of stream [from, from + len) to `out`. They stay valid as long as the
    /// buffer that this memory borrows.
    pub fn stretches(&mut self, from: u64, len: u64, out: &mut Vec<Stretch>) {
        let mut put = |base: *mut u8, len: usize| match out.last_mut() {
            Some(last) if last.base.wrapping_add(last.len) == base => last.len += len,
            _ => out.push(Stretch { base, len }),
        };
        match self {
            Memory::From(source) => {
                source.pieces(from, len, |p| put(p.as_ptr().cast_mut(), p.len()));
            }
            Memory::Into(target) => target.pieces(from, len, |p| put(p.as_mut_ptr(), p.len())),
        }
    }

    /// Packs stream [from, from + out.len()) (writes).
    pub fn gather(&mut self, from: u64, out: &mut [u8]) {
        match self {
            Memory::From(source) => source.gather(from, out),
            Memory::Into(_) => debug_assert!(false, "reads do not gather"),
        }
    }

    /// Unpacks `bytes` at stream position `from` (reads).
    pub fn scatter(&mut self, from: u64, bytes: &[u8]) {
        match self {
            Memory::Into(target) => target.scatter(from, bytes),
            Memory::From(_) => debug_assert!(false, "writes do not scatter"),
        }
    }

    /// Zeroes stream [from, from + len) (reads).
    pub fn zero(&mut self, from: u64, len: u64) {
        match self {
            Memory::Into(target) => target.zero(from, len),
            Memory::From(_) => debug_assert!(false, "writes do not zero"),
        }
    }
}
