//! Resistive memory on the channels of a flash device.
//!
//! A die has a number of slabs. A slab opens one line at a time through its local bitlines; all slabs of a die share
//! global bitlines to the die's register. A page is spread over `parallel` slabs, whose lines are accessed in rounds.
//! What the local bitlines deliver crosses the global ones, round by round, while the next round is sensed. A die
//! serves one page at a time; the dies of a way work side by side. There is no erase and no collection: pages are
//! written in place.
//!
//! time = access + max((rounds − 1) · access, bytes / global), rounds = ⌈bytes / (line · parallel)⌉
//!
//! Source: Jung, Shalf, Kandemir, "Design of a Large-Scale Storage-Class RRAM System" (ICS 2013), as IT 6 summarises
//! it; cell times from the ISSCC 2012 macro that NVMain's configuration uses. Parameters that IT does not print are
//! chosen here (docs/understand/flash.md).

use super::geometry::NandError;
use crate::{Nanos, span};

/// A die of slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slabs {
    /// Slabs of a die.
    pub slabs: u32,
    /// Slabs that work on one page together.
    pub parallel: u32,
    /// Bytes that a slab's local bitlines bring at once.
    pub line: u32,
    /// Sensing a line.
    pub read: Nanos,
    /// Writing a line, with its check.
    pub write: Nanos,
    /// Bytes per second of the global bitlines.
    pub global: u64,
}

impl Slabs {
    pub(crate) fn check(&self) -> Result<(), NandError> {
        let counts = [
            ("slabs", self.slabs, 1, 1 << 10),
            ("parallel", self.parallel, 1, self.slabs),
            ("line", self.line, 1, 1 << 12),
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
        Ok(())
    }

    fn time(&self, bytes: u32, access: Nanos) -> Nanos {
        let rounds =
            u64::from(bytes.max(1)).div_ceil(u64::from(self.line) * u64::from(self.parallel));
        let local = (rounds - 1) * access;
        access + local.max(span(bytes.into(), self.global))
    }

    pub(crate) fn read_time(&self, bytes: u32) -> Nanos {
        self.time(bytes, self.read)
    }

    pub(crate) fn write_time(&self, bytes: u32) -> Nanos {
        self.time(bytes, self.write)
    }
}
