//! CPU affinity: a caller that waits is served on the CPU where it waits.
//!
//! *Problem*: a small request takes 2 us. Most of the time goes into waking the serving thread and then the caller,
//! each on another CPU that has gone to sleep. A round trip takes 40 to 48 us between two virtual CPUs, and 8 on one.
//! *Idea*: a caller that waits for one answer leaves its own CPU idle for that time. It stays on that CPU until the
//! answer has arrived, and names the CPU in the header of its request. The thread of its connection moves to the same
//! CPU. Staying must be enforced: the kernel wakes a sleeper on any idle CPU, and so moves it away from where it is
//! served. *When it pays*: single requests over a Unix socket, most where CPUs are virtual or sleep deeply. So each
//! connection tries both ways, and tries the other one again for one request in [`AGAIN`]. *Bounds*: neither thread
//! leaves the CPUs that it was allowed to use. Between two requests both may run anywhere within these.
use penstock_host::time::now;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::time::{Duration, Instant};

/// Requests of each kind before one is chosen.
const TRIAL: u32 = 8;
/// One request in so many tries the other way.
const AGAIN: u32 = 256;
/// Longest time of an answer that counts for the choice: a longer one waits for something else.
const WORTH: Duration = Duration::from_micros(400);

fn only(cpu: u16) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(usize::from(cpu));
    set
}

fn holds(set: &CpuSet, cpu: u16) -> bool {
    usize::from(cpu) < CpuSet::MAX_CPU && set.is_set(usize::from(cpu))
}

/// Moves the calling thread there. If that fails, the thread works on another CPU.
fn run_on(set: &CpuSet) -> bool {
    let done = sched_setaffinity(None, set);
    if let Err(e) = done {
        log::debug!("a thread cannot choose its CPUs: {e}");
    }
    done.is_ok()
}

/// The thread that serves a connection.
#[derive(Debug)]
pub(crate) struct Server {
    /// The CPUs that it may run on.
    allowed: CpuSet,
    place: Option<u16>,
}

impl Server {
    /// For the calling thread; `None` if it has only one CPU.
    pub(crate) fn new() -> Option<Server> {
        let allowed = sched_getaffinity(None).ok()?;
        (allowed.count() > 1).then_some(Server {
            allowed,
            place: None,
        })
    }

    /// A request has arrived; its caller waits on `cpu`, if it says so. The thread that serves it must call this.
    pub(crate) fn heard(&mut self, cpu: Option<u16>) {
        let place = cpu.filter(|cpu| holds(&self.allowed, *cpu));
        if place != self.place {
            self.place = place;
            run_on(&place.map_or(self.allowed, only));
        }
    }
}

/// The choice for one connection, without clock or system calls.
#[derive(Debug, Default)]
struct Choice {
    /// Requests so far and their duration, by kind: an exponential average over about eight.
    far: (u32, Duration),
    near: (u32, Duration),
    since_other: u32,
}

impl Choice {
    fn near(&mut self) -> bool {
        if self.far.0.min(self.near.0) < TRIAL {
            return self.far.0 >= TRIAL;
        }
        let better = self.near.1 < self.far.1;
        self.since_other += 1;
        if self.since_other >= AGAIN {
            self.since_other = 0;
            return !better;
        }
        better
    }

    fn took(&mut self, near: bool, time: Duration) {
        let (count, mean) = if near { &mut self.near } else { &mut self.far };
        let time = time.min(WORTH);
        *mean = match *count {
            0 => time,
            _ => (*mean * 7 + time) / 8,
        };
        *count = count.saturating_add(1);
    }
}

/// The threads that wait for answers on a connection, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Caller(Choice);

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The CPU named in its header.
    pub cpu: Option<u16>,
    /// The CPUs that the thread may use again afterwards.
    before: Option<CpuSet>,
    since: Instant,
}

impl Caller {
    /// The calling thread is about to send a request, and does nothing until [`Caller::answered`].
    pub(crate) fn asks(&mut self) -> Waiting {
        let mut waiting = Waiting {
            cpu: None,
            before: None,
            since: now(),
        };
        if self.0.near()
            && let Ok(allowed) = sched_getaffinity(None)
            && let Ok(cpu) = u16::try_from(sched_getcpu())
        {
            let bound = allowed.count() == 1;
            if bound || run_on(&only(cpu)) {
                waiting.cpu = Some(cpu);
                waiting.before = (!bound).then_some(allowed);
            }
        }
        waiting
    }

    /// The answer has arrived, or will not.
    pub(crate) fn answered(&mut self, waiting: Waiting) {
        if let Some(before) = &waiting.before {
            run_on(before);
        }
        let took = now().saturating_duration_since(waiting.since);
        self.0.took(waiting.cpu.is_some(), took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `n` requests are served with affinity.
    fn near(choice: &mut Choice, n: u32, far_us: u64, near_us: u64) -> u32 {
        let mut count = 0;
        for _ in 0..n {
            let near = choice.near();
            count += u32::from(near);
            choice.took(
                near,
                Duration::from_micros(if near { near_us } else { far_us }),
            );
        }
        count
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_again() {
        let mut c = Choice::default();
        assert_eq!(near(&mut c, 2 * TRIAL, 40, 10), TRIAL);
        assert_eq!(near(&mut c, AGAIN, 40, 10), AGAIN - 1);
        // The better way may become the worse one.
        let changing = near(&mut c, 40 * AGAIN, 10, 40);
        assert!(changing < 12 * AGAIN, "{changing}");
        assert_eq!(near(&mut c, 10 * AGAIN, 10, 40), 10);
        // Waiting for a disk has no lasting influence on the choice.
        for near in [false, true] {
            c.took(near, Duration::from_secs(60));
        }
        near(&mut c, 100 * AGAIN, 10, 40);
        assert_eq!(near(&mut c, 10 * AGAIN, 10, 40), 10);
    }

    #[test]
    fn threads_keep_to_one_place_only_while_they_wait() {
        std::thread::spawn(|| {
            let Some(mut server) = Server::new() else {
                return;
            };
            let allowed = server.allowed;
            let mine = || sched_getaffinity(None).unwrap();
            let mut caller = Caller::default();
            let mut near = 0;
            for _ in 0..2 * TRIAL {
                let waiting = caller.asks();
                match waiting.cpu {
                    Some(cpu) => assert_eq!(mine(), only(cpu)),
                    None => assert_eq!(mine(), allowed),
                }
                near += u32::from(waiting.cpu.is_some());
                caller.answered(waiting);
                assert_eq!(mine(), allowed);
            }
            assert_eq!(near, TRIAL);
            // A thread bound to one CPU stays there.
            let cpu = u16::try_from(sched_getcpu()).unwrap();
            assert!(run_on(&only(cpu)));
            let mut caller = Caller::default();
            for _ in 0..2 * TRIAL {
                let waiting = caller.asks();
                caller.answered(waiting);
                assert_eq!(mine(), only(cpu));
            }
            assert!(run_on(&allowed));

            server.heard(Some(cpu));
            assert_eq!(mine(), only(cpu));
            server.heard(None);
            assert_eq!(mine(), allowed);
            // A CPU that does not exist is ignored.
            server.heard(Some(u16::MAX));
            assert_eq!(mine(), allowed);
        })
        .join()
        .unwrap();
    }
}
