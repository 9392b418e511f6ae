//! # node-exchange: two-phase through memory that the ranks of a node share
//!
//! **Problem.** Two-phase copies each byte four times between a rank and its aggregator: packed, sent, received,
//! unpacked. On one node none of that is needed. **Idea.** Each rank owns a part of the accessed extent and a window of
//! memory that all ranks of the node map. To write, every rank copies its pieces directly to their places in the
//! owners' windows. After a barrier each owner writes its window in one large operation. To read, each owner reads its
//! window and every rank copies its pieces out. A window has two halves, so that one barrier per round suffices: while
//! one half is written out, the other is filled. A window that only its owner fills is written directly from the
//! owner's memory. One with holes is written as the pieces of each rank. **When it pays.** Interleaved small pieces of
//! ranks on one node. **Parameters.** Buffer (1 MiB for each half, so that it stays in the processor's cache).
//! **Hint.** `penstock_method=node-exchange`, `penstock_exchange_buffer_size`. If ranks are on several nodes or cannot
//! share memory, two-phase is used instead. **Source.** Penstock's; the idea of keeping an exchange within a node is RS
//! 7.3.
use super::Method;
use super::cost::{RankAccess, Terms};
use super::domains::{self, Coverage, Seat, Windows, extent};
use super::plan::{Cut, Memory, Operate, Outcome, Part, Plan, Room, Step, Way, Window};
use super::row::{BufferHint, Row, Work};
use penstock_base::Op;
use penstock_client::Form;
use penstock_datatype::Pattern;
use std::rc::Rc;

pub(super) const ROW: Row = Row {
    name: "node-exchange",
    summary: "two-phase through memory that the ranks of a node share",
    toggles: None,
    buffer: Some(BufferHint {
        keys: ["penstock_exchange_buffer_size"; 2],
        default: 1 << 20,
        meaning: "a rank's buffer in memory that the ranks of a node share (each rank has two); taken at open",
    }),
    offered: |_, place| place.one_node && place.ranks > 1.0,
    offered_when: "ranks on one node",
    counts: domains::counts,
    region: |tally, _| tally.largest,
    work: Work::SharedMemory { cost, plan },
};

impl Method {
    /// Two-phase through memory that the ranks of a node share.
    pub const NODE_EXCHANGE: Method = Method::named(ROW.name);
}

/// Work of the domains; in a write, marking each piece's coverage.
fn cost(terms: &Terms<'_>, shapes: &[RankAccess], aggregate_extent: f64) -> f64 {
    let marks = |_, regions: f64| match terms.direction {
        Op::Read => 0.0,
        Op::Write => regions * terms.costs.piece,
    };
    domains::cost(terms, shapes, aggregate_extent, marks, 1.0)
}

/// This rank's plan of a collective access; every rank owns a part.
fn plan(seat: Seat) -> Box<dyn Plan> {
    Box::new(NodeExchange {
        seat,
        next: Next::Round,
        round: 0,
        windows: Rc::new([]),
        moved: 0,
        failed: false,
        coverage: Coverage::new(),
    })
}

struct NodeExchange {
    seat: Seat,
    next: Next,
    round: usize,
    windows: Windows,
    moved: u64,
    /// Whether one of this rank's own operations failed.
    failed: bool,
    coverage: Coverage,
}

/// The state of the plan.
enum Next {
    Round,
    /// Write: this rank's parts were copied. The part, if only this rank fills its window.
    Shared(Option<Part>),
    /// Write: all ranks' parts were copied.
    Met(Option<Part>),
    /// Read: this rank's window is filled.
    Filled,
    /// Read: all ranks' windows are filled.
    Told,
    /// Read: this rank has its parts.
    Taken,
}

impl Plan for NodeExchange {
    fn next(&mut self, last: Outcome) -> Step {
        self.failed |= last.has_failed();
        match std::mem::replace(&mut self.next, Next::Round) {
            Next::Round => {
                let Some(windows) = self.seat.schedule.round(self.round) else {
                    // The agreement at the end of the call is the barrier between the last half's use and the next
                    // call.
                    return Step::Finish { moved: self.moved };
                };
                self.round += 1;
                self.windows = windows;
                match self.seat.op {
                    Op::Write => self.share(),
                    Op::Read => self.fill(),
                }
            }
            Next::Shared(alone) => {
                self.next = Next::Met(alone);
                Step::Barrier { filled: None }
            }
            Next::Met(alone) => self.put(alone),
            Next::Filled => self.tell(last.bytes()),
            Next::Told => self.take(),
            Next::Taken => {
                self.moved += last.bytes();
                self.next(Outcome::Done(0))
            }
        }
    }
}

impl NodeExchange {
    /// The half of the windows that this round uses.
    fn half(&self) -> usize {
        (self.round - 1) % 2
    }

    fn window(&self, owner: usize) -> Window {
        let range = &self.windows[owner];
        let half = self.half();
        Window {
            room: Room::Half { owner, half },
            start: range.start,
            len: (range.end - range.start) as u64,
        }
    }

    /// This rank's window, and what all ranks want of it.
    fn mine(&self) -> Option<(Window, Vec<Pattern>)> {
        let window = self.seat.window(&self.windows)?;
        let wanted = self.seat.schedule.wanted(&window);
        let patterns = wanted.map(|(_, part)| part.pattern).collect();
        Some((self.window(self.seat.rank), patterns))
    }

    /// What this rank wants of each window, beginning with its own, to distribute the ranks over the windows.
    fn in_turn(&self) -> impl Iterator<Item = (Window, Part)> + '_ {
        let (rank, size) = (self.seat.rank, self.windows.len());
        let owners = (0..size).map(move |i| (rank + i) % size);
        let parts = owners.map(|o| (self.window(o), self.seat.part(&self.windows[o])));
        parts.filter(|(_, part)| part.pattern.len > 0)
    }

    /// Write: copies this rank's parts, except into a window that it owns and fills alone.
    fn share(&mut self) -> Step {
        let own = self.window(self.seat.rank).room;
        let is_alone = |(w, p): &(Window, Part)| w.room == own && p.pattern.len == w.len;
        let (alone, parts): (Vec<_>, Vec<_>) = self.in_turn().partition(is_alone);
        self.moved += (alone.iter().chain(&parts))
            .map(|(_, p)| p.pattern.len)
            .sum::<u64>();
        self.next = Next::Shared(alone.into_iter().next().map(|(_, part)| part));
        Step::Share {
            way: Way::In,
            stream: Memory::User,
            parts,
        }
    }

    /// Write: writes this rank's window to the file.
    fn put(&mut self, alone: Option<Part>) -> Step {
        let mine = self.mine().filter(|_| !self.failed);
        let Some((window, patterns)) = mine else {
            return self.next(Outcome::Done(0));
        };
        let Some((lo, hi)) = extent(&patterns) else {
            return self.next(Outcome::Done(0));
        };
        let operate = |form, memory, parts: Vec<Part>| Operate {
            op: Op::Write,
            form,
            memory,
            cut: Cut::Parts(parts.into_iter()),
            extent: (lo, hi),
        };
        let memory = Memory::Window(window);
        Step::Operate(if let Some(part) = alone {
            operate(Form::Contiguous, Memory::User, vec![part])
        } else if self.coverage.is_full(patterns.iter(), &(lo..hi)) {
            let pattern = Pattern::contiguous(lo, (hi - lo) as u64);
            operate(Form::Contiguous, memory, vec![Part { at: 0, pattern }])
        } else {
            let parts = patterns.into_iter().map(|pattern| Part { at: 0, pattern });
            operate(Form::Structured, memory, parts.collect())
        })
    }

    /// Read: fills this rank's window with what any rank wants of it.
    fn fill(&mut self) -> Step {
        let mine = self.mine().filter(|_| !self.failed);
        let wanted = mine.and_then(|(window, patterns)| Some((window, extent(&patterns)?)));
        let Some((window, (lo, hi))) = wanted else {
            return self.tell(0);
        };
        self.next = Next::Filled;
        Step::Operate(Operate {
            op: Op::Read,
            form: Form::Contiguous,
            memory: Memory::Window(window),
            cut: Cut::one(0, Pattern::contiguous(lo, (hi - lo) as u64)),
            extent: (lo, hi),
        })
    }

    /// Read: tells all ranks how far the windows are filled.
    fn tell(&mut self, got: u64) -> Step {
        let skipped = match self.mine().filter(|_| got > 0) {
            Some((window, patterns)) => extent(&patterns).map_or(0, |(lo, _)| lo - window.start),
            None => 0,
        };
        self.next = Next::Told;
        Step::Barrier {
            filled: Some((self.half(), skipped as u64 + got)),
        }
    }

    /// Read: copies this rank's parts out of all windows.
    fn take(&mut self) -> Step {
        self.next = Next::Taken;
        Step::Share {
            way: Way::Out,
            stream: Memory::User,
            parts: self.in_turn().collect(),
        }
    }
}
