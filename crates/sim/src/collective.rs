//! Two-phase collective calls: aggregators own parts of the file; in rounds of one buffer each, ranks exchange data with
//! them and they read or write their windows. Domains and windows are the MPI-IO library's own (crates/mpiio,
//! `methods::domains`); here only the bytes between each pair are counted and sent.
//!
//! Before they send data ranks tell each other what they want, as the sources' library does (ROMIO, ad_read_coll.c): the
//! ends of their ranges, who wants how much of whose domain, and how many rounds that takes; in each round, how much comes
//! from whom. Each of these small collective operations takes a message along each level of a tree.
//!
//! All ranks go from round to round together, as the exchange makes them.
use crate::cluster::{Cluster, Event, Stage};
use crate::error::Result;
use crate::plan::{Operation, Plan};
use penstock_base::{Nanos, Op};
use penstock_datatype::Pattern;
use penstock_mpiio::planning::{Domains, extent, part};
use std::collections::VecDeque;
use std::ops::Range;

/// Small collective operations before the first round: beginnings, ends, shares of the domains, number of rounds.
const TELL: u64 = 4;
/// And in each round: how much comes from whom.
const TELL_ROUND: u64 = 1;

/// A collective call under way.
pub(crate) struct Exchange {
    patterns: Vec<Pattern>,
    /// Pieces of memory for each byte: what packing costs.
    memory_regions: Vec<u64>,
    /// Ranks of the program that own parts of the file.
    aggregators: Vec<u32>,
    /// For each round the window of each aggregator.
    rounds: VecDeque<Vec<Range<i64>>>,
    /// Aggregators that work on their windows.
    working: u32,
    file: u32,
    began: Nanos,
}

/// Ranks' ranges overlap or interleave; otherwise nothing is gained by exchanging.
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
    /// A rank is at a collective call; the last one begins it.
    pub(crate) fn join_collective(&mut self, rank: u32) {
        let id = self.ranks[rank as usize].program;
        let program = &mut self.programs[id as usize];
        program.waiting += 1;
        if program.waiting < program.ranks {
            return;
        }
        program.waiting = 0;
        let begun = self.begin_collective(id);
        self.ok(begun);
    }

    fn begin_collective(&mut self, id: u32) -> Result<()> {
        let program = &self.programs[id as usize];
        let (first, count) = (program.first_rank, program.ranks);
        let call = self.ranks[first as usize].call;
        let mut patterns = Vec::with_capacity(count as usize);
        let mut memory_regions = Vec::with_capacity(count as usize);
        let mut file = 0;
        for number in 0..count {
            let call = program.benchmark.call(number, call)?;
            file = program.first_file + call.file;
            memory_regions.push(call.memory.as_ref().map_or(1, Pattern::regions));
            patterns.push(call.pattern);
        }
        let interleaved = !program.only_interleaved || interleaves(&patterns);
        if !interleaved || !patterns.iter().all(Pattern::is_monotone) {
            return self.alone(id, patterns, file);
        }
        let all = program.ranks;
        let wanted = self
            .scenario
            .client
            .aggregators
            .unwrap_or(all)
            .clamp(1, all);
        let aggregators: Vec<u32> = (0..wanted)
            .map(|i| (u64::from(i) * u64::from(all) / u64::from(wanted)) as u32)
            .collect();
        let buffer = self.scenario.client.collective_buffer.0;
        let mut domains = Domains::new(
            &patterns,
            aggregators.len(),
            buffer,
            self.layout.stripe_unit,
        );
        let mut rounds = VecDeque::new();
        while let Some(windows) = domains.next_windows() {
            rounds.push_back(windows);
        }
        for (number, pattern) in patterns.iter().enumerate() {
            self.wanted(first + number as u32, pattern.len);
        }
        self.programs[id as usize].exchange = Some(Exchange {
            patterns,
            memory_regions,
            aggregators,
            rounds,
            working: 0,
            file,
            began: self.now,
        });
        self.next_round(id, TELL);
        Ok(())
    }

    /// Each rank does its own, and all go on when they are through.
    fn alone(&mut self, id: u32, patterns: Vec<Pattern>, file: u32) -> Result<()> {
        let program = &self.programs[id as usize];
        let (first, op) = (program.first_rank, program.op);
        for (number, pattern) in patterns.into_iter().enumerate() {
            let rank = first + number as u32;
            self.wanted(rank, pattern.len);
            let r = &mut self.ranks[rank as usize];
            r.file = file;
            r.aggregates = false;
            r.plan = Some(Plan::Whole(
                (pattern.len > 0).then(|| Operation::structured(op, pattern, 1)),
            ));
            self.prepare(rank);
        }
        Ok(())
    }

    /// Lets the next round of a call begin, after `told` small operations and its own, or ends the call.
    fn next_round(&mut self, id: u32, told: u64) {
        let program = &mut self.programs[id as usize];
        let Some(exchange) = &mut program.exchange else {
            return;
        };
        if exchange.rounds.is_empty() {
            let began = exchange.began;
            let (first, count) = (program.first_rank, program.ranks);
            program.exchange = None;
            for rank in first..first + count {
                let r = &mut self.ranks[rank as usize];
                r.io_time += self.now - began;
                r.stage = Stage::Barrier;
                self.events.push(self.now, Event::Step(rank));
            }
            return;
        }
        let each = self.network.latency() * self.levels(id);
        let at = self.now + (told + TELL_ROUND) * each;
        self.events.push(at, Event::Round(id));
    }

    /// Begins a round.
    pub(crate) fn round_begins(&mut self, id: u32) {
        match self.programs[id as usize].op {
            // Data first: the aggregators begin when it is there.
            Op::Write => {
                let at = self.exchange(id);
                self.events.push(at, Event::Exchanged(id));
            }
            Op::Read => self.aggregate(id),
        }
    }

    /// Sends the data of the current round between ranks and aggregators; returns when all has arrived.
    fn exchange(&mut self, id: u32) -> Nanos {
        let program = &self.programs[id as usize];
        let Some(exchange) = &program.exchange else {
            return self.now;
        };
        let Some(windows) = exchange.rounds.front() else {
            return self.now;
        };
        let (first, op) = (program.first_rank, program.op);
        let count = exchange.patterns.len();
        let region = self.scenario.client.region.0;
        let header = self.scenario.network.header.0;
        let mut last = self.now;
        let mut resent = 0;
        // In turns, so that not all send to the same one at first.
        for (i, (owner, window)) in exchange.aggregators.iter().zip(windows).enumerate() {
            if window.is_empty() {
                continue;
            }
            for turn in 0..count {
                let number = (turn + i) % count;
                let bytes = part(&exchange.patterns[number], window).1.len;
                if bytes == 0 {
                    continue;
                }
                let all = exchange.patterns[number].len.max(1);
                let pieces = (u128::from(exchange.memory_regions[number]) * u128::from(bytes)
                    / u128::from(all)) as u64;
                let packed = self.now + region * pieces;
                let rank = first + number as u32;
                if number as u32 == *owner {
                    last = last.max(packed);
                    continue;
                }
                resent += bytes;
                let rank_node = self.ranks[rank as usize].node;
                let owner_node = self.ranks[(first + owner) as usize].node;
                let (from, to) = match op {
                    Op::Write => (rank_node, owner_node),
                    Op::Read => (owner_node, rank_node),
                };
                last = last.max(self.network.send(packed, from, to, bytes + header));
            }
        }
        self.totals.resent += resent;
        last
    }

    /// The aggregators read or write their windows.
    fn aggregate(&mut self, id: u32) {
        let program = &self.programs[id as usize];
        let (first, op) = (program.first_rank, program.op);
        let Some(exchange) = &program.exchange else {
            return;
        };
        let Some(windows) = exchange.rounds.front() else {
            return;
        };
        let file = exchange.file;
        let mut begin = Vec::new();
        for (owner, window) in exchange.aggregators.iter().zip(windows) {
            if window.is_empty() {
                continue;
            }
            let parts: Vec<Pattern> = exchange
                .patterns
                .iter()
                .map(|p| part(p, window).1)
                .filter(|p| p.len > 0)
                .collect();
            let Some((lo, hi)) = extent(&parts) else {
                continue;
            };
            let covered: u64 = parts.iter().map(|p| p.len).sum();
            let plan = if op == Op::Read || covered >= (hi - lo) as u64 {
                vec![Operation::contiguous(op, lo, (hi - lo) as u64)]
            } else {
                // Holes: what was received goes out as it is.
                parts
                    .into_iter()
                    .map(|p| Operation::structured(op, p, 1))
                    .collect()
            };
            begin.push((first + owner, plan));
        }
        if begin.is_empty() {
            self.round_over(id);
            return;
        }
        if let Some(exchange) = &mut self.programs[id as usize].exchange {
            exchange.working = begin.len() as u32;
        }
        for (rank, operations) in begin {
            let r = &mut self.ranks[rank as usize];
            r.file = file;
            r.aggregates = true;
            r.plan = Some(Plan::Several(operations.into()));
            self.prepare(rank);
        }
    }

    /// An aggregator is through with its window.
    pub(crate) fn aggregated(&mut self, rank: u32) {
        let id = self.ranks[rank as usize].program;
        let program = &mut self.programs[id as usize];
        let op = program.op;
        let Some(exchange) = &mut program.exchange else {
            return;
        };
        exchange.working -= 1;
        if exchange.working > 0 {
            return;
        }
        match op {
            Op::Read => {
                let at = self.exchange(id);
                self.events.push(at, Event::Exchanged(id));
            }
            Op::Write => self.round_over(id),
        }
    }

    /// The data of a round is where it has to be.
    pub(crate) fn exchanged(&mut self, id: u32) {
        match self.programs[id as usize].op {
            Op::Write => {
                let idle = self.programs[id as usize]
                    .exchange
                    .as_ref()
                    .is_none_or(|e| e.working == 0);
                if idle {
                    self.aggregate(id);
                }
            }
            Op::Read => self.round_over(id),
        }
    }

    fn round_over(&mut self, id: u32) {
        if let Some(exchange) = &mut self.programs[id as usize].exchange {
            exchange.rounds.pop_front();
        }
        self.next_round(id, 0);
    }
}
