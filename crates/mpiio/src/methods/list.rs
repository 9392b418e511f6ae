//! # list: at most 64 regions in an operation
//!
//! **Problem.** posix pays a round trip for each region.
//! **Idea.** Hand the file system lists of offsets and lengths, a bounded number at a time. A region is a piece that is
//! contiguous in file and memory alike, as the source counts: its FLASH checkpoint of 983,040 such pieces of 8 bytes
//! takes 15,360 operations although the file regions are 4 KiB (DT table IV), 768 tile rows take 12 (table II).
//! **When it pays.** Irregular accesses of medium regions on file systems without structured requests.
//! **Parameters.** 64 regions, the limit of the request format. **Hint.** `penstock_method=list`,
//! `romio_pvfs2_listio_read`, `romio_pvfs2_listio_write`.
//! **Source.** DT II.D, table I.
use crate::access::{Buffer, Io, Joint};
use crate::error::Result;
use crate::filesystem::Form;
use penstock_datatype::Pattern;
use penstock_wire::message::MAX_LIST;

/// Performs an access; returns the stream bytes moved.
pub(crate) fn access(io: &mut Io<'_>, file: &Pattern, buffer: &mut Buffer<'_, '_>) -> Result<u64> {
    let mut pieces = Joint::new(file, buffer.pattern());
    let mut lists = std::iter::from_fn(|| {
        let first = pieces.next()?;
        let len = first.len
            + pieces
                .by_ref()
                .take(MAX_LIST - 1)
                .map(|p| p.len)
                .sum::<u64>();
        Some((first.stream, file.slice(first.stream, len)))
    });
    io.operate(&mut lists, Form::List, buffer, file.bounds())
}
