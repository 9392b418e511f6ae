//! WFQ: shares of bytes for programs, by deficit round robin.
//!
//! *Problem*: a program with many or large requests takes the server from the others. *Idea*: programs take turns. At
//! each turn a program may send weight × quantum more bytes, and serves requests in order of arrival while they fit.
//! What is left is carried over to its next turn, as long as it has requests. *When it pays*: whenever programs share a
//! server. Over time each gets bytes in proportion to its weight, and a program with few requests hardly waits.
//! *Parameters*: `weights` (1 for programs not listed), `quantum` (64 KiB). *Source*: beyond TS; AGIOS, second
//! generation; deficit round robin after Shreedhar and Varghese (1995). Rounds in which nobody can send are skipped in
//! one step.
use super::{Choice, Company, Policy, Row};
use crate::table::{Map, Table};
use crate::{Nanos, Options};
use std::collections::VecDeque;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "wfq",
    next: "by deficit round robin of programs, bytes by weight",
    aggregation: 1,
    pays: "shares",
    policy: |options| Box::new(Wfq::new(options)),
};

/// A program with requests.
struct Program {
    queued: VecDeque<usize>,
    /// Bytes it may still send.
    deficit: u64,
    /// Bytes it gets per round.
    share: u64,
}

/// The algorithm's state.
pub(super) struct Wfq {
    options: Options,
    programs: Map<u64, Program>,
    /// Programs in order of their turns.
    round: VecDeque<u64>,
    /// Whether the first program's deficit has been raised for this turn.
    credited: bool,
}

impl Wfq {
    pub(super) fn new(options: &Options) -> Wfq {
        Wfq {
            options: options.clone(),
            programs: Map::default(),
            round: VecDeque::new(),
            credited: false,
        }
    }

    /// Skips rounds in which no program can send: each gets the bytes of all of them at once.
    fn skip(&mut self, table: &Table) {
        let rounds = |p: &Program| {
            let first = p.queued.front().map_or(0, |at| table.virtuals[*at].bytes);
            first.saturating_sub(p.deficit).div_ceil(p.share)
        };
        let rounds = self.programs.values().map(rounds).min().unwrap_or(0);
        for p in self.programs.values_mut() {
            let bytes = p.share.saturating_mul(rounds.saturating_sub(1));
            p.deficit = p.deficit.saturating_add(bytes);
        }
    }
}

impl Policy for Wfq {
    fn add(&mut self, table: &mut Table, entry: usize) {
        let program = table.entries[entry].program;
        let at = table.append(entry);
        let queue = self.programs.entry(program).or_insert_with(|| {
            self.round.push_back(program);
            let weight = self.options.weight(program);
            Program {
                queued: VecDeque::new(),
                deficit: 0,
                share: weight.saturating_mul(self.options.quantum),
            }
        });
        queue.queued.push_back(at);
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        let mut passed = 0;
        while let Some(program) = self.round.front()
            && let Some(p) = self.programs.get_mut(program)
            && let Some(at) = p.queued.front().copied()
        {
            if !self.credited {
                p.deficit = p.deficit.saturating_add(p.share);
                self.credited = true;
            }
            let bytes = table.virtuals[at].bytes;
            if bytes <= p.deficit {
                p.deficit -= bytes;
                p.queued.pop_front();
                if p.queued.is_empty() {
                    self.programs.remove(program);
                    self.round.pop_front();
                    self.credited = false;
                }
                table.take(at);
                return Choice::Serve(at);
            }
            self.round.rotate_left(1);
            self.credited = false;
            passed += 1;
            if passed == self.round.len() {
                self.skip(table);
            }
        }
        Choice::Nothing
    }
}
