//! A local file system's allocation: object offset → device address.
//!
//! Space is given in extents. A file's next extent follows its last one if that place is free, except for a share of
//! extents (fragmentation) that go elsewhere. A new file begins `distance` bytes behind the file before it, so that two
//! files can be set any seek apart. The choice depends on the file and the extent only: the same sequence of calls
//! gives the same addresses.

use penstock_base::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Parameters of an allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllocationOptions {
    /// Bytes of an extent.
    pub extent: u64,
    /// Share of extents, 0 to 1, that do not follow the one before.
    pub fragmentation: f64,
    /// Bytes from the start of a file to the start of the next new one; 0 for close together.
    pub distance: u64,
}

impl Default for AllocationOptions {
    fn default() -> AllocationOptions {
        AllocationOptions {
            extent: 16 << 20,
            fragmentation: 0.0,
            distance: 0,
        }
    }
}

/// Maps bytes of files to addresses of the device.
#[derive(Debug)]
pub struct Allocation {
    options: AllocationOptions,
    slots: u64,
    used: BTreeSet<u64>,
    files: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Where the next new file begins.
    cursor: u64,
}

impl Allocation {
    /// Over a device of `capacity` bytes.
    pub fn new(options: AllocationOptions, capacity: u64) -> Allocation {
        let extent = options.extent.max(4096);
        Allocation {
            options: AllocationOptions { extent, ..options },
            slots: (capacity / extent).max(1),
            used: BTreeSet::new(),
            files: BTreeMap::new(),
            cursor: 0,
        }
    }

    /// The next new file begins at the extent of `address`, instead of `distance` behind the last one.
    pub fn begin_at(&mut self, address: u64) {
        self.cursor = (address / self.options.extent) % self.slots;
    }

    /// The device ranges of `bytes` bytes at `offset` of `file`, in order; adjacent ranges are joined. Bytes without an
    /// address get one; returns false when the device is full, with the ranges up to there.
    pub fn map(
        &mut self,
        file: u64,
        offset: u64,
        bytes: u64,
        mut range: impl FnMut(u64, u64),
    ) -> bool {
        let extent = self.options.extent;
        let mut run: Option<(u64, u64)> = None;
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let index = at / extent;
            let take = (extent - at % extent).min(end - at);
            match self.slot(file, index) {
                Some(slot) => {
                    let address = slot * extent + at % extent;
                    run = match run {
                        Some((start, len)) if start + len == address => Some((start, len + take)),
                        other => {
                            if let Some((start, len)) = other {
                                range(start, len);
                            }
                            Some((address, take))
                        }
                    };
                }
                None => break,
            }
            at += take;
        }
        if let Some((start, len)) = run {
            range(start, len);
        }
        at >= end
    }

    /// The device ranges of a file, by offset.
    pub fn ranges(&self, file: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let extent = self.options.extent;
        let slots = self.files.get(&file).into_iter().flat_map(BTreeMap::values);
        slots.map(move |slot| (slot * extent, extent))
    }

    /// Gives the space of a file back.
    pub fn free(&mut self, file: u64) {
        for slot in self
            .files
            .remove(&file)
            .into_iter()
            .flatten()
            .map(|(_, s)| s)
        {
            self.used.remove(&slot);
        }
    }

    /// Free bytes of the device.
    pub fn room(&self) -> u64 {
        (self.slots - self.used.len() as u64) * self.options.extent
    }

    fn slot(&mut self, file: u64, index: u64) -> Option<u64> {
        if let Some(slot) = self.files.get(&file).and_then(|f| f.get(&index)) {
            return Some(*slot);
        }
        if self.used.len() as u64 >= self.slots {
            return None;
        }
        let extents = self.files.entry(file).or_default();
        let before = extents
            .range(..index)
            .next_back()
            .map(|(i, s)| s + (index - i));
        let chance = Random::mix(file ^ Random::mix(index));
        let elsewhere = (chance >> 11) as f64 / ((1u64 << 53) as f64) < self.options.fragmentation;
        let wanted = match before {
            Some(next) if !elsewhere => next,
            Some(_) => Random::mix(chance) % self.slots,
            None => {
                let start = self.cursor;
                self.cursor =
                    (start + (self.options.distance / self.options.extent).max(1)) % self.slots;
                start + index
            }
        } % self.slots;
        let slot = self.next_free(wanted)?;
        self.used.insert(slot);
        self.files.entry(file).or_default().insert(index, slot);
        Some(slot)
    }

    fn next_free(&self, wanted: u64) -> Option<u64> {
        let mut slot = wanted;
        for used in self.used.range(wanted..) {
            if *used != slot {
                break;
            }
            slot += 1;
        }
        if slot < self.slots {
            return Some(slot);
        }
        (0..wanted).find(|s| !self.used.contains(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(a: &mut Allocation, file: u64, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        assert!(a.map(file, offset, bytes, |s, n| all.push((s, n))));
        all
    }

    #[test]
    fn contiguous_apart_and_fragmented() {
        let options = AllocationOptions {
            extent: 1 << 20,
            fragmentation: 0.0,
            distance: 1 << 30,
        };
        let mut a = Allocation::new(options, 100 << 30);
        assert_eq!(ranges(&mut a, 7, 0, 64 << 20), [(0, 64 << 20)]);
        assert_eq!(ranges(&mut a, 9, 4096, 8192), [((1 << 30) + 4096, 8192)]);
        assert_eq!(ranges(&mut a, 7, 1000, 5), [(1000, 5)]);
        assert_eq!(a.ranges(9).collect::<Vec<_>>(), [(1 << 30, 1 << 20)]);
        a.begin_at(50 << 30);
        assert_eq!(ranges(&mut a, 11, 0, 4096), [(50 << 30, 4096)]);
        let mut f = Allocation::new(
            AllocationOptions {
                fragmentation: 0.5,
                ..options
            },
            100 << 30,
        );
        let pieces = ranges(&mut f, 7, 0, 200 << 20);
        assert!((60..140).contains(&pieces.len()), "{}", pieces.len());
        assert_eq!(pieces.iter().map(|p| p.1).sum::<u64>(), 200 << 20);
    }

    #[test]
    fn a_full_device_says_so_and_freed_space_comes_back() {
        let mut a = Allocation::new(
            AllocationOptions {
                extent: 1 << 20,
                ..AllocationOptions::default()
            },
            4 << 20,
        );
        assert!(a.map(1, 0, 3 << 20, |_, _| {}));
        assert!(!a.map(2, 0, 2 << 20, |_, _| {}));
        assert_eq!(a.room(), 0);
        a.free(1);
        assert!(a.map(2, 0, 4 << 20, |_, _| {}));
        a.free(2);
        assert_eq!(a.room(), 4 << 20);
    }
}
