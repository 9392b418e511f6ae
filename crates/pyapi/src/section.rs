//! A strided section of an array in a file, and the strided memory on the other side.
//!
//! Problem: `view[::2, 5:90, ::-1]` selects bytes by a count and a stride per dimension, on both sides. Idea:
//! dimensions are sorted as in the file (largest file stride outermost) and reversed where needed, so that file offsets
//! ascend; memory strides follow. Both sides are then nested vectors: one loop each, whatever the number of elements.
//! One request per data server carries the access. It is used for all sections and has no parameters.
use penstock_datatype::{Error, Loop, Pattern, Result};

/// One access: bytes in the file, bytes in memory, in the same order.
#[derive(Debug)]
pub struct Section {
    /// File offsets, ascending.
    pub file: Pattern,
    /// Relative to `shift` bytes from the first element in memory.
    pub memory: Pattern,
    /// Memory offset of the first byte in file order.
    pub shift: i64,
}

/// `counts` elements of `item` bytes, `strides` bytes apart, outermost dimension first.
pub fn nested(offset: i64, item: u64, counts: &[u64], strides: &[i64]) -> Result<Pattern> {
    if item == 0 || counts.contains(&0) {
        return Ok(Pattern::contiguous(offset, 0));
    }
    let mut tile = Loop::bytes(1);
    tile = Loop::contig(item, &tile)?;
    for (&count, &stride) in counts.iter().zip(strides).rev() {
        tile = Loop::vector(count, 1, stride, &tile)?;
    }
    let len = tile.size();
    Pattern::new(offset, tile, 0, len)
}

/// The two sides of an access to `counts` elements of `item` bytes; strides in bytes, `offset` of the first element.
pub fn section(
    offset: i64,
    item: u64,
    counts: &[u64],
    file_strides: &[i64],
    memory_strides: &[i64],
) -> Result<Section> {
    if counts.len() != file_strides.len() || counts.len() != memory_strides.len() {
        return Err(Error::Invalid(format!(
            "{} counts, {} strides in the file and {} in memory: one of each per dimension",
            counts.len(),
            file_strides.len(),
            memory_strides.len()
        )));
    }
    let far = || Error::Overflow("section reaches offsets beyond 63 bits");
    let (mut offset, mut shift) = (offset, 0i64);
    let mut dimensions: Vec<(u64, i64, i64)> = Vec::with_capacity(counts.len());
    for ((&count, &file), &memory) in counts.iter().zip(file_strides).zip(memory_strides) {
        if count == 1 {
            continue;
        }
        if file < 0 && count > 0 {
            let last = i64::try_from(count - 1).map_err(|_| far())?;
            let back = |stride: i64| stride.checked_mul(last);
            offset = back(file)
                .and_then(|b| offset.checked_add(b))
                .ok_or_else(far)?;
            shift = back(memory)
                .and_then(|b| shift.checked_add(b))
                .ok_or_else(far)?;
            let turned = |stride: i64| stride.checked_neg().ok_or_else(far);
            dimensions.push((count, turned(file)?, turned(memory)?));
        } else {
            dimensions.push((count, file, memory));
        }
    }
    dimensions.sort_by_key(|&(_, file, _)| std::cmp::Reverse(file));
    let counts: Vec<u64> = dimensions.iter().map(|d| d.0).collect();
    let file: Vec<i64> = dimensions.iter().map(|d| d.1).collect();
    let memory: Vec<i64> = dimensions.iter().map(|d| d.2).collect();
    Ok(Section {
        file: nested(offset, item, &counts, &file)?,
        memory: nested(0, item, &counts, &memory)?,
        shift,
    })
}
