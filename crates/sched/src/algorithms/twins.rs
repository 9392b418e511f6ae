//! TWINS: one queue at a time, for a window of time.
//!
//! *Problem*: forwarders that send to the same data server at once disturb each other there. *Idea*: one queue per data
//! server; only the active one is served, and at the end of its window the next one becomes active, even
//! if the active one has run empty before (that quiet is what the others gain from). Queues without requests take no turn.
//! *When it pays*: at forwarders, many of them per data server. A queue is a request's `program`: a forwarder gives
//! the data server's number; in a data server programs take turns. *Parameters*: `twins_window` (1 ms; 1 to 250 ms).
//! *Source*: beyond TS; AGIOS, second generation.
use super::programs::Programs;
use super::{Choice, Company, Policy};
use crate::set::{Key, OrderedSet};
use crate::table::Table;
use crate::{Nanos, Options};

/// See the module's text.
pub(super) struct Twins {
    window: Nanos,
    programs: Programs,
    /// Programs with requests: (number of the program, its record).
    waiting: OrderedSet,
    active: u32,
    /// End of the active one's window.
    until: Nanos,
}

impl Twins {
    pub(super) fn new(options: &Options) -> Twins {
        Twins {
            window: options.twins_window,
            programs: Programs::default(),
            waiting: OrderedSet::default(),
            active: 0,
            until: 0,
        }
    }

    fn record(&self, program: u32) -> Option<Key> {
        let key = self.waiting.first_from(Key::new(program.into(), 0))?;
        (key.rank == u64::from(program)).then_some(key)
    }
}

impl Policy for Twins {
    fn add(&mut self, table: &mut Table, entry: u32) {
        let at = table.append(entry);
        let (number, new) = self.programs.push(table, at, |_| 0);
        if new {
            let program = self.programs.slab[number].program;
            self.waiting.insert(Key::new(program.into(), number));
        }
    }

    fn next(&mut self, table: &mut Table, now: Nanos, _: &mut Company<'_>) -> Choice {
        let Some(first) = self.waiting.first() else {
            return Choice::Nothing;
        };
        if now >= self.until {
            let after = Key::new(u64::from(self.active) + 1, 0);
            let next = self.waiting.first_from(after).unwrap_or(first);
            self.active = next.rank as u32;
            self.until = now.saturating_add(self.window);
        }
        let Some(key) = self.record(self.active) else {
            return Choice::Wait(self.until);
        };
        let (at, last) = self.programs.pop(table, key.number());
        if last {
            self.waiting.remove(key);
        }
        table.take(at);
        Choice::Serve(at)
    }
}
