//! Walks the file side and the memory side of an access together.
use penstock_datatype::{Cursor, Pattern, Run};

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

/// Walks both sides together, splitting where either is not contiguous.
pub struct Joint {
    file: Cursor,
    memory: Cursor,
    /// The rest of the current file run.
    run: Run,
    /// Rest of the current memory run in bytes.
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

/// Offset of stream byte `at` of a pattern; `None` at its end.
pub fn first_offset(pattern: &Pattern, at: u64) -> Option<i64> {
    let mut cursor = pattern.cursor();
    cursor.seek(at);
    cursor.next_run(1).map(|run| run.offset)
}
