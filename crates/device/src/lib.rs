//! Models of storage devices: plain state machines without a clock (docs/administer/devices.md).
//!
//! A [`Device`] takes requests with the time of their arrival, says when something next happens inside it, and hands
//! out completions with their times. Real time and virtual time drive the same code. Runs are deterministic: nothing
//! here reads a clock, and every random number comes from a seed of the caller.

mod allocation;
mod block;
pub mod characterise;
mod disk;
mod geometry;
mod kind;
mod load;
mod model;
pub mod nand;
mod pending;
mod preset;
pub mod profile;
mod queueing;
mod raid;
pub mod replay;
mod seek;
mod segments;
mod size;
mod ssd;

pub use penstock_base::{Nanos, Op};

pub use allocation::{Allocation, AllocationOptions};
pub use block::{BlockQueue, BlockQueueOptions, Elevator};
pub use disk::{Disk, DiskOptions};
pub use geometry::{Geometry, GeometryOptions};
pub use kind::DeviceKind;
pub use load::{Measured, Run, closed_loop, closed_loop_from, random_addresses};
pub use model::{Model, ModelError};
pub use preset::{HardDisk, hard_disk};
pub use queueing::Queueing;
pub use raid::{Raid0, RaidOptions};
pub use seek::SeekCurve;
pub use ssd::{Ssd, SsdOptions, write_amplification};

/// One request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The caller's identifier, unique among requests under way.
    pub id: u64,
    /// Read or write.
    pub op: Op,
    /// First byte on the device. A request beyond the capacity is served at the end of the device.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Who asks; the CFQ-like block queue keeps one queue per process.
    pub process: u32,
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// [`Request::id`].
    pub id: u64,
    /// When it was done.
    pub at: Nanos,
}

/// A device, or something that stands before one, as a state machine.
///
/// Time never goes back: `now` of each call is at least that of the call before. A caller that sleeps until
/// [`Device::wake`] and calls [`Device::advance`] then misses nothing. One that calls late gets the completions with
/// the times at which they happened.
pub trait Device: Send {
    /// A request arrives.
    fn submit(&mut self, now: Nanos, request: Request);

    /// Completes `id` when every write completed before is on the medium, including writes in a cache.
    fn flush(&mut self, now: Nanos, id: u64);

    /// Trims a range: its bytes are no longer needed. Takes effect at once, without a completion; devices without TRIM
    /// ignore it.
    fn trim(&mut self, now: Nanos, address: u64, bytes: u64) {
        let _ = (now, address, bytes);
    }

    /// The time of the next internal event; `None` if nothing will happen without a new request.
    fn wake(&self) -> Option<Nanos>;

    /// Handles every event due by `now` and appends the completions, in order of their time.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>);

    /// Capacity in bytes.
    fn capacity(&self) -> u64;

    /// The address under the head, for plots; `None` for devices without one.
    fn head(&self) -> Option<u64>;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn submit(&mut self, now: Nanos, request: Request) {
        (**self).submit(now, request);
    }
    fn flush(&mut self, now: Nanos, id: u64) {
        (**self).flush(now, id);
    }
    fn trim(&mut self, now: Nanos, address: u64, bytes: u64) {
        (**self).trim(now, address, bytes);
    }
    fn wake(&self) -> Option<Nanos> {
        (**self).wake()
    }
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        (**self).advance(now, done);
    }
    fn capacity(&self) -> u64 {
        (**self).capacity()
    }
    fn head(&self) -> Option<u64> {
        (**self).head()
    }
}

/// The time that `bytes` take at `rate` bytes per second.
pub(crate) fn span(bytes: u64, rate: u64) -> Nanos {
    (bytes as u128 * 1_000_000_000 / rate.max(1) as u128) as Nanos
}
