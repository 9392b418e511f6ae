//! Long searches share one processor of a server.
//!
//! Problem: a request may search for its pieces in 2^24 steps, which take seconds of a processor. A few clients with
//! such requests would take all processors from others. Idea: a request counts as a long search from its first slice of
//! steps on ([`penstock_layout::SearchLimit`]), until it ends. With n long searches, each sleeps after a slice for as
//! long as n - 1 slices take. A single one never sleeps. When it pays: on servers with more long searches than
//! processors to spare. Parameters: [`MOST`].
use penstock_host::sync::Mutex;
use penstock_host::thread::sleep;
use penstock_host::time::{now, since};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep after a slice: a slice may have waited for its client as well.
const MOST: Duration = Duration::from_millis(100);

/// The requests of a session, each of which is one search at a time.
#[derive(Debug)]
pub(crate) struct Searches {
    /// Long searches of all sessions.
    all: Arc<AtomicU32>,
    /// When the present slice began, if the search is long.
    slice: Mutex<Option<Instant>>,
}

impl Searches {
    /// Of one session; `all` counts those of all sessions.
    pub fn new(all: Arc<AtomicU32>) -> Searches {
        let slice = Mutex::new(None);
        Searches { all, slice }
    }

    /// A slice of the request's search has ended: sleeps until the next may begin.
    pub fn slice_ended(&self) {
        let mut slice = self.slice.lock().unwrap_or_else(PoisonError::into_inner);
        match *slice {
            None => drop(self.all.fetch_add(1, Relaxed)),
            Some(began) => {
                let rest = rest(since(began), self.all.load(Relaxed));
                if !rest.is_zero() {
                    sleep(rest);
                }
            }
        }
        *slice = Some(now());
    }

    /// The request has been served.
    pub fn ended(&self) {
        let mut slice = self.slice.lock().unwrap_or_else(PoisonError::into_inner);
        if slice.take().is_some() {
            self.all.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Searches {
    fn drop(&mut self) {
        self.ended();
    }
}

/// How long a search sleeps after a slice that took `slice`, one of `all`.
fn rest(slice: Duration, all: u32) -> Duration {
    slice.saturating_mul(all.saturating_sub(1)).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_share_one_processor() {
        let slice = Duration::from_millis(2);
        assert_eq!(rest(slice, 1), Duration::ZERO);
        assert_eq!(rest(slice, 4), slice * 3);
        assert_eq!(rest(slice, 1000), MOST);
        assert_eq!(rest(Duration::MAX, u32::MAX), MOST);
    }

    #[test]
    fn a_search_counts_from_its_first_slice_until_its_request_ends() {
        let all = Arc::new(AtomicU32::new(0));
        let session = Searches::new(all.clone());
        session.ended();
        assert_eq!(all.load(Relaxed), 0);
        for _ in 0..3 {
            session.slice_ended();
            assert_eq!(all.load(Relaxed), 1);
        }
        let other = Searches::new(all.clone());
        other.slice_ended();
        assert_eq!(all.load(Relaxed), 2);
        session.ended();
        session.ended();
        assert_eq!(all.load(Relaxed), 1);
        drop(other);
        assert_eq!(all.load(Relaxed), 0);
    }
}
