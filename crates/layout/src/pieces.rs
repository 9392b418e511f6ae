//! Intersects a loop with stripes: the part of a structured access on one server.
//!
//! Problem: an access of millions of runs is executed by every server it touches, and each must find its own part
//! without visiting the rest. Idea: leapfrog. Runs are taken one by one while they touch this server's stripes, and cut
//! at stripe boundaries by arithmetic. After a few runs that do not, `Pattern::first_on` finds the next one that does
//! in closed form. A vector whose runs are all on another server therefore costs O(log), not O(runs). Cost: one step
//! per piece, one search per gap between this server's stripes. A search may take a step for each copy of an outer
//! level; [`Pieces::limited`] bounds that.
use crate::search_limit::{Effort, GivenUp, SLICE, SearchLimit};
use crate::{FileOffset, Layout, LayoutError, ObjectOffset, ServerIndex};
use penstock_datatype::{Cursor, Meeting, Pattern, Stripes};
use std::ops::Range;
use std::sync::Arc;

/// A contiguous piece of an access on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Its offset in the server's object.
    pub object: ObjectOffset,
    /// Its position in the access's stream.
    pub stream: u64,
    /// Bytes.
    pub len: u64,
}

/// Runs on other servers that are skipped one by one before a search, because a run is several times cheaper.
const WALK: u32 = 3;

/// The pieces of an access on one server, in stream order. The iteration can stop after any byte and continue.
#[derive(Debug, Clone)]
pub struct Pieces {
    access: Pattern,
    /// Bounds of the access in the object.
    bounds: Range<u64>,
    cursor: Cursor,
    /// This server's stripes in the file.
    stripes: Stripes,
    /// The rest of the current run.
    run: Rest,
    /// The stripe of the last piece, as file offsets, and its object offset.
    window: (u64, u64),
    window_object: u64,
    /// A piece found while joining and not yet returned.
    ahead: Option<Piece>,
    effort: Effort,
}

/// The rest of a run. Offsets below zero have been removed.
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
            bounds: layout.object_bounds(&access, server),
            access,
            stripes: layout.stripes(server),
            run: Rest::default(),
            window: (0, 0),
            window_object: 0,
            ahead: None,
            effort: Effort::default(),
        };
        if layout.servers.len() == 1 {
            // The whole file is one stripe on this server.
            pieces.window = (0, u64::MAX);
        }
        pieces
    }

    /// The same with a limit on searches that find nothing.
    #[must_use]
    pub fn limited(mut self, limit: SearchLimit) -> Pieces {
        self.effort = Effort::limited(limit);
        self
    }

    /// Why the search was given up; `None` if the access has no more pieces here.
    pub fn given_up(&self) -> Option<GivenUp> {
        self.effort.given_up()
    }

    /// Range of the object that the whole access can touch, see [`Layout::object_bounds`].
    pub fn bounds(&self) -> Range<u64> {
        self.bounds.clone()
    }

    /// Whether pieces ascend in the object without overlap.
    pub fn is_monotone(&self) -> bool {
        self.access.is_monotone()
    }

    /// The next piece, at most `max` bytes of it. Pieces adjacent both in the object and in the stream are joined.
    /// `None` at the end (or when `max` is 0), or when the search was given up.
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
        if self.given_up().is_some() {
            return None;
        }
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
                        if misses >= WALK {
                            self.search()?;
                            misses = 0;
                        }
                    }
                }
                continue;
            }
            let len = run.len.min(self.window.1 - run.offset);
            self.run.advance(len);
            self.effort.found();
            return Some(Piece {
                object: ObjectOffset(self.window_object + (run.offset - self.window.0)),
                stream: run.stream,
                len,
            });
        }
    }

    /// Moves the cursor to the next byte on this server's stripes. `None`: given up.
    fn search(&mut self) -> Option<()> {
        let mut from = self.cursor.position();
        loop {
            let mut steps = SLICE;
            let met = self.access.search_on(&self.stripes, from, &mut steps);
            let goes_on = self.effort.took(SLICE - steps);
            match met {
                Meeting::At(position) => from = position,
                Meeting::Never => from = self.access.len,
                Meeting::NotBefore(position) if goes_on => {
                    from = position;
                    continue;
                }
                Meeting::NotBefore(_) => {}
            }
            if !goes_on {
                return None;
            }
            self.cursor.seek(from);
            return Some(());
        }
    }

    /// Takes the next run from the cursor; bytes before the start of the file are skipped.
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
                if self.access.is_monotone() {
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

    /// Makes the stripe around `offset` the window, if it is on this server.
    fn enter(&mut self, offset: u64) -> bool {
        let Stripes { period, first, len } = self.stripes;
        let turn = offset / period;
        let start = turn * period + first;
        let ours = offset >= start && offset - start < len;
        if ours {
            self.window = (start, start.saturating_add(len));
            self.window_object = turn * len;
        }
        ours
    }

    /// Start of this server's first stripe after `offset`, which is outside its stripes.
    fn next_window_start(&self, offset: u64) -> Option<u64> {
        let Stripes { period, first, .. } = self.stripes;
        let start = offset / period * period + first;
        if start > offset {
            Some(start)
        } else {
            start.checked_add(period)
        }
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

    /// The stripe units of `server` in the file.
    pub fn stripes(&self, server: ServerIndex) -> Stripes {
        Stripes {
            period: self.width(),
            first: u64::from(server.0) * self.stripe_unit,
            len: self.stripe_unit,
        }
    }

    /// Range of the object of `server` that an access can touch; bytes below file offset 0 do not count.
    pub fn object_bounds(&self, access: &Pattern, server: ServerIndex) -> Range<u64> {
        let (low, high) = access.bounds();
        let object = |at: i64| self.object_len(at.max(0).unsigned_abs(), server);
        object(low)..object(high)
    }

    /// An iterator over the pieces of `access` on `server` in stream order.
    pub fn walk(&self, access: &Pattern, server: ServerIndex) -> Pieces {
        Pieces::new(self, access, server)
    }

    /// Calls `f` for the pieces of `access` on `server` in stream order; pieces adjacent both in the object and in the
    /// stream are joined. The cost depends only on what is on the server; `f` returns false to stop.
    pub fn pieces(&self, access: &Pattern, server: ServerIndex, mut f: impl FnMut(Piece) -> bool) {
        let mut pieces = self.walk(access, server);
        while let Some(piece) = pieces.next_piece(u64::MAX) {
            if !f(piece) {
                return;
            }
        }
    }

    /// Bytes of `access` on `server`. Closed form for contiguous accesses. For monotone ones it takes the cheaper of
    /// one step per stripe of this server and one step per piece.
    pub fn share(&self, access: &Pattern, server: ServerIndex) -> u64 {
        // Steps are fewer than stream bytes plus stripes.
        self.share_within(access, server, u64::MAX)
            .unwrap_or(access.len)
    }

    /// The same, or `None` if it takes more than about this many steps.
    pub fn share_within(&self, access: &Pattern, server: ServerIndex, steps: u64) -> Option<u64> {
        if server.0 as usize >= self.servers.len() || access.len == 0 {
            return Some(0);
        }
        let (low, high) = access.bounds();
        if self.servers.len() == 1 && low >= 0 {
            return Some(access.len);
        }
        let (low, high) = (low.max(0).unsigned_abs(), high.max(0).unsigned_abs());
        if access.is_contiguous() {
            return Some(self.object_len(high, server) - self.object_len(low, server));
        }
        let turns = (high - low) / self.width() + 2;
        if access.is_monotone() && turns < access.regions() / 2 {
            if turns > steps {
                return None;
            }
            let below = |at: u64| access.stream_at(i64::try_from(at).unwrap_or(i64::MAX));
            let first = u64::from(server.0) * self.stripe_unit;
            let share = (0..turns).map(|turn| {
                let start = (low / self.width() + turn) * self.width() + first;
                below(start.saturating_add(self.stripe_unit)) - below(start)
            });
            return Some(share.sum());
        }
        let limit = SearchLimit {
            steps,
            per_piece: 0,
            wanted: Arc::new(|| true),
        };
        let mut pieces = self.walk(access, server).limited(limit);
        let (mut bytes, mut taken) = (0, 0);
        // Without joining, which would take as many steps as there are parts.
        while let Some(piece) = pieces.find() {
            bytes += piece.len;
            taken += 1;
            if taken > steps {
                return None;
            }
        }
        pieces.given_up().is_none().then_some(bytes)
    }

    /// Servers with at least one byte of `access`, in ascending order. By arithmetic for a contiguous access, otherwise
    /// one search per server.
    pub fn touched(&self, access: &Pattern) -> Vec<ServerIndex> {
        let n = self.servers.len() as u64;
        let (low, high) = access.bounds();
        let (low, high) = (low.max(0).unsigned_abs(), high.max(0).unsigned_abs());
        if low == high {
            return Vec::new();
        }
        let all = || (0..n as u32).map(ServerIndex);
        let (first, last) = (low / self.stripe_unit, (high - 1) / self.stripe_unit);
        if !access.is_contiguous() {
            return all()
                .filter(|s| self.walk(access, *s).next_piece(1).is_some())
                .collect();
        }
        if last - first >= n {
            return all().collect();
        }
        let mut hit: Vec<_> = (first..=last)
            .map(|unit| ServerIndex((unit % n) as u32))
            .collect();
        hit.sort_unstable();
        hit.dedup();
        hit
    }
}

impl Piece {
    /// File offset of the piece's first byte.
    pub fn file_offset(&self, layout: &Layout, server: ServerIndex) -> FileOffset {
        layout.file_offset(server, self.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerId;
    use penstock_datatype::Loop;
    use proptest::prelude::*;

    /// Reference: finds pieces byte by byte; bytes before the start of the file are skipped.
    fn brute(layout: &Layout, access: &Pattern, server: ServerIndex) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for stream in 0..access.len {
            let Ok(at) = u64::try_from(access.offset_at(stream).unwrap()) else {
                continue;
            };
            let (s, object) = layout.locate(FileOffset(at));
            if s != server {
                continue;
            }
            match pieces.last_mut() {
                Some(p) if p.object.0 + p.len == object.0 && p.stream + p.len == stream => {
                    p.len += 1;
                }
                _ => pieces.push(Piece {
                    object,
                    stream,
                    len: 1,
                }),
            }
        }
        pieces
    }

    fn any_access() -> impl Strategy<Value = Pattern> {
        let vector = || {
            (1u64..8, 1u64..40, 0i64..90).prop_filter_map("invalid", |(count, len, gap)| {
                Loop::vector(count, 1, len as i64 + gap, &Loop::bytes(len)).ok()
            })
        };
        let tile = prop_oneof![
            (1u64..100).prop_map(Loop::bytes),
            vector(),
            (vector(), 0i64..200).prop_filter_map("invalid", |(v, gap)| {
                v.resized(v.lb(), v.extent() + gap).ok()
            }),
            (vector(), 1u64..5, -100i64..400)
                .prop_filter_map("invalid", |(v, n, s)| Loop::vector(n, 1, s, &v).ok()),
            prop::collection::vec((1u64..30, 0i64..300), 1..8).prop_filter_map(
                "invalid",
                |blocks| {
                    let (lens, displs): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
                    Loop::indexed(&lens, &displs, &Loop::bytes(1)).ok()
                }
            ),
        ];
        (tile, -30i64..500, 0u64..80, 0u64..600)
            .prop_filter_map("invalid", |(t, d, s, l)| Pattern::new(d, t, s, l).ok())
    }

    /// An access that a client can describe in 97 bytes ends within the given number of steps.
    #[test]
    fn shares_and_searches_end_when_their_steps_are_used_up() {
        let layout = Layout::new(1 << 16, (0..4).map(ServerId).collect()).unwrap();
        let whole = |tile: Loop| {
            let len = tile.size();
            Pattern::new(0, tile, 0, len).unwrap()
        };
        let many = whole(Loop::vector(1 << 60, 1, 2, &Loop::bytes(1)).unwrap());
        let pair = Loop::vector(2, 1, 1 << 18, &Loop::bytes(2)).unwrap();
        let apart = whole(Loop::vector(1 << 40, 1, 1 << 20, &pair).unwrap());
        let long = Pattern::list(&[(0, 1 << 60), (1 << 61, 1)]).unwrap();
        let over = whole(Loop::vector(1 << 61, 1, 0, &Loop::bytes(1)).unwrap());
        for access in [&many, &apart, &long] {
            assert_eq!(layout.share_within(access, ServerIndex(1), 1 << 14), None);
        }
        assert_eq!(layout.share_within(&over, ServerIndex(1), 1 << 14), Some(0));
        let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counts = asked.clone();
        let mut limit = SearchLimit {
            steps: 1 << 20,
            per_piece: 10,
            wanted: Arc::new(move || {
                counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                true
            }),
        };
        let mut pieces = layout.walk(&apart, ServerIndex(1)).limited(limit.clone());
        assert_eq!(pieces.next_piece(9), None);
        assert!(matches!(pieces.given_up(), Some(GivenUp::TooSparse { .. })));
        assert!((32..70).contains(&asked.load(std::sync::atomic::Ordering::Relaxed)));
        assert_eq!(pieces.next_piece(9), None);
        // Nobody waits: found at the first check.
        limit.wanted = Arc::new(|| false);
        let mut pieces = layout.walk(&apart, ServerIndex(1)).limited(limit.clone());
        assert_eq!(pieces.next_piece(9), None);
        assert_eq!(pieces.given_up(), Some(GivenUp::Unwanted));
        // Existing pieces are never refused, however many there are.
        let mut pieces = layout.walk(&many, ServerIndex(1)).limited(limit);
        for _ in 0..1 << 20 {
            assert!(pieces.next_piece(9).is_some());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        #[test]
        fn pieces_shares_and_servers_equal_looking_at_every_byte(
            access in any_access(), unit in 1u64..80, n in 1u32..6, max in 1u64..50,
        ) {
            let layout = Layout::new(unit, (0..n).map(ServerId).collect()).unwrap();
            let mut touched = Vec::new();
            for server in (0..n).map(ServerIndex) {
                let expected = brute(&layout, &access, server);
                let mut found = Vec::new();
                layout.pieces(&access, server, |p| {
                    found.push(p);
                    true
                });
                prop_assert_eq!(&found, &expected);
                let share: u64 = expected.iter().map(|p| p.len).sum();
                prop_assert_eq!(layout.share(&access, server), share);
                if share > 0 {
                    touched.push(server);
                }
                // In steps of at most `max` bytes the same bytes are returned, in as few steps as possible.
                let mut steps = layout.walk(&access, server);
                for piece in &expected {
                    let mut done = 0;
                    while done < piece.len {
                        let len = max.min(piece.len - done);
                        let part = Piece {
                            object: ObjectOffset(piece.object.0 + done),
                            stream: piece.stream + done,
                            len,
                        };
                        prop_assert_eq!(steps.next_piece(max), Some(part));
                        done += len;
                    }
                }
                prop_assert_eq!(steps.next_piece(max), None);
            }
            prop_assert_eq!(layout.touched(&access), touched);
            prop_assert_eq!(layout.share(&access, ServerIndex(n)), 0);
            prop_assert!(layout.walk(&access, ServerIndex(n)).next_piece(1).is_none());
        }
    }

    #[test]
    fn a_server_that_an_endless_vector_passes_by_costs_no_walk() {
        // 2^36 runs of 256 B, all on server 0 of 4: the test ends only if no run is visited.
        let tile = Loop::vector(1 << 36, 1, 1 << 20, &Loop::bytes(256)).unwrap();
        let size = tile.size();
        let access = Pattern::new(0, tile, 0, size).unwrap();
        let layout = Layout::new(65536, (0..4).map(ServerId).collect()).unwrap();
        assert_eq!(layout.touched(&access), [ServerIndex(0)]);
        assert_eq!(layout.share(&access, ServerIndex(2)), 0);
        let mut first = None;
        layout.pieces(&access, ServerIndex(0), |piece| {
            first = Some(piece);
            false
        });
        assert_eq!(first.map(|p| p.len), Some(256));
    }

    #[test]
    fn units_dealt_to_one_server_join_in_its_object() {
        // Every rank writes whole units of one server: adjacent both in the object and in the stream.
        let tile = Loop::vector(16, 1, 4 * 64, &Loop::bytes(64)).unwrap();
        let access = Pattern::new(64, tile, 0, 1024).unwrap();
        let layout = Layout::new(64, (0..4).map(ServerId).collect()).unwrap();
        let mut pieces = Vec::new();
        layout.pieces(&access, ServerIndex(1), |p| {
            pieces.push((p.object.0, p.stream, p.len));
            true
        });
        assert_eq!(pieces, [(0, 0, 1024)]);
    }

    #[test]
    fn accesses_outside_the_file_are_refused() {
        let layout = Layout::new(64, vec![ServerId(0)]).unwrap();
        assert_eq!(layout.check(&Pattern::contiguous(0, 1 << 40)), Ok(()));
        assert_eq!(
            layout.check(&Pattern::contiguous(-1, 10)),
            Err(LayoutError::Overflow)
        );
    }
}
