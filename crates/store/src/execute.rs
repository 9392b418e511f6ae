//! Executing a structured access against one object (DT section III.C).
//!
//! Problem: the part of an access on one server is a sequence of pieces, from a few large ones to millions of small
//! ones. The bytes arrive or leave in chunks. Idea: pieces are taken from [`Pieces`] one by one into a [`Window`] of
//! bounded size; no list of all pieces is made. Pieces adjacent in the object become one call (with one buffer, or one
//! vector per memory piece). Small pieces with small gaps are read together with the gaps into a buffer that fits the
//! second-level cache, and copied out. Writes never change a byte outside their pieces: small pieces with small gaps
//! are written by [`crate::spread`], others one by one. An execution can stop after any byte and continue.
//!
//! GB/s by CPU time, pieces at density 1/4, one thread (with two threads each is within 20 %). Measured on 2 shared
//! cores under load, Linux 6.18, 2026-11, page cache (`cargo run --release -p penstock-store --example strided`):
//!
//! | pieces, B | ext4 read | a call each | ext4 write | a call each | fresh | tmpfs read | write |
//! | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
//! | 64 | 1.4 | 0.14 | 0.8 | 0.04 | 0.4 | 0.9 | 0.3 |
//! | 256 | 2.6 | 0.55 | 1.3 | 0.17 | 0.5 | 1.2 | 0.3 |
//! | 1,024 | 3.4 | 1.6 | 0.4 | 0.4 | 0.24 | 1.0 | 1.0 |
//! | 4,096 | 3.0 | 3.0 | 1.1 | 1.1 | 0.75 | 2.9 | 2.9 |
//! | 65,536 | 9.2 | 9.2 | 3.6 | 3.6 | 3.0 | 3.1 | 3.8 |
//!
//! Where nobody truncates the object meanwhile, pieces are copied out of a mapping ([`crate::mapped`]).
use crate::spread::{self, FEWEST, Region, Staging};
use crate::window::{BUFFER, Group, Pick, Through, Window};
use crate::{Object, StoreError, View};
use penstock_datatype::{Pattern, Source, Target, far};
use penstock_layout::{GivenUp, Layout, ObjectOffset, Piece, Pieces, SearchLimit, ServerIndex};
use std::io::{IoSlice, IoSliceMut};

/// Mean length of memory pieces below which the buffer is used: a vector costs as much as copying this many bytes.
const VECTOR: u64 = 512;
/// Mean length from which on scattered memory is passed to the system piece by piece.
const DIRECT: u64 = 16 << 10;
/// Pieces of at least this size are not collected whatever their gaps, though the object has mappings: each justifies a
/// separate read.
const LARGE: u64 = 32 << 10;
/// Prefetch distance of copies out of a mapping, bytes.
const AHEAD: u64 = 3 << 10;
/// Shortest piece that is copied with non-temporal stores, in an access larger than the caches.
const AROUND: u64 = 512;

/// Buffers of executions; one per executing thread, reused.
#[derive(Debug, Default)]
pub struct Scratch {
    /// At most 512 KiB: as many vectors of one call as are below `VECTOR`.
    buffer: Vec<u8>,
    window: Window,
    staging: Option<Staging>,
}

impl Scratch {
    /// Empty buffers, which grow to less than 1 MiB when needed.
    pub fn new() -> Scratch {
        Scratch::default()
    }
}

/// The first byte of an access beyond the end of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Position among the server's bytes of the access, in stream order.
    pub packed: u64,
    /// Position in the stream of the whole access.
    pub stream: u64,
}

/// One access on one server, partly executed; all steps must be given the same object.
#[derive(Debug)]
pub struct Execution {
    pieces: Pieces,
    /// A piece taken from `pieces` and not yet executed.
    held: Option<Piece>,
    /// Stream bytes of the whole access.
    len: u64,
    /// Whether object offsets ascend: then nothing follows the first missing byte.
    monotone: bool,
    packed: u64,
    present: u64,
    end: Option<End>,
    /// The end of the object, as found by reads of the current window.
    window_end: Option<u64>,
    /// Writes: largest distance of pieces at which spreading pays on this object, once determined.
    distance: Option<u64>,
    /// Writes: the object had at least this length.
    object_len: u64,
    /// Writes: the region that was spread over last.
    region: Option<Region>,
}

impl Execution {
    /// Begins `access` on the server with index `server`.
    pub fn new(layout: &Layout, server: ServerIndex, access: &Pattern) -> Execution {
        Execution {
            pieces: layout.walk(access, server),
            held: None,
            len: access.len,
            monotone: access.is_monotone(),
            packed: 0,
            present: 0,
            end: None,
            window_end: None,
            distance: None,
            object_len: 0,
            region: None,
        }
    }

    /// The same, with a limit on searches that find nothing.
    #[must_use]
    pub fn limited(self, limit: SearchLimit) -> Execution {
        Execution {
            pieces: self.pieces.limited(limit),
            ..self
        }
    }

    /// Why the access ended early, if it did.
    pub fn given_up(&self) -> Option<GivenUp> {
        self.pieces.given_up()
    }

    /// Bytes of this server executed so far: the position in its packed bytes.
    pub fn position(&self) -> u64 {
        self.packed
    }

    /// Object offset of the next byte; `None` when all has been executed.
    pub fn peek(&mut self) -> Option<ObjectOffset> {
        if self.held.is_none() {
            self.held = self.pieces.next_piece(BUFFER);
        }
        self.held.map(|piece| piece.object)
    }

    /// Reads: the first byte found to be beyond the object's end. Holes count as existing.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Reads: packed position one past the last existing byte. Bytes after it were filled with zeros.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Reads the next packed bytes of this server into `out`; missing ones become zeros. Fewer than `out.len()` only at
    /// the end of the access.
    pub fn read(
        &mut self,
        object: &dyn Object,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<usize, StoreError> {
        let mut filled = 0;
        while filled < out.len() {
            let max = (out.len() - filled) as u64;
            let bytes = self.open_window(max, |_| Through::Gaps, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let memory = &mut out[filled..filled + bytes as usize];
            let window = &scratch.window;
            if window.gapped {
                let buffer = buffer(&mut scratch.buffer, window.extent());
                self.fetch(object, window.low, buffer)?;
                let mut rest = memory;
                for pick in &window.picks {
                    let (now, later) = rest.split_at_mut(pick.len as usize);
                    now.copy_from_slice(window.part(buffer, pick));
                    rest = later;
                }
            } else {
                self.fetch(object, window.low, memory)?;
            }
            self.close_window(&scratch.window);
            filled += bytes as usize;
        }
        Ok(filled)
    }

    /// Writes the next packed bytes of this server. Fewer than `bytes.len()` only at the end of the
    /// access.
    pub fn write(
        &mut self,
        object: &dyn Object,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<usize, StoreError> {
        let mut written = 0;
        while written < bytes.len() {
            let max = (bytes.len() - written) as u64;
            let n = self.open_write(object, max, &mut scratch.window) as usize;
            if n == 0 {
                break;
            }
            let ours = &bytes[written..written + n];
            let (window, staging) = (&scratch.window, &mut scratch.staging);
            let done = self.spread(object, window, staging, |staged| {
                staged.copy_from_slice(ours);
            })?;
            for group in window.groups(done) {
                let from = group.packed as usize;
                let bytes = &ours[from..from + group.len as usize];
                object.write_at(ObjectOffset(group.object()), bytes)?;
            }
            self.close_window(&scratch.window);
            written += n;
        }
        Ok(written)
    }

    /// Reads at most `budget` bytes of this server into `target`, whose stream begins at position `base` of the
    /// access's stream. Missing bytes become zeros. Returns the bytes handled; 0 at the end.
    pub fn read_into(
        &mut self,
        object: &dyn Object,
        target: &mut Target<'_>,
        base: u64,
        budget: u64,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        self.fits(base, target.len())?;
        if self.len == 0 {
            return Ok(0);
        }
        if target.pattern().is_contiguous() {
            let mut done = Ok(0);
            target.pieces(base, self.len, |memory| {
                done = self.read_flat(object, memory, budget, scratch);
            });
            return done;
        }
        let direct = average_run(target.pattern()) >= DIRECT;
        let mut done = 0;
        while done < budget {
            let max = (budget - done).min(BUFFER);
            let bytes = self.open_read(object, max, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let window = &scratch.window;
            if window.through == Through::All {
                let view = view(object, window);
                for pick in &window.picks {
                    let mut at = pick.object;
                    let mut result = Ok(());
                    target.pieces(base + pick.stream, pick.len, |memory| {
                        if result.is_ok() {
                            result = self.copy_or_fetch(object, view.as_ref(), window, at, memory);
                        }
                        at += memory.len() as u64;
                    });
                    result?;
                }
            } else if direct && !window.gapped {
                let mut at = window.low;
                for pick in &window.picks {
                    let mut result = Ok(());
                    target.pieces(base + pick.stream, pick.len, |memory| {
                        if result.is_ok() {
                            result = self.fetch(object, at, memory);
                        }
                        at += memory.len() as u64;
                    });
                    result?;
                }
            } else {
                let buffer = buffer(&mut scratch.buffer, window.extent());
                self.fetch(object, window.low, buffer)?;
                pack(window, buffer, |stream, bytes| {
                    target.scatter(base + stream, bytes);
                });
            }
            self.close_window(&scratch.window);
            done += bytes;
        }
        Ok(done)
    }

    /// Writes at most `budget` bytes of this server from `source`, whose stream begins at position `base` of the
    /// access's stream. Returns the bytes written; 0 at the end.
    pub fn write_from(
        &mut self,
        object: &dyn Object,
        source: &mut Source<'_>,
        base: u64,
        budget: u64,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        self.fits(base, source.len())?;
        if self.len == 0 {
            return Ok(0);
        }
        if source.pattern().is_contiguous() {
            let mut done = Ok(0);
            source.pieces(base, self.len, |memory| {
                done = self.write_flat(object, memory, budget, scratch);
            });
            return done;
        }
        let direct = average_run(source.pattern()) >= DIRECT;
        let mut written = 0;
        while written < budget {
            let max = (budget - written).min(BUFFER);
            let bytes = self.open_write(object, max, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let (window, staging) = (&scratch.window, &mut scratch.staging);
            let done = self.spread(object, window, staging, |staged| {
                gather(source, base, &window.picks, staged);
            })?;
            for group in window.groups(done) {
                if direct {
                    write_pieces(object, source, base, &group)?;
                } else {
                    let buffer = buffer(&mut scratch.buffer, group.len);
                    gather(source, base, group.picks, buffer);
                    object.write_at(ObjectOffset(group.object()), buffer)?;
                }
            }
            self.close_window(&scratch.window);
            written += bytes;
        }
        Ok(written)
    }

    /// `memory` is the whole stream of the access.
    fn read_flat(
        &mut self,
        object: &dyn Object,
        memory: &mut [u8],
        budget: u64,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        let mut done = 0;
        while done < budget {
            let bytes = self.open_read(object, budget - done, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let window = &scratch.window;
            match &window.picks[..] {
                picks if window.through == Through::All => match view(object, window) {
                    Some(view) => copy(&view, window, memory, self.len >= far::FROM as u64),
                    None => {
                        for pick in picks {
                            self.fetch(object, pick.object, &mut memory[pick.memory()])?;
                        }
                    }
                },
                [pick] => {
                    self.fetch(object, window.low, &mut memory[pick.memory()])?;
                }
                picks if !window.gapped && bytes / picks.len() as u64 >= VECTOR => {
                    let mut vectors = Vec::with_capacity(picks.len());
                    let (mut rest, mut before) = (&mut memory[..], 0);
                    for pick in picks {
                        let gap = pick.memory().start - before;
                        let (now, later) = rest[gap..].split_at_mut(pick.len as usize);
                        vectors.push(IoSliceMut::new(now));
                        before = pick.memory().end;
                        rest = later;
                    }
                    let at = ObjectOffset(window.low);
                    let got =
                        self.unless_ended(|| object.read_vectored_at(at, &mut vectors))? as u64;
                    if got < bytes {
                        self.ended_at(window.low + got);
                        for pick in picks {
                            let present = pick.present(window.low + got) as usize;
                            memory[pick.memory()][present..].fill(0);
                        }
                    }
                }
                picks => {
                    let buffer = buffer(&mut scratch.buffer, window.extent());
                    self.fetch(object, window.low, buffer)?;
                    for pick in picks {
                        memory[pick.memory()].copy_from_slice(window.part(buffer, pick));
                    }
                }
            }
            self.close_window(&scratch.window);
            done += bytes;
        }
        Ok(done)
    }

    /// Collects the pieces to read next: small pieces whatever their gaps, if the object has mappings.
    fn open_read(&mut self, object: &dyn Object, max: u64, window: &mut Window) -> u64 {
        let maps = object.mappable().is_some_and(|file| file.maps());
        let through = |first: &Piece| {
            if maps && first.len < LARGE {
                Through::All
            } else {
                Through::Gaps
            }
        };
        self.open_window(max, through, window)
    }

    /// Bytes of one piece of `window`, which `view` maps.
    fn copy_or_fetch(
        &mut self,
        object: &dyn Object,
        view: Option<&View>,
        window: &Window,
        at: u64,
        memory: &mut [u8],
    ) -> Result<(), StoreError> {
        match view {
            Some(view) => {
                view.copy(at - window.low, memory);
                Ok(())
            }
            None => self.fetch(object, at, memory),
        }
    }

    /// `memory` is the whole stream of the access.
    fn write_flat(
        &mut self,
        object: &dyn Object,
        memory: &[u8],
        budget: u64,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        let mut written = 0;
        while written < budget {
            let bytes = self.open_write(object, budget - written, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let (window, staging) = (&scratch.window, &mut scratch.staging);
            let done = self.spread(object, window, staging, |staged| {
                collect(memory, &window.picks, staged);
            })?;
            for group in window.groups(done) {
                let at = ObjectOffset(group.object());
                match group.picks {
                    [pick] => object.write_at(at, &memory[pick.memory()])?,
                    picks if group.len / picks.len() as u64 >= VECTOR => {
                        let vectors: Vec<_> = picks
                            .iter()
                            .map(|pick| IoSlice::new(&memory[pick.memory()]))
                            .collect();
                        object.write_vectored_at(at, &vectors)?;
                    }
                    picks => {
                        let buffer = buffer(&mut scratch.buffer, group.len);
                        collect(memory, picks, buffer);
                        object.write_at(at, buffer)?;
                    }
                }
            }
            self.close_window(&scratch.window);
            written += bytes;
        }
        Ok(written)
    }

    /// Opens a window for spreading if that may pay, otherwise one of adjacent pieces.
    fn open_write(&mut self, object: &dyn Object, max: u64, window: &mut Window) -> u64 {
        let distance = *self.distance.get_or_insert_with(|| {
            object
                .mappable()
                .map_or(0, |file| spread::distance(file.fd()))
        });
        self.open_window(max, |_| Through::Within(distance), window)
    }

    /// Writes the pieces of a window that are close together; `fill` stores their bytes in order. Returns how many
    /// pieces were written, from the first on; the caller writes the rest in another way.
    fn spread(
        &mut self,
        object: &dyn Object,
        window: &Window,
        staging: &mut Option<Staging>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, StoreError> {
        let Some(file) = object.mappable() else {
            return Ok(0);
        };
        if !window.gapped || window.picks.len() < FEWEST {
            return Ok(0);
        }
        if staging.is_none() {
            *staging = Staging::new().ok(); // For example too few descriptors: one call per piece then.
        }
        let Some(staging) = staging else { return Ok(0) };
        let staged = &mut staging.bytes()[..window.bytes as usize];
        fill(staged);
        if window.high > self.object_len
            && let Some(last) = window.picks.last()
        {
            // A mapping ends with the object: the last piece, written first, extends it. It is written also where the
            // object is already long enough. Another writer may just have extended it and not be done: the system still
            // zeroes bytes between the old end and that writer's bytes. Writes wait for each other, stores into
            // mappings do not.
            let before = object.len()?;
            let bytes = &staged[staged.len() - last.len as usize..];
            object.write_at(ObjectOffset(last.object), bytes)?;
            self.object_len = before.max(window.high);
        }
        let steady = file.steady();
        if steady.is_some() && object.len()? < window.high {
            return Ok(0); // Truncated since.
        }
        let region = Region::around(window.low, file.fd(), self.region.take());
        let done = region.and_then(|region| {
            let done = staging.spread(&region, window);
            file.note_changes();
            self.region = Some(region);
            done
        });
        Ok(done.unwrap_or_else(|_| {
            self.distance = Some(0); // No mappings here.
            0
        }))
    }

    fn fits(&self, base: u64, memory: u64) -> Result<(), StoreError> {
        if base.checked_add(self.len).is_some_and(|end| end <= memory) {
            return Ok(());
        }
        Err(StoreError::Io {
            what: "execute an access longer than its memory on",
            path: "an object".to_owned(),
            source: std::io::ErrorKind::InvalidInput.into(),
        })
    }

    /// The next piece, limited to `max` bytes.
    fn take(&mut self, max: u64) -> Option<Piece> {
        let Some(piece) = self.held.take() else {
            return self.pieces.next_piece(max);
        };
        if piece.len <= max {
            return Some(piece);
        }
        self.held = Some(Piece {
            object: ObjectOffset(piece.object.0 + max),
            stream: piece.stream + max,
            len: piece.len - max,
        });
        (max > 0).then_some(Piece { len: max, ..piece })
    }

    /// Collects the pieces to execute next, at most `max` bytes; returns their bytes, 0 at the end.
    fn open_window(
        &mut self,
        max: u64,
        through: impl FnOnce(&Piece) -> Through,
        window: &mut Window,
    ) -> u64 {
        let Some(first) = self.take(max) else {
            window.picks.clear();
            return 0;
        };
        window.begin(first, through(&first));
        let (mut bytes, mut last) = (first.len, first);
        while bytes < max {
            let Some(next) = self.take(max - bytes) else {
                break;
            };
            if !window.admits(&last, &next) {
                // `take` may have split it.
                let rest = self.held.take().map_or(0, |rest| rest.len);
                self.held = Some(Piece {
                    len: next.len + rest,
                    ..next
                });
                break;
            }
            window.push(next);
            bytes += next.len;
            last = next;
        }
        bytes
    }

    /// Continues after the window; records which of its bytes were missing.
    fn close_window(&mut self, window: &Window) {
        let end = self.window_end.take().unwrap_or(u64::MAX);
        for pick in &window.picks {
            let present = pick.present(end);
            if present > 0 {
                self.present = self.packed + present;
            }
            if present < pick.len && self.end.is_none() {
                self.end = Some(End {
                    packed: self.packed + present,
                    stream: pick.stream + present,
                });
            }
            self.packed += pick.len;
        }
    }

    /// Fills `out` with the object's bytes from `at` on, and zeros beyond its end.
    fn fetch(&mut self, object: &dyn Object, at: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let got = self.unless_ended(|| object.read_at(ObjectOffset(at), out))?;
        if got < out.len() {
            out[got..].fill(0);
            self.ended_at(at + got as u64);
        }
        Ok(())
    }

    /// Beyond the end of the object nothing needs to be read if offsets ascend.
    fn unless_ended(
        &self,
        read: impl FnOnce() -> Result<usize, StoreError>,
    ) -> Result<usize, StoreError> {
        if self.end.is_some() && self.monotone {
            return Ok(0);
        }
        read()
    }

    /// A read within the window ended at `end`; a later one beyond the end has no new information.
    fn ended_at(&mut self, end: u64) {
        self.window_end = Some(self.window_end.map_or(end, |known| known.min(end)));
    }
}

/// A mapping of a window's span, instead of the reads within it.
fn view(object: &dyn Object, window: &Window) -> Option<View> {
    let at = ObjectOffset(window.low);
    let file = object.mappable()?;
    file.view(at, window.extent(), window.calls())
}

/// Copies the pieces of a window into `memory`, which is the whole stream. The hardware prefetcher stops at the end of
/// each piece, so the next ones are prefetched. `around` uses non-temporal stores where memory is large.
fn copy(view: &View, window: &Window, memory: &mut [u8], around: bool) {
    let picks = &window.picks[..];
    let next = (AHEAD * picks.len() as u64 / window.bytes.max(1)).clamp(1, 8) as usize;
    for (i, pick) in picks.iter().enumerate() {
        if let Some(soon) = picks.get(i + next) {
            view.expect(soon.object - window.low, soon.len.min(AHEAD) as usize);
        }
        let (at, memory) = (pick.object - window.low, &mut memory[pick.memory()]);
        if around && pick.len >= AROUND {
            view.copy_far(at, memory);
        } else {
            view.copy(at, memory);
        }
    }
    if around {
        far::settle();
    }
}

/// The first `len` bytes of the buffer.
fn buffer(buffer: &mut Vec<u8>, len: u64) -> &mut [u8] {
    let len = len as usize;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

/// Packs the pieces of a window within its buffer and passes them on, with adjacent ones of the stream joined.
fn pack(window: &Window, buffer: &mut [u8], mut f: impl FnMut(u64, &[u8])) {
    let (mut packed, mut group, mut stream) = (0, 0, window.picks.first().map_or(0, |p| p.stream));
    for pick in &window.picks {
        if stream + (packed - group) as u64 != pick.stream {
            f(stream, &buffer[group..packed]);
            (group, stream) = (packed, pick.stream);
        }
        let from = (pick.object - window.low) as usize;
        let len = pick.len as usize;
        if from != packed {
            buffer.copy_within(from..from + len, packed);
        }
        packed += len;
    }
    f(stream, &buffer[group..packed]);
}

/// Mean bytes of a run.
fn average_run(memory: &Pattern) -> u64 {
    memory.len / memory.regions().max(1)
}

/// Copies pieces from memory that is the whole stream.
fn collect(memory: &[u8], picks: &[Pick], out: &mut [u8]) {
    let mut rest = out;
    for pick in picks {
        let (now, later) = rest.split_at_mut(pick.len as usize);
        now.copy_from_slice(&memory[pick.memory()]);
        rest = later;
    }
}

/// Copies pieces from scattered memory, with adjacent ones of the stream joined.
fn gather(source: &mut Source<'_>, base: u64, picks: &[Pick], out: &mut [u8]) {
    let mut rest = out;
    for group in picks.chunk_by(|a, b| a.stream + a.len == b.stream) {
        let len: u64 = group.iter().map(|pick| pick.len).sum();
        let (now, later) = rest.split_at_mut(len as usize);
        if let Some(first) = group.first() {
            source.gather(base + first.stream, now);
        }
        rest = later;
    }
}

/// Writes each contiguous part of memory separately.
fn write_pieces(
    object: &dyn Object,
    source: &mut Source<'_>,
    base: u64,
    group: &Group<'_>,
) -> Result<(), StoreError> {
    let mut at = group.object();
    for pick in group.picks {
        let mut result = Ok(());
        source.pieces(base + pick.stream, pick.len, |memory| {
            if result.is_ok() {
                result = object.write_at(ObjectOffset(at), memory);
            }
            at += memory.len() as u64;
        });
        result?;
    }
    Ok(())
}
