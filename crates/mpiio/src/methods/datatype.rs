//! # datatype: one operation that carries the loop
//!
//! **Problem.** Lists grow with the number of regions: building, sending and reading them costs as much as the data.
//! **Idea.** Send the loop itself. Its size does not depend on the number of regions, and each server visits only its
//! own runs. **When it pays.** Nearly always for independent accesses: only wanted bytes are moved, and an access costs
//! one request per server. **Parameters.** None. **Hint.** `penstock_method=datatype`, `romio_pvfs2_dtype_read`,
//! `romio_pvfs2_dtype_write`. **Source.** DT section III.
use super::Method;
use super::cost::{RankAccess, Terms};
use super::plan::{Alone, Cut, Once, Plan};
use super::row::{Row, Work};
use crate::model;
use penstock_base::Op;
use penstock_client::Form;

pub(super) const ROW: Row = Row {
    name: "datatype",
    summary: "one operation that carries the loop",
    toggles: Some(["romio_pvfs2_dtype_read", "romio_pvfs2_dtype_write"]),
    buffer: None,
    offered: |_, _| true,
    offered_when: "always",
    counts,
    region: |_, shape| shape.bytes / shape.file_regions.max(1),
    work: Work::Alone {
        locks: false,
        cost,
        plan,
    },
};

impl Method {
    /// One operation that carries the loop.
    pub const DATATYPE: Method = Method::named(ROW.name);
}

/// Reads of regions below this size, close together, are copied out of a mapping.
const MAPPED_REGION: f64 = 32e3;
const MAPPED_DISTANCE: f64 = 16e3;
/// Such a region costs as much as this many pieces of memory: it must be looked up, and its page's address is not
/// cached.
const MAPPED_PIECES: f64 = 5.0;
/// Writes of regions whose starts are at most this far apart are spread over a mapping (`penstock_store`, module
/// `spread`).
const SPREAD_DISTANCE: f64 = 1024.0;
/// Least number of regions in one call. Fewer count as one call each, because the fixed cost of a mapping is not in the
/// estimate.
const SPREAD_FEWEST: f64 = 1024.0;
/// Seconds for each byte of the extent: a page that is written through a mapping takes 0.5 to 3 µs on ext4.
const SPREAD_BYTE: f64 = 2e-6 / 4096.0;

/// One operation, and the wanted bytes.
fn counts(shape: &model::AccessSummary, _: u64) -> (u64, u64) {
    (1, shape.bytes)
}

/// A request whose regions the server visits, or a call for each region.
fn cost(terms: &Terms<'_>, shape: &RankAccess) -> f64 {
    let costs = terms.costs;
    // Dense small pieces are copied out of a mapping, without calls (`penstock_store::Mapped`).
    let mapped = terms.direction == Op::Read
        && terms.shortcut
        && shape.bytes < MAPPED_REGION * shape.file_regions
        && shape.extent <= MAPPED_DISTANCE * shape.file_regions;
    let bytes = shape.bytes * terms.byte();
    // Few calls write them; page faults dominate.
    let spread = terms.direction == Op::Write
        && terms.shortcut
        && shape.file_regions >= SPREAD_FEWEST
        && shape.extent <= SPREAD_DISTANCE * shape.file_regions;
    let operations = if mapped {
        shape.file_regions * MAPPED_PIECES * costs.piece + bytes
    } else if spread {
        let faults = shape.extent * SPREAD_BYTE;
        terms.operation() + shape.file_regions * MAPPED_PIECES * costs.piece + faults + bytes
    } else if terms.by_call() {
        shape.file_regions * terms.operation() + bytes
    } else {
        costs.request + bytes + shape.file_regions * costs.server_region
    };
    operations + shape.memory_regions * costs.piece
}

/// The plan of an access.
pub(crate) fn plan(access: &Alone) -> Box<dyn Plan> {
    Once::plan(access, Form::Structured, Cut::one(0, access.file.clone()))
}
