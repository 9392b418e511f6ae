//! The analytic model of DT table I: the operations and bytes of each method, from a few statistics of the access.
//! Counters of a run are compared with it.
//!
//! The file of each method has its line of the table.
//!
//! A region is contiguous in file and memory. The larger of the two sides' counts is its lower bound, which is exact if
//! one side's pieces contain whole pieces of the other.
use crate::methods::Method;
use serde::{Deserialize, Serialize};

/// Statistics of one rank's access, or of a collective call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessSummary {
    /// Bytes wanted.
    pub bytes: u64,
    /// Contiguous regions in the file.
    pub file_regions: u64,
    /// Contiguous regions in memory.
    pub memory_regions: u64,
    /// From the first to the last byte in the file.
    pub extent: u64,
    /// The same over all ranks.
    pub aggregate_extent: u64,
    /// Processes that read or write for others.
    pub aggregators: u64,
}

impl AccessSummary {
    /// Lower bound of the pieces that are contiguous in file and memory.
    pub(crate) fn regions(&self) -> u64 {
        self.file_regions.max(self.memory_regions)
    }
}

/// The cost of a method for one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// File system operations.
    pub operations: u64,
    /// File bytes they cover.
    pub accessed_bytes: u64,
    /// Bytes sent to other ranks; 0 unless computed from the patterns.
    pub resent_bytes: u64,
}

/// DT table I. `buffer` is the method's.
pub fn predict(method: Method, shape: &AccessSummary, buffer: u64) -> Prediction {
    let (operations, accessed_bytes) = if shape.bytes == 0 && !method.is_collective() {
        (0, 0)
    } else {
        (method.row().counts)(shape, buffer.max(1))
    };
    Prediction {
        operations,
        accessed_bytes,
        resent_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: u64 = 4 << 20;

    /// (posix, sieve, two-phase, list, datatype) operations.
    fn operations(shape: &AccessSummary) -> [u64; 5] {
        [
            Method::POSIX,
            Method::SIEVE,
            Method::TWO_PHASE,
            Method::LIST,
            Method::DATATYPE,
        ]
        .map(|method| predict(method, shape, BUFFER).operations)
    }

    /// DT table II.
    #[test]
    fn tile_reader() {
        let row = 3 * (3 * 1024 - 2 * 270);
        let shape = AccessSummary {
            bytes: 1024 * 768 * 3,
            file_regions: 768,
            memory_regions: 1,
            extent: 767 * row + 1024 * 3,
            aggregate_extent: row * (2 * 768 - 128),
            aggregators: 6,
        };
        assert_eq!(operations(&shape), [768, 2, 1, 12, 1]);
        let mib = |method| {
            let bytes = predict(method, &shape, BUFFER).accessed_bytes;
            (bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0
        };
        assert_eq!(mib(Method::POSIX), 2.25);
        assert_eq!(mib(Method::SIEVE), 5.56);
        assert_eq!(mib(Method::TWO_PHASE), 1.70);
    }

    /// DT table III. The table prints 1408, 626 and 352 list operations; its own formula gives the values here.
    #[test]
    fn three_dimensional_block() {
        for (per_side, want) in [
            (2, [90_000, 103, 26, 1407, 1]),
            (3, [40_000, 69, 8, 625, 1]),
            (4, [22_500, 52, 4, 352, 1]),
        ] {
            let side = 600 / per_side;
            let offset = |z: u64, y: u64, x: u64| 4 * ((z * 600 + y) * 600 + x);
            let shape = AccessSummary {
                bytes: 4 * side * side * side,
                file_regions: side * side,
                memory_regions: 1,
                extent: offset(side - 1, side - 1, side),
                aggregate_extent: 4 * 600 * 600 * 600,
                aggregators: per_side * per_side * per_side,
            };
            assert_eq!(operations(&shape), want, "{} clients", shape.aggregators);
        }
    }

    /// DT table IV: 8 bytes in memory, 4 KiB in the file.
    #[test]
    fn flash_checkpoint() {
        let clients = 4;
        let bytes = 80 * 24 * 8 * 8 * 8 * 8;
        let shape = AccessSummary {
            bytes,
            file_regions: 80 * 24,
            memory_regions: bytes / 8,
            extent: bytes * clients,
            aggregate_extent: bytes * clients,
            aggregators: clients,
        };
        let [posix, _, two_phase, list, datatype] = operations(&shape);
        assert_eq!((posix, two_phase, list, datatype), (983_040, 2, 15_360, 1));
    }
}
