//! demo: the program that shows resonance.
//!
//! In each call rank i of N reads segments k·N + i, k = 0..segments, of the part of the file that the call covers.
//! Collective: one call with a vector type; otherwise one call for each segment.
//!
//! Source: RS 4.1.2 (4 segments, 10 GB, 32 to 1024 KiB), RS 3.2 (16 segments, 8 ranks).
use super::{Benchmark, Call, Files, Refused, Setup, number, size, strided};
use crate::error::Result;
use crate::units::Bytes;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    segment: Bytes,
    segments: u64,
    file_size: Bytes,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            segment: Bytes(64 << 10),
            segments: 4,
            file_size: Bytes(10 << 30),
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    cohort: u64,
    segment: u64,
    segments: u64,
    calls: u64,
    collective: bool,
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        let segment = size("segment", p.segment.0)?;
        let segments = number("segments", p.segments)?.min(1 << 20);
        let ranks = u64::from(setup.ranks);
        Ok(Model {
            ranks,
            cohort: setup.cohort.into(),
            segment,
            segments,
            calls: p.file_size.0 / segment.saturating_mul(segments).saturating_mul(ranks),
            collective: setup.collective,
        })
    }

    fn per_call(&self) -> u64 {
        self.ranks * self.segments * self.segment
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.calls.saturating_mul(self.per_call()),
        }
    }

    fn calls(&self) -> u64 {
        if self.collective {
            self.calls
        } else {
            self.calls * self.segments
        }
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let mine = u64::from(cohort) * self.cohort * self.segment;
        let len = self.cohort * self.segment;
        let row = self.ranks * self.segment;
        if self.collective {
            let offset = call * self.per_call() + mine;
            return strided(offset, self.segments, len, row).map(Call::of);
        }
        Ok(Call::contiguous(call * row + mine, len))
    }
}
