//! mpi-tile-io, the tile reader: each rank has one tile of a frame, tiles overlap.
//!
//! The data set is columns·width − (columns − 1)·overlap_x elements wide and likewise high. A frame is read in one call.
//!
//! Source: DT V.B (3 by 2 tiles of 1024 by 768 elements of 3 bytes, overlap 270 and 128, 100 frames).
use super::{Benchmark, Call, Files, Refused, Setup, number, refused, unfolded};
use crate::error::Result;
use penstock_datatype::{Loop, Order, Pattern};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parameters {
    columns: u64,
    rows: u64,
    width: u64,
    height: u64,
    element: u64,
    overlap_x: u64,
    overlap_y: u64,
    frames: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            columns: 3,
            rows: 2,
            width: 1024,
            height: 768,
            element: 3,
            overlap_x: 270,
            overlap_y: 128,
            frames: 1,
        }
    }
}

pub(super) struct Model {
    p: Parameters,
    /// Elements of the frame, down and across.
    frame: [u64; 2],
}

impl Model {
    pub(super) fn new(p: Parameters, setup: &Setup) -> std::result::Result<Model, Refused> {
        unfolded(setup, "mpi-tile-io")?;
        for (key, n) in [
            ("columns", p.columns),
            ("rows", p.rows),
            ("width", p.width),
            ("height", p.height),
            ("element", p.element),
            ("frames", p.frames),
        ] {
            number(key, n)?;
        }
        if p.columns.saturating_mul(p.rows) != u64::from(setup.ranks) {
            let says = format!(
                "{} by {} tiles need as many ranks, not {}",
                p.columns, p.rows, setup.ranks
            );
            return Err(("ranks".into(), says));
        }
        if p.overlap_x >= p.width || p.overlap_y >= p.height {
            return refused(
                "overlap_x",
                "tiles overlap by less than their width and height",
            );
        }
        let side = |n: u64, len: u64, overlap: u64| n * len - (n - 1) * overlap;
        let frame = [
            side(p.rows, p.height, p.overlap_y),
            side(p.columns, p.width, p.overlap_x),
        ];
        Ok(Model { p, frame })
    }

    fn frame_bytes(&self) -> u64 {
        let [down, across] = self.frame;
        down.saturating_mul(across).saturating_mul(self.p.element)
    }
}

impl Benchmark for Model {
    fn files(&self) -> Files {
        Files {
            count: 1,
            bytes: self.frame_bytes().saturating_mul(self.p.frames),
        }
    }

    fn calls(&self) -> u64 {
        self.p.frames
    }

    fn call(&self, cohort: u32, call: u64) -> Result<Call> {
        let (row, column) = (
            u64::from(cohort) / self.p.columns,
            u64::from(cohort) % self.p.columns,
        );
        let tile = Loop::subarray(
            &self.frame,
            &[self.p.height, self.p.width],
            &[
                row * (self.p.height - self.p.overlap_y),
                column * (self.p.width - self.p.overlap_x),
            ],
            Order::C,
            &Loop::bytes(self.p.element),
        )?;
        let bytes = tile.size();
        let at = (call * self.frame_bytes()) as i64;
        Ok(Call::of(Pattern::new(at, tile, 0, bytes)?))
    }
}
