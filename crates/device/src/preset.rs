//! Devices by name, with the figures of their data sheets or of the papers that used them.

use crate::disk::{Disk, DiskOptions};
use crate::geometry::{Geometry, GeometryOptions};
use crate::{Nanos, Queueing, SeekCurve};

const MICRO: Nanos = 1_000;
/// One turn at 7200 per minute.
const TURN_7200: Nanos = 8_333_333;

/// Hard disks with published seek points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardDisk {
    /// Seagate Constellation ST9500430SS, 7200 rpm SAS.
    St9500430ss,
    /// Seagate Constellation.2 ST9500620SS, 7200 rpm SAS.
    St9500620ss,
}

/// The options of a disk with published figures.
pub fn hard_disk(which: HardDisk) -> DiskOptions {
    // Seeks (single, average, full) in µs; tracks per surface, heads, mean bytes per track, media rates in bytes/s.
    let (read, write, cylinders, heads, mean_track, outer, inner) = match which {
        HardDisk::St9500430ss => (
            [500, 8_000, 17_350],
            [700, 8_400, 17_820],
            123_148,
            6,
            890_823,
            142_000_000u64,
            75_000_000u64,
        ),
        HardDisk::St9500620ss => (
            [230, 7_500, 17_060],
            [440, 8_500, 18_080],
            165_800,
            4,
            732_998,
            163_000_000,
            84_000_000,
        ),
    };
    let curve = |p: [u64; 3]| SeekCurve::from_points(p[0] * MICRO, p[1] * MICRO, p[2] * MICRO);
    let track = |rate: u64| rate * 60 / 7200;
    DiskOptions {
        geometry: Geometry::new(GeometryOptions {
            turn: TURN_7200,
            cylinders,
            heads,
            zones: 16,
            outer_track: track(outer),
            mean_track,
            inner_track: track(inner),
            // Track and head switch as published sequential rates imply: 890,823 B / (turn + skew) = 97.5 MB/s.
            head_skew: 800 * MICRO,
            cylinder_skew: 800 * MICRO,
        }),
        read_seek: curve(read),
        write_seek: curve(write),
        overhead: 200 * MICRO,
        queueing: Queueing::Sptf,
        depth: 32,
        patience: 2_000_000_000,
    }
}

impl HardDisk {
    /// A disk of this kind at rest.
    pub fn build(self) -> Disk {
        Disk::new(hard_disk(self))
    }
}
