//! What one owner holds of one file by advisory locks: POSIX's rule of replacing, splitting and joining ranges.
//!
//! The metadata server keeps its locks by this rule, and so do clients note what they have to claim again after a restart.
use crate::message::{Advisory, AdvisoryMode};

/// Whether two locks have a byte in common.
pub fn overlap(a: &Advisory, b: &Advisory) -> bool {
    a.start <= b.last && b.start <= a.last
}

/// Whether the ranges overlap or lie side by side.
fn touch(a: &Advisory, b: &Advisory) -> bool {
    a.start <= b.last.saturating_add(1) && b.start <= a.last.saturating_add(1)
}

/// `new` replaces what its owner holds of its range, all of which is in `held`. Returns whether anything was given up, or
/// became shared.
pub fn replace(held: &mut Vec<Advisory>, new: &Advisory) -> bool {
    let mut joined = *new;
    let mut pieces = Vec::new();
    let mut given_up = false;
    held.retain(|h| {
        if h.mode == new.mode {
            // One range instead of two.
            if touch(h, new) {
                joined.start = joined.start.min(h.start);
                joined.last = joined.last.max(h.last);
                return false;
            }
            return true;
        }
        if !overlap(h, new) {
            return true;
        }
        given_up |= new.mode == AdvisoryMode::Free || h.mode == AdvisoryMode::Exclusive;
        if h.start < new.start {
            pieces.push(Advisory {
                last: new.start - 1,
                ..*h
            });
        }
        if h.last > new.last {
            pieces.push(Advisory {
                start: new.last + 1,
                ..*h
            });
        }
        false
    });
    if new.mode != AdvisoryMode::Free {
        pieces.push(joined);
    }
    held.extend(pieces);
    given_up
}
