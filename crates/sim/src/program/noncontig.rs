//! noncontig: each rank reads or writes one column of a table.
//!
//! The file is an array with one column a rank; a column is `elements` integers wide. Each call covers as many rows as
//! make `per_call` bytes over all ranks.
//!
//! Source: RS 3.4.1 (64 columns, 4 MB a call), RS 4.3 (16 MB a call). Memory is noncontiguous too by default.
use super::{Benchmark, Call, Files, Refused, Setup, number, size, strided};
use crate::error::Result;
use crate::units::Bytes;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    elements: u64,
    per_call: Bytes,
    file_size: Bytes,
    memory_contiguous: bool,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            elements: 512,
            per_call: Bytes(4 << 20),
            file_size: Bytes(1 << 30),
            memory_contiguous: false,
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    cohort: u64,
    width: u64,
    rows: u64,
    calls: u64,
    memory_contiguous: bool,
}

const INT: u64 = 4;

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        let width = number("elements", p.elements)? * INT;
        let ranks = u64::from(setup.ranks);
        let row = width * ranks;
        let rows = (size("per_call", p.per_call.0)? / row).max(1);
        Ok(Model {
            ranks,
            cohort: setup.cohort.into(),
            width,
            rows,
            calls: p.file_size.0 / row.saturating_mul(rows),
            memory_contiguous: p.memory_contiguous,
        })
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.calls * self.rows * self.width * self.ranks,
        }
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let row = self.width * self.ranks;
        let len = self.width * self.cohort;
        let offset = call * self.rows * row + u64::from(cohort) * len;
        let memory = if self.memory_contiguous {
            None
        } else {
            Some(strided(0, self.rows, len, 2 * len)?)
        };
        Ok(Call {
            memory,
            ..Call::of(strided(offset, self.rows, len, row)?)
        })
    }
}
