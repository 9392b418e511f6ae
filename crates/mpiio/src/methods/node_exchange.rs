//! # node-exchange: two-phase through memory that the ranks of a node share
//!
//! **Problem.** Two-phase copies each byte four times between a rank and its aggregator: packed, sent, received,
//! unpacked. On one node none of that is needed.
//! **Idea.** Each rank owns a part of the accessed extent and a window of memory that all ranks of the node map. To
//! write, every rank copies its pieces straight to their places in the owners' windows, once; after a barrier each
//! owner writes its window in one large operation. To read, each owner reads its window and every rank picks its pieces
//! out. A window has two halves, so that one barrier a round is enough: while a half is written out, the other fills.
//! A window that its owner alone fills goes straight from the owner's memory, one with holes as the pieces each rank
//! put in it.
//! **When it pays.** Interleaved small pieces of ranks on one node.
//! **Parameters.** Buffer (1 MiB for each half, so that it stays in the processor's cache).
//! **Hint.** `penstock_method=node-exchange`, `penstock_exchange_buffer_size`. Where ranks are on several nodes or cannot
//! share memory, two-phase takes its place.
//! **Source.** Ours; the idea of keeping an exchange within a node is RS 7.3.
use super::Method;
use super::cost::{Shape, Terms};
use super::domains::{self, Coverage, Domains, extent, part};
use super::row::{BufferHint, Group, Row, Work};
use crate::access::{Buffer, Direction, Io, copy, rebase};
use crate::comm::Comm;
use crate::error::Result;
use crate::filesystem::Form;
use crate::node_memory::NodeMemory;
use penstock_datatype::{Pattern, Source, Target};
use std::ops::Range;

pub(super) const ROW: Row = Row {
    name: "node-exchange",
    summary: "two-phase through memory that the ranks of a node share",
    toggles: None,
    buffer: Some(BufferHint {
        keys: ["penstock_exchange_buffer_size"; 2],
        default: 1 << 20,
        meaning: "a rank's buffer in memory that the ranks of a node share (each rank has two)",
    }),
    offered: |_, place| place.one_node && place.ranks > 1.0,
    offered_when: "ranks on one node",
    counts: domains::counts,
    region: |tally, _| tally.largest,
    work: Work::SharedMemory { cost, access },
};

impl Method {
    /// Two-phase through memory that the ranks of a node share.
    pub const NODE_EXCHANGE: Method = Method::named(ROW.name);
}

/// The domains' work; in a write each piece's coverage is marked.
fn cost(terms: &Terms<'_>, shapes: &[Shape], aggregate_extent: f64) -> f64 {
    let marks = |_, regions: f64| match terms.direction {
        Direction::Read => 0.0,
        Direction::Write => regions * terms.costs.piece,
    };
    domains::cost(terms, shapes, aggregate_extent, marks, 1.0)
}

/// Performs this rank's side of a collective access; every rank owns a part. Returns the stream bytes moved here.
fn access(
    io: &mut Io<'_>,
    group: &Group<'_>,
    memory: &NodeMemory,
    buffer: &mut Buffer<'_, '_>,
) -> Result<u64> {
    let (comm, patterns) = (group.comm, group.patterns);
    let mut exchange = Exchange {
        io,
        comm,
        memory,
        patterns,
        coverage: Coverage::new(),
        failed: Ok(()),
    };
    let mut domains = Domains::new(
        patterns,
        comm.size(),
        memory.half_bytes() as u64,
        group.unit,
    );
    let mut moved = 0;
    let mut half = 0;
    while let Some(windows) = domains.next_windows() {
        moved += match buffer {
            Buffer::Into(target) => exchange.read(&windows, half, target)?,
            Buffer::From(source) => exchange.write(&windows, half, source)?,
        };
        half ^= 1;
    }
    // The agreement at the end of the call is the barrier between the last half's use and the next call.
    exchange.failed.map(|()| moved)
}

struct Exchange<'x, 'f> {
    io: &'x mut Io<'f>,
    comm: &'x dyn Comm,
    memory: &'x NodeMemory,
    patterns: &'x [Pattern],
    coverage: Coverage,
    /// The first error of this rank's own operations.
    failed: Result<()>,
}

impl Exchange<'_, '_> {
    /// Keeps this rank's first error.
    fn attempt<T: Default>(&mut self, what: impl FnOnce(&mut Self) -> Result<T>) -> T {
        if self.failed.is_err() {
            return T::default();
        }
        what(self).unwrap_or_else(|e| {
            self.failed = Err(e);
            T::default()
        })
    }

    /// The windows in turn, beginning with this rank's own, so that the ranks spread over them.
    fn in_turn<'w>(
        &self,
        windows: &'w [Range<i64>],
    ) -> impl Iterator<Item = (usize, &'w Range<i64>)> + use<'w> {
        let (rank, size) = (self.comm.rank(), windows.len());
        (0..size)
            .map(move |i| (rank + i) % size)
            .map(|owner| (owner, &windows[owner]))
    }

    fn write(&mut self, windows: &[Range<i64>], half: usize, from: &mut Source<'_>) -> Result<u64> {
        let rank = self.comm.rank();
        let mut moved = 0;
        let mut alone = None;
        for (owner, window) in self.in_turn(windows) {
            let (at, part) = part(&self.patterns[rank], window);
            moved += part.len;
            if part.len == 0 {
                continue;
            }
            if owner == rank && part.len == (window.end - window.start) as u64 {
                alone = Some((at, part));
                continue;
            }
            if owner != rank {
                self.io.tally.resent += part.len;
            }
            // SAFETY: `part` was cut at the window, which is at most a half long, so it stays inside the mapping. Other
            // ranks write to this half now as well, each the bytes of its own pattern; where patterns overlap MPI
            // leaves the result open. The owner reads after the barrier.
            let mut place =
                unsafe { Target::new(self.memory.half(owner, half), rebase(&part, window.start)) };
            copy(from, at, &mut place, 0, part.len);
        }
        self.comm.barrier()?;
        let window = windows[rank].clone();
        if !window.is_empty() {
            self.attempt(|x| match alone {
                Some((at, part)) => x.write_own(at, part, from),
                None => x.write_window(&window, half),
            });
        }
        Ok(moved)
    }

    /// A window that this rank alone fills.
    fn write_own(&mut self, at: u64, part: Pattern, from: &mut Source<'_>) -> Result<()> {
        let bounds = part.bounds();
        self.io
            .operate(
                &mut std::iter::once((at, part)),
                Form::Contiguous,
                &mut Buffer::From(from),
                bounds,
            )
            .map(drop)
    }

    /// This rank's window, filled by several.
    fn write_window(&mut self, window: &Range<i64>, half: usize) -> Result<()> {
        let start = self.memory.half(self.comm.rank(), half);
        let parts: Vec<_> = self.patterns.iter().map(|p| part(p, window).1).collect();
        let Some((lo, hi)) = extent(&parts) else {
            return Ok(());
        };
        if self.coverage.is_full(parts.iter(), &(lo..hi)) {
            let whole = Pattern::contiguous(lo - window.start, (hi - lo) as u64);
            // SAFETY: lo..hi is within the window and so within the half. Everyone's copies into it ended before the
            // barrier, and nobody touches it again before the next but one.
            let mut filled = unsafe { Source::new(start, whole) };
            let file = Pattern::contiguous(lo, (hi - lo) as u64);
            return self
                .io
                .operate(
                    &mut std::iter::once((0, file)),
                    Form::Contiguous,
                    &mut Buffer::From(&mut filled),
                    (lo, hi),
                )
                .map(drop);
        }
        for part in parts.iter().filter(|p| p.len > 0) {
            // SAFETY: as above, for the bytes one rank put there.
            let mut filled = unsafe { Source::new(start, rebase(part, window.start)) };
            self.io.operate(
                &mut std::iter::once((0, part.clone())),
                Form::Structured,
                &mut Buffer::From(&mut filled),
                part.bounds(),
            )?;
        }
        Ok(())
    }

    fn read(&mut self, windows: &[Range<i64>], half: usize, into: &mut Target<'_>) -> Result<u64> {
        let rank = self.comm.rank();
        let window = windows[rank].clone();
        let got = self.attempt(|x| x.read_window(&window, half));
        self.memory.set_note(half, got);
        self.comm.barrier()?;
        let mut moved = 0;
        for (owner, window) in self.in_turn(windows) {
            let (at, part) = part(&self.patterns[rank], window);
            if part.len == 0 {
                continue;
            }
            // Short where the file ends or the owner failed.
            let got = self.memory.note(owner, half) as i64;
            let there = part.slice(0, part.stream_at(window.start + got));
            // SAFETY: `part` was cut at the window, which is at most a half long. The owner's read ended before the
            // barrier, and nobody writes to this half before the next but one.
            let mut filled =
                unsafe { Source::new(self.memory.half(owner, half), rebase(&there, window.start)) };
            copy(&mut filled, 0, into, at, there.len);
            moved += there.len;
            if owner != rank {
                self.io.tally.resent += there.len;
            }
        }
        Ok(moved)
    }

    /// Reads what anyone wants of this rank's window. Returns how far from the window's start it is filled.
    fn read_window(&mut self, window: &Range<i64>, half: usize) -> Result<u64> {
        let parts: Vec<_> = self.patterns.iter().map(|p| part(p, window).1).collect();
        let Some((lo, hi)) = extent(&parts) else {
            return Ok(0);
        };
        let whole = Pattern::contiguous(lo - window.start, (hi - lo) as u64);
        // SAFETY: lo..hi is within the window and so within the half. Everyone's copies out of this half ended before
        // the last barrier, and they begin again after the next.
        let mut place = unsafe { Target::new(self.memory.half(self.comm.rank(), half), whole) };
        let file = Pattern::contiguous(lo, (hi - lo) as u64);
        let got = self.io.operate(
            &mut std::iter::once((0, file)),
            Form::Contiguous,
            &mut Buffer::Into(&mut place),
            (lo, hi),
        )?;
        Ok((lo - window.start) as u64 + got)
    }
}
