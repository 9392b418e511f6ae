//! Clocks.
use crate::world::current;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The steady clock.
#[inline]
pub fn now() -> Instant {
    match current() {
        None => Instant::now(),
        Some(world) => world.now(),
    }
}

/// Time since `earlier` on the steady clock.
pub fn since(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}

/// The time of day, since the epoch; zero before it.
pub fn since_epoch() -> Duration {
    let time = match current() {
        None => SystemTime::now(),
        Some(world) => world.wall_clock(),
    };
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time since the machine's boot, including suspension; this clock is never set. It is the same for all processes of a
/// boot: see [`crate::boot`].
pub fn since_boot() -> Duration {
    match current() {
        None => {
            let time = clock_gettime(ClockId::Boottime);
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
        }
        Some(world) => world.since_boot(),
    }
}
