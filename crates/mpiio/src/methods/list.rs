//! # list: at most 64 regions in an operation
//!
//! **Problem.** posix pays a round trip for each region. **Idea.** Hand the file system lists of offsets and lengths, a
//! bounded number at a time. A region is a piece that is contiguous in both file and memory, as in the source. Its
//! FLASH checkpoint of 983,040 such pieces of 8 bytes takes 15,360 operations although the file regions are 4 KiB (DT
//! table IV). 768 tile rows take 12 (table II). **When it pays.** Irregular accesses of medium regions on file systems
//! without structured requests. `auto` does not offer it: `datatype` is never slower. **Parameters.** 64 regions, the
//! limit of the request format. **Hint.** `penstock_method=list`, `romio_pvfs2_listio_read`,
//! `romio_pvfs2_listio_write`. **Source.** DT II.D, table I.
use super::Method;
use super::cost::{RankAccess, Terms};
use super::plan::{Alone, Cut, Once, Plan};
use super::row::{Row, Work};
use crate::model;
use penstock_client::Form;
use penstock_wire::message::MAX_LIST;

pub(super) const ROW: Row = Row {
    name: "list",
    summary: "at most 64 regions in an operation",
    toggles: Some(["romio_pvfs2_listio_read", "romio_pvfs2_listio_write"]),
    buffer: None,
    offered: |_, _| false,
    offered_when: "only where a hint asks for it",
    counts,
    region: |_, shape| shape.bytes / shape.file_regions.max(1),
    work: Work::Alone {
        locks: false,
        cost,
        plan,
    },
};

impl Method {
    /// At most 64 regions in an operation.
    pub const LIST: Method = Method::named(ROW.name);
}

/// ⌈regions / 64⌉ operations, and the wanted bytes.
fn counts(shape: &model::AccessSummary, _: u64) -> (u64, u64) {
    (shape.regions().div_ceil(MAX_LIST as u64), shape.bytes)
}

/// Requests in flight as with posix; each region's entry is made, sent and visited.
fn cost(terms: &Terms<'_>, shape: &RankAccess) -> f64 {
    let (costs, regions) = (terms.costs, shape.regions());
    let lists = (regions / MAX_LIST as f64).ceil();
    costs.request
        + lists * costs.request / 4.0
        + regions * (costs.server_region + 4.0 * costs.piece)
        + shape.bytes * costs.request_byte[terms.direction as usize]
}

/// The plan of an access.
fn plan(access: &Alone) -> Box<dyn Plan> {
    Once::plan(
        access,
        Form::List,
        Cut::pieces(&access.file, &access.memory, MAX_LIST),
    )
}
