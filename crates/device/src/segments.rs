//! What a disk's buffer holds of earlier reads: a few runs, with the least recently used evicted.

use std::collections::VecDeque;

pub(crate) struct Segments {
    /// (start, end), the most recently used last.
    runs: VecDeque<(u64, u64)>,
    most: usize,
}

impl Segments {
    pub(crate) fn new(most: usize) -> Segments {
        Segments {
            runs: VecDeque::new(),
            most,
        }
    }

    /// Whether one run holds all of it; that run counts as used.
    pub(crate) fn holds(&mut self, start: u64, end: u64) -> bool {
        match self.runs.iter().position(|r| r.0 <= start && end <= r.1) {
            Some(i) => {
                if let Some(run) = self.runs.remove(i) {
                    self.runs.push_back(run);
                }
                true
            }
            None => false,
        }
    }

    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start >= end || self.most == 0 {
            return;
        }
        self.runs.retain(|r| end <= r.0 || r.1 <= start);
        if self.runs.len() >= self.most {
            self.runs.pop_front();
        }
        self.runs.push_back((start, end));
    }

    /// Drops the runs that overlap: their bytes are stale.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        self.runs.retain(|r| end <= r.0 || r.1 <= start);
    }
}
