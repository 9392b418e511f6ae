//! How long something was busy, and when: from intervals that come nearly in the order of their ends.
use serde::{Deserialize, Serialize};

/// Intervals that wait to be joined with later ones.
const PENDING: usize = 32 << 10;

/// Length of a union of many intervals, in bounded memory. An interval that comes more than [`PENDING`] intervals late is
/// counted as if nothing had been there.
#[derive(Debug, Clone, Default)]
pub struct Busy {
    pending: Vec<(u64, u64)>,
    sum: u64,
}

impl Busy {
    /// Adds `[begin, end)`.
    pub fn add(&mut self, begin: u64, end: u64) {
        match self.pending.last_mut() {
            Some(last) if begin >= last.0 && begin <= last.1 => last.1 = last.1.max(end),
            _ => self.pending.push((begin, end)),
        }
        if self.pending.len() >= PENDING {
            self.join();
            let keep = self.pending.len().min(PENDING / 4);
            let closed = self.pending.len() - keep;
            self.sum += self
                .pending
                .drain(..closed)
                .map(|(b, e)| e - b)
                .sum::<u64>();
        }
    }

    fn join(&mut self) {
        self.pending.sort_unstable();
        self.pending.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1;
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
    }

    /// Nanoseconds.
    pub fn length(mut self) -> u64 {
        self.join();
        self.sum + self.pending.iter().map(|(b, e)| e - b).sum::<u64>()
    }
}

/// Bins of a timeline.
const BINS: usize = 4096;

/// What happened when: bins of equal width, which grows with the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Nanoseconds of a bin.
    pub width: u64,
    /// From time 0.
    pub bins: Vec<Bin>,
}

/// One bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Calls that began in it.
    pub calls: u64,
    /// Bytes read, spread over the calls' time.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Nanoseconds of all processes in calls.
    pub busy: u64,
}

impl Bin {
    /// Adds another one's sums.
    pub fn add(&mut self, other: &Bin) {
        self.calls += other.calls;
        self.read += other.read;
        self.written += other.written;
        self.busy += other.busy;
    }
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            width: 1 << 16,
            bins: Vec::new(),
        }
    }
}

impl Timeline {
    /// A call in `[begin, end)`.
    pub fn add(&mut self, begin: u64, end: u64, read: u64, written: u64) {
        self.widen(end);
        let (first, last) = (begin / self.width, end / self.width);
        if self.bins.len() <= last as usize {
            self.bins.resize(last as usize + 1, Bin::default());
        }
        self.bins[first as usize].calls += 1;
        if first == last {
            let bin = &mut self.bins[first as usize];
            bin.busy += end - begin;
            bin.read += read;
            bin.written += written;
            return;
        }
        let (mut so_far, time) = ((0, 0), u128::from(end - begin));
        for at in first..=last {
            let to = end.min((at + 1) * self.width);
            let from = begin.max(at * self.width);
            // Shares of what is past, so that the sum is exact.
            let share = |bytes: u64| (u128::from(bytes) * u128::from(to - begin) / time) as u64;
            let bin = &mut self.bins[at as usize];
            bin.busy += to - from;
            bin.read += share(read) - so_far.0;
            bin.written += share(written) - so_far.1;
            so_far = (share(read), share(written));
        }
    }

    fn widen(&mut self, end: u64) {
        while end / self.width >= BINS as u64 {
            self.width *= 2;
            let halves = self.bins.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair[1..].iter().for_each(|bin| sum.add(bin));
                sum
            });
            self.bins = halves.collect();
        }
    }

    /// All of another one.
    pub fn merge(&mut self, other: &Timeline) {
        let mut other = other.clone();
        let width = self.width.max(other.width);
        self.widen_to(width);
        other.widen_to(width);
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), Bin::default());
        }
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.add(theirs);
        }
    }

    fn widen_to(&mut self, width: u64) {
        while self.width < width {
            self.widen(self.width * BINS as u64);
        }
    }

    /// Runs of bins in which something happened, as `(begin, end, sums)`; a pause shorter than `gap` nanoseconds ends none.
    pub fn phases(&self, gap: u64) -> Vec<(u64, u64, Bin)> {
        let mut phases: Vec<(u64, u64, Bin)> = Vec::new();
        for (at, bin) in self.bins.iter().enumerate() {
            if bin.busy == 0 && bin.calls == 0 {
                continue;
            }
            let (begin, end) = (at as u64 * self.width, (at as u64 + 1) * self.width);
            match phases.last_mut() {
                Some(last) if begin - last.1 < gap.max(1) => {
                    last.1 = end;
                    last.2.add(bin);
                }
                _ => phases.push((begin, end, *bin)),
            }
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_that_of_a_union() {
        let mut busy = Busy::default();
        for i in 0..200_000u64 {
            busy.add(i * 10, i * 10 + 6);
            busy.add(i * 10 + 4, i * 10 + 8);
        }
        assert_eq!(busy.length(), 200_000 * 8);
    }

    #[test]
    fn a_timeline_keeps_sums_while_it_widens() {
        let (mut one, mut two) = (Timeline::default(), Timeline::default());
        for i in 0..1000u64 {
            let time = if i % 2 == 0 { &mut one } else { &mut two };
            time.add(i * 10_000_000, i * 10_000_000 + 7_777_777, 1001, 37);
        }
        one.merge(&two);
        let sum = |f: fn(&Bin) -> u64| one.bins.iter().map(f).sum::<u64>();
        assert_eq!(sum(|b| b.calls), 1000);
        assert_eq!(sum(|b| b.read), 1_001_000);
        assert_eq!(sum(|b| b.written), 37_000);
        assert_eq!(sum(|b| b.busy), 7_777_777_000);
        assert!(one.bins.len() <= BINS);
        assert_eq!(one.phases(u64::MAX).len(), 1);
    }

    #[test]
    fn phases_end_at_gaps() {
        let mut time = Timeline::default();
        for start in [0u64, 1_000_000_000, 5_000_000_000] {
            for i in 0..10 {
                time.add(
                    start + i * 1_000_000,
                    start + i * 1_000_000 + 500_000,
                    0,
                    100,
                );
            }
        }
        assert_eq!(time.phases(500_000_000).len(), 3);
        assert_eq!(time.phases(2_000_000_000).len(), 2);
        assert_eq!(time.phases(500_000_000)[1].2.written, 1000);
    }
}
