//! S3aSim: sequence search. Workers find results of a query and write them in the query's order.
//!
//! Each rank searches its part of the database for each query and finds results of random sizes. All results of a query
//! are in one part of the file, sorted by score: those of one rank are scattered among the others'.
//!
//! Source: RS 3.4.1, 6.3.6 (results of 100 B to 10 kB). Sizes and scores follow from the scenario's seed.
use super::{Benchmark, Call, Files, Refused, Setup, number, unfolded};
use crate::error::Result;
use crate::random::hash;
use crate::units::Time;
use penstock_base::Nanos;
use penstock_datatype::Pattern;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    queries: u64,
    /// Results that each rank finds for a query.
    results: u64,
    /// Mean time of a search.
    search: Time,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            queries: 20,
            results: 32,
            search: Time(0),
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    results: u64,
    search: u64,
    seed: u64,
    /// Where each query's part of the file begins, and the end of the last.
    starts: Vec<u64>,
}

const SMALLEST: u64 = 100;
const LARGEST: u64 = 10_000;

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        unfolded(setup, "s3asim")?;
        let mut model = Model {
            ranks: setup.ranks.into(),
            results: number("results", p.results)?.min(1 << 16),
            search: p.search.0,
            seed: setup.seed,
            starts: vec![0],
        };
        let queries = number("queries", p.queries)?.min(1 << 16);
        let mut end = 0;
        for query in 0..queries {
            for rank in 0..model.ranks {
                end += (0..model.results)
                    .map(|i| model.size(query, rank, i))
                    .sum::<u64>();
            }
            model.starts.push(end);
        }
        Ok(model)
    }

    fn draw(&self, query: u64, rank: u64, i: u64) -> u64 {
        hash(self.seed, query, rank * self.results + i)
    }

    fn size(&self, query: u64, rank: u64, i: u64) -> u64 {
        SMALLEST + self.draw(query, rank, i) % (LARGEST - SMALLEST + 1)
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.starts.last().copied().unwrap_or(0),
        }
    }

    fn calls(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn call(&self, cohort: u32, query: u64) -> Result<Call> {
        let mut results: Vec<(u64, u64, u64)> = (0..self.ranks)
            .flat_map(|rank| (0..self.results).map(move |i| (rank, i)))
            .map(|(rank, i)| {
                (
                    self.draw(query, rank, i).rotate_left(32),
                    rank,
                    self.size(query, rank, i),
                )
            })
            .collect();
        results.sort_unstable();
        let mut at = self.starts[query as usize];
        let mut mine = Vec::new();
        for (_, rank, len) in results {
            if rank == u64::from(cohort) {
                mine.push((at as i64, len));
            }
            at += len;
        }
        Ok(Call::of(Pattern::list(&mine)?))
    }

    fn compute(&self, cohort: u32, query: u64) -> Nanos {
        if self.search == 0 {
            return 0;
        }
        // Uniform between half and one and a half of the mean.
        self.search / 2 + hash(self.seed, query, !u64::from(cohort)) % self.search
    }
}
