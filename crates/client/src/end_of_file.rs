//! Counting at the end of the file.
//!
//! Problem: a server sends fewer bytes than asked for when its object ends early. That may be the end of the file, or a
//! hole: the file continues at another server, and what this one lacks reads as zeros. Only the lengths of all objects
//! together tell. Idea: full replies need nothing. Operations with a short reply are collected and resolved together,
//! with one length request per server. The file's length is the largest that any object implies. Bytes below it are
//! zero-filled; bytes beyond it are not counted, and their memory is not changed. Bytes written between the reply and
//! the length request are requested again. So no zero is returned for a byte whose write was acknowledged before the
//! length was read. Where offsets do not ascend along the stream, a server cannot tell by its first missing byte; such
//! reads always query the lengths. When it pays: a read inside the file costs nothing extra.
use crate::error::Result;
use crate::exchange::Exchange;
use crate::operations::Op;
use crate::plan::FileRegions;
use penstock_layout::{FileOffset, Layout, ObjectOffset, ServerIndex};

impl Exchange<'_, '_, '_> {
    /// Finds the end of the file and counts the bytes before it. Zeroes what no object has, and requests bytes again
    /// that were written since.
    pub fn resolve(&mut self) -> Result<()> {
        let lens = self.file.object_lens(self.common.trace)?;
        let file_len = self.file.len_of(&lens);
        for op in std::mem::take(&mut self.shorts) {
            let op = self.common.ops.remove(op);
            let below = if op.refill {
                op.shape.len()
            } else {
                op.shape.below(file_len)
            };
            if !op.refill {
                self.total += below;
            }
            for &(server, from) in &op.short {
                let have = if op.refill {
                    0
                } else {
                    lens[server.0 as usize]
                };
                self.fill_gap(&op, server, from, below, have);
            }
        }
        Ok(())
    }

    /// The bytes of `op` on `server` from stream position `from` up to `below`. Those in the object's first `have`
    /// bytes are read again; the others are zero.
    fn fill_gap(&mut self, op: &Op, server: ServerIndex, from: u64, below: u64, have: u64) {
        let layout = self.common.layout.clone();
        let mut first = None;
        let mut zero_all = have == 0;
        if op.shape.is_ascending() && !zero_all {
            op.shape
                .first_piece(&layout, server, from, |object| first = Some(object));
            zero_all = first.is_none_or(|object| object >= have);
        }
        let memory = &mut self.common.memory;
        if zero_all {
            op.shape.runs(&layout, server, from, |at, len| {
                let end = (at + len).min(below);
                if at < end {
                    memory.zero(op.memory + at, end - at);
                }
                at + len < below
            });
            return;
        }
        let ahead = &mut self.ahead;
        op.shape.pieces(&layout, server, from, |object, at, len| {
            let len = (at + len).min(below).saturating_sub(at);
            let there = have.saturating_sub(object).min(len);
            // What is one piece in the object and in the stream may be several in the file: stripe by stripe.
            let unit = layout.stripe_unit;
            let mut done = 0;
            while done < there {
                let from = object + done;
                let n = (unit - from % unit).min(there - done);
                let offset = layout.file_offset(server, ObjectOffset(from)).0;
                ahead.push_back((
                    op.memory + at + done,
                    FileRegions::contiguous(offset, n),
                    true,
                ));
                done += n;
            }
            if there < len {
                memory.zero(op.memory + at + there, len - there);
            }
            true
        });
    }
}

impl FileRegions {
    /// The object offset of the first byte on `server` from stream position `from` on.
    fn first_piece(&self, layout: &Layout, server: ServerIndex, from: u64, mut f: impl FnMut(u64)) {
        self.runs(layout, server, from, |at, _| {
            let offset = match self {
                FileRegions::Contiguous { offset, .. } => offset + at,
                FileRegions::Loop { pattern, .. } => {
                    pattern.offset_at(at).unwrap_or(0).unsigned_abs()
                }
                FileRegions::List(_) => {
                    self.pieces(layout, server, at, |object, _, _| {
                        f(object);
                        false
                    });
                    return false;
                }
            };
            f(layout.locate(FileOffset(offset)).1.0);
            false
        });
    }
}
