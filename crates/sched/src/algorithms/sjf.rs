//! SJF: the shortest queue first.
//!
//! *Problem*: short jobs behind long ones wait for longer than they run. *Idea*: of all queues (one per file and
//! operation) the one with the fewest queued bytes goes first. Of that queue the request with the lowest offset is
//! served, aggregated with its neighbours. *When it pays*: many files, small requests, devices on which order matters
//! little. *Parameters*: `aggregation` (16 parts), `aggregation_bytes`, `starvation_bound`. The source has no
//! starvation bound: long queues starve while short ones keep coming. With it, a request that has waited so long goes
//! next. *Source*: TS section 3.1.3; selection visits all queues there and is O(log queues) here.
use super::Row;
use super::shortest::Shortest;
use crate::Options;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "sjf",
    next: "of the queue with the fewest bytes, its lowest offset",
    aggregation: 16,
    pays: "many files, small requests",
    policy: |options| Box::new(new(options)),
};

pub(super) fn new(options: &Options) -> Shortest {
    Shortest::new(options, |queue| queue.bytes)
}
