//! The advisory locks of one owner on one file: POSIX's rules of replacing, splitting and joining ranges.
//!
//! The metadata server keeps its locks by these rules. Clients use them to record what they must claim again after a
//! restart.
use crate::message::{Advisory, AdvisoryMode};

/// Whether two locks share a byte.
pub fn overlap(a: &Advisory, b: &Advisory) -> bool {
    a.start <= b.last && b.start <= a.last
}

/// Whether the ranges overlap or are adjacent.
fn touch(a: &Advisory, b: &Advisory) -> bool {
    a.start <= b.last.saturating_add(1) && b.start <= a.last.saturating_add(1)
}

/// Replaces with `new` its owner's locks on that range, all of which are in `held`. Returns whether a lock was released
/// or became shared.
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
