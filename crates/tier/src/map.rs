//! Which bytes of an object are in the log, and where.
//!
//! Pieces lie apart and are kept by their first byte. Records that follow each other at one distance, in the object and
//! in the log, are one piece. So a stream takes no more memory than one record, and neither do one writer's blocks with
//! holes between them. A write into such a hole takes the piece apart at that place.
use std::collections::BTreeMap;
use std::ops::Range;

/// Some bytes of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte of the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The record's segment.
    pub segment: u64,
    /// Where the record begins in it.
    pub at: u64,
    /// Bytes of the record before the first of these.
    pub skip: u64,
    /// Bytes of the whole record.
    pub whole: u64,
    /// Number of the record.
    pub seq: u64,
}

impl Extent {
    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// What is left of it within a range.
    fn within(&self, range: &Range<u64>) -> Option<Extent> {
        let start = self.offset.max(range.start);
        let end = self.end().min(range.end);
        (start < end).then(|| Extent {
            offset: start,
            len: end - start,
            skip: self.skip + (start - self.offset),
            ..*self
        })
    }
}

/// `count` extents at equal distances.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: Extent,
    count: u64,
    /// From one to the next: in the object, in the segment, in numbers.
    stride: u64,
    step: u64,
    seqs: u64,
}

impl Piece {
    fn one(extent: Extent) -> Piece {
        Piece {
            first: extent,
            count: 1,
            stride: 0,
            step: 0,
            seqs: 0,
        }
    }

    fn element(&self, i: u64) -> Extent {
        Extent {
            offset: self.first.offset + i * self.stride,
            at: self.first.at + i * self.step,
            seq: self.first.seq + i * self.seqs,
            ..self.first
        }
    }

    fn end(&self) -> u64 {
        self.element(self.count - 1).end()
    }

    /// The extents from number `from` to before number `to`.
    fn part(&self, from: u64, to: u64) -> Option<Piece> {
        (from < to).then(|| Piece {
            first: self.element(from),
            count: to - from,
            ..*self
        })
    }

    /// The numbers of the extents that have bytes in the range.
    fn touched(&self, range: &Range<u64>) -> Range<u64> {
        if self.count == 1 {
            let touches = self.first.offset < range.end && range.start < self.first.end();
            return if touches {
                0..1
            } else {
                // In front of the range, or behind it.
                let n = u64::from(self.first.end() <= range.start);
                n..n
            };
        }
        let base = self.first.offset;
        let from = (range.start + 1)
            .saturating_sub(base + self.first.len)
            .div_ceil(self.stride)
            .min(self.count);
        let to = range
            .end
            .saturating_sub(base)
            .div_ceil(self.stride)
            .min(self.count);
        from..to.max(from)
    }

    /// Whether `next` continues it; then with it.
    fn with(&self, next: &Extent) -> Option<Piece> {
        let whole = |e: &Extent| e.skip == 0 && e.len == e.whole;
        let alike = self.first.segment == next.segment && self.first.len == next.len;
        if !alike || !whole(&self.first) || !whole(next) {
            return None;
        }
        if self.count == 1 {
            return Some(Piece {
                count: 2,
                stride: next.offset.checked_sub(self.first.offset)?,
                step: next.at.checked_sub(self.first.at)?,
                seqs: next.seq.checked_sub(self.first.seq)?,
                ..*self
            });
        }
        (self.element(self.count) == *next).then_some(Piece {
            count: self.count + 1,
            ..*self
        })
    }
}

/// See the module's text. The default holds nothing.
#[derive(Debug, Default)]
pub struct Map {
    pieces: BTreeMap<u64, Piece>,
    bytes: u64,
}

impl Map {
    /// Nothing of the object is in the log.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes of the object in the log.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it takes in memory, in pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// One past the highest byte in the log, 0 if there is none.
    pub fn end(&self) -> u64 {
        self.pieces.values().next_back().map_or(0, Piece::end)
    }

    fn around(&self, range: &Range<u64>) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.range(..=range.start).next_back();
        let start = first.map_or(range.start, |(start, _)| *start);
        self.pieces
            .range(start..range.end.max(start))
            .map(|(_, piece)| piece)
    }

    /// What of the range is in the log, ascending, at most `most` extents.
    pub fn overlay(&self, range: &Range<u64>, most: usize) -> Vec<Extent> {
        self.around(range)
            .flat_map(|piece| piece.touched(range).map(|i| piece.element(i)))
            .filter_map(|extent| extent.within(range))
            .take(most)
            .collect()
    }

    /// Whether any byte of the range is in the log.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        let mut around = self.around(range);
        !range.is_empty() && around.any(|piece| !piece.touched(range).is_empty())
    }

    /// The first extent that ends behind `from`.
    pub fn next(&self, from: u64) -> Option<Extent> {
        let range = from..u64::MAX;
        self.around(&range)
            .find_map(|piece| {
                let touched = piece.touched(&range);
                (!touched.is_empty()).then(|| piece.element(touched.start))
            })
            .and_then(|extent| extent.within(&range))
    }

    /// A record has been written. `freed` hears of bytes that count no longer, by segment.
    pub fn insert(&mut self, extent: Extent, freed: &mut dyn FnMut(u64, u64)) {
        if extent.len == 0 {
            return;
        }
        self.remove(extent.offset..extent.end(), u64::MAX, freed);
        self.bytes += extent.len;
        if let Some((_, before)) = self.pieces.range_mut(..extent.offset).next_back()
            && let Some(longer) = before.with(&extent)
        {
            *before = longer;
            return;
        }
        self.pieces.insert(extent.offset, Piece::one(extent));
    }

    /// Records up to number `upto` count no longer in this range.
    pub fn remove(&mut self, range: Range<u64>, upto: u64, freed: &mut dyn FnMut(u64, u64)) {
        if range.is_empty() {
            return;
        }
        let starts: Vec<u64> = self
            .around(&range)
            .filter(|piece| piece.end() > range.start)
            .map(|piece| piece.first.offset)
            .collect();
        for start in starts {
            let Some(piece) = self.pieces.remove(&start) else {
                continue;
            };
            let touched = piece.touched(&range);
            let sides = [
                piece.part(0, touched.start),
                piece.part(touched.end, piece.count),
            ];
            for side in sides.into_iter().flatten() {
                self.pieces.insert(side.first.offset, side);
            }
            for i in touched {
                let extent = piece.element(i);
                if extent.seq > upto {
                    self.pieces.insert(extent.offset, Piece::one(extent));
                    continue;
                }
                let gone = extent.within(&range).map_or(0, |part| part.len);
                self.bytes -= gone;
                freed(extent.segment, gone);
                let sides = [
                    extent.within(&(0..range.start)),
                    extent.within(&(range.end..u64::MAX)),
                ];
                for side in sides.into_iter().flatten() {
                    self.pieces.insert(side.offset, Piece::one(side));
                }
            }
        }
    }
}
