//! A window: the pieces that are executed together.
//!
//! Problem: there should be few calls and bounded memory, and no list of all pieces. Idea: a window takes pieces in
//! stream order as long as they ascend in the object and satisfy the executor's rule ([`Through`]). Its size is
//! bounded. When it pays: a system call costs as much as copying [`CALL`] bytes. So a gap is read through if reading it
//! and copying the piece once more costs less.
use penstock_layout::Piece;
use std::ops::Range;

/// Bytes that are read from the page cache in the time of one call.
const CALL: u64 = 4096;
/// How many times cheaper copying within the cache is than reading from the page cache.
const COPY_GAIN: u64 = 3;
/// Longest part of an object that is buffered at once; it fits the second-level cache.
pub(crate) const BUFFER: u64 = 256 << 10;
/// Most pieces of one window, and so most vectors of one call.
pub(crate) const PICKS: usize = crate::descriptor::MAX_VECTORS;

/// Bytes spread over an object at once ([`crate::spread`]).
pub(crate) const STAGING: usize = 256 << 10;
/// Size and alignment of the part of an object mapped at once: a huge folio.
pub(crate) const REGION: u64 = 2 << 20;

/// The gaps that a window may span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Through {
    #[default]
    /// Gaps that are cheaper to read than to skip.
    Gaps,
    /// All gaps: only wanted bytes are read.
    All,
    /// Gaps between pieces of one region whose starts are at most this many bytes apart; 0: none.
    Within(u64),
}

/// Pieces ascending in the object and in the stream.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Object offset of the first byte.
    pub(crate) low: u64,
    /// Object offset of the end.
    pub(crate) high: u64,
    /// Bytes of the pieces.
    pub(crate) bytes: u64,
    /// Whether some are not adjacent.
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
    /// Its range in memory that is the whole stream.
    pub(crate) fn memory(&self) -> Range<usize> {
        self.stream as usize..(self.stream + self.len) as usize
    }

    /// How many of its bytes exist in an object of `end` bytes.
    pub(crate) fn present(&self, end: u64) -> u64 {
        end.saturating_sub(self.object).min(self.len)
    }
}

impl Window {
    /// Starts again with `piece`.
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

    /// Number of calls that read exactly its pieces.
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
    /// Its offset in the window's packed bytes.
    pub(crate) packed: u64,
}

impl Group<'_> {
    /// Its object offset.
    pub(crate) fn object(&self) -> u64 {
        self.picks.first().map_or(0, |pick| pick.object)
    }
}
