//! Costs of this deployment, measured at the first open.
//!
//! Problem: the cost model of [`crate::methods::auto`] compares system calls, copies and requests, whose costs differ
//! between machines and networks by a factor of ten. Idea: rank 0 of the first open times a few of each, in some
//! milliseconds. The result is used for every file that its process opens first. It is sent to the other ranks with the
//! file, so that all choose the same.
//!
//! | measured | how |
//! | --- | --- |
//! | request | the file's length asked of its servers, the quickest of [`TRIES`] |
//! | call, call byte | reads and writes of an anonymous file in memory, small ones and [`BULK`] |
//! | copied byte | [`BULK`] copied |
//!
//! Of the user's file only the length is queried. What is not measured keeps its default (a region at a server, a
//! barrier) or is scaled. Pieces of memory and bytes of messages scale with the copies, bytes by requests with the
//! calls. What a real network adds is learnt from the first accesses.
use crate::filesystem::FileHandle;
use crate::methods::cost::Costs;
use penstock_host::time;
use rustix::fs::MemfdFlags;
use rustix::io::{Errno, pread, pwrite};

/// Repetitions, of which the fastest counts: the others were disturbed.
const TRIES: u32 = 3;
/// Bytes of a large access: more than a core's caches hold, like the accesses for which a choice matters.
const BULK: usize = 2 << 20;
/// Bytes of a small one.
const SMALL: usize = 64;
/// Largest factor between a measured cost and its default; beyond it the measurement was disturbed.
const FAR: f64 = 4.0;

/// Measures the costs. Costs that cannot be measured here keep their defaults.
pub(crate) fn costs(handle: &dyn FileHandle) -> Costs {
    let mut costs = Costs::default();
    let usual = costs;
    if handle.layout().is_some()
        && let Some(seconds) = quickest(|| handle.len().is_ok())
    {
        // Only this one depends on a network.
        costs.request = seconds.clamp(usual.request / FAR, 100.0 * usual.request);
    }
    if let Some(copy) = copies() {
        costs.copy_byte = near(copy, usual.copy_byte);
        let scale = costs.copy_byte / usual.copy_byte;
        costs.piece *= scale;
        costs.message_byte *= scale;
    }
    match calls() {
        Ok([read, write]) => {
            costs.call[0] = near(read.0, usual.call[0]);
            costs.call_byte[0] = near(read.1, usual.call_byte[0]);
            // Memory has neither allocation nor other writers: the default's surplus over a read is kept.
            costs.call[1] = near(write.0 + usual.call[1] - usual.call[0], usual.call[1]);
            let scale = costs.call_byte[0] / usual.call_byte[0];
            costs.request_byte = costs.request_byte.map(|byte| byte * scale);
            let surplus = usual.call_byte[1] / usual.call_byte[0];
            costs.call_byte[1] = near(write.1.max(read.1 * surplus), usual.call_byte[1]);
        }
        Err(e) => log::debug!("system calls are not measured: {e}"),
    }
    log::debug!("costs measured: {costs:?}");
    costs
}

fn near(measured: f64, usual: f64) -> f64 {
    measured.clamp(usual / FAR, usual * FAR)
}

/// Seconds of the fastest of a few; `None` if one fails.
fn quickest(mut once: impl FnMut() -> bool) -> Option<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let began = time::now();
        if !once() {
            return None;
        }
        least = least.min(time::since(began).as_secs_f64());
    }
    Some(least)
}

/// Seconds per byte copied.
fn copies() -> Option<f64> {
    let from = vec![1u8; BULK];
    let mut to = vec![0u8; BULK];
    let seconds = quickest(|| {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
        true
    })?;
    Some(seconds / BULK as f64)
}

/// (Seconds per call, seconds per byte) of reads and of writes.
fn calls() -> Result<[(f64, f64); 2], Errno> {
    let file = rustix::fs::memfd_create("penstock-probe", MemfdFlags::CLOEXEC)?;
    let mut memory = vec![1u8; BULK];
    // The first write allocates and does not count.
    pwrite(&file, &memory, 0)?;
    let mut timed = |write: bool, bytes: usize| {
        let part = &mut memory[..bytes];
        quickest(|| {
            if write {
                pwrite(&file, part, 0) == Ok(bytes)
            } else {
                pread(&file, &mut *part, 0) == Ok(bytes)
            }
        })
        .ok_or(Errno::IO)
    };
    let mut cost = |write| {
        let call = timed(write, SMALL)?;
        let bulk = timed(write, BULK)?;
        Ok((call, (bulk - call).max(0.0) / BULK as f64))
    };
    Ok([cost(false)?, cost(true)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_a_cost() {
        assert!(copies().unwrap() > 0.0);
        for (call, byte) in calls().unwrap() {
            assert!(call > 0.0 && byte >= 0.0);
        }
    }

    #[test]
    fn a_disturbed_measurement_is_held_near_the_usual() {
        assert_eq!(near(1.0, 1e-6), 4e-6);
        assert_eq!(near(0.0, 4e-6), 1e-6);
        assert_eq!(near(2e-6, 1e-6), 2e-6);
    }
}
