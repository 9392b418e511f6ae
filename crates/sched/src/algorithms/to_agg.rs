//! TO-agg: time order with aggregation.
//!
//! *Problem*: many small requests cost more than a few large ones. *Idea*: one queue, first come first served. An
//! arriving request joins a queued one of the same file and operation that it touches or overlaps, and is served with
//! it. *When it pays*: sequential streams in small requests on any device; 4 to 16 files on slow ones. *Parameters*:
//! `aggregation` (16 parts), `aggregation_bytes`. *Source*: TS section 3.1.4. The source searches the whole queue,
//! O(N); here neighbours are found by offset in O(log N).
use super::{Choice, Company, Policy, Row, serve_oldest};
use crate::Nanos;
use crate::table::Table;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "to-agg",
    next: "the oldest",
    aggregation: 16,
    pays: "sequential streams in small requests",
    policy: |_| Box::new(ToAgg),
};

pub(super) struct ToAgg;

impl Policy for ToAgg {
    fn add(&mut self, table: &mut Table, entry: usize) {
        table.aggregate(entry);
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        serve_oldest(table)
    }
}
