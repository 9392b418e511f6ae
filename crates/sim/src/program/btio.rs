//! BTIO: dumps of a block-tridiagonal solver's solution.
//!
//! P = n² ranks share an N³ grid of points of 5 doubles, cut into n³ cells. A rank owns n cells, one in each layer z.
//! From layer to layer its column x moves up by one and its row y down by one. A dump appends the whole grid.
//!
//! Source: RS 6.3.5 (class C, 6.8 GB in 40 dumps). About half of the time is computation: set the program's `compute`.
use super::{Benchmark, Call, Files, Refused, Setup, number, refused, unfolded};
use crate::error::Result;
use penstock_datatype::{Loop, Order, Pattern};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    /// Points along each side: 162 in class C.
    grid: u64,
    dumps: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            grid: 162,
            dumps: 40,
        }
    }
}

pub(super) struct Model {
    grid: u64,
    dumps: u64,
    /// Cells along each side.
    n: u64,
}

/// Five doubles.
const POINT: u64 = 40;

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        unfolded(setup, "btio")?;
        let n = u64::from(setup.ranks).isqrt();
        if n * n != u64::from(setup.ranks) {
            let says = format!("btio needs a square number of ranks, not {}", setup.ranks);
            return Err(("ranks".into(), says));
        }
        let grid = number("grid", p.grid)?.min(1 << 14);
        if grid < n {
            return refused(
                "grid",
                format!("{n} cells a side need at least as many points"),
            );
        }
        Ok(Model {
            grid,
            dumps: number("dumps", p.dumps)?,
            n,
        })
    }

    fn dump(&self) -> u64 {
        self.grid.pow(3) * POINT
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.dump().saturating_mul(self.dumps),
        }
    }

    fn calls(&self) -> u64 {
        self.dumps
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let (n, rank) = (self.n, u64::from(cohort));
        let edge = |at: u64| self.grid * at / n;
        let cells = (0..n)
            .map(|c| {
                let place = [c, (rank / n + n - c % n) % n, (rank % n + c) % n];
                let starts = place.map(edge);
                let sizes: [u64; 3] = std::array::from_fn(|i| edge(place[i] + 1) - starts[i]);
                let cell = Loop::subarray(
                    &[self.grid; 3],
                    &sizes,
                    &starts,
                    Order::C,
                    &Loop::bytes(POINT),
                )?;
                Ok((1, 0, cell))
            })
            .collect::<Result<Vec<_>>>()?;
        let tile = Loop::structure(&cells)?;
        let bytes = tile.size();
        Ok(Call::of(Pattern::new(
            (call * self.dump()) as i64,
            tile,
            0,
            bytes,
        )?))
    }
}
