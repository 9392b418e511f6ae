//! Sends frames: collected in the output buffer, or written at once with their payload or descriptors.
use super::{COPY_BELOW, Connection, MAX_SLICES, OUTPUT};
use crate::closer::Socket;
use penstock_host::net;
use penstock_wire::frame::{self, FrameError, MAX_DESCRIPTORS};
use penstock_wire::{Envelope, Result};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

impl Connection {
    /// Puts a frame without payload into the output buffer.
    pub fn queue<B: Serialize>(&mut self, envelope: &Envelope, body: &B) -> Result<()> {
        self.append(envelope, Some(body), 0, 0)?;
        self.flush_if_full()
    }

    /// The same with a payload. A large payload is written at once, after everything that was queued.
    pub fn queue_payload<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: &B,
        payload: &[u8],
    ) -> Result<()> {
        self.append(envelope, Some(body), payload.len(), 0)?;
        self.put(payload)
    }

    /// A frame without body: further payload of the same request or reply.
    pub fn queue_continuation(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<()> {
        self.append::<()>(envelope, None, payload.len(), 0)?;
        self.put(payload)
    }

    /// Like [`Connection::queue_payload`], with the payload gathered from several buffers (`None` body: continuation).
    pub fn queue_gathered<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: Option<&B>,
        payload: &[&[u8]],
    ) -> Result<()> {
        let len = payload.iter().map(|p| p.len()).sum();
        self.append(envelope, body, len, 0)?;
        if len <= COPY_BELOW {
            for part in payload {
                self.output.extend_from_slice(part);
            }
            return self.flush_if_full();
        }
        // The first write includes queued frames; the rest is in the caller's memory.
        let mut groups = payload.chunks(MAX_SLICES);
        let first = groups.next().unwrap_or(&[]);
        let output = std::mem::take(&mut self.output);
        let mut slices = Vec::with_capacity(first.len() + 1);
        slices.push(IoSlice::new(&output));
        slices.extend(first.iter().map(|p| IoSlice::new(p)));
        let mut sent = self.transmit(&mut slices);
        for group in groups {
            if sent.is_err() {
                break;
            }
            let mut slices: Vec<_> = group.iter().map(|p| IoSlice::new(p)).collect();
            sent = self.transmit(&mut slices);
        }
        self.reuse_output(output);
        sent
    }

    /// Sends a frame with descriptors (Unix sockets).
    pub fn send_descriptors<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: &B,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<()> {
        // The descriptors must accompany the first byte of their own frame.
        self.flush()?;
        self.append(envelope, Some(body), 0, descriptors.len())?;
        let output = std::mem::take(&mut self.output);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(self.frame_error(FrameError::TooLarge {
                what: "descriptors",
                size: descriptors.len(),
                limit: MAX_DESCRIPTORS,
            }));
        }
        let sent = loop {
            let slices = [IoSlice::new(&output)];
            match rustix::net::sendmsg(&self.socket, &slices, &mut control, SendFlags::NOSIGNAL) {
                Ok(n) => break n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.send_error(e)),
            }
        };
        let rest = self.transmit(&mut [IoSlice::new(&output[sent..])]);
        self.reuse_output(output);
        rest
    }

    /// Writes everything that was queued.
    pub fn flush(&mut self) -> Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let sent = self.transmit(&mut [IoSlice::new(&output)]);
        self.reuse_output(output);
        sent
    }

    fn append<B: Serialize>(
        &mut self,
        envelope: &Envelope,
        body: Option<&B>,
        payload_len: usize,
        descriptors: usize,
    ) -> Result<()> {
        frame::append(
            &mut self.output,
            self.version,
            envelope,
            body,
            payload_len,
            descriptors,
            &self.limits,
        )
        .map_err(|e| self.frame_error(e))
    }

    fn put(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() <= COPY_BELOW {
            self.output.extend_from_slice(payload);
            return self.flush_if_full();
        }
        let output = std::mem::take(&mut self.output);
        let sent = self.transmit(&mut [IoSlice::new(&output), IoSlice::new(payload)]);
        self.reuse_output(output);
        sent
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.output.len() >= OUTPUT {
            self.flush()?;
        }
        Ok(())
    }

    /// Keeps the output buffer's memory for the next frames, unless a large body enlarged it.
    fn reuse_output(&mut self, mut output: Vec<u8>) {
        if output.capacity() <= 2 * OUTPUT {
            output.clear();
            self.output = output;
        }
    }

    fn transmit(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        // Without empty slices, which would make a write of nothing look like progress.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let sent = match &mut self.tls {
                None => send(&self.socket, slices, self.timeouts.write)
                    .map_err(|e| self.send_error(e))?,
                Some(tls) => {
                    let taken = tls.encrypt(slices).map_err(|e| self.session_error(e))?;
                    self.push_all()?;
                    taken
                }
            };
            IoSlice::advance_slices(&mut slices, sent);
        }
        Ok(())
    }

    /// Writes all pending records of a TLS session.
    pub(super) fn push_all(&mut self) -> Result<()> {
        let (socket, limit) = (self.socket.clone(), self.timeouts.write);
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_pending()) {
            tls.push(|records| Ok(send(&socket, records, limit)?))
                .map_err(|e| self.send_error(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
        }
        Ok(())
    }
}

/// Sends some of these bytes, after waiting for space.
fn send(
    socket: &Socket,
    slices: &[IoSlice<'_>],
    limit: Option<Duration>,
) -> rustix::io::Result<usize> {
    loop {
        let sent = if let [one] = slices {
            rustix::net::send(socket, one, SendFlags::NOSIGNAL)
        } else {
            let mut control = SendAncillaryBuffer::default();
            rustix::net::sendmsg(socket, slices, &mut control, SendFlags::NOSIGNAL)
        };
        match sent {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if penstock_host::simulated() => {
                net::ready(socket.as_fd(), PollFlags::OUT, limit)?;
            }
            sent => return sent,
        }
    }
}
