//! The caller's memory through the buffer protocol: any shape and strides, without a copy.
use penstock_datatype::{Pattern, Source, Target};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

/// A held buffer, whose memory does not move until it is dropped.
pub struct Buffer {
    held: PyUntypedBuffer,
}

/// The address of a held buffer, for a thread without the interpreter's lock.
#[derive(Clone, Copy)]
pub struct Base(*mut u8);

// SAFETY: only an address. Whoever makes a Source or Target of it holds the Buffer for that time. Two Python threads
// that use one buffer at once get torn bytes, as they do with any Python I/O.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Buffer {
    /// Memory to read from.
    pub fn readable(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let held = PyUntypedBuffer::get(object)?;
        if held.suboffsets().is_some_and(|s| s.iter().any(|&o| o >= 0)) {
            return Err(PyBufferError::new_err(
                "the buffer is an array of pointers to rows; copy it to one block of memory first",
            ));
        }
        Ok(Buffer { held })
    }

    /// Memory to write to.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let buffer = Buffer::readable(object)?;
        if buffer.held.readonly() {
            return Err(PyBufferError::new_err(
                "the buffer is read-only; pass a bytearray or a writable array",
            ));
        }
        Ok(buffer)
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.held.len_bytes() as u64
    }

    /// Elements in each dimension, and bytes from one to the next.
    pub fn dimensions(&self) -> (Vec<u64>, Vec<i64>) {
        (
            self.held.shape().iter().map(|&n| n as u64).collect(),
            self.held.strides().iter().map(|&s| s as i64).collect(),
        )
    }

    /// Bytes of an element.
    pub fn item_size(&self) -> u64 {
        self.held.item_size() as u64
    }

    /// Its bytes in C array order, whatever its strides.
    pub fn pattern(&self) -> PyResult<Pattern> {
        let (counts, strides) = self.dimensions();
        crate::section::nested(0, self.item_size(), &counts, &strides)
            .map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// Its first element.
    pub fn base(&self) -> Base {
        Base(self.held.buf_ptr().cast())
    }
}

impl Base {
    /// The bytes of `pattern`, `shift` bytes from the first element.
    ///
    /// # Safety
    /// The pattern stays within a buffer that is held for 'a.
    pub unsafe fn source<'a>(self, shift: i64, pattern: Pattern) -> Source<'a> {
        // SAFETY: the caller vouches for the bytes; an exported buffer does not move or end.
        unsafe { Source::new(self.0.wrapping_offset(shift as isize), pattern) }
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// The pattern stays within a writable buffer that is held for 'a.
    pub unsafe fn target<'a>(self, shift: i64, pattern: Pattern) -> Target<'a> {
        // SAFETY: as in `source`.
        unsafe { Target::new(self.0.wrapping_offset(shift as isize), pattern) }
    }
}
