//! Accesses in external32: converted in bounded chunks between the user's memory and a buffer in the form of the file.
//!
//! The file pattern counts bytes as in the file, the memory pattern as in memory; the signature of the memory type
//! relates the two. In a collective call the ranks may need different numbers of chunks. They agree on the largest, and
//! ranks that have finished take part with empty accesses.
use crate::error::{Error, ErrorClass, Result};
use penstock_datatype::{Signature, Source, Target};

/// Bytes in memory converted at a time.
pub(crate) const CHUNK: u64 = 4 << 20;

/// One step of a conversion: ranges of the stream in memory and in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub memory: (u64, u64),
    pub file: (u64, u64),
}

/// The steps for `bytes` of memory.
pub(crate) fn steps(signature: &Signature, bytes: u64) -> impl Iterator<Item = Step> + use<> {
    let signature = signature.clone();
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes {
            return None;
        }
        // Elements are far smaller than a chunk, so the boundary below advances.
        let end = match bytes - at {
            rest if rest <= CHUNK => bytes,
            _ => signature.floor_mem(at + CHUNK).max(at + 1),
        };
        let (from, to) = (signature.file_of(at), signature.file_of(end));
        let step = Step {
            memory: (at, end - at),
            file: (from, to - from),
        };
        at = end;
        Some(step)
    })
}

/// Bytes in the file for `bytes` in memory; both must be whole elements.
pub(crate) fn file_bytes(signature: &Signature, bytes: u64) -> Result<u64> {
    if signature.floor_mem(bytes) != bytes {
        return Err(Error::new(
            ErrorClass::Type,
            format!("external32: {bytes} bytes end within an element; count whole elements"),
        ));
    }
    Ok(signature.file_of(bytes))
}

/// The next step's bytes in the form of the file.
pub(crate) fn encode(
    signature: &Signature,
    step: &Step,
    from: &mut Source<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut native = vec![0; step.memory.1 as usize];
    from.gather(step.memory.0, &mut native);
    out.resize(step.file.1 as usize, 0);
    signature
        .to_external32(step.memory.0, &native, out)
        .map_err(conversion)
}

/// Converts what was read of a step into memory: whole elements only. Returns the bytes in memory.
pub(crate) fn decode(
    signature: &Signature,
    step: &Step,
    external: &[u8],
    into: &mut Target<'_>,
) -> Result<u64> {
    let end = signature.floor_file(step.file.0 + external.len() as u64);
    let whole = end.saturating_sub(step.file.0);
    let bytes = signature.mem_of(end) - step.memory.0;
    let mut native = vec![0; bytes as usize];
    signature
        .from_external32(step.file.0, &external[..whole as usize], &mut native)
        .map_err(conversion)?;
    into.scatter(step.memory.0, &native);
    Ok(bytes)
}

fn conversion(e: penstock_datatype::Error) -> Error {
    Error::new(
        ErrorClass::Conversion,
        format!("external32: {e}; use a type whose values fit, or the native representation"),
    )
}
