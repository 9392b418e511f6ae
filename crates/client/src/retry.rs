//! When to try again after a server went away.
//!
//! Problem: a restarted server returns after an unknown time. A client that retries too often adds load, one that waits
//! too long adds idle time, and one that never stops hangs its program. Idea: exponential back-off from `first` to
//! `most`, until `limit` has passed since the first failure without progress. Any progress (a reply) starts afresh.
//! When it pays: always; a healthy server never sees it. No randomness: each client's delays start at its own first
//! failure, which spreads them enough.
use std::time::{Duration, Instant};

/// Delays and limit of a back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub first: Duration,
    pub most: Duration,
    pub limit: Duration,
}

impl Backoff {
    pub fn until(limit: Duration) -> Backoff {
        Backoff {
            first: Duration::from_millis(2),
            most: Duration::from_millis(500),
            limit,
        }
    }
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    TryAt(Instant),
    GiveUp { tried: Duration },
}

/// Failures since the last progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    backoff: Backoff,
    since: Option<Instant>,
    delay: Duration,
}

impl Retry {
    pub fn new(backoff: Backoff) -> Retry {
        Retry {
            backoff,
            since: None,
            delay: backoff.first,
        }
    }

    /// The server answered.
    pub fn progress(&mut self) {
        self.since = None;
        self.delay = self.backoff.first;
    }

    /// A try failed at `now`.
    pub fn failed(&mut self, now: Instant) -> Next {
        let since = *self.since.get_or_insert(now);
        let end = since + self.backoff.limit;
        if now >= end {
            return Next::GiveUp { tried: now - since };
        }
        let at = (now + self.delay).min(end);
        self.delay = (self.delay * 2).min(self.backoff.most);
        Next::TryAt(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn doubles_up_to_the_most_and_ends_at_the_limit() {
        let backoff = Backoff {
            first: ms(10),
            most: ms(40),
            limit: ms(200),
        };
        let mut r = Retry::new(backoff);
        let mut now = Instant::now();
        let mut delays = Vec::new();
        let mut ended = None;
        // More rounds than it may take.
        for _ in 0..8 {
            match r.failed(now) {
                Next::TryAt(at) => {
                    delays.push((at - now).as_millis());
                    now = at;
                }
                Next::GiveUp { tried } => {
                    ended = Some(tried);
                    break;
                }
            }
        }
        // The last try comes exactly at the limit, however the delays add up.
        assert_eq!(delays, [10, 20, 40, 40, 40, 40, 10]);
        assert_eq!(ended, Some(ms(200)));
    }

    #[test]
    fn progress_starts_afresh() {
        let mut r = Retry::new(Backoff {
            first: ms(1),
            most: ms(8),
            limit: ms(20),
        });
        let t0 = Instant::now();
        for i in 0..100 {
            let now = t0 + ms(i * 19);
            assert_eq!(r.failed(now), Next::TryAt(now + ms(1)));
            r.progress();
        }
    }
}
