//! # two-phase: aggregators own parts of the file
//!
//! **Problem.** The ranks of a collective call together access large contiguous ranges, each of them only small pieces.
//! **Idea.** Some ranks, the aggregators, own a part of the accessed extent each. Every rank knows every rank's
//! pattern. Sender and aggregator therefore compute alike, in closed form, what is sent between them: a pattern cut at
//! a window. In rounds of one buffer per aggregator the ranks exchange data, and the aggregator reads or writes its
//! window in one operation. In a write, a window with holes is written as received, one structured operation for each
//! rank. Bytes that nobody wrote are never written back, and no lock is needed. **When it pays.** Small interleaved
//! pieces, where the exchange is cheaper than the requests. **Parameters.** Aggregators (all ranks), buffer (4 MiB).
//! **Hint.** `penstock_method=two-phase`, `cb_nodes`, `cb_buffer_size`, `cb_config_list`, `romio_cb_read`,
//! `romio_cb_write`. **Source.** DT II.C, table I.
//!
//! Two rule sets ([`Rules`]): Penstock's, and ROMIO's for the simulator, which adds ROMIO's messages between ranks and
//! its reading of windows with holes.
//!
//! An error of one rank does not stop the others' rounds. It sends no more useful data, and the caller agrees on the
//! result at the end.
use super::Method;
use super::cost::{RankAccess, Terms};
use super::domains::{self, Coverage, Rules, Seat, extent};
use super::plan::{Cut, Memory, Operate, Outcome, Part, Plan, Room, Step, Way, Window};
use super::row::{BufferHint, Row, Work};
use super::sieve::Rewrite;
use penstock_base::Op;
use penstock_client::Form;

/// ROMIO's small collective operations before the first round: beginnings, ends, shares of the domains, number of
/// rounds.
const ROMIO_BEGIN: u32 = 4;
/// And in each round: how much comes from whom.
const ROMIO_ROUND: u32 = 1;

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
    work: Work::Exchange {
        striped: false,
        cost,
        plan,
    },
};

impl Method {
    /// Ranks exchange with aggregators, which own parts of the file.
    pub const TWO_PHASE: Method = Method::named(ROW.name);
}

/// Work of the domains; each byte is also sent, packed and unpacked, and a round ends with a second barrier.
fn cost(terms: &Terms<'_>, shapes: &[RankAccess], aggregate_extent: f64) -> f64 {
    let messages =
        |bytes: f64, regions: f64| bytes * terms.costs.message_byte + regions * terms.costs.piece;
    domains::cost(terms, shapes, aggregate_extent, messages, 2.0)
}

/// This rank's plan of a collective access.
pub(crate) fn plan(seat: Seat) -> Box<dyn Plan> {
    Box::new(TwoPhase {
        seat,
        next: Next::Begin,
        round: 0,
        parts: Vec::new(),
        mine: None,
        moved: 0,
        failed: false,
        coverage: Coverage::new(),
    })
}

struct TwoPhase {
    seat: Seat,
    next: Next,
    round: usize,
    /// What this rank wants of each owner's window in this round.
    parts: Vec<(usize, Part)>,
    /// This rank's own window in this round.
    mine: Option<Mine>,
    moved: u64,
    /// Whether one of this rank's own operations failed.
    failed: bool,
    coverage: Coverage,
}

/// An aggregator's window in a round.
struct Mine {
    /// From the first byte that is wanted to the last.
    window: Window,
    /// What each rank wants of it, with its position among the bytes that ranks send.
    wanted: Vec<(usize, Part)>,
}

/// The state of the plan.
enum Next {
    Begin,
    Round,
    Move,
    /// Read: this rank's window is filled.
    Filled,
    /// Read: this rank has its parts.
    Taken,
    /// Write: the ranks' parts were received.
    Received,
    /// Write: they are in their places.
    Packed,
    /// Write with holes by ROMIO's rules.
    Rewriting(Rewrite),
}

impl Plan for TwoPhase {
    fn next(&mut self, last: Outcome) -> Step {
        let mut next = std::mem::replace(&mut self.next, Next::Round);
        if let Next::Rewriting(rewrite) = &mut next {
            if let Some(step) = rewrite.next(last) {
                self.next = next;
                return step;
            }
            self.failed |= rewrite.has_failed();
        } else {
            self.failed |= last.has_failed();
        }
        let romio = self.seat.schedule.rules == Rules::Romio;
        match next {
            Next::Begin if romio => Step::Confer { times: ROMIO_BEGIN },
            Next::Begin | Next::Round | Next::Rewriting(_) => {
                if !self.begin_round() {
                    return Step::Finish { moved: self.moved };
                }
                self.next = Next::Move;
                if romio {
                    Step::Confer { times: ROMIO_ROUND }
                } else {
                    self.next(Outcome::Done(0))
                }
            }
            Next::Move if self.seat.op == Op::Write => self.send(),
            Next::Move => {
                self.next = Next::Filled;
                match &self.mine {
                    Some(mine) if !self.failed => Step::Operate(mine.window.operate(Op::Read)),
                    _ => self.hand_out(0),
                }
            }
            Next::Filled => self.hand_out(last.bytes()),
            Next::Taken => {
                self.moved += last.bytes();
                self.next(Outcome::Done(0))
            }
            Next::Received => self.put(),
            Next::Packed => match &self.mine {
                Some(mine) if !self.failed => Step::Operate(mine.window.operate(Op::Write)),
                _ => self.next(Outcome::Done(0)),
            },
        }
    }
}

impl TwoPhase {
    /// Determines who wants what of which window in the next round; false after the last one.
    fn begin_round(&mut self) -> bool {
        let Some(windows) = self.seat.schedule.round(self.round) else {
            return false;
        };
        self.round += 1;
        self.parts = self.seat.parts(&windows);
        self.mine = self.seat.window(&windows).and_then(|window| {
            let wanted: Vec<_> = self.seat.schedule.wanted(&window).collect();
            let (lo, hi) = extent(wanted.iter().map(|(_, part)| &part.pattern))?;
            let room = Room::Scratch;
            let (start, len) = (lo, (hi - lo) as u64);
            let window = Window { room, start, len };
            Some(Mine { window, wanted })
        });
        true
    }

    /// Write: sends this rank's parts to their owners.
    fn send(&mut self) -> Step {
        let send = std::mem::take(&mut self.parts);
        self.moved += send.iter().map(|(_, p)| p.pattern.len).sum::<u64>();
        let mut receive = Vec::new();
        if let Some(mine) = &mut self.mine {
            let mut at = 0;
            for (_, part) in &mut mine.wanted {
                part.at = at;
                at += part.pattern.len;
            }
            receive.clone_from(&mine.wanted);
        }
        self.next = Next::Received;
        Step::Exchange {
            send,
            from: Memory::User,
            receive,
            into: Memory::Inbox,
        }
    }

    /// Read: sends each rank what it wants of the first `got` bytes of this rank's window.
    fn hand_out(&mut self, got: u64) -> Step {
        let mut send = Vec::new();
        let mut from = Memory::User;
        if let Some(mine) = &self.mine {
            from = Memory::Window(mine.window);
            let end = mine.window.start + got as i64;
            let there = |(rank, part): &(usize, Part)| {
                let pattern = part.pattern.slice(0, part.pattern.stream_at(end));
                (*rank, Part { at: 0, pattern })
            };
            send.extend(mine.wanted.iter().map(there));
            send.retain(|(_, part)| part.pattern.len > 0);
        }
        self.next = Next::Taken;
        Step::Exchange {
            send,
            from,
            receive: std::mem::take(&mut self.parts),
            into: Memory::User,
        }
    }

    /// Write: writes what the ranks sent to this rank's window of the file.
    fn put(&mut self) -> Step {
        let Some(mine) = self.mine.as_ref().filter(|_| !self.failed) else {
            return self.next(Outcome::Done(0));
        };
        let window = mine.window;
        let range = window.start..window.start + window.len as i64;
        let patterns = mine.wanted.iter().map(|(_, part)| &part.pattern);
        let parts = mine.wanted.iter().map(|(_, part)| part.clone());
        if self.coverage.is_full(patterns, &range) {
            self.next = Next::Packed;
            return Step::Share {
                way: Way::In,
                stream: Memory::Inbox,
                parts: parts.map(|part| (window, part)).collect(),
            };
        }
        if self.seat.schedule.rules == Rules::Romio {
            self.next = Next::Rewriting(Rewrite::new(window, Memory::Inbox, parts.collect()));
            return self.next(Outcome::Done(0));
        }
        Step::Operate(Operate {
            op: Op::Write,
            form: Form::Structured,
            memory: Memory::Inbox,
            cut: Cut::Parts(parts.collect::<Vec<_>>().into_iter()),
            extent: (range.start, range.end),
        })
    }
}
