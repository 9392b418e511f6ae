//! SRTF: the file with the least still to come first.
//!
//! *Problem*: SJF looks at what is queued, which says little of how much of a job is left. *Idea*: of all queues the
//! one goes first of which the fewest bytes are still to come: those predicted (from a trace of an earlier run) less
//! those seen. Of an unknown file half is assumed to have come: as many bytes as seen are left.
//! *When it pays*: jobs of different lengths that read or write whole files. *Parameters*: `Scheduler::predict`,
//! `aggregation` (16 parts), `starvation_bound`. *Source*: beyond TS; AGIOS, second generation.
use super::Row;
use super::shortest::Shortest;
use crate::Options;
use crate::table::UNKNOWN;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "srtf",
    next: "of the queue with the fewest bytes still to come",
    aggregation: 16,
    pays: "jobs of different lengths",
    policy: |options| Box::new(new(options)),
};

pub(super) fn new(options: &Options) -> Shortest {
    Shortest::new(options, |queue| match queue.predicted {
        UNKNOWN => queue.seen,
        all => all.saturating_sub(queue.seen),
    })
}
