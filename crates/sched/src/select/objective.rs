//! The objective of the selection, and its score over an interval of time.
//!
//! *Problem*: the algorithm with the most bytes per second may starve a program or let single requests wait. *Idea*:
//! each window has one score, larger is better, so that comparisons do not depend on the objective. *Source*: TS names
//! bandwidth; Jain's index and the 99th percentile are Penstock's.
use crate::Nanos;

/// Programs told apart for fairness; more count as one.
const PROGRAMS: usize = 1024;
/// Response times kept of one window.
const RESPONSES: usize = 4096;
/// An interval rises when its second half has this much more than its first.
const RISING: f64 = 1.08;

/// What the selection maximises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Objective {
    /// Bytes per second.
    #[default]
    Bandwidth,
    /// Equal slowdown: Jain's index of the programs' bytes per time waited, times the bandwidth.
    Fairness,
    /// The 99th percentile of response times.
    P99,
}

impl Objective {
    /// All, with the names that users write.
    pub const ALL: [(Objective, &'static str); 3] = [
        (Objective::Bandwidth, "bandwidth"),
        (Objective::Fairness, "fairness"),
        (Objective::P99, "p99"),
    ];
}

/// What is recorded in one interval.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    bytes: u64,
    pub(super) completions: u64,
    busy: Nanos,
    /// (program, bytes, time waited)
    programs: Vec<(u64, u64, Nanos)>,
    responses: Vec<Nanos>,
}

/// The state of an interval at some moment: bytes and busy time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(u64, Nanos);

impl Stretch {
    pub(super) fn clear(&mut self) {
        self.bytes = 0;
        self.completions = 0;
        self.busy = 0;
        self.programs.clear();
        self.responses.clear();
    }

    pub(super) fn busy(&mut self, time: Nanos) {
        self.busy += time;
    }

    pub(super) fn completed(&mut self, program: u64, bytes: u64, response: Nanos) {
        self.bytes += bytes;
        self.completions += 1;
        if self.responses.len() < RESPONSES {
            self.responses.push(response);
        }
        match self.programs.iter().position(|p| p.0 == program) {
            Some(i) => {
                let p = &mut self.programs[i];
                p.1 += bytes;
                p.2 += response;
            }
            None if self.programs.len() < PROGRAMS => {
                self.programs.push((program, bytes, response))
            }
            None => {}
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.bytes, self.busy)
    }

    /// Whether it had clearly more bytes per time after the mark than before.
    pub(super) fn rises(&self, mark: Option<Mark>) -> bool {
        let Some(Mark(bytes, busy)) = mark.filter(|m| self.busy > m.1) else {
            return false;
        };
        let first = bytes as f64 / busy.max(1) as f64;
        let second = (self.bytes - bytes) as f64 / (self.busy - busy) as f64;
        second > RISING * first
    }

    /// The score: larger is better, and greater than 0.
    pub(super) fn score(&mut self, objective: Objective) -> f64 {
        let rate = self.bytes as f64 * 1e9 / self.busy.max(1) as f64;
        let score = match objective {
            Objective::Bandwidth => rate,
            Objective::Fairness => {
                let speeds = self.programs.iter().map(|p| p.1 as f64 / p.2.max(1) as f64);
                let (mut sum, mut squares) = (0.0, 0.0);
                for speed in speeds {
                    sum += speed;
                    squares += speed * speed;
                }
                let n = self.programs.len().max(1) as f64;
                rate * sum * sum / (n * squares).max(f64::MIN_POSITIVE)
            }
            Objective::P99 => {
                let last = self.responses.len().saturating_sub(1);
                let at = (self.responses.len() * 99 / 100).min(last);
                let slow = if self.responses.is_empty() {
                    u64::MAX
                } else {
                    *self.responses.select_nth_unstable(at).1
                };
                1e9 / slow.max(1) as f64
            }
        };
        score.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_prefer_what_they_name() {
        let made = |programs: [(u64, u64, Nanos); 2], responses: Vec<Nanos>| Stretch {
            bytes: programs[0].1 + programs[1].1,
            busy: 10,
            programs: programs.to_vec(),
            responses,
            ..Stretch::default()
        };
        let mut fair = made([(1, 100, 50), (2, 100, 50)], vec![5; 100]);
        let slow = [vec![1; 90], vec![50; 10]].concat();
        let mut unfair = made([(1, 210, 50), (2, 10, 50)], slow);
        assert!(fair.score(Objective::Bandwidth) < unfair.score(Objective::Bandwidth));
        assert!(fair.score(Objective::Fairness) > unfair.score(Objective::Fairness));
        assert!(fair.score(Objective::P99) > unfair.score(Objective::P99));
        assert!(
            Objective::ALL
                .iter()
                .all(|(o, _)| Stretch::default().score(*o) > 0.0)
        );
    }

    #[test]
    fn what_is_much_faster_later_rises() {
        let mut s = Stretch::default();
        s.busy(10);
        s.completed(1, 100, 1);
        let mark = s.mark();
        assert!(!s.rises(Some(mark)) && !s.rises(None));
        s.busy(10);
        s.completed(1, 105, 1);
        assert!(!s.rises(Some(mark)));
        s.completed(1, 20, 1);
        assert!(s.rises(Some(mark)));
    }
}
