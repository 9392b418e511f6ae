//! Fast path: accesses of one contiguous file range and one contiguous memory range, by descriptors.
//!
//! Problem: such a call mainly copies some KB. Describing it to a cost model that always answers the same takes a fifth
//! of its time. Idea: where `auto` may choose and descriptors are available, the file system moves the bytes without
//! operations (`penstock_client::File::read_fast_path`). The call is counted as what it is: the datatype method by
//! descriptors, one operation. Any other access takes the general path ([`crate::transfer`]), as if the fast path had
//! not been tried. When it pays: always when it is possible. No parameters.
use crate::access::{Buffer, Tally};
use crate::file::Inner;
use crate::filesystem::FileHandle;
use crate::hints::{Hints, Toggle};
use crate::methods::Method;
use crate::methods::auto::Candidate;
use crate::model::{AccessSummary, predict};
use crate::stats::Record;
use crate::transfer::{Decision, Why};
use penstock_base::Op;
use penstock_datatype::Pattern;
use penstock_host::time;

/// The candidate that the fast path counts as.
const FAST_PATH: Candidate = Candidate {
    method: Method::DATATYPE,
    shortcut: true,
};

/// Whether no hint asks for another method.
fn is_free(hints: &Hints, direction: Op) -> bool {
    hints.method.is_none()
        && hints.shortcut != Toggle::Disable
        && hints.leave(FAST_PATH.method, direction)
}

/// Moves the bytes if both sides are contiguous and the file system supports it.
fn transfer(handle: &dyn FileHandle, pattern: &Pattern, buffer: &mut Buffer<'_, '_>) -> bool {
    let one = pattern.len > 0 && pattern.is_contiguous() && buffer.pattern().is_contiguous();
    let (true, Ok(offset)) = (one, u64::try_from(pattern.bounds().0)) else {
        return false;
    };
    let mut done = false;
    match buffer {
        Buffer::Into(target) => {
            target.pieces(0, pattern.len, |memory| {
                done = handle.read_fast_path(offset, memory)
            });
        }
        Buffer::From(source) => {
            source.pieces(0, pattern.len, |memory| {
                done = handle.write_fast_path(offset, memory)
            });
        }
    }
    done
}

impl Inner {
    /// Performs an independent access, not in atomic mode, on the fast path if possible; false if the general path must
    /// perform it.
    pub(crate) fn fast_path(
        &self,
        hints: &Hints,
        pattern: &Pattern,
        buffer: &mut Buffer<'_, '_>,
        collective: bool,
    ) -> bool {
        let began = time::now();
        let direction = buffer.direction();
        if !is_free(hints, direction) || !transfer(&*self.handle, pattern, buffer) {
            return false;
        }
        let bytes = pattern.len;
        let shape = AccessSummary {
            bytes,
            file_regions: 1,
            memory_regions: 1,
            extent: bytes,
            aggregate_extent: bytes,
            aggregators: 1,
        };
        let record = Record {
            direction,
            collective,
            method: FAST_PATH.method,
            shortcut: FAST_PATH.shortcut,
            bytes,
            region_bytes: bytes,
            tally: Tally {
                operations: 1,
                accessed: bytes,
                largest: bytes,
                ..Tally::default()
            },
            model: predict(FAST_PATH.method, &shape, 0),
            began,
            seconds: time::since(began).as_secs_f64(),
        };
        let decision = Decision {
            candidate: FAST_PATH,
            why: Why::Lean,
        };
        self.keep(&record, decision);
        true
    }
}
