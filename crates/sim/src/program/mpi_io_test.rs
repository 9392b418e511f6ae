//! mpi-io-test: one segment a call.
//!
//! Strided: in call j rank i covers segment j·P + i, so that the program as a whole goes through the file in order.
//! Segmented: each rank goes through its own part. With a file per process each goes through its own file.
//!
//! Source: RS 3.4.1 (16 KB segments, 20 GB, 64 ranks), RS 5.3.1; TS 3.2.2 (16 KB or 256 KB, 64 MB a process).
use super::{Benchmark, Call, Files, Refused, Setup, refused, size, strided, unfolded};
use crate::error::Result;
use crate::units::Bytes;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    segment: Bytes,
    file_size: Bytes,
    layout: Layout,
    files: Sharing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layout {
    Strided,
    Segmented,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sharing {
    Shared,
    PerProcess,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            segment: Bytes(16 << 10),
            file_size: Bytes(20 << 30),
            layout: Layout::Strided,
            files: Sharing::Shared,
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    cohort: u64,
    segment: u64,
    calls: u64,
    layout: Layout,
    sharing: Sharing,
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        let segment = size("segment", p.segment.0)?;
        let ranks = u64::from(setup.ranks);
        if p.files == Sharing::PerProcess {
            unfolded(setup, "mpi-io-test with a file per process")?;
            if p.layout == Layout::Segmented {
                return refused("layout", "a file per process has one layout; leave it out");
            }
        }
        let all = match p.files {
            Sharing::Shared => segment.saturating_mul(ranks),
            Sharing::PerProcess => segment,
        };
        Ok(Model {
            ranks,
            cohort: setup.cohort.into(),
            segment,
            calls: p.file_size.0 / all,
            layout: p.layout,
            sharing: p.files,
        })
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        match self.sharing {
            Sharing::Shared => Files {
                count: 1,
                bytes: self.calls * self.segment * self.ranks,
            },
            Sharing::PerProcess => Files {
                count: self.ranks as u32,
                bytes: self.calls * self.segment,
            },
        }
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let first = u64::from(cohort) * self.cohort;
        match (self.sharing, self.layout) {
            (Sharing::PerProcess, _) => Ok(Call {
                file: cohort,
                ..Call::contiguous(call * self.segment, self.segment)
            }),
            (Sharing::Shared, Layout::Strided) => Ok(Call::contiguous(
                (call * self.ranks + first) * self.segment,
                self.cohort * self.segment,
            )),
            (Sharing::Shared, Layout::Segmented) => {
                let part = self.calls * self.segment;
                let offset = first * part + call * self.segment;
                strided(offset, self.cohort, self.segment, part).map(Call::of)
            }
        }
    }
}
