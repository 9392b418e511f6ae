//! NOOP: no scheduling.
//!
//! *Problem*: deciding costs time, and a fast device gains nothing by it. *Idea*: requests are served at once, and none
//! is joined with others. *When it pays*: on devices without seeks, and as the baseline. A data server then does not
//! call the scheduler, and hands out shortcuts. *Parameters*: none. *Source*: the base case of TS section 3.2, without
//! AGIOS.
use super::{Choice, Company, Policy, Row, serve_oldest};
use crate::Nanos;
use crate::table::Table;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "noop",
    next: "the oldest",
    aggregation: 1,
    pays: "no seeks, or nothing to gain",
    policy: |_| Box::new(Noop),
};

pub(super) struct Noop;

impl Policy for Noop {
    fn add(&mut self, table: &mut Table, entry: usize) {
        table.append(entry);
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        serve_oldest(table)
    }

    fn goes_by_arrival(&self) -> bool {
        true
    }
}
