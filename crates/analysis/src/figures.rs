//! What a group of records did, in figures that add up.
use serde::{Deserialize, Serialize};

/// Counts of durations on a logarithmic scale: eight steps a factor of two, so quantiles are right within 6.3%.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    first: u16,
    counts: Vec<u64>,
}

/// Steps of a factor of two, as a power of two.
const STEPS: u32 = 3;

fn step(value: u64) -> u16 {
    if value < 1 << STEPS {
        return value as u16;
    }
    let power = value.ilog2();
    let within = (value >> (power - STEPS)) & ((1 << STEPS) - 1);
    (((power - STEPS + 1) << STEPS) as u64 + within) as u16
}

/// The middle of a step.
fn value(step: u16) -> u64 {
    let (power, within) = (
        u32::from(step >> STEPS),
        u64::from(step & ((1 << STEPS) - 1)),
    );
    if power == 0 {
        return within;
    }
    let low = ((1 << STEPS) + within) << (power - 1);
    low + (1u64 << (power - 1)) / 2
}

impl Histogram {
    /// One more.
    pub fn add(&mut self, duration: u64) {
        *self.slot(step(duration)) += 1;
    }

    fn slot(&mut self, step: u16) -> &mut u64 {
        if self.counts.is_empty() {
            self.first = step;
        } else if step < self.first {
            let more = (self.first - step) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = step;
        }
        let at = (step - self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        &mut self.counts[at]
    }

    /// All of another one.
    pub fn merge(&mut self, other: &Histogram) {
        for (i, count) in other.counts.iter().enumerate() {
            if *count > 0 {
                *self.slot(other.first + i as u16) += count;
            }
        }
    }

    /// The value below which this share lies, 0 to 1; 0 of nothing.
    pub fn quantile(&self, share: f64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0;
        for (i, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted {
                return value(self.first + i as u16);
            }
        }
        0
    }
}

/// How accesses of one process follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// They begin where the one before ended.
    pub consecutive: u64,
    /// They begin further on, by as much as the one before did.
    pub strided: u64,
    /// They begin further on.
    pub ahead: u64,
    /// They begin before the end of the one before.
    pub back: u64,
    last_end: u64,
    last_step: i64,
    any: bool,
}

impl Order {
    /// One more access.
    pub fn add(&mut self, offset: u64, bytes: u64) {
        let step = offset.wrapping_sub(self.last_end).cast_signed();
        if self.any {
            if step == 0 {
                self.consecutive += 1;
            } else if step < 0 {
                self.back += 1;
            } else if step == self.last_step {
                self.strided += 1;
            } else {
                self.ahead += 1;
            }
        }
        self.any = true;
        self.last_step = step;
        self.last_end = offset.saturating_add(bytes);
    }

    /// Counts of another process.
    pub fn merge(&mut self, other: &Order) {
        self.consecutive += other.consecutive;
        self.strided += other.strided;
        self.ahead += other.ahead;
        self.back += other.back;
    }

    /// What most of them are.
    pub fn name(&self) -> &'static str {
        let all = self.consecutive + self.strided + self.ahead + self.back;
        match all {
            0 => "single",
            _ if self.consecutive * 2 > all => "consecutive",
            _ if (self.consecutive + self.strided) * 2 > all => "strided",
            _ if (self.consecutive + self.strided + self.ahead) * 10 > all * 9 => "ahead",
            _ => "random",
        }
    }
}

/// What a group of records did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Records.
    pub calls: u64,
    /// Bytes.
    pub bytes: u64,
    /// Records with an error.
    pub errors: u64,
    /// Nanoseconds of all records, those inside one of their own layer not counted.
    pub inclusive: u64,
    /// Nanoseconds in which no child ran.
    pub exclusive: u64,
    /// Nanoseconds that children ran beside each other.
    pub overlap: u64,
    /// Nanoseconds that children ran outside their parent.
    pub after: u64,
    /// Shortest, nanoseconds.
    pub least: u64,
    /// Longest, nanoseconds.
    pub most: u64,
    /// First begin, nanoseconds since the trace began.
    pub first: u64,
    /// Last end.
    pub last: u64,
    /// Durations.
    pub durations: Histogram,
}

impl Figures {
    /// Those of another group.
    pub fn merge(&mut self, other: &Figures) {
        if other.calls == 0 {
            return;
        }
        let first = self.calls == 0;
        self.least = if first {
            other.least
        } else {
            self.least.min(other.least)
        };
        self.first = if first {
            other.first
        } else {
            self.first.min(other.first)
        };
        self.most = self.most.max(other.most);
        self.last = self.last.max(other.last);
        self.calls += other.calls;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors += other.errors;
        self.inclusive += other.inclusive;
        self.exclusive += other.exclusive;
        self.overlap += other.overlap;
        self.after += other.after;
        self.durations.merge(&other.durations);
    }

    /// Mean duration, nanoseconds.
    pub fn mean(&self) -> u64 {
        self.inclusive.checked_div(self.calls).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_step() {
        let mut random = penstock_base::Random::new(3);
        let (mut one, mut other, mut all) =
            (Histogram::default(), Histogram::default(), Vec::new());
        for i in 0..20_000 {
            let power = 1 + random.below(40);
            let v = random.below(1 << power);
            all.push(v);
            if i % 3 == 0 { &mut one } else { &mut other }.add(v);
        }
        one.merge(&other);
        all.sort_unstable();
        for share in [0.0, 0.01, 0.5, 0.95, 0.999, 1.0] {
            let exact = all[(((all.len() as f64) * share).ceil() as usize).max(1) - 1] as f64;
            let found = one.quantile(share) as f64;
            assert!(
                (found - exact).abs() <= exact * 0.063 + 1.0,
                "{share}: {found} for {exact}"
            );
        }
        assert_eq!(Histogram::default().quantile(0.5), 0);
        let mut most = Histogram::default();
        most.add(u64::MAX);
        assert!(most.quantile(0.5) > u64::MAX / 2);
    }

    #[test]
    fn orders_have_names() {
        let named = |offsets: &[u64]| {
            let mut order = Order::default();
            offsets.iter().for_each(|o| order.add(*o, 10));
            order.name()
        };
        assert_eq!(named(&[0]), "single");
        assert_eq!(named(&[0, 10, 20, 30]), "consecutive");
        assert_eq!(named(&[0, 50, 100, 150]), "strided");
        assert_eq!(named(&[0, 50, 70, 500, 501_000, 600_000]), "ahead");
        assert_eq!(named(&[500, 50, 700, 5, 501, 6]), "random");
    }
}
