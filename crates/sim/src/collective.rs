//! Collective steps of a program's ranks: exchanges, barriers, and the small operations before them.
//!
//! The last rank that arrives carries the step out for all; all continue at the same time.
use crate::cluster::{Cluster, Event, Together};
use crate::error::Result;
use penstock_base::{Nanos, Op};
use penstock_datatype::Pattern;
use penstock_mpiio::Method;
use penstock_mpiio::planning::{Alone, Outcome, Rules, Schedule, Seat, Step};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Whether the ranks' ranges overlap or interleave; otherwise an exchange gains nothing.
fn interleaves(patterns: &[Pattern]) -> bool {
    let mut end = i64::MIN;
    patterns.iter().filter(|p| p.len > 0).any(|p| {
        let (lo, hi) = p.bounds();
        let crosses = lo < end;
        end = end.max(hi);
        crosses
    })
}

impl Cluster<'_> {
    /// A rank reaches a collective call; the last one begins it.
    pub(crate) fn join_collective(&mut self, rank: u32) {
        let id = self.ranks[rank as usize].program;
        if self.all_are_here(id) {
            let begun = self.begin_collective(id);
            self.ok(begun);
        }
    }

    /// Counts a rank of a program that waits, and returns whether it is the last.
    fn all_are_here(&mut self, id: u32) -> bool {
        let program = &mut self.programs[id as usize];
        program.waiting += 1;
        if program.waiting < program.ranks {
            return false;
        }
        program.waiting = 0;
        true
    }

    fn begin_collective(&mut self, id: u32) -> Result<()> {
        let program = &self.programs[id as usize];
        let (first, count, op) = (program.first_rank, program.ranks, program.op);
        let call = self.ranks[first as usize].call;
        let mut patterns = Vec::with_capacity(count as usize);
        for number in 0..count {
            let call = program.benchmark.call(number, call)?;
            let file = program.first_file + call.file;
            let rank = &mut self.ranks[(first + number) as usize];
            rank.file = file;
            rank.memory_regions = call.memory.as_ref().map_or(1, Pattern::regions);
            patterns.push(call.pattern);
        }
        for (number, pattern) in patterns.iter().enumerate() {
            self.wanted(first + number as u32, pattern.len);
        }
        let program = &self.programs[id as usize];
        let interleaved = !program.only_interleaved || interleaves(&patterns);
        if !interleaved || !patterns.iter().all(Pattern::is_monotone) {
            return self.each_alone(id, patterns);
        }
        let client = &self.scenario.client;
        let method = program.method;
        let wanted = match client.aggregators {
            Some(wanted) if method == Method::TWO_PHASE => wanted.clamp(1, count),
            _ => count,
        };
        let aggregators = (0..wanted)
            .map(|i| (u64::from(i) * u64::from(count) / u64::from(wanted)) as usize)
            .collect();
        let rules = match method {
            Method::TWO_PHASE => client.two_phase,
            Method::RESONANT => client.resonant.rules,
            _ => Rules::Ours,
        };
        let buffer = client.collective_buffer.0;
        let unit = self.layout.stripe_unit;
        let schedule = Schedule::new(patterns, aggregators, buffer, unit, rules);
        let schedule = Rc::new(if method == Method::RESONANT {
            schedule.striped(self.layout.clone(), client.resonant.tuning())
        } else {
            schedule
        });
        for number in 0..count {
            let seat = Seat {
                op,
                rank: number as usize,
                schedule: Rc::clone(&schedule),
            };
            let plan = (self.plan)(method, seat);
            let rank = &mut self.ranks[(first + number) as usize];
            rank.plan = plan;
            rank.seated = true;
            rank.began = self.now;
        }
        // The ranks announce their patterns to each other.
        let announced =
            u64::from(self.agreements(first)) * self.network.latency() * self.levels(id);
        self.events.push(self.now + announced, Event::Met(id));
        Ok(())
    }

    /// Time of the small collective operations at the beginning and end of a collective call: Penstock's ranks announce
    /// their patterns and agree on the outcome. The messages of ROMIO's ranks are in its plan.
    pub(crate) fn agreements(&self, rank: u32) -> u32 {
        let two_phase = self.program_of(rank).method == Method::TWO_PHASE;
        match self.scenario.client.two_phase {
            Rules::Romio if two_phase => 0,
            _ => 1,
        }
    }

    /// Each rank does its own access, and all continue when the last is done.
    fn each_alone(&mut self, id: u32, patterns: Vec<Pattern>) -> Result<()> {
        let program = &self.programs[id as usize];
        let (first, op) = (program.first_rank, program.op);
        for (number, file) in patterns.into_iter().enumerate() {
            let rank = first + number as u32;
            let memory = Pattern::contiguous(0, file.len);
            let access = Alone {
                op,
                file,
                memory,
                buffer: 1,
            };
            let r = &mut self.ranks[rank as usize];
            r.memory_regions = 1;
            r.seated = false;
            r.plan = if access.file.len > 0 {
                Method::DATATYPE.plan_alone(&access)
            } else {
                None
            };
            self.go_on(rank, Outcome::Done(0));
        }
        Ok(())
    }

    /// A rank's plan reaches a collective step. The last rank carries it out for all.
    pub(crate) fn meet_others(&mut self, rank: u32, step: Step) {
        let together = match step {
            Step::Exchange { send, receive, .. } => Together::Exchange { send, receive },
            Step::Confer { times } => Together::Confer { times },
            _ => Together::Barrier,
        };
        let id = self.ranks[rank as usize].program;
        self.ranks[rank as usize].together = Some(together);
        if !self.all_are_here(id) {
            return;
        }
        let at = match self.ranks[rank as usize].together {
            Some(Together::Exchange { .. }) => self.exchange(id),
            Some(Together::Confer { times }) => {
                let each = self.network.latency() * self.levels(id);
                self.now + u64::from(times) * each
            }
            _ => self.now + self.barrier_time(id),
        };
        self.events.push(at, Event::Met(id));
    }

    /// A collective step is complete: all ranks continue.
    pub(crate) fn met(&mut self, id: u32) {
        let program = &self.programs[id as usize];
        for rank in program.first_rank..program.first_rank + program.ranks {
            // The data that was sent has arrived.
            let received = match self.ranks[rank as usize].together.take() {
                Some(Together::Exchange { receive, .. }) => {
                    receive.iter().map(|(_, part)| part.pattern.len).sum()
                }
                _ => 0,
            };
            self.go_on(rank, Outcome::Done(received));
        }
    }

    /// Sends the data of an exchange; returns when all has arrived.
    fn exchange(&mut self, id: u32) -> Nanos {
        let program = &self.programs[id as usize];
        let (first, count, op) = (program.first_rank, program.ranks as usize, program.op);
        // Bytes to or from an aggregator.
        let mut messages: Vec<Vec<(usize, u64)>> = vec![Vec::new(); count];
        for number in 0..count {
            let together = &self.ranks[first as usize + number].together;
            let Some(Together::Exchange { send, .. }) = together else {
                continue;
            };
            // All that goes from one rank to another is one message.
            let mut bytes = BTreeMap::<usize, u64>::new();
            for (to, part) in send {
                *bytes.entry(*to).or_default() += part.pattern.len;
            }
            for (to, bytes) in bytes {
                let (hub, other) = match op {
                    Op::Write => (to, number),
                    Op::Read => (number, to),
                };
                messages[hub].push((other, bytes));
            }
        }
        let (region, header) = (
            self.scenario.client.region.0,
            self.scenario.network.header.0,
        );
        let mut last = self.now;
        let used = messages
            .iter_mut()
            .enumerate()
            .filter(|(_, m)| !m.is_empty());
        for (turn, (hub, messages)) in used.enumerate() {
            // Rotated, so that ranks do not all send to the same aggregator first.
            messages.sort_by_key(|(other, _)| (other + count - turn % count) % count);
            for (other, bytes) in messages {
                let rank = &self.ranks[first as usize + *other];
                let all = rank.wanted.max(1);
                let pieces = u128::from(rank.memory_regions) * u128::from(*bytes) / u128::from(all);
                let packed = self.now + region * pieces as u64;
                if *other == hub {
                    last = last.max(packed);
                    continue;
                }
                let (rank, owner) = (rank.node, self.ranks[first as usize + hub].node);
                let (from, to) = match op {
                    Op::Write => (rank, owner),
                    Op::Read => (owner, rank),
                };
                self.totals.resent += *bytes;
                last = last.max(self.network.send(packed, from, to, *bytes + header));
            }
        }
        last
    }
}
