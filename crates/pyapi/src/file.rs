//! Open files: bytes at offsets, many ranges at once, sections of arrays.
use crate::buffer::Buffer;
use crate::error::{closed, forked, os_error};
use crate::section::{self, Section};
use crate::stats;
use penstock_client::Form;
use penstock_datatype::{Pattern, Target};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::{Mutex, PoisonError};

/// Uses descriptors on the same host where they are granted, otherwise one request per data server.
const FORM: Form = Form::Shortcut;

/// An open file. Offsets and lengths in bytes. Usable by several threads at once.
#[pyclass(frozen, module = "penstock._penstock")]
pub struct File {
    /// `None`: closed.
    file: Mutex<Option<penstock_client::File>>,
    path: String,
    /// The process that opened it.
    process: u32,
}

impl File {
    pub fn new(file: penstock_client::File) -> File {
        File {
            path: file.path().to_string(),
            file: Mutex::new(Some(file)),
            process: std::process::id(),
        }
    }

    fn take(&self) -> Option<penstock_client::File> {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn open(&self) -> PyResult<penstock_client::File> {
        if std::process::id() != self.process {
            return Err(forked(&self.path));
        }
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(closed)
    }

    /// Runs a call without the interpreter's lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&penstock_client::File) -> penstock_client::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.open()?;
        // Moved in: if it is the last clone, closing it waits without the lock too.
        py.detach(move || f(&file))
            .map_err(|e| os_error(&e, &self.path))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if std::process::id() != self.process
            && let Some(file) = self.take()
        {
            // The parent's connections must not be affected.
            std::mem::forget(file);
        }
    }
}

fn at(offset: u64, len: u64) -> PyResult<Pattern> {
    let end = offset
        .checked_add(len)
        .and_then(|end| i64::try_from(end).ok());
    if end.is_none() {
        return Err(PyOverflowError::new_err(format!(
            "{len} B at offset {offset} end beyond 2^63 B"
        )));
    }
    Ok(Pattern::contiguous(offset as i64, len))
}

/// Checks that `buffer` has the shape of the section.
fn fit(
    buffer: &Buffer,
    offset: i64,
    item: u64,
    counts: &[u64],
    strides: &[i64],
) -> PyResult<Section> {
    let (shape, memory_strides) = buffer.dimensions();
    if shape != counts || buffer.item_size() != item {
        return Err(PyValueError::new_err(format!(
            "the section has {counts:?} elements of {item} B, the buffer {shape:?} of {} B",
            buffer.item_size()
        )));
    }
    section::section(offset, item, counts, strides, &memory_strides)
        .map_err(|e| PyValueError::new_err(e.to_string()))
}

#[pymethods]
impl File {
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    #[getter]
    fn closed(&self) -> bool {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// Whether the open created it.
    #[getter]
    fn created(&self) -> PyResult<bool> {
        Ok(self.open()?.created())
    }

    /// (stripe unit in bytes, data servers in their order).
    #[getter]
    fn layout(&self) -> PyResult<(u64, Vec<u32>)> {
        let file = self.open()?;
        let layout = file.layout();
        Ok((
            layout.stripe_unit,
            layout.servers.iter().map(|s| s.0).collect(),
        ))
    }

    /// At most `len` bytes at `offset`.
    fn read<'py>(&self, py: Python<'py>, offset: u64, len: u64) -> PyResult<Bound<'py, PyBytes>> {
        let pattern = at(offset, len)?;
        let mut got = 0;
        let bytes = PyBytes::new_with(py, len as usize, |into| {
            got = self.call(py, |f| {
                f.read(&pattern, FORM, &mut Target::from_slice(into))
            })?;
            Ok(())
        })?;
        if got == len {
            Ok(bytes)
        } else {
            Ok(PyBytes::new(py, &bytes.as_bytes()[..got as usize]))
        }
    }

    /// Reads at `offset` into `buffer`, in the order of a C array; returns the bytes before the end of the file.
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<u64> {
        let buffer = Buffer::writable(buffer)?;
        let pattern = at(offset, buffer.len())?;
        let (base, memory) = (buffer.base(), buffer.pattern()?);
        // SAFETY: the pattern of the buffer, which is writable and held until the call is over.
        let mut target = unsafe { base.target(0, memory) };
        self.call(py, |f| f.read(&pattern, FORM, &mut target))
    }

    /// Writes all of `buffer` at `offset`; returns its bytes.
    fn write(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<u64> {
        let buffer = Buffer::readable(buffer)?;
        let pattern = at(offset, buffer.len())?;
        let (base, memory) = (buffer.base(), buffer.pattern()?);
        // SAFETY: the pattern of the buffer, which is held until the call is over.
        let mut source = unsafe { base.source(0, memory) };
        self.call(py, |f| f.write(&pattern, FORM, &mut source))
    }

    /// Reads (offset, length) ranges into `buffer`, one after the other in memory and all in flight at once. Returns
    /// the bytes before the end of the file.
    fn read_ranges(
        &self,
        py: Python<'_>,
        ranges: Vec<(u64, u64)>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let buffer = Buffer::writable(buffer)?;
        let mut accesses = Vec::with_capacity(ranges.len());
        let mut total = 0u64;
        for (offset, len) in ranges {
            accesses.push((total, at(offset, len)?));
            total = total.saturating_add(len);
        }
        if total != buffer.len() {
            return Err(PyValueError::new_err(format!(
                "the ranges have {total} B, the buffer {}",
                buffer.len()
            )));
        }
        let (base, memory) = (buffer.base(), buffer.pattern()?);
        // SAFETY: the pattern of the buffer, which is writable and held until the call is over.
        let mut target = unsafe { base.target(0, memory) };
        self.call(py, |f| {
            f.read_each(&mut accesses.into_iter(), FORM, &mut target)
        })
    }

    /// Reads `counts` elements of `item` bytes, `strides` bytes apart, from `offset` on into `buffer` of that shape.
    fn read_section(
        &self,
        py: Python<'_>,
        offset: i64,
        item: u64,
        counts: Vec<u64>,
        strides: Vec<i64>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let buffer = Buffer::writable(buffer)?;
        let Section {
            file,
            memory,
            shift,
        } = fit(&buffer, offset, item, &counts, &strides)?;
        let base = buffer.base();
        // SAFETY: the elements of the buffer in another order; it is writable and held until the call is over.
        let mut target = unsafe { base.target(shift, memory) };
        self.call(py, |f| f.read(&file, FORM, &mut target))
    }

    /// The same as a write.
    fn write_section(
        &self,
        py: Python<'_>,
        offset: i64,
        item: u64,
        counts: Vec<u64>,
        strides: Vec<i64>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let buffer = Buffer::readable(buffer)?;
        let Section {
            file,
            memory,
            shift,
        } = fit(&buffer, offset, item, &counts, &strides)?;
        let base = buffer.base();
        // SAFETY: the elements of the buffer in another order; it is held until the call is over.
        let mut source = unsafe { base.source(shift, memory) };
        self.call(py, |f| f.write(&file, FORM, &mut source))
    }

    /// Length of the file in bytes.
    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, penstock_client::File::len)
    }

    fn set_len(&self, py: Python<'_>, len: u64) -> PyResult<()> {
        self.call(py, |f| f.set_len(len))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, penstock_client::File::sync)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::to_dict(py, &self.open()?.stats())
    }

    fn close(&self, py: Python<'_>) {
        if std::process::id() != self.process {
            return;
        }
        if let Some(file) = self.take() {
            py.detach(move || drop(file));
        }
    }
}
