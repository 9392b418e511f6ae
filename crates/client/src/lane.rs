//! One connection's part of an exchange, as a state machine without a socket.
//!
//! Problem: a noncontiguous access touches several servers, each with its own connection, and a posix-style loop makes
//! a million small requests. A client that writes a request and then waits pays a wake-up per request. One that writes
//! without reading deadlocks when both directions of a connection are full. Idea: each lane holds a bounded window of
//! requests in flight. Frames are built when the last ones have been sent. Replies are received whenever the socket has
//! some, even while sending is not complete. So the driver (`exchange.rs`) may alternate between all lanes in one
//! thread with `poll`. A lane never waits for one direction while the other could move, and no buffer exceeds its
//! limit. Payload goes directly between memory and socket where the memory's pieces are large, and through the lane's
//! buffers where they are small. A lane that lost its connection queues everything unanswered again, from the first
//! byte of each request: reads and writes are idempotent. Parameters: [`WINDOW_REQUESTS`], [`WINDOW_BYTES`],
//! [`STAGED`].
use crate::memory::Stretch;
use crate::operations::{Common, KnownLoops};
use crate::plan::FileRegions;
use penstock_layout::ServerIndex;
use penstock_trace::{Layer, sink};
use penstock_wire::frame::{self, Envelope, HEADER_LEN, Header, Limits};
use penstock_wire::message::{
    DataReply, DataRequest, ErrorKind, Handle, LockId, MAX_PAYLOAD, WireError,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Requests of one lane in flight. Half of them must be answered before more are sent, so that both
/// sides work on batches.
pub(crate) const WINDOW_REQUESTS: usize = 256;
/// Payload bytes of one lane in flight (a single request may be larger).
pub(crate) const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes of frames and packed payload that are built before they are sent.
const STAGED: usize = 128 << 10;
/// Payload of one frame that is packed rather than sent from memory.
const PACKED_FRAME: usize = 128 << 10;
/// Payload from which a frame is worth a vectored call.
const DIRECT: usize = 8 << 10;
/// Bytes of the input buffer at first, and with packed payload coming in.
const INPUT_SMALL: usize = 32 << 10;
const INPUT_LARGE: usize = 256 << 10;
/// Most stretches of one vectored receive.
const MAX_STRETCHES: usize = 256;
/// The request of one operation to one server.
#[derive(Debug)]
struct Sub {
    op: u32,
    id: u64,
    /// Stream position up to which payload has been built (writes) or taken (reads).
    at: u64,
    /// Payload bytes up to there.
    moved: u64,
    /// Counts against the window.
    weight: u64,
    inline: bool,
    /// The answer came before all of the request had been built.
    early: Option<DataReply>,
    /// The request in the trace, and the offset in its object.
    recorded: Option<Box<(sink::Call, u64)>>,
}

impl Sub {
    /// Its answer is here.
    fn over(&mut self, error: i32) {
        if let Some((call, offset)) = self.recorded.take().map(|recorded| *recorded) {
            call.end(sink::Outcome {
                offset,
                bytes: self.moved,
                error,
            });
        }
    }
}

#[derive(Debug)]
enum Part {
    Staged(Range<usize>),
    Memory(Stretch),
}

#[derive(Debug)]
enum Parse {
    Header,
    Payload {
        left: usize,
        id: u64,
        last: Option<DataReply>,
    },
}

/// The events that a lane reports to its driver.
#[derive(Debug)]
pub(crate) enum Event {
    /// A server answered for this operation; `short` = its bytes are missing from there on.
    Answered { op: u32, short: Option<u64> },
    /// A server refused.
    Refused(WireError),
}

/// Why a connection cannot be used any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The server is going away or has no room: try again later.
    Leaving(String),
    /// It sent what the protocol does not allow.
    Protocol(String),
}

/// Buffers that outlive an exchange, kept with the connection.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    out: Vec<u8>,
    input: Vec<u8>,
}

/// One connection's part of an exchange.
#[derive(Debug)]
pub(crate) struct Lane {
    server: ServerIndex,
    known: Arc<KnownLoops>,
    version: u16,
    handle: Handle,
    lock: Option<LockId>,
    next_id: u64,
    queue: VecDeque<Sub>,
    building: Option<Sub>,
    inflight: VecDeque<Sub>,
    /// Must be sent again once nothing is in flight.
    redo: VecDeque<Sub>,
    needs_attach: bool,
    /// Times in a row that requests had to be sent again without one being answered.
    redone: u32,
    weight: u64,
    open: bool,
    parts: VecDeque<Part>,
    out: Vec<u8>,
    input: Vec<u8>,
    start: usize,
    end: usize,
    parse: Parse,
    /// Bytes of the last offered stretches that belong to the current payload.
    offered: usize,
    /// Requests sent, and bytes that were read or written by them.
    pub requests: u64,
    pub moved: u64,
}

impl Lane {
    pub fn new(server: ServerIndex, known: Arc<KnownLoops>) -> Lane {
        Lane {
            server,
            known,
            version: 0,
            handle: Handle(0),
            lock: None,
            next_id: 0,
            queue: VecDeque::new(),
            building: None,
            inflight: VecDeque::new(),
            redo: VecDeque::new(),
            needs_attach: false,
            redone: 0,
            weight: 0,
            open: true,
            parts: VecDeque::new(),
            out: Vec::new(),
            input: Vec::new(),
            start: 0,
            end: 0,
            parse: Parse::Header,
            offered: 0,
            requests: 0,
            moved: 0,
        }
    }

    /// A connection is there. `next_id` continues its request ids.
    pub fn connected(&mut self, version: u16, next_id: u64, buffers: Buffers) {
        self.version = version;
        self.next_id = next_id;
        self.out = buffers.out;
        self.input = buffers.input;
        self.out.clear();
        (self.start, self.end, self.offered) = (0, 0, 0);
        self.parse = Parse::Header;
    }

    /// The file is open on the connection.
    pub fn attached(&mut self, handle: Handle, lock: Option<LockId>) {
        self.handle = handle;
        self.lock = lock;
        self.needs_attach = false;
        // Older than what is queued, so they go first.
        while let Some(sub) = self.redo.pop_back() {
            self.queue.push_front(sub);
        }
    }

    /// Returns what belongs to the connection: the next request id and the buffers.
    pub fn disconnect(&mut self) -> (u64, Buffers) {
        let buffers = Buffers {
            out: std::mem::take(&mut self.out),
            input: std::mem::take(&mut self.input),
        };
        (self.next_id, buffers)
    }

    /// The connection is lost: everything unanswered is queued again, in order.
    pub fn lost(&mut self) {
        let unanswered = self
            .redo
            .drain(..)
            .chain(self.inflight.drain(..))
            .chain(self.building.take())
            .map(|mut sub| {
                (sub.at, sub.moved, sub.early) = (0, 0, None);
                sub
            })
            .collect::<Vec<_>>();
        for sub in unanswered.into_iter().rev() {
            self.queue.push_front(sub);
        }
        self.parts.clear();
        self.known.clear();
    }

    /// Drops what has not been sent, and after the loss of a connection everything.
    pub fn abandon(&mut self, connected: bool) {
        self.queue.clear();
        self.redo.clear();
        if !connected {
            self.building = None;
            self.inflight.clear();
            self.parts.clear();
        }
    }

    /// More operations may be given to it.
    pub fn is_open(&mut self) -> bool {
        let load = self.queue.len()
            + self.inflight.len()
            + self.redo.len()
            + usize::from(self.building.is_some());
        if load == 0 {
            self.open = true;
        } else if load >= WINDOW_REQUESTS || self.weight >= WINDOW_BYTES {
            self.open = false;
        } else if load <= WINDOW_REQUESTS / 2 && self.weight <= WINDOW_BYTES / 2 {
            self.open = true;
        }
        self.open
    }

    /// Something is queued, being sent or unanswered.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.redo.is_empty() || self.is_outstanding()
    }

    /// Something is on the connection.
    pub fn is_outstanding(&self) -> bool {
        !self.inflight.is_empty() || self.building.is_some() || !self.parts.is_empty()
    }

    /// Built frames have not left.
    pub fn is_sending(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Everything on the connection is answered, and requests wait to be sent again: attach first if
    /// it says so.
    pub fn wants_redo(&self) -> Option<Redo> {
        (!self.redo.is_empty() && !self.is_outstanding()).then_some(Redo {
            attach: self.needs_attach,
            times: self.redone,
        })
    }

    /// The redo needs no attaching.
    pub fn redo(&mut self) {
        let (handle, lock) = (self.handle, self.lock);
        self.attached(handle, lock);
    }

    pub fn push(&mut self, op: u32, weight: u64) {
        self.weight += weight;
        self.queue.push_back(Sub {
            op,
            id: 0,
            at: 0,
            moved: 0,
            weight,
            inline: false,
            early: None,
            recorded: None,
        });
    }

    // ---- sending ----

    /// Builds frames if all earlier ones have left. `Err` is a request that no server can take.
    pub fn fill(
        &mut self,
        common: &mut Common<'_, '_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        if !self.parts.is_empty() {
            return Ok(());
        }
        self.out.clear();
        let mut direct = 0;
        while self.out.len() < STAGED && direct < MAX_PAYLOAD {
            let (mut sub, first) = match self.building.take() {
                Some(sub) => (sub, false),
                None if !self.redo.is_empty() => break,
                None => match self.queue.pop_front() {
                    Some(mut sub) => {
                        sub.id = self.next_id;
                        self.next_id += 1;
                        (sub, true)
                    }
                    None => break,
                },
            };
            let more = self.build(&mut sub, first, &mut direct, common)?;
            if more {
                self.building = Some(sub);
                continue;
            }
            match sub.early.take() {
                Some(reply) => self.finish(sub, reply, common, events)?,
                None => self.inflight.push_back(sub),
            }
        }
        Ok(())
    }

    /// One frame. True when the request goes on.
    fn build(
        &mut self,
        sub: &mut Sub,
        first: bool,
        direct: &mut usize,
        common: &mut Common<'_, '_>,
    ) -> Result<bool, Broken> {
        let is_write = common.is_write();
        let body = if first {
            common.requests += 1;
            self.requests += 1;
            if common.call.is_some() && sub.recorded.is_none() {
                let begun = common.below(sub.op, self.server, Layer::Request, is_write);
                sub.recorded = begun.map(Box::new);
            }
            let shape = &common.ops.get(sub.op).shape;
            if let FileRegions::Loop { pattern, .. } = shape
                && (sub.inline || self.known.is_new(pattern.tile.hash().0))
            {
                common.loops_sent += 1;
                sub.inline = true;
            }
            let region = shape.region(&common.layout, self.server, sub.inline);
            let (handle, lock) = (self.handle, self.lock);
            Some(if is_write {
                DataRequest::Write {
                    handle,
                    region,
                    lock,
                }
            } else {
                DataRequest::Read {
                    handle,
                    region,
                    lock,
                }
            })
        } else {
            None
        };
        let (payload, more) = if is_write {
            let most = if common.coarse {
                MAX_PAYLOAD
            } else {
                PACKED_FRAME
            };
            let (total, at, more) = common.take_runs(self.server, sub.op, sub.at, most, usize::MAX);
            sub.at = at;
            sub.moved += total as u64;
            (total, more)
        } else {
            (0, false)
        };
        let envelope = Envelope::request(sub.id, common.trace).more(more);
        let at = self.out.len();
        frame::append(
            &mut self.out,
            self.version,
            &envelope,
            body.as_ref(),
            payload,
            0,
            &Limits::FULL,
        )
        .map_err(|e| Broken::Protocol(e.to_string()))?;
        if common.coarse && payload >= DIRECT {
            self.stage(at..self.out.len());
            common.stretches.clear();
            for &(from, len) in &common.runs {
                common.memory.stretches(from, len, &mut common.stretches);
            }
            self.parts
                .extend(common.stretches.iter().copied().map(Part::Memory));
            *direct += payload;
        } else {
            let mut fill = self.out.len();
            self.out.resize(fill + payload, 0);
            for i in 0..if is_write { common.runs.len() } else { 0 } {
                let (from, len) = common.runs[i];
                common
                    .memory
                    .gather(from, &mut self.out[fill..fill + len as usize]);
                fill += len as usize;
            }
            self.stage(at..self.out.len());
        }
        Ok(more)
    }

    fn stage(&mut self, range: Range<usize>) {
        match self.parts.back_mut() {
            Some(Part::Staged(last)) if last.end == range.start => last.end = range.end,
            _ => self.parts.push_back(Part::Staged(range)),
        }
    }

    /// The stretches to be sent next.
    pub fn outgoing(&mut self, out: &mut Vec<Stretch>) {
        out.clear();
        for part in self.parts.iter().take(MAX_STRETCHES) {
            out.push(match part {
                Part::Staged(range) => Stretch {
                    base: self.out[range.clone()].as_ptr().cast_mut(),
                    len: range.len(),
                },
                Part::Memory(stretch) => *stretch,
            });
        }
    }

    /// `n` bytes of them have left.
    pub fn sent(&mut self, mut n: usize) {
        while n > 0 {
            let Some(part) = self.parts.front_mut() else {
                return;
            };
            let len = match part {
                Part::Staged(range) => {
                    let len = range.len();
                    range.start += n.min(len);
                    len
                }
                Part::Memory(stretch) => {
                    let (len, step) = (stretch.len, n.min(stretch.len));
                    stretch.base = stretch.base.wrapping_add(step);
                    stretch.len -= step;
                    len
                }
            };
            if n < len {
                return;
            }
            n -= len;
            self.parts.pop_front();
        }
    }

    // ---- receiving ----

    /// Where the next bytes from the socket should go.
    pub fn incoming(&mut self, common: &mut Common<'_, '_>, out: &mut Vec<Stretch>) {
        out.clear();
        self.offered = 0;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let mut large = false;
        if let Parse::Payload { left, id, .. } = self.parse
            && self.start == self.end
        {
            large = !common.coarse && left > INPUT_SMALL;
            if common.coarse
                && left >= DIRECT
                && let Some(sub) = self.inflight.iter().find(|s| s.id == id)
            {
                let (total, _, _) =
                    common.take_runs(self.server, sub.op, sub.at, left, MAX_STRETCHES);
                common.stretches.clear();
                for &(from, len) in &common.runs {
                    common.memory.stretches(from, len, &mut common.stretches);
                }
                common.stretches.truncate(MAX_STRETCHES);
                let offered: usize = common.stretches.iter().map(|s| s.len).sum();
                debug_assert!(offered <= total);
                self.offered = offered;
                out.append(&mut common.stretches);
                if offered < left {
                    // What follows in the socket still belongs to the payload's later stretches.
                    return;
                }
            }
        }
        let size = if large { INPUT_LARGE } else { INPUT_SMALL };
        if self.input.len() < size {
            self.input.resize(size, 0);
        }
        if self.start > 0 && self.input.len() - self.end < HEADER_LEN {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let spare = &mut self.input[self.end..];
        out.push(Stretch {
            base: spare.as_mut_ptr(),
            len: spare.len(),
        });
    }

    /// `n` bytes came into the stretches of the last [`Lane::incoming`].
    pub fn received(
        &mut self,
        n: usize,
        common: &mut Common<'_, '_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        let straight = n.min(std::mem::take(&mut self.offered));
        if straight > 0 {
            self.took(straight, None, common)?;
        }
        self.end += n - straight;
        while self.step(common, events)? {}
        Ok(())
    }

    /// One step through the input buffer; false when more input is needed.
    fn step(
        &mut self,
        common: &mut Common<'_, '_>,
        events: &mut Vec<Event>,
    ) -> Result<bool, Broken> {
        let have = self.end - self.start;
        match &mut self.parse {
            Parse::Header => {
                let Some(bytes) = self.input[self.start..self.end].first_chunk::<HEADER_LEN>()
                else {
                    return Ok(false);
                };
                let protocol = |e: frame::FrameError| Broken::Protocol(e.to_string());
                let header =
                    Header::decode(bytes, self.version, &Limits::FULL).map_err(protocol)?;
                let whole = HEADER_LEN + header.body_len;
                if have < whole {
                    if self.input.len() - self.start < whole {
                        self.input.copy_within(self.start..self.end, 0);
                        (self.start, self.end) = (0, have);
                        let size = whole.max(self.input.len());
                        self.input.resize(size, 0);
                    }
                    return Ok(false);
                }
                let body = &self.input[self.start + HEADER_LEN..self.start + whole];
                let last = if header.envelope.more {
                    None
                } else {
                    Some(frame::decode_body::<DataReply>(body).map_err(protocol)?)
                };
                if !header.envelope.reply || header.descriptors > 0 {
                    return Err(Broken::Protocol("a frame that is not a plain reply".into()));
                }
                self.start += whole;
                self.parse = Parse::Payload {
                    left: header.payload_len,
                    id: header.envelope.request,
                    last,
                };
                Ok(true)
            }
            Parse::Payload { left, .. } if *left > 0 => {
                let take = have.min(*left);
                if take == 0 {
                    return Ok(false);
                }
                let at = self.start;
                self.took(take, Some(at), common)?;
                self.start += take;
                Ok(true)
            }
            Parse::Payload { id, last, .. } => {
                let (id, last) = (*id, last.take());
                self.parse = Parse::Header;
                if let Some(reply) = last {
                    self.answer(id, reply, common, events)?;
                }
                Ok(true)
            }
        }
    }

    /// `n` payload bytes are there: in memory already, or in the input buffer from `at` on.
    fn took(
        &mut self,
        n: usize,
        at: Option<usize>,
        common: &mut Common<'_, '_>,
    ) -> Result<(), Broken> {
        let Parse::Payload { left, id, .. } = &mut self.parse else {
            return Ok(());
        };
        *left -= n;
        let sub = match self.inflight.iter_mut().find(|s| s.id == *id) {
            Some(sub) if !common.is_write() => sub,
            _ => return Err(Broken::Protocol(format!("payload for request {id}"))),
        };
        let (total, next, _) = common.take_runs(self.server, sub.op, sub.at, n, usize::MAX);
        if total < n {
            return Err(Broken::Protocol(format!(
                "{} bytes more than request {id} asked for",
                n - total
            )));
        }
        if let Some(mut at) = at {
            for i in 0..common.runs.len() {
                let (to, len) = common.runs[i];
                common
                    .memory
                    .scatter(to, &self.input[at..at + len as usize]);
                at += len as usize;
            }
        }
        sub.at = next;
        sub.moved += n as u64;
        Ok(())
    }

    fn answer(
        &mut self,
        id: u64,
        reply: DataReply,
        common: &mut Common<'_, '_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        if let Some(sub) = self.building.as_mut().filter(|s| s.id == id) {
            // The server answered early; the rest of the request must be sent nevertheless.
            sub.early = Some(reply);
            return Ok(());
        }
        let Some(at) = self.inflight.iter().position(|s| s.id == id) else {
            return Err(Broken::Protocol(format!("a reply to request {id}")));
        };
        let Some(sub) = self.inflight.remove(at) else {
            return Ok(());
        };
        self.finish(sub, reply, common, events)
    }

    fn finish(
        &mut self,
        mut sub: Sub,
        reply: DataReply,
        common: &mut Common<'_, '_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        let short = match reply {
            DataReply::Read { bytes } if !common.is_write() && bytes == sub.moved => {
                let (rest, _, _) = common.take_runs(self.server, sub.op, sub.at, 1, 1);
                (rest > 0).then_some(sub.at)
            }
            DataReply::Written { bytes } if common.is_write() && bytes == sub.moved => None,
            DataReply::UnknownLoop => {
                self.again(sub, true);
                return Ok(());
            }
            DataReply::Error(e) => match e.kind {
                ErrorKind::ExpiredCapability => {
                    self.needs_attach = true;
                    let inline = sub.inline;
                    self.again(sub, inline);
                    return Ok(());
                }
                ErrorKind::ShuttingDown | ErrorKind::Busy => {
                    // Unanswered, as far as the lane is concerned.
                    (sub.at, sub.moved) = (0, 0);
                    self.inflight.push_front(sub);
                    return Err(Broken::Leaving(e.message));
                }
                _ => {
                    self.weight -= sub.weight;
                    sub.over(e.kind.errno());
                    events.push(Event::Refused(e));
                    return Ok(());
                }
            },
            other => {
                return Err(Broken::Protocol(format!(
                    "{other:?} for a request of {} bytes",
                    sub.moved
                )));
            }
        };
        common.bytes += sub.moved;
        self.moved += sub.moved;
        sub.over(0);
        self.weight -= sub.weight;
        self.redone = 0;
        events.push(Event::Answered { op: sub.op, short });
        Ok(())
    }

    fn again(&mut self, mut sub: Sub, inline: bool) {
        (sub.at, sub.moved, sub.inline) = (0, 0, inline);
        if self.redo.is_empty() {
            self.redone += 1;
        }
        self.redo.push_back(sub);
    }
}

/// Requests that must be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redo {
    /// The file must be attached again first, with a fresh capability.
    pub attach: bool,
    /// How often in a row this happened.
    pub times: u32,
}

#[cfg(test)]
mod tests;
