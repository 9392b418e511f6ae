//! TWINS: one queue at a time, for a window of time.
//!
//! *Problem*: forwarders that send to the same data server at once disturb each other there. *Idea*: one queue per data
//! server, of which only the active one is served. At the end of its window the next one becomes active, even if the
//! active one ran empty earlier. The idle time is what the others gain from. Queues without requests get no window.
//! *When it pays*: at forwarders, many of them per data server. A queue is a request's `program`: a forwarder sets it
//! to the data server's number; in a data server, programs take turns. *Parameters*: `twins_window` (1 ms; 1 to 250
//! ms). *Source*: beyond TS; AGIOS, second generation.
use super::{Choice, Company, Policy, Row};
use crate::table::Table;
use crate::{Nanos, Options};
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Bound::{Excluded, Unbounded};

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "twins",
    next: "of the active program's queue, for a window",
    aggregation: 1,
    pays: "forwarders in front of a server",
    policy: |options| Box::new(Twins::new(options)),
};

/// The algorithm's state.
pub(super) struct Twins {
    window: Nanos,
    /// Queues with requests, by program.
    queues: BTreeMap<u64, VecDeque<usize>>,
    active: u64,
    /// End of the active one's window.
    until: Nanos,
}

impl Twins {
    pub(super) fn new(options: &Options) -> Twins {
        Twins {
            window: options.twins_window,
            queues: BTreeMap::new(),
            active: 0,
            until: 0,
        }
    }
}

impl Policy for Twins {
    fn add(&mut self, table: &mut Table, entry: usize) {
        let program = table.entries[entry].program;
        let at = table.append(entry);
        self.queues.entry(program).or_default().push_back(at);
    }

    fn next(&mut self, table: &mut Table, now: Nanos, _: &mut Company<'_>) -> Choice {
        let Some((first, _)) = self.queues.first_key_value() else {
            return Choice::Nothing;
        };
        if now >= self.until {
            let mut later = self.queues.range((Excluded(self.active), Unbounded));
            self.active = later.next().map_or(*first, |(program, _)| *program);
            self.until = now.saturating_add(self.window);
        }
        let Entry::Occupied(mut queue) = self.queues.entry(self.active) else {
            return Choice::Wait(self.until);
        };
        let next = queue.get_mut().pop_front();
        if queue.get().is_empty() {
            queue.remove();
        }
        let Some(at) = next else {
            return Choice::Nothing;
        };
        table.take(at);
        Choice::Serve(at)
    }
}
