//! First hit of an arithmetic progression in a residue window.
//!
//! Problem: runs at `b, b + a, b + 2a, ...` and stripes that repeat every `m` bytes. Which run is the first on one
//! server, that is, the smallest `k >= 0` with `(a k + b) mod m` in `[l, r]`? Idea: if no multiple of `a` falls into
//! the window before the first wrap, only the phase after each wrap matters. These phases are multiples of `-m` modulo
//! `a`, so the same question is asked of the smaller pair `(m mod a, a)`, as in Euclid's algorithm. It pays when runs
//! are sparse among the stripes: O(log m) instead of one step per run.

/// Smallest `k >= 0` with `(a * k + b) mod m` in the cyclic window of `len` residues from `from`;
/// `None` if there is none. `m >= 1`; a window of `m` or more residues always hits.
pub(crate) fn first_hit(a: u64, b: u64, m: u64, from: u64, len: u64) -> Option<u64> {
    if len == 0 {
        return None;
    }
    // Shift so that the progression starts at 0: the window then starts at from - b.
    let low = (from % m + m - b % m) % m;
    if low == 0 || low.saturating_add(len) > m {
        return Some(0); // the window contains residue 0
    }
    first_multiple(a % m, m, low, low + len - 1)
}

/// Smallest `k >= 0` with `low <= a k mod m <= high`, for `0 < low <= high < m` and `a < m`.
fn first_multiple(a: u64, m: u64, low: u64, high: u64) -> Option<u64> {
    if low == 0 {
        return Some(0);
    }
    if a == 0 {
        return None;
    }
    let k = low.div_ceil(a);
    if u128::from(k) * u128::from(a) <= u128::from(high) {
        return Some(k);
    }
    // No multiple of `a` lies in [low, high]. After y wraps we look for a k - m y in [low, high],
    // that is (m y) mod a in [-high, -low] mod a. The remainders are positive and ordered because
    // the window holds no multiple of a.
    let y = first_multiple(m % a, a, a - high % a, a - low % a)?;
    let reached = u128::from(low) + u128::from(m) * u128::from(y);
    u64::try_from(reached.div_ceil(u128::from(a))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn brute(a: u64, b: u64, m: u64, from: u64, len: u64) -> Option<u64> {
        (0..=m).find(|k| {
            let residue = (a % m * k + b) % m;
            (residue + m - from % m) % m < len
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn equals_trying_all(a in 0u64..300, b in 0u64..300, m in 1u64..120, from in 0u64..200, len in 0u64..130) {
            prop_assert_eq!(first_hit(a, b, m, from, len), brute(a, b, m, from, len));
        }
    }

    #[test]
    fn large_numbers_neither_wrap_nor_take_long() {
        let m = 1u64 << 46;
        let k = first_hit((1 << 45) + 12345, 7, m, 99, 3).unwrap();
        let residue =
            ((u128::from((1u64 << 45) + 12345) * u128::from(k) + 7) % u128::from(m)) as u64;
        assert!((99..102).contains(&residue));
        assert_eq!(first_hit(1 << 20, 0, 1 << 30, 5, 100), None);
    }
}
