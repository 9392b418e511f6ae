//! coll_perf: a three-dimensional array, distributed in blocks over all ranks.
//!
//! Source: DT V.C (600 by 600 by 600 integers at 8, 27 and 64 ranks); the ranks' grid is as MPI_Dims_create makes it.
use super::{Benchmark, Call, Files, Refused, Setup, number, refused, unfolded};
use crate::error::Result;
use penstock_datatype::{Loop, Order, Pattern};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    /// Elements along each side.
    size: u64,
    element: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            size: 600,
            element: 4,
        }
    }
}

pub(super) struct Model {
    size: u64,
    element: u64,
    grid: [u64; 3],
}

/// Three factors of `n` that are as close to each other as its prime factors allow, largest first.
pub(super) fn grid(n: u32) -> [u64; 3] {
    let mut primes = Vec::new();
    let (mut rest, mut p) = (n, 2);
    while p * p <= rest {
        while rest % p == 0 {
            primes.push(u64::from(p));
            rest /= p;
        }
        p += 1;
    }
    if rest > 1 {
        primes.push(rest.into());
    }
    let mut grid = [1u64; 3];
    for prime in primes.into_iter().rev() {
        grid.sort_unstable();
        grid[0] *= prime;
    }
    grid.sort_unstable_by_key(|side| std::cmp::Reverse(*side));
    grid
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        unfolded(setup, "coll_perf")?;
        let size = number("size", p.size)?.min(1 << 16);
        let grid = grid(setup.ranks);
        if grid.iter().any(|n| *n > size) {
            let says = format!(
                "{} ranks make a grid of {grid:?}, more than {size} a side",
                setup.ranks
            );
            return refused("size", says);
        }
        Ok(Model {
            size,
            element: number("element", p.element)?.min(1 << 16),
            grid,
        })
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.size.pow(3) * self.element,
        }
    }

    fn calls(&self) -> u64 {
        1
    }

    fn call(&self, cohort: u32, _call: u64) -> Result<Call> {
        let rank = u64::from(cohort);
        let [_, b, c] = self.grid;
        let place = [rank / (b * c), rank / c % b, rank % c];
        let side = |i: usize, at: u64| self.size * at / self.grid[i];
        let starts: [u64; 3] = std::array::from_fn(|i| side(i, place[i]));
        let sizes: [u64; 3] = std::array::from_fn(|i| side(i, place[i] + 1) - starts[i]);
        let block = Loop::subarray(
            &[self.size; 3],
            &sizes,
            &starts,
            Order::C,
            &Loop::bytes(self.element),
        )?;
        let bytes = block.size();
        Ok(Call::of(Pattern::new(0, block, 0, bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::grid;

    #[test]
    fn grids_are_as_even_as_can_be() {
        for (n, sides) in [
            (8, [2, 2, 2]),
            (27, [3, 3, 3]),
            (64, [4, 4, 4]),
            (12, [3, 2, 2]),
            (7, [7, 1, 1]),
        ] {
            assert_eq!(grid(n), sides);
        }
    }
}
