//! The encoded form of a loop, which is sent over the wire and hashed.
//!
//! Format, version 1. Numbers are LEB128; signed ones (marked s) are zigzag-coded first.
//!
//! ```text
//! loop         = version lb(s) extent(s) at(s) body
//! body         = 0 size
//!              | 1 count stride(s) body                                   vector
//!              | 2 blocks gap(s)*(blocks-1) body                          blockindexed
//!              | 3 blocks count*blocks gap(s)*(blocks-1) stride(s) body   indexed
//!              | 4 fields body (gap(s) body)*(fields-1)                   struct
//! ```
//!
//! A gap is the distance from one block's displacement to the next one's; the first displacement is 0. Counts, lengths
//! and strides affect the size only by the digits of the numbers.
//!
//! The decoder builds the tree with the public constructors. It accepts the input only if encoding the result gives the
//! same bytes. So each loop has one encoding, and there is no second list of rules to maintain.

use crate::error::{Error, Result};
use crate::fuse;
use crate::loops::{Body, Loop, LoopHash, LoopKind, MAX_DEPTH, Placed};
use std::sync::Arc;

/// Longest encoding that [`Loop::decode`] accepts (bytes). Longer ones come only from irregular
/// types with very many blocks.
pub const MAX_ENCODED: usize = 512 << 10;

const VERSION: u8 = 1;

impl Loop {
    /// Compact encoding, whose size does not depend on counts. Canonical: equal loops encode equally. Computed once per
    /// loop.
    pub fn encode(&self) -> Arc<[u8]> {
        self.0
            .encoded
            .get_or_init(|| {
                let mut out = vec![VERSION];
                put_signed(&mut out, self.lb());
                put_signed(&mut out, self.extent());
                put_signed(&mut out, self.at());
                put_body(&mut out, self.body());
                out.into()
            })
            .clone()
    }

    /// Content hash of the encoding. Computed once per loop.
    pub fn hash(&self) -> LoopHash {
        *self.0.hash.get_or_init(|| {
            let mut out = [0u8; 16];
            out.copy_from_slice(&blake3::hash(&self.encode()).as_bytes()[..16]);
            LoopHash(out)
        })
    }

    /// Strict decoder with bounded depth and size; rejects anything that `encode` would not produce.
    pub fn decode(bytes: &[u8]) -> Result<Loop> {
        if bytes.len() > MAX_ENCODED {
            return Err(Error::Malformed {
                at: MAX_ENCODED,
                what: "longer than 512 KiB",
            });
        }
        let mut input = Input { bytes, at: 0 };
        if input.byte()? != VERSION {
            return Err(Error::Malformed {
                at: 0,
                what: "unknown version",
            });
        }
        let (lb, extent, at) = (input.signed()?, input.signed()?, input.signed()?);
        let body = input.body(1)?;
        if input.at != bytes.len() {
            return Err(input.error("bytes after the end"));
        }
        let decoded = Loop::assemble(lb as i128, extent as i128, Placed { at, body })?;
        let again = decoded.encode();
        if let Some(at) = (0..bytes.len()).find(|&i| again.get(i) != Some(&bytes[i])) {
            return Err(Error::Malformed {
                at,
                what: "not the canonical form",
            });
        }
        Ok(decoded)
    }
}

fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn put_signed(out: &mut Vec<u8>, v: i64) {
    put(out, (v << 1 ^ v >> 63) as u64);
}

fn put_gaps(out: &mut Vec<u8>, displs: &[i64]) {
    for w in displs.windows(2) {
        put_signed(out, w[1].wrapping_sub(w[0]));
    }
}

fn put_body(out: &mut Vec<u8>, body: &Body) {
    match &body.kind {
        LoopKind::Contig => {
            out.push(0);
            put(out, body.size);
        }
        LoopKind::Vector {
            count,
            stride,
            child,
        } => {
            out.push(1);
            put(out, *count);
            put_signed(out, *stride);
            put_body(out, child);
        }
        LoopKind::BlockIndexed { displs, child, .. } => {
            out.push(2);
            put(out, displs.len() as u64);
            put_gaps(out, displs);
            put_body(out, child);
        }
        LoopKind::Indexed {
            displs,
            starts,
            stride,
            child,
            ..
        } => {
            out.push(3);
            put(out, displs.len() as u64);
            for w in starts.windows(2) {
                put(out, w[1] - w[0]);
            }
            put_gaps(out, displs);
            put_signed(out, *stride);
            put_body(out, child);
        }
        LoopKind::Struct { fields } => {
            out.push(4);
            put(out, fields.len() as u64);
            let mut displ = 0;
            for (i, field) in fields.iter().enumerate() {
                if i > 0 {
                    put_signed(out, field.displ.wrapping_sub(displ));
                }
                displ = field.displ;
                put_body(out, &field.body);
            }
        }
    }
}

/// The input of the decoder.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn error(&self, what: &'static str) -> Error {
        Error::Malformed { at: self.at, what }
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self
            .bytes
            .get(self.at)
            .ok_or_else(|| self.error("ends too early"))?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = (byte & 0x7f) as u64;
            if shift == 63 && bits > 1 {
                break;
            }
            v |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(v);
            }
        }
        Err(self.error("number above 64 bits"))
    }

    fn signed(&mut self) -> Result<i64> {
        let v = self.number()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// A count of items of at least one byte each, so that no allocation exceeds the input.
    fn length(&mut self) -> Result<usize> {
        let n = self.number()?;
        if n > (self.bytes.len() - self.at) as u64 {
            return Err(self.error("more blocks than bytes"));
        }
        Ok(n as usize)
    }

    fn gaps(&mut self, blocks: usize) -> Result<Vec<i64>> {
        let mut displs = Vec::with_capacity(blocks);
        let mut at = 0i64;
        for i in 0..blocks {
            if i > 0 {
                at = at
                    .checked_add(self.signed()?)
                    .ok_or_else(|| self.error("displacement beyond 63 bits"))?;
            }
            displs.push(at);
        }
        Ok(displs)
    }

    /// A body. The comparison at the end rejects degenerate bodies, which the constructors simplify.
    fn body(&mut self, level: u32) -> Result<Arc<Body>> {
        if level > MAX_DEPTH {
            return Err(self.error("more than 32 levels"));
        }
        let placed = match self.byte()? {
            0 => fuse::contig(self.number()?)?,
            1 => {
                let (count, stride) = (self.number()?, self.signed()?);
                fuse::vector(
                    count,
                    stride,
                    Placed {
                        at: 0,
                        body: self.body(level + 1)?,
                    },
                )?
            }
            2 => {
                let blocks = self.length()?;
                let displs = self.gaps(blocks)?;
                fuse::blocks(
                    displs,
                    Placed {
                        at: 0,
                        body: self.body(level + 1)?,
                    },
                )?
            }
            3 => {
                let blocks = self.length()?;
                let counts = (0..blocks)
                    .map(|_| self.number())
                    .collect::<Result<Vec<_>>>()?;
                let displs = self.gaps(blocks)?;
                let stride = self.signed()?;
                fuse::indexed(
                    &displs,
                    &counts,
                    stride,
                    Placed {
                        at: 0,
                        body: self.body(level + 1)?,
                    },
                )?
            }
            4 => {
                let fields = self.length()?;
                let mut parts = Vec::new(); // nested claims of many fields must not add up
                let mut at = 0i64;
                for i in 0..fields {
                    if i > 0 {
                        at = at
                            .checked_add(self.signed()?)
                            .ok_or_else(|| self.error("displacement beyond 63 bits"))?;
                    }
                    parts.push(Placed {
                        at,
                        body: self.body(level + 1)?,
                    });
                }
                fuse::structure(parts)?
            }
            _ => return Err(self.error("unknown kind of loop")),
        };
        Ok(placed.body)
    }
}
