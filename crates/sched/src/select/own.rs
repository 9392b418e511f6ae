//! What algorithms can be expected to give, from measurements of our own.
//!
//! *Problem*: the source's trees were learnt on other servers, and a selector that knows nothing has to try everything, which
//! sets programs out of step. *Idea*: the rates of all algorithms in situations that were measured
//! (`experiments/scheduling`, on modelled devices) are kept as they are; those of the same operation, order and size
//! count by how near they are in files and in the device's ratio. *When it pays*: on devices like those measured. For one
//! whose ratio is further from all of them than [`FAR`] nothing is expected. *Source*: ours; nearest neighbours.
use super::{Situation, measured};
use crate::{Algorithm, Op};

/// What the figures of a row stand for, in their order.
pub const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::To,
    Algorithm::ToAgg,
    Algorithm::Sjf,
    Algorithm::Mlf,
    Algorithm::Aioli,
];
/// Doublings of the ratio.
const FAR: f64 = 0.5;

/// A situation that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    write: bool,
    contiguous: bool,
    large: bool,
    files: u32,
    ratio: f64,
    /// Of the best rate, by [`ALGORITHMS`].
    parts: [f64; 5],
}

impl Row {
    pub(super) const fn new(
        write: bool,
        contiguous: bool,
        large: bool,
        files: u32,
        ratio: f64,
        parts: [f64; 5],
    ) -> Row {
        Row {
            write,
            contiguous,
            large,
            files,
            ratio,
            parts,
        }
    }

    /// The rates of [`ALGORITHMS`] in a situation.
    pub fn measured(situation: &Situation, rates: [f64; 5]) -> Row {
        let best = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let s = situation;
        let write = s.op == Op::Write;
        let parts = rates.map(|rate| rate / best);
        Row::new(write, s.contiguous, s.large, s.files, s.ratio, parts)
    }

    /// How unlike the situation is, and how far its device; `None`: not to be compared.
    fn distance(&self, s: &Situation) -> Option<(f64, f64)> {
        let alike =
            (self.write, self.contiguous, self.large) == (s.op == Op::Write, s.contiguous, s.large);
        let files = (f64::from(self.files.max(1)) / f64::from(s.files.max(1))).log2();
        let ratio = (self.ratio / s.ratio).log2().abs();
        alike.then_some((files.abs() + 2.0 * ratio, ratio))
    }
}

/// What each algorithm is expected to give of the best rate, from these measurements; `None`: they say nothing.
pub fn expect<'a>(
    rows: impl Iterator<Item = &'a Row>,
    situation: &Situation,
) -> Option<[(Algorithm, f64); 5]> {
    let near = rows.filter_map(|row| Some((row, row.distance(situation)?)));
    let near: Vec<_> = near.filter(|(_, (_, ratio))| *ratio <= FAR).collect();
    let nearest = near.iter().map(|(_, d)| d.0).min_by(f64::total_cmp)?;
    let mut sums = [0.0; 5];
    let mut weights = 0.0;
    for (row, (distance, _)) in near {
        let weight = (nearest - distance).exp();
        weights += weight;
        for (sum, part) in sums.iter_mut().zip(row.parts) {
            *sum += weight * part;
        }
    }
    let mut all = ALGORITHMS.map(|a| (a, 0.0));
    for ((_, expected), sum) in all.iter_mut().zip(sums) {
        *expected = sum / weights;
    }
    Some(all)
}

/// The same, from what was measured on the modelled devices.
pub(super) fn expected(situation: &Situation) -> Option<[(Algorithm, f64); 5]> {
    expect(measured::ROWS.iter(), situation)
}

/// The best of them.
pub(super) fn best(expected: &[(Algorithm, f64)]) -> Option<Algorithm> {
    let all = expected.iter().rev();
    all.max_by(|a, b| a.1.total_cmp(&b.1)).map(|e| e.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn situations_that_were_measured_are_expected_again_and_others_are_not() {
        let mut s = Situation {
            op: Op::Write,
            files: 1,
            bytes_per_file: 0,
            contiguous: true,
            large: true,
            ratio: 21.29,
            memory: 0,
        };
        let expected = expected(&s).unwrap();
        assert!(expected.iter().all(|e| (0.0..=1.0).contains(&e.1)));
        assert!(best(&expected).is_some());
        s.ratio = 500.0;
        assert_eq!(super::expected(&s), None);
        let rows = [
            Row::measured(&Situation { files: 1, ..s }, [10.0, 20.0, 5.0, 5.0, 5.0]),
            Row::measured(&Situation { files: 64, ..s }, [10.0, 5.0, 5.0, 5.0, 20.0]),
        ];
        let of = |files| best(&expect(rows.iter(), &Situation { files, ..s }).unwrap());
        assert_eq!(of(2), Some(Algorithm::ToAgg));
        assert_eq!(of(40), Some(Algorithm::Aioli));
        let read = Situation { op: Op::Read, ..s };
        assert_eq!(expect(rows.iter(), &read), None);
    }
}
