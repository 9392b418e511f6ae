//! Random numbers of a simulated cluster that a seed repeats: delays, and parameters that vary from step to step.
use penstock_base::{Nanos, Random, finalise};

/// Exponentially distributed around `mean`, at most ten times that.
pub(crate) fn delay(random: &mut Random, mean: Nanos) -> Nanos {
    if mean == 0 {
        return 0;
    }
    let mean = mean as f64;
    random.exponential(mean).min(mean * 10.0) as Nanos
}

/// A hash of three keys, for parameters that vary from step to step.
pub(crate) fn hash(a: u64, b: u64, c: u64) -> u64 {
    finalise(finalise(finalise(a.wrapping_add(0x51)).wrapping_add(b)).wrapping_add(c))
}
