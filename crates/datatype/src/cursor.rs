//! Partial processing (DT section III.B): a walk that stops after any byte and starts anywhere.
//!
//! The cursor holds a short queue of bursts and refills it from the tree when it runs dry. A refill finds its position
//! in O(depth · log blocks). The queue grows with each refill: a seek followed by a single run stays cheap, and a long
//! walk rarely pays for a descent. One burst stands for a whole regular level.

use crate::pattern::{Pattern, Run};
use crate::walk::{Burst, Flow, ON, Sink};
use std::ops::ControlFlow;

/// Most bursts in the queue.
const AHEAD: usize = 32;
/// Bursts fetched after a seek.
const FIRST: usize = 2;

/// Walks the runs of a pattern; can stop after any byte, go on, and start anywhere.
#[derive(Debug, Clone)]
pub struct Cursor {
    pattern: Pattern,
    /// Stream position of the next byte.
    position: u64,
    /// Stream position of the first byte that is not in `ahead`.
    fetched: u64,
    ahead: [Burst; AHEAD],
    head: usize,
    filled: usize,
    /// Size of the next refill.
    quota: usize,
    /// Bytes already taken from the front burst's first block.
    taken: u64,
}

const NONE: Burst = Burst {
    at: 0,
    len: 0,
    stride: 0,
    count: 0,
};

impl Pattern {
    /// A cursor at the start of the pattern.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.clone())
    }
}

impl Cursor {
    fn new(pattern: Pattern) -> Cursor {
        Cursor {
            pattern,
            position: 0,
            fetched: 0,
            ahead: [NONE; AHEAD],
            head: 0,
            filled: 0,
            quota: FIRST,
            taken: 0,
        }
    }

    /// Stream position relative to the pattern.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves to a stream position, at most the pattern's end. The next run pays for it: O(depth log blocks).
    pub fn seek(&mut self, stream: u64) {
        let stream = stream.min(self.pattern.len);
        if stream == self.position {
            return;
        }
        self.position = stream;
        self.fetched = stream;
        (self.head, self.filled, self.taken, self.quota) = (0, 0, 0, FIRST);
    }

    /// The next run, at most `max` bytes of it; `None` at the end, or when `max` is 0. Adjacent
    /// runs are joined up to `max`.
    pub fn next_run(&mut self, max: u64) -> Option<Run> {
        if max == 0 {
            return None;
        }
        let block = self.front()?;
        let mut run = Run {
            offset: block.offset,
            len: block.len.min(max),
        };
        self.advance(run.len);
        while run.len < max {
            let Some(next) = self.front() else { break };
            if next.offset != run.offset.wrapping_add(run.len as i64) {
                break;
            }
            let more = next.len.min(max - run.len);
            self.advance(more);
            run.len += more;
        }
        Some(run)
    }

    /// The rest of the block at the position.
    fn front(&mut self) -> Option<Run> {
        if self.head == self.filled && !self.refill() {
            return None;
        }
        let burst = &self.ahead[self.head];
        Some(Run {
            offset: burst.at.wrapping_add(self.taken as i64),
            len: burst.len - self.taken,
        })
    }

    /// The rest of the burst at the position: whole blocks if the position is at the start of one, otherwise the rest
    /// of the block.
    pub(crate) fn front_burst(&mut self) -> Option<Burst> {
        let rest = self.front()?;
        if self.taken == 0 {
            return Some(self.ahead[self.head]);
        }
        Some(Burst {
            at: rest.offset,
            len: rest.len,
            stride: 0,
            count: 1,
        })
    }

    /// Takes `len` bytes, at most the rest of the front block.
    fn advance(&mut self, len: u64) {
        self.position += len;
        self.taken += len;
        if self.taken == self.ahead[self.head].len {
            self.drop_blocks(1);
        }
    }

    /// Takes `bytes` of the result of `front_burst`, at most all.
    pub(crate) fn advance_burst(&mut self, bytes: u64) {
        let (len, mut bytes) = (self.ahead[self.head].len, bytes);
        if self.taken == 0 && bytes >= len {
            let blocks = bytes / len;
            self.position += blocks * len;
            bytes -= blocks * len;
            self.drop_blocks(blocks);
        }
        if bytes > 0 {
            self.advance(bytes);
        }
    }

    fn drop_blocks(&mut self, blocks: u64) {
        let burst = &mut self.ahead[self.head];
        self.taken = 0;
        burst.count -= blocks;
        burst.at = burst
            .at
            .wrapping_add((blocks as i64).wrapping_mul(burst.stride));
        if burst.count == 0 {
            self.head += 1;
        }
    }

    /// Fetches the next bursts; false at the end.
    fn refill(&mut self) -> bool {
        let left = self.pattern.len - self.fetched;
        if left == 0 {
            return false;
        }
        let mut queue = BurstBuffer {
            bursts: &mut self.ahead[..self.quota],
            filled: 0,
            bytes: 0,
        };
        let _ = self.pattern.visit(self.fetched, left, &mut queue);
        self.fetched += queue.bytes;
        (self.head, self.filled) = (0, queue.filled);
        self.quota = (self.quota * 2).min(AHEAD);
        self.filled > 0
    }
}

/// Collects bursts until it is full.
struct BurstBuffer<'a> {
    bursts: &'a mut [Burst],
    filled: usize,
    bytes: u64,
}
impl Sink for BurstBuffer<'_> {
    fn block(&mut self, at: i64, len: u64) -> Flow {
        self.burst(Burst {
            at,
            len,
            stride: 0,
            count: 1,
        })
    }
    fn burst(&mut self, burst: Burst) -> Flow {
        self.bursts[self.filled] = burst;
        self.filled += 1;
        self.bytes += burst.len * burst.count;
        if self.filled == self.bursts.len() {
            ControlFlow::Break(())
        } else {
            ON
        }
    }
}
