//! TO: time order.
//!
//! *Problem*: reordering may cost more than it gains. *Idea*: one queue, first come first served; add and select are
//! O(1). *When it pays*: never by itself. It shows what scheduling costs, and it bounds every wait by what arrived
//! before. *Parameters*: none. *Source*: TS section 3.1.4.
use super::{Choice, Company, Policy, Row, serve_oldest};
use crate::Nanos;
use crate::table::Table;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "to",
    next: "the oldest",
    aggregation: 1,
    pays: "to compare with",
    policy: |_| Box::new(To),
};

pub(super) struct To;

impl Policy for To {
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
