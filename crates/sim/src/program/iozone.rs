//! iozone: each thread goes through a file of its own, in order, backwards or at random.
//!
//! In the source, I/O is asynchronous with up to 32 requests in flight: set the program's `in_flight`.
//!
//! Source: RS 6.1 (128 and 256 threads, 8 GB in all), its throughput mode.
use super::{Benchmark, Call, Files, Refused, Setup, size, unfolded};
use crate::error::Result;
use crate::random::hash;
use crate::units::Bytes;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    /// Bytes of all threads' files.
    total: Bytes,
    record: Bytes,
    order: Order,
    /// Records of each file that are accessed.
    records: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Sequential,
    Reverse,
    Random,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            total: Bytes(8 << 30),
            record: Bytes(4 << 10),
            order: Order::Sequential,
            records: None,
        }
    }
}

pub(super) struct Model {
    threads: u32,
    record: u64,
    /// Records of a file.
    there: u64,
    calls: u64,
    order: Order,
    seed: u64,
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        unfolded(setup, "iozone")?;
        let record = size("record", p.record.0)?;
        let there = p.total.0 / record / u64::from(setup.ranks);
        Ok(Model {
            threads: setup.ranks,
            record,
            there,
            calls: p.records.unwrap_or(there).min(there),
            order: p.order,
            seed: setup.seed,
        })
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: self.threads,
            bytes: self.there * self.record,
        }
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let record = match self.order {
            Order::Sequential => call,
            Order::Reverse => self.there - 1 - call,
            Order::Random => hash(self.seed, cohort.into(), call) % self.there,
        };
        Ok(Call {
            file: cohort,
            ..Call::contiguous(record * self.record, self.record)
        })
    }
}
