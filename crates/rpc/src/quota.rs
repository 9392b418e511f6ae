//! A rate limit on log lines about unauthenticated peers, which must not be able to fill the disk.
use std::time::{Duration, Instant};

/// Lines in one period.
const LINES: u32 = 50;
/// See [`LINES`].
const PERIOD: Duration = Duration::from_secs(10);

/// Counts the log lines of the current period.
#[derive(Debug, Default)]
pub(crate) struct LogQuota {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// What to do with a log line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Write it.
    Write,
    /// Write it, and the number of lines left out before.
    WriteAfter(u64),
    /// Leave it out.
    LeaveOut,
}

impl LogQuota {
    /// Decides about one more line at `now`.
    pub(crate) fn line(&mut self, now: Instant) -> Line {
        let old = |began| now.saturating_duration_since(began) >= PERIOD;
        if self.began.is_none_or(old) {
            self.began = Some(now);
            self.lines = 0;
        }
        if self.lines == LINES {
            self.left_out += 1;
            return Line::LeaveOut;
        }
        self.lines += 1;
        match std::mem::take(&mut self.left_out) {
            0 => Line::Write,
            n => Line::WriteAfter(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_so_many_lines_and_the_next_says_how_many_were_left_out() {
        let (mut quota, now) = (LogQuota::default(), Instant::now());
        for _ in 0..LINES {
            assert_eq!(quota.line(now), Line::Write);
        }
        assert_eq!(quota.line(now), Line::LeaveOut);
        assert_eq!(quota.line(now + PERIOD / 2), Line::LeaveOut);
        assert_eq!(quota.line(now + PERIOD), Line::WriteAfter(2));
        assert_eq!(quota.line(now + PERIOD), Line::Write);
    }
}
