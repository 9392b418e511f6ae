//! A caller that waits is served on the CPU where it waits.
//!
//! *Problem*: a small request is over in 2 us; what takes time is to wake the thread that serves it and then its caller,
//! each on another CPU that has gone to sleep meanwhile: there and back 40 to 48 us between two virtual CPUs, 8 on one.
//! *Idea*: a caller that waits for one answer leaves its own CPU idle for just that time. It stays on that CPU until the answer is
//! there and says in the header of its request which one it is; the thread of its connection moves to the same. Staying has
//! to be asked for: the kernel wakes a sleeper wherever a CPU is idle, and so sends it away from where it is served.
//! *When it pays*: requests one at a time over a Unix socket, most where CPUs are virtual or sleep deeply. So each connection tries
//! both ways, and one of [`AGAIN`] times the other one again.
//! *Bounds*: neither thread leaves the CPUs that it was given. Both may move where they like between two requests.
use penstock_host::time::now;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::time::{Duration, Instant};

/// Requests of each way before one is chosen.
const TRIAL: u32 = 8;
/// Every so many requests the other way is tried again.
const AGAIN: u32 = 256;
/// What an answer takes at most, as far as the choice is concerned: what takes longer waits for something else.
const WORTH: Duration = Duration::from_micros(400);

fn only(cpu: u16) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(usize::from(cpu));
    set
}

fn holds(set: &CpuSet, cpu: u16) -> bool {
    usize::from(cpu) < CpuSet::MAX_CPU && set.is_set(usize::from(cpu))
}

/// Puts the calling thread there. Not where it should be, a thread does its work all the same.
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
    /// Where it may run at all.
    allowed: CpuSet,
    place: Option<u16>,
}

impl Server {
    /// The calling thread; `None` where there is nothing to choose.
    pub(crate) fn new() -> Option<Server> {
        let allowed = sched_getaffinity(None).ok()?;
        (allowed.count() > 1).then_some(Server {
            allowed,
            place: None,
        })
    }

    /// A request has come in, whose caller waits on `cpu` if it says so. Called by the thread that serves it.
    pub(crate) fn heard(&mut self, cpu: Option<u16>) {
        let place = cpu.filter(|cpu| holds(&self.allowed, *cpu));
        if place != self.place {
            self.place = place;
            run_on(&place.map_or(self.allowed, only));
        }
    }
}

/// Which way a connection's requests are waited for: without clock or system.
#[derive(Debug, Default)]
struct Choice {
    /// Requests so far, and what they took, by way: moving average over some eight.
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

/// The threads that wait for the answers of a connection, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Caller(Choice);

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// What its header says.
    pub cpu: Option<u16>,
    /// Where the thread may go again afterwards.
    before: Option<CpuSet>,
    since: Instant,
}

impl Caller {
    /// The calling thread is about to send a request, and will do nothing until [`Caller::answered`].
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

    /// The answer is there, or will not come.
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

    /// How many of `n` requests are waited for nearby.
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
        // What was better may become worse.
        let changing = near(&mut c, 40 * AGAIN, 10, 40);
        assert!(changing < 12 * AGAIN, "{changing}");
        assert_eq!(near(&mut c, 10 * AGAIN, 10, 40), 10);
        // Waiting for a disk says nothing about either way for long.
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
            // Bound already, it stays so.
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
            // A CPU that there is not is no place.
            server.heard(Some(u16::MAX));
            assert_eq!(mine(), allowed);
        })
        .join()
        .unwrap();
    }
}
