//! SW: time windows; within a window, program by program.
//!
//! *Problem*: requests of several programs arrive mixed, and their interleaving costs seeks. *Idea*: requests are
//! served in order of (arrival / window, program, arrival): within a window all of one program, then all of the next.
//! *When it pays*: several programs with a locality of their own. No request waits for longer than its window and what
//! came before. *Parameters*: `sw_window` (1 s; 250 ms for flash). *Source*: beyond TS; AGIOS, second generation.
use super::{Choice, Company, Policy, Row};
use crate::table::Table;
use crate::{Nanos, Options};
use std::collections::BTreeSet;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "sw",
    next: "by (arrival / window, program)",
    aggregation: 1,
    pays: "several programs with a locality of their own",
    policy: |options| Box::new(Sw::new(options)),
};

/// The algorithm's state.
pub(super) struct Sw {
    window: Nanos,
    /// (window, program, arrival, virtual request).
    queued: BTreeSet<(u64, u64, u64, usize)>,
    /// The latest window in which something arrived, and arrivals so far.
    last: u64,
    arrivals: u64,
}

impl Sw {
    pub(super) fn new(options: &Options) -> Sw {
        Sw {
            window: options.sw_window,
            queued: BTreeSet::new(),
            last: 0,
            arrivals: 0,
        }
    }
}

impl Policy for Sw {
    fn add(&mut self, table: &mut Table, entry: usize) {
        let e = &table.entries[entry];
        // A request that was held back is filed late, into the latest window.
        self.last = self.last.max(e.arrived / self.window);
        self.arrivals += 1;
        let program = e.program;
        let at = table.append(entry);
        self.queued.insert((self.last, program, self.arrivals, at));
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        let Some((.., at)) = self.queued.pop_first() else {
            return Choice::Nothing;
        };
        table.take(at);
        Choice::Serve(at)
    }
}
