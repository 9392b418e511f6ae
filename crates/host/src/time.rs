//! Clocks.
use crate::world::current;
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
