//! Executing a structured access against one object (SYSTEMS 1; DT section III.C).
//!
//! Problem: the part of an access that falls on one server is a sequence of pieces, from a few large
//! ones to millions of small ones, and the bytes come or go in chunks.
//! Idea: pieces are taken from [`Pieces`] one by one into a *window* of bounded size, never into a list
//! of all. Pieces adjacent in the object become one call (with one buffer, or one vector per memory
//! piece). Small pieces with small gaps are read together with the gaps into a buffer that fits the
//! second-level cache and picked out; writes never touch a byte that is not theirs. An execution stops
//! after any byte and goes on.
//! When it pays: a system call costs as much as copying [`CALL`] bytes, so a gap is read through when
//! reading it and copying the piece once more costs less.
//! Parameters: below, from the figures in docs/store.md.
use crate::{Object, StoreError};
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::{Layout, ObjectOffset, Piece, Pieces, ServerIndex};
use std::io::{IoSlice, IoSliceMut};

/// Bytes that could be read from the page cache in the time of one call.
const CALL: u64 = 3072;
/// Copying within the cache is so many times cheaper than reading from the page cache.
const COPY_GAIN: u64 = 3;
/// Longest part of an object that goes through the buffer at once: fits the second-level cache.
const WINDOW: u64 = 256 << 10;
/// Most pieces of one window, and so most vectors of one call.
const PICKS: usize = crate::descriptor::MAX_VECTORS;
/// Memory pieces shorter than this on average go through the buffer: a vector costs as much as copying
/// so many bytes.
const VECTOR: u64 = 512;
/// Scattered memory with pieces at least this long on average is handed to the system piece by piece.
const DIRECT: u64 = 16 << 10;

/// Buffers that executions work with; one per thread that executes, reused from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    /// At most `PICKS * VECTOR` bytes, which is more than `WINDOW`.
    buffer: Vec<u8>,
    /// At most `PICKS` pieces.
    window: Window,
}

impl Scratch {
    /// Empty; grows to some 500 KiB when needed.
    pub fn new() -> Scratch {
        Scratch::default()
    }
}

/// The first byte of an access that lies beyond the end of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Position among the server's bytes of the access, in stream order.
    pub packed: u64,
    /// Position in the stream of the whole access.
    pub stream: u64,
}

/// One access on one server, part of which has been executed.
#[derive(Debug)]
pub struct Execution {
    pieces: Pieces,
    /// Taken from `pieces`, not yet executed.
    held: Option<Piece>,
    /// Stream bytes of the whole access.
    len: u64,
    /// Object offsets ascend: nothing is left behind the first missing byte.
    monotone: bool,
    packed: u64,
    present: u64,
    end: Option<End>,
    /// Where the object was found to end by reads of the current window.
    window_end: Option<u64>,
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
        }
    }

    /// Bytes of this server executed so far: the position in its packed bytes.
    pub fn position(&self) -> u64 {
        self.packed
    }

    /// Where the next byte lies in the object; `None` when all has been executed.
    pub fn peek(&mut self) -> Option<ObjectOffset> {
        if self.held.is_none() {
            self.held = self.pieces.next_piece(WINDOW);
        }
        self.held.map(|piece| piece.object)
    }

    /// Reads: the first byte met that lies beyond the object's end. Holes are not missing.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Reads: packed position one past the last byte that exists. What follows was filled with zeros.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Reads the next packed bytes of this server into `out`; missing ones become zeros. Fewer than
    /// `out.len()` only at the end of the access.
    pub fn read(
        &mut self,
        object: &dyn Object,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<usize, StoreError> {
        let mut filled = 0;
        while filled < out.len() {
            let max = (out.len() - filled) as u64;
            let bytes = self.open_window(max, Through::Gaps, &mut scratch.window);
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
            let n = self.open_window(max, Through::Adjacent, &mut scratch.window) as usize;
            if n == 0 {
                break;
            }
            let at = ObjectOffset(scratch.window.low);
            object.write_at(at, &bytes[written..written + n])?;
            self.close_window(&scratch.window);
            written += n;
        }
        Ok(written)
    }

    /// Reads at most `budget` bytes of this server to where they belong in `target`, in which the
    /// access's stream begins at stream position `base`. Missing bytes become zeros. Returns how many
    /// bytes were taken care of; 0 at the end.
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
            let max = (budget - done).min(WINDOW);
            let bytes = self.open_window(max, Through::Gaps, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let window = &scratch.window;
            if direct && !window.gapped {
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

    /// Writes at most `budget` bytes of this server, taken from where they belong in `source`, in which
    /// the access's stream begins at stream position `base`. Returns how many; 0 at the end.
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
        let mut done = 0;
        while done < budget {
            let max = (budget - done).min(WINDOW);
            let bytes = self.open_window(max, Through::Adjacent, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let window = &scratch.window;
            if direct {
                let mut at = window.low;
                for pick in &window.picks {
                    let mut result = Ok(());
                    source.pieces(base + pick.stream, pick.len, |memory| {
                        if result.is_ok() {
                            result = object.write_at(ObjectOffset(at), memory);
                        }
                        at += memory.len() as u64;
                    });
                    result?;
                }
            } else {
                let buffer = buffer(&mut scratch.buffer, window.extent());
                let mut rest = &mut buffer[..];
                for pick in &window.picks {
                    let (now, later) = rest.split_at_mut(pick.len as usize);
                    source.gather(base + pick.stream, now);
                    rest = later;
                }
                object.write_at(ObjectOffset(window.low), buffer)?;
            }
            self.close_window(&scratch.window);
            done += bytes;
        }
        Ok(done)
    }

    /// `memory` is all of the access's stream.
    fn read_flat(
        &mut self,
        object: &dyn Object,
        memory: &mut [u8],
        budget: u64,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        let mut done = 0;
        while done < budget {
            let bytes = self.open_window(budget - done, Through::Gaps, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let window = &scratch.window;
            match &window.picks[..] {
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

    /// `memory` is all of the access's stream.
    fn write_flat(
        &mut self,
        object: &dyn Object,
        memory: &[u8],
        budget: u64,
        scratch: &mut Scratch,
    ) -> Result<u64, StoreError> {
        let mut done = 0;
        while done < budget {
            let bytes = self.open_window(budget - done, Through::Adjacent, &mut scratch.window);
            if bytes == 0 {
                break;
            }
            let window = &scratch.window;
            let at = ObjectOffset(window.low);
            match &window.picks[..] {
                [pick] => object.write_at(at, &memory[pick.memory()])?,
                picks if bytes / picks.len() as u64 >= VECTOR => {
                    let vectors: Vec<_> = picks
                        .iter()
                        .map(|pick| IoSlice::new(&memory[pick.memory()]))
                        .collect();
                    object.write_vectored_at(at, &vectors)?;
                }
                picks => {
                    let buffer = buffer(&mut scratch.buffer, window.extent());
                    for pick in picks {
                        let from = (pick.object - window.low) as usize;
                        buffer[from..from + pick.len as usize]
                            .copy_from_slice(&memory[pick.memory()]);
                    }
                    object.write_at(at, buffer)?;
                }
            }
            self.close_window(&scratch.window);
            done += bytes;
        }
        Ok(done)
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

    /// The next piece, at most `max` bytes.
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

    /// Collects what is executed next, at most `max` bytes; returns how many, 0 at the end.
    fn open_window(&mut self, max: u64, through: Through, window: &mut Window) -> u64 {
        window.picks.clear();
        window.gapped = false;
        let Some(first) = self.take(max) else {
            return 0;
        };
        window.low = first.object.0;
        window.high = first.object.0 + first.len;
        window.push(first);
        let mut bytes = first.len;
        let mut last = first;
        while bytes < max && window.picks.len() < PICKS {
            let Some(next) = self.take(max - bytes) else {
                break;
            };
            if !window.admits(&last, &next, through) {
                self.held = Some(match self.held.take() {
                    // `take` had cut it.
                    Some(rest) => Piece {
                        len: next.len + rest.len,
                        ..next
                    },
                    None => next,
                });
                break;
            }
            window.gapped |= next.object.0 > window.high;
            window.high = next.object.0 + next.len;
            window.push(next);
            bytes += next.len;
            last = next;
        }
        bytes
    }

    /// Goes on behind the window; notes which of its bytes were missing.
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

    /// Fills `out` with the object's bytes from `at` on, zeros behind its end.
    fn fetch(&mut self, object: &dyn Object, at: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let got = self.unless_ended(|| object.read_at(ObjectOffset(at), out))?;
        if got < out.len() {
            out[got..].fill(0);
            self.ended_at(at + got as u64);
        }
        Ok(())
    }

    /// Behind the end of the object nothing needs to be read when offsets ascend.
    fn unless_ended(
        &self,
        read: impl FnOnce() -> Result<usize, StoreError>,
    ) -> Result<usize, StoreError> {
        if self.end.is_some() && self.monotone {
            return Ok(0);
        }
        read()
    }

    /// A read within the window ended at `end`; a later one behind the end says nothing new.
    fn ended_at(&mut self, end: u64) {
        self.window_end = Some(self.window_end.map_or(end, |known| known.min(end)));
    }
}

/// Which gaps a window may span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    /// None: the pieces are adjacent in the object.
    Adjacent,
    /// Those that are cheaper to read than to step over.
    Gaps,
}

/// Pieces executed together: ascending in the object and in the stream.
#[derive(Debug, Default)]
struct Window {
    low: u64,
    high: u64,
    gapped: bool,
    picks: Vec<Pick>,
}

/// A piece in a window.
#[derive(Debug, Clone, Copy)]
struct Pick {
    object: u64,
    stream: u64,
    len: u64,
}

impl Pick {
    /// Where it lies in memory that is all of the stream.
    fn memory(&self) -> std::ops::Range<usize> {
        self.stream as usize..(self.stream + self.len) as usize
    }

    /// How many of its bytes exist in an object of `end` bytes.
    fn present(&self, end: u64) -> u64 {
        end.saturating_sub(self.object).min(self.len)
    }
}

impl Window {
    fn push(&mut self, piece: Piece) {
        self.picks.push(Pick {
            object: piece.object.0,
            stream: piece.stream,
            len: piece.len,
        });
    }

    /// Bytes of the object that the window spans.
    fn extent(&self) -> u64 {
        self.high - self.low
    }

    /// Whether `next` is executed together with what ends with `last`.
    fn admits(&self, last: &Piece, next: &Piece, through: Through) -> bool {
        if next.object.0 < self.high {
            return false;
        }
        let gap = next.object.0 - self.high;
        if gap == 0 && !self.gapped {
            return true;
        }
        let worth = |piece: &Piece| gap + piece.len / COPY_GAIN <= CALL;
        through == Through::Gaps
            && worth(last)
            && worth(next)
            && next.object.0 + next.len - self.low <= WINDOW
    }

    /// The bytes of `pick` in a buffer that holds the window.
    fn part<'b>(&self, buffer: &'b [u8], pick: &Pick) -> &'b [u8] {
        let from = (pick.object - self.low) as usize;
        &buffer[from..from + pick.len as usize]
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

/// Moves the pieces of a window together within its buffer and hands them out, adjacent ones of the
/// stream at once.
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

/// Bytes of an average run.
fn average_run(memory: &Pattern) -> u64 {
    memory.len / memory.regions().max(1)
}
