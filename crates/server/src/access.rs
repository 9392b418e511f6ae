//! This server's part of an access, executed in stream order chunk by chunk.
//!
//! Patterns stay patterns: a structured access (and a list, which is a small one) is an [`Execution`] of the store, run
//! by run. A contiguous access is one run of the object whatever the striping, and needs no execution.
use crate::error::{refuse, store_error};
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{GivenUp, Layout, ObjectOffset, SearchLimit, ServerIndex};
use penstock_store::{Execution, Object, Scratch};
use penstock_wire::message::{ErrorKind, MAX_LIST, WireError};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Most steps to count the bytes of an access on this server: a few milliseconds.
const SHARE_STEPS: u64 = 1 << 14;

enum Work {
    /// One run: the rest of it.
    Run(Range<u64>),
    Pattern(Box<Execution>),
}

/// This server's part of an access. The default has no bytes.
pub(crate) struct Access {
    work: Work,
    /// Lowest and one past the highest byte of the object that the access can touch.
    bounds: Range<u64>,
    /// Object offsets ascend.
    monotone: bool,
    /// Upper bound of this server's share of the access, bytes.
    most: u64,
    /// Whether the bound is exact.
    exact: bool,
    /// Bytes of the whole access, on all servers, if it is one range of the file; else 0.
    whole: u64,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            work: Work::Run(0..0),
            bounds: 0..0,
            monotone: true,
            most: 0,
            exact: true,
            whole: 0,
        }
    }
}

fn invalid(message: impl Into<String>) -> WireError {
    refuse(ErrorKind::InvalidArgument, message)
}

impl Access {
    /// A contiguous file range.
    pub(crate) fn contiguous(
        layout: &Layout,
        server: ServerIndex,
        offset: u64,
        len: u64,
    ) -> Result<Access, WireError> {
        let end = end_of(offset, len)?;
        let run = layout.object_len(offset, server)..layout.object_len(end, server);
        Ok(Access {
            bounds: run.clone(),
            most: run.end - run.start,
            work: Work::Run(run),
            monotone: true,
            exact: true,
            whole: len,
        })
    }

    /// Several file ranges, in stream order.
    pub(crate) fn list(
        layout: &Layout,
        server: ServerIndex,
        regions: &[(u64, u64)],
    ) -> Result<Access, WireError> {
        if regions.len() > MAX_LIST {
            return Err(invalid(format!(
                "{} regions in one list, at most {MAX_LIST}",
                regions.len()
            )));
        }
        let mut signed = Vec::with_capacity(regions.len());
        for &(offset, len) in regions {
            end_of(offset, len)?;
            signed.push((offset.cast_signed(), len));
        }
        let pattern = Pattern::list(&signed).map_err(|e| invalid(e.to_string()))?;
        Access::pattern(layout, server, &pattern)
    }

    /// `len` bytes from position `start` of the stream of `tile`, tiled from `disp`.
    pub(crate) fn structured(
        layout: &Layout,
        server: ServerIndex,
        tile: Loop,
        disp: i64,
        start: u64,
        len: u64,
    ) -> Result<Access, WireError> {
        let pattern = Pattern::new(disp, tile, start, len).map_err(|e| invalid(e.to_string()))?;
        Access::pattern(layout, server, &pattern)
    }

    fn pattern(
        layout: &Layout,
        server: ServerIndex,
        pattern: &Pattern,
    ) -> Result<Access, WireError> {
        layout.check(pattern).map_err(|e| invalid(e.to_string()))?;
        let bounds = layout.object_bounds(pattern, server);
        let monotone = pattern.is_monotone();
        // Schedulers and traces count these bytes. Exact where offsets ascend and that takes few steps.
        let share = if monotone {
            layout.share_within(pattern, server, SHARE_STEPS)
        } else {
            None
        };
        let most = match share {
            Some(share) => share,
            None if monotone => pattern.len.min(bounds.end - bounds.start),
            None => pattern.len,
        };
        Ok(Access {
            bounds,
            most,
            exact: share.is_some(),
            whole: 0,
            monotone,
            work: Work::Pattern(Box::new(Execution::new(layout, server, pattern))),
        })
    }

    /// The same with a limit on searches that find nothing.
    pub(crate) fn limited(self, limit: &SearchLimit) -> Access {
        let work = match self.work {
            Work::Pattern(execution) => Work::Pattern(Box::new(execution.limited(limit.clone()))),
            run => run,
        };
        Access { work, ..self }
    }

    /// Whether no byte is left.
    pub(crate) fn done(&mut self) -> Result<bool, WireError> {
        match &mut self.work {
            Work::Run(left) => Ok(left.is_empty()),
            Work::Pattern(execution) => {
                let done = execution.peek().is_none();
                searched(execution).map(|()| done)
            }
        }
    }

    /// What of the object the whole access can touch.
    pub(crate) fn bounds(&self) -> Range<u64> {
        self.bounds.clone()
    }

    /// Bytes of the access on this server, if they are known.
    pub(crate) fn share(&self) -> Option<u64> {
        self.exact.then_some(self.most)
    }

    /// Upper bound of the remaining bytes.
    pub(crate) fn most(&self) -> u64 {
        match &self.work {
            Work::Run(left) => left.end - left.start,
            Work::Pattern(execution) => self.most - execution.position(),
        }
    }

    /// The part of the object that the next `bytes` stream bytes can touch.
    pub(crate) fn span(&mut self, bytes: u64) -> Range<u64> {
        match &mut self.work {
            Work::Run(left) => left.start..left.end.min(left.start.saturating_add(bytes)),
            Work::Pattern(execution) => match execution.peek() {
                Some(next) if self.monotone => next.0..self.bounds.end,
                Some(_) => self.bounds.clone(),
                None => 0..0,
            },
        }
    }

    /// Where in the object the next `bytes` stream bytes lie, if those of a pattern are spread evenly.
    pub(crate) fn likely(&mut self, bytes: u64) -> Range<u64> {
        let (span, most) = (self.span(bytes), self.most().max(1));
        let len = u128::from(span.end - span.start);
        let part = len * u128::from(bytes.min(most)) / u128::from(most);
        span.start..span.start + part as u64
    }

    /// Reads the next bytes into `out`. Returns how many to send. Fewer than `out.len()` at the end of the access, or
    /// if everything that follows is beyond the end of the object.
    pub(crate) fn read(
        &mut self,
        object: Option<&dyn Object>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<usize, WireError> {
        let Some(object) = object else {
            return Ok(0);
        };
        match &mut self.work {
            Work::Run(left) => {
                let want = usize::try_from(left.end - left.start).unwrap_or(usize::MAX);
                let want = want.min(out.len());
                let got = object
                    .read_at(ObjectOffset(left.start), &mut out[..want])
                    .map_err(store_error)?;
                left.start += got as u64;
                Ok(got)
            }
            Work::Pattern(execution) => {
                let before = execution.position();
                let filled = execution.read(object, out, scratch).map_err(store_error)?;
                searched(execution)?;
                match execution.end() {
                    // Later runs may be before the end again: missing bytes read as a hole.
                    Some(_) if self.monotone => {
                        Ok(execution.present().saturating_sub(before) as usize)
                    }
                    _ => Ok(filled),
                }
            }
        }
    }

    /// The rest, if it is one run.
    pub(crate) fn run(&self) -> Option<Range<u64>> {
        match &self.work {
            Work::Run(left) => Some(left.clone()),
            Work::Pattern(_) => None,
        }
    }

    /// The next bytes of a run have been read or written.
    fn advance(&mut self, bytes: usize) {
        if let Work::Run(left) = &mut self.work {
            left.start += bytes as u64;
        }
    }

    /// Reads several runs that follow each other in one object with one call; results as from [`Access::read`].
    pub(crate) fn read_runs(
        object: &dyn Object,
        runs: Vec<(&mut Access, &mut [u8])>,
        results: &mut Vec<Result<usize, WireError>>,
    ) {
        let at = runs.first().and_then(|(access, _)| access.run());
        let (accesses, mut buffers): (Vec<_>, Vec<_>) = runs
            .into_iter()
            .map(|(access, buffer)| ((access, buffer.len()), IoSliceMut::new(buffer)))
            .unzip();
        let at = ObjectOffset(at.map_or(0, |run| run.start));
        match object.read_vectored_at(at, &mut buffers) {
            Ok(mut got) => {
                for (access, len) in accesses {
                    let now = got.min(len);
                    got -= now;
                    access.advance(now);
                    results.push(Ok(now));
                }
            }
            Err(e) => {
                let e = store_error(e);
                results.extend(accesses.iter().map(|_| Err(e.clone())));
            }
        }
    }

    /// Writes several runs that follow each other in one object with one call; results as from [`Access::write`].
    pub(crate) fn write_runs(
        object: &dyn Object,
        runs: Vec<(&mut Access, &mut [u8])>,
        results: &mut Vec<Result<usize, WireError>>,
    ) {
        let at = runs.first().and_then(|(access, _)| access.run());
        let at = ObjectOffset(at.map_or(0, |run| run.start));
        let buffers: Vec<_> = runs.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
        match object.write_vectored_at(at, &buffers) {
            Ok(()) => {
                for (access, bytes) in runs {
                    access.advance(bytes.len());
                    results.push(Ok(bytes.len()));
                }
            }
            Err(e) => {
                let e = store_error(e);
                results.extend(runs.iter().map(|_| Err(e.clone())));
            }
        }
    }

    /// Writes `bytes` to the next runs. Returns how many: fewer only when the access is over.
    pub(crate) fn write(
        &mut self,
        object: &dyn Object,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<usize, WireError> {
        match &mut self.work {
            Work::Run(left) => {
                let room = usize::try_from(left.end - left.start).unwrap_or(usize::MAX);
                let now = &bytes[..bytes.len().min(room)];
                object
                    .write_part_at(ObjectOffset(left.start), now, self.whole)
                    .map_err(store_error)?;
                left.start += now.len() as u64;
                Ok(now.len())
            }
            Work::Pattern(execution) => {
                let n = execution
                    .write(object, bytes, scratch)
                    .map_err(store_error)?;
                searched(execution).map(|()| n)
            }
        }
    }
}

/// Refuses to continue an access whose bytes on this server were not found within the limit.
fn searched(execution: &Execution) -> Result<(), WireError> {
    match execution.given_up() {
        None => Ok(()),
        Some(GivenUp::TooSparse { steps }) => Err(invalid(format!(
            "the access has too few bytes on this server: it took {steps} steps to find {} of them; access fewer blocks at a time",
            execution.position()
        ))),
        Some(GivenUp::Unwanted) => Err(invalid("the client has gone")),
    }
}

/// One past the last byte of a file range.
fn end_of(offset: u64, len: u64) -> Result<u64, WireError> {
    offset
        .checked_add(len)
        .filter(|end| *end <= Layout::MAX_FILE_LEN)
        .ok_or_else(|| {
            invalid(format!(
                "{len} bytes at offset {offset} pass the largest offset, 2^63-1"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::{FileId, FileOffset, ServerId};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// An object whose byte at offset o is o (mod 251) + 1.
    fn object() -> Arc<dyn Object> {
        let store = penstock_store::open("memory", "d", 0).unwrap();
        let object = store.open(FileId(1), true).unwrap();
        let bytes: Vec<u8> = (0..1000u64).map(value).collect();
        object.write_at(ObjectOffset(0), &bytes).unwrap();
        object
    }

    fn value(at: u64) -> u8 {
        (at % 251) as u8 + 1
    }

    fn drain(mut access: Access, chunk: usize) -> Vec<u8> {
        let (object, mut scratch) = (object(), Scratch::new());
        let (exact, whole) = (access.exact, access.most());
        let mut bytes = Vec::new();
        while !access.done().unwrap() {
            let mut out = vec![0; chunk];
            let most = access.most();
            let n = access.read(Some(&*object), &mut out, &mut scratch).unwrap();
            assert!(n > 0 && n as u64 <= most);
            bytes.extend(&out[..n]);
        }
        assert!(!exact || bytes.len() as u64 == whole);
        bytes
    }

    proptest! {
        #[test]
        fn every_form_visits_the_same_bytes(
            unit in 1u64..20,
            servers in 1u32..5,
            regions in proptest::collection::vec((0u64..200, 0u64..40), 0..12),
            chunk in 1usize..50,
        ) {
            let layout = Layout::new(unit, (0..servers).map(ServerId).collect()).unwrap();
            for s in (0..servers).map(ServerIndex) {
                let naive = |regions: &[(u64, u64)]| -> Vec<u64> {
                    let bytes = regions.iter().flat_map(|&(o, n)| o..o + n);
                    let places = bytes.map(|b| layout.locate(FileOffset(b)));
                    places.filter(|(i, _)| *i == s).map(|(_, o)| o.0).collect()
                };
                let expected = naive(&regions);
                let values: Vec<u8> = expected.iter().copied().map(value).collect();
                let mut list = Access::list(&layout, s, &regions).unwrap();
                let span = list.span(u64::MAX);
                prop_assert!(expected.iter().all(|b| span.contains(b)));
                prop_assert_eq!(drain(list, chunk), values);
                for &(o, n) in &regions {
                    let mut one = Access::contiguous(&layout, s, o, n).unwrap();
                    let expected = naive(&[(o, n)]);
                    let span = one.span(u64::MAX);
                    prop_assert!(expected.iter().all(|b| span.contains(b)));
                    let values: Vec<u8> = expected.into_iter().map(value).collect();
                    prop_assert_eq!(drain(one, chunk), values);
                }
            }
        }
    }

    #[test]
    fn offsets_beyond_63_bits_are_refused() {
        let layout = Layout::new(64, vec![ServerId(0)]).unwrap();
        let s = ServerIndex(0);
        assert!(Access::contiguous(&layout, s, u64::MAX, 2).is_err());
        assert!(Access::contiguous(&layout, s, i64::MAX as u64, 1).is_err());
        assert!(Access::list(&layout, s, &[(0, 1), (u64::MAX - 1, 1)]).is_err());
        assert!(Access::structured(&layout, s, Loop::bytes(1), -1, 0, 1).is_err());
        assert!(Access::structured(&layout, s, Loop::bytes(1), i64::MAX, 0, 1).is_err());
        assert!(Access::structured(&layout, s, Loop::bytes(0), 0, 0, 1).is_err());
    }
}
