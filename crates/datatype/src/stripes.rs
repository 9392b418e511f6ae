//! Searches for the next byte of a pattern on regularly repeated stripes, such as those of one data server.
//!
//! Problem: a server must find its part of an access whose runs are mostly on other servers, without visiting those.
//! Idea: descend the tree with a stream range. In regular levels the next copy whose span can touch a stripe is the
//! first hit of an arithmetic progression in a residue window ([`crate::residue`]). Any number of whole copies is
//! skipped in O(log period). In monotone irregular levels the next stripe's start is looked up among the displacements.
//! A subtree whose span touches no stripe costs O(1). Cost: O(depth · log) if the next run on a stripe belongs to the
//! innermost regular level. Every copy of an outer level whose span touches a stripe but whose runs do not costs one
//! more search inside it. There can be 2^61 of these, so a search has a limit on steps, and reports its position when
//! they are used up.

use crate::loops::{Body, LoopKind};
use crate::pattern::Pattern;
use crate::residue::first_hit;
use crate::walk::block_of;

/// The offsets `o` with `(o - first) mod period < len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// Distance from one stripe to the next (bytes); at least 1, less than 2^62.
    pub period: u64,
    /// Start of one stripe; less than the period.
    pub first: u64,
    /// Bytes of a stripe.
    pub len: u64,
}

impl Stripes {
    /// Bytes from `offset` to the next offset on a stripe; 0 when it is on one.
    fn gap(&self, offset: i64) -> u64 {
        let into = self.into(offset);
        if into < self.len {
            0
        } else {
            self.period - into
        }
    }

    /// Bytes from the last start of a stripe to `offset`.
    fn into(&self, offset: i64) -> u64 {
        let residue = offset.rem_euclid(self.period as i64) as u64;
        if residue >= self.first {
            residue - self.first
        } else {
            residue + self.period - self.first
        }
    }

    /// Smallest `k` such that bytes [at + k·stride, + span) touch a stripe.
    fn first_meeting(&self, at: i64, stride: i64, span: u64) -> Option<u64> {
        // A span from o touches [s, s + len) when o is in [s - (span - 1), s + len).
        let before = span - 1;
        let window = self.len.saturating_add(before);
        if window >= self.period {
            return Some(0);
        }
        first_hit(
            stride.rem_euclid(self.period as i64) as u64,
            self.into(at),
            self.period,
            (self.period - before % self.period) % self.period,
            window,
        )
    }
}

/// The result of a search for the next byte on a stripe. Positions are relative to the pattern's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// The byte at this stream position is the next one.
    At(u64),
    /// There is none.
    Never,
    /// The steps are used up; there is none before this stream position.
    NotBefore(u64),
}

/// Least steps of a search: more than one descent through the deepest tree takes, so that each search makes progress.
pub const MIN_STEPS: u64 = 4 * crate::loops::MAX_DEPTH as u64;

impl Pattern {
    /// The smallest stream position of this pattern, `from` or later, whose byte lies on a stripe. Regular levels are
    /// skipped in closed form. It may take a step per copy of an outer level.
    pub fn first_on(&self, stripes: &Stripes, from: u64) -> Option<u64> {
        let mut from = from;
        loop {
            match self.search_on(stripes, from, &mut { u64::MAX }) {
                Meeting::At(position) => return Some(position),
                Meeting::Never => return None,
                Meeting::NotBefore(position) => from = position,
            }
        }
    }

    /// The same in at most `steps` steps, which are reduced by those taken; each is O(log period + log blocks). At
    /// least [`MIN_STEPS`] are needed for guaranteed progress.
    pub fn search_on(&self, stripes: &Stripes, from: u64, steps: &mut u64) -> Meeting {
        if from >= self.len || self.tile.size() == 0 || stripes.len == 0 {
            return Meeting::Never;
        }
        let (unit, stride) = self.unit();
        let at = self.disp.wrapping_add(self.tile.at());
        let (lo, hi) = (self.start + from, self.start.saturating_add(self.len));
        let mut search = Search {
            on: stripes,
            left: *steps,
        };
        let found = search.in_copies(unit, stride, at, lo, hi);
        *steps = search.left;
        match found {
            Ok(Some(position)) => Meeting::At(position - self.start),
            Ok(None) => Meeting::Never,
            Err(Stopped(position)) => Meeting::NotBefore(position - self.start),
        }
    }
}

/// A search ran out of steps: nothing was found before this position.
struct Stopped(u64);

/// The first position in a stream range, if any.
type Found = Result<Option<u64>, Stopped>;

/// Adds the part before the searched one.
fn behind(before: u64, found: Found) -> Found {
    match found {
        Ok(found) => Ok(found.map(|position| before + position)),
        Err(Stopped(position)) => Err(Stopped(before + position)),
    }
}

/// A search in progress.
struct Search<'a> {
    on: &'a Stripes,
    /// Remaining steps.
    left: u64,
}

impl Search<'_> {
    /// Counts a step at stream position `at`.
    fn step(&mut self, at: u64) -> Result<(), Stopped> {
        self.left = self.left.checked_sub(1).ok_or(Stopped(at))?;
        Ok(())
    }

    /// First position in stream range `[lo, hi)`, not empty, of copies of `unit` from `at` on.
    fn in_copies(&mut self, unit: &Body, stride: i64, at: i64, lo: u64, hi: u64) -> Found {
        if unit.dense(stride) {
            return Ok(in_run(at, lo, hi, self.on));
        }
        let (mut copy, last) = (lo / unit.size, (hi - 1) / unit.size);
        loop {
            self.step(lo.max(copy * unit.size))?;
            let place = at.wrapping_add((copy as i64).wrapping_mul(stride));
            let span = (unit.hi - unit.lo) as u64;
            let meets = self
                .on
                .first_meeting(place.wrapping_add(unit.lo), stride, span);
            let next = meets.and_then(|skipped| copy.checked_add(skipped));
            let (Some(skipped), Some(next)) = (meets, next.filter(|copy| *copy <= last)) else {
                return Ok(None);
            };
            copy = next;
            let place = place.wrapping_add((skipped as i64).wrapping_mul(stride));
            let before = copy * unit.size;
            let from = lo.saturating_sub(before);
            let to = (hi - before).min(unit.size);
            let found = behind(before, self.in_body(unit, place, from, to))?;
            if found.is_some() || copy == last {
                return Ok(found);
            }
            copy += 1;
        }
    }

    /// First position in stream range `[lo, hi)`, not empty, of a body placed at `at`.
    fn in_body(&mut self, body: &Body, at: i64, lo: u64, hi: u64) -> Found {
        self.step(lo)?;
        match &body.kind {
            LoopKind::Contig => Ok(in_run(at, lo, hi, self.on)),
            LoopKind::Vector { stride, child, .. } => self.in_copies(child, *stride, at, lo, hi),
            LoopKind::BlockIndexed { displs, child, .. } => {
                let n = child.size;
                let blocks = Blocks {
                    displs,
                    monotone: body.monotone,
                    at,
                };
                let (first, last) = ((lo / n) as usize, ((hi - 1) / n) as usize);
                blocks.search(self, first, last, |search, i| {
                    let before = i as u64 * n;
                    let place = at.wrapping_add(displs[i]);
                    let (from, to) = (lo.saturating_sub(before), (hi - before).min(n));
                    behind(before, search.in_body(child, place, from, to))
                })
            }
            LoopKind::Indexed {
                displs,
                starts,
                stride,
                child,
                ..
            } => {
                let n = child.size;
                let blocks = Blocks {
                    displs,
                    monotone: body.monotone,
                    at,
                };
                let (first, last) = (block_of(starts, lo / n), block_of(starts, (hi - 1) / n));
                blocks.search(self, first, last, |search, i| {
                    let (before, end) = (starts[i] * n, starts[i + 1] * n);
                    search.step(lo.max(before))?;
                    let place = at.wrapping_add(displs[i]);
                    let (from, to) = (lo.saturating_sub(before), hi.min(end) - before);
                    behind(before, search.in_copies(child, *stride, place, from, to))
                })
            }
            LoopKind::Struct { fields } => {
                let first = fields.partition_point(|f| f.start <= lo) - 1;
                for f in fields[first..].iter().take_while(|f| f.start < hi) {
                    self.step(lo.max(f.start))?;
                    let (from, to) = (lo.saturating_sub(f.start), (hi - f.start).min(f.body.size));
                    let place = at.wrapping_add(f.displ);
                    let (low, span) = (place.wrapping_add(f.body.lo), f.body.hi - f.body.lo);
                    if self.on.first_meeting(low, 0, span as u64).is_none() {
                        continue;
                    }
                    let found = behind(f.start, self.in_body(&f.body, place, from, to))?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Ok(None)
            }
        }
    }
}

fn in_run(at: i64, lo: u64, hi: u64, on: &Stripes) -> Option<u64> {
    let gap = on.gap(at.wrapping_add(lo as i64));
    (gap < hi - lo).then_some(lo + gap)
}

/// Irregular blocks of one level.
struct Blocks<'a> {
    displs: &'a [i64],
    monotone: bool,
    at: i64,
}

impl Blocks<'_> {
    /// The first find among blocks first..=last. If they ascend, blocks that end before the next stripe are skipped.
    fn search<'s>(
        &self,
        search: &mut Search<'s>,
        first: usize,
        last: usize,
        find: impl Fn(&mut Search<'s>, usize) -> Found,
    ) -> Found {
        let mut block = first;
        while block <= last {
            let found = find(search, block)?;
            if found.is_some() {
                return Ok(found);
            }
            block += 1;
            if self.monotone && block <= last {
                // All bytes of the next blocks are at or after the start of the next one. The last block that begins
                // before the next stripe may reach into it; those before cannot.
                let start = self.displs[block];
                let gap = search.on.gap(self.at.wrapping_add(start));
                let stripe = start.saturating_add_unsigned(gap);
                let ahead = &self.displs[block..=last];
                block += ahead.partition_point(|d| *d <= stripe).max(1) - 1;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loop;
    use proptest::prelude::*;

    fn any_loop() -> impl Strategy<Value = Loop> {
        let leaf = (1u64..20).prop_map(Loop::bytes);
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                (1u64..6, 1u64..3, -90i64..90, inner.clone())
                    .prop_map(|(n, b, s, c)| Loop::vector(n, b, s, &c)),
                (
                    1u64..3,
                    prop::collection::vec(-200i64..200, 1..6),
                    inner.clone()
                )
                    .prop_map(|(b, d, c)| Loop::blockindexed(b, &d, &c)),
                (
                    prop::collection::vec((0u64..3, 0i64..60), 1..6),
                    inner.clone()
                )
                    .prop_map(|(blocks, c)| {
                        // Ascending, so that monotone levels occur.
                        let mut at = 0;
                        let (lens, displs): (Vec<_>, Vec<_>) = blocks
                            .iter()
                            .map(|(len, gap)| {
                                let here = at;
                                at += *len as i64 * c.extent().max(1) + gap;
                                (*len, here)
                            })
                            .unzip();
                        Loop::indexed(&lens, &displs, &c)
                    }),
                (
                    prop::collection::vec((1u64..3, -90i64..90), 1..4),
                    inner.clone()
                )
                    .prop_map(|(fields, c)| {
                        let fields: Vec<_> =
                            fields.into_iter().map(|(n, d)| (n, d, c.clone())).collect();
                        Loop::structure(&fields)
                    }),
                (0i64..40, inner).prop_map(|(more, c)| c.resized(c.lb(), c.extent() + more)),
            ]
            .prop_filter_map("invalid", std::result::Result::ok)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        #[test]
        fn equals_looking_at_every_byte(
            tile in any_loop(), disp in -50i64..200, start in 0u64..60, len in 0u64..400,
            period in 1u64..160, first in 0u64..160, width in 0u64..160,
        ) {
            let on = Stripes { period, first: first % period, len: width.min(period) };
            let Ok(pattern) = Pattern::new(disp, tile, start, len) else { return Ok(()) };
            let hits: Vec<u64> = (0..len)
                .filter(|s| {
                    let o = pattern.offset_at(*s).unwrap();
                    (o - on.first as i64).rem_euclid(period as i64) < on.len as i64
                })
                .collect();
            for from in 0..=len {
                let expected = hits.iter().copied().find(|s| *s >= from);
                prop_assert_eq!(pattern.first_on(&on, from), expected, "from {}", from);
            }
            // With few steps at a time the same byte is found, and nothing is skipped.
            let (mut from, mut slices) = (0, 0);
            let found = loop {
                let mut steps = MIN_STEPS;
                match pattern.search_on(&on, from, &mut steps) {
                    Meeting::At(position) => break Some(position),
                    Meeting::Never => break None,
                    Meeting::NotBefore(position) => {
                        prop_assert!(position > from && steps == 0);
                        from = position;
                    }
                }
                slices += 1;
                prop_assert!(slices < 1000);
            };
            prop_assert_eq!(found, hits.first().copied());
        }
    }

    /// 2^40 copies, each of which spans all stripes and has no byte on this server's: no closed form is known.
    #[test]
    fn a_search_ends_when_its_steps_are_used_up() {
        let pair = Loop::vector(2, 1, 1 << 18, &Loop::bytes(2)).unwrap();
        let tile = Loop::vector(1 << 40, 1, 1 << 20, &pair).unwrap();
        let len = tile.size();
        let pattern = Pattern::new(0, tile, 0, len).unwrap();
        let on = Stripes {
            period: 1 << 18,
            first: 1 << 16,
            len: 1 << 16,
        };
        let mut steps = 1000;
        let Meeting::NotBefore(reached) = pattern.search_on(&on, 0, &mut steps) else {
            panic!("2^40 copies in 1000 steps");
        };
        assert!(steps == 0 && reached >= 4 * 200);
        let Meeting::NotBefore(further) = pattern.search_on(&on, reached, &mut { 1000 }) else {
            panic!("2^40 copies in 2000 steps");
        };
        assert!(further >= 2 * reached - 8);
    }

    #[test]
    fn a_vector_on_other_stripes_alone_is_passed_at_once() {
        // 2^40 runs, all in the first half of each period: the test ends only if none is visited.
        let tile = Loop::vector(1 << 40, 1, 1 << 20, &Loop::bytes(256)).unwrap();
        let size = tile.size();
        let pattern = Pattern::new(0, tile, 0, size).unwrap();
        let on = |first| Stripes {
            period: 1 << 18,
            first,
            len: 1 << 16,
        };
        assert_eq!(pattern.first_on(&on(1 << 16), 0), None);
        assert_eq!(pattern.first_on(&on(0), 300), Some(300));
        // A stride that drifts against the period touches each stripe after a while.
        let tile = Loop::vector(1 << 40, 1, (1 << 18) + 2, &Loop::bytes(2)).unwrap();
        let pattern = Pattern::new(0, tile, 0, 1 << 41).unwrap();
        assert_eq!(pattern.first_on(&on(1 << 16), 0), Some(1 << 16));
    }
}
