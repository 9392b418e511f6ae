//! Calls are served on the CPU of their caller, while there is but one caller.
//!
//! Problem: a small read or write is over in 3 us; what takes time is to wake the thread that serves it and then its caller,
//! each on another CPU that has gone to sleep meanwhile (measured on two virtual CPUs, 4 KiB at depth 1: 10 us where both run
//! on one CPU, 20 to 50 us where not).
//! Idea: a thread that waits for the answer to each call leaves its own CPU idle for just that time. So once [`SETTLED`]
//! calls have come from one thread, none before the one before it was answered, threads that serve move to the CPU where it
//! was last; every [`LOOK`] calls they look whether it still is. If it is not, the scheduler wants the two apart (to wake each
//! other across CPUs then costs most of all), and it is left alone for eight times as many calls as before. With the first call of anybody else, or a second at the same
//! time, they go back to wherever the scheduler wants them: then there is work for several CPUs.
//! When it pays: many small calls of one program. Large ones and those of many threads are as without it.
//! Parameters: [`SETTLED`], [`MOST_SETTLED`], [`LOOK`], [`SMALL`].
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls of one caller before anything is done for it.
const SETTLED: u32 = 32;
/// The same for a caller that did not stay.
const MOST_SETTLED: u32 = 1 << 14;
/// Calls between two looks at where it runs.
const LOOK: u32 = 32;
/// Bytes of a call that is worth it; with more, moving them takes longer than any wake-up.
const SMALL: usize = 128 << 10;

thread_local! {
    /// The CPU that this thread keeps to.
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Who calls, and where to serve: without clock or system.
#[derive(Debug)]
struct Follow {
    caller: u32,
    /// Calls of it alone: until it has settled, and then since the last look.
    calls: u32,
    /// Calls until it counts as settled.
    settled: u32,
    under_way: u32,
    place: Option<usize>,
}

impl Default for Follow {
    fn default() -> Follow {
        Follow {
            caller: 0,
            calls: 0,
            settled: SETTLED,
            under_way: 0,
            place: None,
        }
    }
}

impl Follow {
    /// A call begins. True: look where its caller runs, and tell [`Follow::runs_on`].
    fn began(&mut self, caller: u32) -> bool {
        self.under_way += 1;
        // 0: nobody to follow, or of a process namespace that is not seen from here.
        if self.under_way > 1 || caller != self.caller || caller == 0 {
            if caller != self.caller {
                self.settled = SETTLED;
            }
            self.caller = caller;
            self.calls = 0;
            self.place = None;
            return false;
        }
        self.calls += 1;
        let due = match self.place {
            Some(_) => LOOK,
            None => self.settled,
        };
        self.calls >= due
    }

    fn runs_on(&mut self, caller: u32, cpu: Option<usize>) {
        if self.caller != caller {
            return;
        }
        self.calls = 0;
        if self.place.is_some() && self.place != cpu {
            self.settled = (self.settled * 8).min(MOST_SETTLED);
            self.place = None;
            return;
        }
        if self.place.is_some() {
            self.settled = (self.settled / 2).max(SETTLED);
        }
        self.place = cpu;
    }

    /// A call is about to be answered. Where to serve the next.
    fn ended(&mut self) -> Option<usize> {
        self.under_way -= 1;
        self.place
    }
}

/// Where a thread ran last, or runs.
fn cpu_of(thread: u32) -> Option<usize> {
    cpu_in(&std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

fn cpu_in(stat: &str) -> Option<usize> {
    // The name of the program, in parentheses, may be anything. What follows begins with the third field.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Nearby {
    follow: Mutex<Follow>,
    /// Where the mount may run at all; `None`: nobody is followed.
    allowed: Option<CpuSet>,
}

impl Nearby {
    pub(crate) fn new() -> Nearby {
        Nearby {
            follow: Mutex::default(),
            // With one CPU there is nothing to choose.
            allowed: sched_getaffinity(None).ok().filter(|set| set.count() > 1),
        }
    }

    fn follow(&self) -> MutexGuard<'_, Follow> {
        self.follow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that moves `bytes`; see [`Nearby::call`].
    pub(crate) fn moving(&self, caller: u32, bytes: usize) -> Call<'_> {
        self.call(if bytes > SMALL { 0 } else { caller })
    }

    /// A call of this thread begins; it ends when what is returned is dropped. That has to be before the answer is sent: with
    /// the answer its caller may go on and call again.
    pub(crate) fn call(&self, caller: u32) -> Call<'_> {
        if let Some(allowed) = &self.allowed
            && self.follow().began(caller)
        {
            let cpu = cpu_of(caller).filter(|cpu| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu));
            self.follow().runs_on(caller, cpu);
        }
        Call(self)
    }
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Call<'a>(&'a Nearby);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Some(allowed) = &self.0.allowed else {
            return;
        };
        let place = self.0.follow().ended();
        if PLACE.get() == place {
            return;
        }
        let set = match place {
            Some(cpu) => {
                let mut set = CpuSet::new();
                set.set(cpu);
                set
            }
            None => *allowed,
        };
        // Not where it should be, a thread serves all the same.
        if let Err(e) = sched_setaffinity(None, &set) {
            log::debug!("not moved to CPU {place:?}: {e}");
        }
        PLACE.set(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` calls of `caller`, who runs on `cpu`; returns how often it was looked at, and the last place.
    fn calls(follow: &mut Follow, caller: u32, cpu: usize, n: u32) -> (u32, Option<usize>) {
        let mut looks = 0;
        let mut place = None;
        for _ in 0..n {
            if follow.began(caller) {
                looks += 1;
                follow.runs_on(caller, Some(cpu));
            }
            place = follow.ended();
        }
        (looks, place)
    }

    #[test]
    fn one_caller_is_followed_when_it_has_settled() {
        let mut f = Follow::default();
        assert_eq!(calls(&mut f, 7, 3, SETTLED), (0, None));
        assert_eq!(calls(&mut f, 7, 3, 1), (1, Some(3)));
        assert_eq!(calls(&mut f, 7, 3, 10 * LOOK), (10, Some(3)));
        // It moves, and is found again.
        assert_eq!(calls(&mut f, 7, 1, LOOK), (1, None));
        assert_eq!(calls(&mut f, 7, 1, 8 * SETTLED - 1), (0, None));
        assert_eq!(calls(&mut f, 7, 1, 1), (1, Some(1)));
    }

    #[test]
    fn a_caller_that_moves_whenever_it_is_followed_is_left_alone() {
        let mut f = Follow::default();
        let mut followed = 0;
        for _ in 0..100_000 {
            if f.began(7) {
                // Anywhere but where it is served.
                f.runs_on(7, Some(usize::from(f.place == Some(0))));
            }
            followed += u32::from(f.ended().is_some());
        }
        assert!(followed < 1000, "{followed}");
    }

    #[test]
    fn anybody_else_ends_it() {
        let mut f = Follow::default();
        calls(&mut f, 7, 3, 2 * SETTLED);
        assert_eq!(calls(&mut f, 8, 0, 1), (0, None));
        assert_eq!(calls(&mut f, 7, 3, SETTLED), (0, None));
        assert_eq!(calls(&mut f, 7, 3, 1), (1, Some(3)));
        // A second call of the same thread's (as of a large read) before the first is answered.
        assert!(!f.began(7));
        assert!(!f.began(7));
        assert_eq!((f.ended(), f.ended()), (None, None));
        // A look that comes back late changes nothing for the next caller.
        f.began(9);
        f.runs_on(7, Some(3));
        assert_eq!(f.ended(), None);
        assert_eq!(
            calls(&mut f, 0, 3, 4 * SETTLED),
            (0, None),
            "nobody knows who"
        );
    }

    #[test]
    fn where_a_thread_runs_is_read_whatever_its_name() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("12 (a) b) S {}\n", fields.join(" "));
        assert_eq!(cpu_in(&stat), Some(39));
        assert_eq!(cpu_in("12 (x) S 1 2"), None);
        assert_eq!(cpu_of(u32::MAX), None);
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(cpu_of(me).is_some());
    }

    #[test]
    fn a_thread_moves_and_goes_back() {
        let nearby = Nearby::new();
        let Some(allowed) = nearby.allowed else {
            return;
        };
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..=SETTLED {
                    drop(nearby.call(me));
                }
                let place = PLACE.get().expect("it runs somewhere");
                let set = sched_getaffinity(None).unwrap();
                assert!(set.count() == 1 && set.is_set(place));
                drop(nearby.call(me + 1));
                assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            });
        });
    }
}
