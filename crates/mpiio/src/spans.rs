//! Time intervals of calls, few enough to be written at the end of a program.
//!
//! Problem: the time that a program waited for a file is neither a sum nor a maximum over its ranks. Ranks that share
//! processors run one after another, and each of them looks fast. Idea: each rank records the intervals of its calls;
//! their union is the time in which any rank was in a call. Of too many intervals, the ones with the shortest gaps
//! between them are merged.
use penstock_host::time;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::Instant;

/// Most intervals of one rank, file and direction.
const MOST: usize = 256;

/// Disjoint intervals in ascending order, nanoseconds since the epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spans(Vec<(u64, u64)>);

/// An instant as time since the epoch, which hosts share.
fn since_epoch(at: Instant) -> u64 {
    static ANCHOR: OnceLock<(Instant, u64)> = OnceLock::new();
    let anchor = || (time::now(), time::since_epoch().as_nanos() as u64);
    // Each simulated world has its own epoch.
    let (instant, epoch) = if penstock_host::simulated() {
        anchor()
    } else {
        *ANCHOR.get_or_init(anchor)
    };
    match at.checked_duration_since(instant) {
        Some(later) => epoch.saturating_add(later.as_nanos() as u64),
        None => epoch.saturating_sub(instant.duration_since(at).as_nanos() as u64),
    }
}

impl Spans {
    /// Adds a call with its beginning and duration.
    pub(crate) fn add(&mut self, began: Instant, seconds: f64) {
        let start = since_epoch(began);
        self.insert(start, start.saturating_add((seconds * 1e9) as u64));
    }

    fn insert(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if start >= last.0 && start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
        if self.0.len() > MOST {
            self.unite();
            self.close_gaps(MOST / 2);
        }
    }

    /// Adds the intervals of others.
    pub fn merge(&mut self, other: &Spans) {
        self.0.extend_from_slice(&other.0);
        self.unite();
    }

    /// Reduces them to the limit.
    pub(crate) fn thin(&mut self) {
        self.unite();
        self.close_gaps(MOST);
    }

    /// Total length in seconds.
    pub fn seconds(&self) -> f64 {
        self.0.iter().map(|(start, end)| end - start).sum::<u64>() as f64 / 1e9
    }

    fn unite(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1;
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
    }

    /// Merges intervals with the shortest gaps until there are at most `most`.
    fn close_gaps(&mut self, most: usize) {
        let Some(surplus) = self.0.len().checked_sub(most).filter(|n| *n > 0) else {
            return;
        };
        let mut gaps: Vec<u64> = self.0.windows(2).map(|w| w[1].0 - w[0].1).collect();
        let (_, &mut widest, _) = gaps.select_nth_unstable(surplus - 1);
        let mut left = surplus;
        self.0.dedup_by(|next, kept| {
            let closed = left > 0 && next.0 - kept.1 <= widest;
            if closed {
                kept.1 = next.1;
                left -= 1;
            }
            closed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let mut one = Spans::default();
        one.insert(0, 1_000_000_000);
        one.insert(500_000_000, 2_000_000_000);
        one.insert(5_000_000_000, 6_000_000_000);
        assert_eq!(one.seconds(), 3.0);
        let mut other = Spans::default();
        other.insert(1_500_000_000, 2_500_000_000);
        other.insert(1_000_000_000, 1_250_000_000);
        one.merge(&other);
        assert_eq!((one.seconds(), one.0.len()), (3.5, 2));
    }

    #[test]
    fn the_shortest_gaps_are_closed() {
        let mut spans = Spans::default();
        // Bursts of ten calls 1 ns apart, 1000 ns between the bursts.
        for call in 0..1000u64 {
            let start = call / 10 * 1000 + call % 10 * 2;
            spans.insert(start, start + 1);
        }
        assert!(spans.0.len() <= MOST);
        let covered = (spans.seconds() * 1e9).round();
        assert!((1000.0..=2000.0).contains(&covered), "{covered}");
        spans.thin();
        assert!(spans.0.windows(2).all(|w| w[0].1 < w[1].0));
    }
}
