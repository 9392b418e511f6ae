//! The simulated system calls: time, threads, locks, sockets, disks.
use super::*;

impl World for Simulation {
    fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.state().now)
    }

    fn wall_clock(&self) -> SystemTime {
        let mut state = self.state();
        let machine = state.machine_of(self.me());
        let now = state.now;
        let right = Duration::from_secs(BEGINNING) + Duration::from_nanos(now);
        let wrong = state.clocks.get(&machine).copied().unwrap_or(0);
        if wrong != 0 {
            state.effects.count(Effect::WrongClock);
            if machine < state.disks.len() {
                state.effects.count(Effect::WrongServerClock);
            }
        }
        let by = Duration::from_nanos(wrong.unsigned_abs());
        UNIX_EPOCH + if wrong < 0 { right - by } else { right + by }
    }

    fn since_boot(&self) -> Duration {
        Duration::from_nanos(UP + self.state().now)
    }

    fn boot(&self) -> u128 {
        let state = self.state();
        let machine = state.machine_of(self.me());
        let losses = match state.disks.get(machine) {
            // The metadata server's boot identifier changes nevertheless.
            Some(_) if machine > 0 && state.plant == Some(Plant::KeptIncarnation) => 0,
            Some(disk) => disk.losses.len(),
            None => 0,
        };
        (machine as u128 + 1) << 64 | losses as u128
    }

    fn random(&self, into: &mut [u8]) {
        let mut state = self.state();
        for byte in into {
            *byte = state.random.bits() as u8;
        }
    }

    fn spawn(&'static self, name: &str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<u64> {
        let process = {
            let mut state = self.state();
            let me = self.me();
            let machine = state.machine_of(me);
            if state
                .disks
                .get_mut(machine)
                .is_some_and(Disk::has_no_thread)
            {
                return Err(Errno::AGAIN.into());
            }
            state.tasks[me].process
        };
        self.thread(process, name, body).map(|id| id as u64)
    }

    fn join(&self, thread: u64) -> bool {
        let thread = thread as TaskId;
        loop {
            let state = self.state();
            if let Wait::Ended { panicked } = state.tasks[thread].wait {
                return !panicked;
            }
            self.block(state, Wait::Join(thread), None);
        }
    }

    fn current(&self) -> u64 {
        self.me() as u64
    }

    fn park(&self, limit: Duration) {
        let mut state = self.state();
        let me = self.me();
        if std::mem::take(&mut state.tasks[me].token) {
            return;
        }
        self.block(state, Wait::Parked, Some(Self::nanos(limit)));
        self.state().tasks[me].token = false;
    }

    fn unpark(&self, thread: u64) {
        let mut state = self.state();
        let thread = thread as TaskId;
        if state.tasks[thread].wait == Wait::Parked {
            if state.plant == Some(Plant::LostWakeup) && state.random.one_in(4) {
                return;
            }
            state.make_ready(thread);
        } else {
            state.tasks[thread].token = true;
        }
    }

    fn sleep(&self, time: Duration) {
        let state = self.state();
        self.block(state, Wait::Sleep, Some(Self::nanos(time)));
    }

    fn wait(&self, place: usize, limit: Option<Duration>) -> bool {
        let state = self.state();
        !self.block(state, Wait::Place(place), limit.map(Self::nanos))
    }

    fn wake(&self, place: usize, all: bool) {
        let mut state = self.state();
        // Places are addresses. Threads of different processes share one only by reuse of memory; a spurious wake-up is
        // harmless.
        let mut waiting: Vec<TaskId> = state.waiting.iter().copied().collect();
        waiting.retain(|t| state.tasks[*t].wait == Wait::Place(place));
        if waiting.is_empty() {
            return;
        }
        if !all {
            let one = state.random.index(waiting.len());
            waiting = vec![waiting[one]];
        }
        for task in waiting {
            state.make_ready(task);
        }
    }

    fn pass(&self) {
        let mut state = self.state();
        if state.random.one_in(6) {
            self.block(state, Wait::Ready, None);
        }
    }

    fn listen(&self, address: &str) -> std::io::Result<OwnedFd> {
        let mut state = self.state();
        let process = state.tasks[self.me()].process;
        network::listen(&mut state, address, process)
    }

    fn accept(&self, listener: BorrowedFd<'_>) -> std::io::Result<(OwnedFd, String)> {
        let mut state = self.state();
        let machine = state.machine_of(self.me());
        let disk = state.disks.get_mut(machine);
        if disk.is_some_and(Disk::has_no_descriptor) {
            return Err(Errno::MFILE.into());
        }
        network::accept(&mut state, listener)
    }

    fn connect(&self, address: &str, within: Duration) -> std::io::Result<OwnedFd> {
        let begun = {
            let mut state = self.state();
            let me = self.me();
            let machine = state.machine_of(me);
            let process = state.tasks[me].process;
            network::dial(&mut state, address, machine, process)?
        };
        let (connection, place) = begun;
        self.wait(place, Some(within));
        network::dialled(&mut self.state(), connection)
    }

    fn poll(&self, fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<usize, Errno> {
        let watched: Vec<RawFd> = fds
            .iter()
            .map(|fd| std::os::fd::AsFd::as_fd(fd).as_raw_fd())
            .collect();
        let until = {
            let state = self.state();
            limit.map(|l| state.now.saturating_add(Self::nanos(l)))
        };
        let nothing = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A thread that never waits must not keep others from running.
        self.pass();
        loop {
            let ready = rustix::event::poll(fds, Some(&nothing))?;
            let state = self.state();
            let left = until.map(|u| u.saturating_sub(state.now));
            if ready > 0 {
                return Ok(ready);
            }
            if left == Some(0) {
                self.block(state, Wait::Ready, None);
                return rustix::event::poll(fds, Some(&nothing));
            }
            self.block(state, Wait::Io(watched.clone()), left);
        }
    }

    fn signalled(&self, fd: BorrowedFd<'_>) {
        self.state().wake_io(fd.as_raw_fd());
    }

    fn disk(&self, access: &Access<'_>, pace: Pace) -> Result<usize, Errno> {
        let mut state = self.state();
        let me = self.me();
        let machine = state.machine_of(me);
        if machine >= state.disks.len() {
            return Ok(usize::MAX);
        }
        let (now, process) = (state.now, state.tasks[me].process);
        let disk = &mut state.disks[machine];
        let (kind, size) = Disk::kind(access);
        let (takes, allowed) = disk.before(access, now);
        let crash = disk.counts_down(access);
        state.log.note(now, kind, machine as u64, size);
        if crash {
            // The power fails in the middle of this operation.
            state.kill(process);
            self.block(state, Wait::Dead, None);
            unreachable!("a thread of a killed process never runs again");
        }
        match pace {
            Pace::Later => state.owed[me] += takes,
            Pace::Now if takes > 20_000 || state.random.one_in(4) => {
                self.block(state, Wait::Sleep, Some(takes));
            }
            Pace::Now => {}
        }
        allowed
    }

    fn disk_done(&self, access: &Access<'_>, _pace: Pace) {
        let mut state = self.state();
        let machine = state.machine_of(self.me());
        if machine < state.disks.len() {
            state.disks[machine].done(access);
        }
    }

    fn settle(&self) {
        let mut state = self.state();
        let me = self.me();
        let owed = std::mem::take(&mut state.owed[me]);
        if owed > 0 {
            self.block(state, Wait::Sleep, Some(owed));
        }
    }
}
