//! Expected rates of algorithms, from Penstock's own measurements.
//!
//! *Problem*: the source's trees were learnt on other servers. A selector without knowledge must try everything, which
//! sets programs out of step. *Idea*: the rates of all algorithms in measured situations are stored as they are. They
//! come from `experiments/scheduling`, on modelled devices: from a real server where there is such a run, otherwise
//! from virtual time. A situation is estimated from rows of the same operation, order and size, weighted by distance.
//! Distance counts files, processes, servers, bytes of a request and the device's ratio. The inputs are T3's and three
//! more. The number of processes decides in a tenth of the situations. The number of servers matters because processes
//! also wait for the others. The request size is 8 KiB in the source's servers whatever programs request, and up to 256
//! KiB here. *When it pays*: most on devices like those measured; the further the nearest one is, the larger the doubt.
//! *Source*: nearest neighbours; the distance is Penstock's.
use super::Situation;
use crate::learn::Order;
use crate::{Algorithm, Op};
use serde::Deserialize;
use std::sync::LazyLock;

/// The algorithms of a row's figures, in their order.
pub(super) const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::To,
    Algorithm::ToAgg,
    Algorithm::Sjf,
    Algorithm::Mlf,
    Algorithm::Aioli,
];
/// Standard deviation of the logarithm of an expectation: for measured situations, and per doubling of distance to the
/// nearest one. The distance is in ratio, or in files, processes, servers and bytes of a request
/// (`experiments/scheduling/features.py` measures the deviations).
const DOUBT: f64 = 0.06;
const BY_RATIO: f64 = 0.30;
const BY_COUNTS: f64 = 0.10;
const MOST: f64 = 0.6;
/// Differences between algorithms shrink by this exponent per doubling of the ratio.
const FADES: f64 = 0.4;
/// How much less a row counts per doubling that it is further away than the nearest one, as an exponent.
const SHARP: f64 = 30.0;

/// An expected gain over TO below this is no reason to leave the baseline.
const WORTH: f64 = 0.01;

/// Made by `experiments/scheduling/learn_own.py`: a line for each situation, its columns in the order of [`Row`].
const FIGURES: &str = include_str!("../../data/measured.csv");

/// The table, parsed.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    read(FIGURES).expect("data/measured.csv is built in, and a test of this file reads it")
});

fn read(figures: &str) -> Result<Vec<Row>, csv::Error> {
    let mut lines = csv::Reader::from_reader(figures.as_bytes());
    lines
        .records()
        .map(|line| line?.deserialize(None))
        .collect()
}

/// A measured situation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Row {
    write: bool,
    contiguous: bool,
    large: bool,
    files: u32,
    processes: u32,
    servers: u32,
    request_bytes: u64,
    ratio: f64,
    /// Share of the best rate, by [`ALGORITHMS`].
    parts: [f64; 5],
}

/// The distance of a row from a situation, in doublings.
#[derive(Debug, Clone, Copy)]
struct Distance {
    files: f64,
    processes: f64,
    servers: f64,
    size: f64,
    ratio: f64,
}

impl Distance {
    /// A doubling of the device's ratio counts more than one of files or processes.
    fn total(self) -> f64 {
        self.counts() + 2.0 * self.ratio
    }

    fn counts(self) -> f64 {
        self.files + self.processes + self.servers + self.size
    }
}

impl Row {
    /// The rates of [`ALGORITHMS`] in a situation.
    #[cfg(test)]
    fn measured(situation: &Situation, rates: [f64; 5]) -> Row {
        let best = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let s = situation;
        Row {
            write: s.op == Op::Write,
            contiguous: s.order == Order::Contiguous,
            large: s.large,
            files: s.files,
            processes: s.processes,
            servers: s.servers,
            request_bytes: s.request_bytes,
            ratio: s.ratio,
            parts: rates.map(|rate| rate / best),
        }
    }

    /// `None`: not comparable.
    fn distance(&self, s: &Situation) -> Option<Distance> {
        let order = if self.contiguous {
            Order::Contiguous
        } else {
            Order::Strided
        };
        let alike = (self.write, order, self.large) == (s.op == Op::Write, s.order, s.large);
        let doublings = |a: f64, b: f64| (a / b).log2().abs();
        let counts = |a: u32, b: u32| doublings(f64::from(a.max(1)), f64::from(b.max(1)));
        // Unknown values do not count.
        let known = |a: f64, b: f64| {
            if a > 0.0 && b > 0.0 {
                doublings(a, b)
            } else {
                0.0
            }
        };
        alike.then(|| Distance {
            files: counts(self.files, s.files),
            processes: known(self.processes.into(), s.processes.into()),
            servers: known(self.servers.into(), s.servers.into()),
            size: known(self.request_bytes as f64, s.request_bytes as f64),
            ratio: doublings(self.ratio, s.ratio),
        })
    }
}

/// The expected score of each algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// Share of the best rate, by [`ALGORITHMS`].
    pub parts: [f64; 5],
    /// Standard deviation of their logarithms.
    pub doubt: f64,
    /// Share of these logarithms that is expected to appear here: less where the devices differ.
    pub trust: f64,
}

impl Expectation {
    /// The best algorithm; TO unless another is expected to be worth leaving it.
    pub fn best(&self) -> Algorithm {
        let all = ALGORITHMS.iter().zip(self.parts).rev();
        let best = all.max_by(|a, b| a.1.total_cmp(&b.1));
        let worth = self.of(Algorithm::To).unwrap_or(0.0) * (1.0 + WORTH);
        best.filter(|b| b.1 > worth).map_or(Algorithm::To, |b| *b.0)
    }

    /// An algorithm's share of the best rate; NOOP has TO's.
    pub fn of(&self, algorithm: Algorithm) -> Option<f64> {
        let wanted = match algorithm {
            Algorithm::Noop => Algorithm::To,
            other => other,
        };
        let at = ALGORITHMS.iter().position(|a| *a == wanted)?;
        Some(self.parts[at])
    }
}

/// The expectation from these measurements; `None`: none is comparable.
fn expect<'a>(rows: impl Iterator<Item = &'a Row>, situation: &Situation) -> Option<Expectation> {
    let near: Vec<_> = rows
        .filter_map(|row| Some((row, row.distance(situation)?)))
        .collect();
    let nearest = near.iter().map(|n| n.1);
    let nearest = nearest.min_by(|a, b| a.total().total_cmp(&b.total()))?;
    let mut parts = [0.0; 5];
    let mut weights = 0.0;
    for (row, distance) in near {
        let weight = (SHARP * (nearest.total() - distance.total())).exp();
        weights += weight;
        for (sum, part) in parts.iter_mut().zip(row.parts) {
            *sum += weight * part;
        }
    }
    let further = BY_RATIO * nearest.ratio + BY_COUNTS * nearest.counts();
    Some(Expectation {
        parts: parts.map(|sum| sum / weights),
        doubt: (DOUBT + further).min(MOST),
        trust: (-FADES * nearest.ratio).exp(),
    })
}

/// The same, from the measurements on modelled devices.
pub(super) fn expected(situation: &Situation) -> Option<Expectation> {
    expect(ROWS.iter(), situation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_read_whole() {
        let names: Vec<&str> = ALGORITHMS.iter().map(|a| a.name()).collect();
        let head = "write,contiguous,large,files,processes,servers,request_bytes,ratio";
        let columns = format!("{head},{}", names.join(","));
        assert_eq!(FIGURES.lines().next(), Some(&columns[..]));
        assert_eq!(ROWS.len(), FIGURES.lines().count() - 1);
        for row in ROWS.iter() {
            assert!(row.files > 0 && row.processes > 0 && row.servers > 0 && row.ratio > 0.0);
            assert!(row.parts.iter().all(|part| (0.0..=1.0).contains(part)));
            assert!(row.parts.contains(&1.0), "no best one in {row:?}");
        }
        for damage in ["true,x", "true,false,true,1,8,1,16384"] {
            assert!(read(&format!("{FIGURES}{damage}\n")).is_err(), "{damage}");
        }
    }

    #[test]
    fn situations_that_were_measured_are_expected_again_and_others_are_doubted() {
        let s = Situation {
            op: Op::Write,
            files: 1,
            bytes_per_file: 0,
            order: Order::Contiguous,
            large: true,
            ratio: 21.29,
            memory: 0,
            processes: 0,
            request_bytes: 0,
            servers: 0,
        };
        let known = expected(&s).unwrap();
        assert!(known.parts.iter().all(|p| (0.0..=1.0).contains(p)));
        assert_eq!(known.of(Algorithm::Noop), known.of(Algorithm::To));
        assert_eq!(known.of(Algorithm::Wfq), None);
        let far = expected(&Situation { ratio: 500.0, ..s }).unwrap();
        assert!(far.doubt > 3.0 * known.doubt && far.trust < 0.5 && known.trust > 0.99);
        let rows = [
            Row::measured(&Situation { files: 1, ..s }, [10.0, 20.0, 5.0, 5.0, 5.0]),
            Row::measured(&Situation { files: 64, ..s }, [10.0, 5.0, 5.0, 5.0, 20.0]),
        ];
        let of = |files| expect(rows.iter(), &Situation { files, ..s }).unwrap();
        assert_eq!(of(2).best(), Algorithm::ToAgg);
        assert_eq!(of(40).best(), Algorithm::Aioli);
        // A difference within chance is no reason to leave the baseline.
        let tie = [Row::measured(&s, [10.0, 10.05, 5.0, 5.0, 10.0])];
        let tie = expect(tie.iter(), &s).unwrap();
        assert_eq!(tie.best(), Algorithm::To);
        let read = Situation { op: Op::Read, ..s };
        assert_eq!(expect(rows.iter(), &read), None);
        // The request size distinguishes set-ups, where it is known.
        let sized = |request_bytes| Situation { request_bytes, ..s };
        let rows = [
            Row::measured(&sized(8 << 10), [10.0, 20.0, 5.0, 5.0, 5.0]),
            Row::measured(&sized(256 << 10), [10.0, 5.0, 5.0, 5.0, 30.0]),
        ];
        let of = |bytes| expect(rows.iter(), &sized(bytes)).unwrap();
        assert_eq!(of(4 << 10).best(), Algorithm::ToAgg);
        assert_eq!(of(200 << 10).best(), Algorithm::Aioli);
        assert!(of(64 << 10).doubt > of(256 << 10).doubt);
        let to = of(0).of(Algorithm::To).unwrap();
        assert!(
            (to - (0.5 + 1.0 / 3.0) / 2.0).abs() < 1e-9,
            "all count alike"
        );
        // So does the number of servers.
        let of_many = |servers| Situation { servers, ..s };
        let many = [
            Row::measured(&of_many(1), [10.0, 20.0, 5.0, 5.0, 5.0]),
            Row::measured(&of_many(4), [10.0, 5.0, 5.0, 5.0, 30.0]),
        ];
        let of = |servers| expect(many.iter(), &of_many(servers)).unwrap();
        assert_eq!(of(1).best(), Algorithm::ToAgg);
        assert_eq!(of(8).best(), Algorithm::Aioli);
    }
}
