//! The extension module `penstock._penstock`: the part of the client library that Python needs.
//!
//! It has files with offsets, sections of arrays, names and statistics. The public classes are in `python/penstock`,
//! written in Python. Every call that may wait releases the interpreter's lock meanwhile. Bytes go between the caller's
//! buffer and the sockets without an intermediate copy.
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

/// Files in Penstock, for the Python package `penstock`.
#[pyo3::pymodule]
mod _penstock {
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::file::File;
}
