//! # two-phase: aggregators own parts of the file
//!
//! **Problem.** The ranks of a collective call together want whole stretches of the file, each alone only crumbs.
//! **Idea.** Some ranks, the aggregators, own a part of the accessed extent each. Every rank knows every rank's pattern,
//! so sender and aggregator compute alike, in closed form, what goes between them: a pattern cut at a window. In
//! rounds of one buffer per aggregator the ranks exchange data, and the aggregator reads or writes its window in one
//! operation. A window of a write that has holes goes out as what was received, one structured operation for each
//! rank: bytes that nobody wrote are never written back, and no lock is needed.
//! **When it pays.** Small interleaved pieces, where the exchange is cheaper than the requests.
//! **Parameters.** Aggregators (all ranks), buffer (4 MiB). **Hint.** `penstock_method=two-phase`, `cb_nodes`,
//! `cb_buffer_size`, `cb_config_list`, `romio_cb_read`, `romio_cb_write`.
//! **Source.** DT II.C, table I.
//!
//! An error of one rank does not stop the others' rounds: it sends nothing more of use, and the caller agrees on the
//! outcome at the end.
use super::Method;
use super::cost::{Shape, Terms};
use super::domains::{self, Coverage, Domains, part};
use super::row::{BufferHint, Group, Row, Work};
use crate::access::{Buffer, Io, drain_window, fill_window};
use crate::comm::Comm;
use crate::error::Result;
use crate::filesystem::Form;
use penstock_datatype::{Pattern, Source, Target};
use std::ops::Range;

pub(super) const ROW: Row = Row {
    name: "two-phase",
    summary: "ranks exchange with aggregators, which own parts of the file",
    toggles: None,
    buffer: Some(BufferHint {
        keys: ["cb_buffer_size"; 2],
        default: 4 << 20,
        meaning: "an aggregator's buffer",
    }),
    offered: |_, place| place.ranks > 1.0 && !place.one_node,
    offered_when: "ranks on several nodes",
    counts: domains::counts,
    region: |tally, _| tally.largest,
    work: Work::Exchange { cost, access },
};

impl Method {
    /// Ranks exchange with aggregators, which own parts of the file.
    pub const TWO_PHASE: Method = Method::named(ROW.name);
}

/// The domains' work; each byte is a message's as well, packed and unpacked, and a round ends with a second barrier.
fn cost(terms: &Terms<'_>, shapes: &[Shape], aggregate_extent: f64) -> f64 {
    let messages =
        |bytes: f64, regions: f64| bytes * terms.costs.message_byte + regions * terms.costs.piece;
    domains::cost(terms, shapes, aggregate_extent, messages, 2.0)
}

/// Performs this rank's side of a collective access; returns the stream bytes moved here.
pub(crate) fn access(
    io: &mut Io<'_>,
    group: &Group<'_>,
    buffer: &mut Buffer<'_, '_>,
) -> Result<u64> {
    let (comm, patterns) = (group.comm, group.patterns);
    let rank = comm.rank();
    let own = group.aggregators.iter().position(|r| *r == rank);
    let mut domains = Domains::new(patterns, group.aggregators.len(), group.window, group.unit);
    let mut round = Round {
        io,
        comm,
        patterns,
        memory: Vec::new(),
        coverage: Coverage::new(),
        failed: Ok(()),
    };
    let mut moved = 0;
    while let Some(windows) = domains.next_windows() {
        let mine = own.map(|i| windows[i].clone()).filter(|w| !w.is_empty());
        let parts: Vec<(usize, u64, Pattern)> = windows
            .iter()
            .zip(group.aggregators)
            .map(|(window, owner)| {
                let (at, part) = part(&patterns[rank], window);
                (*owner, at, part)
            })
            .filter(|(_, _, part)| part.len > 0)
            .collect();
        moved += match buffer {
            Buffer::Into(target) => round.read(mine, &parts, target)?,
            Buffer::From(source) => round.write(mine, &parts, source)?,
        };
    }
    round.failed.map(|()| moved)
}

struct Round<'r, 'f> {
    io: &'r mut Io<'f>,
    comm: &'r dyn Comm,
    patterns: &'r [Pattern],
    memory: Vec<u8>,
    coverage: Coverage,
    /// The first error of this rank's own operations.
    failed: Result<()>,
}

impl Round<'_, '_> {
    fn count_resent(&mut self, send: &[Vec<u8>]) {
        let rank = self.comm.rank();
        let others = send.iter().enumerate().filter(|(to, _)| *to != rank);
        self.io.tally.resent += others.map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    }

    /// Reads this rank's window and hands its bytes out; `parts` are what this rank wants of each owner's window.
    fn read(
        &mut self,
        mine: Option<Range<i64>>,
        parts: &[(usize, u64, Pattern)],
        into: &mut Target<'_>,
    ) -> Result<u64> {
        let mut send = vec![Vec::new(); self.comm.size()];
        if let Some(window) = mine
            && self.failed.is_ok()
        {
            self.failed = self.read_window(&window, &mut send);
        }
        self.count_resent(&send);
        let received = self.comm.alltoallv(send)?;
        let mut moved = 0;
        for (owner, at, part) in parts {
            // Short where the file ends or the owner failed.
            let bytes = &received[*owner];
            let got = part.len.min(bytes.len() as u64);
            into.scatter(*at, &bytes[..got as usize]);
            moved += got;
        }
        Ok(moved)
    }

    fn read_window(&mut self, window: &Range<i64>, send: &mut [Vec<u8>]) -> Result<()> {
        let wanted: Vec<_> = self.patterns.iter().map(|p| part(p, window).1).collect();
        let Some((lo, hi)) = super::domains::extent(&wanted) else {
            return Ok(());
        };
        self.memory.resize((hi - lo) as usize, 0);
        let got = self.io.read_range(lo, &mut self.memory)?;
        for (part, out) in wanted.iter().zip(send) {
            let there = part.slice(0, part.stream_at(lo + got as i64));
            out.resize(there.len as usize, 0);
            drain_window(&mut Target::from_slice(out), 0, &there, &self.memory, lo);
        }
        Ok(())
    }

    /// Sends this rank's parts to their owners and writes what arrived for this rank's window.
    fn write(
        &mut self,
        mine: Option<Range<i64>>,
        parts: &[(usize, u64, Pattern)],
        from: &mut Source<'_>,
    ) -> Result<u64> {
        let mut send = vec![Vec::new(); self.comm.size()];
        let mut moved = 0;
        for (owner, at, part) in parts {
            send[*owner].resize(part.len as usize, 0);
            from.gather(*at, &mut send[*owner]);
            moved += part.len;
        }
        self.count_resent(&send);
        let received = self.comm.alltoallv(send)?;
        if let Some(window) = mine
            && self.failed.is_ok()
        {
            self.failed = self.write_window(&window, &received);
        }
        Ok(moved)
    }

    fn write_window(&mut self, window: &Range<i64>, received: &[Vec<u8>]) -> Result<()> {
        let parts: Vec<_> = self.patterns.iter().map(|p| part(p, window).1).collect();
        let Some((lo, hi)) = super::domains::extent(&parts) else {
            return Ok(());
        };
        let complete = parts
            .iter()
            .zip(received)
            .filter(|(part, bytes)| part.len > 0 && part.len == bytes.len() as u64);
        if self
            .coverage
            .is_full(complete.clone().map(|(part, _)| part), &(lo..hi))
        {
            self.memory.resize((hi - lo) as usize, 0);
            for (part, bytes) in complete {
                fill_window(
                    &mut Source::from_slice(bytes),
                    0,
                    part,
                    &mut self.memory,
                    lo,
                );
            }
            return self.io.write_range(lo, &self.memory);
        }
        self.memory.clear();
        let mut operations = Vec::new();
        for (part, bytes) in complete {
            operations.push((self.memory.len() as u64, part.clone()));
            self.memory.extend_from_slice(bytes);
        }
        self.io
            .operate(
                &mut operations.into_iter(),
                Form::Structured,
                &mut Buffer::From(&mut Source::from_slice(&self.memory)),
                (lo, hi),
            )
            .map(drop)
    }
}
