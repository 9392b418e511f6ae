//! Numbers as bytes (varints, zigzag) and as bits (Exp-Golomb codes with a parameter that the caller adapts).
//!
//! Exp-Golomb of order k: `(v >> k) + 1` has m bits; m - 1 zeros are written, then these m bits, then the k low bits of v.
//! A value near `2^k` takes k + 1 bits or few more, an outlier twice its length (Teuhola 1978).

/// Small numbers of either sign become small numbers.
pub(crate) fn zigzag(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

pub(crate) fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The varint at the beginning of `bytes`, which then begin behind it.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Writes bits, the highest first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    out: Vec<u8>,
    /// Bits that make no byte yet: the lowest `waiting`.
    bits: u64,
    waiting: u32,
}

impl BitWriter {
    pub(crate) fn clear(&mut self) {
        self.out.clear();
        self.bits = 0;
        self.waiting = 0;
    }

    /// `count` is at most 56, and `value` has no higher bits.
    fn few(&mut self, value: u64, count: u32) {
        self.bits = (self.bits << count) | value;
        self.waiting += count;
        while self.waiting >= 8 {
            self.waiting -= 8;
            self.out.push((self.bits >> self.waiting) as u8);
        }
    }

    fn many(&mut self, value: u64, count: u32) {
        if count > 32 {
            self.few(value >> 32, count - 32);
            self.few(value & 0xffff_ffff, 32);
        } else {
            self.few(value, count);
        }
    }

    pub(crate) fn golomb(&mut self, value: u64, k: u32) {
        let high = u128::from(value >> k) + 1;
        let more = 127 - high.leading_zeros();
        if 2 * more + 1 + k <= 56 {
            let low = value & ((1 << k) - 1);
            self.few((high as u64) << k | low, 2 * more + 1 + k);
            return;
        }
        self.many(0, more);
        self.few(1, 1);
        // The highest bit of `high` is the one just written.
        self.many(high as u64 & !(1u64.checked_shl(more).unwrap_or(0)), more);
        self.many(value & ((1 << k) - 1), k);
    }

    /// The bytes, the last filled with zeros.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        if self.waiting > 0 {
            self.few(0, 8 - self.waiting);
        }
        &self.out
    }
}

/// Reads what a [`BitWriter`] wrote.
#[derive(Debug)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// At least 57 bits from here, the highest first; zeros behind the end.
    fn peek(&self) -> u64 {
        let byte = self.at / 8;
        let eight = match self.bytes.get(byte..byte + 8) {
            Some(eight) => {
                let mut whole = [0; 8];
                whole.copy_from_slice(eight);
                whole
            }
            None => {
                let mut part = [0; 8];
                let rest = self.bytes.get(byte..).unwrap_or_default();
                part[..rest.len()].copy_from_slice(rest);
                part
            }
        };
        u64::from_be_bytes(eight) << (self.at % 8)
    }

    fn many(&mut self, count: u32) -> u64 {
        let mut value = 0;
        let mut left = count;
        while left > 0 {
            let now = left.min(32);
            value = (value << now) | (self.peek() >> (64 - now));
            self.at += now as usize;
            left -= now;
        }
        value
    }

    /// `None`: the bits are over, or no writer wrote them.
    pub(crate) fn golomb(&mut self, k: u32) -> Option<u64> {
        let window = self.peek();
        let more = window.leading_zeros();
        let length = 2 * more + 1 + k;
        if length <= 56 {
            let coded = window >> (64 - length);
            let high = (coded >> k) - 1;
            self.at += length as usize;
            let value = high << k | coded & ((1 << k) - 1);
            return (self.at <= 8 * self.bytes.len()).then_some(value);
        }
        let mut more = 0;
        while self.many(1) == 0 {
            more += 1;
            if more > 64 || self.at > 8 * self.bytes.len() {
                return None;
            }
        }
        let rest = u128::from(self.many(more));
        let high = ((1u128 << more) | rest) - 1;
        let low = self.many(k);
        let value = u64::try_from(high << k).ok()? | low;
        (self.at <= 8 * self.bytes.len()).then_some(value)
    }

    /// All was read but what fills the last byte.
    pub(crate) fn is_over(&self) -> bool {
        self.at.div_ceil(8) == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_comes_back(
            values in proptest::collection::vec(
                (prop_oneof![0u64..100, any::<u64>(), Just(u64::MAX)], 0u32..48),
                0..50,
            ),
        ) {
            let mut writer = BitWriter::default();
            for (value, k) in &values {
                writer.golomb(*value, *k);
            }
            let bytes = writer.bytes().to_vec();
            let mut reader = BitReader::new(&bytes);
            for (value, k) in &values {
                prop_assert_eq!(reader.golomb(*k), Some(*value));
            }
            prop_assert!(reader.is_over());
            prop_assert_eq!(unzigzag(zigzag(values.len() as u64)), values.len() as u64);
        }

        #[test]
        fn garbage_ends(bytes in proptest::collection::vec(any::<u8>(), 0..40), k in 0u32..48) {
            let mut reader = BitReader::new(&bytes);
            let mut read = 0;
            while reader.golomb(k).is_some() {
                read += 1;
                prop_assert!(read <= 8 * bytes.len());
            }
        }
    }
}
