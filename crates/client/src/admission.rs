//! Admission control: how many operations of a client run at once. Each uses at most one connection per server, so this
//! bounds those too.
use crate::guard::guard;
use penstock_host::sync::{Condvar, Mutex};
use penstock_host::time::now;
use std::sync::PoisonError;
use std::time::Duration;

/// A counting semaphore.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<Places>,
    freed: Condvar,
}

#[derive(Debug)]
struct Places {
    free: usize,
    /// Waiting threads: without any, no wake-up is needed, which would be a system call for each access.
    waiting: usize,
}

/// Freed on drop.
pub(crate) struct Permit<'a>(&'a Admission);

impl Admission {
    pub fn new(n: usize) -> Admission {
        Admission {
            state: Mutex::new(Places {
                free: n.max(1),
                waiting: 0,
            }),
            freed: Condvar::new(),
        }
    }

    /// Waits until fewer than the bound run, at most `limit`.
    pub fn take(&self, limit: Duration) -> Option<Permit<'_>> {
        let mut places = guard(&self.state);
        if places.free == 0 {
            let end = now() + limit;
            places.waiting += 1;
            while places.free == 0 {
                let left = end.saturating_duration_since(now());
                if left.is_zero() {
                    break;
                }
                (places, _) = self
                    .freed
                    .wait_timeout(places, left)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            places.waiting -= 1;
        }
        places.free = places.free.checked_sub(1)?;
        Some(Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut places = guard(&self.0.state);
        places.free += 1;
        if places.waiting > 0 {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_come_back() {
        let admission = Admission::new(2);
        let a = admission.take(Duration::ZERO);
        let b = admission.take(Duration::ZERO);
        assert!(a.is_some() && b.is_some());
        assert!(admission.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|s| {
            let waiter = s.spawn(|| admission.take(Duration::from_secs(10)).is_some());
            drop(a);
            assert!(waiter.join().unwrap());
        });
    }
}
