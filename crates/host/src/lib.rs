//! What servers and clients take from the machine they run on: time, threads, locks, sockets, files, randomness.
//!
//! Problem: threads, clocks and disks behave differently at each run, so what breaks under faults breaks
//! seldom and never twice. Idea: all of it is taken through here. On a machine these functions are the
//! system's own behind one branch on a thread-local; inside a [`World`] (see `crates/faults`) the same
//! calls pass through a simulated network, disk and clock, where one thread runs at a time, so that a
//! seed decides everything that happens.
//!
//! | module | on a machine | in a world |
//! | --- | --- | --- |
//! | [`time`] | the system's clocks | virtual time |
//! | [`thread`], [`sync`] | std's | one thread runs; a wait hands over to another |
//! | [`net`] | sockets | sockets whose other end is the simulated network |
//! | [`fs`] | files | files whose changes are noted until a sync, and refused or lost as the world decides |
//!
//! [`lock`] is the same in both.
//!
//! Descriptors and shared memory that same-host clients are lent stay outside: they are shortcuts, and a world
//! has none.

pub mod fs;
pub mod lock;
pub mod net;
pub mod reservation;
pub mod sync;
pub mod thread;
pub mod time;
mod world;

pub use world::{Access, Pace, World, enter, simulated};

/// Names this boot of the machine's system; `None` where it does not say. After another boot nothing is left of what
/// was in the page cache.
pub fn boot() -> Option<u128> {
    if let Some(world) = world::current() {
        return Some(world.boot());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// Fills `into` with unpredictable bytes.
pub fn random(into: &mut [u8]) -> std::io::Result<()> {
    match world::current() {
        None => getrandom::fill(into).map_err(|e| std::io::Error::other(e.to_string())),
        Some(world) => {
            world.random(into);
            Ok(())
        }
    }
}
