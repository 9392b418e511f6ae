//! One access on its way through a method: file pattern, memory, and a tally of what was done.
use crate::error::Result;
use crate::filesystem::{FileHandle, Form, Operations};
use penstock_datatype::{Cursor, Pattern, Run, Source, Target};

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// Index into the pairs of [`crate::hints::Hints`].
    pub(crate) fn index(self) -> usize {
        match self {
            Direction::Read => 0,
            Direction::Write => 1,
        }
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// The memory side of an access.
pub(crate) enum Buffer<'b, 'a> {
    /// A read puts its bytes here.
    Into(&'b mut Target<'a>),
    /// A write takes its bytes here.
    From(&'b mut Source<'a>),
}

impl Buffer<'_, '_> {
    pub(crate) fn direction(&self) -> Direction {
        match self {
            Buffer::Into(_) => Direction::Read,
            Buffer::From(_) => Direction::Write,
        }
    }
    pub(crate) fn pattern(&self) -> &Pattern {
        match self {
            Buffer::Into(target) => target.pattern(),
            Buffer::From(source) => source.pattern(),
        }
    }
}

/// What an access did, in the terms of DT table I.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// File system operations. A read-modify-write of a sieve buffer is one.
    pub operations: u64,
    /// File bytes the operations covered, wanted or not.
    pub accessed: u64,
    /// Bytes sent to other ranks.
    pub resent: u64,
    /// Bytes read only to be written back (sieved writes).
    pub reread: u64,
    /// Largest operation's bytes.
    pub largest: u64,
}

/// What a method works with: the file, its buffer's size, and the tally it keeps.
pub(crate) struct Io<'f> {
    pub handle: &'f dyn FileHandle,
    /// Use descriptors in place of requests.
    pub shortcut: bool,
    /// The whole access is under a range lock already.
    pub locked: bool,
    /// Bytes of the method's buffer.
    pub buffer: u64,
    pub tally: Tally,
}

impl Io<'_> {
    /// Runs operations on the file and counts them. `extent` holds all of them.
    pub(crate) fn operate(
        &mut self,
        operations: &mut Operations<'_>,
        form: Form,
        buffer: &mut Buffer<'_, '_>,
        extent: (i64, i64),
    ) -> Result<u64> {
        let form = if self.shortcut { Form::Shortcut } else { form };
        let tally = &mut self.tally;
        let mut counted = operations.inspect(|(_, pattern)| {
            tally.operations += 1;
            tally.accessed += pattern.len;
            tally.largest = tally.largest.max(pattern.len);
        });
        match buffer {
            Buffer::Into(target) => self.handle.read_each(&mut counted, form, target),
            Buffer::From(source) => {
                let _guard = if self.locked {
                    None
                } else {
                    self.handle.writing(extent.0 as u64..extent.1 as u64)?
                };
                self.handle.write_each(&mut counted, form, source)
            }
        }
    }

    /// Reads the file range that begins at `lo` into `buf`; returns the bytes before the end of the file.
    pub(crate) fn read_range(&mut self, lo: i64, buf: &mut [u8]) -> Result<u64> {
        let len = buf.len() as u64;
        self.operate(
            &mut std::iter::once((0, Pattern::contiguous(lo, len))),
            Form::Contiguous,
            &mut Buffer::Into(&mut Target::from_slice(buf)),
            (lo, lo + len as i64),
        )
    }

    /// Writes `buf` at `lo`, under an exclusive lock that the caller holds.
    pub(crate) fn rewrite_range(&mut self, lo: i64, buf: &[u8]) -> Result<()> {
        let len = buf.len() as u64;
        let form = if self.shortcut {
            Form::Shortcut
        } else {
            Form::Contiguous
        };
        self.tally.operations += 1;
        self.tally.accessed += len;
        self.tally.largest = self.tally.largest.max(len);
        let mut whole = std::iter::once((0, Pattern::contiguous(lo, len)));
        self.handle
            .write_each(&mut whole, form, &mut Source::from_slice(buf))
            .map(drop)
    }

    /// Writes `buf` at `lo`.
    pub(crate) fn write_range(&mut self, lo: i64, buf: &[u8]) -> Result<()> {
        let len = buf.len() as u64;
        self.operate(
            &mut std::iter::once((0, Pattern::contiguous(lo, len))),
            Form::Contiguous,
            &mut Buffer::From(&mut Source::from_slice(buf)),
            (lo, lo + len as i64),
        )
        .map(drop)
    }
}

/// Copies `len` stream bytes from one memory pattern to another, walking the one with the larger pieces.
pub(crate) fn copy(from: &mut Source<'_>, at: u64, to: &mut Target<'_>, to_at: u64, len: u64) {
    let mut done = 0;
    if to.pattern().regions() <= from.pattern().regions() {
        to.pieces(to_at, len, |piece| {
            from.gather(at + done, piece);
            done += piece.len() as u64;
        });
    } else {
        from.pieces(at, len, |piece| {
            to.scatter(to_at + done, piece);
            done += piece.len() as u64;
        });
    }
}

/// The same bytes, in a buffer that holds the file from `lo` on.
pub(crate) fn rebase(part: &Pattern, lo: i64) -> Pattern {
    Pattern {
        disp: part.disp - lo,
        ..part.clone()
    }
}

/// Panics unless `part` lies in a window of `len` bytes that begins at `lo`.
fn check_inside(part: &Pattern, lo: i64, len: usize) {
    let (first, end) = part.bounds();
    assert!(
        part.len == 0 || (first >= lo && (end - lo) as u64 <= len as u64),
        "a part at {first}..{end} outside its window of {len} bytes at {lo}"
    );
}

/// Copies memory bytes [`at`, `at + part.len`) to where `part` says in the file range beginning at `lo`, of which
/// `window` holds the bytes.
pub(crate) fn fill_window(
    from: &mut Source<'_>,
    at: u64,
    part: &Pattern,
    window: &mut [u8],
    lo: i64,
) {
    check_inside(part, lo, window.len());
    // SAFETY: the rebased pattern stays inside `window`, checked above, which is borrowed exclusively.
    let mut to = unsafe { Target::new(window.as_mut_ptr(), rebase(part, lo)) };
    copy(from, at, &mut to, 0, part.len);
}

/// Copies the bytes of `part` from `window`, which holds the file range beginning at `lo`, to memory bytes
/// [`at`, `at + part.len`).
pub(crate) fn drain_window(into: &mut Target<'_>, at: u64, part: &Pattern, window: &[u8], lo: i64) {
    check_inside(part, lo, window.len());
    // SAFETY: the rebased pattern stays inside `window`, checked above, which is borrowed for the call.
    let mut from = unsafe { Source::new(window.as_ptr(), rebase(part, lo)) };
    copy(&mut from, 0, into, at, part.len);
}

/// A piece that is contiguous in file and memory alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Position in the access's stream.
    pub stream: u64,
    /// File offset.
    pub offset: i64,
    /// Bytes.
    pub len: u64,
}

/// Walks file and memory side together, cutting where either breaks.
pub struct Joint {
    file: Cursor,
    memory: Cursor,
    /// What is left of the current file run.
    run: Run,
    /// Bytes left of the current memory run.
    memory_left: u64,
    stream: u64,
}

impl Joint {
    /// From the start of both sides.
    pub fn new(file: &Pattern, memory: &Pattern) -> Joint {
        Joint {
            file: file.cursor(),
            memory: memory.cursor(),
            run: Run { offset: 0, len: 0 },
            memory_left: 0,
            stream: 0,
        }
    }
}

impl Iterator for Joint {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.run.len == 0 {
            self.run = self.file.next_run(u64::MAX)?;
        }
        if self.memory_left == 0 {
            self.memory_left = self.memory.next_run(u64::MAX)?.len;
        }
        let len = self.run.len.min(self.memory_left);
        let piece = Piece {
            stream: self.stream,
            offset: self.run.offset,
            len,
        };
        self.stream += len;
        self.run.offset += len as i64;
        self.run.len -= len;
        self.memory_left -= len;
        Some(piece)
    }
}

/// Where stream byte `at` of a pattern lies; `None` at its end.
pub fn first_offset(pattern: &Pattern, at: u64) -> Option<i64> {
    let mut cursor = pattern.cursor();
    cursor.seek(at);
    cursor.next_run(1).map(|run| run.offset)
}
