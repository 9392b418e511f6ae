//! ior-mpi-io: every rank goes through its own block, all at the same offset within it.
//!
//! Offset = s·P·b + r·b + k·t (segment s, block b, transfer t). To the storage it looks random: at any time each rank
//! is a block away from the next.
//!
//! Source: RS 3.4.1 (64 ranks, 16 GB, 32 KB transfers, one segment).
use super::{Benchmark, Call, Files, Refused, Setup, number, size, strided};
use crate::error::Result;
use crate::units::Bytes;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    transfer: Bytes,
    file_size: Bytes,
    segments: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            transfer: Bytes(32 << 10),
            file_size: Bytes(16 << 30),
            segments: 1,
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    cohort: u64,
    transfer: u64,
    /// Transfers in a block.
    block: u64,
    segments: u64,
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        let transfer = size("transfer", p.transfer.0)?;
        let segments = number("segments", p.segments)?;
        let ranks = u64::from(setup.ranks);
        Ok(Model {
            ranks,
            cohort: setup.cohort.into(),
            transfer,
            block: p.file_size.0 / transfer.saturating_mul(ranks).saturating_mul(segments),
            segments,
        })
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.ranks * self.segments * self.block * self.transfer,
        }
    }

    fn calls(&self) -> u64 {
        self.segments * self.block
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let block = self.block * self.transfer;
        let first = u64::from(cohort) * self.cohort;
        let (segment, k) = (call / self.block, call % self.block);
        let offset = (segment * self.ranks + first) * block + k * self.transfer;
        strided(offset, self.cohort, self.transfer, block).map(Call::of)
    }
}
