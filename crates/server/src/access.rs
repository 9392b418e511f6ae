//! The part of an access that lies on this server, as runs of the object in stream order.
//!
//! Patterns stay patterns: a structured access is walked run by run, in closed form where layout and pattern
//! allow; it never becomes a list. A contiguous access is one run of the object whatever the striping.
use crate::error::refuse;
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{Layout, Pieces, ServerIndex};
use penstock_wire::message::{ErrorKind, MAX_LIST, WireError};
use std::ops::Range;

/// Longest run taken from a pattern at once: bounds the joining of stripes.
const MAX_RUN: u64 = 64 << 20;

/// One run: bytes of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

enum Rest {
    None,
    List(std::vec::IntoIter<Run>),
    Pieces(Box<Pieces>),
}

/// See the module's text.
pub(crate) struct Access {
    /// The next run, if any bytes are left.
    next: Option<Run>,
    rest: Rest,
    /// Lowest and one past the highest byte of the object that the access can touch.
    bounds: Range<u64>,
    /// Runs ascend and do not overlap.
    monotone: bool,
}

fn invalid(message: impl Into<String>) -> WireError {
    refuse(ErrorKind::InvalidArgument, message)
}

/// The run of the object that a contiguous file range covers.
fn object_run(
    layout: &Layout,
    server: ServerIndex,
    offset: u64,
    len: u64,
) -> Result<Run, WireError> {
    let end = offset
        .checked_add(len)
        .filter(|end| *end <= Layout::MAX_FILE_LEN)
        .ok_or_else(|| {
            invalid(format!(
                "{len} bytes at offset {offset} pass the largest offset, 2^63-1"
            ))
        })?;
    let at = layout.object_len(offset, server);
    Ok(Run {
        at,
        len: layout.object_len(end, server) - at,
    })
}

impl Access {
    /// A contiguous file range.
    pub(crate) fn contiguous(
        layout: &Layout,
        server: ServerIndex,
        offset: u64,
        len: u64,
    ) -> Result<Access, WireError> {
        let run = object_run(layout, server, offset, len)?;
        Ok(Access {
            bounds: run.at..run.at + run.len,
            next: (run.len > 0).then_some(run),
            rest: Rest::None,
            monotone: true,
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
        let mut runs: Vec<Run> = Vec::with_capacity(regions.len());
        let mut monotone = true;
        let (mut low, mut high) = (u64::MAX, 0);
        for &(offset, len) in regions {
            let run = object_run(layout, server, offset, len)?;
            if run.len == 0 {
                continue;
            }
            low = low.min(run.at);
            high = high.max(run.at + run.len);
            match runs.last_mut() {
                Some(last) if last.at + last.len == run.at => last.len += run.len,
                last => {
                    monotone &= last.is_none_or(|last| last.at + last.len < run.at);
                    runs.push(run);
                }
            }
        }
        let mut rest = runs.into_iter();
        let next = rest.next();
        Ok(Access {
            bounds: if next.is_some() { low..high } else { 0..0 },
            next,
            rest: Rest::List(rest),
            monotone,
        })
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
        layout.check(&pattern).map_err(|e| invalid(e.to_string()))?;
        let (low, high) = pattern.bounds();
        let object = |at: i64| layout.object_len(at.unsigned_abs(), server);
        let mut access = Access {
            next: None,
            bounds: object(low)..object(high),
            monotone: pattern.is_monotone(),
            rest: Rest::Pieces(Box::new(layout.walk(&pattern, server))),
        };
        access.refill();
        Ok(access)
    }

    fn refill(&mut self) {
        self.next = match &mut self.rest {
            Rest::None => None,
            Rest::List(runs) => runs.next(),
            Rest::Pieces(pieces) => pieces.next_piece(MAX_RUN).map(|p| Run {
                at: p.object.0,
                len: p.len,
            }),
        };
    }

    /// No byte is left.
    pub(crate) fn done(&self) -> bool {
        self.next.is_none()
    }

    /// If all that is left is one run, its length.
    pub(crate) fn single(&self) -> Option<u64> {
        match (&self.rest, self.next) {
            (_, None) => Some(0),
            (Rest::None, Some(run)) => Some(run.len),
            (Rest::List(runs), Some(run)) if runs.len() == 0 => Some(run.len),
            _ => None,
        }
    }

    /// Bytes that lie beyond the end of an object end the access: all later ones do too.
    pub(crate) fn monotone(&self) -> bool {
        self.monotone
    }

    /// The part of the object that the next `bytes` stream bytes can touch.
    pub(crate) fn span(&self, bytes: u64) -> Range<u64> {
        match (self.next, self.single()) {
            (Some(run), Some(len)) => run.at..run.at + len.min(bytes),
            (Some(run), None) if self.monotone => run.at..self.bounds.end,
            (Some(_), None) => self.bounds.clone(),
            (None, _) => 0..0,
        }
    }

    /// The next run, at most `max` (> 0) bytes of it.
    pub(crate) fn take(&mut self, max: u64) -> Option<Run> {
        let next = self.next.as_mut()?;
        if next.len <= max {
            let run = *next;
            self.refill();
            return Some(run);
        }
        let run = Run {
            at: next.at,
            len: max,
        };
        next.at += max;
        next.len -= max;
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::ServerId;
    use proptest::prelude::*;

    fn drain(mut access: Access, chunk: u64) -> Vec<u64> {
        let mut bytes = Vec::new();
        while let Some(run) = access.take(chunk) {
            assert!(run.len > 0 && run.len <= chunk);
            bytes.extend(run.at..run.at + run.len);
        }
        assert!(access.done());
        bytes
    }

    /// Object offsets of the file bytes of `regions` on `server`, one by one.
    fn naive(layout: &Layout, server: ServerIndex, regions: &[(u64, u64)]) -> Vec<u64> {
        regions
            .iter()
            .flat_map(|&(o, n)| o..o + n)
            .map(|b| layout.locate(penstock_layout::FileOffset(b)))
            .filter(|(s, _)| *s == server)
            .map(|(_, o)| o.0)
            .collect()
    }

    proptest! {
        #[test]
        fn every_form_visits_the_same_bytes(
            unit in 1u64..20,
            servers in 1u32..5,
            regions in proptest::collection::vec((0u64..200, 0u64..40), 0..12),
            chunk in 1u64..50,
        ) {
            let layout = Layout::new(unit, (0..servers).map(ServerId).collect()).unwrap();
            for s in 0..servers {
                let s = ServerIndex(s);
                let expected = naive(&layout, s, &regions);
                let list = Access::list(&layout, s, &regions).unwrap();
                let span = list.span(u64::MAX);
                prop_assert!(expected.iter().all(|b| span.contains(b)));
                prop_assert_eq!(&drain(list, chunk), &expected);
                let signed: Vec<_> = regions.iter().map(|&(o, n)| (o as i64, n)).collect();
                let p = Pattern::list(&signed).unwrap();
                let structured =
                    Access::structured(&layout, s, p.tile.clone(), p.disp, p.start, p.len).unwrap();
                let span = structured.span(u64::MAX);
                prop_assert!(expected.iter().all(|b| span.contains(b)));
                prop_assert_eq!(&drain(structured, chunk), &expected);
                for &(o, n) in &regions {
                    let one = Access::contiguous(&layout, s, o, n).unwrap();
                    prop_assert_eq!(drain(one, chunk), naive(&layout, s, &[(o, n)]));
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
