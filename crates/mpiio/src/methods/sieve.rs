//! # sieve: whole extents through a buffer
//!
//! **Problem.** Many small regions close together: their requests cost more than the bytes between them.
//! **Idea.** Read the whole extent, a buffer at a time, and pick the wanted bytes out in memory. A write reads the
//! buffer, puts its bytes in and writes all of it back, holding an exclusive lock on just those bytes of the file; a
//! buffer without holes is written without reading or locking.
//! **When it pays.** Dense reads with small holes. Writes only where nobody else writes nearby.
//! **Parameters.** Buffer size, 4 MiB. **Hint.** `penstock_method=sieve`, `romio_ds_read`, `romio_ds_write`,
//! `ind_rd_buffer_size`, `ind_wr_buffer_size`.
//! **Source.** DT II.B; operations and bytes as in table I: buffers follow each other from the first wanted byte to
//! the last, a hole between two of them is not cut out (a buffer without any wanted byte is). A read-modify-write
//! counts as one operation on its bytes; the bytes it reads before are counted apart.
use super::Method;
use super::cost::{Shape, Terms};
use super::row::{BufferHint, Row, Work};
use crate::access::{Buffer, Direction, Io, drain_window, fill_window, first_offset};
use crate::error::Result;
use crate::filesystem::LockMode;
use crate::model;
use penstock_datatype::{Pattern, Source};

pub(super) const ROW: Row = Row {
    name: "sieve",
    summary: "whole extents through a buffer",
    toggles: Some(["romio_ds_read", "romio_ds_write"]),
    buffer: Some(BufferHint {
        keys: ["ind_rd_buffer_size", "ind_wr_buffer_size"],
        default: 4 << 20,
        meaning: "sieve buffer of reads, of writes",
    }),
    // Sieved writes read first and lock out other writers.
    offered: |direction, _| direction == Direction::Read,
    offered_when: "reads; writes only where a hint asks for it",
    counts,
    region: |tally, _| tally.largest,
    work: Work::Alone {
        locks: true,
        cost,
        access,
    },
};

impl Method {
    /// Whole extents through a buffer.
    pub const SIEVE: Method = Method::named(ROW.name);
}

/// A lock that is lost with its server is taken anew this often, in case the server goes away again and again.
const LOSSES: u32 = 10;

/// ⌈extent / buffer⌉ operations, and all bytes of the extent.
fn counts(shape: &model::Shape, buffer: u64) -> (u64, u64) {
    (shape.extent.div_ceil(buffer), shape.extent)
}

/// All bytes of the extent, and the wanted ones copied.
fn cost(terms: &Terms<'_>, shape: &Shape) -> f64 {
    let rewrite = match terms.direction {
        Direction::Read => 1.0,
        // Reads first, and keeps all other writers out meanwhile.
        Direction::Write => 2.0 * terms.place.ranks,
    };
    (shape.extent / terms.buffer).ceil() * terms.operation()
        + rewrite * shape.extent * terms.byte()
        + shape.bytes * terms.costs.copy_byte
        + shape.regions() * terms.costs.piece
}

/// Performs an access; returns the stream bytes moved.
fn access(io: &mut Io<'_>, file: &Pattern, buffer: &mut Buffer<'_, '_>) -> Result<u64> {
    let (begin, end) = file.bounds();
    let step = io.buffer.max(1) as i64;
    let mut memory = vec![0; (end - begin).min(step) as usize];
    let mut moved = 0;
    let mut lo = begin;
    while lo < end {
        let hi = lo.saturating_add(step).min(end);
        let at = file.stream_at(lo);
        let part = file.slice(at, file.stream_at(hi) - at);
        if part.len == 0 {
            // On to the buffer that holds the next wanted byte.
            let Some(next) = first_offset(file, at) else {
                break;
            };
            lo += (next - lo) / step * step;
            continue;
        }
        let window = &mut memory[..(hi - lo) as usize];
        match buffer {
            Buffer::Into(target) => {
                let got = io.read_range(lo, window)?;
                let there = part.slice(0, part.stream_at(lo + got as i64));
                drain_window(target, at, &there, window, lo);
                moved += there.len;
                if got < window.len() as u64 {
                    break; // end of file
                }
            }
            Buffer::From(source) if part.len == window.len() as u64 => {
                fill_window(source, at, &part, window, lo);
                io.write_range(lo, window)?;
                moved += part.len;
            }
            Buffer::From(source) => {
                let mut losses = 0;
                loop {
                    let lock = io.handle.lock(lo as u64..hi as u64, LockMode::Exclusive)?;
                    match read_modify_write(io, &part, source, at, lo, window) {
                        Err(_) if lock.is_lost() && losses < LOSSES => losses += 1,
                        done => break done?,
                    }
                }
                moved += part.len;
            }
        }
        lo = hi;
    }
    Ok(moved)
}

/// Puts wanted bytes among those of a window that is locked. Done again under a new lock it reads afresh, and so
/// overwrites nobody's bytes.
fn read_modify_write(
    io: &mut Io<'_>,
    part: &Pattern,
    source: &mut Source<'_>,
    at: u64,
    lo: i64,
    window: &mut [u8],
) -> Result<()> {
    let tally = io.tally;
    let got = io.read_range(lo, window)?;
    io.tally = tally;
    io.tally.reread += got;
    window[got as usize..].fill(0);
    fill_window(source, at, part, window, lo);
    io.rewrite_range(lo, window)
}
