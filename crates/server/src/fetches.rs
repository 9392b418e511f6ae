//! Prefetches of an object that are under way, so that reads come behind them.
//!
//! *Problem*: a prefetch makes the device's requests ascend. A read of bytes that it has not reached yet would go to the device
//! at once, and out of order. *Idea*: each prefetch says how far it has come. A read waits for those of its own program
//! that were there when it came, until they have passed its bytes. A prefetch does not wait, so the wait ends. Programs
//! do not wait for each other's prefetches.
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_sched::ledger::Program;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often a reader that waits looks whether its client is still there.
const LOOK: Duration = Duration::from_secs(1);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    /// How many there are, for reads where there are none.
    count: AtomicUsize,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the next one.
    next: u64,
    under_way: Vec<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    number: u64,
    program: Program,
    left: Range<u64>,
}

impl Fetches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A prefetch of this range of the object begins; it ends with the value.
    pub(crate) fn begin(&self, program: Program, range: Range<u64>) -> Fetch<'_> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.under_way.push(UnderWay {
            number,
            program,
            left: range,
        });
        self.count.store(state.under_way.len(), Ordering::Release);
        Fetch { of: self, number }
    }

    /// Waits until the program's prefetches that are there now have passed this range, or the reader is not `wanted` any
    /// more.
    pub(crate) fn wait(&self, program: Program, range: &Range<u64>, wanted: impl Fn() -> bool) {
        if self.count.load(Ordering::Acquire) == 0 || range.is_empty() {
            return;
        }
        let mut state = self.lock();
        let newest = state.next;
        let ahead = |one: &UnderWay| {
            let meets = one.left.start < range.end && range.start < one.left.end;
            one.program == program && one.number < newest && meets
        };
        while state.under_way.iter().any(ahead) {
            let waited = self.moved.wait_timeout(state, LOOK);
            let late;
            (state, late) = waited.unwrap_or_else(PoisonError::into_inner);
            if late && !wanted() {
                return;
            }
        }
    }
}

/// A prefetch under way.
pub(crate) struct Fetch<'f> {
    of: &'f Fetches,
    number: u64,
}

impl Fetch<'_> {
    /// It has fetched what lies before this offset.
    pub(crate) fn reached(&self, offset: u64) {
        let mut state = self.of.lock();
        let mut all = state.under_way.iter_mut();
        if let Some(one) = all.find(|one| one.number == self.number) {
            one.left.start = one.left.start.max(offset);
        }
        self.of.moved.notify_all();
    }
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        state.under_way.retain(|one| one.number != self.number);
        self.of
            .count
            .store(state.under_way.len(), Ordering::Release);
        self.of.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const MINE: Program = Program { number: 1, user: 7 };

    #[test]
    fn a_read_waits_for_those_before_it_and_not_for_later_ones() {
        let fetches = Fetches::default();
        let through = AtomicBool::new(false);
        let first = fetches.begin(MINE, 0..100);
        fetches.wait(MINE, &(100..200), || true);
        let others = Program { user: 8, ..MINE };
        fetches.wait(others, &(0..100), || true);
        thread::scope(|scope| {
            scope.spawn(|| {
                fetches.wait(MINE, &(50..60), || true);
                through.store(true, Ordering::SeqCst);
            });
            thread::sleep(Duration::from_millis(20));
            first.reached(55);
            let later = fetches.begin(MINE, 0..100);
            thread::sleep(Duration::from_millis(20));
            assert!(!through.load(Ordering::SeqCst));
            first.reached(60);
            while !through.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            drop(later);
        });
        drop(first);
        fetches.wait(MINE, &(0..100), || true);
    }

    #[test]
    fn a_prefetch_that_fails_lets_everyone_go_and_a_client_that_is_gone_does_not_wait() {
        let fetches = Fetches::default();
        let fetch = fetches.begin(MINE, 0..100);
        fetches.wait(MINE, &(0..100), || false);
        drop(fetch);
        fetches.wait(MINE, &(0..100), || true);
    }
}
