//! Hash tables keyed by numbers.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// For keys that nobody outside can choose, or of which few are kept: a multiplicative hash spreads them well enough.
pub type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Product>>;

/// A multiplicative hash of one number, or of bytes taken as numbers.
#[derive(Debug, Default)]
pub struct Product(u64);

impl Hasher for Product {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
