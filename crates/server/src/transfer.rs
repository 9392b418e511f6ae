//! Moving bytes between a connection and an object, chunk by chunk.
//!
//! One reusable buffer per connection, at most [`CHUNK`] bytes, small enough to stay in the processor's cache between
//! socket and store. Small payloads never leave the connection's input buffer. A write holds its range only while it
//! accesses the store, never while it waits for the client. A client that stalls or dies in the middle of a write
//! affects nobody else, and the bytes it sent are written.
use crate::access::Access;
use crate::error::{Fail, refuse};
use crate::fetches::Fetch;
use crate::load::Cost;
use crate::locks::Ticket;
use crate::objects::{Objects, OpenObject};
use crate::owner::Owner;
use crate::queue::{Origin, RequestQueue};
use crate::tracing::Trail;
use crate::usage::Grower;
use penstock_base::Op;
use penstock_host::time::now;
use penstock_rpc::{Closer, Connection};
use penstock_sched::ledger::Program;
use penstock_store::{Object, Scratch};
use penstock_wire::Envelope;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, MAX_PREFETCH, WireError};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Bytes moved at once: a slice for the scheduler.
const CHUNK: usize = penstock_sched::SLICE as usize;

/// What a connection reuses from one transfer to the next; dropped when it has been idle.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    chunk: Vec<u8>,
    scratch: Scratch,
}

impl Buffers {
    fn get(&mut self, len: usize) -> (&mut [u8], &mut Scratch) {
        if self.chunk.len() < len {
            self.chunk.resize(len, 0);
        }
        (&mut self.chunk[..len], &mut self.scratch)
    }
}

/// What a transfer works on.
pub(crate) struct Transfer<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) object: &'a OpenObject,
    pub(crate) owner: Owner,
    pub(crate) line: &'a Closer,
    pub(crate) lock: Option<Ticket>,
    pub(crate) queue: &'a RequestQueue,
    pub(crate) file: u64,
    pub(crate) grower: Grower,
    /// What it leaves in the trace, if one is written.
    pub(crate) trail: Option<&'a RefCell<Trail>>,
    pub(crate) program: Program,
    /// What its slices cost so far.
    pub(crate) cost: Cell<Cost>,
}

impl Transfer<'_> {
    /// Sends the bytes of `access` in MORE frames and a last one with the status. Returns the bytes
    /// sent.
    pub(crate) fn read(
        &self,
        connection: &mut Connection,
        buffers: &mut Buffers,
        request: &Envelope,
        mut access: Access,
    ) -> Result<u64, Fail> {
        let answer = request.answer();
        let mut sent = 0u64;
        loop {
            let want = access.most().min(CHUNK as u64) as usize;
            let next = access.likely(want as u64);
            self.object
                .fetches
                .wait(self.program, &next, || !self.line.is_deserted());
            let filled = self.fill(request, &mut access, buffers, want)?;
            let chunk = &buffers.chunk;
            sent += filled as u64;
            if filled < want || access.done()? {
                let status = DataReply::Read { bytes: sent };
                connection.queue_payload(&answer, &status, &chunk[..filled])?;
                return Ok(sent);
            }
            connection.queue_continuation(&answer.more(true), &chunk[..filled])?;
        }
    }

    /// Reads the bytes of `access` and drops them: they are in the store's cache then. Ends early where the client has gone, and
    /// after [`MAX_PREFETCH`] bytes.
    pub(crate) fn prefetch(
        &self,
        buffers: &mut Buffers,
        request: &Envelope,
        mut access: Access,
        fetch: &Fetch<'_>,
    ) -> Result<(), WireError> {
        let mut fetched = 0;
        while fetched < MAX_PREFETCH && !self.line.is_deserted() {
            let want = access.most().min(CHUNK as u64) as usize;
            let filled = self.fill(request, &mut access, buffers, want)?;
            fetched += filled as u64;
            if filled < want || access.done()? {
                break;
            }
            fetch.reached(access.span(1).start);
        }
        Ok(())
    }

    /// Reads into the chunk. Fewer bytes than wanted: there are no more.
    fn fill(
        &self,
        request: &Envelope,
        access: &mut Access,
        buffers: &mut Buffers,
        want: usize,
    ) -> Result<usize, WireError> {
        let _turn = match self.lock {
            Some(lock) => Some(self.object.begin_read(self.owner, lock)?),
            None => None,
        };
        let object = self.objects.existing(self.object)?;
        if object.is_none() {
            return Ok(0);
        }
        buffers.get(want);
        let Buffers { chunk, scratch } = buffers;
        let at = self.trail.map(|_| access.span(want as u64).start);
        match &object {
            Some(object) if self.queue.is_on() => {
                let origin = self.origin(request, object);
                let (n, times) = self.queue.read(&origin, access, chunk, want, scratch)?;
                if let (Some(trail), Some(at)) = (self.trail, at) {
                    let mut trail = trail.borrow_mut();
                    trail.scheduled(Op::Read, at, n as u64, &times);
                }
                Ok(n)
            }
            object => self.stored(Op::Read, at, || {
                access.read(object.as_deref(), &mut chunk[..want], scratch)
            }),
        }
    }

    /// Accesses the store without the scheduler: at offset `at`, known where a trace is written.
    fn stored(
        &self,
        op: Op,
        at: Option<u64>,
        io: impl FnOnce() -> Result<usize, WireError>,
    ) -> Result<usize, WireError> {
        let began = now();
        let result = io();
        self.cost.set(self.cost.get().plus(Cost::of_store(began)));
        let n = result?;
        if let (Some(trail), Some(at)) = (self.trail, at) {
            trail.borrow_mut().stored(op, at, n as u64, began);
        }
        Ok(n)
    }

    fn origin<'o>(&'o self, request: &Envelope, object: &'o Arc<dyn Object>) -> Origin<'o> {
        Origin {
            trace: request.trace,
            file: self.file,
            object,
            cost: &self.cost,
        }
    }

    /// Takes the payload of this frame and of those that follow into `access`. In any case the whole request is read
    /// from the connection. Returns the bytes written.
    pub(crate) fn write(
        &self,
        connection: &mut Connection,
        buffers: &mut Buffers,
        request: &Envelope,
        mut access: Access,
    ) -> Result<u64, Fail> {
        let mut written = 0u64;
        let mut more = request.more;
        if let Err(e) = agree(&access, connection.payload_left() as u64, more) {
            skip_request(connection, request, more)?;
            return Err(e.into());
        }
        let result = loop {
            match self.take_frame(connection, buffers, request, &mut access, &mut written) {
                Ok(()) => {}
                Err(Fail::Reply(e)) => break Err(e),
                Err(gone) => return Err(gone),
            }
            if !more {
                break complete(&mut access, written);
            }
            more = next_frame(connection, request)?;
        };
        skip_request(connection, request, more)?;
        Ok(result.map(|()| written)?)
    }

    /// Writes the payload of one frame.
    fn take_frame(
        &self,
        connection: &mut Connection,
        buffers: &mut Buffers,
        request: &Envelope,
        access: &mut Access,
        written: &mut u64,
    ) -> Result<(), Fail> {
        if connection.payload_left() == 0 {
            return Ok(());
        }
        let object = self.objects.created(self.object, self.owner)?;
        while connection.payload_left() > 0 {
            let len = connection.payload_left().min(CHUNK);
            let whole = connection.payload_left() == len && connection.payload_is_buffered();
            if !whole {
                // Never hold a range while waiting for the client.
                connection.read_payload_into(&mut buffers.chunk, len)?;
            }
            let span = access.span(len as u64);
            // Without quotas this only reads a flag. Before the range is held, because it may wait.
            let usage = self.objects.usage();
            let _growing = usage.grow(self.grower, &object, span.end)?;
            let _turn = match self.object.try_begin_write(self.owner, &span, self.lock)? {
                Some(turn) => turn,
                None => {
                    // Answers must not wait with us.
                    connection.flush()?;
                    self.object
                        .begin_write(self.owner, self.line, &span, self.lock)?
                }
            };
            let Buffers { chunk, scratch } = buffers;
            let buffered = if whole {
                connection.buffered_payload()
            } else {
                None
            };
            let n = if self.queue.is_on() {
                let origin = self.origin(request, &object);
                let queue = self.queue;
                let (n, times) = queue.write(&origin, access, buffered, chunk, len, scratch)?;
                if let Some(trail) = self.trail {
                    let mut trail = trail.borrow_mut();
                    trail.scheduled(Op::Write, span.start, n as u64, &times);
                }
                n
            } else {
                let bytes = buffered.unwrap_or_else(|| &chunk[..len]);
                self.stored(Op::Write, Some(span.start), || {
                    access.write(&*object, bytes, scratch)
                })?
            };
            *written += n as u64;
            if n < len {
                return Err(Fail::Reply(refuse(
                    ErrorKind::InvalidArgument,
                    format!(
                        "the payload is longer than the access on this server, {written} bytes; those were written"
                    ),
                )));
            }
        }
        Ok(())
    }
}

/// The announced length must equal that of the pattern, as far as both are known before a byte is written.
fn agree(access: &Access, announced: u64, more: bool) -> Result<(), WireError> {
    let described = access.share().unwrap_or(u64::MAX);
    if announced <= described && (more || announced == described || access.share().is_none()) {
        return Ok(());
    }
    Err(refuse(
        ErrorKind::InvalidArgument,
        format!(
            "a payload of {announced} bytes for an access of {described} bytes on this server; nothing was written"
        ),
    ))
}

fn complete(access: &mut Access, written: u64) -> Result<(), WireError> {
    if access.done()? {
        return Ok(());
    }
    Err(refuse(
        ErrorKind::InvalidArgument,
        format!(
            "the payload ended after {written} bytes although the access has more on this server; they were written"
        ),
    ))
}

/// The next payload frame of the same request; whether more follow.
fn next_frame(connection: &mut Connection, request: &Envelope) -> Result<bool, Fail> {
    let frame = connection.receive::<DataRequest>()?;
    if frame.body.is_some() || frame.envelope.request != request.request {
        return Err(Fail::Connection(penstock_wire::Error::Malformed {
            peer: connection.peer().to_owned(),
            what: format!(
                "frame of request {} amid the payload of request {}",
                frame.envelope.request, request.request
            ),
        }));
    }
    Ok(frame.envelope.more)
}

/// Reads and drops the rest of a request.
pub(crate) fn skip_request(
    connection: &mut Connection,
    request: &Envelope,
    mut more: bool,
) -> Result<(), Fail> {
    while more {
        more = next_frame(connection, request)?;
    }
    Ok(connection.skip_payload()?)
}
