//! A cache of decoded loops by content hash, so that a repeated access sends 16 bytes instead of its pattern.
//!
//! One cache for all connections: ranks of a program often share a pattern. Bounded in entries and in bytes; the least
//! recently used entry is evicted. Finding it is a scan of all entries, only for an insertion into a full cache, after
//! a decoding that costs as much.
use penstock_datatype::Loop;
use std::collections::HashMap;

/// Entries.
const MAX_ENTRIES: usize = 1024;
/// Estimated bytes of all decoded loops.
const MAX_BYTES: usize = 64 << 20;
/// A decoded loop takes about this many times the bytes of its encoding (an offset is 8 bytes, encoded 1 to 3).
const BLOW_UP: usize = 8;

/// The loop cache.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    entries: HashMap<[u8; 16], Entry>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    decoded: Loop,
    bytes: usize,
    used: u64,
}

impl Loops {
    /// A known loop.
    pub(crate) fn get(&mut self, hash: &[u8; 16]) -> Option<Loop> {
        self.clock += 1;
        let entry = self.entries.get_mut(hash)?;
        entry.used = self.clock;
        Some(entry.decoded.clone())
    }

    /// Adds a loop that was `encoded_len` bytes long.
    pub(crate) fn insert(&mut self, decoded: Loop, encoded_len: usize) {
        let bytes = 256 + BLOW_UP * encoded_len;
        let hash = decoded.hash().0;
        if self.entries.contains_key(&hash) || bytes > MAX_BYTES {
            return;
        }
        while self.entries.len() >= MAX_ENTRIES || self.bytes + bytes > MAX_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, e)| e.used);
            let Some(oldest) = oldest.map(|(hash, _)| *hash) else {
                break;
            };
            if let Some(gone) = self.entries.remove(&oldest) {
                self.bytes -= gone.bytes;
            }
        }
        self.clock += 1;
        self.bytes += bytes;
        self.entries.insert(
            hash,
            Entry {
                decoded,
                bytes,
                used: self.clock,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(n: u64) -> Loop {
        Loop::vector(n, 1, 100, &Loop::bytes(8)).unwrap()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut loops = Loops::default();
        for n in 0..MAX_ENTRIES as u64 {
            loops.insert(vector(n + 2), 30);
        }
        let first = vector(2);
        assert_eq!(loops.get(&first.hash().0), Some(first.clone()));
        loops.insert(vector(5000), 30);
        assert_eq!(loops.entries.len(), MAX_ENTRIES);
        assert!(loops.get(&first.hash().0).is_some());
        assert!(loops.get(&vector(3).hash().0).is_none());
        assert!(loops.get(&vector(5000).hash().0).is_some());
    }

    #[test]
    fn bytes_are_bounded() {
        let mut loops = Loops::default();
        for n in 0..100 {
            loops.insert(vector(n + 2), 1 << 19);
            assert!(loops.bytes <= MAX_BYTES);
        }
        assert!(!loops.entries.is_empty());
        let before = loops.bytes;
        loops.insert(vector(101), 1 << 19);
        assert_eq!(loops.bytes, before);
    }
}
