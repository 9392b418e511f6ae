//! SW: windows of time, and within one program by program.
//!
//! *Problem*: requests of several programs arrive mixed, and their interleaving costs seeks. *Idea*: requests are served
//! in order of (arrival / window, program, arrival): within a window all of one program, then all of the next.
//! *When it pays*: several programs with a locality of their own; nobody waits for longer than its window and what came
//! before. *Parameters*: `sw_window` (1 s; 250 ms for flash). *Source*: beyond TS; AGIOS, second generation.
use super::{Choice, Company, Policy};
use crate::set::{Key, OrderedSet};
use crate::table::Table;
use crate::{Nanos, Options};

/// See the module's text.
pub(super) struct Sw {
    window: Nanos,
    /// (window, program, number in the window, virtual request), 32 bits each.
    by_window: OrderedSet,
    /// Windows in which something arrived, counted; the last one, and arrivals in it.
    windows: u32,
    last: u64,
    arrivals: u32,
}

impl Sw {
    pub(super) fn new(options: &Options) -> Sw {
        Sw {
            window: options.sw_window,
            by_window: OrderedSet::default(),
            windows: 0,
            last: 0,
            arrivals: 0,
        }
    }
}

impl Policy for Sw {
    fn add(&mut self, table: &mut Table, entry: u32) {
        let arrived = table.entries[entry].arrived;
        let window = arrived / self.window;
        if window > self.last || self.arrivals == u32::MAX {
            self.last = self.last.max(window);
            // Counted so that it fits; it wraps after 2^32 windows in use.
            self.windows = self.windows.wrapping_add(1);
            self.arrivals = 0;
        }
        self.arrivals += 1;
        let at = table.append(entry);
        let program = table.entries[entry].program;
        let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        self.by_window.insert(Key {
            rank: both(self.windows, program),
            then: both(self.arrivals, at),
        });
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        let Some(key) = self.by_window.first() else {
            return Choice::Nothing;
        };
        self.by_window.remove(key);
        table.take(key.number());
        Choice::Serve(key.number())
    }
}
