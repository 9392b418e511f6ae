//! Time cut into bins, and how long many intervals were in each.
use crate::trace::Trace;

/// Bins of time.
pub(super) const BINS: usize = 1024;

/// Time, cut into [`BINS`] bins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Nanoseconds since the trace began.
    pub begin: u64,
    /// Nanoseconds of a bin; at least 1.
    pub width: u64,
}

impl Axis {
    /// From the first record to the last.
    pub fn of(trace: &Trace) -> Axis {
        let (mut begin, mut end) = (u64::MAX, 0);
        for part in &trace.parts {
            for block in part.stream.blocks() {
                begin = begin.min(block.begin.saturating_add_signed(part.shift));
                end = end.max(block.end.saturating_add_signed(part.shift));
            }
        }
        let begin = begin.min(end);
        Axis {
            begin,
            width: ((end - begin) / BINS as u64 + 1).max(1),
        }
    }

    /// Which bin holds a time.
    pub fn bin(&self, at: u64) -> usize {
        let bin = at.saturating_sub(self.begin) / self.width;
        (bin as usize).min(BINS - 1)
    }

    fn start(&self, bin: usize) -> u64 {
        self.begin
            .saturating_add(self.width.saturating_mul(bin as u64))
    }
}

/// Nanoseconds in each bin of many intervals; each takes constant time, however long.
#[derive(Debug, Clone)]
pub(super) struct Bins {
    part: Vec<u64>,
    /// How many more intervals fill this bin than the one before.
    more: Vec<i64>,
}

impl Default for Bins {
    fn default() -> Bins {
        Bins {
            part: vec![0; BINS],
            more: vec![0; BINS + 1],
        }
    }
}

impl Bins {
    /// One more interval.
    pub fn add(&mut self, axis: &Axis, begin: u64, end: u64) {
        let (first, last) = (axis.bin(begin), axis.bin(end));
        let mut part = |bin: usize, ns| self.part[bin] = self.part[bin].saturating_add(ns);
        if first == last {
            return part(first, end - begin);
        }
        part(first, axis.start(first + 1).saturating_sub(begin));
        part(last, end.saturating_sub(axis.start(last)));
        self.more[first + 1] += 1;
        self.more[last] -= 1;
    }

    /// All of another's intervals.
    pub fn merge(&mut self, other: &Bins) {
        for (mine, theirs) in self.part.iter_mut().zip(&other.part) {
            *mine = mine.saturating_add(*theirs);
        }
        for (mine, theirs) in self.more.iter_mut().zip(&other.more) {
            *mine += theirs;
        }
    }

    /// Nanoseconds of each bin.
    pub fn sums(&self, axis: &Axis) -> Vec<u64> {
        let mut whole = 0i64;
        let bins = self.part.iter().zip(&self.more);
        bins.map(|(part, more)| {
            whole += more;
            part.saturating_add(axis.width.saturating_mul(whole.max(0) as u64))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_the_time_of_intervals() {
        let axis = Axis {
            begin: 100,
            width: 10,
        };
        let mut bins = Bins::default();
        let mut plain = vec![0u64; BINS];
        let mut random = penstock_base::Random::new(5);
        for _ in 0..2_000 {
            let begin = 100 + random.below(10_000);
            let end = (begin + random.below(300)).min(100 + BINS as u64 * 10 - 1);
            bins.add(&axis, begin, end);
            (begin..end).for_each(|at| plain[((at - 100) / 10) as usize] += 1);
        }
        assert_eq!(bins.sums(&axis), plain);
    }
}
