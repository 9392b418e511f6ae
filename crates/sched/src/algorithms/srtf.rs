//! SRTF: shortest remaining time first, by file.
//!
//! *Problem*: SJF considers what is queued, which says little about how much of a job is left. *Idea*: the queue with
//! the fewest remaining bytes goes first: bytes predicted from a trace of an earlier run, less bytes seen. For an
//! unknown file as many bytes are assumed to remain as were seen. *When it pays*: jobs of different lengths that read
//! or write whole files. *Parameters*: `Scheduler::predict`, `aggregation` (16 parts), `starvation_bound`. *Source*:
//! beyond TS; AGIOS, second generation.
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
