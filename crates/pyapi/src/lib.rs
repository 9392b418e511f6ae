//! The extension module `penstock._penstock`: what Python needs of the client library, and no more.
//!
//! Files with offsets, sections of arrays, names, counts. The classes that people use stand in `python/penstock` and
//! are written in Python. Every call that can wait gives the interpreter's lock away for its length, and bytes go
//! between the caller's buffer and the sockets without a copy in between.
//!
//! | file | idea |
//! | --- | --- |
//! | `client` | a deployment: its names, its counts |
//! | `file` | open files: bytes, ranges, sections |
//! | `section` | a strided section of an array in a file, and strided memory, as two patterns |
//! | `buffer` | the buffer protocol |
//! | `error` | client errors as `OSError` |

mod buffer;
mod client;
mod error;
mod file;
mod section;
mod stats;

/// Bytes in Penstock, for the Python package `penstock`.
#[pyo3::pymodule]
mod _penstock {
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::file::File;
}
