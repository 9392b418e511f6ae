//! # posix: one contiguous operation for each region
//!
//! **Problem.** The interface every file system has moves one contiguous region a call.
//! **Idea.** Do just that, many operations in flight; where file and memory regions do not align, one operation for
//! each piece that is contiguous in both.
//! **When it pays.** Few large regions; as the measure for everything else.
//! **Parameters.** None. **Hint.** `penstock_method=posix`, `romio_pvfs2_posix_read`, `romio_pvfs2_posix_write`.
//! **Source.** DT II.A, IV.C.
use crate::access::{Buffer, Io, Joint};
use crate::error::Result;
use crate::filesystem::Form;
use penstock_datatype::Pattern;

/// Performs an access; returns the stream bytes moved.
pub(crate) fn access(io: &mut Io<'_>, file: &Pattern, buffer: &mut Buffer<'_, '_>) -> Result<u64> {
    let mut pieces = Joint::new(file, buffer.pattern())
        .map(|piece| (piece.stream, Pattern::contiguous(piece.offset, piece.len)));
    io.operate(&mut pieces, Form::Contiguous, buffer, file.bounds())
}
