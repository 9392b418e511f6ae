//! Moving bytes between a connection and an object, chunk by chunk.
//!
//! One reusable buffer per connection, at most [`CHUNK`] bytes, small enough to stay in the processor's cache
//! between socket and store. Small payloads never leave the connection's input buffer. A write holds its range
//! only while it touches the store, never while it waits for the client: a client that stalls or dies in the middle of
//! a write disturbs nobody and leaves what it sent.
use crate::access::{Access, Run};
use crate::error::{Fail, refuse, store_error};
use crate::locks::{Owner, Ticket};
use crate::objects::{Objects, OpenObject};
use penstock_layout::ObjectOffset;
use penstock_store::Object;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, WireError};
use penstock_wire::{Connection, Envelope};

/// Bytes moved at once.
pub(crate) const CHUNK: usize = 256 << 10;

/// The reusable buffer of a connection.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    fn get(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len {
            self.0.resize(len, 0);
        }
        &mut self.0[..len]
    }

    /// Gives the memory back.
    pub(crate) fn shrink(&mut self) {
        self.0 = Vec::new();
    }
}

/// What a transfer works on.
pub(crate) struct Transfer<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) object: &'a OpenObject,
    pub(crate) owner: Owner,
    pub(crate) lock: Option<Ticket>,
}

impl Transfer<'_> {
    /// Sends the bytes of `access` in MORE frames and a last one with the status. Returns the bytes sent.
    pub(crate) fn read(
        &self,
        connection: &mut Connection,
        buffer: &mut Buffer,
        request: &Envelope,
        mut access: Access,
    ) -> Result<u64, Fail> {
        let answer = request.answer();
        let mut sent = 0u64;
        loop {
            let want = access
                .single()
                .map_or(CHUNK, |left| left.min(CHUNK as u64) as usize);
            let chunk = buffer.get(want);
            let (filled, ended) = self.fill(&mut access, chunk)?;
            sent += filled as u64;
            if ended || access.done() {
                let status = DataReply::Read { bytes: sent };
                connection.queue_payload(&answer, &status, &chunk[..filled])?;
                return Ok(sent);
            }
            connection.queue_continuation(&answer.more(true), &chunk[..filled])?;
        }
    }

    /// Reads runs into `chunk`. True when the object ended.
    fn fill(&self, access: &mut Access, chunk: &mut [u8]) -> Result<(usize, bool), WireError> {
        let _turn = match self.lock {
            Some(lock) => Some(self.object.begin_read(self.owner, lock)?),
            None => None,
        };
        let object = self.objects.existing(self.object)?;
        let mut filled = 0;
        while filled < chunk.len() {
            let Some(run) = access.take((chunk.len() - filled) as u64) else {
                break;
            };
            let into = &mut chunk[filled..filled + run.len as usize];
            let got = match object {
                Some(object) => object
                    .read_at(ObjectOffset(run.at), into)
                    .map_err(store_error)?,
                None => 0,
            };
            if got < into.len() && access.monotone() {
                return Ok((filled + got, true));
            }
            // Later runs may lie before the end again: what is missing here reads as a hole.
            into[got..].fill(0);
            filled += run.len as usize;
        }
        Ok((filled, false))
    }

    /// Takes the payload of this frame and of those that follow into `access`. However it goes, the whole
    /// request is taken off the connection. Returns the bytes written.
    pub(crate) fn write(
        &self,
        connection: &mut Connection,
        buffer: &mut Buffer,
        request: &Envelope,
        mut access: Access,
    ) -> Result<u64, Fail> {
        let mut written = 0u64;
        let mut more = request.more;
        let result = loop {
            match self.take_frame(connection, buffer, &mut access, &mut written) {
                Ok(()) => {}
                Err(Fail::Reply(e)) => break Err(e),
                Err(gone) => return Err(gone),
            }
            if !more {
                break self.complete(&access, written);
            }
            more = next_frame(connection, request)?;
        };
        skip_request(connection, request, more)?;
        Ok(result.map(|()| written)?)
    }

    fn complete(&self, access: &Access, written: u64) -> Result<(), WireError> {
        if access.done() {
            return Ok(());
        }
        Err(refuse(
            ErrorKind::InvalidArgument,
            format!(
                "the payload ended after {written} bytes although the access has more on this server; they were written"
            ),
        ))
    }

    /// Writes the payload of one frame.
    fn take_frame(
        &self,
        connection: &mut Connection,
        buffer: &mut Buffer,
        access: &mut Access,
        written: &mut u64,
    ) -> Result<(), Fail> {
        if connection.payload_left() == 0 {
            return Ok(());
        }
        let object = self.objects.created(self.object)?;
        while connection.payload_left() > 0 {
            let len = connection.payload_left().min(CHUNK);
            let span = access.span(len as u64);
            let whole = connection.payload_left() == len && connection.payload_is_buffered();
            if !whole {
                // Never hold a range while waiting for the client.
                connection.read_payload(buffer.get(len))?;
            }
            let _turn = match self.object.try_begin_write(self.owner, &span, self.lock)? {
                Some(turn) => turn,
                None => {
                    // Answers must not wait with us.
                    connection.flush()?;
                    self.object.begin_write(self.owner, &span, self.lock)?
                }
            };
            let bytes = match whole {
                true => connection.buffered_payload().unwrap_or_default(),
                false => &buffer.get(len)[..],
            };
            put(&**object, access, bytes, written)?;
        }
        Ok(())
    }
}

/// Writes `bytes` to the next runs.
fn put(
    object: &dyn Object,
    access: &mut Access,
    mut bytes: &[u8],
    written: &mut u64,
) -> Result<(), WireError> {
    while !bytes.is_empty() {
        let Some(Run { at, len }) = access.take(bytes.len() as u64) else {
            return Err(refuse(
                ErrorKind::InvalidArgument,
                format!(
                    "the payload is longer than the access on this server, {written} bytes; those were written"
                ),
            ));
        };
        let (now, later) = bytes.split_at(len as usize);
        object
            .write_at(ObjectOffset(at), now)
            .map_err(store_error)?;
        *written += len;
        bytes = later;
    }
    Ok(())
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

/// Takes what is left of a request off the connection.
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
