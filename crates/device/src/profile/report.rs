//! The result of a profile: curves, ratios, and the deviation of the estimate from full measurement.
use super::fit::{fit, monotonic};
use super::measured::{Measured, Test, all_sizes};
use super::{Interval, Options};
use crate::{Nanos, Op};
use std::collections::BTreeMap;

/// Nanoseconds of one access by request size.
pub type Times = Vec<(u64, f64)>;

/// The line of one interval: nanoseconds = slope · bytes + intercept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// The sizes that it covers.
    pub interval: Interval,
    /// Nanoseconds per byte.
    pub slope: f64,
    /// Nanoseconds.
    pub intercept: f64,
}

/// The curve of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The test.
    pub test: Test,
    /// Measured times.
    pub measured: Times,
    /// The fitted lines.
    pub lines: Vec<Fitted>,
    /// Estimated times of all sizes.
    pub estimated: Times,
    /// Measured times of all sizes, if all were measured.
    pub full: Option<Times>,
}

/// Sequential-to-random throughput ratio of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Request size, bytes.
    pub size: u64,
    /// The estimated ratio.
    pub estimated: f64,
    /// The measured ratio, if all sizes were measured.
    pub full: Option<f64>,
}

/// The ratios of one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioSummary {
    /// Read or write.
    pub op: Op,
    /// By size, ascending.
    pub ratios: Vec<Ratio>,
    /// Mean of the estimated ratios over all sizes.
    pub mean: f64,
    /// The smallest of them.
    pub min: f64,
    /// The largest of them.
    pub max: f64,
    /// Half width of the 95% confidence interval of the ratios, relative, as the median over measured sizes: how much
    /// the device's times vary between passes. `None` if sizes were measured once only.
    pub interval: Option<f64>,
}

impl RatioSummary {
    /// The ratio at a request size; that of the nearest end for sizes that were not profiled.
    pub fn at(&self, size: u64) -> Option<f64> {
        let above = self.ratios.partition_point(|r| r.size < size);
        let nearest = above.min(self.ratios.len().checked_sub(1)?);
        Some(self.ratios[nearest].estimated)
    }
}

/// Deviation of the estimate from full measurement: relative errors, absolute values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Median of the errors of the ratios.
    pub median_ratio: f64,
    /// Largest of them.
    pub max_ratio: f64,
    /// Median of the errors of the times of all four tests.
    pub median_time: f64,
    /// Median relative difference between the ratios of the full measurement's first and last repetition: the noise
    /// floor of any estimate. `None` if there was one repetition.
    pub repeat: Option<f64>,
    /// Time of the full measurement, nanoseconds.
    pub elapsed: Nanos,
    /// Time of the estimate as a share of `elapsed`.
    pub fraction: f64,
}

/// The result of profiling a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// What was profiled.
    pub target: String,
    /// Bytes of the file.
    pub file: u64,
    /// Time spent on the estimate's accesses, nanoseconds, without preparing the file.
    pub elapsed: Nanos,
    /// One curve per test of the four.
    pub curves: Vec<Curve>,
    /// One summary per operation.
    pub ratios: Vec<RatioSummary>,
    /// The deviation, if all sizes were measured too.
    pub deviation: Option<Deviation>,
}

pub(crate) fn report(
    target: String,
    options: &Options,
    measured: &Measured,
    full: Option<&Measured>,
) -> Profile {
    let curves: Vec<Curve> = Test::all(measured.writes())
        .into_iter()
        .map(|test| curve(test, options, measured, full))
        .collect();
    let ratios: Vec<RatioSummary> = [Op::Read, Op::Write]
        .into_iter()
        .filter_map(|op| summary(op, &curves, measured.interval(op)))
        .collect();
    Profile {
        target,
        file: options.file,
        elapsed: measured.elapsed,
        deviation: full.and_then(|f| deviation(&curves, &ratios, measured, f)),
        curves,
        ratios,
    }
}

/// Fits a line per interval to the measured times, and estimates all sizes with it.
pub(crate) fn curve(
    test: Test,
    options: &Options,
    measured: &Measured,
    full: Option<&Measured>,
) -> Curve {
    let points = measured.of(test);
    let mut lines = Vec::new();
    let mut estimated: BTreeMap<u64, f64> = BTreeMap::new();
    for &interval in &options.intervals {
        let within: Vec<(u64, f64)> = points
            .iter()
            .copied()
            .filter(|(size, _)| (interval.from..=interval.to).contains(size))
            .collect();
        let line = fit(&within);
        lines.push(Fitted {
            interval,
            slope: line.slope,
            intercept: line.intercept,
        });
        for size in interval.sizes() {
            // A size in which two intervals meet has an estimate from both lines.
            let time = line.at(size);
            estimated
                .entry(size)
                .and_modify(|t| *t = (*t + time) / 2.0)
                .or_insert(time);
        }
    }
    let mut times: Vec<f64> = estimated.values().copied().collect();
    monotonic(&mut times);
    Curve {
        test,
        measured: points,
        lines,
        estimated: all_sizes(&options.intervals)
            .into_iter()
            .zip(times)
            .collect(),
        full: full.map(|f| f.of(test)),
    }
}

/// The ratio of throughputs at one size is the inverse ratio of the times.
fn summary(op: Op, curves: &[Curve], interval: Option<f64>) -> Option<RatioSummary> {
    let find = |random| curves.iter().find(|c| c.test == Test { op, random });
    let (sequential, random) = (find(false)?, find(true)?);
    let full: BTreeMap<u64, f64> = match (&sequential.full, &random.full) {
        (Some(s), Some(r)) => s
            .iter()
            .zip(r)
            .map(|(s, r)| (s.0, r.1 / s.1.max(1.0)))
            .collect(),
        _ => BTreeMap::new(),
    };
    let ratios: Vec<Ratio> = sequential
        .estimated
        .iter()
        .zip(&random.estimated)
        .map(|(s, r)| Ratio {
            size: s.0,
            estimated: r.1 / s.1.max(1.0),
            full: full.get(&s.0).copied(),
        })
        .collect();
    let values = ratios.iter().map(|r| r.estimated);
    Some(RatioSummary {
        op,
        mean: values.clone().sum::<f64>() / ratios.len() as f64,
        min: values.clone().fold(f64::INFINITY, f64::min),
        max: values.fold(0.0, f64::max),
        interval,
        ratios,
    })
}

fn deviation(
    curves: &[Curve],
    ratios: &[RatioSummary],
    measured: &Measured,
    full: &Measured,
) -> Option<Deviation> {
    let error = |estimated: f64, real: f64| (estimated / real - 1.0).abs();
    let mut of_ratios: Vec<f64> = ratios
        .iter()
        .flat_map(|s| &s.ratios)
        .filter_map(|r| Some(error(r.estimated, r.full?)))
        .collect();
    let mut of_times: Vec<f64> = curves
        .iter()
        .flat_map(|c| c.estimated.iter().zip(c.full.iter().flatten()))
        .map(|(e, f)| error(e.1, f.1))
        .collect();
    of_ratios.sort_by(f64::total_cmp);
    of_times.sort_by(f64::total_cmp);
    Some(Deviation {
        median_ratio: *of_ratios.get(of_ratios.len() / 2)?,
        max_ratio: *of_ratios.last()?,
        median_time: *of_times.get(of_times.len() / 2)?,
        repeat: full.repeat(),
        elapsed: full.elapsed,
        fraction: measured.elapsed as f64 / full.elapsed.max(1) as f64,
    })
}
