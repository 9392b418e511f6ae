//! The driver of one call's lanes: connections, sockets and time.
//!
//! One thread drives all lanes with `poll`. It gives operations to lanes with free capacity, and sends on every lane
//! until its socket is full. Then it waits until some socket is ready, and receives what has arrived. No other thread
//! is involved, so an exchange costs no thread and no extra wake-up.
//!
//! A lost connection is made again with back-off and its unanswered requests are repeated, until the retry limit has
//! passed without an answer. After an error the lanes are drained: requests in flight are answered before the call
//! returns. Connections then stay usable, and no request of a failed call is executed after the call has returned.
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::held_lock::HeldLock;
use crate::lane::{Broken, Event, Lane};
use crate::link::Link;
use crate::memory::{Memory, Stretch};
use crate::open_file::{Attaching, OpenFile};
use crate::operations::{Common, Op};
use crate::plan::{Cutter, FileRegions};
use crate::retry::{Next, Retry};
use crate::shortcut::Scratch;
use crate::stats::{Form, FormCounts};
use crate::unsynced::{Taken, merge};
use penstock_datatype::Pattern;
use penstock_host::net::poll;
use penstock_host::time::now;
use penstock_layout::ServerIndex;
use penstock_trace::{Layer, sink};
use penstock_wire::message::{LockId, TraceContext};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Operations whose end of file is resolved together.
const SHORT_BATCH: usize = 1024;
/// Times in a row that the requests of a lane may be sent again although the server is there.
const MAX_REDO: u32 = 4;

type Step<E> = fn(&mut E, usize, &mut Line) -> std::result::Result<(), Fault>;

struct Line {
    lane: Lane,
    /// A connection on which the file is being attached.
    attaching: Option<(Link, Option<LockId>, Attaching)>,
    link: Option<Link>,
    lock: Option<LockId>,
    retry: Retry,
    retry_at: Option<Instant>,
    last_failure: String,
    /// Last time that something moved.
    moved_at: Instant,
    readable: bool,
    /// The incarnation that takes what its connection writes, or took it before it broke.
    current: Taken,
    /// Those that have answered, and at most how many bytes there are.
    taken: Taken,
    bytes: u64,
}

/// One read or write call: any number of operations.
pub(crate) struct Exchange<'f, 'm, 'a> {
    pub(crate) file: &'f OpenFile,
    held: Option<&'f HeldLock>,
    form: Form,
    pub(crate) common: Common<'m, 'a>,
    lines: Vec<Option<Line>>,
    cutter: Cutter,
    /// Operations that come before the next of the cutter.
    pub(crate) ahead: VecDeque<(u64, FileRegions, bool)>,
    exhausted: bool,
    pub(crate) shorts: Vec<u32>,
    pub(crate) total: u64,
    operations: u64,
    direct: FormCounts,
    failed: Option<Error>,
    events: Vec<Event>,
    stretches: Vec<Stretch>,
    scratch: Scratch,
    touched: Vec<ServerIndex>,
    /// Offset in the file, for the trace.
    begins: u64,
}

impl<'f, 'm, 'a> Exchange<'f, 'm, 'a> {
    pub fn new(
        file: &'f OpenFile,
        held: Option<&'f HeldLock>,
        form: Form,
        memory: Memory<'m, 'a>,
        trace: TraceContext,
    ) -> Self {
        Exchange {
            file,
            held,
            form,
            common: Common::new(file.layout.clone(), memory, trace),
            lines: file.sites.iter().map(|_| None).collect(),
            cutter: Cutter::new(file.layout.clone(), form),
            ahead: VecDeque::new(),
            exhausted: false,
            shorts: Vec::new(),
            total: 0,
            operations: 0,
            direct: FormCounts::default(),
            failed: None,
            events: Vec::new(),
            stretches: Vec::new(),
            scratch: Scratch::default(),
            touched: Vec::new(),
            begins: 0,
        }
    }

    /// As a part of this call, which begins at offset `begins` of the file.
    pub fn of(mut self, call: Option<sink::Call>, begins: i64) -> Self {
        self.common.call = call;
        self.begins = begins.max(0).cast_unsigned();
        self
    }

    fn operation(&self) -> &'static str {
        if self.common.is_write() {
            "write"
        } else {
            "read"
        }
    }

    /// Runs all accesses; returns the stream bytes before the end of the file.
    pub fn run(mut self, accesses: &mut dyn Iterator<Item = (u64, Pattern)>) -> Result<u64> {
        loop {
            for i in 0..self.lines.len() {
                self.advance(i, Self::take);
            }
            self.feed(accesses);
            // All servers are asked to attach the file before one answers.
            for i in 0..self.lines.len() {
                self.advance(i, Self::connect);
            }
            for i in 0..self.lines.len() {
                self.advance(i, Self::give);
            }
            if self.lines.iter().flatten().any(|l| l.lane.is_busy()) {
                self.wait();
                continue;
            }
            if self.failed.is_some() {
                break;
            }
            if !self.shorts.is_empty() && (self.exhausted || self.shorts.len() >= SHORT_BATCH) {
                self.release();
                if let Err(e) = self.resolve() {
                    self.failed = Some(e);
                }
            } else if self.exhausted && self.ahead.is_empty() {
                break;
            }
        }
        self.release();
        self.account();
        if let Some(call) = self.common.call.take() {
            let direct = self.direct.bytes_read + self.direct.bytes_written;
            call.end(sink::Outcome {
                offset: self.begins,
                bytes: self.common.bytes + direct,
                error: self.failed.as_ref().map_or(0, Error::errno),
            });
        }
        match self.failed {
            Some(e) => Err(e),
            None => Ok(self.total),
        }
    }

    fn account(&self) {
        let form = match self.form {
            Form::Shortcut => Form::Structured,
            form => form,
        };
        let write = self.common.is_write();
        let counts = |bytes: u64, operations, requests| FormCounts {
            operations,
            requests,
            bytes_read: if write { 0 } else { bytes },
            bytes_written: if write { bytes } else { 0 },
        };
        let requested = self.operations - self.direct.operations;
        for counters in self.file.counters() {
            counters.add(
                form,
                counts(self.common.bytes, requested, self.common.requests),
            );
            counters.add(Form::Shortcut, self.direct);
            counters.loops_sent(self.common.loops_sent);
            for (server, line) in self.file.layout.servers.iter().zip(&self.lines) {
                if let Some(Line { lane, .. }) = line {
                    counters.served(*server, lane.requests, lane.moved, write);
                }
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
        self.ahead.clear();
        for line in self.lines.iter_mut().flatten() {
            line.lane.abandon(line.link.is_some());
        }
    }

    // ---- operations ----

    fn feed(&mut self, accesses: &mut dyn Iterator<Item = (u64, Pattern)>) {
        while self.failed.is_none() && self.shorts.len() < SHORT_BATCH {
            if self.ahead.is_empty() {
                match self.next_shape(accesses) {
                    Ok(Some((memory, shape))) => self.ahead.push_back((memory, shape, false)),
                    Ok(None) => {
                        self.exhausted = true;
                        return;
                    }
                    Err(e) => return self.fail(e),
                }
            }
            let Some((memory, shape, refill)) = self.ahead.pop_front() else {
                return;
            };
            let mut touched = std::mem::take(&mut self.touched);
            touched.clear();
            shape.touched(&self.common.layout, |i| touched.push(i));
            let full = touched.iter().any(|i| {
                self.lines[i.0 as usize]
                    .as_mut()
                    .is_some_and(|l| !l.lane.is_open())
            });
            if full {
                self.ahead.push_front((memory, shape, refill));
            } else {
                self.begin(memory, shape, refill, &touched);
            }
            self.touched = touched;
            if full {
                return;
            }
        }
    }

    fn next_shape(
        &mut self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
    ) -> Result<Option<(u64, FileRegions)>> {
        loop {
            if let Some(next) = self.cutter.next()? {
                return Ok(Some(next));
            }
            let Some((memory, access)) = accesses.next() else {
                return Ok(None);
            };
            let end = memory.checked_add(access.len);
            if end.is_none_or(|end| end > self.common.memory.len()) {
                return Err(Error::Invalid(format!(
                    "{} of {}: {} bytes at position {memory} of a memory pattern of {} bytes",
                    self.operation(),
                    self.file.path,
                    access.len,
                    self.common.memory.len()
                )));
            }
            if access.len > 0 && access.bounds().0 < 0 {
                return Err(Error::Invalid(format!(
                    "{} of {}: negative file offset {}",
                    self.operation(),
                    self.file.path,
                    access.bounds().0
                )));
            }
            self.cutter.put(memory, access);
        }
    }

    fn begin(&mut self, memory: u64, shape: FileRegions, refill: bool, touched: &[ServerIndex]) {
        if touched.is_empty() {
            return;
        }
        if !refill {
            self.operations += 1;
        }
        let len = shape.len();
        let weight = len / touched.len() as u64 + 1;
        let op = self.common.ops.add(Op {
            shape,
            memory,
            pending: touched.len() as u32,
            short: Vec::new(),
            refill,
        });
        let mut direct = 0;
        for &server in touched {
            if self.form == Form::Shortcut && self.held.is_none() {
                match self.shortcut(op, server) {
                    Ok(true) => {
                        direct += 1;
                        continue;
                    }
                    Ok(false) => {}
                    Err(e) => return self.fail(e),
                }
            }
            let line = &mut self.lines[server.0 as usize];
            let line = line.get_or_insert_with(|| Line {
                lane: Lane::new(server, self.file.sites[server.0 as usize].known.clone()),
                attaching: None,
                link: None,
                lock: None,
                retry: Retry::new(self.file.client.backoff()),
                retry_at: None,
                last_failure: String::new(),
                moved_at: now(),
                readable: false,
                current: 0,
                taken: 0,
                bytes: 0,
            });
            line.lane.push(op, weight);
            line.bytes += len;
        }
        if direct == touched.len() && !refill {
            self.direct.operations += 1;
        }
    }

    /// Moves the operation's bytes on one server through a descriptor, if one is granted.
    fn shortcut(&mut self, op: u32, server: ServerIndex) -> Result<bool> {
        let write = self.common.is_write();
        let stored = self.common.below(op, server, Layer::Store, write);
        let at = self.common.ops.get(op);
        let done = self.file.direct(
            server,
            &at.shape,
            at.memory,
            &mut self.common.memory,
            &mut self.scratch,
            self.common.trace,
        )?;
        let Some(done) = done else {
            return Ok(false);
        };
        if let Some((call, offset)) = stored {
            call.end(sink::Outcome {
                offset,
                bytes: done.bytes,
                error: 0,
            });
        }
        self.direct.requests += 1;
        if self.common.is_write() {
            self.direct.bytes_written += done.bytes;
        } else {
            self.direct.bytes_read += done.bytes;
        }
        self.answered(op, server, done.short);
        Ok(true)
    }

    fn answered(&mut self, op: u32, server: ServerIndex, short: Option<u64>) {
        let state = self.common.ops.get(op);
        state.pending -= 1;
        if let Some(at) = short {
            state.short.push((server, at));
        }
        if state.pending > 0 {
            return;
        }
        let whole = state.short.is_empty()
            && (state.refill
                || self.common.is_write()
                || self.common.ops.get(op).shape.is_ascending());
        if !whole {
            self.shorts.push(op);
            return;
        }
        let op = self.common.ops.remove(op);
        if !op.refill {
            self.total += op.shape.len();
        }
    }

    // ---- connections ----

    /// Gives all connections back. Those with something on the way are closed.
    fn release(&mut self) {
        for i in 0..self.lines.len() {
            let Some(line) = &mut self.lines[i] else {
                continue;
            };
            // After an error the caller can rely on nothing: what was answered nevertheless is recorded too.
            if self.common.is_write() && line.taken != 0 {
                self.file.notes[i].wrote(line.taken, line.bytes);
                (line.taken, line.bytes) = (0, 0);
            }
            let (link, lock, clean) = if let Some(mut link) = line.link.take() {
                let clean = !line.lane.is_outstanding();
                link.restore(line.lane.disconnect(), clean);
                (link, line.lock, clean)
            } else if let Some((mut link, lock, begun)) = line.attaching.take() {
                // Another server has failed meanwhile. The connection may hold a lock.
                let trace = self.common.trace;
                let clean = self.file.end_attach(&mut link, trace, begun).is_ok();
                (link, lock, clean)
            } else {
                continue;
            };
            match self.held.filter(|_| lock.is_some()) {
                Some(held) if clean => held.put(i, link),
                Some(held) => held.lost(i),
                None if clean => self.file.sites[i].put(link),
                None => {}
            }
        }
    }

    /// Lets one line take a step, and deals with what came of it.
    fn advance(&mut self, i: usize, step: Step<Self>) {
        let Some(mut line) = self.lines[i].take() else {
            return;
        };
        if line.lane.is_busy()
            && let Err(fault) = step(self, i, &mut line)
        {
            self.handle(i, &mut line, fault);
        }
        self.lines[i] = Some(line);
        let server = ServerIndex(i as u32);
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Answered { op, short } => {
                    if let Some(line) = &mut self.lines[i] {
                        line.taken = merge(line.taken, line.current);
                    }
                    self.answered(op, server, short);
                }
                Event::Refused(source) => {
                    let peer = self.file.sites[i].peer.clone();
                    let operation = self.operation();
                    self.fail(Error::Refused {
                        peer,
                        operation,
                        source,
                    });
                }
            }
        }
        self.events = events;
        if self.failed.is_some()
            && let Some(line) = &mut self.lines[i]
        {
            line.lane.abandon(line.link.is_some());
        }
    }

    /// Receives what has arrived.
    fn take(&mut self, i: usize, line: &mut Line) -> std::result::Result<(), Fault> {
        if line.link.is_some() && std::mem::take(&mut line.readable) {
            self.receive(i, line)?;
        }
        Ok(())
    }

    /// Sends what can be sent, on a new connection if needed.
    fn give(&mut self, i: usize, line: &mut Line) -> std::result::Result<(), Fault> {
        self.attach(line)?;
        if line.link.is_none() {
            return Ok(());
        }
        if let Some(redo) = line.lane.wants_redo() {
            if redo.times > MAX_REDO {
                return Err(Fault::Final(Error::Protocol {
                    peer: self.file.sites[i].peer.clone(),
                    operation: self.operation(),
                    detail: format!(
                        "the same requests were refused {} times (capability or loop)",
                        redo.times
                    ),
                }));
            }
            if let (true, Some(link)) = (redo.attach, &mut line.link) {
                let handle = self.file.attach_again(link, self.common.trace)?;
                line.lane.attached(handle, line.lock);
            } else {
                line.lane.redo();
            }
        }
        self.send(i, line)
    }

    /// Makes a connection if there is none and it is time, and begins to attach the file on it.
    fn connect(&mut self, i: usize, line: &mut Line) -> std::result::Result<(), Fault> {
        if line.link.is_some() || line.retry_at.is_some_and(|at| now() < at) {
            return Ok(());
        }
        let operation = self.operation();
        let pinned = match self.held {
            Some(held) => held.take(i, operation)?,
            None => None,
        };
        let (mut link, lock) = match pinned {
            Some((link, lock)) => (link, Some(lock)),
            None => (self.file.sites[i].connect(operation)?, None),
        };
        let begun = self.file.begin_attach(&mut link, self.common.trace)?;
        line.attaching = Some((link, lock, begun));
        Ok(())
    }

    /// Ends to attach the file.
    fn attach(&mut self, line: &mut Line) -> std::result::Result<(), Fault> {
        let Some((mut link, lock, begun)) = line.attaching.take() else {
            return Ok(());
        };
        let handle = self.file.end_attach(&mut link, self.common.trace, begun)?;
        let (next, buffers) = link.lend();
        line.lane.connected(link.version(), next, buffers);
        line.lane.attached(handle, lock);
        line.lock = lock;
        line.current = self.file.taken(&link);
        line.link = Some(link);
        line.moved_at = now();
        line.retry_at = None;
        Ok(())
    }

    fn handle(&mut self, i: usize, line: &mut Line, fault: Fault) {
        let site = &self.file.sites[i];
        let had_link = line.link.take().is_some();
        match fault {
            Fault::Final(e) => {
                line.lane.abandon(false);
                self.fail(e);
            }
            Fault::Away(detail) => {
                if had_link {
                    site.lost();
                    for counters in self.file.counters() {
                        counters.reconnected();
                    }
                    log::info!("{}: {detail}; connecting again", site.peer);
                }
                if let Some(held) = self.held.filter(|_| line.lock.is_some()) {
                    // The server has released the lock: its range is no longer protected.
                    held.lost(i);
                    line.lane.abandon(false);
                    let e = held.lost_error(self.operation(), i);
                    return self.fail(e);
                }
                line.lane.lost();
                match line.retry.failed(now()) {
                    Next::TryAt(at) => {
                        line.retry_at = Some(at);
                        line.last_failure = detail;
                    }
                    Next::GiveUp { tried } => {
                        line.lane.abandon(false);
                        let peer = site.peer.clone();
                        let operation = self.operation();
                        self.fail(Error::Unreachable {
                            peer,
                            operation,
                            detail,
                            tried,
                        });
                    }
                }
            }
        }
    }

    fn broken(&self, i: usize, broken: Broken) -> Fault {
        match broken {
            Broken::Leaving(detail) => Fault::Away(detail),
            Broken::Protocol(detail) => Fault::Final(Error::Protocol {
                peer: self.file.sites[i].peer.clone(),
                operation: self.operation(),
                detail,
            }),
        }
    }

    fn send(&mut self, i: usize, line: &mut Line) -> std::result::Result<(), Fault> {
        if let Some(link) = &mut line.link {
            match link.push_some() {
                Ok(()) => {}
                Err(e) if would_wait(&e) => return Ok(()),
                Err(e) => return Err(Fault::Away(format!("sending: {e}"))),
            }
        }
        loop {
            line.lane
                .fill(&mut self.common, &mut self.events)
                .map_err(|b| self.broken(i, b))?;
            line.lane.outgoing(&mut self.stretches);
            let Some(link) = &mut line.link else {
                return Ok(());
            };
            if self.stretches.is_empty() {
                return Ok(());
            }
            match link.send_some(&self.stretches) {
                Ok(n) => {
                    line.lane.sent(n);
                    line.moved_at = now();
                }
                Err(e) if would_wait(&e) => return Ok(()),
                Err(e) => return Err(Fault::Away(format!("sending: {e}"))),
            }
        }
    }

    fn receive(&mut self, i: usize, line: &mut Line) -> std::result::Result<(), Fault> {
        loop {
            line.lane.incoming(&mut self.common, &mut self.stretches);
            let Some(link) = &mut line.link else {
                return Ok(());
            };
            let room: usize = self.stretches.iter().map(|s| s.len).sum();
            match link.receive_some(&self.stretches) {
                Ok(0) => {
                    return Err(Fault::Away("the server closed the connection".into()));
                }
                Ok(n) => {
                    line.moved_at = now();
                    line.retry.progress();
                    line.lane
                        .received(n, &mut self.common, &mut self.events)
                        .map_err(|b| self.broken(i, b))?;
                    if n < room || !line.lane.is_outstanding() {
                        return Ok(());
                    }
                }
                Err(e) if would_wait(&e) => return Ok(()),
                Err(e) => return Err(Fault::Away(format!("receiving: {e}"))),
            }
        }
    }

    /// Waits until a socket is ready, a connection may be retried, or the time limit ends.
    fn wait(&mut self) {
        let began = now();
        let patience = self.file.client.options().answer_timeout;
        let mut until = began + patience;
        let mut order = Vec::with_capacity(self.lines.len());
        let mut fds = Vec::with_capacity(self.lines.len());
        for (i, line) in self.lines.iter().enumerate() {
            let Some(line) = line.as_ref().filter(|l| l.lane.is_busy()) else {
                continue;
            };
            match &line.link {
                Some(link) => {
                    if !line.lane.is_outstanding() {
                        // It has something to do at once.
                        until = began;
                    }
                    let mut flags = PollFlags::IN;
                    if line.lane.is_sending() || link.is_pending() {
                        flags |= PollFlags::OUT;
                    }
                    fds.push(PollFd::from_borrowed_fd(link.fd(), flags));
                    order.push(i);
                    until = until.min(line.moved_at + patience);
                }
                None => until = until.min(line.retry_at.unwrap_or(began)),
            }
        }
        let left = until.saturating_duration_since(began);
        // An interrupted or failed poll only means looking again.
        let ready = poll(&mut fds, Some(left)).unwrap_or(0);
        let readable: Vec<bool> = fds
            .iter()
            .map(|fd| !(fd.revents() & !PollFlags::OUT).is_empty())
            .collect();
        drop(fds);
        let ended = now();
        let waited = ended - began;
        let mut late = None;
        for (&i, readable) in order.iter().zip(readable) {
            for counters in self.file.counters() {
                counters.waited(self.file.layout.servers[i], waited);
            }
            if let Some(line) = &mut self.lines[i] {
                line.readable = readable;
                if ready == 0 && ended.duration_since(line.moved_at) >= patience {
                    late = Some(i);
                }
            }
        }
        if let Some(i) = late {
            self.timed_out(i, patience);
        }
    }

    /// A server that holds a connection but does not answer. The request may still be executed later, so a write is not
    /// repeated elsewhere, and the caller must know.
    fn timed_out(&mut self, i: usize, waited: Duration) {
        let error = Error::Timeout {
            peer: self.file.sites[i].peer.clone(),
            operation: self.operation(),
            waited,
        };
        if let Some(line) = &mut self.lines[i] {
            line.link = None;
            line.lane.abandon(false);
        }
        self.fail(error);
    }
}

/// Not now; an interrupted call is repeated when the socket is looked at again.
fn would_wait(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, WouldBlock};
    matches!(e.kind(), WouldBlock | Interrupted)
}
