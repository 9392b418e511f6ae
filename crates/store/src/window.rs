//! The pieces that are executed together.
//!
//! Problem: calls should be few, memory bounded, and no list of all pieces may be built.
//! Idea: a window takes pieces in stream order as long as they ascend in the object and belong
//! together by the rule of the one who executes it ([`Through`]); its sizes are bounded.
//! When it pays: a system call costs as much as copying [`CALL`] bytes, so a gap is read through when
//! reading it and copying the piece once more costs less.
use penstock_layout::Piece;
use std::ops::Range;

/// Bytes that could be read from the page cache in the time of one call.
const CALL: u64 = 4096;
/// Copying within the cache is so many times cheaper than reading from the page cache.
const COPY_GAIN: u64 = 3;
/// Longest part of an object that goes through a buffer at once: fits the second-level cache.
pub(crate) const BUFFER: u64 = 256 << 10;
/// Most pieces of one window, and so most vectors of one call.
pub(crate) const PICKS: usize = crate::descriptor::MAX_VECTORS;

/// Bytes that are spread over an object at once ([`crate::spread`]).
pub(crate) const STAGING: usize = 256 << 10;
/// Size and alignment of the part of an object mapped at once: a huge folio.
pub(crate) const REGION: u64 = 2 << 20;

/// Which gaps a window may span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Through {
    #[default]
    /// Those that are cheaper to read than to step over.
    Gaps,
    /// All: nothing is read that is not wanted.
    All,
    /// Those between pieces of one region whose starts are at most so many bytes apart; with 0, none.
    Within(u64),
}

/// Pieces ascending in the object and in the stream.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Where the first begins in the object.
    pub(crate) low: u64,
    /// Where the last ends.
    pub(crate) high: u64,
    /// Bytes of the pieces.
    pub(crate) bytes: u64,
    /// Some are not adjacent.
    pub(crate) gapped: bool,
    /// What it may span.
    pub(crate) through: Through,
    pub(crate) picks: Vec<Pick>,
}

/// A piece in a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) object: u64,
    pub(crate) stream: u64,
    pub(crate) len: u64,
}

impl Pick {
    /// Where it lies in memory that is all of the stream.
    pub(crate) fn memory(&self) -> Range<usize> {
        self.stream as usize..(self.stream + self.len) as usize
    }

    /// How many of its bytes exist in an object of `end` bytes.
    pub(crate) fn present(&self, end: u64) -> u64 {
        end.saturating_sub(self.object).min(self.len)
    }
}

impl Window {
    /// Begins anew with `piece`.
    pub(crate) fn begin(&mut self, piece: Piece, through: Through) {
        self.through = through;
        self.picks.clear();
        self.low = piece.object.0;
        self.high = piece.object.0;
        self.bytes = 0;
        self.gapped = false;
        self.push(piece);
    }

    /// Adds a piece that was admitted.
    pub(crate) fn push(&mut self, piece: Piece) {
        self.gapped |= piece.object.0 > self.high;
        self.high = piece.object.0 + piece.len;
        self.bytes += piece.len;
        self.picks.push(Pick {
            object: piece.object.0,
            stream: piece.stream,
            len: piece.len,
        });
    }

    /// Bytes of the object that the window spans.
    pub(crate) fn extent(&self) -> u64 {
        self.high - self.low
    }

    /// Whether `next` belongs to the window, the last piece of which is `last`.
    pub(crate) fn admits(&self, last: &Piece, next: &Piece) -> bool {
        if next.object.0 < self.high || self.picks.len() >= PICKS {
            return false;
        }
        let gap = next.object.0 - self.high;
        if gap == 0 && !self.gapped && self.through != Through::All {
            return true;
        }
        let end = next.object.0 + next.len;
        match self.through {
            Through::Gaps => {
                let worth = |piece: &Piece| gap + piece.len / COPY_GAIN <= CALL;
                worth(last) && worth(next) && end - self.low <= BUFFER
            }
            Through::All => end - self.low <= BUFFER && self.bytes + next.len <= BUFFER,
            Through::Within(distance) => {
                next.object.0 - last.object.0 <= distance
                    && (end - 1) / REGION == self.low / REGION
                    && self.bytes + next.len <= STAGING as u64
            }
        }
    }

    /// Calls that read its pieces and nothing else.
    pub(crate) fn calls(&self) -> u64 {
        self.groups(0).count() as u64
    }

    /// The bytes of `pick` in a buffer that holds the window.
    pub(crate) fn part<'b>(&self, buffer: &'b [u8], pick: &Pick) -> &'b [u8] {
        let from = (pick.object - self.low) as usize;
        &buffer[from..from + pick.len as usize]
    }

    /// Runs of adjacent pieces from piece number `first` on.
    pub(crate) fn groups(&self, first: usize) -> impl Iterator<Item = Group<'_>> {
        let mut at: u64 = self.picks[..first].iter().map(|p| p.len).sum();
        let adjacent = |a: &Pick, b: &Pick| a.object + a.len == b.object;
        self.picks[first..].chunk_by(adjacent).map(move |picks| {
            let len = picks.iter().map(|p| p.len).sum();
            at += len;
            Group {
                picks,
                len,
                packed: at - len,
            }
        })
    }
}

/// Pieces adjacent in the object.
#[derive(Debug)]
pub(crate) struct Group<'w> {
    pub(crate) picks: &'w [Pick],
    pub(crate) len: u64,
    /// Where its bytes begin among those of the window.
    pub(crate) packed: u64,
}

impl Group<'_> {
    /// Where it begins in the object.
    pub(crate) fn object(&self) -> u64 {
        self.picks.first().map_or(0, |pick| pick.object)
    }
}
