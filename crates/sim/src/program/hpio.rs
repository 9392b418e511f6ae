//! hpio: regions of one size at one spacing, in file, memory or both.
//!
//! In the file a rank's regions lie (size + spacing)·P apart, so that the ranks' regions take turns; in memory they lie
//! size + spacing apart. Contiguous in the file: all regions of a rank follow each other.
//!
//! Source: RS 3.4.1 (4096 regions of 32 KB, spacing 1024 B), RS 6.3.4 (regions of 512 B to 4 KB, spacing 8192 B).
use super::{Benchmark, Call, Files, Refused, Setup, number, size, strided};
use crate::error::Result;
use crate::units::Bytes;
use penstock_datatype::{Loop, Pattern};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    region_count: u64,
    region_size: Bytes,
    region_spacing: Bytes,
    file_contiguous: bool,
    memory_contiguous: bool,
    repeat: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            region_count: 4096,
            region_size: Bytes(32 << 10),
            region_spacing: Bytes(1 << 10),
            file_contiguous: false,
            memory_contiguous: false,
            repeat: 1,
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    cohort: u64,
    count: u64,
    size: u64,
    /// Distance from a region to the corresponding one of the next rank.
    pitch: u64,
    file_contiguous: bool,
    memory_contiguous: bool,
    repeat: u64,
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        let bytes = size("region_size", p.region_size.0)?;
        let spacing = match p.region_spacing.0 {
            0 => 0,
            spacing => size("region_spacing", spacing)?,
        };
        Ok(Model {
            ranks: setup.ranks.into(),
            cohort: setup.cohort.into(),
            count: number("region_count", p.region_count)?,
            size: bytes,
            pitch: bytes + spacing,
            file_contiguous: p.file_contiguous,
            memory_contiguous: p.memory_contiguous,
            repeat: number("repeat", p.repeat)?,
        })
    }

    /// File bytes spanned by one call of all ranks.
    fn span(&self) -> u64 {
        let pitch = if self.file_contiguous {
            self.size
        } else {
            self.pitch
        };
        pitch.saturating_mul(self.count).saturating_mul(self.ranks)
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.span().saturating_mul(self.repeat),
        }
    }

    fn calls(&self) -> u64 {
        self.repeat
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let first = u64::from(cohort) * self.cohort;
        let base = call * self.span();
        let bytes = self.cohort * self.count * self.size;
        let pattern = if self.file_contiguous {
            Pattern::contiguous((base + first * self.count * self.size) as i64, bytes)
        } else {
            let regions = Loop::vector(self.cohort, 1, self.pitch as i64, &Loop::bytes(self.size))?;
            let stride = (self.pitch * self.ranks) as i64;
            let tile = Loop::vector(self.count, 1, stride, &regions)?;
            Pattern::new((base + first * self.pitch) as i64, tile, 0, bytes)?
        };
        let memory = if self.memory_contiguous {
            None
        } else {
            Some(strided(0, self.cohort * self.count, self.size, self.pitch)?)
        };
        Ok(Call {
            memory,
            ..Call::of(pattern)
        })
    }
}
