//! The fast path: one contiguous file range, to or from one contiguous memory range, by descriptors.
//!
//! Problem: copying 47 KB out of a mapping takes 2.7 µs. Operations, runs and lanes, which serve any access in any
//! form, cost half of that again, and querying an object's length a sixth. Idea: the most common access needs none of
//! them. A range's bytes on one server are adjacent in its object. Layout arithmetic therefore leads to one copy,
//! `preadv` or `pwritev` for each server, under the present grant ([`crate::shortcut`]). Nothing is allocated, and the
//! only system calls are those that move bytes. What it cannot do is left to the general path. These are accesses
//! without a grant, under a range lock of this client, at the end of an object, or after an error. The general path
//! repeats everything and reports errors. Until a call has returned, its bytes may be moved twice. When it pays: calls
//! of up to some MB; for larger ones the cost of the general path does not matter. Parameters: [`PIECES`], and [`STEP`]
//! of grants.
use crate::grant::STEP;
use crate::guard::guard;
use crate::open_file::OpenFile;
use crate::stats::Form;
use penstock_datatype::Pattern;
use penstock_layout::{FileOffset, Layout, ObjectOffset, ServerIndex};
use penstock_store::{Mapped, Object, StoreError};
use penstock_trace::{Layer, Operation, sink};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Most stripe units on one server: their vectors are on the stack.
const PIECES: usize = 64;

/// The file offset of an access, if the fast path may be able to serve it.
pub(crate) fn start_of(access: &Pattern, form: Form, memory: &Pattern) -> Option<u64> {
    let may = form == Form::Shortcut
        && access.len <= memory.len
        && access.is_contiguous()
        && memory.is_contiguous();
    may.then(|| u64::try_from(access.bounds().0).ok())?
}

impl OpenFile {
    /// Fills `into` from `offset` on; see [`crate::File::read_fast_path`].
    pub fn read_fast_path(&self, offset: u64, into: &mut [u8]) -> bool {
        let len = into.len();
        self.read && self.fast_path(offset, len, false, |object, share| share.read(object, into))
    }

    /// Writes `from` at `offset`; see [`crate::File::write_fast_path`].
    pub fn write_fast_path(&self, offset: u64, from: &[u8]) -> bool {
        let len = from.len();
        self.write && self.fast_path(offset, len, true, |object, share| share.write(object, from))
    }

    /// Runs `io` for each server's part of a range, and counts it. False if one of them fails.
    fn fast_path(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        mut io: impl FnMut(&Mapped<'_>, &Share<'_>) -> Result<bool, StoreError>,
    ) -> bool {
        let Some(span) = Span::new(&self.layout, offset, len) else {
            return false;
        };
        if !guard(&self.locks).is_empty() {
            return false;
        }
        let operation = if write {
            Operation::WRITE
        } else {
            Operation::READ
        };
        // Where it cannot be done so, the general path records the call.
        let call = self.begin_call(operation);
        let trace = self.client.trace_of(call.as_ref());
        let mut requests = 0;
        for share in span.shares() {
            let site = self.layout.servers[share.server.0 as usize].0;
            let stored = call
                .as_ref()
                .and_then(|call| call.below(Layer::Store, operation, site));
            let grant = self.grant(share.server, trace);
            let Some(grant) = grant.filter(|grant| grant.is_writable() || !write) else {
                return false;
            };
            let done = grant.operate(|object| io(object, &share));
            if !matches!(done, Some(Ok(true))) {
                return false;
            }
            grant.count(write, share.len());
            if write {
                self.notes[share.server.0 as usize].wrote(grant.taken(), len as u64);
            }
            if let Some(stored) = stored {
                stored.end(sink::Outcome {
                    offset: share.object.0,
                    bytes: share.len(),
                    error: 0,
                });
            }
            requests += 1;
        }
        if let Some(call) = call {
            call.end(sink::Outcome {
                offset,
                bytes: len as u64,
                error: 0,
            });
        }
        for counters in self.counters() {
            counters.fast_path(write, requests, len as u64);
        }
        true
    }
}

/// A range of a striped file.
#[derive(Debug, Clone, Copy)]
struct Span<'l> {
    layout: &'l Layout,
    offset: u64,
    end: u64,
    /// Stripe unit, and distance from one unit to the server's next one, in bytes. With one server the whole file is
    /// one unit.
    unit: u64,
    stripe: u64,
}

impl<'l> Span<'l> {
    /// `None` for what the fast path cannot serve: empty or too large ranges, or invalid offsets.
    fn new(layout: &'l Layout, offset: u64, len: usize) -> Option<Span<'l>> {
        let len = u64::try_from(len).ok()?;
        let end = offset.checked_add(len)?;
        let (unit, stripe) = match layout.servers.len() {
            1 => (Layout::MAX_FILE_LEN, Layout::MAX_FILE_LEN),
            _ => (layout.stripe_unit, layout.width()),
        };
        let fits = (1..=STEP).contains(&len)
            && end <= Layout::MAX_FILE_LEN
            && len <= (PIECES as u64 - 1).saturating_mul(stripe);
        fits.then_some(Span {
            layout,
            offset,
            end,
            unit,
            stripe,
        })
    }

    /// Each server's part, in the order in which the range reaches the servers.
    fn shares(&self) -> impl Iterator<Item = Share<'_>> {
        let first = self.offset / self.unit * self.unit;
        (first..self.end.min(first.saturating_add(self.stripe)))
            .step_by(usize::try_from(self.unit).unwrap_or(usize::MAX))
            .map(|unit| {
                let at = FileOffset(unit.max(self.offset));
                let (server, object) = self.layout.locate(at);
                Share {
                    span: self,
                    unit,
                    server,
                    object,
                }
            })
    }
}

/// One server's part of a span: adjacent bytes of its object, one piece for each stripe unit.
#[derive(Debug, Clone, Copy)]
struct Share<'s> {
    span: &'s Span<'s>,
    /// Where its first unit begins in the file.
    unit: u64,
    server: ServerIndex,
    /// Where its bytes begin in the object.
    object: ObjectOffset,
}

impl Share<'_> {
    /// The unit that begins at file offset `unit` as a part of the span.
    fn piece(&self, unit: u64) -> Range<usize> {
        let Span { offset, end, .. } = *self.span;
        let from = unit.max(offset) - offset;
        let to = unit.saturating_add(self.span.unit).min(end) - offset;
        from as usize..to as usize
    }

    /// The second unit and all behind it.
    fn others(&self) -> impl Iterator<Item = Range<usize>> {
        let stripe = self.span.stripe;
        (self.unit.saturating_add(stripe)..self.span.end)
            .step_by(usize::try_from(stripe).unwrap_or(usize::MAX))
            .map(|unit| self.piece(unit))
    }

    /// Bytes of all its pieces.
    fn len(&self) -> u64 {
        let all = std::iter::once(self.piece(self.unit)).chain(self.others());
        all.map(|piece| piece.len() as u64).sum()
    }

    fn is_one_piece(&self) -> bool {
        self.unit.saturating_add(self.span.stripe) >= self.span.end
    }

    /// Reads its pieces of the span into their places in `into`; false if the object has fewer bytes.
    fn read(&self, object: &Mapped<'_>, into: &mut [u8]) -> Result<bool, StoreError> {
        let first = self.piece(self.unit);
        if self.is_one_piece() {
            let wanted = first.len();
            return Ok(object.read_at(self.object, &mut into[first])? == wanted);
        }
        let mut slices: [IoSliceMut<'_>; PIECES] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut count, mut wanted) = (0, 0);
        let (mut rest, mut before) = (into, 0);
        for (slice, piece) in slices
            .iter_mut()
            .zip(std::iter::once(first).chain(self.others()))
        {
            let (now, later) = rest[piece.start - before..].split_at_mut(piece.len());
            (rest, before) = (later, piece.end);
            wanted += now.len();
            *slice = IoSliceMut::new(now);
            count += 1;
        }
        Ok(object.read_vectored_at(self.object, &mut slices[..count])? == wanted)
    }

    /// Writes its pieces of the span, of which `from` has all bytes.
    fn write(&self, object: &Mapped<'_>, from: &[u8]) -> Result<bool, StoreError> {
        let first = self.piece(self.unit);
        if self.is_one_piece() {
            object.write_at(self.object, &from[first])?;
            return Ok(true);
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (slice, piece) in slices
            .iter_mut()
            .zip(std::iter::once(first).chain(self.others()))
        {
            *slice = IoSlice::new(&from[piece]);
            count += 1;
        }
        object.write_vectored_at(self.object, &slices[..count])?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::ServerId;

    /// Property: every byte of a range belongs to exactly one piece, at the place that the layout gives.
    #[test]
    fn shares_cover_a_range_once() {
        for servers in [1, 2, 3, 5] {
            let layout = Layout::new(100, (0..servers).map(ServerId).collect()).unwrap();
            for (offset, len) in (0..350)
                .step_by(7)
                .flat_map(|o| (1..900).step_by(13).map(move |n| (o, n)))
            {
                let span = Span::new(&layout, offset, len).unwrap();
                let mut seen = vec![0; len];
                for share in span.shares() {
                    let mut object = share.object;
                    assert_eq!(share.others().count() == 0, share.is_one_piece());
                    for piece in std::iter::once(share.piece(share.unit)).chain(share.others()) {
                        for at in piece {
                            let there = layout.locate(FileOffset(offset + at as u64));
                            assert_eq!(there, (share.server, object), "{servers} {offset} {len}");
                            object.0 += 1;
                            seen[at] += 1;
                        }
                    }
                }
                assert!(
                    seen.iter().all(|&n| n == 1),
                    "{servers} {offset} {len}: {seen:?}"
                );
            }
        }
    }

    #[test]
    fn what_needs_more_than_the_stack_is_left_to_the_general_path() {
        let layout = Layout::new(100, vec![ServerId(0), ServerId(1)]).unwrap();
        assert!(Span::new(&layout, 0, 0).is_none());
        assert!(Span::new(&layout, u64::MAX, 1).is_none());
        assert!(Span::new(&layout, Layout::MAX_FILE_LEN, 1).is_none());
        assert!(Span::new(&layout, 0, STEP as usize + 1).is_none());
        let most = (PIECES - 1) * 200;
        assert!(Span::new(&layout, 50, most + 1).is_none());
        let span = Span::new(&layout, 50, most).unwrap();
        assert!(span.shares().all(|share| share.others().count() < PIECES));
    }
}
