//! FLASH: checkpoints of blocks with guard cells.
//!
//! A rank holds `blocks` blocks of cells³ elements surrounded by guard cells; an element has `variables` doubles. In the
//! file each variable is contiguous: first all blocks of rank 0, then of rank 1, and so on. So a rank's access is 8 byte
//! pieces in memory and one region for each variable in the file.
//!
//! Source: DT V.D (80 blocks of 8³ cells with 4 guard cells on each side, 24 variables; 7.5 MB a rank).
use super::{Benchmark, Call, Files, Refused, Setup, number, strided};
use crate::error::Result;
use penstock_datatype::{Loop, Pattern};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    blocks: u64,
    variables: u64,
    cells: u64,
    guards: u64,
    checkpoints: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            blocks: 80,
            variables: 24,
            cells: 8,
            guards: 4,
            checkpoints: 1,
        }
    }
}

pub(super) struct Model {
    ranks: u64,
    cohort: u64,
    p: Parameters,
    memory: Pattern,
}

const DOUBLE: u64 = 8;

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        for (key, n) in [
            ("blocks", p.blocks),
            ("variables", p.variables),
            ("cells", p.cells),
            ("checkpoints", p.checkpoints),
        ] {
            if number(key, n)? > 4096 {
                return super::refused(key, format!("{n} is outside 1..=4096"));
            }
        }
        if p.guards > 64 {
            return super::refused("guards", format!("{} is outside 0..=64", p.guards));
        }
        let memory =
            memory(&p, setup.cohort.into()).map_err(|e| ("parameters".into(), e.to_string()))?;
        Ok(Model {
            ranks: setup.ranks.into(),
            cohort: setup.cohort.into(),
            p,
            memory,
        })
    }

    /// Bytes of one variable on one rank.
    fn share(&self) -> u64 {
        self.p.blocks * self.p.cells.pow(3) * DOUBLE
    }

    fn checkpoint(&self) -> u64 {
        self.share() * self.ranks * self.p.variables
    }
}

/// The interior of all blocks, variable by variable.
fn memory(p: &Parameters, ranks: u64) -> Result<Pattern> {
    let side = p.cells + 2 * p.guards;
    let element = (p.variables * DOUBLE) as i64;
    let row = element * side as i64;
    let line = Loop::vector(p.cells, 1, element, &Loop::bytes(DOUBLE))?;
    let plane = Loop::vector(p.cells, 1, row, &line)?;
    let block = Loop::vector(p.cells, 1, row * side as i64, &plane)?;
    let blocks = Loop::vector(p.blocks * ranks, 1, row * (side * side) as i64, &block)?;
    let all = Loop::vector(p.variables, 1, DOUBLE as i64, &blocks)?;
    let first = p.guards as i64 * (row * side as i64 + row + element);
    let bytes = all.size();
    Ok(Pattern::new(first, all, 0, bytes)?)
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.checkpoint().saturating_mul(self.p.checkpoints),
        }
    }

    fn calls(&self) -> u64 {
        self.p.checkpoints
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let share = self.share();
        let offset = call * self.checkpoint() + u64::from(cohort) * self.cohort * share;
        let file = strided(
            offset,
            self.p.variables,
            self.cohort * share,
            self.ranks * share,
        )?;
        Ok(Call {
            memory: Some(self.memory.clone()),
            ..Call::of(file)
        })
    }
}
