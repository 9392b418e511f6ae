//! Reads and writes between the kernel and the data servers.
use crate::errno::{errno, invalid};
use fuser::ReplyData;
use penstock_client::{File, Form, Result};
use penstock_datatype::{Pattern, Source, Target};
use std::cell::RefCell;

/// Largest read or write: the kernel cannot send more at once.
pub(crate) const MAX_IO: u32 = 1 << 20;
/// Most bytes that one call copies from file to file.
const COPY: u64 = 8 << 20;

thread_local! {
    /// The thread's transfer buffer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A pattern of one run.
fn range(offset: u64, len: u64) -> Result<Pattern> {
    let offset = i64::try_from(offset).map_err(|_| invalid("an offset beyond 2^63"))?;
    Ok(Pattern::contiguous(offset, len))
}

fn read_bytes(file: &File, offset: u64, into: &mut [u8]) -> Result<usize> {
    let access = range(offset, into.len() as u64)?;
    let n = file.read(&access, Form::Shortcut, &mut Target::from_slice(into))?;
    Ok(usize::try_from(n).unwrap_or(0).min(into.len()))
}

/// Answers with the bytes before the end of the file.
pub(crate) fn read(file: &File, offset: u64, size: usize, reply: ReplyData) {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        match read_bytes(file, offset, &mut buffer[..size]) {
            Ok(n) => reply.data(&buffer[..n]),
            Err(e) => reply.error(errno(&e)),
        }
    });
}

/// Writes all of it.
pub(crate) fn write(file: &File, offset: u64, from: &[u8]) -> Result<u32> {
    let access = range(offset, from.len() as u64)?;
    let n = file.write(&access, Form::Shortcut, &mut Source::from_slice(from))?;
    Ok(u32::try_from(n).unwrap_or(0))
}

/// Copies from file to file, up to the limit of one call and the end of the source. Returns the number of bytes.
pub(crate) fn copy(
    (from, offset_in): (&File, u64),
    (to, offset_out): (&File, u64),
    len: u64,
) -> Result<u32> {
    let len = len.min(COPY);
    let mut done = 0;
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < MAX_IO as usize {
            buffer.resize(MAX_IO as usize, 0);
        }
        while done < len {
            let want = usize::try_from(len - done).unwrap_or(usize::MAX);
            let want = want.min(MAX_IO as usize);
            let n = read_bytes(from, offset_in + done, &mut buffer[..want])?;
            if n == 0 {
                break;
            }
            write(to, offset_out + done, &buffer[..n])?;
            done += n as u64;
        }
        Ok(u32::try_from(done).unwrap_or(0))
    })
}

/// Reserves space for a range; the file extends at least to its end afterwards.
pub(crate) fn allocate(file: &File, offset: u64, length: u64) -> Result<()> {
    let end = offset
        .checked_add(length)
        .filter(|end| i64::try_from(*end).is_ok());
    file.allocate(end.ok_or_else(|| invalid("a length beyond 2^63"))?)
}
