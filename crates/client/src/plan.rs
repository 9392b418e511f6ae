//! From an access to operations: what each request says, and which stream bytes it moves.
//!
//! An access (file pattern) becomes *operations* by its [`Form`]; an operation becomes one request per touched server.
//! Both sides of a request agree on the bytes without listing them. The server intersects the region with its stripes.
//! The client walks the same intersection as *runs* of the stream, and gathers them from memory or scatters them into
//! it. A run is a maximal sequence of stream bytes that are consecutive on the server. A run joins pieces that are
//! apart in the file, so a dense pattern costs one step per stripe unit, not one per region.
use crate::stats::Form;
use penstock_datatype::{Cursor, Pattern};
use penstock_layout::{FileOffset, Layout, ServerIndex};
use penstock_wire::message::{MAX_LIST, MAX_LOOP, Region};
use std::sync::Arc;

/// Regions in one indexed loop that stands for a part of a loop too large to send.
const PART_REGIONS: usize = 16 << 10;

/// Pieces per stripe unit from which a pattern is walked unit by unit instead of piece by piece.
const DENSE: u64 = 4;

/// What one operation covers of the file.
#[derive(Debug, Clone)]
pub(crate) enum FileRegions {
    Contiguous {
        offset: u64,
        len: u64,
    },
    /// At most [`MAX_LIST`] (offset, length), none empty.
    List(Arc<[(u64, u64)]>),
    Loop {
        pattern: Pattern,
        /// Monotone with several pieces per stripe unit.
        dense: bool,
    },
}

impl FileRegions {
    pub fn contiguous(offset: u64, len: u64) -> FileRegions {
        FileRegions::Contiguous { offset, len }
    }

    /// A whole access.
    pub fn whole(access: Pattern, layout: &Layout) -> FileRegions {
        if access.is_contiguous() {
            let (lo, _) = access.bounds();
            FileRegions::contiguous(lo.unsigned_abs(), access.len)
        } else {
            FileRegions::of_loop(access, layout)
        }
    }

    fn of_loop(pattern: Pattern, layout: &Layout) -> FileRegions {
        let dense = pattern.is_monotone() && {
            let (lo, hi) = pattern.bounds();
            let units = (hi - lo).unsigned_abs() / layout.stripe_unit.max(1);
            pattern.regions() >= units.max(1).saturating_mul(DENSE)
        };
        FileRegions::Loop { pattern, dense }
    }

    /// Stream bytes.
    pub fn len(&self) -> u64 {
        match self {
            FileRegions::Contiguous { len, .. } => *len,
            FileRegions::List(regions) => regions.iter().map(|r| r.1).sum(),
            FileRegions::Loop { pattern, .. } => pattern.len,
        }
    }

    /// Offsets ascend along the stream, so that nothing lies below the end of the file behind the
    /// first byte that does not.
    pub fn is_ascending(&self) -> bool {
        match self {
            FileRegions::Contiguous { .. } => true,
            FileRegions::List(regions) => regions.is_sorted_by(|a, b| a.0 + a.1 <= b.0),
            FileRegions::Loop { pattern, .. } => pattern.is_monotone(),
        }
    }

    /// Calls `f` for each touched server.
    pub fn touched(&self, layout: &Layout, mut f: impl FnMut(ServerIndex)) {
        let n = layout.servers.len() as u64;
        match self {
            FileRegions::Contiguous { offset, len } => touched(layout, *offset, *len, f),
            FileRegions::List(regions) => {
                let mut seen = vec![false; n as usize];
                for &(offset, len) in regions.iter() {
                    touched(layout, offset, len, |i| seen[i.0 as usize] = true);
                }
                for (i, _) in seen.iter().enumerate().filter(|(_, s)| **s) {
                    f(ServerIndex(i as u32));
                }
            }
            FileRegions::Loop { pattern, .. } => layout.touched(pattern).into_iter().for_each(f),
        }
    }

    /// Calls `f(stream position, bytes)` for the runs on `server` from stream position `from` on, in
    /// stream order, until it returns false.
    pub fn runs(
        &self,
        layout: &Layout,
        server: ServerIndex,
        from: u64,
        mut f: impl FnMut(u64, u64) -> bool,
    ) {
        if layout.servers.len() == 1 {
            // All of the stream is on the one server.
            if from < self.len() {
                f(from, self.len() - from);
            }
            return;
        }
        match self {
            FileRegions::Contiguous { offset, len } => {
                units(layout, server, offset + from, offset + len, |at, n| {
                    f(at - offset, n)
                });
            }
            FileRegions::List(regions) => {
                let mut join = Join::new(f);
                let mut stream = 0;
                for &(offset, len) in regions.iter() {
                    let skip = from.saturating_sub(stream).min(len);
                    let go = units(layout, server, offset + skip, offset + len, |at, n| {
                        join.add(stream + (at - offset), n)
                    });
                    if !go {
                        return;
                    }
                    stream += len;
                }
                join.end();
            }
            FileRegions::Loop { pattern, dense } => {
                if from >= pattern.len {
                    return;
                }
                if *dense {
                    dense_runs(pattern, layout, server, from, f);
                } else {
                    let rest = pattern.slice(from, pattern.len - from);
                    let mut join = Join::new(f);
                    layout.pieces(&rest, server, |p| join.add(from + p.stream, p.len));
                    join.end();
                }
            }
        }
    }

    /// How many leading stream bytes lie below `file_len`.
    pub fn below(&self, file_len: u64) -> u64 {
        match self {
            FileRegions::Contiguous { offset, len } => file_len.saturating_sub(*offset).min(*len),
            FileRegions::List(regions) => {
                let mut stream = 0;
                for &(offset, len) in regions.iter() {
                    let below = file_len.saturating_sub(offset).min(len);
                    stream += below;
                    if below < len {
                        break;
                    }
                }
                stream
            }
            FileRegions::Loop { pattern, .. } => {
                let end = i64::try_from(file_len).unwrap_or(i64::MAX);
                if pattern.is_monotone() {
                    return pattern.stream_at(end);
                }
                let mut cursor = pattern.cursor();
                let mut stream = 0;
                while let Some(run) = cursor.next_run(u64::MAX) {
                    let below = u64::try_from(end.saturating_sub(run.offset)).unwrap_or(0);
                    stream += below.min(run.len);
                    if below < run.len {
                        break;
                    }
                }
                stream
            }
        }
    }

    /// What the request says.
    pub fn region(&self, layout: &Layout, server: ServerIndex, inline: bool) -> Region {
        match self {
            FileRegions::Contiguous { offset, len } => Region::Contiguous {
                offset: *offset,
                len: *len,
            },
            FileRegions::List(regions) => Region::List(
                regions
                    .iter()
                    .copied()
                    .filter(|&(offset, len)| {
                        !units(layout, server, offset, offset + len, |_, _| false)
                    })
                    .collect(),
            ),
            FileRegions::Loop { pattern, .. } => {
                let (disp, start, len) = (pattern.disp, pattern.start, pattern.len);
                if inline {
                    Region::LoopInline {
                        encoded: pattern.tile.encode().to_vec(),
                        disp,
                        start,
                        len,
                    }
                } else {
                    Region::LoopHash {
                        hash: pattern.tile.hash().0,
                        disp,
                        start,
                        len,
                    }
                }
            }
        }
    }

    /// The (object offset, stream position, bytes) of everything on `server` from stream position
    /// `from` on, piece by piece, until `f` returns false.
    pub fn pieces(
        &self,
        layout: &Layout,
        server: ServerIndex,
        from: u64,
        mut f: impl FnMut(u64, u64, u64) -> bool,
    ) {
        let locate = |at| layout.locate(FileOffset(at)).1.0;
        match self {
            FileRegions::Contiguous { offset, len } => {
                units(layout, server, offset + from, offset + len, |at, n| {
                    f(locate(at), at - offset, n)
                });
            }
            FileRegions::List(regions) => {
                let mut stream = 0;
                for &(offset, len) in regions.iter() {
                    let skip = from.saturating_sub(stream).min(len);
                    let go = units(layout, server, offset + skip, offset + len, |at, n| {
                        f(locate(at), stream + (at - offset), n)
                    });
                    if !go {
                        return;
                    }
                    stream += len;
                }
            }
            FileRegions::Loop { pattern, .. } => {
                let from = from.min(pattern.len);
                let rest = pattern.slice(from, pattern.len - from);
                layout.pieces(&rest, server, |p| f(p.object.0, from + p.stream, p.len));
            }
        }
    }
}

/// Calls `f` for each server that holds some of file bytes [offset, offset + len).
fn touched(layout: &Layout, offset: u64, len: u64, f: impl FnMut(ServerIndex)) {
    if len == 0 {
        return;
    }
    let n = layout.servers.len() as u64;
    let first = offset / layout.stripe_unit;
    let last = (offset + len - 1) / layout.stripe_unit;
    let each = |range: std::ops::Range<u64>| range.map(|i| ServerIndex(i as u32));
    if last - first >= n - 1 {
        each(0..n).for_each(f);
    } else if first % n <= last % n {
        each(first % n..last % n + 1).for_each(f);
    } else {
        each(0..last % n + 1).chain(each(first % n..n)).for_each(f);
    }
}

/// Joins runs that follow each other in the stream.
struct Join<F> {
    f: F,
    at: u64,
    len: u64,
}

impl<F: FnMut(u64, u64) -> bool> Join<F> {
    fn new(f: F) -> Join<F> {
        Join { f, at: 0, len: 0 }
    }

    fn add(&mut self, at: u64, len: u64) -> bool {
        if self.len > 0 && self.at + self.len == at {
            self.len += len;
            return true;
        }
        let go = self.len == 0 || (self.f)(self.at, self.len);
        (self.at, self.len) = (at, len);
        if !go {
            // What was just added has not been delivered and never will be.
            self.len = 0;
        }
        go
    }

    fn end(mut self) {
        if self.len > 0 {
            (self.f)(self.at, self.len);
        }
    }
}

/// The parts of file bytes [at, end) on `server` as (file offset, bytes), one per stripe unit;
/// false when `f` stopped the walk.
fn units(
    layout: &Layout,
    server: ServerIndex,
    mut at: u64,
    end: u64,
    mut f: impl FnMut(u64, u64) -> bool,
) -> bool {
    let (unit, n) = (layout.stripe_unit, layout.servers.len() as u64);
    if at >= end {
        return true;
    }
    let ahead = (u64::from(server.0) + n - (at / unit) % n) % n;
    if ahead > 0 {
        at = (at / unit + ahead) * unit;
    }
    while at < end {
        let next = (at / unit + 1) * unit;
        if !f(at, next.min(end) - at) {
            return false;
        }
        at = next + (n - 1) * unit;
    }
    true
}

/// Runs of a monotone pattern, one step per stripe unit that it meets.
fn dense_runs(
    pattern: &Pattern,
    layout: &Layout,
    server: ServerIndex,
    from: u64,
    mut f: impl FnMut(u64, u64) -> bool,
) {
    let offset_of = |stream: u64| pattern.offset_at(stream).unwrap_or(0).unsigned_abs();
    let mut stream = from;
    while stream < pattern.len {
        // The unit that holds this stream byte, or the server's next one.
        let at = offset_of(stream);
        let mut end = stream;
        units(layout, server, at, u64::MAX / 2, |unit, len| {
            if unit > at {
                stream = pattern.stream_at(i64::try_from(unit).unwrap_or(i64::MAX));
            }
            end = pattern.stream_at(i64::try_from(unit + len).unwrap_or(i64::MAX));
            false
        });
        if stream >= pattern.len {
            return;
        }
        if end > stream {
            if !f(stream, end - stream) {
                return;
            }
            stream = end;
        }
        // Otherwise `stream` is the first byte behind a unit without data: go on from there.
    }
}

/// Cuts one access into operations.
pub(crate) struct Cutter {
    layout: Arc<Layout>,
    form: Form,
    state: State,
}

enum State {
    Empty,
    Whole(u64, Pattern),
    Walk {
        memory: u64,
        cursor: Box<Cursor>,
        /// Regions per operation; 0 = one contiguous operation per region.
        group: usize,
        /// Whether groups are sent as loops rather than lists.
        as_loop: bool,
    },
}

impl Cutter {
    pub fn new(layout: Arc<Layout>, form: Form) -> Cutter {
        Cutter {
            layout,
            form,
            state: State::Empty,
        }
    }

    /// Takes the next access. The previous one must be used up.
    pub fn put(&mut self, memory: u64, access: Pattern) {
        debug_assert!(matches!(self.state, State::Empty));
        if access.len == 0 {
            return;
        }
        if access.is_contiguous() {
            self.state = State::Whole(memory, access);
            return;
        }
        let walk = |group, as_loop| State::Walk {
            memory,
            cursor: Box::new(access.cursor()),
            group,
            as_loop,
        };
        self.state = match self.form {
            Form::Contiguous => walk(0, false),
            Form::List => walk(MAX_LIST, false),
            Form::Structured | Form::Shortcut => {
                let encoded = access.tile.encode().len();
                let regions = access.regions();
                if regions <= MAX_LIST as u64 && encoded as u64 > regions * 20 {
                    // A few regions out of a large irregular loop.
                    walk(MAX_LIST, false)
                } else if encoded > MAX_LOOP {
                    walk(PART_REGIONS, true)
                } else {
                    State::Whole(memory, access)
                }
            }
        };
    }

    /// The next operation of the access: (memory stream position, shape).
    pub fn next(&mut self) -> crate::Result<Option<(u64, FileRegions)>> {
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Empty => Ok(None),
            State::Whole(memory, access) => {
                Ok(Some((memory, FileRegions::whole(access, &self.layout))))
            }
            State::Walk {
                memory,
                mut cursor,
                group,
                as_loop,
            } => {
                let at = memory + cursor.position();
                let mut regions = Vec::with_capacity(group.clamp(1, 1024));
                while regions.len() < group.max(1) {
                    let Some(run) = cursor.next_run(u64::MAX) else {
                        break;
                    };
                    regions.push((run.offset, run.len));
                }
                if regions.is_empty() {
                    return Ok(None);
                }
                let shape = if as_loop {
                    FileRegions::of_loop(Pattern::list(&regions)?, &self.layout)
                } else if let [(offset, len)] = regions[..] {
                    FileRegions::contiguous(offset.unsigned_abs(), len)
                } else {
                    FileRegions::List(
                        regions
                            .iter()
                            .map(|&(o, l)| (o.unsigned_abs(), l))
                            .collect(),
                    )
                };
                self.state = State::Walk {
                    memory,
                    cursor,
                    group,
                    as_loop,
                };
                Ok(Some((at, shape)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_datatype::Loop;
    use penstock_layout::ServerId;
    use proptest::prelude::*;

    fn layout(unit: u64, servers: u32) -> Layout {
        Layout {
            stripe_unit: unit,
            servers: (0..servers).map(ServerId).collect(),
        }
    }

    /// (offset, stream) of every byte, the slow way.
    fn bytes(regions: &[(u64, u64)]) -> Vec<u64> {
        regions.iter().flat_map(|&(o, l)| o..o + l).collect()
    }

    fn check(shape: &FileRegions, all: &[u64], layout: &Layout, from: u64) {
        assert_eq!(shape.len(), all.len() as u64);
        let n = layout.servers.len() as u64;
        let on = |at: u64| (at / layout.stripe_unit) % n;
        let mut touched = Vec::new();
        shape.touched(layout, |i| touched.push(i));
        for i in 0..n {
            let wanted: Vec<u64> = (from..all.len() as u64)
                .filter(|&s| on(all[s as usize]) == i)
                .collect();
            let server = ServerIndex(i as u32);
            let mut got = Vec::new();
            shape.runs(layout, server, from, |at, len| {
                assert!(len > 0);
                got.extend(at..at + len);
                true
            });
            assert_eq!(got, wanted, "server {i} from {from}");
            let mut got = Vec::new();
            shape.pieces(layout, server, from, |object, stream, len| {
                for k in 0..len {
                    let file = all[(stream + k) as usize];
                    let (unit, turn) = (layout.stripe_unit, file / (layout.stripe_unit * n));
                    assert_eq!(object + k, turn * unit + file % unit);
                    got.push(stream + k);
                }
                true
            });
            assert_eq!(got, wanted);
            assert_eq!(
                touched.contains(&server),
                all.iter().any(|&o| on(o) == i),
                "touched {i}"
            );
            // Stops when told to.
            let mut calls = 0;
            shape.runs(layout, server, from, |_, _| {
                calls += 1;
                false
            });
            assert!(calls <= 1);
        }
        for file_len in [0, 1, all.iter().max().map_or(0, |m| m / 2), u64::MAX / 4] {
            let below = all.iter().take_while(|&&o| o < file_len).count() as u64;
            assert_eq!(shape.below(file_len), below);
        }
    }

    proptest! {
        #[test]
        fn contiguous_shapes(unit in 1u64..9, servers in 1u32..6, offset in 0u64..100,
                             len in 0u64..60, from in 0u64..60) {
            let all = bytes(&[(offset, len)]);
            check(&FileRegions::contiguous(offset, len), &all, &layout(unit, servers), from.min(len));
        }

        #[test]
        fn list_shapes(unit in 1u64..9, servers in 1u32..6, from in 0u64..60,
                       regions in proptest::collection::vec((0u64..200, 1u64..20), 1..10)) {
            let all = bytes(&regions);
            let shape = FileRegions::List(regions.into());
            check(&shape, &all, &layout(unit, servers), from.min(all.len() as u64));
        }

        #[test]
        fn loop_shapes(unit in 1u64..40, servers in 1u32..6, from in 0u64..200,
                       disp in 0i64..50, count in 1u64..30, block in 1u64..8, gap in 0i64..12,
                       start in 0u64..20, cut in 0u64..20) {
            let tile = Loop::vector(count, block, block as i64 + gap, &Loop::bytes(1)).unwrap();
            let len = (tile.size() * 2).saturating_sub(start + cut);
            let pattern = Pattern::new(disp, tile, start, len).unwrap();
            let mut regions = Vec::new();
            pattern.for_each_run(|_, r| regions.push((r.offset.unsigned_abs(), r.len)));
            let all = bytes(&regions);
            let layout = layout(unit, servers);
            for dense in [false, true] {
                let shape = FileRegions::Loop { pattern: pattern.clone(), dense };
                check(&shape, &all, &layout, from.min(len));
            }
        }

        #[test]
        fn cutting_keeps_every_byte_in_order(count in 1u64..200, block in 1u64..8, gap in 1i64..9,
                                             memory in 0u64..100) {
            let tile = Loop::vector(count, block, block as i64 + gap, &Loop::bytes(1)).unwrap();
            let pattern = Pattern::new(3, tile.clone(), 0, tile.size()).unwrap();
            let layout = Arc::new(layout(16, 3));
            for (form, per_op) in [(Form::Contiguous, 1), (Form::List, 64), (Form::Structured, u64::MAX)] {
                let mut cutter = Cutter::new(layout.clone(), form);
                cutter.put(memory, pattern.clone());
                let (mut stream, mut ops) = (memory, 0);
                while let Some((at, shape)) = cutter.next().unwrap() {
                    assert_eq!(at, stream);
                    stream += shape.len();
                    ops += 1;
                }
                assert_eq!(stream, memory + pattern.len);
                let regions = pattern.regions();
                assert_eq!(ops, regions.div_ceil(per_op.min(regions)));
            }
        }
    }
}
