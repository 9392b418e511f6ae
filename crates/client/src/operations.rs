//! The operations of one call that are in flight, and what its lanes share.
use crate::memory::{Memory, Stretch};
use crate::plan::FileRegions;
use penstock_layout::{Layout, ServerIndex};
use penstock_trace::{Layer, Operation, sink};
use penstock_wire::message::TraceContext;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Loops remembered as known to a server.
const MAX_KNOWN: usize = 4096;

/// Hashes of the loops that a server has been sent.
#[derive(Debug, Default)]
pub(crate) struct KnownLoops(Mutex<HashSet<[u8; 16]>>);

impl KnownLoops {
    /// Whether the loop must be sent in full; it counts as known from now on.
    pub fn is_new(&self, hash: [u8; 16]) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(hash)
    }

    /// The server has lost its memory.
    pub fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

/// One operation: one request per touched server.
#[derive(Debug)]
pub(crate) struct Op {
    pub shape: FileRegions,
    /// Where its bytes begin in the memory stream.
    pub memory: u64,
    /// Servers that have not answered.
    pub pending: u32,
    /// Servers whose object ended early, and the stream position from which bytes are missing.
    pub short: Vec<(ServerIndex, u64)>,
    /// Fills a gap of an earlier operation: not counted.
    pub refill: bool,
}

/// Operations in flight; slots are reused.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slots: Vec<Op>,
    free: Vec<u32>,
}

impl Ops {
    pub fn add(&mut self, op: Op) -> u32 {
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = op;
            at
        } else {
            self.slots.push(op);
            self.slots.len() as u32 - 1
        }
    }

    pub fn get(&mut self, at: u32) -> &mut Op {
        &mut self.slots[at as usize]
    }

    pub fn remove(&mut self, at: u32) -> Op {
        self.free.push(at);
        let gone = Op {
            shape: FileRegions::contiguous(0, 0),
            memory: 0,
            pending: 0,
            short: Vec::new(),
            refill: false,
        };
        std::mem::replace(&mut self.slots[at as usize], gone)
    }
}

/// What all lanes of an exchange share.
pub(crate) struct Common<'m, 'a> {
    pub layout: Arc<Layout>,
    pub ops: Ops,
    pub memory: Memory<'m, 'a>,
    /// Memory pieces are large enough for vectored calls.
    pub coarse: bool,
    pub trace: TraceContext,
    /// The call that all of this is part of, if it is recorded.
    pub call: Option<sink::Call>,
    /// Requests that have been built, loops among them sent in full, and bytes moved.
    pub requests: u64,
    pub loops_sent: u64,
    pub bytes: u64,
    /// Scratch.
    pub runs: Vec<(u64, u64)>,
    pub stretches: Vec<Stretch>,
}

impl<'m, 'a> Common<'m, 'a> {
    pub fn new(layout: Arc<Layout>, memory: Memory<'m, 'a>, trace: TraceContext) -> Self {
        Common {
            layout,
            ops: Ops::default(),
            coarse: memory.is_coarse(),
            memory,
            trace,
            call: None,
            requests: 0,
            loops_sent: 0,
            bytes: 0,
            runs: Vec::new(),
            stretches: Vec::new(),
        }
    }

    /// What the call does at one server for operation `op` begins now, if the call is recorded; and where in the object.
    pub fn below(
        &mut self,
        op: u32,
        server: ServerIndex,
        layer: Layer,
        write: bool,
    ) -> Option<(sink::Call, u64)> {
        let call = self.call.as_ref()?;
        let operation = if write {
            Operation::WRITE
        } else {
            Operation::READ
        };
        let begun = call.below(layer, operation, self.layout.servers[server.0 as usize].0)?;
        let mut offset = 0;
        let shape = &self.ops.get(op).shape;
        shape.pieces(&self.layout, server, 0, |object, _, _| {
            offset = object;
            false
        });
        Some((begun, offset))
    }

    pub fn is_write(&self) -> bool {
        matches!(self.memory, Memory::From(_))
    }

    /// The next runs of operation `op` on `server` from stream position `from` on, at most `most` bytes and `max_runs` runs, into `self.runs`
    /// (memory stream positions). Returns their bytes, the position behind them, and whether more follow.
    pub fn take_runs(
        &mut self,
        server: ServerIndex,
        op: u32,
        from: u64,
        most: usize,
        max_runs: usize,
    ) -> (usize, u64, bool) {
        self.runs.clear();
        let op = &self.ops.slots[op as usize];
        let (mut total, mut at, mut more) = (0, from, false);
        op.shape.runs(&self.layout, server, from, |stream, len| {
            if total == most || self.runs.len() == max_runs {
                more = true;
                return false;
            }
            let take = len.min((most - total) as u64);
            self.runs.push((op.memory + stream, take));
            total += take as usize;
            at = stream + take;
            more = take < len;
            take == len
        });
        (total, at, more)
    }
}
