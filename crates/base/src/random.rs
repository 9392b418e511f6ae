//! Random numbers that a seed reproduces for ever: SplitMix64 (Steele, Lea, Flood 2014).
//!
//! Seeds of fault runs, training data and simulated experiments depend on these streams, which must not change.

/// What SplitMix64 adds at each step: 2⁶⁴ divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser: every bit of the result depends on every bit of `x`. 0 gives 0.
pub fn finalise(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of random numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The first number of the stream of seed `x`.
    pub fn mix(x: u64) -> u64 {
        Random(x).bits()
    }

    /// A separate stream for each purpose, so that one part of a run can change without the others. It begins one step
    /// late, because the first recorded seeds did.
    pub fn for_purpose(seed: u64, purpose: u64) -> Random {
        Random(Random::mix(seed ^ Random::mix(purpose)).wrapping_add(STEP))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        finalise(self.0)
    }

    /// Below `n`; 0 if that is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// An index of a list of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// From `low` to `high`, both inclusive.
    pub fn from_to(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them; the list must not be empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// In [low, high), log-uniform: every order of magnitude is equally likely.
    pub fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// Exponentially distributed with mean `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567 from the authors' own program.
    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first.map(|_| random.bits()), first);
    }

    #[test]
    fn a_seed_repeats_and_the_mean_is_met() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..20_000).map(|_| random.exponential(1000.0)).sum::<f64>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mean = draw(7) / 20_000.0;
        assert!((970.0..1030.0).contains(&mean), "{mean}");
    }
}
