//! WFQ: shares of bytes for programs, by deficit round robin.
//!
//! *Problem*: a program with many or large requests takes the server from the others. *Idea*: programs take turns; at
//! each turn a program may send weight × quantum more bytes, and serves requests in order of arrival while they fit;
//! what is left is kept for its next turn, as long as it has requests. *When it pays*: whenever programs share a server.
//! Over time each gets bytes by its weight, and a program that asks for little hardly waits.
//! *Parameters*: `weights` (1 for who is not listed), `quantum` (64 KiB). *Source*: beyond TS; AGIOS, second generation;
//! deficit round robin after Shreedhar and Varghese (1995). Rounds in which nobody can send are skipped in one step.
use super::programs::Programs;
use super::{Choice, Company, Policy};
use crate::table::Table;
use crate::{Nanos, Options};
use std::collections::VecDeque;

/// See the module's text.
pub(super) struct Wfq {
    options: Options,
    programs: Programs,
    /// Programs with requests, in order of their turns.
    round: VecDeque<u32>,
    /// The first has got its bytes for this turn.
    credited: bool,
}

impl Wfq {
    pub(super) fn new(options: &Options) -> Wfq {
        Wfq {
            options: options.clone(),
            programs: Programs::default(),
            round: VecDeque::new(),
            credited: false,
        }
    }

    /// Rounds that nobody could use: each program gets its bytes of them at once.
    fn skip(&mut self, table: &Table) {
        let programs = &mut self.programs.slab;
        let rounds = |number: &u32| {
            let p = &programs[*number];
            let missing = table.virtuals[p.first].bytes.saturating_sub(p.deficit);
            missing.div_ceil(p.share)
        };
        let rounds = self.round.iter().map(rounds).min().unwrap_or(0);
        for number in &self.round {
            let p = &mut programs[*number];
            let bytes = p.share.saturating_mul(rounds.saturating_sub(1));
            p.deficit = p.deficit.saturating_add(bytes);
        }
    }
}

impl Policy for Wfq {
    fn add(&mut self, table: &mut Table, entry: u32) {
        let at = table.append(entry);
        let options = &self.options;
        let share = |program| options.weight(program).saturating_mul(options.quantum);
        let (number, new) = self.programs.push(table, at, share);
        if new {
            self.round.push_back(number);
        }
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        let mut passed = 0;
        loop {
            let Some(number) = self.round.front().copied() else {
                return Choice::Nothing;
            };
            let p = &mut self.programs.slab[number];
            if !self.credited {
                p.deficit = p.deficit.saturating_add(p.share);
                self.credited = true;
            }
            let bytes = table.virtuals[p.first].bytes;
            if bytes <= p.deficit {
                p.deficit -= bytes;
                let (at, last) = self.programs.pop(table, number);
                if last {
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
    }
}
