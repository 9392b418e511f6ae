//! # sieve: whole extents through a buffer
//!
//! **Problem.** Many small regions close together: their requests cost more than the bytes between them. **Idea.** Read
//! the whole extent, a buffer at a time, and copy the wanted bytes out in memory. A write reads the buffer, modifies
//! its bytes and writes all of it back, holding an exclusive lock on exactly that range of the file. A buffer without
//! holes is written without reading or locking. **When it pays.** Dense reads with small holes. Writes only where
//! nobody else writes nearby. **Parameters.** Buffer size, 4 MiB. **Hint.** `penstock_method=sieve`, `romio_ds_read`,
//! `romio_ds_write`, `ind_rd_buffer_size`, `ind_wr_buffer_size`. **Source.** DT II.B; operations and bytes as in table
//! I. Buffers follow each other from the first wanted byte to the last. A hole between two of them is not skipped, but
//! a buffer without any wanted byte is. A read-modify-write counts as one operation on its bytes; the bytes it reads
//! first are counted separately.
use super::Method;
use super::cost::{RankAccess, Terms};
use super::domains::part;
use super::plan::{Alone, Memory, Outcome, Part, Plan, Room, Step, Way, Window};
use super::row::{BufferHint, Row, Work};
use crate::joint::first_offset;
use crate::model;
use penstock_base::Op;

pub(super) const ROW: Row = Row {
    name: "sieve",
    summary: "whole extents through a buffer",
    toggles: Some(["romio_ds_read", "romio_ds_write"]),
    buffer: Some(BufferHint {
        keys: ["ind_rd_buffer_size", "ind_wr_buffer_size"],
        default: 4 << 20,
        meaning: "sieve buffer of reads, of writes",
    }),
    // Sieving writes read first and exclude other writers.
    offered: |direction, _| direction == Op::Read,
    offered_when: "reads; writes only where a hint asks for it",
    counts,
    region: |tally, _| tally.largest,
    work: Work::Alone {
        locks: true,
        cost,
        plan,
    },
};

impl Method {
    /// Whole extents through a buffer.
    pub const SIEVE: Method = Method::named(ROW.name);
}

/// How often a lock that is lost with its server is taken again, in case the server fails repeatedly.
const LOSSES: u32 = 10;

/// ⌈extent / buffer⌉ operations, and all bytes of the extent.
fn counts(shape: &model::AccessSummary, buffer: u64) -> (u64, u64) {
    (shape.extent.div_ceil(buffer), shape.extent)
}

/// All bytes of the extent, and copying the wanted ones.
fn cost(terms: &Terms<'_>, shape: &RankAccess) -> f64 {
    let rewrite = match terms.direction {
        Op::Read => 1.0,
        // Reads first, and excludes all other writers meanwhile.
        Op::Write => 2.0 * terms.place.ranks,
    };
    (shape.extent / terms.buffer).ceil() * terms.operation()
        + rewrite * shape.extent * terms.byte()
        + shape.bytes * terms.costs.copy_byte
        + shape.regions() * terms.costs.piece
}

/// The plan of an access.
fn plan(access: &Alone) -> Box<dyn Plan> {
    Box::new(Sieve {
        lo: access.file.bounds().0,
        access: access.clone(),
        next: Next::Window,
        moved: 0,
    })
}

struct Sieve {
    access: Alone,
    /// Where the next buffer begins.
    lo: i64,
    next: Next,
    moved: u64,
}

/// The state of the plan.
enum Next {
    Window,
    /// Read: the buffer is filled up to the end of the file; the part is what is wanted of it.
    Filled(Window, Part),
    /// Write without holes: the buffer has its bytes.
    Packed(Window),
    /// Write with holes.
    Rewriting(Rewrite),
    End,
}

impl Plan for Sieve {
    fn next(&mut self, last: Outcome) -> Step {
        let mut next = std::mem::replace(&mut self.next, Next::Window);
        let mut failed = last.has_failed();
        if let Next::Rewriting(rewrite) = &mut next {
            if let Some(step) = rewrite.next(last) {
                self.next = next;
                return step;
            }
            failed = rewrite.has_failed();
        }
        let end = Step::Finish { moved: self.moved };
        if failed {
            return end;
        }
        match next {
            Next::Window | Next::Rewriting(_) => self.window().unwrap_or(end),
            Next::Filled(window, part) => self.pick(window, &part, last.bytes()),
            Next::Packed(window) => Step::Operate(window.operate(Op::Write)),
            Next::End => end,
        }
    }
}

impl Sieve {
    /// The next buffer with wanted bytes.
    fn window(&mut self) -> Option<Step> {
        let (file, step) = (&self.access.file, self.access.buffer.max(1) as i64);
        let end = file.bounds().1;
        let (window, part) = loop {
            if self.lo >= end {
                return None;
            }
            let hi = self.lo.saturating_add(step).min(end);
            let range = self.lo..hi;
            let part = part(file, &range);
            if part.pattern.len > 0 {
                let window = Window {
                    room: Room::Scratch,
                    start: self.lo,
                    len: (hi - self.lo) as u64,
                };
                self.lo = hi;
                break (window, part);
            }
            // Continues with the buffer that has the next wanted byte.
            let next = first_offset(file, part.at)?;
            self.lo += (next - self.lo) / step * step;
        };
        if self.access.op == Op::Read {
            self.next = Next::Filled(window, part);
            return Some(Step::Operate(window.operate(Op::Read)));
        }
        self.moved += part.pattern.len;
        if part.pattern.len == window.len {
            self.next = Next::Packed(window);
            return Some(Step::Share {
                way: Way::In,
                stream: Memory::User,
                parts: vec![(window, part)],
            });
        }
        let mut rewrite = Rewrite::new(window, Memory::User, vec![part]);
        let first = rewrite.next(Outcome::Done(0));
        self.next = Next::Rewriting(rewrite);
        first
    }

    /// Copies the wanted bytes out of a buffer with `got` bytes.
    fn pick(&mut self, window: Window, part: &Part, got: u64) -> Step {
        let end = part.pattern.stream_at(window.start + got as i64);
        let there = Part {
            at: part.at,
            pattern: part.pattern.slice(0, end),
        };
        self.moved += there.pattern.len;
        if got < window.len {
            // The file ends here.
            self.next = Next::End;
        }
        Step::Share {
            way: Way::Out,
            stream: Memory::User,
            parts: vec![(window, there)],
        }
    }
}

/// Read-modify-write of a window of the file under an exclusive lock. If the lock is lost with its server, it is taken
/// again and everything is repeated from the current contents: nobody's bytes are overwritten.
pub(super) struct Rewrite {
    window: Window,
    from: Memory,
    parts: Vec<Part>,
    stage: Stage,
    losses: u32,
    failed: bool,
}

/// What is done next.
enum Stage {
    Lock,
    Read,
    Mix,
    Write,
    Unlock,
    Done,
}

impl Rewrite {
    /// Puts parts, with their positions in a stream, into a window that contains all of them.
    pub(super) fn new(window: Window, from: Memory, parts: Vec<Part>) -> Rewrite {
        Rewrite {
            window,
            from,
            parts,
            stage: Stage::Lock,
            losses: 0,
            failed: false,
        }
    }

    /// Whether it has ended unsuccessfully.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The next step; `None` after the last one.
    pub(super) fn next(&mut self, last: Outcome) -> Option<Step> {
        if let Outcome::Failed { lock_lost } = last {
            let again = lock_lost && self.losses < LOSSES;
            self.losses += 1;
            if let Stage::Read | Stage::Done = self.stage {
                // There is no lock.
                self.failed = true;
                return None;
            }
            self.failed = !again;
            self.stage = if again { Stage::Lock } else { Stage::Done };
            return Some(Step::Unlock { again });
        }
        let (lo, hi) = self.window.bounds();
        let (stage, step) = match self.stage {
            Stage::Lock => (Stage::Read, Step::Lock { range: lo..hi }),
            Stage::Read => (Stage::Mix, Step::Operate(self.window.operate(Op::Read))),
            Stage::Mix => {
                let parts = self.parts.iter().map(|part| (self.window, part.clone()));
                let share = Step::Share {
                    way: Way::In,
                    stream: self.from,
                    parts: parts.collect(),
                };
                (Stage::Write, share)
            }
            Stage::Write => (Stage::Unlock, Step::Operate(self.window.operate(Op::Write))),
            Stage::Unlock => (Stage::Done, Step::Unlock { again: false }),
            Stage::Done => return None,
        };
        self.stage = stage;
        Some(step)
    }
}
