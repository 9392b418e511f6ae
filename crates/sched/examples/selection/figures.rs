//! What runs gave: rates by seed, their means, and the file of measurements that `own` is made of.
use crate::cluster::{Case, Setup};
use penstock_sched::{Algorithm, MEASURED, Row};
use std::collections::HashMap;

/// What was measured in each set-up with seeds of its own, to learn from; see the heads of the files.
const FILES: [(Setup, &str); 3] = [
    (
        Setup::SOURCE,
        include_str!("../../../../experiments/scheduling/measured.csv"),
    ),
    (
        Setup::ALONE,
        include_str!("../../../../experiments/scheduling/measured-alone.csv"),
    ),
    (
        Setup::FOUR,
        include_str!("../../../../experiments/scheduling/measured-four.csv"),
    ),
];

/// Bytes per second of the same run with several seeds.
#[derive(Debug, Clone, Default)]
pub struct Figures(pub Vec<f64>);

impl Figures {
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Standard error of the mean.
    pub fn error(&self) -> f64 {
        let (n, mean) = (self.0.len() as f64, self.mean());
        let squares: f64 = self.0.iter().map(|r| (r - mean) * (r - mean)).sum();
        (squares / (n - 1.0).max(1.0) / n.max(1.0)).sqrt()
    }
}

/// Rates of [`MEASURED`] in a situation.
pub type Rates = [f64; 5];

/// One of them; NOOP gives what TO gives.
pub fn rate(rates: &Rates, algorithm: Algorithm) -> f64 {
    let wanted = match algorithm {
        Algorithm::Noop => Algorithm::To,
        other => other,
    };
    let at = MEASURED.iter().position(|a| *a == wanted);
    at.map_or(0.0, |i| rates[i])
}

/// The first line of the file of measurements.
pub fn head(seconds: u64, seeds: &[u64]) -> String {
    let algorithms = MEASURED.map(|a| format!(",{a},{a} error"));
    format!(
        "# MB/s over {seconds} s but the first, means over seeds {seeds:?} and their standard errors\ncase{}",
        algorithms.concat()
    )
}

/// A line of it.
pub fn line(case: &Case, fixed: &[Figures]) -> String {
    let each = fixed.iter();
    let each = each.map(|f| format!(",{:.3},{:.3}", f.mean() / 1e6, f.error() / 1e6));
    format!("{}{}", case.name(), each.collect::<String>())
}

/// The measurements of each situation in its set-up, as far as there are some.
pub fn known(cases: &[Case]) -> Vec<(Case, Rates)> {
    let setup = cases.first().map(|c| c.setup);
    let file = FILES.into_iter().find(|f| Some(f.0) == setup);
    let lines = file
        .map_or("", |f| f.1)
        .lines()
        .filter(|l| !l.starts_with('#'))
        .skip(1);
    let by_name: HashMap<&str, Rates> = lines
        .filter_map(|line| {
            let (name, figures) = line.split_once(',')?;
            let means: Vec<f64> = figures.split(',').step_by(2).flat_map(str::parse).collect();
            Some((name, means.try_into().ok()?))
        })
        .collect();
    let of = |case: &Case| Some((*case, *by_name.get(case.name().as_str())?));
    cases.iter().filter_map(of).collect()
}

pub fn row(case: &Case, rates: &Rates) -> Row {
    Row::measured(&case.situation(), *rates)
}
