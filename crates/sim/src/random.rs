//! Random numbers that a seed repeats: xorshift-multiply over a counter (splitmix64).

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Between 0 and 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed around `mean`, at most ten times that.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        if mean == 0 {
            return 0;
        }
        let x = -(1.0 - self.unit()).ln() * mean as f64;
        x.min(mean as f64 * 10.0) as u64
    }
}

/// A number that depends on every bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number that three keys fix, for programs whose parameters vary from step to step.
pub(crate) fn hash(a: u64, b: u64, c: u64) -> u64 {
    mix(mix(mix(a.wrapping_add(0x51)).wrapping_add(b)).wrapping_add(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_the_mean_is_met() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..20_000).map(|_| random.exponential(1000)).sum::<u64>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mean = draw(7) / 20_000;
        assert!((970..1030).contains(&mean), "{mean}");
    }
}
