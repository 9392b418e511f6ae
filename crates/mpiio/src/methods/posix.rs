//! # posix: one contiguous operation for each region
//!
//! **Problem.** The interface every file system has moves one contiguous region a call.
//! **Idea.** Do just that, many operations in flight; where file and memory regions do not align, one operation for
//! each piece that is contiguous in both.
//! **When it pays.** Few large regions; as the measure for everything else. `auto` does not offer it: `datatype` is
//! never slower.
//! **Parameters.** None. **Hint.** `penstock_method=posix`, `romio_pvfs2_posix_read`, `romio_pvfs2_posix_write`.
//! **Source.** DT II.A, IV.C.
use super::Method;
use super::cost::{RankAccess, Terms};
use super::plan::{Alone, Cut, Once, Plan};
use super::row::{Row, Work};
use crate::model;
use penstock_client::Form;

pub(super) const ROW: Row = Row {
    name: "posix",
    summary: "one contiguous operation for each region of file and memory jointly",
    toggles: Some(["romio_pvfs2_posix_read", "romio_pvfs2_posix_write"]),
    buffer: None,
    offered: |_, _| false,
    offered_when: "only where a hint asks for it",
    counts,
    region: |tally, _| tally.accessed / tally.operations.max(1),
    work: Work::Alone {
        locks: false,
        cost,
        plan,
    },
};

impl Method {
    /// One contiguous operation for each region.
    pub const POSIX: Method = Method::named(ROW.name);
}

/// At least a region's operation each, and the bytes wanted.
fn counts(shape: &model::AccessSummary, _: u64) -> (u64, u64) {
    (shape.regions(), shape.bytes)
}

/// A call for each region. Requests are many in flight: a round trip once, then what a request costs its two ends.
fn cost(terms: &Terms<'_>, shape: &RankAccess) -> f64 {
    let each = if terms.by_call() {
        shape.regions() * terms.operation()
    } else {
        terms.costs.request + shape.regions() * terms.costs.request / 4.0
    };
    each + shape.bytes * terms.byte()
}

/// This access's way.
fn plan(access: &Alone) -> Box<dyn Plan> {
    Once::plan(
        access,
        Form::Contiguous,
        Cut::pieces(&access.file, &access.memory, 1),
    )
}
