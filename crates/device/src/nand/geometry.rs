//! The geometry of a NAND device, and the 24 orders in which consecutive pages are spread over it.
//!
//! Channels carry the bytes; each has ways (chips), each way dies, each die planes, each plane blocks of pages. A
//! logical page l lies on a fixed plane. The order names the levels from the fastest-changing one. Under CWDP the
//! channel is l mod C, the way (l / C) mod W, the die (l / CW) mod D. The plane is (l / CWD) mod P. Source: Jung and
//! Kandemir, HotStorage 2012; MQSim uses the same names.

use std::fmt;
use std::str::FromStr;

/// Most pages of a device: its maps take 8 bytes per page.
pub const MOST_PAGES: u64 = 1 << 26;
/// Most planes of a device.
pub const MOST_PLANES: u64 = 1 << 12;

/// The counts at each level of the hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NandGeometry {
    /// Channels of the device.
    pub channels: u32,
    /// Ways (chips) of a channel.
    pub ways: u32,
    /// Dies of a way.
    pub dies: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Blocks of a plane.
    pub blocks: u32,
    /// Pages of a block.
    pub pages: u32,
    /// Bytes of a page, a power of two.
    pub page: u32,
}

/// Options that describe no valid device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NandError {
    /// A count out of its bounds.
    #[error("a NAND device with {what}={value} cannot be: write {low} to {high}")]
    Count {
        /// The option.
        what: &'static str,
        /// What was given.
        value: u64,
        /// Least.
        low: u64,
        /// Most.
        high: u64,
    },
    /// A page size that is no power of two.
    #[error("a page of {0} bytes cannot be: write a power of two from 512 to 65536")]
    Page(u32),
    /// Too large to be kept in memory.
    #[error(
        "{pages} pages are more than a modelled device may have ({most}): choose fewer blocks, or larger pages"
    )]
    Pages {
        /// Pages asked for.
        pages: u64,
        /// Bound.
        most: u64,
    },
    /// Too many planes.
    #[error("{planes} planes are more than a modelled device may have ({most})")]
    Planes {
        /// Planes asked for.
        planes: u64,
        /// Bound.
        most: u64,
    },
    /// Too little spare room for collection.
    #[error(
        "{blocks} blocks a plane with a spare share of {spare} leave {left} spare pages, less than one block of {pages}: \
         collection could not go on; choose more blocks or a larger spare share"
    )]
    Spare {
        /// Blocks of a plane.
        blocks: u32,
        /// Spare share.
        spare: f64,
        /// Spare pages.
        left: u32,
        /// Pages of a block.
        pages: u32,
    },
    /// Too few blocks for the log.
    #[error(
        "{logs} log blocks do not fit: a plane has {most} spare blocks beside the one that merges need"
    )]
    Logs {
        /// Log blocks asked for.
        logs: u32,
        /// Most that fit.
        most: u32,
    },
    /// A share outside its bounds.
    #[error("a NAND device with {what}={value} cannot be: write a number from {low} to {high}")]
    Share {
        /// The option.
        what: &'static str,
        /// What was given.
        value: f64,
        /// Least.
        low: f64,
        /// Most.
        high: f64,
    },
}

impl NandGeometry {
    /// Planes of the device.
    pub fn all_planes(&self) -> u64 {
        u64::from(self.channels)
            * u64::from(self.ways)
            * u64::from(self.dies)
            * u64::from(self.planes)
    }

    /// Dies of the device.
    pub fn all_dies(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.ways) * u64::from(self.dies)
    }

    /// Checks the counts against their bounds; the error names the first that is outside.
    pub fn check(&self) -> Result<(), NandError> {
        let counts = [
            ("channels", self.channels, 1, 64),
            ("ways", self.ways, 1, 64),
            ("dies", self.dies, 1, 16),
            ("planes", self.planes, 1, 8),
            ("blocks", self.blocks, 4, 1 << 16),
            ("pages", self.pages, 2, 1 << 12),
        ];
        for (what, value, low, high) in counts {
            if !(low..=high).contains(&value) {
                return Err(NandError::Count {
                    what,
                    value: value.into(),
                    low: low.into(),
                    high: high.into(),
                });
            }
        }
        if !self.page.is_power_of_two() || !(512..=65536).contains(&self.page) {
            return Err(NandError::Page(self.page));
        }
        let planes = self.all_planes();
        if planes > MOST_PLANES {
            let most = MOST_PLANES;
            return Err(NandError::Planes { planes, most });
        }
        let pages = planes * u64::from(self.blocks) * u64::from(self.pages);
        if pages > MOST_PAGES {
            let most = MOST_PAGES;
            return Err(NandError::Pages { pages, most });
        }
        Ok(())
    }
}

/// One level of parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// C: channel.
    Channel,
    /// W: way.
    Way,
    /// D: die.
    Die,
    /// P: plane.
    Plane,
}

/// An allocation order: the level that changes from page to page first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationOrder([Level; 4]);

const LEVELS: [(Level, char); 4] = [
    (Level::Channel, 'C'),
    (Level::Way, 'W'),
    (Level::Die, 'D'),
    (Level::Plane, 'P'),
];

impl AllocationOrder {
    /// Channel, way, die, plane: channel-and-way striping.
    pub const CWDP: AllocationOrder =
        AllocationOrder([Level::Channel, Level::Way, Level::Die, Level::Plane]);

    /// All 24, in the order of the letters C, W, D, P.
    pub fn all() -> Vec<AllocationOrder> {
        let mut all = Vec::with_capacity(24);
        for a in LEVELS {
            for b in LEVELS {
                for c in LEVELS {
                    for d in LEVELS {
                        let order = [a.0, b.0, c.0, d.0];
                        if distinct(&order) {
                            all.push(AllocationOrder(order));
                        }
                    }
                }
            }
        }
        all
    }

    /// The (die, plane of the die) of every page index modulo the number of planes.
    pub(crate) fn table(self, g: &NandGeometry) -> Vec<(u32, u32)> {
        (0..g.all_planes() as u32)
            .map(|mut rest| {
                let [mut channel, mut way, mut die, mut plane] = [0; 4];
                for level in self.0 {
                    let (count, place) = match level {
                        Level::Channel => (g.channels, &mut channel),
                        Level::Way => (g.ways, &mut way),
                        Level::Die => (g.dies, &mut die),
                        Level::Plane => (g.planes, &mut plane),
                    };
                    *place = rest % count;
                    rest /= count;
                }
                ((channel * g.ways + way) * g.dies + die, plane)
            })
            .collect()
    }
}

fn distinct(order: &[Level; 4]) -> bool {
    (0..4).all(|i| !order[..i].contains(&order[i]))
}

impl FromStr for AllocationOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<AllocationOrder, String> {
        let wrong = || {
            format!("`{text}` is no allocation order: write C, W, D and P once each, such as CWDP")
        };
        let levels: Vec<Level> = text
            .chars()
            .filter_map(|c| LEVELS.iter().find(|l| l.1 == c.to_ascii_uppercase()))
            .map(|l| l.0)
            .collect();
        let order: [Level; 4] = levels.try_into().map_err(|_| wrong())?;
        if text.chars().count() != 4 || !distinct(&order) {
            return Err(wrong());
        }
        Ok(AllocationOrder(order))
    }
}

impl fmt::Display for AllocationOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in self.0 {
            let letter = LEVELS.iter().find(|l| l.0 == level).map_or('?', |l| l.1);
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: NandGeometry = NandGeometry {
        channels: 4,
        ways: 3,
        dies: 2,
        planes: 2,
        blocks: 8,
        pages: 16,
        page: 4096,
    };

    #[test]
    fn there_are_24_orders_and_each_uses_every_plane_once() {
        let all = AllocationOrder::all();
        assert_eq!(all.len(), 24);
        for order in all {
            assert_eq!(order.to_string().parse(), Ok(order));
            let mut places = order.table(&SMALL);
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 48, "{order}");
        }
        // CWDP: neighbours on the next channel; PDWC: on the next plane.
        let cwdp: AllocationOrder = "CWDP".parse().unwrap();
        assert_eq!(cwdp.table(&SMALL)[..2], [(0, 0), (6, 0)]);
        let pdwc: AllocationOrder = "pdwc".parse().unwrap();
        assert_eq!(pdwc.table(&SMALL)[..3], [(0, 0), (0, 1), (1, 0)]);
        for wrong in ["", "CWD", "CWDD", "CWDPC", "CXDP", "CW DP"] {
            assert!(wrong.parse::<AllocationOrder>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn geometries_that_cannot_be_are_refused() {
        assert_eq!(SMALL.check(), Ok(()));
        let wrong = [
            NandGeometry {
                channels: 0,
                ..SMALL
            },
            NandGeometry { planes: 9, ..SMALL },
            NandGeometry { blocks: 3, ..SMALL },
            NandGeometry {
                page: 5000,
                ..SMALL
            },
            NandGeometry {
                blocks: 60_000,
                pages: 4000,
                ..SMALL
            },
            NandGeometry {
                channels: 64,
                ways: 64,
                ..SMALL
            },
        ];
        for geometry in wrong {
            let error = geometry.check().unwrap_err().to_string();
            assert!(!error.is_empty());
        }
    }
}
