//! Client errors as `OSError`: Python picks the subclass (`FileNotFoundError`, `PermissionError`, …) by errno.
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

/// EBADF: a closed file, or one of another process.
const BAD_FILE: i32 = 9;

/// An error about `path`; the message says what to do.
pub fn os_error(e: &penstock_client::Error, path: &str) -> PyErr {
    PyOSError::new_err((e.errno(), e.to_string(), path.to_string()))
}

/// An error about the deployment at `path`, with an errno.
pub fn deployment_error(errno: i32, message: String, path: &str) -> PyErr {
    PyOSError::new_err((errno, message, path.to_string()))
}

/// The error of a closed file, with the text of Python's own files.
pub fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

/// An error: connections cannot be shared with the process that forked this one.
pub fn forked(what: &str) -> PyErr {
    PyOSError::new_err((
        BAD_FILE,
        "opened before this process was forked; its connections belong to the parent: open it again here",
        what.to_string(),
    ))
}
