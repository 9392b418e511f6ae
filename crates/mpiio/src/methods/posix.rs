//! # posix: one contiguous operation for each region
//!
//! **Problem.** The interface of every file system moves one contiguous region per call. **Idea.** Do just that, with
//! many operations in flight. Where file and memory regions do not align, make one operation for each piece that is
//! contiguous in both. **When it pays.** Few large regions; as the reference for everything else. `auto` does not offer
//! it: `datatype` is never slower. **Parameters.** None. **Hint.** `penstock_method=posix`, `romio_pvfs2_posix_read`,
//! `romio_pvfs2_posix_write`. **Source.** DT II.A, IV.C.
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

/// At least one operation per region, and the wanted bytes.
fn counts(shape: &model::AccessSummary, _: u64) -> (u64, u64) {
    (shape.regions(), shape.bytes)
}

/// A call for each region. Many requests are in flight: one round trip, then the cost of a request at its two ends.
fn cost(terms: &Terms<'_>, shape: &RankAccess) -> f64 {
    let each = if terms.by_call() {
        shape.regions() * terms.operation()
    } else {
        terms.costs.request + shape.regions() * terms.costs.request / 4.0
    };
    each + shape.bytes * terms.byte()
}

/// The plan of an access.
fn plan(access: &Alone) -> Box<dyn Plan> {
    Once::plan(
        access,
        Form::Contiguous,
        Cut::pieces(&access.file, &access.memory, 1),
    )
}
