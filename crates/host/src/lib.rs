//! The machine as servers and clients use it: time, threads, locks, sockets, files, randomness.
//!
//! Problem: threads, clocks and disks behave differently in each run, so failures under faults are rare and not
//! reproducible. Idea: all of them are used through this crate. On a machine these functions are the system's own,
//! behind one branch on a thread-local. Inside a [`World`] (see `crates/faults`) the same calls go through a simulated
//! network, disk and clock. One thread runs at a time there, so that a seed determines everything.
//!
//! | module | on a machine | in a world |
//! | --- | --- | --- |
//! | [`time`] | the system's clocks | virtual time |
//! | [`thread`], [`sync`] | std's | one thread runs; a wait hands over to another |
//! | [`net`] | sockets | sockets whose other end is the simulated network |
//! | [`fs`] | files | files whose changes are recorded until a sync, and refused or lost as the world decides |
//!
//! [`lock`] is the same in both.
//!
//! Descriptors and shared memory passed to clients on the same host are not covered: they are shortcuts, which a world
//! does not have.

pub mod fs;
pub mod lock;
pub mod net;
pub mod reservation;
pub mod sync;
pub mod thread;
pub mod time;
mod world;

pub use world::{Access, Pace, World, enter, simulated};

/// Identifies this boot of the machine; `None` where it is unknown. After another boot nothing of the old page cache is
/// left.
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
