//! Loop meets stripes: the part of a structured access that falls on one server (SYSTEMS 1 and 3).
//!
//! Problem: an access of millions of runs is executed by every server it touches, and each must find
//! its own part without visiting the rest.
//! Idea: leapfrog. A run is cut at stripe borders by arithmetic. After the last byte in one of our
//! stripes, the next byte that can be ours lies at the start of our next stripe; for a monotone pattern
//! `stream_at` jumps there in O(depth log blocks). Where runs are sparser than stripes a jump passes one
//! run only; then whole tiles are skipped instead: the next tile whose span can meet our stripes is a
//! first hit of an arithmetic progression in a residue window ([`crate::residue`]), O(log).
//! Patterns that are not monotone are walked run by run.
use crate::residue::first_hit;
use crate::{FileOffset, Layout, LayoutError, ObjectOffset, ServerIndex};
use penstock_datatype::{Cursor, Pattern};

/// A contiguous piece of an access on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies in the server's object.
    pub object: ObjectOffset,
    /// Position in the access's stream.
    pub stream: u64,
    /// Bytes.
    pub len: u64,
}

/// Runs looked at one by one before a jump: walking a run is several times cheaper than a jump.
const WALK: u32 = 4;

/// The pieces of an access on one server, in stream order. Stops after any byte and goes on.
#[derive(Debug, Clone)]
pub struct Pieces {
    access: Pattern,
    cursor: Cursor,
    monotone: bool,
    unit: u64,
    width: u64,
    /// File offset of our unit in turn 0.
    first: u64,
    /// What is left of the current run.
    run: Rest,
    /// The stripe of ours that the last piece fell into, as file offsets, and its object offset.
    window: (u64, u64),
    window_object: u64,
    /// A piece found while joining, not yet given out.
    ahead: Option<Piece>,
}

/// The part of a run that has not been looked at. Offsets below zero have been cut off.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    offset: u64,
    len: u64,
    stream: u64,
}

impl Rest {
    fn advance(&mut self, by: u64) {
        self.offset += by;
        self.stream += by;
        self.len -= by;
    }
}

impl Pieces {
    fn new(layout: &Layout, access: &Pattern, server: ServerIndex) -> Pieces {
        let on_it = (server.0 as usize) < layout.servers.len();
        let access = if on_it {
            access.clone()
        } else {
            access.slice(0, 0)
        };
        let mut pieces = Pieces {
            cursor: access.cursor(),
            monotone: access.tile.is_monotone(),
            access,
            unit: layout.stripe_unit,
            width: layout.width(),
            first: u64::from(server.0) * layout.stripe_unit,
            run: Rest::default(),
            window: (0, 0),
            window_object: 0,
            ahead: None,
        };
        if layout.servers.len() == 1 {
            // The whole file is one stripe of ours.
            pieces.window = (0, u64::MAX);
        }
        pieces
    }

    /// The next piece, at most `max` bytes of it. Pieces adjacent in the object and in the stream are
    /// joined. `None` at the end (or when `max` is 0).
    pub fn next_piece(&mut self, max: u64) -> Option<Piece> {
        if max == 0 {
            return None;
        }
        let mut piece = match self.ahead.take() {
            Some(piece) => piece,
            None => self.find()?,
        };
        while piece.len < max {
            let Some(more) = self.find() else { break };
            if more.stream == piece.stream + piece.len
                && more.object.0 == piece.object.0 + piece.len
            {
                piece.len += more.len;
            } else {
                self.ahead = Some(more);
                return Some(piece);
            }
        }
        if piece.len > max {
            self.ahead = Some(Piece {
                object: ObjectOffset(piece.object.0 + max),
                stream: piece.stream + max,
                len: piece.len - max,
            });
            piece.len = max;
        }
        Some(piece)
    }

    /// The next piece within one stripe.
    fn find(&mut self) -> Option<Piece> {
        let mut misses = 0;
        loop {
            if self.run.len == 0 {
                self.fetch()?;
            }
            let run = self.run;
            if !(self.window.0..self.window.1).contains(&run.offset) && !self.enter(run.offset) {
                // The run begins on another server.
                let ours = self.next_window_start(run.offset);
                match ours.map(|o| o - run.offset).filter(|gap| *gap < run.len) {
                    Some(gap) => self.run.advance(gap),
                    None => {
                        self.run.len = 0;
                        misses += 1;
                        if misses >= WALK && self.monotone {
                            self.jump(ours?)?;
                        }
                    }
                }
                continue;
            }
            let len = run.len.min(self.window.1 - run.offset);
            self.run.advance(len);
            return Some(Piece {
                object: ObjectOffset(self.window_object + (run.offset - self.window.0)),
                stream: run.stream,
                len,
            });
        }
    }

    /// Takes the next run from the cursor; bytes before the start of the file are on no server.
    fn fetch(&mut self) -> Option<()> {
        loop {
            let stream = self.cursor.position();
            let run = self.cursor.next_run(u64::MAX)?;
            let below = if run.offset < 0 {
                run.offset.unsigned_abs().min(run.len)
            } else {
                0
            };
            if below == run.len {
                if self.monotone {
                    let reach = self.access.stream_at(0);
                    if reach > self.cursor.position() {
                        self.cursor.seek(reach);
                    }
                }
                continue;
            }
            self.run = Rest {
                offset: run.offset.max(0).unsigned_abs(),
                len: run.len - below,
                stream: stream + below,
            };
            return Some(());
        }
    }

    /// Makes the stripe around `offset` the window, if it is ours.
    fn enter(&mut self, offset: u64) -> bool {
        let turn = offset / self.width;
        let start = turn * self.width + self.first;
        let ours = offset >= start && offset - start < self.unit;
        if ours {
            self.window = (start, start.saturating_add(self.unit));
            self.window_object = turn * self.unit;
        }
        ours
    }

    /// Start of our first stripe after `offset`, which lies outside our stripes.
    fn next_window_start(&self, offset: u64) -> Option<u64> {
        let start = offset / self.width * self.width + self.first;
        if start > offset {
            Some(start)
        } else {
            start.checked_add(self.width)
        }
    }

    /// Monotone patterns: passes everything below `ours`, the start of our next stripe; and if what
    /// follows misses that stripe too, the tiles that cannot meet any stripe of ours.
    fn jump(&mut self, ours: u64) -> Option<()> {
        let ours = i64::try_from(ours).ok()?; // no offset lies that far
        let mut stream = self.access.stream_at(ours).max(self.cursor.position());
        if let Some(tile) = self.tile_to_wait_for(stream) {
            stream = stream.max(tile);
        }
        if stream >= self.access.len {
            return None;
        }
        self.cursor.seek(stream);
        Some(())
    }

    /// Stream position where the first tile begins, from the one around `stream` on, whose span meets
    /// our stripes. The end of the stream if there is none.
    fn tile_to_wait_for(&self, stream: u64) -> Option<u64> {
        let tile = &self.access.tile;
        let (size, span) = (tile.size(), tile.true_extent());
        let stride = u64::try_from(tile.extent()).ok()?;
        let reach = span.checked_add(self.unit - 1)?;
        if size == 0 || reach >= self.width {
            return None; // every tile meets a stripe
        }
        let number = (self.access.start.checked_add(stream)?) / size;
        let lowest = i128::from(self.access.disp)
            + i128::from(tile.true_lb())
            + i128::from(number) * i128::from(stride);
        let width = i128::from(self.width);
        // A span [o, o + span) meets [s, s + unit) when o is in (s - span, s + unit).
        let from = (i128::from(self.first) - i128::from(span) + 1).rem_euclid(width);
        let skip = first_hit(
            stride % self.width,
            u64::try_from(lowest.rem_euclid(width)).ok()?,
            self.width,
            u64::try_from(from).ok()?,
            reach,
        );
        Some(match skip {
            Some(k) => number
                .checked_add(k)
                .and_then(|n| n.checked_mul(size))
                .map_or(u64::MAX, |s| s.saturating_sub(self.access.start)),
            None => u64::MAX,
        })
    }
}

impl Layout {
    /// Refuses an access with bytes outside 0..2^63-1.
    pub fn check(&self, access: &Pattern) -> Result<(), LayoutError> {
        let (low, high) = access.bounds();
        if low < 0 || high < low {
            return Err(LayoutError::Overflow);
        }
        Ok(())
    }

    /// The pieces of `access` on `server` in stream order, to be taken one by one.
    pub fn walk(&self, access: &Pattern, server: ServerIndex) -> Pieces {
        Pieces::new(self, access, server)
    }

    /// Visits the pieces of `access` on `server` in stream order; pieces adjacent in the object and in
    /// the stream are joined. Visits only what falls on the server; `f` returns false to stop.
    pub fn pieces(&self, access: &Pattern, server: ServerIndex, mut f: impl FnMut(Piece) -> bool) {
        let mut pieces = self.walk(access, server);
        while let Some(piece) = pieces.next_piece(u64::MAX) {
            if !f(piece) {
                return;
            }
        }
    }

    /// Bytes of `access` on `server`. Closed form for contiguous accesses; for monotone ones the
    /// cheaper of one step per stripe of this server and one step per piece.
    pub fn share(&self, access: &Pattern, server: ServerIndex) -> u64 {
        if server.0 as usize >= self.servers.len() || access.len == 0 {
            return 0;
        }
        let (low, high) = access.bounds();
        let (low, high) = (low.max(0).unsigned_abs(), high.max(0).unsigned_abs());
        if access.is_contiguous() {
            return self.object_len(high, server) - self.object_len(low, server);
        }
        if self.servers.len() == 1 && low > 0 {
            return access.len;
        }
        let turns = (high - low) / self.width() + 2;
        if access.tile.is_monotone() && turns < access.regions() / 2 {
            let below = |at: u64| access.stream_at(i64::try_from(at).unwrap_or(i64::MAX));
            let first = u64::from(server.0) * self.stripe_unit;
            return (0..turns)
                .map(|turn| {
                    let start = (low / self.width() + turn) * self.width() + first;
                    below(start.saturating_add(self.stripe_unit)) - below(start)
                })
                .sum();
        }
        let mut bytes = 0;
        self.pieces(access, server, |piece| {
            bytes += piece.len;
            true
        });
        bytes
    }

    /// Servers with at least one byte of `access`, in ascending order.
    pub fn touched(&self, access: &Pattern) -> Vec<ServerIndex> {
        let n = self.servers.len();
        if access.len == 0 {
            return Vec::new();
        }
        let mut hit = vec![false; n];
        // Hop from stripe to stripe; a few turns find all servers of a dense access.
        let mut left = n;
        let mut hops = 4 * n + 16;
        let mut cursor = access.cursor();
        let monotone = access.tile.is_monotone();
        while left > 0 {
            let Some(run) = cursor.next_run(u64::MAX) else {
                left = 0;
                break;
            };
            if monotone && hops == 0 {
                break;
            }
            hops = hops.saturating_sub(1);
            let end = run.offset.saturating_add_unsigned(run.len);
            if end <= 0 {
                continue;
            }
            let (from, to) = (run.offset.max(0).unsigned_abs(), end.unsigned_abs());
            let units = from / self.stripe_unit..=(to - 1) / self.stripe_unit;
            let last = *units.end();
            for unit in units.take(n) {
                let slot = &mut hit[(unit % n as u64) as usize];
                left -= usize::from(!*slot);
                *slot = true;
            }
            if monotone {
                let next = (last + 1).saturating_mul(self.stripe_unit);
                let Ok(next) = i64::try_from(next) else { break };
                let stream = access.stream_at(next);
                if stream > cursor.position() {
                    cursor.seek(stream);
                }
            }
        }
        (0..n as u32)
            .map(ServerIndex)
            .filter(|s| {
                hit[s.0 as usize] || (left > 0 && self.walk(access, *s).next_piece(1).is_some())
            })
            .collect()
    }
}

/// The file range of one piece, for callers that think in file offsets.
impl Piece {
    /// Where the piece's first byte lies in the file.
    pub fn file_offset(&self, layout: &Layout, server: ServerIndex) -> FileOffset {
        layout.file_offset(server, self.object)
    }
}
