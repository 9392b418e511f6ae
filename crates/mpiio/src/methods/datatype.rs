//! # datatype: one operation that carries the loop
//!
//! **Problem.** Lists grow with the number of regions: building, sending and reading them costs as much as the data.
//! **Idea.** Send the loop itself. Its size does not depend on the number of regions, and each server visits only the
//! runs that fall on it.
//! **When it pays.** Nearly always for independent accesses: no byte is moved that nobody wants, and an access costs
//! one request per server.
//! **Parameters.** None. **Hint.** `penstock_method=datatype`, `romio_pvfs2_dtype_read`, `romio_pvfs2_dtype_write`.
//! **Source.** DT section III.
use crate::access::{Buffer, Io};
use crate::error::Result;
use crate::filesystem::Form;
use penstock_datatype::Pattern;

/// Performs an access; returns the stream bytes moved.
pub(crate) fn access(io: &mut Io<'_>, file: &Pattern, buffer: &mut Buffer<'_, '_>) -> Result<u64> {
    let mut whole = std::iter::once((0, file.clone()));
    io.operate(&mut whole, Form::Structured, buffer, file.bounds())
}
