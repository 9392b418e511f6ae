//! Frames: the form of one message on a socket.
//!
//! A frame is a fixed header, a body (one postcard message) and a separate payload (file bytes):
//!
//! ```text
//!  0 magic u32   4 version u16   6 flags u16   8 request u64   16 body_len u32   20 payload_len u32
//! 24 program u64   32 rank u32   36 descriptors u16   38 waits_on u16   40 mpi_call u64   48 client_call u64   56 body…
//! ```
//!
//! All integers are little-endian. `waits_on` is one more than the number of a CPU (`crates/rpc/src/cpu_affinity.rs`); 0:
//! none. The payload is never encoded: it goes from the caller's memory to the socket and from the socket into the
//! caller's memory. A transfer of more than [`MAX_PAYLOAD`] bytes is several frames of one request id. All but the last
//! carry `MORE`, and all but the one with the message have an empty body.
//!
//! Everything here is pure functions on bytes. Lengths are checked against [`Limits`] before anything is allocated.
use crate::message::{MAX_BODY, MAX_PAYLOAD, TraceContext};
use serde::{Serialize, de::DeserializeOwned};

/// First four bytes of each frame: "PSTK".
pub const MAGIC: u32 = u32::from_le_bytes(*b"PSTK");
/// Protocol version of this release.
pub const VERSION: u16 = 12;
/// Oldest version that this release accepts.
pub const OLDEST_VERSION: u16 = 12;
/// Version number of handshake frames; their form never changes.
pub const HANDSHAKE_VERSION: u16 = 0;
/// Bytes of a header.
pub const HEADER_LEN: usize = 56;
/// Most descriptors with one frame.
pub const MAX_DESCRIPTORS: usize = 4;

const FLAG_MORE: u16 = 1;
const FLAG_REPLY: u16 = 2;

/// What a receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of a payload.
    pub payload: usize,
}

impl Limits {
    /// Between authenticated peers.
    pub const FULL: Limits = Limits {
        body: MAX_BODY,
        payload: MAX_PAYLOAD,
    };
    /// Before the handshake has ended: an unauthenticated peer can cause no large allocation.
    pub const HANDSHAKE: Limits = Limits {
        body: 4096,
        payload: 0,
    };
}

/// The part of a header that concerns the message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Chosen by the client; replies carry the request's.
    pub request: u64,
    /// More frames of this request or reply follow.
    pub more: bool,
    /// This frame answers the request.
    pub reply: bool,
    /// Where the request comes from.
    pub trace: TraceContext,
    /// The CPU on which the sender waits for the answer, if it does nothing else meanwhile.
    pub waits_on: Option<u16>,
}

impl Envelope {
    /// A single-frame request.
    pub fn request(request: u64, trace: TraceContext) -> Envelope {
        Envelope {
            request,
            more: false,
            reply: false,
            trace,
            waits_on: None,
        }
    }

    /// A single-frame (or last) reply to this request.
    pub fn answer(&self) -> Envelope {
        Envelope {
            more: false,
            reply: true,
            waits_on: None,
            ..*self
        }
    }

    /// The same with `MORE` set or cleared as given.
    pub fn more(self, more: bool) -> Envelope {
        Envelope { more, ..self }
    }
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Protocol version of the frame.
    pub version: u16,
    /// Request id, flags, trace context.
    pub envelope: Envelope,
    /// Bytes of the body.
    pub body_len: usize,
    /// Bytes of the payload.
    pub payload_len: usize,
    /// Number of descriptors with the frame (Unix sockets).
    pub descriptors: usize,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not Penstock's protocol.
    #[error("{0}")]
    Malformed(String),
    /// A frame of another protocol version.
    #[error("frame of protocol version {found}, expected {expected}")]
    Version {
        /// In the frame.
        found: u16,
        /// Agreed in the handshake.
        expected: u16,
    },
    /// A length beyond the limits.
    #[error("{what} of {size} bytes, limit {limit}")]
    TooLarge {
        /// "body" or "payload".
        what: &'static str,
        /// Announced bytes.
        size: usize,
        /// Allowed bytes.
        limit: usize,
    },
}

fn u16_at(b: &[u8; HEADER_LEN], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn u32_at(b: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
fn u64_at(b: &[u8; HEADER_LEN], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

impl Header {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut b = [0u8; HEADER_LEN];
        let e = &self.envelope;
        let flags = if e.more { FLAG_MORE } else { 0 } | if e.reply { FLAG_REPLY } else { 0 };
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..6].copy_from_slice(&self.version.to_le_bytes());
        b[6..8].copy_from_slice(&flags.to_le_bytes());
        b[8..16].copy_from_slice(&e.request.to_le_bytes());
        b[16..20].copy_from_slice(&(self.body_len as u32).to_le_bytes());
        b[20..24].copy_from_slice(&(self.payload_len as u32).to_le_bytes());
        b[24..32].copy_from_slice(&e.trace.program.to_le_bytes());
        b[32..36].copy_from_slice(&e.trace.rank.to_le_bytes());
        b[36..38].copy_from_slice(&(self.descriptors as u16).to_le_bytes());
        let waits_on = e.waits_on.and_then(|cpu| cpu.checked_add(1)).unwrap_or(0);
        b[38..40].copy_from_slice(&waits_on.to_le_bytes());
        b[40..48].copy_from_slice(&e.trace.mpi_call.to_le_bytes());
        b[48..56].copy_from_slice(&e.trace.client_call.to_le_bytes());
        b
    }

    /// Parses a header; refuses another version, unknown flags and lengths beyond `limits`.
    pub fn decode(
        b: &[u8; HEADER_LEN],
        version: u16,
        limits: &Limits,
    ) -> Result<Header, FrameError> {
        let magic = u32_at(b, 0);
        if magic != MAGIC {
            return Err(FrameError::Malformed(format!(
                "starts with {magic:#010x} instead of a frame; is this a Penstock server and port?"
            )));
        }
        let found = u16_at(b, 4);
        if found != version {
            return Err(FrameError::Version {
                found,
                expected: version,
            });
        }
        let flags = u16_at(b, 6);
        if flags & !(FLAG_MORE | FLAG_REPLY) != 0 {
            return Err(FrameError::Malformed(format!("unknown flags {flags:#06x}")));
        }
        let header = Header {
            version: found,
            envelope: Envelope {
                request: u64_at(b, 8),
                more: flags & FLAG_MORE != 0,
                reply: flags & FLAG_REPLY != 0,
                trace: TraceContext {
                    program: u64_at(b, 24),
                    rank: u32_at(b, 32),
                    mpi_call: u64_at(b, 40),
                    client_call: u64_at(b, 48),
                },
                waits_on: u16_at(b, 38).checked_sub(1),
            },
            body_len: u32_at(b, 16) as usize,
            payload_len: u32_at(b, 20) as usize,
            descriptors: usize::from(u16_at(b, 36)),
        };
        check("body", header.body_len, limits.body)?;
        check("payload", header.payload_len, limits.payload)?;
        if header.descriptors > MAX_DESCRIPTORS {
            return Err(FrameError::Malformed(format!(
                "{} descriptors beside a frame, at most {MAX_DESCRIPTORS}",
                header.descriptors
            )));
        }
        Ok(header)
    }
}

/// Refuses `size` beyond `limit`.
pub(crate) fn check(what: &'static str, size: usize, limit: usize) -> Result<(), FrameError> {
    if size > limit {
        return Err(FrameError::TooLarge { what, size, limit });
    }
    Ok(())
}

/// Appends to a byte vector up to a limit, so that no message exceeds a body.
struct Appender<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl postcard::ser_flavors::Flavor for Appender<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.out.len() == self.end {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.end - self.out.len() {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends header and body to `out`; on an error `out` is unchanged.
pub fn append<B: Serialize>(
    out: &mut Vec<u8>,
    version: u16,
    envelope: &Envelope,
    body: Option<&B>,
    payload_len: usize,
    descriptors: usize,
    limits: &Limits,
) -> Result<(), FrameError> {
    check("payload", payload_len, limits.payload)?;
    let at = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    let end = out.len() + limits.body;
    if let Some(body) = body
        && let Err(e) = postcard::serialize_with_flavor(body, Appender { out, end })
    {
        out.truncate(at);
        return Err(match e {
            postcard::Error::SerializeBufferFull => FrameError::TooLarge {
                what: "body",
                size: limits.body + 1,
                limit: limits.body,
            },
            e => FrameError::Malformed(format!("cannot encode: {e}")),
        });
    }
    let header = Header {
        version,
        envelope: *envelope,
        body_len: out.len() - at - HEADER_LEN,
        payload_len,
        descriptors,
    };
    out[at..at + HEADER_LEN].copy_from_slice(&header.encode());
    Ok(())
}

/// Decodes a body; all of `bytes` must belong to it.
pub fn decode_body<B: DeserializeOwned>(bytes: &[u8]) -> Result<B, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Ok(body),
        Ok((_, rest)) => Err(FrameError::Malformed(format!(
            "{} bytes after the message",
            rest.len()
        ))),
        Err(e) => Err(FrameError::Malformed(format!(
            "message of {} bytes: {e}",
            bytes.len()
        ))),
    }
}
